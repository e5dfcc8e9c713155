"""One training step of a dictionary: loss, gradients, Adam, the decoder's constraint; by the cheapest route.

The routes give the same step (to rounding) and share one optimiser state, so a run may change route at any
step and resume on another. See :mod:`interp.sae.kernels` for the list form that makes a step cost little more
than one encoder product.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.core.messages import one_of
from interp.sae.gated import GatedSAE
from interp.sae.kernels.backend import FusedAdam
from interp.sae.kernels.dispatch import (
    BACKENDS,
    CPU_CROSSOVER,
    GPU_CROSSOVER,
    DensitySwitch,
    load_backend,
    sparse_backend_for,
)
from interp.sae.kernels.lists import GatedParams, Losses, LossOptions, StandardGrads, StandardParams
from interp.sae.optim import RowSparseAdam
from interp.sae.standard import StandardSAE
from interp.sae.tied import TiedSAE

_ROUNDING = 1024  # in units of the type's precision: as far as rows of unit norm drift from it
_CHECK_EVERY = 100  # steps between looks for NaN and infinity in the data
_log = logging.getLogger(__name__)


class StepStats(NamedTuple):
    """One step's numbers, 0-dim float64 tensors; ``loss = reconstruction + l1 * sparsity + auxiliary``.

    l0: mean number of latents with f > 0 per token. open_gates: mean number of open gates (for a standard SAE
    the same). fired: number of tokens of this batch on which each latent had f > 0, int64.
    """

    loss: Tensor
    reconstruction: Tensor
    sparsity: Tensor
    auxiliary: Tensor
    l0: Tensor
    open_gates: Tensor
    fired: Int[Tensor, " F"]


def make_step(
    sae: GatedSAE | StandardSAE | TiedSAE,
    *,
    betas: tuple[float, float] = (0.0, 0.999),
    eps: float = 1e-8,
    grad_clip: float | None = None,
    sparsity: str = "l1",
    freeze_decoder: bool = True,
    detach_centering: bool = False,
    mse_reduction: str = "sum",
    backend: str = "auto",
) -> TrainStep:
    """Build the training step of a gated, standard or tied SAE.

    Args:
        sae: its parameters are updated in place. Under ``sparsity="l1"`` decoder rows are brought to unit norm
            here and kept there (gradients projected before Adam, rows renormalised after); under ``"ri_l1"`` they
            are free. A tied SAE normalises its rows itself.
        betas, eps: Adam's. ``beta1 = 0`` (the Gated SAE recipe) lets the sparse routes touch only the rows of
            latents that were open; any other value uses torch's Adam on whole gradients.
        grad_clip: largest global gradient norm, or None. Clipping needs whole gradients, too.
        sparsity, freeze_decoder, detach_centering, mse_reduction: see
            :class:`interp.sae.kernels.lists.LossOptions`.
        backend: ``"auto"`` starts dense and turns sparse when few gates are open, where a compiled backend
            exists; ``"dense"`` is whole products; ``"reference"``, ``"cpu"`` and ``"triton"`` are the list
            form in plain torch, numba and Triton.
    """
    if not isinstance(sae, GatedSAE | StandardSAE | TiedSAE):
        raise TypeError(
            f"sae is a {type(sae).__name__}; GatedSAE, StandardSAE and TiedSAE have a training step"
        )
    one_of("backend", backend, BACKENDS)
    if grad_clip is not None and grad_clip <= 0:
        raise ValueError(f"grad_clip={grad_clip!r} must be positive, or None for no clipping")
    options = LossOptions(
        sparsity=sparsity,
        freeze_decoder=freeze_decoder,
        detach_centering=detach_centering,
        mse_reduction=mse_reduction,
        center_input=sae.cfg.apply_b_dec_to_input,
    )
    return TrainStep(sae, options, betas=betas, eps=eps, grad_clip=grad_clip, backend=backend)


class TrainStep:
    """``step(x, l1_coefficient, lr) -> StepStats`` updates the dictionary in place; see :func:`make_step`."""

    def __init__(
        self,
        sae: GatedSAE | StandardSAE | TiedSAE,
        options: LossOptions,
        *,
        betas: tuple[float, float],
        eps: float,
        grad_clip: float | None,
        backend: str,
    ) -> None:
        self.sae, self.options, self.grad_clip = sae, options, grad_clip
        self._calls = 0
        self.params: GatedParams | StandardParams = sae.params()
        tied = isinstance(sae, TiedSAE)
        self.unit_norm = options.sparsity == "l1" and not tied
        if self.unit_norm and _has_other_rows(sae.W_dec):
            sae.normalize_decoder_()  # all at once: the sparse routes see to the rows that they touch only
        self._fused = betas[0] == 0.0 and grad_clip is None and not tied
        trained = list(sae.parameters()) if tied else [p for p in self.params if p is not None]
        self.optimizer: torch.optim.Optimizer
        if betas[0] == 0.0:
            self.optimizer = RowSparseAdam(trained, betas=betas, eps=eps)
        else:
            self.optimizer = torch.optim.Adam(trained, betas=betas, eps=eps)

        W_dec = self.params.W_dec
        device = W_dec.device
        self._sparse = (
            sparse_backend_for(device, W_dec.dtype, W_dec.shape[1]) if backend == "auto" else backend
        )
        self._switch: DensitySwitch | None = None
        if backend == "auto" and self._sparse is not None:
            crossover = CPU_CROSSOVER if device.type == "cpu" else GPU_CROSSOVER
            self._switch = DensitySwitch(self.params.W_dec.shape[0], crossover)
            _log.info(
                "SAE step: dense until fewer than %.0f of %d gates are open per token, then %s",
                crossover * self._switch.n_latents,
                self._switch.n_latents,
                self._sparse,
            )
        else:
            _log.info("SAE step: %s", self.backend_name)

    @property
    def backend_name(self) -> str:
        """The route of the next step: ``"dense"``, ``"reference"``, ``"cpu"`` or ``"triton"``."""
        if self._sparse is None or (self._switch is not None and not self._switch.sparse):
            return "dense"
        return self._sparse

    def __call__(self, x: Float[Tensor, "n d"], l1_coefficient: float, lr: float) -> StepStats:
        """Take one step on a batch.

        Raises:
            ValueError: x is empty, not [n, d_in], of another dtype or device than the parameters, or holds
                NaN or infinite values (looked for at the first step and every 100th); a negative coefficient.
        """
        if not l1_coefficient >= 0:
            raise ValueError(f"l1_coefficient = {l1_coefficient} must not be negative")
        self._check(x)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        route = self.backend_name
        if self._fused and route != "dense":
            with torch.no_grad():
                losses = load_backend(route).update(
                    self.params, x, l1_coefficient, self.options, self._fused_adam(lr)
                )
        else:
            losses = self._unfused(route, x, l1_coefficient)
        if self._switch is not None and self._switch.observe(float(losses.open_gates)):
            _log.info(
                "SAE step: %s from here on (%.1f gates open per token)", self.backend_name, self._switch.mean
            )
        total = losses.reconstruction + l1_coefficient * losses.sparsity + losses.auxiliary
        return StepStats(total, *losses)

    def _unfused(self, route: str, x: Tensor, l1: float) -> Losses:
        with torch.no_grad():
            losses, grads = load_backend(route).gradients(self.sae.params(), x, l1, self.options)
        if isinstance(self.sae, TiedSAE):
            self.sae.set_gradients_(cast(StandardGrads, grads))
        else:
            for parameter, grad in zip(self.params, grads, strict=True):
                if parameter is not None:
                    parameter.grad = grad
        self._apply_gradients()
        return losses

    def _apply_gradients(self) -> None:
        if self.grad_clip is not None:
            nn.utils.clip_grad_norm_(self.sae.parameters(), self.grad_clip)
        if self.unit_norm:
            self.sae.project_decoder_grad_()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.unit_norm:
            self.sae.normalize_decoder_()

    def _fused_adam(self, lr: float) -> FusedAdam:
        assert isinstance(self.optimizer, RowSparseAdam)
        states = [None if p is None else self.optimizer.row_state(p) for p in self.params]
        kind: Any = type(self.params)
        group = self.optimizer.param_groups[0]
        return FusedAdam(
            lr=lr,
            beta2=group["betas"][1],
            eps=group["eps"],
            step=self.optimizer.advance(),
            unit_norm=self.unit_norm,
            v=kind(*(None if s is None else s.v for s in states)),
            last_step=kind(*(None if s is None else s.last_step for s in states)),
        )

    def reset_latents_(self, latents: Int[Tensor, " k"]) -> None:
        """Forget the optimiser's moments of some latents (their weights are the caller's to set)."""
        for name, parameter in self.sae.named_parameters():
            if name == "b_dec":
                continue
            for moment in self.optimizer.state[parameter].values():
                if moment.shape == parameter.shape and moment.is_floating_point():
                    moment[latents] = 0

    def state_dict(self) -> dict[str, Any]:
        """Optimiser state and the density switch: with the weights, all a bit-exact resume needs."""
        switch = None if self._switch is None else self._switch.state_dict()
        return {"optimizer": self.optimizer.state_dict(), "switch": switch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave; the backends may differ."""
        self.optimizer.load_state_dict(state["optimizer"])
        if self._switch is not None and state["switch"] is not None:
            self._switch.load_state_dict(state["switch"])

    def _check(self, x: Tensor) -> None:
        W_dec = self.params.W_dec
        if x.dim() != 2 or x.shape[0] == 0 or x.shape[1] != W_dec.shape[1]:
            raise ValueError(f"x has shape {tuple(x.shape)}; a step needs [n, {W_dec.shape[1]}] with n > 0")
        if self._calls % _CHECK_EVERY == 0 and not torch.isfinite(x).all():
            bad = int((~torch.isfinite(x)).any(1).sum())
            raise ValueError(f"x holds NaN or infinite values in {bad} of {x.shape[0]} rows")
        self._calls += 1
        if x.dtype != W_dec.dtype or x.device != W_dec.device:
            raise ValueError(
                f"x is {x.dtype} on {x.device}, the dictionary {W_dec.dtype} on {W_dec.device}: convert x"
            )


def _has_other_rows(W_dec: Tensor) -> bool:
    """Whether a row is not of unit norm to rounding. Those that are stay as they are: a run resumes bit for bit."""
    off = (W_dec.detach().norm(dim=1) - 1).abs().max()
    return float(off) > _ROUNDING * torch.finfo(W_dec.dtype).eps
