"""Where tuning changed a model most: distances between the parameters of its blocks before and after.

Marks et al. 2024 (arXiv 2310.08164) keep the five layers with the largest sum of Frobenius norms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.core.messages import at_least, nearest, one_of

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

REDUCTIONS = ("sum", "norm")
ORDERS = ("highest", "lowest")
_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")


def parameter_divergence(
    base: LanguageModel, tuned: LanguageModel, *, reduce: str = "sum", relative: bool = False
) -> dict[int, float]:
    """By layer, how far the parameters of its block moved; embeddings and the final norm are no block's.

    Args:
        reduce: "sum" adds the Frobenius norms of the changes of the block's tensors (the paper's); "norm" is the norm
            of all of them together.
        relative: divide by the same of the base model's parameters.

    Raises:
        ValueError: parameters of other names or shapes, an adapter that wasn't merged, a model without blocks, or (for
            `relative`) a block whose base parameters are all 0.
    """
    one_of("reduce", reduce, REDUCTIONS)
    before, after = _parameters(base), _parameters(tuned)
    for name in [*before, *after]:
        if name not in before or name not in after:
            where, there = ("tuned", after) if name in before else ("base", before)
            raise ValueError(
                f"the {where} model has no parameter {name!r}; {nearest(name, list(there)[:40])}"
            )
        if before[name].shape != after[name].shape:
            raise ValueError(
                f"{name} has shape {tuple(before[name].shape)} in the base model and {tuple(after[name].shape)} in "
                "the tuned one: these are not the same model before and after tuning"
            )
    changes: dict[int, list[float]] = {}
    sizes: dict[int, list[float]] = {}
    for name, old in before.items():
        if match := _BLOCK.search(name):
            layer = int(match[1])
            changes.setdefault(layer, []).append(
                _norm(after[name].float() - old.float().to(after[name].device))
            )
            sizes.setdefault(layer, []).append(_norm(old.float()))
    if not changes:
        raise ValueError(f"{base.name}: no parameter lies in a numbered block (layers.0, h.0 or blocks.0)")
    moved = {layer: _reduced(changes[layer], reduce) for layer in sorted(changes)}
    if not relative:
        return moved
    whole = {layer: _reduced(sizes[layer], reduce) for layer in moved}
    if empty := [layer for layer, size in whole.items() if size == 0]:
        raise ValueError(f"the base parameters of layers {empty} are all 0: there is no relative change")
    return {layer: moved[layer] / whole[layer] for layer in moved}


def select_layers(divergence: Mapping[int, float], k: int = 5, how: str = "highest") -> tuple[int, ...]:
    """The k layers that changed most ("highest") or least ("lowest"), in ascending order of layer.

    Of equal ones the deeper is taken. Raises ValueError where there are fewer than k.
    """
    one_of("how", how, ORDERS)
    at_least("k", k, 1)
    if k > len(divergence):
        raise ValueError(f"k = {k}: the model has {len(divergence)} layers")
    sign = -1 if how == "highest" else 1
    return tuple(sorted(sorted(divergence, key=lambda layer: (sign * divergence[layer], -layer))[:k]))


def _parameters(model: LanguageModel) -> dict[str, Tensor]:
    parameters: dict[str, Tensor] = dict(model.module.named_parameters())
    if adapter := next((name for name in parameters if "lora_" in name), None):
        raise ValueError(
            f"{model.name} has an adapter ({adapter}): merge it into the weights first (merge_and_unload)"
        )
    return parameters


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x.detach(), dtype=torch.float64))


def _reduced(norms: list[float], reduce: str) -> float:
    return sum(norms) if reduce == "sum" else sum(norm**2 for norm in norms) ** 0.5
