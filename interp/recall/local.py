"""Recall by a local language model: a choice between 1 and 0 for every pair, or a freely written answer."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from interp.core.messages import at_least, one_of
from interp.models.chat import Token
from interp.models.choices import choose_in_turn
from interp.models.tokenization import encode
from interp.recall.answers import Answer
from interp.recall.prompts import Message, RecallPrompt

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

MODES = ("forced_choice", "generate")
TOP = 5


class LocalRecaller:
    """A `LanguageModel` as recaller.

    Args:
        model: with a tokenizer; its chat template is used where it has one.
        mode: forced_choice: behind the conversation stands `(u,v): ` for each pair in turn, the likelier digit is
            taken as the answer and stays in the context of the next pair; always legible. generate: the model
            writes, and the text is read by `parse_answer`.
        max_new_tokens: of a written answer; 12 for each pair where not given.
        temperature, seed: of a written answer; sample number k uses seed + k.

    Raises:
        ValueError: no tokenizer, an unknown mode, no new token, a negative or infinite temperature, or a tokenizer in
            which `1` and `0` are not one token each.
    """

    workers = 1

    def __init__(
        self,
        model: LanguageModel,
        *,
        mode: str = "forced_choice",
        max_new_tokens: int | None = None,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        one_of("mode", mode, MODES)
        if max_new_tokens is not None:
            at_least("max_new_tokens", max_new_tokens, 1)
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature = {temperature} must be finite and not negative")
        if model.tokenizer is None:
            raise ValueError(f"{model.name} has no tokenizer; load it with tokenizer=...")
        self._model, self._mode = model, mode
        self._max_new_tokens, self._temperature, self._seed = max_new_tokens, temperature, seed
        self.name = f"local:{model.name}"
        self.parameters: dict[str, Any] = {"mode": mode, "model": model.fingerprint()}
        if mode == "generate":
            self.parameters |= {"max_new_tokens": max_new_tokens, "temperature": temperature, "seed": seed}

    def answer(self, prompt: RecallPrompt, sample: int = 0) -> Answer:
        """See `Recaller`. A conversation longer than the model's context is a ValueError."""
        ids = self._ids(spell_chat(self._model.tokenizer, prompt.messages))
        return (
            self._choose(ids, prompt) if self._mode == "forced_choice" else self._write(ids, prompt, sample)
        )

    def _choose(self, ids: list[int], prompt: RecallPrompt) -> Answer:
        questions, digits = [], None
        for index, (u, v) in enumerate(prompt.pairs):
            ask = f"({u},{v}): " if index == 0 else f", ({u},{v}): "
            with_one, with_zero = self._ids(ask + "1"), self._ids(ask + "0")
            if with_one[:-1] != with_zero[:-1] or len(with_one) < 2:
                raise ValueError(
                    f"{self._model.name}: its tokenizer doesn't end {ask + '1'!r} in a token for the digit; "
                    "use mode='generate'"
                )
            questions.append(with_one[:-1])
            digits = digits or (with_zero[-1], with_one[-1])
        logits = choose_in_turn(self._model, ids, questions, digits or ())
        w = torch.softmax(logits.double(), dim=1)[:, 1]
        said = logits.argmax(1).tolist()
        text = ", ".join(f"({u},{v}): {a}" for (u, v), a in zip(prompt.pairs, said, strict=True))
        n_new = sum(map(len, questions)) + len(questions)
        return Answer(text, choices=tuple(w.tolist()), prompt_tokens=len(ids), completion_tokens=n_new)

    def _write(self, ids: list[int], prompt: RecallPrompt, sample: int) -> Answer:
        model = self._model
        length = self._max_new_tokens or 12 * len(prompt.pairs)
        if model.n_ctx is not None and len(ids) + length > model.n_ctx:
            raise ValueError(
                f"conversation and answer: {len(ids)} + {length} tokens, but {model.name} reads {model.n_ctx}"
            )
        new = model.generate(
            torch.tensor([ids]), length, temperature=self._temperature, seed=self._seed + sample
        )[0].tolist()
        ends = model.special_token_ids
        new = new[: next((k for k, token in enumerate(new) if token in ends), len(new))]
        if not new:
            return Answer(prompt_tokens=len(ids))
        # One pass over the text as written tells every token's alternatives.
        logits = model.logits(torch.tensor([ids + new]))[0, len(ids) - 1 : -1].float().cpu()
        logprobs = torch.log_softmax(logits, dim=-1)
        pieces = _pieces(model.tokenizer, new)
        tokens = []
        for piece, token, row in zip(pieces, new, logprobs, strict=True):
            best = row.topk(min(TOP, len(row)))
            names = [model.tokenizer.decode([i]) for i in best.indices.tolist()]
            # Likeliest last, so that it stays where two tokens are spelled alike.
            top = dict(reversed(list(zip(names, best.values.tolist(), strict=True))))
            tokens.append(Token(piece, float(row[token]), top))
        text = model.tokenizer.decode(new)
        aligned = "".join(pieces) == text  # not where a character is spread over several tokens
        return Answer(text, tuple(tokens) if aligned else (), len(ids), len(new))

    def _ids(self, text: str) -> list[int]:
        return encode(self._model.tokenizer, [text])[0]


def _pieces(tokenizer: Any, ids: list[int]) -> list[str]:
    """The text that each id adds to those before it."""
    pieces, before = [], ""
    for end in range(1, len(ids) + 1):
        whole = tokenizer.decode(ids[:end])
        pieces.append(whole[len(before) :])
        before = whole
    return pieces


def spell_chat(tokenizer: Any, messages: tuple[Message, ...]) -> str:
    """The conversation as the model's chat template spells it, or as `role: content` paragraphs without one."""
    if getattr(tokenizer, "chat_template", None):
        return tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    turns = [f"{m['role'].capitalize()}: {m['content']}" for m in messages]
    return "\n\n".join([*turns, "Assistant: "])
