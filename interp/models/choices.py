"""Multiple choice with a key-value cache: each question stands behind the text and the questions and answers so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.models import arguments, head
from interp.models.hooks import in_eval_mode

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel


def choose_in_turn(
    model: LanguageModel,
    prompt: Sequence[int],
    questions: Sequence[Sequence[int]],
    choices: Sequence[int],
) -> Float[Tensor, "q k"]:
    """Logits of `choices` after each question, the likeliest of them standing as the answer before the next one.

    The prompt is run once; a question costs its own tokens. Edits that are open apply.

    Args:
        prompt: ids of the text before the first question.
        questions: ids of each.
        choices: ids of the k one-token answers.

    Returns:
        float32 logits on the CPU, [q k].

    Raises:
        ValueError: an empty prompt, question or list; fewer than two choices; more tokens than the model's context.
    """
    from transformers import DynamicCache

    if not prompt or not questions or not all(questions) or len(choices) < 2:
        raise ValueError("choose_in_turn: needs a prompt, questions with at least one token and two choices")
    total = len(prompt) + sum(map(len, questions)) + len(questions)
    if model.n_ctx is not None and total > model.n_ctx:
        raise ValueError(
            f"prompt and questions: {total} tokens, but {model.name} reads {model.n_ctx} at most"
        )
    model.require("cached chunks")
    cache = DynamicCache(config=model.config)
    cache_argument = arguments.cache_argument(model.module)
    rows: list[Tensor] = []
    fed = 0

    def run(module: Any, step: Sequence[int]) -> Any:
        nonlocal fed
        positions = torch.arange(fed, fed + len(step), device=model.device)[None]
        fed += len(step)
        given = {
            "input_ids": torch.tensor([list(step)], device=model.device),
            "attention_mask": torch.ones(1, fed, dtype=torch.long, device=model.device),
            "position_ids": positions,
            "use_cache": True,
        }
        return module(**given, **{cache_argument: cache})

    with in_eval_mode(model.module, grad=False), model._decoding():
        run(model.backbone, prompt)  # no logits of the prompt: as wide as the vocabulary, and not needed
        answered: list[int] = []
        for question in questions:
            logits = head.logits_of(run(model.module, [*answered, *question]), model.name)
            rows.append(logits[0, -1, list(choices)].float().cpu())
            answered = [choices[int(rows[-1].argmax())]]
    return torch.stack(rows)
