"""From a pair to token ids: prompt variations, chat templates, and where the response begins."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from interp.core.messages import warn_once
from interp.models.inputs import TokenBatch
from interp.models.tokenization import bos_prefix, encode, pad_right

if TYPE_CHECKING:
    from interp.models.language_model import LanguageModel

log = logging.getLogger(__name__)

BASE_SYSTEM = "You are a helpful, honest and concise assistant."
_MOST_MERGED = 4  # tokens of a prompt that may merge with the response's first characters


@dataclass(frozen=True)
class PromptVariation:
    """A way to ask: the system text, and what stands before the user's text."""

    name: str
    system: str = ""
    user_prefix: str = ""


BASE = PromptVariation("BASE", BASE_SYSTEM)


def variations(persona: tuple[str, str] | None) -> dict[str, PromptVariation]:
    """The five prompts of Tan et al. (2024, arXiv 2407.12404): BASE, SYS_POS, SYS_NEG, USER_POS, USER_NEG.

    SYS_* replace the system text by a persona sentence; USER_* keep it and put the sentence, and an empty line,
    before the user's text.

    Args:
        persona: the (positive, negative) sentences; None: there is only BASE.
    """
    if persona is None:
        return {BASE.name: BASE}
    positive, negative = persona
    others = (
        PromptVariation("SYS_POS", positive),
        PromptVariation("SYS_NEG", negative),
        PromptVariation("USER_POS", BASE_SYSTEM, f"{positive}\n\n"),
        PromptVariation("USER_NEG", BASE_SYSTEM, f"{negative}\n\n"),
    )
    return {variation.name: variation for variation in (BASE, *others)}


@dataclass(frozen=True)
class Rendered:
    """Token ids of prompt and response. `prompt_length` tokens are the prompt's; `text` is what was tokenised."""

    ids: list[int]
    prompt_length: int
    text: str = ""

    def __len__(self) -> int:
        return len(self.ids)


def render(
    model: LanguageModel,
    prompt: str,
    response: str | None = None,
    variation: PromptVariation = BASE,
    chat: bool | None = None,
) -> Rendered:
    """Tokenise a prompt, with its response if one is given, as the model is to see it.

    `prompt_length` is the first index at which the tokens of the prompt alone and of prompt + response differ, so
    that a token which merges across the border belongs to the response. One blank stands between the two unless
    either brings whitespace itself.

    Args:
        variation: in plain text there are no roles: a system text other than BASE's stands before the prompt as
            a paragraph of its own, and BASE's is left out.
        chat: through the tokenizer's chat template; None: if it has one.

    Raises:
        ValueError: no tokenizer, no chat template where one is asked for, an empty prompt or response, or a
            prompt whose tokens are not those at the beginning of prompt + response.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ValueError(f"{model.name} has no tokenizer: load it with load_model(..., tokenizer=...)")
    has_template = getattr(tokenizer, "chat_template", None) is not None
    if chat and not has_template:
        raise ValueError(f"chat=True, but the tokenizer of {model.name} has no chat template; use chat=False")
    chat = has_template if chat is None else chat
    text = _chat_text(tokenizer, prompt, variation) if chat else _plain_text(prompt, variation)
    # A template writes the BOS token itself.
    start = [] if chat else bos_prefix(tokenizer, None)
    ids = start + _ids(tokenizer, text)
    if not ids:
        raise ValueError(f"prompt = {prompt!r} has no tokens")
    if response is None:
        return Rendered(ids, len(ids), text)
    if not response.strip():
        raise ValueError(f"response = {response!r} to {prompt[:60]!r} is empty")
    blank = "" if text[-1:].isspace() or response[0].isspace() else " "
    whole_text = text + blank + response
    whole = start + _ids(tokenizer, whole_text)
    common = _common_prefix(ids, whole)
    if common == 0 or common < len(ids) - _MOST_MERGED or common == len(whole):
        raise ValueError(
            f"the prompt {prompt[-60:]!r} is not a prefix of itself with the response {response!r}: "
            f"{len(ids)} tokens, of which {common} are the same in both. This tokenizer changes earlier tokens; "
            "end the prompt with a newline or begin the response with a blank"
        )
    return Rendered(whole, common, whole_text)


def batch_of(rows: Sequence[Rendered], tokenizer: Any = None) -> TokenBatch:
    """Rows of any length as one right-padded batch."""
    if not rows:
        raise ValueError("rows=[]: give at least one rendered text")
    padding = getattr(tokenizer, "pad_token_id", None)
    return pad_right([row.ids for row in rows], 0 if padding is None else padding)


def _plain_text(prompt: str, variation: PromptVariation) -> str:
    lead = "" if variation.system in ("", BASE_SYSTEM) else f"{variation.system}\n\n"
    return lead + variation.user_prefix + prompt


def _chat_text(tokenizer: Any, prompt: str, variation: PromptVariation) -> str:
    from jinja2 import TemplateError

    user = variation.user_prefix + prompt
    turns = [{"role": "user", "content": user}]
    if not variation.system:
        return _templated(tokenizer, turns)
    try:
        text = _templated(tokenizer, [{"role": "system", "content": variation.system}, *turns])
    except TemplateError:
        text = ""
    if variation.system in text:
        return text
    warn_once(
        log,
        f"no system role in {getattr(tokenizer, 'name_or_path', '')}",
        "this chat template has no system role: the system text stands at the head of the first user turn",
    )
    return _templated(tokenizer, [{"role": "user", "content": f"{variation.system}\n\n{user}"}])


def _templated(tokenizer: Any, turns: list[dict[str, str]]) -> str:
    return tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)


def _ids(tokenizer: Any, text: str) -> list[int]:
    return encode(tokenizer, [text])[0]


def _common_prefix(left: list[int], right: list[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
    )
