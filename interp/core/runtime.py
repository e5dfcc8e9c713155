"""Where a training step runs: one device in plain torch, or many through Lightning Fabric behind the same calls."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from interp.core import distributed
from interp.core.device import autocast, resolve_device


class Runtime:
    """One device, plain torch. `Runtime.fabric` gives the same calls over several."""

    def __init__(self, device: str | torch.device = "auto", precision: str = "32") -> None:
        if type(self) is Runtime and distributed.world_size() > 1 and not torch.distributed.is_initialized():
            distributed.init_from_env()
        self.device = resolve_device(device)
        self.precision = precision
        self.autocast()  # a precision that the device lacks is refused here
        self.scaler = torch.amp.GradScaler(self.device.type) if precision == "fp16" else None

    @classmethod
    def fabric(cls, **arguments: Any) -> FabricRuntime:
        """A runtime over `lightning_fabric.Fabric(**arguments)` (strategy, devices, precision ...).

        Raises ImportError naming the extra when Fabric is not installed.
        """
        return FabricRuntime(**arguments)

    @property
    def rank(self) -> int:
        return distributed.rank()

    @property
    def world_size(self) -> int:
        return distributed.world_size()

    def setup(self, module: nn.Module) -> nn.Module:
        """The module to call in the forward pass."""
        return module.to(self.device)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return autocast(self.device, self.precision)

    def no_sync(self, module: nn.Module, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Skips gradient exchange but on the `last` micro-batch."""
        return contextlib.nullcontext()

    def backward(self, loss: Tensor) -> None:
        (self.scaler.scale(loss) if self.scaler is not None else loss).backward()

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """The sum over ranks."""
        return distributed.all_reduce_sum(tensor)

    def barrier(self) -> None:
        distributed.barrier()


class FabricRuntime(Runtime):
    """Placement, precision, DDP and FSDP by Lightning Fabric; the loop stays ours."""

    def __init__(self, **arguments: Any) -> None:
        try:
            from lightning_fabric import Fabric
        except ImportError as error:
            raise ImportError(
                "Runtime.fabric needs lightning-fabric; pip install 'interp-toolkit[distributed]'"
            ) from error
        self._fabric = Fabric(**arguments)
        self._fabric.launch()
        self.device = self._fabric.device
        self.precision = "32"
        self.scaler = None

    @property
    def rank(self) -> int:
        return self._fabric.global_rank

    @property
    def world_size(self) -> int:
        return self._fabric.world_size

    def setup(self, module: nn.Module) -> nn.Module:
        return self._fabric.setup_module(module)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return self._fabric.autocast()

    def no_sync(self, module: nn.Module, last: bool) -> contextlib.AbstractContextManager[Any]:
        return self._fabric.no_backward_sync(module, enabled=not last)  # type: ignore[arg-type]

    def backward(self, loss: Tensor) -> None:
        self._fabric.backward(loss)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        return self._fabric.all_reduce(tensor, reduce_op="sum")  # type: ignore[return-value]

    def barrier(self) -> None:
        self._fabric.barrier()
