"""Calling modules whose signatures differ, and reading the positions out of a call."""

from __future__ import annotations

import inspect
import re
from typing import Any

import torch
from torch import Tensor, nn

_OF_POSITIONS = re.compile(r"wpe|(\w+_)?pos(ition)?(s|_emb\w*)?")


def accepted(module: nn.Module, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that `module.forward` takes.

    Raises:
        ValueError: an attention mask is needed, but the module takes none.
    """
    parameters = inspect.signature(module.forward).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return given
    taken = {name: value for name, value in given.items() if name in parameters}
    if "attention_mask" in given and "attention_mask" not in taken:
        raise ValueError(
            f"{type(module).__name__}.forward takes no attention_mask: pass texts of equal length and no "
            "segments"
        )
    if "input_ids" not in taken:
        raise ValueError(
            f"{type(module).__name__}.forward has no argument input_ids: that is how token ids are passed, name it so"
        )
    return taken


def cache_argument(module: nn.Module) -> str:
    """What this version of transformers calls the key-value cache."""
    parameters = inspect.signature(module.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def positions_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The positions [b s] of the tokens in a call of a model: those given, else counted on from the cache."""
    ids = args[0] if args else kwargs.get("input_ids")
    if ids is None:
        ids = kwargs["inputs_embeds"][..., 0]
    given = kwargs.get("position_ids")
    if given is not None:
        return given.expand(ids.shape[0], -1)
    cache = kwargs.get("cache", kwargs.get("past_key_values"))
    seen = 0 if cache is None else int(cache.get_seq_length())
    return (torch.arange(ids.shape[1], device=ids.device) + seen).expand(ids.shape[0], -1)


def real_tokens_of(kwargs: dict[str, Any], positions: Tensor) -> Tensor:
    """Which tokens [b s] of a call are not padding, by its attention mask: all, where it has no mask [b past+s]."""
    mask = kwargs.get("attention_mask")
    if not isinstance(mask, Tensor) or mask.ndim != 2:
        return torch.ones_like(positions, dtype=torch.bool)
    return mask[:, -positions.shape[1] :].bool().expand(positions.shape[0], -1)


def has_position_table(module: nn.Module, n_ctx: int | None) -> bool:
    """Whether a module looks positions up in a table of about `n_ctx` rows; told by the tables' names."""
    if n_ctx is None:
        return False
    tables = [
        name
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]
        if tensor.ndim == 2 and n_ctx <= len(tensor) <= n_ctx + 8
    ]
    return any(_OF_POSITIONS.fullmatch(part) for name in tables for part in name.split("."))


def cached_tokens(cache: Any) -> int:
    """How many tokens a key-value cache holds; 0 for a cache of another kind of state."""
    try:
        return int(cache.get_seq_length())
    except ValueError:
        return 0
