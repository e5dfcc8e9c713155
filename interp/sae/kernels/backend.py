"""What a sparse backend offers to the training step and to inference; a backend is a module with these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.dead import DeadLatents
from interp.sae.kernels.lists import (
    CodeGrads,
    CodeParams,
    GatedGrads,
    GatedParams,
    Losses,
    LossOptions,
    OpenGates,
)

Params = GatedParams | CodeParams
Grads = GatedGrads | CodeGrads

SMALLEST_NORM = 1e-12  # of a decoder row that is renormalised; a smaller one keeps its previous value
WHOLE = ("b_dec", "W_skip")  # parameters that have no row per latent: they move at every step


@dataclass(frozen=True)
class FusedAdam:
    """What a kernel needs to finish a step by itself: Adam with ``beta1 = 0`` on the touched rows, in place.

    For every parameter: ``v <- beta2^(step - last_step) v + (1 - beta2) g^2``, ``last_step <- step``,
    ``p <- p - lr g / (sqrt(v / (1 - beta2^step)) + eps)``. With ``unit_norm`` the component of a decoder
    row's gradient along the row is removed first, and the row is divided by its norm afterwards (a row whose
    norm would fall below ``SMALLEST_NORM`` keeps its previous value).

    step: this step's number, from 1. v, last_step: the optimiser's tensors, field for field those of the
    parameters (None where the parameter is None).
    """

    lr: float
    beta2: float
    eps: float
    step: int
    unit_norm: bool
    v: Params
    last_step: Params


@dataclass(frozen=True)
class WalkedAdam:
    """Adam with a first moment (``beta1 > 0``), gradient clipping, or both, in one walk over all rows.

    The gradients of all parameters are scaled to a global norm of at most `max_norm` (as torch's
    ``clip_grad_norm_``), then projected, then go into Adam as `FusedAdam` or, with `m`, as torch's Adam does it.
    """

    lr: float
    beta1: float
    beta2: float
    eps: float
    step: int
    unit_norm: bool
    max_norm: float | None
    m: Params | None
    v: Params
    last_step: Params | None


class Backend(Protocol):
    """A module of compiled kernels.

    With one code, `target` is what is to be reconstructed, where it isn't x; `dead` are latents to revive; `guess` is
    what the smallest score that a `BatchTopK` keeps probably exceeds: only the speed depends on it.
    """

    def gradients(
        self,
        params: Params,
        x: Float[Tensor, "n d"],
        l1: float,
        options: LossOptions,
        *,
        target: Float[Tensor, "n e"] | None = None,
        dead: DeadLatents | None = None,
        guess: float = 0.0,
    ) -> tuple[Losses, Grads]:
        """Losses and gradients, nothing changed: for other optimisers."""

    def update(
        self,
        params: Params,
        x: Float[Tensor, "n d"],
        l1: float,
        options: LossOptions,
        adam: FusedAdam | WalkedAdam,
        *,
        target: Float[Tensor, "n e"] | None = None,
        dead: DeadLatents | None = None,
        guess: float = 0.0,
    ) -> Losses:
        """A whole training step in place; with `FusedAdam` gradients never become F x d tensors."""

    def compact(
        self, xc: Float[Tensor, "n d"], weight: Float[Tensor, "F d"], threshold: Float[Tensor, " F"]
    ) -> OpenGates:
        """List the pairs with ``xc . w_i > threshold_i`` without an n x F tensor."""

    def listed(
        self, params: CodeParams, xc: Float[Tensor, "n d"], options: LossOptions, *, guess: float = 0.0
    ) -> OpenGates:
        """List what a rule keeps of a batch, without an n x F tensor."""

    def decode(
        self,
        token_ptr: Tensor,
        latents: Tensor,
        values: Tensor,
        W_dec: Float[Tensor, "F d"],
        b_dec: Float[Tensor, " d"],
    ) -> Float[Tensor, "n d"]:
        """``sum over a token's entries of value * W_dec[latent] + b_dec``, entries in token order."""
