"""Reading what a server of `/chat/completions` sent: every part is looked at before anything is taken for a reply."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from interp.models.chat import LARGEST, Token

_KINDS = {dict: "an object", list: "a list", str: "text", type(None): "null", bool: "a truth value"}


class NoText(ValueError):
    """A completion as it should be, in which the model wrote nothing; asking again would give the same."""


@dataclass(frozen=True)
class Completion:
    """A completion's text, tokens (empty where not told) and counts of tokens (None where not told).

    Attributes:
        cut: the text ends because the longest length was reached.
    """

    text: str
    tokens: tuple[Token, ...]
    counts: tuple[int, int] | None
    cut: bool


def read_completion(body: bytes) -> Completion:
    """The first choice of a completion.

    Raises:
        ValueError: what is no completion, naming the part that is missing or of another type.
        NoText: nothing was written.
    """
    try:
        reply = json.loads(body)
    except RecursionError as error:
        raise ValueError("too deeply nested") from error
    choices = _part(reply, "choices", list)
    if not choices:
        raise ValueError("choices is empty")
    choice = choices[0]
    message = _part(choice, "message", dict, "choices[0].")
    where = "choices[0].message."
    text = _part(message, "content", str, where, optional=True)
    cut = choice.get("finish_reason") == "length"
    if text is None:
        text = _part(message, "refusal", str, where, optional=True)
    if text is None or (cut and not text):
        ended = f"finish_reason {choice.get('finish_reason')!r}"
        raise NoText(f"no text ({ended})" + (": raise max_tokens" if cut else ""))
    text.encode()  # a lone surrogate is no text: UnicodeEncodeError is a ValueError
    return Completion(text, _tokens(choice, text), _counts(reply), cut)


def _tokens(choice: dict[str, Any], text: str) -> tuple[Token, ...]:
    where = "choices[0].logprobs."
    told = _part(choice, "logprobs", dict, "choices[0].", optional=True) or {}
    listed = _part(told, "content", list, where, optional=True) or []
    tokens = []
    for entry in listed:
        spelt = _part(entry, "token", str, where + "content[].")
        others = _part(entry, "top_logprobs", list, where + "content[].", optional=True) or []
        top = {_part(o, "token", str, where + "top_logprobs[]."): o.get("logprob") for o in others}
        tokens.append(Token(spelt, entry.get("logprob"), top))
    # Where tokens don't spell the text, offsets would be off.
    return tuple(tokens) if "".join(token.text for token in tokens) == text else ()


def _counts(reply: dict[str, Any]) -> tuple[int, int] | None:
    usage = _part(reply, "usage", dict, optional=True)
    if not usage:
        return None
    found = []
    for name in ("prompt_tokens", "completion_tokens"):
        count = _part(usage, name, int, "usage.")
        if not 0 <= count <= LARGEST:
            raise ValueError(f"usage.{name} is {'negative' if count < 0 else 'far too large'}")
        found.append(count)
    return found[0], found[1]


def _part(mapping: Any, name: str, kind: type, where: str = "", *, optional: bool = False) -> Any:
    """`mapping[name]`, where that is of the kind; None where it may be missing or null, and is."""
    if not isinstance(mapping, dict):
        raise ValueError(f"{where.rstrip('.') or 'the reply'} is {_kind(mapping)}, expected an object")
    if optional and mapping.get(name) is None:
        return None
    if name not in mapping:
        raise ValueError(f"{where}{name} is missing")
    value = mapping[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"{where}{name} is {_kind(value)}, expected {_KINDS.get(kind, 'a whole number')}")
    return value


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), "a number")
