"""Decoding with a key-value cache, one loop for both engines, so that edits see every position once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor

from interp.core.device import make_generator
from interp.models import arguments, head
from interp.models.hooks import in_eval_mode
from interp.models.inputs import ModelInputs

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel


def generate(
    model: LanguageModel,
    inputs: ModelInputs,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    stop_at_eos: bool,
) -> Int[Tensor, "b new"]:
    """See `LanguageModel.generate`."""
    from transformers import DynamicCache

    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens={max_new_tokens}: must be at least 1")
    if not temperature >= 0:
        raise ValueError(f"temperature={temperature}: must be a number from 0 (greedy) on")
    ends = end_tokens(model) if stop_at_eos else []
    generator = make_generator(seed, "generate")
    ids, mask = left_padded(inputs)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    require_room(model, int(mask.sum(-1).max()), max_new_tokens)
    model.require("cache")
    if not bool(mask.all()):
        model.require("left padding")
    finished = torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    new: list[Tensor] = []
    cache = DynamicCache(config=model.config)
    name = arguments.cache_argument(model.module)
    step = ids
    with in_eval_mode(model.module, grad=False), model._decoding():
        while len(new) < max_new_tokens and not bool(finished.all()):
            output = model.module(
                input_ids=step,
                attention_mask=mask,
                position_ids=positions,
                use_cache=True,
                **{name: cache},
            )
            chosen = _choose(head.logits_of(output, model.name)[:, -1], temperature, generator)
            if ends:
                chosen = torch.where(finished, ends[0], chosen)
                finished = finished | torch.isin(chosen, torch.tensor(ends, device=chosen.device))
            new.append(chosen)
            step = chosen[:, None]
            positions = positions[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(step)], dim=1)
    return torch.stack(new, dim=1)


def require_room(model: LanguageModel, n_tokens: int, n_more: int) -> None:
    """Raise ValueError where a text and what is to follow it need more positions than the model has a table of."""
    limit = model.max_positions
    if limit is not None and n_tokens + n_more - 1 > limit:  # the last token chosen is not read
        raise ValueError(
            f"max_new_tokens={n_more}: behind {n_tokens} tokens, {model.name} has room for "
            f"{max(0, limit - n_tokens + 1)} more (it has {limit} positions); ask for fewer or shorten the text"
        )


def _choose(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    # Drawn on the CPU: the same seed gives the same text on every device.
    probabilities = torch.softmax(logits.float() / temperature, dim=-1).cpu()
    return torch.multinomial(probabilities, 1, generator=generator)[:, 0].to(logits.device)


def left_padded(inputs: ModelInputs) -> tuple[Tensor, Tensor]:
    """Ids and mask with the texts' ends aligned, as decoding needs them."""
    ids = inputs.input_ids
    if inputs.attention_mask is None:
        return ids, torch.ones_like(ids)
    order = inputs.attention_mask.argsort(dim=1, stable=True)
    return ids.gather(1, order), inputs.attention_mask.gather(1, order)


def end_tokens(model: LanguageModel) -> list[int]:
    """The ids at which a text ends; rows that ended are filled with the first of them."""
    settings = getattr(model.module, "generation_config", None)
    ends = getattr(settings, "eos_token_id", None)
    if ends is None:
        ends = getattr(model.config, "eos_token_id", None)
    if ends is None and model.tokenizer is not None:
        ends = model.tokenizer.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
