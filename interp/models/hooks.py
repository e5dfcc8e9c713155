"""Forward hooks that read or replace the tensor at a point, and always go away again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from interp.models.sites import IO, Site
from interp.models.wrapped import uncompiled

EditFunction = Callable[[Tensor, Tensor], Tensor | None]


class StopForward(BaseException):
    """Ends a forward pass once everything is captured; no Exception, lest model code swallow it."""


@dataclass(frozen=True)
class Point:
    """One side of a live module.

    `heads` marks a tensor [b s heads d_head], shown as [b s heads*d_head].  `in_place` marks a point whose
    tensor is also kept elsewhere by the block (the residual at resid_mid): a replacement is written into it.
    """

    module: nn.Module
    io: IO
    heads: bool = False
    in_place: bool = False


def on_tensor(point: Point, visit: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Call `visit` with the tensor at `point` whenever it passes; a returned tensor takes its place."""

    def outgoing(module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        tensor = output[0] if isinstance(output, (tuple, list)) else output
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"the output of {type(module).__name__} is a {type(tensor).__name__}, not a tensor"
            )
        new = visit(tensor)
        if new is None:
            return None
        return type(output)((new, *output[1:])) if isinstance(output, (tuple, list)) else new

    def incoming(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        key = None if args else _tensor_keyword(module, kwargs)
        new = visit(args[0] if key is None else kwargs[key])
        if new is None:
            return None
        return ((new, *args[1:]), kwargs) if key is None else (args, {**kwargs, key: new})

    if point.io == "out":
        return point.module.register_forward_hook(outgoing)
    return point.module.register_forward_pre_hook(incoming, with_kwargs=True)


def _tensor_keyword(module: nn.Module, kwargs: dict[str, Any]) -> str:
    tensors = [key for key, value in kwargs.items() if isinstance(value, Tensor)]
    if not tensors:
        raise ValueError(f"{type(module).__name__} was called without a tensor: it has no input to read")
    return "hidden_states" if "hidden_states" in tensors else tensors[0]


@contextmanager
def capturing(points: dict[Site, Point], *, stop: bool) -> Iterator[dict[Site, Tensor]]:
    """Collect the tensor at each point; with `stop`, end the pass as soon as the last of them is there."""
    captured: dict[Site, Tensor] = {}

    def reader(site: Site, point: Point) -> Callable[[Tensor], None]:
        def read(tensor: Tensor) -> None:
            captured.setdefault(site, tensor.flatten(2) if point.heads else tensor)
            if stop and len(captured) == len(points):
                raise StopForward

        return read

    with ExitStack() as stack:
        for site, point in points.items():
            stack.callback(on_tensor(point, reader(site, point)).remove)
        try:
            yield captured
        except StopForward:
            if len(captured) != len(points):
                raise


def editor(
    site: Site, point: Point, edit: EditFunction, positions: Callable[[], Tensor]
) -> Callable[[Tensor], Tensor | None]:
    """The visit that applies a user's edit and checks what comes back."""

    def apply(tensor: Tensor) -> Tensor | None:
        old = tensor.flatten(2) if point.heads else tensor
        # An in-place write must not disturb what the edit keeps for its own backward pass.
        new = edit(old.clone() if point.in_place else old, positions())
        if new is None or new is tensor:
            return None
        if not isinstance(new, Tensor) or new.shape != old.shape:
            shown = tuple(new.shape) if isinstance(new, Tensor) else type(new).__name__
            raise ValueError(
                f"the edit at {site} must return a tensor of shape {tuple(old.shape)} or None, got {shown}"
            )
        new = new.to(device=tensor.device, dtype=tensor.dtype).reshape(tensor.shape)
        if point.in_place:
            tensor.copy_(new)
            return None
        return new

    return apply


@contextmanager
def in_eval_mode(module: nn.Module, *, grad: bool) -> Iterator[None]:
    """Run in evaluation mode, uncompiled, with gradients or without, and put every training flag back."""
    training = [m for m in module.modules() if m.training]
    for m in training:
        m.training = False
    try:
        with torch.set_grad_enabled(grad), uncompiled(module):
            yield
    finally:
        for m in training:
            m.training = True
