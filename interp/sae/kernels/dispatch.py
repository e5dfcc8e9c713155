"""Which kernels run: by device, dtype and, during training, by how many gates are open."""

from __future__ import annotations

import importlib
import importlib.util
import logging
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch

from interp.core.messages import one_of, warn_once
from interp.sae.kernels.backend import Backend

BACKENDS = ("auto", "dense", "reference", "cpu", "triton")

# Share of open gates below which the list form wins: on CPUs measured with benchmarks/sae_step.py (equal at
# about 0.2, at any size), on GPUs from the bandwidth of gathers against the rate of products.
CPU_CROSSOVER = 0.15
GPU_CROSSOVER = 0.01

TRITON_WIDEST = 16384  # of a row that one program of the Triton latent pass holds in registers

_MODULES = {
    "dense": "interp.sae.kernels.tiled",
    "reference": "interp.sae.kernels.reference",
    "cpu": "interp.sae.kernels.cpu",
    "triton": "interp.sae.kernels.triton",
}

_log = logging.getLogger(__name__)


def load_backend(name: str) -> Backend:
    """Import a backend: ``"reference"``, ``"cpu"`` or ``"triton"``; ``"dense"`` has only ``gradients``.

    Without numba, ``"cpu"`` is served by the plain torch list form and a warning says so once.

    Raises:
        ImportError: triton is asked for and not installed.
    """
    one_of("backend", name, tuple(_MODULES))
    if name == "cpu" and not installed("numba"):
        warn_once(
            _log,
            "numba",
            "numba is not installed: sparse SAE kernels run in plain torch, slower; pip install numba",
        )
        name = "reference"
    if name == "triton" and not installed("triton"):
        raise ImportError("backend='triton' needs triton: pip install 'interp-toolkit[gpu]'")
    return cast(Backend, importlib.import_module(_MODULES[name]))


def installed(package: str) -> bool:
    """Whether a package can be imported, without importing it."""
    return importlib.util.find_spec(package) is not None


def sparse_backend_for(device: torch.device, dtype: torch.dtype, width: int) -> str | None:
    """The compiled backend for a device, a parameter dtype and a width d, or None where only dense torch pays."""
    if device.type == "cpu" and dtype in (torch.float32, torch.float64):
        if installed("numba"):
            return "cpu"
        warn_once(_log, "numba-auto", "numba is not installed: SAE training stays dense; pip install numba")
        return None
    if device.type == "cuda" and dtype == torch.float32 and installed("triton"):
        if width <= TRITON_WIDEST:
            return "triton"
        warn_once(_log, "wide", f"width {width} is over {TRITON_WIDEST}: SAE steps stay dense on this device")
    return None


@dataclass
class DensitySwitch:
    """Dense or sparse, from the measured number of open gates per token, with hysteresis.

    Starts dense. Turns sparse once the running mean has been below ``crossover * n_latents`` for ``patience``
    steps in a row, and dense again as soon as it exceeds 1.5 times that.
    """

    n_latents: int
    crossover: float
    patience: int = 50
    sparse: bool = False
    mean: float | None = None
    steps_below: int = 0

    _MEMORY = 0.9  # of the running mean: about ten steps

    def observe(self, open_gates: float) -> bool:
        """Record one step's mean number of open gates per token; True when the decision changed."""
        self.mean = (
            open_gates if self.mean is None else self._MEMORY * self.mean + (1 - self._MEMORY) * open_gates
        )
        limit = self.crossover * self.n_latents
        self.steps_below = self.steps_below + 1 if self.mean < limit else 0
        before = self.sparse
        if self.sparse:
            self.sparse = self.mean <= 1.5 * limit
        else:
            self.sparse = self.steps_below >= self.patience
        return self.sparse != before

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to decide alike."""
        state = asdict(self)
        return {key: state[key] for key in ("sparse", "mean", "steps_below")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave."""
        self.sparse, self.mean, self.steps_below = state["sparse"], state["mean"], state["steps_below"]
