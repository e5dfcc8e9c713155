"""Conversations with chat models: what comes back, and many of them asked once each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from interp.core.identity import Identity
from interp.core.transcripts import Question, TranscriptFile, ask_and_keep

if TYPE_CHECKING:
    from typing_extensions import Self

Message = dict[str, str]

LARGEST = 2**53  # of any number in a reply; JSON's integers may be too large for a float
ROUNDING = 1e-3  # probabilities of half-precision models pass 1 by that


@dataclass(frozen=True)
class Token:
    """A generated token with its log-probability and the likeliest alternatives'.

    Raises:
        ValueError: a log-probability that is not a finite number up to 0.
    """

    text: str
    logprob: float
    top: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(self, "text", str)
        _check(self, "top", dict)
        for text, value in ((self.text, self.logprob), *self.top.items()):
            if not _is_number(value) or not value <= ROUNDING:
                raise ValueError(
                    f"the log-probability of token {text!r} is {value!r}, expected a number up to 0"
                )


@dataclass(frozen=True)
class ChatReply:
    """One reply.

    Attributes:
        text: what was written.
        tokens: its tokens, where the endpoint tells their probabilities; joined they give `text`.
        prompt_tokens, completion_tokens, cost: counts, and money in the unit of the given prices.
        error: why there is no reply; such replies are not kept in transcripts.

    Raises:
        ValueError: values of other types, negative or infinite numbers.
    """

    text: str = ""
    tokens: tuple[Token, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    error: str | None = None

    def __post_init__(self) -> None:
        _check(self, "text", str)
        _check(self, "error", (str, type(None)))
        for name in ("prompt_tokens", "completion_tokens", "cost"):
            value = getattr(self, name)
            whole = name == "cost" or isinstance(value, int)
            if not _is_number(value) or value < 0 or not whole:
                raise ValueError(f"{name} = {value!r} of a reply: expected a number that isn't negative")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Raises ValueError, KeyError or TypeError for what `to_dict` can't have written."""
        return cls(**{**values, "tokens": tuple(Token(**token) for token in values["tokens"])})


def _check(instance: Any, name: str, kind: type | tuple[type, ...]) -> None:
    value = getattr(instance, name)
    if not isinstance(value, kind):
        raise ValueError(f"{name} = {value!r} of a {type(instance).__name__} is a {type(value).__name__}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


class ChatModel(Protocol):
    """Whatever replies to a conversation.

    Attributes:
        name, parameters: what replies depend on beside the messages; part of their identity in transcripts.
        workers: how many conversations may be under way at the same time.
    """

    name: str
    parameters: dict[str, Any]
    workers: int

    def complete(self, messages: Sequence[Message], sample: int = 0) -> ChatReply:
        """Reply to messages; `sample` numbers the repetitions."""
        ...


def ask_all(
    chat: ChatModel,
    conversations: Sequence[Sequence[Message]],
    transcripts: str | os.PathLike[str] | None = None,
    *,
    show_progress: bool = True,
) -> list[ChatReply]:
    """A reply to every conversation, from the file of transcripts where it has them; see `ask_and_keep` for errors."""
    store = TranscriptFile(transcripts, ChatReply.from_dict)
    questions = [
        Question(
            Identity.of("reply", model=chat.name, parameters=chat.parameters, messages=list(messages)),
            partial(chat.complete, messages),
        )
        for messages in conversations
    ]
    return ask_and_keep(questions, store, chat.workers, desc=chat.name, show_progress=show_progress)
