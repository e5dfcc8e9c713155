"""Any OpenAI-compatible chat endpoint: retries and waits, tokens and cost counted."""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from interp.core.messages import at_least, warn_once
from interp.core.transcripts import TranscriptFile, content_key, side_by_side

if TYPE_CHECKING:
    from typing_extensions import Self

Message = dict[str, str]

RETRIED = (408, 409, 425, 429)
REFUSED = (401, 403, 404)
LONGEST_WAIT = 60.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Token:
    """A generated token with its log-probability and the likeliest alternatives'."""

    text: str
    logprob: float
    top: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ChatReply:
    """One reply.

    Attributes:
        text: what was written.
        tokens: its tokens, where the endpoint tells their probabilities; joined they give `text`.
        prompt_tokens, completion_tokens, cost: counts, and money in the unit of the given prices.
        error: why there is no reply; such replies are not kept in transcripts.
    """

    text: str = ""
    tokens: tuple[Token, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return cls(**{**values, "tokens": tuple(Token(**token) for token in values["tokens"])})


class ChatModel(Protocol):
    """Whatever replies to a conversation.

    Attributes:
        name, parameters: what replies depend on beside the messages; keys of transcripts.
        workers: how many conversations may be under way at the same time.
    """

    name: str
    parameters: dict[str, Any]
    workers: int

    def complete(self, messages: Sequence[Message], sample: int = 0) -> ChatReply:
        """Reply to messages; `sample` numbers the repetitions."""
        ...


class ChatEndpoint:
    """A model behind `<base_url>/chat/completions`.

    Rate limits, server errors, dropped connections and replies that aren't chat completions are tried again with
    waits that double (or as long as Retry-After says); what fails for good becomes `ChatReply.error`. An endpoint
    that takes no logprobs is asked without them.

    Args:
        base_url: such as http://localhost:8000/v1.
        model: its name there.
        api_key: sent as bearer token; taken from the environment variable OPENAI_API_KEY where not given. Never
            stored.
        logprobs: ask for the probabilities of the reply's tokens (top 5).
        temperature, seed, max_tokens: of the completion; sample number k uses seed + k.
        workers: requests under way at the same time.
        retries, first_wait, timeout: tries after the first, seconds before the first of them, seconds for one reply.
        prompt_price, completion_price: per million tokens, for `ChatReply.cost`.

    Raises:
        ValueError: a base_url that isn't http(s), numbers that make no sense; while completing: no access, or no
            such model (status 401, 403, 404).
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: str | None = None,
        *,
        logprobs: bool = False,
        temperature: float = 0.0,
        seed: int = 0,
        max_tokens: int | None = None,
        workers: int = 4,
        retries: int = 5,
        first_wait: float = 1.0,
        timeout: float = 120.0,
        prompt_price: float = 0.0,
        completion_price: float = 0.0,
    ) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url = {base_url!r}: expected something like http://localhost:8000/v1")
        at_least("workers", workers, 1)
        at_least("retries", retries, 0)
        if max_tokens is not None:
            at_least("max_tokens", max_tokens, 1)
        if not timeout > 0:
            raise ValueError(f"timeout = {timeout} must be positive")
        not_negative = {"first_wait": first_wait, "temperature": temperature}
        not_negative |= {"prompt_price": prompt_price, "completion_price": completion_price}
        for name, value in not_negative.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} = {value} must be finite and not negative")
        import httpx

        self.name = f"endpoint:{base_url.rstrip('/')}:{model}"
        self.parameters: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
        self.parameters["logprobs"] = logprobs
        self.workers = workers
        self._retries, self._first_wait = retries, first_wait
        self._prices = (prompt_price, completion_price)
        self._model, self._logprobs = model, logprobs
        key = api_key or os.environ.get("OPENAI_API_KEY")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(base_url=base_url.rstrip("/") + "/", headers=headers, timeout=timeout)
        self._lock = threading.Lock()
        self.requests_sent = 0

    def complete(self, messages: Sequence[Message], sample: int = 0) -> ChatReply:
        """Reply to messages; a failure for good is in the reply's `error`."""
        import httpx

        problem = ""
        for attempt in range(self._retries + 1):
            wait = min(self._first_wait * 2**attempt, LONGEST_WAIT) * random.uniform(0.75, 1.25)
            try:
                with self._lock:
                    self.requests_sent += 1
                reply = self._client.post("chat/completions", json=self._body(messages, sample))
            except httpx.TransportError as error:
                problem = f"{type(error).__name__}: {error}"
            else:
                if reply.status_code == 200:
                    try:
                        return self._read(reply.json(), messages)
                    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
                        problem = (
                            f"not a chat completion ({type(error).__name__}: {error}): {reply.text[:200]!r}"
                        )
                else:
                    problem = f"status {reply.status_code}: {reply.text[:200]}"
                    if reply.status_code in REFUSED:
                        raise ValueError(
                            f"{self.name}: {problem}; check base_url, the model's name and the API key"
                        )
                    if reply.status_code == 400 and self._logprobs and "logprob" in reply.text:
                        warn_once(logger, self.name, f"{self.name} takes no logprobs; asking without them")
                        self._logprobs = False
                        continue
                    if reply.status_code not in RETRIED and reply.status_code < 500:
                        break
                    wait = _retry_after(reply.headers.get("retry-after"), wait)
            if attempt < self._retries:
                logger.debug("%s: %s; trying again in %.1f s", self.name, problem, wait)
                time.sleep(wait)
        logger.warning("%s gave no answer: %s", self.name, problem)
        return ChatReply(error=problem)

    def close(self) -> None:
        """Drop the connections."""
        self._client.close()

    def _body(self, messages: Sequence[Message], sample: int) -> dict[str, Any]:
        body = {
            "model": self._model,
            "messages": list(messages),
            "temperature": self.parameters["temperature"],
            "seed": self.parameters["seed"] + sample,
        }
        if self.parameters["max_tokens"] is not None:
            body["max_tokens"] = self.parameters["max_tokens"]
        if self._logprobs:
            body |= {"logprobs": True, "top_logprobs": 5}
        return body

    def _read(self, reply: dict[str, Any], messages: Sequence[Message]) -> ChatReply:
        choice = reply["choices"][0]
        text = choice["message"]["content"]
        if text is None:  # a refusal has a field of its own
            text = choice["message"].get("refusal") or ""
        if not isinstance(text, str):
            raise TypeError(f"content is a {type(text).__name__}")
        listed = (choice.get("logprobs") or {}).get("content") or []
        tokens = tuple(
            Token(t["token"], t["logprob"], {a["token"]: a["logprob"] for a in t.get("top_logprobs") or []})
            for t in listed
        )
        if "".join(token.text for token in tokens) != text:
            tokens = ()  # offsets would be off
        usage = reply.get("usage") or {}
        if not usage:
            warn_once(
                logger, f"{self.name} usage", f"{self.name} counts no tokens; taking 4 characters for one"
            )
            asked = sum(len(message["content"]) for message in messages)
            usage = {"prompt_tokens": asked // 4, "completion_tokens": len(text) // 4}
        counts = (int(usage["prompt_tokens"]), int(usage["completion_tokens"]))
        cost = sum(n * price for n, price in zip(counts, self._prices, strict=True)) / 1e6
        return ChatReply(text, tokens, *counts, cost)


def _retry_after(header: str | None, otherwise: float) -> float:
    """Seconds to wait, where the header gives them; dates are left to the doubling waits."""
    try:
        return min(float(header), LONGEST_WAIT) if header else otherwise
    except ValueError:
        return otherwise


def ask_all(
    chat: ChatModel,
    conversations: Sequence[Sequence[Message]],
    transcripts: str | os.PathLike[str] | None = None,
    *,
    show_progress: bool = True,
) -> list[ChatReply]:
    """A reply to every conversation, from the file of transcripts where it has them; new ones go there as they come.

    Raises:
        ConnectionError: some replies failed; those that came are kept, so that another try asks for the rest only.
    """
    store = TranscriptFile(transcripts, ChatReply.from_dict)
    asked = {content_key(chat.name, chat.parameters, list(m)): m for m in conversations}
    replies = {key: known for key in asked if (known := store.get(key)) is not None}

    def ask(key: str) -> None:
        replies[key] = reply = chat.complete(asked[key])
        store.put(key, reply, model=chat.name, messages=list(asked[key]))

    jobs = [partial(ask, key) for key in asked if key not in replies]
    side_by_side(jobs, chat.workers, desc=chat.name, show_progress=show_progress)
    if failed := [reply.error for reply in replies.values() if reply.error is not None]:
        raise ConnectionError(
            f"{chat.name}: {len(failed)} of {len(jobs)} replies failed ({failed[0]}); run again to ask for them"
        )
    return [replies[content_key(chat.name, chat.parameters, list(m))] for m in conversations]
