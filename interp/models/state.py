"""The numbers of a module, wherever they are kept: in it, packed by a quantiser, or put away by accelerate."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def saved_state(module: nn.Module) -> Mapping[str, Any]:
    """All that is saved with a module, by name: weights, buffers, and what a quantiser keeps in their place.

    What accelerate put away is read when it is asked for.
    """
    # A part that torch.compile stands around is saved under a longer name.
    here = {name.replace("_orig_mod.", ""): value for name, value in module.state_dict().items()}
    away = Offloaded(module)
    return ChainMap(away, here) if away else here  # type: ignore[arg-type]


def unsaved_state(module: nn.Module) -> dict[str, Tensor]:
    """Buffers that are not saved but computed when a module is made, such as the frequencies of rotary positions.

    Frequencies that follow the length of the last text are left out: what they are scaled from is there as well.
    """
    found = {}
    for path, part in module.named_modules():
        follows = str(getattr(part, "rope_type", ""))
        moving = "dynamic" in follows or "longrope" in follows
        for name, buffer in part.named_buffers(recurse=False):
            if name in part._non_persistent_buffers_set and not (moving and _is_moving(name)):
                found[f"{path}.{name}"] = buffer
    return found


def _is_moving(name: str) -> bool:
    return name.endswith("inv_freq") and not name.endswith(("original_inv_freq", "long_inv_freq"))


def weight_of(root: nn.Module, part: Any) -> Tensor:
    """The weight [out in] or [d] that `part` of `root` multiplies with, in floating point.

    Raises:
        ValueError: a packed format that can't be read, or an adapter that does more than add to the weight.
    """
    adapted = getattr(part, "modules_to_save", None)
    if isinstance(adapted, nn.ModuleDict):
        active = [] if part.disable_adapters else [a for a in part.active_adapters if a in adapted]
        return weight_of(root, adapted[active[0]] if active else part.original_module)
    if hasattr(part, "get_base_layer"):
        return _with_adapters(part, weight_of(root, part.get_base_layer()))
    weight = getattr(part, "weight", None)
    if callable(weight) and not isinstance(weight, Tensor):  # torch's dynamically quantised maps
        weight = weight()
    if isinstance(weight, Tensor) and weight.is_quantized:
        weight = weight.dequantize()
    if isinstance(weight, Tensor) and weight.device.type == "meta":
        path = next(path for path, other in root.named_modules() if other is part)
        weight = Offloaded(root).get(f"{path}.weight", weight)
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or weight.device.type == "meta":
        raise ValueError(
            f"the weight of {type(part).__name__} can't be read as floating-point numbers: load the model without "
            "quantisation for this"
        )
    return weight


def _with_adapters(part: Any, weight: Tensor) -> Tensor:
    """A LoRA layer's weight with what its active adapters add."""
    if part.disable_adapters or part.merged:
        return weight
    for adapter in part.active_adapters:
        if adapter not in part.scaling:
            continue
        if getattr(part, "use_dora", {}).get(adapter):
            raise ValueError(
                f"adapter {adapter!r} is a DoRA, which does more than add: merge it (merge_and_unload)"
            )
        weight = weight + part.get_delta_weight(adapter).to(weight)
    return weight


def adapter_facts(module: nn.Module) -> list[Any]:
    """What peft keeps beside the weights: for each adapted layer which adapters act, and how strongly."""
    facts: list[Any] = []
    for path, part in module.named_modules():
        active = getattr(part, "active_adapters", None)
        if isinstance(active, (list, tuple)):
            strengths = getattr(part, "scaling", {})
            facts.append(
                (
                    path,
                    list(active),
                    bool(getattr(part, "disable_adapters", False)),
                    list(getattr(part, "merged_adapters", ())),
                    {str(name): strengths[name] for name in sorted(strengths)}
                    if isinstance(strengths, dict)
                    else {},
                )
            )
    return facts


class Offloaded(Mapping[str, Tensor]):
    """The tensors that accelerate put away (in another memory or on disk) until their module runs, read on demand."""

    def __init__(self, module: nn.Module) -> None:
        self._where: dict[str, tuple[Mapping[str, Tensor], str, torch.dtype]] = {}
        for path, part in module.named_modules():
            hook: Any = getattr(part, "_hf_hook", None)
            for one in getattr(hook, "hooks", (hook,)):
                store = getattr(one, "weights_map", None)
                if store is None:
                    continue
                deep = one.place_submodules
                for name, tensor in [*part.named_parameters(recurse=deep), *part.named_buffers(recurse=deep)]:
                    if tensor.device.type == "meta":
                        self._where[f"{path}.{name}" if path else name] = (store, name, tensor.dtype)

    def __getitem__(self, name: str) -> Tensor:
        store, key, dtype = self._where[name]
        return store[key].to(dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._where)

    def __len__(self) -> int:
        return len(self._where)
