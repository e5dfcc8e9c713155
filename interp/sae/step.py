"""One training step of a dictionary: loss, gradients, Adam, the decoder's constraint; by the cheapest route.

The routes give the same step (to rounding) and share one optimiser state, so a run may change route at any
step and resume on another. See :mod:`interp.sae.kernels` for the list form that makes a step cost little more
than one encoder product.
"""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.core.messages import one_of
from interp.sae.dictionary import Dictionary
from interp.sae.kernels.backend import FusedAdam, WalkedAdam
from interp.sae.kernels.dead import DeadLatents
from interp.sae.kernels.dispatch import (
    BACKENDS,
    CPU_CROSSOVER,
    GPU_CROSSOVER,
    DensitySwitch,
    load_backend,
    sparse_backend_for,
)
from interp.sae.kernels.lists import Losses
from interp.sae.kernels.rules import BatchTopK, TopK
from interp.sae.optim import RowSparseAdam

_ROUNDING = 1024  # in units of the type's precision: as far as rows of unit norm drift from it
_CHECK_EVERY = 100  # steps between looks for NaN and infinity in the data
_BELOW_LAST = 0.9  # a step's smallest selected score is probably above so much of the last one's
_log = logging.getLogger(__name__)


class StepStats(NamedTuple):
    """One step's numbers, 0-dim float64 tensors; ``loss = reconstruction + weight * sparsity + auxiliary``.

    l0: mean number of latents with a code per token. open_gates: mean number of open gates (without gates the
    same). fired: number of tokens of this batch on which each latent had a code, int64. error, smallest: see `Losses`.
    """

    loss: Tensor
    reconstruction: Tensor
    sparsity: Tensor
    auxiliary: Tensor
    l0: Tensor
    open_gates: Tensor
    fired: Int[Tensor, " F"]
    error: Tensor
    smallest: Tensor


def make_step(
    sae: Dictionary,
    loss: Any = None,
    *,
    betas: tuple[float, float] = (0.0, 0.999),
    eps: float = 1e-8,
    grad_clip: float | None = None,
    backend: str = "auto",
    **options: Any,
) -> TrainStep:
    """Build the training step of a dictionary.

    Args:
        sae: its parameters are updated in place. Where its loss asks for it, decoder rows are brought to unit norm
            here and kept there (gradients projected before Adam, rows renormalised after).
        loss: the architecture's `loss_class`; or its fields, as `options`.
        betas, eps: Adam's. ``beta1 = 0`` (the Gated SAE recipe) lets the sparse routes touch only the rows of
            latents that were open; any other value moves all rows, in one walk.
        grad_clip: largest global gradient norm, or None.
        backend: ``"auto"`` takes the list form where a compiled backend exists; of a rule that selects by a
            threshold from when few latents are open. ``"dense"`` is whole products; ``"reference"``, ``"cpu"`` and
            ``"triton"`` are the list form in plain torch, numba and Triton.

    Raises:
        TypeError: the dictionary is for inference only, or not in the terms of the list kernels where one is named.
    """
    if not isinstance(sae, Dictionary) or sae.loss_class is None:
        raise TypeError(f"sae is a {type(sae).__name__}: it has no training loss")
    one_of("backend", backend, BACKENDS)
    if grad_clip is not None and grad_clip <= 0:
        raise ValueError(f"grad_clip={grad_clip!r} must be positive, or None for no clipping")
    chosen = sae.loss_class(**options) if loss is None else loss
    return TrainStep(sae, chosen, betas=betas, eps=eps, grad_clip=grad_clip, backend=backend)


class TrainStep:
    """``step(x, weight, lr) -> StepStats`` updates the dictionary in place; see :func:`make_step`."""

    def __init__(
        self,
        sae: Dictionary,
        loss: Any,
        *,
        betas: tuple[float, float],
        eps: float,
        grad_clip: float | None,
        backend: str,
    ) -> None:
        self.sae, self.loss, self.grad_clip = sae, loss, grad_clip
        self.options = sae.loss_options(loss)
        self.unit_norm = sae.unit_norm(loss)
        self._calls = 0
        self._guess = 0.0  # of the smallest score that a batch's selection keeps: no result depends on it
        if self.unit_norm and _has_other_rows(sae.W_dec):
            sae.normalize_decoder_()  # all at once: the sparse routes see to the rows that they touch only
        self._in_place = self.options is not None and sae.kernels_may_update
        self.optimizer: torch.optim.Optimizer
        if betas[0] == 0.0:
            self.optimizer = RowSparseAdam(sae.parameters(), betas=betas, eps=eps)
        else:
            self.optimizer = torch.optim.Adam(sae.parameters(), betas=betas, eps=eps)
        self._choose_route(backend)

    def _choose_route(self, backend: str) -> None:
        device, W_dec = self.sae.b_dec.device, self.sae.W_dec
        self._sparse: str | None = None
        self._switch: DensitySwitch | None = None
        if self.options is None:
            if backend not in ("auto", "dense"):
                raise TypeError(
                    f"backend={backend!r}: a {self.sae.architecture} dictionary has no form for the list kernels; "
                    "use 'auto' or 'dense'"
                )
        elif backend != "auto":
            self._sparse = backend
        else:
            self._sparse = sparse_backend_for(device, W_dec.dtype, W_dec.shape[1])
            if self._sparse is not None and not isinstance(self.options.rule, TopK | BatchTopK):
                crossover = CPU_CROSSOVER if device.type == "cpu" else GPU_CROSSOVER
                self._switch = DensitySwitch(W_dec.shape[0], crossover)
        if self._switch is None:
            _log.info("SAE step: %s", self.backend_name)
            return
        _log.info(
            "SAE step: dense until fewer than %.0f of %d gates are open per token, then %s",
            self._switch.crossover * self._switch.n_latents,
            self._switch.n_latents,
            self._sparse,
        )

    @property
    def backend_name(self) -> str:
        """The route of the next step: ``"dense"``, ``"reference"``, ``"cpu"`` or ``"triton"``."""
        if self._sparse is None or (self._switch is not None and not self._switch.sparse):
            return "dense"
        return self._sparse

    def __call__(
        self,
        x: Float[Tensor, "n d"],
        weight: float,
        lr: float,
        *,
        target: Float[Tensor, "n e"] | None = None,
        dead: Int[Tensor, " k"] | None = None,
    ) -> StepStats:
        """Take one step on a batch.

        Args:
            weight: of the sparsity.
            target: what is to be reconstructed, where it isn't x.
            dead: latents that have been silent; for architectures whose loss revives them.

        Raises:
            ValueError: x is empty, not [n, d_in], of another dtype or device than the parameters, or holds
                NaN or infinite values (looked for at the first step and every 100th); a negative weight.
        """
        if not weight >= 0:
            raise ValueError(f"l1_coefficient = {weight} must not be negative")
        self._check(x)
        self.sae.checked_target(x, target)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        term = self.sae.dead_term(self.loss)
        silent = None if term is None or dead is None or not len(dead) else DeadLatents(dead, term)
        route = self.backend_name
        if self.options is None:
            losses = self._by_autograd(x, weight, target, silent)
        elif self._in_place and route != "dense":
            how = {"target": target, "dead": silent, "guess": self._guess}
            losses = load_backend(route).update(
                self.sae.params(), x, weight, self.options, self._adam(lr), **how
            )
        else:
            losses = self._unfused(route, x, weight, target, silent)
        if self.options is not None and isinstance(self.options.rule, BatchTopK):
            smallest = float(losses.smallest)
            self._guess = _BELOW_LAST * smallest if smallest < float("inf") else 0.0
        if self._switch is not None and self._switch.observe(float(losses.open_gates)):
            _log.info(
                "SAE step: %s from here on (%.1f gates open per token)", self.backend_name, self._switch.mean
            )
        total = losses.reconstruction + weight * losses.sparsity + losses.auxiliary
        return StepStats(total, *losses)

    def _by_autograd(
        self, x: Tensor, weight: float, target: Tensor | None, dead: DeadLatents | None
    ) -> Losses:
        total, losses = self.sae.objective(x, weight, self.loss, target=target, dead=dead)
        total.backward()
        self._apply_gradients()
        return losses

    def _unfused(
        self, route: str, x: Tensor, weight: float, target: Tensor | None, dead: DeadLatents | None
    ) -> Losses:
        assert self.options is not None
        with torch.no_grad():
            losses, grads = load_backend(route).gradients(
                self.sae.params(), x, weight, self.options, target=target, dead=dead, guess=self._guess
            )
        self.sae.set_gradients_(grads)
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

    def _adam(self, lr: float) -> FusedAdam | WalkedAdam:
        """The optimiser's state as the kernels take it, one step further."""
        params = self.sae.params()
        kind: Any = type(params)
        group = self.optimizer.param_groups[0]
        (beta1, beta2), eps = group["betas"], group["eps"]
        if not isinstance(self.optimizer, RowSparseAdam):
            step, states = _advance(self.optimizer, params)
            m, v = (
                kind(*(None if s is None else s[name] for s in states)) for name in ("exp_avg", "exp_avg_sq")
            )
            return WalkedAdam(lr, beta1, beta2, eps, step, self.unit_norm, self.grad_clip, m, v, None)
        rows = [None if p is None else self.optimizer.row_state(p) for p in params]
        v, last_step = (
            kind(*(None if s is None else s.v for s in rows)),
            kind(*(s and s.last_step for s in rows)),
        )
        step = self.optimizer.advance()
        if self.grad_clip is None:
            return FusedAdam(lr, beta2, eps, step, self.unit_norm, v, last_step)
        return WalkedAdam(lr, 0.0, beta2, eps, step, self.unit_norm, self.grad_clip, None, v, last_step)

    def reset_latents_(self, latents: Int[Tensor, " k"]) -> None:
        """Forget the optimiser's moments of some latents (their weights are the caller's to set)."""
        for name, parameter in self.sae.named_parameters():
            if name not in (*self.sae.encoder_matrices, *self.sae.latent_vectors, "W_dec", "r_mag"):
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
        d_in, b_dec = self.sae.cfg.d_in, self.sae.b_dec
        if x.dim() != 2 or x.shape[0] == 0 or x.shape[1] != d_in:
            raise ValueError(f"x has shape {tuple(x.shape)}; a step needs [n, {d_in}] with n > 0")
        if self._calls % _CHECK_EVERY == 0 and not torch.isfinite(x).all():
            bad = int((~torch.isfinite(x)).any(1).sum())
            raise ValueError(f"x holds NaN or infinite values in {bad} of {x.shape[0]} rows")
        self._calls += 1
        if x.dtype != b_dec.dtype or x.device != b_dec.device:
            raise ValueError(
                f"x is {x.dtype} on {x.device}, the dictionary {b_dec.dtype} on {b_dec.device}: convert x"
            )


def _advance(optimizer: torch.optim.Optimizer, params: Any) -> tuple[int, list[dict[str, Any] | None]]:
    """Count one step of torch's Adam, whose state kernels then change; its number, and each parameter's state."""
    states: list[dict[str, Any] | None] = []
    for parameter in params:
        if parameter is None:
            states.append(None)
            continue
        state = optimizer.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0, dtype=torch.float32)
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        state["step"] += 1
        states.append(state)
    return int(next(s for s in states if s is not None)["step"]), states


def _has_other_rows(W_dec: Tensor) -> bool:
    """Whether a row is not of unit norm to rounding. Those that are stay as they are: a run resumes bit for bit."""
    off = (W_dec.detach().norm(dim=1) - 1).abs().max()
    return float(off) > _ROUNDING * torch.finfo(W_dec.dtype).eps
