"""Where a training step runs: one device in plain torch, or several through Lightning Fabric behind the same calls."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch import Tensor, nn

from interp.core import distributed
from interp.core.device import autocast, resolve_device


class Runtime:
    """One device, plain torch.

    Under torchrun it joins the process group but exchanges no gradients: that serves tasks that take their own steps
    (`update`) and talk to each other themselves. `Runtime.fabric` trains any task on several devices.
    """

    exchanges_gradients = False

    def __init__(self, device: str | torch.device = "auto", precision: str = "32") -> None:
        distributed.init_from_env()
        self.rank, self.world_size = distributed.rank(), distributed.world_size()
        self.device = resolve_device(device)
        self._set_precision(precision)

    def _set_precision(self, precision: str) -> None:
        self.precision = precision
        self.autocast()  # a precision that the device lacks is refused here
        self.scaler = torch.amp.GradScaler(self.device.type) if precision == "fp16" else None

    @classmethod
    def single(cls, device: str | torch.device = "auto", precision: str = "32") -> Runtime:
        """The runtime of one device."""
        return Runtime(device, precision)

    @classmethod
    def fabric(cls, fabric: Any = None, *, precision: str = "32", **arguments: Any) -> FabricRuntime:
        """A runtime over `lightning_fabric.Fabric(**arguments)` (accelerator, devices, num_nodes), data-parallel.

        Start the script with torchrun; it says how many processes there are. Give `fabric` to use one that is ready.
        Raises ImportError naming the extra when Fabric is not installed, ValueError for a strategy other than DDP.
        """
        return FabricRuntime(fabric, precision=precision, **arguments)

    def setup(self, module: nn.Module) -> nn.Module:
        """The module to call in the forward pass."""
        return module.to(self.device, torch.float64 if self.precision == "64" else None)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        return autocast(self.device, self.precision)

    def no_sync(self, module: nn.Module) -> contextlib.AbstractContextManager[Any]:
        """Within it, backward doesn't exchange the gradients of `module`."""
        return contextlib.nullcontext()

    def backward(self, loss: Tensor) -> None:
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """The sum over ranks, in place."""
        return distributed.all_reduce_sum(tensor)

    def barrier(self) -> None:
        distributed.barrier()


class FabricRuntime(Runtime):
    """Placement and gradient exchange by Lightning Fabric; precision and the loop stay ours."""

    exchanges_gradients = True

    def __init__(self, fabric: Any = None, *, precision: str = "32", **arguments: Any) -> None:
        try:
            from lightning_fabric import Fabric
            from lightning_fabric.strategies import DDPStrategy, SingleDeviceStrategy
        except ImportError as error:
            raise ImportError(
                "Runtime.fabric needs lightning-fabric; pip install 'interp-toolkit[distributed]'"
            ) from error
        if fabric is None:
            here = distributed.local_world_size()
            arguments = {
                "devices": here,
                "strategy": "ddp" if distributed.world_size() > 1 else "auto",
                **arguments,
            }
            fabric = Fabric(**arguments)
        self._fabric = fabric
        if not isinstance(fabric.strategy, (DDPStrategy, SingleDeviceStrategy)):
            raise ValueError(
                f"strategy {type(fabric.strategy).__name__} shards the weights, which checkpoints here don't support; "
                "use strategy='ddp'"
            )
        fabric.launch()
        self.rank, self.world_size = fabric.global_rank, fabric.world_size
        self.device = fabric.device
        self._set_precision(precision)

    def setup(self, module: nn.Module) -> nn.Module:
        return self._fabric.setup_module(super().setup(module))

    def no_sync(self, module: nn.Module) -> contextlib.AbstractContextManager[Any]:
        return self._fabric.no_backward_sync(module)

    def backward(self, loss: Tensor) -> None:
        self._fabric.backward(loss if self.scaler is None else self.scaler.scale(loss))
