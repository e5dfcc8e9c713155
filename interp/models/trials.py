"""Trying out what an architecture outside the family table can do, before relying on it.

Architectures differ in what they make of a mask, of positions and of a cache, and many take an argument without a
word and leave it aside: their results are then wrong and look right. So the first time such a thing is needed the
model is run on a few tokens, with it and in the plain way that it must equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from interp.models import arguments
from interp.models.hooks import in_eval_mode

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

Need = Literal["segments", "left padding", "right padding", "cache", "cached chunks"]
_LENGTHS = 6, 5  # tokens of the two texts
_ROUNDING = 0.1  # of the difference that ignoring the need makes: far above bfloat16's error, far below 1
_WHAT = {
    "segments": "doesn't keep texts packed into one row apart; show it one text a row (mode='pad')",
    "left padding": "doesn't leave padding before a text aside; pad behind the texts, or give one text at a time",
    "right padding": "doesn't leave padding behind a text aside; give texts of equal length",
    "cache": "doesn't continue a text from a cache as it would read the whole of it; run whole texts with `logits`",
    "cached chunks": "doesn't read several tokens at once behind those in a cache; run whole texts with `logits`",
}


def require(model: LanguageModel, need: Need) -> None:
    """Raise ValueError, with what to do instead, where the model gives other values with `need` than without."""
    if need not in model.trials:
        with model.untouched_by_edits(), in_eval_mode(model.module, grad=False):
            model.trials[need] = _failure(model, need)
    failure = model.trials[need]
    if failure is not None:
        raise ValueError(f"{model.name} ({model.family}) {_WHAT[need]} ({failure})")


def _failure(model: LanguageModel, need: Need) -> str | None:
    first, second = _texts(model)
    plain = [_run(model, text) for text in (first, second)]
    both = torch.cat([first, second], dim=1)
    try:
        found, wanted = _with_need(model, need, first, second, plain)
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        return f"it fails: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    ignored = _run(model, both)[:, first.shape[1] :] - plain[1]
    difference = float((found - wanted).abs().max() / wanted.abs().max())
    allowed = _ROUNDING * float(ignored.abs().max() / plain[1].abs().max()) + 1e-5
    return None if difference <= allowed else f"relative difference {difference:.2g} on a trial"


def _with_need(
    model: LanguageModel, need: Need, first: Tensor, second: Tensor, plain: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """What the model gives with the need, and what it must equal."""
    both = torch.cat([first, second], dim=1)
    n = first.shape[1]
    own = torch.ones_like(both)
    if need == "segments":
        own[:, :n] = 0
        return _run(model, both, segment_ids=own), torch.cat(plain, dim=1)
    if need == "left padding":
        own[:, :n] = 0
        return _run(model, both, attention_mask=own)[:, n:], plain[1]
    if need == "right padding":
        own[:, n:] = 0
        return _run(model, both, attention_mask=own)[:, :n], plain[0]
    steps = second.split(1, dim=1) if need == "cache" else [second]
    return torch.cat([plain[0], *_continued(model, first, steps)], dim=1), _run(model, both)


def _continued(model: LanguageModel, first: Tensor, steps: Sequence[Tensor]) -> Iterator[Tensor]:
    from transformers import DynamicCache

    cache = DynamicCache(config=model.config)
    given: dict[str, Any] = {"use_cache": True, arguments.cache_argument(model.module): cache}
    start = 0
    for step in [first, *steps]:
        end = start + step.shape[1]
        mask = torch.ones(1, end, dtype=torch.long, device=step.device)
        positions = torch.arange(start, end, device=step.device)[None]
        with model._decoding():
            output = model.module(input_ids=step, attention_mask=mask, position_ids=positions, **given)
        if start:
            yield _values(output)
        start = end


def _texts(model: LanguageModel) -> tuple[Tensor, Tensor]:
    vocabulary = model.d_vocab or 2
    ids = (torch.arange(sum(_LENGTHS), device=model.device)[None] * 7 + 3) % vocabulary
    return ids[:, : _LENGTHS[0]], ids[:, _LENGTHS[0] :]


def _run(model: LanguageModel, ids: Tensor, **how: Tensor) -> Tensor:
    return _values(model._forward(model.module, model._inputs(ids, **how)))


def _values(output: Any) -> Tensor:
    for name in ("logits", "last_hidden_state"):
        if getattr(output, name, None) is not None:
            return getattr(output, name).float()
    return (output if isinstance(output, Tensor) else output[0]).float()
