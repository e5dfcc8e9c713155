"""What dictionaries share: activations to sparse codes and back, the unit-norm constraint, rescaling."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.config import to_dict
from interp.core.device import resolve_dtype
from interp.core.identity import Identity
from interp.core.messages import one_of
from interp.sae.codes import SparseCodes
from interp.sae.kernels import dense
from interp.sae.kernels.autograd import sparse_loss
from interp.sae.kernels.dispatch import BACKENDS
from interp.sae.kernels.inference import TokenCodes
from interp.sae.kernels.lists import GatedParams, LossOptions, StandardParams
from interp.sae.metadata import SAEMetadata

D = TypeVar("D", bound="Dictionary")

SMALLEST_NORM = 1e-12  # of a decoder row that is divided by its norm
_MOST_NUMBERS = 2**56  # what torch can still count, in bytes of float64
_TILE_NUMBERS = 2**22  # size of the n x latents tiles of encode_sparse: 16 MiB in float32


@dataclass(frozen=True)
class DictionaryConfig:
    """Shapes and form of a dictionary.

    Attributes:
        d_in: width of the activations, d.
        d_sae: number of latents, F.
        apply_b_dec_to_input: subtract the decoder's bias from the input.
        dtype: of the parameters.
    """

    d_in: int
    d_sae: int
    apply_b_dec_to_input: bool = True
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in ("d_in", "d_sae"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)} must be at least 1")
        if self.d_in * self.d_sae > _MOST_NUMBERS:
            raise ValueError(f"d_in = {self.d_in} times d_sae = {self.d_sae} is more than any memory holds")
        resolve_dtype(self.dtype)


class SAEOutput(NamedTuple):
    """Reconstruction [... d] and dense codes [... F]."""

    x_hat: Float[Tensor, "... d"]
    codes: Float[Tensor, "... F"]


class SAELoss(NamedTuple):
    """A differentiable total and its parts, detached, in float64.

    ``total = reconstruction + l1_coefficient * sparsity + auxiliary``; each is a mean over tokens. l0: mean
    number of latents above zero; open_gates: mean number of open gates (the same where there are no gates).
    """

    total: Tensor
    reconstruction: Tensor
    sparsity: Tensor
    auxiliary: Tensor
    l0: Tensor
    open_gates: Tensor


class Dictionary(nn.Module, ABC):
    """A sparse dictionary. Decoder ``W_dec`` [F d] holds a direction per latent, ``b_dec`` [d] the bias.

    Subclasses name their parameters by kind: every encoder matrix is [F d], every vector in the space of
    latents (biases, thresholds) is [F]. What they don't name has no unit (like `r_mag`).

    Raises (all methods that take activations): ValueError when the last dimension of x isn't d_in, or when x
    holds NaN or infinite values. Activations of another floating type are converted.
    """

    architecture: ClassVar[str]
    config_class: ClassVar[type[DictionaryConfig]]
    encoder_matrices: ClassVar[tuple[str, ...]]
    latent_vectors: ClassVar[tuple[str, ...]]

    W_dec: nn.Parameter
    b_dec: nn.Parameter

    def __init__(self, cfg: DictionaryConfig) -> None:
        super().__init__()
        if type(cfg) is not self.config_class:
            raise TypeError(
                f"cfg is a {type(cfg).__name__}; {type(self).__name__} needs a {self.config_class.__name__}"
            )
        self.cfg = cfg
        self.metadata = SAEMetadata()

    @abstractmethod
    def _encode_latents(self, xc: Float[Tensor, "n d"], latents: slice) -> Float[Tensor, "n k"]:
        """Codes of a run of latents; xc is the input as the encoder takes it."""

    @abstractmethod
    def _encode_by_kernel(self, xc: Float[Tensor, "n d"]) -> TokenCodes:
        """The codes of all latents, sparse, without gradients."""

    def encode(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... F"]:
        """Dense codes."""
        xc = self._encoder_input(self._checked(x))
        return self._encode_latents(xc.flatten(0, -2), slice(None)).unflatten(0, x.shape[:-1])

    def encode_sparse(self, x: Float[Tensor, "... d"]) -> SparseCodes:
        """The latents that fire on each token; leading dimensions are flattened to n.

        An n x F array never exists: the latents are gone over in tiles, or, where no gradient is wanted and
        the work is worth it, by the compiled kernels.
        """
        xc = self._encoder_input(self._checked(x)).flatten(0, -2)
        n, n_latents = xc.shape[0], self.cfg.d_sae
        if not torch.is_grad_enabled() and n * n_latents >= _TILE_NUMBERS:
            return SparseCodes(*self._encode_by_kernel(xc), (n, n_latents))
        rows, indices, values = [], [], []
        for tile in _tiles(n_latents, max(64, _TILE_NUMBERS // max(n, 1))):
            codes = self._encode_latents(xc, tile)
            row, index = torch.nonzero(codes, as_tuple=True)
            rows.append(row)
            indices.append(index + tile.start)
            values.append(codes[row, index])
        row, index, value = torch.cat(rows), torch.cat(indices), torch.cat(values)
        if len(rows) > 1:
            order = torch.sort(row, stable=True).indices
            row, index, value = row[order], index[order], value[order]
        return SparseCodes.from_entries(row, index.int(), value, (n, n_latents))

    def decode(self, codes: Float[Tensor, "... F"] | SparseCodes) -> Float[Tensor, "... d"]:
        """``codes @ W_dec + b_dec``."""
        if codes.shape[-1] != self.cfg.d_sae:
            raise ValueError(f"codes have {codes.shape[-1]} latents, this dictionary {self.cfg.d_sae}")
        if not isinstance(codes, SparseCodes):
            return codes.to(self.W_dec.dtype) @ self.W_dec + self.b_dec
        summed = nn.functional.embedding_bag(
            codes.indices.long(),
            self.W_dec,
            codes.indptr,
            mode="sum",
            per_sample_weights=codes.values.to(self.W_dec.dtype),
            include_last_offset=True,
        )
        return summed + self.b_dec

    def forward(self, x: Float[Tensor, "... d"]) -> SAEOutput:
        """Encode and decode."""
        codes = self.encode(x)
        return SAEOutput(self.decode(codes), codes)

    def loss(self, x: Float[Tensor, "n d"], l1_coefficient: float, **options: Any) -> SAELoss:
        """The training loss, for architectures that have one."""
        raise TypeError(f"a {self.architecture} dictionary is for inference: it has no training loss")

    def _loss(
        self,
        params: GatedParams | StandardParams,
        x: Float[Tensor, "... d"],
        l1_coefficient: float,
        options: LossOptions,
        backend: str,
    ) -> SAELoss:
        if l1_coefficient < 0:
            raise ValueError(f"l1_coefficient = {l1_coefficient} must not be negative")
        one_of("backend", backend, BACKENDS[1:])
        x = self._checked(x).flatten(0, -2)
        if backend == "dense":
            total, parts = dense.loss(params, x, l1_coefficient, options)
        else:
            total, parts = sparse_loss(params, x, l1_coefficient, options, backend=backend)
        return SAELoss(total, *parts[:5])

    def to_jumprelu(self) -> Dictionary:
        """The same function as a JumpReLU dictionary, where there is one."""
        raise TypeError(f"a {self.architecture} dictionary has no JumpReLU form")

    def _checked(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        if not isinstance(x, Tensor) or not x.is_floating_point():
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"x is {kind}; give a floating-point tensor [..., {self.cfg.d_in}]")
        if x.dim() < 2 or x.shape[-1] != self.cfg.d_in:
            raise ValueError(
                f"x has shape {tuple(x.shape)}; this dictionary was made for [..., d_in = {self.cfg.d_in}]"
            )
        # The sum is cheap to look at; where it isn't finite, that may be for its size alone.
        if not torch.isfinite(x.detach().sum(dtype=torch.promote_types(x.dtype, torch.float32))):
            bad = int((~torch.isfinite(x)).any(-1).sum())
            if bad:
                raise ValueError(f"x holds NaN or infinite values in {bad} of {x[..., 0].numel()} rows")
        return x.to(self.W_dec.dtype)

    def _encoder_input(self, x: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
        return x - self.b_dec if self.cfg.apply_b_dec_to_input else x

    def _parameter(self, *shape: int, device: torch.device | str) -> nn.Parameter:
        return nn.Parameter(torch.zeros(shape, dtype=resolve_dtype(self.cfg.dtype), device=device))

    @torch.no_grad()
    def normalize_decoder_(self) -> None:
        """Divide each decoder row by its norm; a row shorter than 1e-12 is left as it is."""
        norms = self.W_dec.norm(dim=1, keepdim=True)
        self.W_dec.div_(torch.where(norms < SMALLEST_NORM, torch.ones_like(norms), norms))

    @torch.no_grad()
    def project_decoder_grad_(self) -> None:
        """Remove from each decoder row's gradient its component along the row (rows have unit norm)."""
        grad = self.W_dec.grad
        if grad is not None:
            grad.addcmul_((grad * self.W_dec).sum(1, keepdim=True), self.W_dec, value=-1)

    @torch.no_grad()
    def fold_activation_scale_(self, c: float, *, into: str = "biases") -> None:
        """Make a dictionary trained on c x take x itself, exactly: x_hat(x) = x_hat_before(c x) / c.

        Args:
            c: the scale, positive.
            into: ``"biases"`` divides biases and thresholds by c: codes come out in the units of the
                activations and the decoder keeps its norms. ``"weights"`` multiplies the encoder by c and
                divides the decoder: codes keep their values.
        """
        one_of("into", into, ("biases", "weights"))
        if not (c > 0 and c < float("inf")):
            raise ValueError(f"c = {c} must be a positive number")
        self.b_dec.div_(c)
        if into == "biases":
            for vector in self._named(self.latent_vectors):
                vector.div_(c)
        else:
            self.W_dec.div_(c)
            for matrix in self._named(self.encoder_matrices):
                matrix.mul_(c)
        self.metadata = replace(self.metadata, activation_scale=c, activation_scale_folded=True)

    @torch.no_grad()
    def fold_decoder_norm_(self) -> None:
        """Give every decoder row unit norm without changing a reconstruction; codes grow by the old norm."""
        norms = self.W_dec.norm(dim=1)
        norms = torch.where(norms < SMALLEST_NORM, torch.ones_like(norms), norms)
        self.W_dec.div_(norms[:, None])
        for matrix in self._named(self.encoder_matrices):
            matrix.mul_(norms[:, None])
        for vector in self._named(self.latent_vectors):
            vector.mul_(norms)

    def _named(self, names: tuple[str, ...]) -> Iterator[Tensor]:
        return (getattr(self, name) for name in names if getattr(self, name) is not None)

    def save_pretrained(self, folder: str | os.PathLike[str], metadata: SAEMetadata | None = None) -> Path:
        """Write ``config.json`` and ``weights.safetensors``; `metadata` replaces the dictionary's own."""
        from interp.sae.saving import write_pretrained

        if metadata is not None:
            self.metadata = metadata
        return write_pretrained(self, folder)

    @classmethod
    def from_pretrained(
        cls: type[D], folder: str | os.PathLike[str], *, device: torch.device | str = "cpu"
    ) -> D:
        """Read what `save_pretrained` wrote. Raises ValueError if it holds another architecture."""
        from interp.sae.saving import read_pretrained

        return read_pretrained(cls, folder, device=device)

    def identity(self) -> Identity:
        """What results measured on this dictionary belong to: its form and all of its weights."""
        return Identity.of(
            "dictionary",
            architecture=self.architecture,
            config=to_dict(self.cfg),
            weights=dict(self.state_dict()),
        )

    def extra_repr(self) -> str:
        return f"d_in={self.cfg.d_in}, d_sae={self.cfg.d_sae}"


def _tiles(length: int, size: int) -> Iterator[slice]:
    return (slice(start, min(start + size, length)) for start in range(0, length, size))
