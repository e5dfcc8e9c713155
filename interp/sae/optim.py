"""Adam that may leave rows untouched: exact where the first moment is off, half the state, less traffic.

With ``beta1 = 0`` a row whose gradient is zero does not move and its second moment only decays. So the moment
can wait: it is stored with the step at which it was last brought up to date, and decayed by the missed steps
when the row is next touched. The result is that of dense Adam, as the Gated SAE recipe uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class RowState(NamedTuple):
    """One parameter's optimiser state, updated in place by whoever steps it."""

    v: Float[Tensor, " rows *width"]  # second moment, as of last_step
    last_step: Int[Tensor, " rows"]  # int64; 0 = never touched


class RowSparseAdam(torch.optim.Optimizer):
    """Adam with ``beta1 = 0`` that stores (second moment, last step) per row of every parameter.

    Dense gradients update every row. Gradients in ``torch.sparse_coo`` layout with one sparse dimension (as
    ``nn.Embedding(sparse=True)`` gives) update the listed rows only; both may alternate at will, and equal
    ``torch.optim.Adam(betas=(0, beta2))`` to rounding.

    Args:
        params: parameters or groups, as for any torch optimiser.
        lr: learning rate.
        betas: ``(0.0, beta2)``.
        eps: added to the root of the bias-corrected second moment.

    Raises:
        ValueError: beta1 is not 0 (skipping rows would then change the result), or a value is out of range.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 3e-4,
        betas: tuple[float, float] = (0.0, 0.999),
        eps: float = 1e-8,
    ) -> None:
        if betas[0] != 0.0:
            raise ValueError(
                f"betas={betas!r}: RowSparseAdam needs beta1 = 0, because with a first moment every row "
                "moves at every step; use betas=(0.0, beta2) or torch.optim.Adam"
            )
        if not 0.0 <= betas[1] < 1.0:
            raise ValueError(f"betas={betas!r}: beta2 must be in [0, 1)")
        if lr < 0.0 or eps < 0.0:
            raise ValueError(f"lr={lr!r}, eps={eps!r}: neither may be negative")
        super().__init__(params, {"lr": lr, "betas": tuple(betas), "eps": eps, "steps": 0})

    def row_state(self, parameter: Tensor) -> RowState:
        """The state of a parameter (made on first use); kernels that step rows themselves write into it."""
        state = self.state[parameter]
        if not state:
            state["v"] = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
            state["last_step"] = torch.zeros(parameter.shape[0], dtype=torch.int64, device=parameter.device)
        return RowState(state["v"], state["last_step"])

    def advance(self) -> int:
        """Count one step and return its number (from 1); for kernels that update rows themselves."""
        for group in self.param_groups:
            group["steps"] += 1
        return int(self.param_groups[0]["steps"])

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.advance()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, parameter.grad, group)
        return loss

    def _update(self, parameter: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        v, last_step = self.row_state(parameter)
        beta2, steps = group["betas"][1], group["steps"]
        rows = None
        if grad.layout == torch.sparse_coo:
            grad = grad.coalesce()
            rows, grad = grad.indices()[0], grad.values()
        v_now = v if rows is None else v[rows]
        missed = steps - (last_step if rows is None else last_step[rows])
        v_now.mul_((beta2 ** missed.double()).to(v.dtype).reshape(-1, *[1] * (v.dim() - 1)))
        v_now.addcmul_(grad, grad, value=1 - beta2)
        denominator = (v_now.sqrt() / (1 - beta2**steps) ** 0.5).add_(group["eps"])
        if rows is None:
            parameter.addcdiv_(grad, denominator, value=-group["lr"])
            last_step.fill_(steps)
        else:
            parameter.index_add_(0, rows, grad / denominator, alpha=-group["lr"])
            v[rows] = v_now
            last_step[rows] = steps

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As any optimiser's; the step numbers stay integers (torch casts state to the parameter's dtype)."""
        super().load_state_dict(state_dict)
        saved_ids = [i for group in state_dict["param_groups"] for i in group["params"]]
        parameters = [p for group in self.param_groups for p in group["params"]]
        for saved_id, parameter in zip(saved_ids, parameters, strict=True):
            if saved_id in state_dict["state"]:
                last_step = state_dict["state"][saved_id]["last_step"]
                self.state[parameter]["last_step"] = last_step.to(parameter.device, copy=True)

    @torch.no_grad()
    def reset_rows_(self, parameter: Tensor, rows: Int[Tensor, " k"]) -> None:
        """Forget the second moment of some rows (of entries, for a vector), e.g. after resampling latents."""
        self.row_state(parameter).v[rows] = 0
