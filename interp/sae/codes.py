"""Sparse codes: for each token the latents that fire and how strongly, in compressed row form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class SparseCodes:
    """Codes of n tokens over F latents; token t owns the entries ``indptr[t]:indptr[t + 1]``.

    Attributes:
        indptr: int64, non-decreasing, ``indptr[0] == 0``, ``indptr[n] == nnz``.
        indices: latent of each entry, ascending within a token.
        values: activation of each entry.
        shape: (n, F).
    """

    indptr: Int[Tensor, " n+1"]
    indices: Int[Tensor, " nnz"]
    values: Float[Tensor, " nnz"]
    shape: tuple[int, int]

    def __post_init__(self) -> None:
        n, _ = self.shape
        if self.indptr.shape != (n + 1,):
            raise ValueError(f"indptr has shape {tuple(self.indptr.shape)}, {n} tokens need ({n + 1},)")
        if self.indices.shape != self.values.shape or self.indices.dim() != 1:
            raise ValueError(
                f"indices {tuple(self.indices.shape)} and values {tuple(self.values.shape)} must be two "
                "vectors of one length"
            )

    @classmethod
    def from_dense(cls, codes: Float[Tensor, "n F"]) -> SparseCodes:
        """The non-zero entries of dense codes."""
        if codes.dim() != 2:
            raise ValueError(f"codes have shape {tuple(codes.shape)}; give [n, F]")
        rows, indices = torch.nonzero(codes, as_tuple=True)
        return cls.from_entries(rows, indices, codes[rows, indices], (codes.shape[0], codes.shape[1]))

    @classmethod
    def from_entries(
        cls,
        rows: Int[Tensor, " nnz"],
        indices: Int[Tensor, " nnz"],
        values: Float[Tensor, " nnz"],
        shape: tuple[int, int],
    ) -> SparseCodes:
        """From (token, latent, value) triples that are sorted by token, then by latent."""
        counts = torch.bincount(rows, minlength=shape[0])
        return cls(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), indices, values, shape)

    @property
    def nnz(self) -> int:
        """Number of entries."""
        return self.values.shape[0]

    @property
    def rows(self) -> Int[Tensor, " nnz"]:
        """Token of each entry, int64."""
        tokens = torch.arange(self.shape[0], device=self.indptr.device)
        return torch.repeat_interleave(tokens, self.indptr.diff(), output_size=self.nnz)

    def to_dense(self) -> Float[Tensor, "n F"]:
        """The n x F array: for small F or few tokens."""
        dense = self.values.new_zeros(self.shape)
        dense[self.rows, self.indices.long()] = self.values
        return dense

    def select(self, latents: Sequence[int] | Int[Tensor, " k"]) -> SparseCodes:
        """The same codes with every other latent silent (the shape stays)."""
        wanted = torch.zeros(self.shape[1], dtype=torch.bool, device=self.indices.device)
        chosen = torch.as_tensor(latents, dtype=torch.long, device=self.indices.device)
        if chosen.numel() and not 0 <= int(chosen.min()) <= int(chosen.max()) < self.shape[1]:
            raise ValueError(f"latents = {latents!r} must lie in 0..{self.shape[1] - 1}")
        wanted[chosen] = True
        keep = wanted[self.indices.long()]
        return SparseCodes.from_entries(self.rows[keep], self.indices[keep], self.values[keep], self.shape)

    def l0(self) -> float:
        """Mean number of latents per token whose value isn't zero."""
        return int((self.values != 0).sum()) / max(self.shape[0], 1)

    def to(self, device: torch.device | str) -> SparseCodes:
        """The same codes on another device."""
        return SparseCodes(
            self.indptr.to(device), self.indices.to(device), self.values.to(device), self.shape
        )
