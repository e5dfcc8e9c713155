"""What the sparse step passes around: parameters, loss options, the list of open gates, losses, gradients.

Every backend (plain torch, numba, Triton) takes and returns these, so that they can be compared one by one.
Notation: n tokens, d width, F latents, z open gates (pairs of a token and a latent with a positive gate).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.messages import one_of
from interp.sae.kernels.rules import Prefixes, Rule, Threshold, Window

WEIGHTED = ("l1", "ri_l1")  # sparsities that are linear in the code
OF_THE_JUMP = ("l0", "quadratic", "tanh")  # those that a threshold receives a gradient from
SPARSITIES = (*WEIGHTED, *OF_THE_JUMP, "none")
REDUCTIONS = ("sum", "mean")


class GatedParams(NamedTuple):
    """A Gated SAE's parameters. ``r_mag=None`` means r = 0; ``W_mag=None`` means tied to ``W_gate``.

    Gate ``pi = xc . W_gate_i + b_gate_i``; magnitude ``mu = exp(r_mag_i) q_i + b_mag_i`` with ``q_i`` the
    gate's own product ``xc . W_gate_i`` when tied and ``xc . W_mag_i`` when not.
    """

    W_gate: Float[Tensor, "F d"]
    W_dec: Float[Tensor, "F d"]
    b_gate: Float[Tensor, " F"]
    b_mag: Float[Tensor, " F"]
    b_dec: Float[Tensor, " d"]
    r_mag: Float[Tensor, " F"] | None = None
    W_mag: Float[Tensor, "F d"] | None = None


class CodeParams(NamedTuple):
    """A dictionary with one code: ``z = xc . W_enc_i + b_enc_i``, of which a rule keeps some as f.

    `threshold` is the JumpReLU's; the decoder's width e is d but for a transcoder, whose `W_skip` is optional.
    """

    W_enc: Float[Tensor, "F d"]
    W_dec: Float[Tensor, "F e"]
    b_enc: Float[Tensor, " F"]
    b_dec: Float[Tensor, " e"]
    threshold: Float[Tensor, " F"] | None = None
    W_skip: Float[Tensor, "e d"] | None = None


@dataclass(frozen=True)
class LossOptions:
    """Which loss.

    sparsity: ``"l1"`` weighs every latent alike (decoder rows are then kept at unit norm); ``"ri_l1"``
        weighs latent i by ``|d_i|``; ``"none"`` weighs nothing. With one code the norm always receives its
        gradient. With a JumpReLU's `Window` also ``"l0"``, the mean number of open latents; ``"quadratic"``,
        ``(mean L0 / sparsity_parameter - 1)^2``; ``"tanh"``, ``sum tanh(sparsity_parameter f |d_i|)``.
    freeze_decoder: gated only. The decoder is a constant in the auxiliary reconstruction and, under
        ``ri_l1``, in the norm factor: both or neither.
    detach_centering: gated only. The sparsity and auxiliary terms don't reach ``b_dec`` through the
        centring ``x - b_dec``.
    mse_reduction: squared errors summed (``"sum"``) or averaged (``"mean"``) over the dimensions.
    center_input: whether ``b_dec`` is subtracted from the input.
    rule: which entries of z are kept.
    prefixes: reconstructions from parts of the code, which are trained besides (or instead of) the whole.
    sparsity_parameter: see `sparsity`.
    blocks: widths of the pieces (sites) of which an activation is made; ``|d_i|`` is then the sum of the
        pieces' norms. Empty: one piece.
    """

    sparsity: str = "l1"
    freeze_decoder: bool = True
    detach_centering: bool = False
    mse_reduction: str = "sum"
    center_input: bool = True
    rule: Rule = field(default_factory=Threshold)
    prefixes: Prefixes | None = None
    sparsity_parameter: float = 1.0
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        one_of("sparsity", self.sparsity, SPARSITIES)
        one_of("mse_reduction", self.mse_reduction, REDUCTIONS)
        if self.sparsity in OF_THE_JUMP and not isinstance(self.rule, Window):
            raise ValueError(f"sparsity = {self.sparsity!r} needs the thresholds of a JumpReLU")
        if not self.sparsity_parameter > 0:
            raise ValueError(f"sparsity_parameter = {self.sparsity_parameter} must be positive")

    def error_scale(self, n_tokens: int, d: int) -> float:
        """Factor on the squared error summed over everything: 1/n, or 1/(n d) for the mean reduction."""
        return 1.0 / (max(n_tokens, 1) * (d if self.mse_reduction == "mean" else 1))

    def norms(self, W_dec: Float[Tensor, "F e"]) -> Float[Tensor, " F"]:
        """``|d_i|``, of several blocks their norms' sum."""
        if not self.blocks:
            return W_dec.norm(dim=1)
        return torch.stack([part.norm(dim=1) for part in W_dec.split(self.blocks, dim=1)]).sum(0)

    def norm_gradient(self, weight: Float[Tensor, " F"], W_dec: Float[Tensor, "F e"]) -> Float[Tensor, "F e"]:
        """``weight_i d|d_i| / d d_i``."""
        parts = W_dec.split(self.blocks, dim=1) if self.blocks else (W_dec,)
        tiny = torch.finfo(W_dec.dtype).tiny
        scaled = [(weight / p.norm(dim=1).clamp_min(tiny))[:, None] * p for p in parts]
        return torch.cat(scaled, dim=1) if len(scaled) > 1 else scaled[0]


@dataclass(frozen=True)
class OpenGates:
    """The list of open gates, sorted by (latent, token), with the same list indexed by token.

    ``values`` and every other per-gate array is in (latent, token) order. Walking token t: for q in
    ``range(token_ptr[t], token_ptr[t + 1])`` the latent is ``latents[q]`` (ascending) and its values stand at
    position ``order[q]`` of the per-gate arrays.
    """

    latent_ptr: Int[Tensor, " F+1"]  # int64
    tokens: Int[Tensor, " z"]  # int32
    values: Float[Tensor, " z"]  # xc . w_i, without the bias
    token_ptr: Int[Tensor, " n+1"]  # int64
    latents: Int[Tensor, " z"]  # int32
    order: Int[Tensor, " z"]  # int64

    def __len__(self) -> int:
        return self.values.shape[0]

    @property
    def n_tokens(self) -> int:
        return self.token_ptr.shape[0] - 1

    @property
    def n_latents(self) -> int:
        return self.latent_ptr.shape[0] - 1

    def hits(self) -> Int[Tensor, " F"]:
        """Number of open gates of each latent."""
        return self.latent_ptr.diff()

    def latent_of_entry(self) -> Int[Tensor, " z"]:
        """The latent of every entry, in (latent, token) order."""
        indices = torch.arange(self.n_latents, device=self.latent_ptr.device)
        return torch.repeat_interleave(indices, self.hits(), output_size=len(self))


class Losses(NamedTuple):
    """One step's loss, as 0-dim float64 tensors; ``total = reconstruction + l1 * sparsity + auxiliary``.

    fired: tokens on which f_i > 0. error: the squared error of the whole code's reconstruction (of several
    `Prefixes`, of the main one); reconstruction is the same where there is one. smallest: the smallest code that
    was kept, in the units that it was selected by; infinite where none was.
    """

    reconstruction: Tensor
    sparsity: Tensor
    auxiliary: Tensor
    l0: Tensor
    open_gates: Tensor
    fired: Int[Tensor, " F"]
    error: Tensor
    smallest: Tensor


def losses_of(codes: Float[Tensor, "n F"], reconstruction: Tensor, sparsity: Tensor) -> Losses:
    """What an objective in plain torch reports: its parts (means over tokens), and what its codes are like."""
    fired, n = codes.detach() != 0, max(codes.shape[0], 1)
    l0 = fired.sum().double() / n
    whole, zero = reconstruction.detach().double(), torch.zeros_like(l0)
    return Losses(
        whole, sparsity.detach().double(), zero, l0, l0, fired.sum(0), whole, torch.full_like(l0, torch.inf)
    )


class GatedTokenPass(NamedTuple):
    """Per-gate results of the token pass in (latent, token) order, and the residual gradients per token."""

    f: Float[Tensor, " z"]
    a: Float[Tensor, " z"]  # ReLU(pi)
    alpha: Float[Tensor, " z"]  # dL/dpi
    beta: Float[Tensor, " z"]  # dL/dmu
    G: Float[Tensor, "n d"]  # dL/dx_hat
    G_aux: Float[Tensor, "n d"]  # dL/dx_tilde


class CodeTokenPass(NamedTuple):
    """One code's token pass. Where there are P `Prefixes`, G has a row for each (token, prefix), token by token:
    the residual gradient that an entry of that prefix receives; ``rows`` says which is an entry's."""

    f: Float[Tensor, " z"]
    beta: Float[Tensor, " z"]  # dL/dz
    theta: Float[Tensor, " z"] | None  # dL/dthreshold
    G: Float[Tensor, "n*P e"]
    rows: Int[Tensor, " z"]


class GatedGrads(NamedTuple):
    """Gradients of the gated loss, field for field those of :class:`GatedParams`."""

    W_gate: Float[Tensor, "F d"]
    W_dec: Float[Tensor, "F d"]
    b_gate: Float[Tensor, " F"]
    b_mag: Float[Tensor, " F"]
    b_dec: Float[Tensor, " d"]
    r_mag: Float[Tensor, " F"] | None
    W_mag: Float[Tensor, "F d"] | None


class CodeGrads(NamedTuple):
    """Gradients of one code's loss, field for field those of :class:`CodeParams`."""

    W_enc: Float[Tensor, "F d"]
    W_dec: Float[Tensor, "F e"]
    b_enc: Float[Tensor, " F"]
    b_dec: Float[Tensor, " e"]
    threshold: Float[Tensor, " F"] | None = None
    W_skip: Float[Tensor, "e d"] | None = None
