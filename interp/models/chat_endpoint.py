"""Any OpenAI-compatible chat endpoint: retries and waits, tokens and cost counted."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from interp.core.http_client import HttpClient, HttpReply, RequestFailed, Unreachable
from interp.core.messages import at_least, warn_once
from interp.models.chat import ChatReply, Message
from interp.models.chat_completion import NoText, read_completion

RETRIED = (408, 409, 425, 429)
REFUSED = (301, 302, 303, 307, 308, 401, 403, 404)
NOBODY_BEHIND = (502, 504)  # a gateway speaks for a server that doesn't
LONGEST_WAIT = 60.0
PATIENCE = 10.0  # seconds for the sign of life before the first request

logger = logging.getLogger(__name__)


class ChatEndpoint:
    """A model behind `<base_url>/chat/completions`.

    Before the first request comes one for `<base_url>/models`, any reply to which shows that somebody is there. Rate
    limits, server errors, dropped connections and replies that aren't chat completions are tried again with waits that
    double (or as long as Retry-After says); what fails for good becomes `ChatReply.error`. An endpoint that takes no
    logprobs is asked without them.

    Args:
        base_url: such as http://localhost:8000/v1.
        model: its name there.
        api_key: sent as bearer token; taken from the environment variable OPENAI_API_KEY where not given. Never
            stored.
        logprobs: ask for the probabilities of the reply's tokens (top 5).
        temperature, seed, max_tokens: of the completion; sample number k uses seed + k.
        workers: requests under way at the same time.
        retries, first_wait: tries after the first, seconds before the first of them.
        timeout: seconds for one try, from connecting to the reply's last byte.
        prompt_price, completion_price: per million tokens, for `ChatReply.cost`.

    Raises:
        ValueError: a base_url that isn't http(s), numbers that make no sense, a key that can't be sent; while
            completing: a redirect, no access, or no such model (status 30x, 401, 403, 404).
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
        at_least("workers", workers, 1)
        at_least("retries", retries, 0)
        if max_tokens is not None:
            at_least("max_tokens", max_tokens, 1)
        if not 0 < timeout < math.inf:
            raise ValueError(f"timeout = {timeout} must be finite and positive")
        not_negative = {"first_wait": first_wait, "temperature": temperature}
        not_negative |= {"prompt_price": prompt_price, "completion_price": completion_price}
        for name, value in not_negative.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} = {value} must be finite and not negative")
        key = (api_key or os.environ.get("OPENAI_API_KEY") or "").strip()
        if not key.isascii() or not key.isprintable():
            raise ValueError("api_key holds characters that can't be sent in a header; copy it again")
        self._http = HttpClient(base_url, {"Authorization": f"Bearer {key}"} if key else {})
        self.name = f"endpoint:{self._http.url}:{model}"
        self.parameters: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": max_tokens}
        self.parameters["logprobs"] = logprobs
        self.workers = workers
        self._retries, self._first_wait, self._timeout = retries, first_wait, timeout
        self._prices = (prompt_price, completion_price)
        self._model, self._logprobs = model, logprobs
        self._lock = threading.Lock()
        self._sign_of_life: Future[None] | None = None
        self.requests_sent = 0

    def check(self) -> None:
        """Find out, once, whether anybody answers at all.

        Raises:
            ConnectionError: nobody does.
        """
        with self._lock:
            mine = self._sign_of_life is None
            if self._sign_of_life is None:
                self._sign_of_life = Future()
            sign = self._sign_of_life
        if not mine:
            return sign.result()
        try:
            self._ask_for_models()
            sign.set_result(None)
        except BaseException as error:
            self._sign_of_life = None  # the next one looks again
            sign.set_exception(error)
            raise

    def _ask_for_models(self) -> None:
        try:
            reply = self._http.request("GET", "models", timeout=PATIENCE)
            problem = f"status {reply.status}: {reply.beginning()}" if reply.status in NOBODY_BEHIND else ""
        except Unreachable as error:
            problem = str(error)
        except RequestFailed as error:
            logger.debug("%s/models: %s", self._http.url, error)  # somebody took the connection
            return
        if problem:
            raise ConnectionError(
                f"base_url = {self._http.url!r}: nothing answers there ({problem}); is the server running?"
            )

    def complete(self, messages: Sequence[Message], sample: int = 0) -> ChatReply:
        """Reply to messages; a failure for good is in the reply's `error`.

        Raises:
            ConnectionError: nobody answered before the first request.
        """
        self.check()
        problem = ""
        tries = 0
        while tries <= self._retries:
            wait = min(self._first_wait * 2**tries, LONGEST_WAIT) * random.uniform(0.75, 1.25)
            with_logprobs = self._logprobs
            with self._lock:
                self.requests_sent += 1
            try:
                body = self._body(messages, sample, with_logprobs)
                reply = self._http.request("POST", "chat/completions", body, timeout=self._timeout)
            except RequestFailed as error:
                problem = str(error)
            else:
                if reply.status == 200:
                    try:
                        return self._read(reply, messages)
                    except NoText as error:
                        problem = str(error)
                        break
                    except ValueError as error:
                        problem = f"not a chat completion ({error}): {reply.beginning()!r}"
                else:
                    problem = f"status {reply.status}: {reply.beginning()}"
                    self._refuse(reply, problem)
                    if reply.status == 400 and with_logprobs and "logprob" in reply.beginning(2000):
                        warn_once(logger, self.name, f"{self.name} takes no logprobs; asking without them")
                        self._logprobs = False
                        continue
                    if reply.status not in RETRIED and reply.status < 500:
                        break
                    wait = retry_after(reply.headers.get("retry-after"), wait)
            tries += 1
            if tries <= self._retries:
                logger.debug("%s: %s; trying again in %.1f s", self.name, problem, wait)
                time.sleep(wait)
        logger.warning("%s gave no answer: %s", self.name, problem)
        return ChatReply(error=problem)

    def close(self) -> None:
        """Drop the connections."""
        self._http.close()

    def _refuse(self, reply: HttpReply, problem: str) -> None:
        if reply.status not in REFUSED:
            return
        if (to := reply.headers.get("location")) is not None and reply.status < 400:
            raise ValueError(f"{self.name}: status {reply.status} sends to {to}; give that server's base_url")
        raise ValueError(f"{self.name}: {problem}; check base_url, the model's name and the API key")

    def _body(self, messages: Sequence[Message], sample: int, with_logprobs: bool) -> bytes:
        body = {
            "model": self._model,
            "messages": list(messages),
            "temperature": self.parameters["temperature"],
            "seed": self.parameters["seed"] + sample,
        }
        if self.parameters["max_tokens"] is not None:
            body["max_tokens"] = self.parameters["max_tokens"]
        if with_logprobs:
            body |= {"logprobs": True, "top_logprobs": 5}
        return json.dumps(body, allow_nan=False).encode()

    def _read(self, reply: HttpReply, messages: Sequence[Message]) -> ChatReply:
        found = read_completion(reply.body)
        if found.cut:
            limit = self.parameters["max_tokens"]
            warn_once(
                logger,
                f"{self.name} cut",
                f"{self.name}: a reply was cut off at its longest length (max_tokens = {limit}); raise it",
            )
        counts = found.counts
        if counts is None:
            warn_once(
                logger, f"{self.name} usage", f"{self.name} counts no tokens; taking 4 characters for one"
            )
            asked = sum(len(message["content"]) for message in messages)
            counts = (asked // 4, len(found.text) // 4)
        cost = sum(n * price for n, price in zip(counts, self._prices, strict=True)) / 1e6
        return ChatReply(found.text, found.tokens, *counts, cost)


def retry_after(header: str | None, otherwise: float) -> float:
    """Seconds to wait by a Retry-After header, of seconds or a date; `otherwise` where it says nothing of use."""
    if not header:
        return otherwise
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return otherwise
        if date.tzinfo is None:
            date = date.replace(tzinfo=timezone.utc)
        seconds = (date - datetime.now(timezone.utc)).total_seconds()
    return min(seconds, LONGEST_WAIT) if seconds >= 0 else otherwise  # NaN too is no number of seconds
