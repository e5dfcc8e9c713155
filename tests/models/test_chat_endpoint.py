"""The chat endpoint by itself: good replies, and whatever else a server may send; recall's tests ask it too."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from interp.core.transcripts import FAILURES_IN_A_ROW
from interp.models import chat_endpoint
from interp.models.chat import ChatReply, Token, ask_all
from interp.models.chat_completion import Completion, read_completion
from interp.models.chat_endpoint import ChatEndpoint, retry_after
from tests.recall.test_endpoint import Stub, completion, stub  # noqa: F401

HELLO = [{"role": "user", "content": "hello"}]


def test_a_conversation_goes_out_and_the_reply_comes_back(stub: Stub) -> None:  # noqa: F811
    def script(number: int, body: dict[str, Any]) -> Any:
        return (503, "busy") if number == 0 else (200, completion("good day"))

    stub.script = script
    endpoint = ChatEndpoint(
        stub.url, "m", "secret\n", seed=3, max_tokens=9, first_wait=0.001, prompt_price=2.0
    )
    reply = endpoint.complete(HELLO, sample=4)
    assert reply == ChatReply("good day", (), 100, 20, 100 * 2 / 1e6)
    assert stub.bodies[1] == {
        "model": "m",
        "messages": HELLO,
        "temperature": 0.0,
        "seed": 7,
        "max_tokens": 9,
    }
    assert stub.headers[1]["Authorization"] == "Bearer secret"
    assert (endpoint.requests_sent, endpoint.workers) == (2, 4)
    assert "secret" not in f"{endpoint.name} {endpoint.parameters}"


def test_a_failure_for_good_is_in_the_reply(stub: Stub) -> None:  # noqa: F811
    stub.script = lambda number, body: (422, "too long")
    assert ChatEndpoint(stub.url, "m", "k").complete(HELLO).error == "status 422: too long"
    stub.script = lambda number, body: (404, "no such model")
    with pytest.raises(ValueError, match="the model's name"):
        ChatEndpoint(stub.url, "m", "k").complete(HELLO)
    stub.script = lambda number, body: (308, "", {"location": "https://elsewhere/v1/chat/completions"})
    with pytest.raises(
        ValueError, match=r"status 308 sends to https://elsewhere/v1/chat/completions; give that"
    ):
        ChatEndpoint(stub.url, "m", "k").complete(HELLO)


def test_replies_become_dictionaries_and_come_back() -> None:
    reply = ChatReply("a", (Token("a", -0.5, {"b": -1.0}),), 3, 4, 0.1)
    assert ChatReply.from_dict(reply.to_dict()) == reply


LOGPROB = {"token": "1", "logprob": -0.1}


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("<html>Sign in</html>", "Expecting value"),
        (b"\xff\xfe\xfa", "codec can't decode"),
        ("[" * 100_000, "too deeply nested"),
        ('{"choices": ' + "9" * 5000 + "}", "integer string"),
        (["a"], "the reply is a list"),
        ({"error": {"message": "overloaded"}}, "choices is missing"),
        ({"choices": []}, "choices is empty"),
        ({"choices": None}, "choices is null, expected a list"),
        ({"choices": ["a"]}, r"choices\[0\] is text, expected an object"),
        ({"choices": [{"text": "a"}]}, "message is missing"),
        ({"choices": [{"message": {"content": ["a"]}}]}, "content is a list, expected text"),
        ({"choices": [{"message": {"content": 7}}]}, "content is a number, expected text"),
        (completion("\ud800"), "surrogates not allowed"),
        (completion("1", logprobs=[LOGPROB]), "logprobs is a list"),
        (completion("1", logprobs={"content": {"0": LOGPROB}}), "content is an object, expected a list"),
        (completion("1", logprobs={"content": [{"token": "1"}]}), "of token '1' is None"),
        (completion("1", logprobs={"content": [{**LOGPROB, "logprob": None}]}), "of token '1' is None"),
        (completion("1", logprobs={"content": [{**LOGPROB, "logprob": "-1"}]}), "of token '1' is '-1'"),
        (completion("1", logprobs={"content": [{**LOGPROB, "logprob": math.nan}]}), "of token '1' is nan"),
        (completion("1", logprobs={"content": [{**LOGPROB, "logprob": -math.inf}]}), "of token '1' is -inf"),
        (completion("1", logprobs={"content": [{**LOGPROB, "logprob": 0.9}]}), "of token '1' is 0.9"),
        (completion("1", logprobs={"content": [{**LOGPROB, "logprob": True}]}), "of token '1' is True"),
        (completion("1", logprobs={"content": [{**LOGPROB, "token": 1}]}), "token is a number"),
        (
            completion(
                "1", logprobs={"content": [{**LOGPROB, "top_logprobs": [{"token": "0", "logprob": None}]}]}
            ),
            "of token '0' is None",
        ),
        ({**completion("1"), "usage": [1]}, "usage is a list"),
        ({**completion("1"), "usage": {"tokens": 3}}, "usage.prompt_tokens is missing"),
        (
            {**completion("1"), "usage": {"prompt_tokens": 3, "completion_tokens": None}},
            "is null, expected a whole",
        ),
        (
            {**completion("1"), "usage": {"prompt_tokens": -3, "completion_tokens": 1}},
            "prompt_tokens is negative",
        ),
    ],
)
def test_what_is_no_completion_is_a_failed_reply_that_says_why(bad: Any, problem: str) -> None:
    body = (
        bad if isinstance(bad, bytes) else bad.encode() if isinstance(bad, str) else json.dumps(bad).encode()
    )
    with pytest.raises(ValueError, match=problem):
        read_completion(body)


def test_what_may_be_missing_or_null() -> None:
    more = {"content": None, "refusal": None}
    for logprobs in (None, {}, {"content": None}, {"content": []}, more):
        body = json.dumps(completion("1", logprobs=logprobs, finish_reason="stop")).encode()
        assert read_completion(body) == Completion("1", (), (100, 20), cut=False)
    body = json.dumps(
        {"choices": [{"message": {"content": ""}, "finish_reason": None}], "usage": None}
    ).encode()
    assert read_completion(body) == Completion("", (), None, cut=False)


JUNK = (None, True, -1, 0.5, math.nan, -math.inf, "", "\ud800", [], [None], {}, {"a": 1}, 10**400, "length")


def near_completion(rng: random.Random) -> bytes:
    """A completion in which some values are replaced by others, or are gone; one in ten is cut."""
    token = {"token": "1", "logprob": -0.5, "top_logprobs": [{"token": "0", "logprob": -1.0}]}
    whole = completion("1", logprobs={"content": [token]}, finish_reason="stop")

    def changed(value: Any) -> Any:
        if rng.random() < 0.07:
            return rng.choice(JUNK)
        if isinstance(value, dict):
            return {key: changed(v) for key, v in value.items() if rng.random() > 0.03}
        return [changed(v) for v in value] if isinstance(value, list) else value

    body = json.dumps(changed(whole)).encode()
    return body if rng.random() > 0.1 else body[: rng.randrange(len(body))]


def test_any_body_is_a_reply_that_can_be_kept_and_used_or_refused() -> None:
    rng = random.Random(0)
    read = 0
    for _ in range(3000):
        try:
            found = read_completion(near_completion(rng))
        except ValueError:
            continue
        reply = ChatReply(found.text, found.tokens, *(found.counts or (0, 0)))
        assert ChatReply.from_dict(json.loads(json.dumps(reply.to_dict()))) == reply
        assert all(0 <= math.exp(lp) < 1.01 for t in reply.tokens for lp in (t.logprob, *t.top.values()))
        read += 1
    assert 300 < read < 2700


def test_a_null_probability_is_never_kept(stub: Stub, tmp_path: Path) -> None:  # noqa: F811
    null = {"content": [{"token": "1", "logprob": None}]}
    stub.script = lambda number, body: (200, completion("1", logprobs=null if number < 2 else None))
    endpoint = ChatEndpoint(stub.url, "m", "k", logprobs=True, retries=1, first_wait=0.001)
    path = tmp_path / "t.jsonl"
    with pytest.raises(ConnectionError, match="the log-probability of token '1' is None, expected a number"):
        ask_all(endpoint, [HELLO], path, show_progress=False)
    assert not path.exists()
    assert [reply.text for reply in ask_all(endpoint, [HELLO], path, show_progress=False)] == ["1"]


def test_a_model_that_wrote_nothing_is_not_asked_again(stub: Stub) -> None:  # noqa: F811
    stub.script = lambda number, body: (200, completion(None, finish_reason="length"))
    error = ChatEndpoint(stub.url, "m", "k").complete(HELLO).error
    assert error == "no text (finish_reason 'length'): raise max_tokens"
    stub.script = lambda number, body: (200, completion(None, finish_reason="content_filter"))
    assert (
        ChatEndpoint(stub.url, "m", "k").complete(HELLO).error == "no text (finish_reason 'content_filter')"
    )
    assert len(stub.bodies) == 2


def test_a_reply_that_was_cut_is_kept_with_a_warning(
    stub: Stub,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    stub.script = lambda number, body: (200, completion("(a,b): 1, (", finish_reason="length"))
    endpoint = ChatEndpoint(stub.url, "model-with-a-short-breath", "k", max_tokens=7)
    assert [endpoint.complete(HELLO).text for _ in range(2)] == ["(a,b): 1, ("] * 2
    assert caplog.text.count("cut off at its longest length (max_tokens = 7)") == 1


def test_logprobs_that_are_not_taken_cost_no_try(stub: Stub) -> None:  # noqa: F811
    def script(number: int, body: dict[str, Any]) -> Any:
        return (400, "no logprobs here") if "logprobs" in body else (200, completion("1"))

    stub.script = script
    assert ChatEndpoint(stub.url, "m", "k", logprobs=True, retries=0).complete(HELLO).text == "1"
    stub.script = lambda number, body: (400, "logprobs, logprobs")
    assert "400" in str(ChatEndpoint(stub.url, "m", "k", logprobs=True).complete(HELLO).error)
    assert len(stub.bodies) == 4


@pytest.mark.parametrize(
    "header", ["-1", "nan", "-inf", "soon", "", "Wed, 21 Oct 2015 07:28:00 GMT", "32 Dec"]
)
def test_waits_that_make_no_sense_are_left_to_the_doubling_ones(header: str) -> None:
    assert retry_after(header, 3.0) == 3.0


def test_waits_in_seconds_and_until_a_date() -> None:
    assert retry_after("7", 3.0) == 7
    assert retry_after("0", 3.0) == 0
    assert retry_after("inf", 3.0) == retry_after("86400", 3.0) == 60
    later = datetime.now(timezone.utc) + timedelta(seconds=30)
    assert 20 < retry_after(format_datetime(later, usegmt=True), 3.0) <= 30


def test_every_wait_can_be_waited() -> None:
    rng = random.Random(0)
    date = format_datetime(datetime(2027, 1, 2, 3, 4, 5, tzinfo=timezone.utc), usegmt=True)
    for _ in range(3000):
        letters = list(date)
        for k in rng.sample(range(len(date)), 3):
            letters[k] = rng.choice("0123456789 :,-+.eGJ٣")
        assert 0 <= retry_after("".join(letters[rng.choice((0, 5)) :]), 3.0) <= 60


def test_a_server_that_never_answers_is_noticed_before_anything_is_asked(
    stub: Stub,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat_endpoint, "PATIENCE", 0.2)
    release = threading.Event()
    stub.get = lambda: release.wait(20) and None
    endpoint = ChatEndpoint(stub.url, "m", "k", workers=4)
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=rf"{stub.url}': nothing answers there \(Timeout"):
        ask_all(endpoint, [[{"role": "user", "content": str(k)}] for k in range(8)], show_progress=False)
    assert time.monotonic() - start < 5
    assert not stub.bodies
    release.set()
    stub.get = lambda: (502, "bad gateway")
    with pytest.raises(ConnectionError, match=r"nothing answers there \(status 502: bad gateway\)"):
        endpoint.complete(HELLO)
    stub.get = lambda: (404, "not found")
    assert endpoint.complete(HELLO).text == "1"


def test_a_server_that_dies_ends_the_run(stub: Stub, tmp_path: Path) -> None:  # noqa: F811
    stub.script = lambda number, body: (200, completion("1")) if number < 5 else (500, "out of memory")
    endpoint = ChatEndpoint(stub.url, "m", "k", workers=1, retries=0)
    conversations = [[{"role": "user", "content": str(k)}] for k in range(50)]
    with pytest.raises(ConnectionError, match=r"status 500: out of memory\); run again to ask for the 45"):
        ask_all(endpoint, conversations, tmp_path / "t.jsonl", show_progress=False)
    assert len(stub.bodies) == 5 + FAILURES_IN_A_ROW
    stub.script = lambda number, body: (200, completion("1"))
    assert len(ask_all(endpoint, conversations, tmp_path / "t.jsonl", show_progress=False)) == 50
    assert len(stub.bodies) == 50 + FAILURES_IN_A_ROW


def test_another_endpoint_model_or_parameter_is_not_served_what_one_said(
    stub: Stub,  # noqa: F811
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.jsonl"
    host = stub.url.removeprefix("http://127.0.0.1")
    chats = [
        ChatEndpoint(stub.url, "m", "k"),
        ChatEndpoint(stub.url, "n", "k"),
        ChatEndpoint(f"http://localhost{host}", "m", "k"),
        ChatEndpoint(stub.url, "m", "k", temperature=0.5),
        ChatEndpoint(stub.url, "m", "k", max_tokens=9),
    ]
    for number, chat in enumerate(chats, 1):
        ask_all(chat, [HELLO], path, show_progress=False)
        assert len(stub.bodies) == number
    ask_all(
        ChatEndpoint(stub.url + "/", "m", "other key", workers=2, timeout=9),
        [HELLO],
        path,
        show_progress=False,
    )
    assert len(stub.bodies) == len(chats)


def test_keys_that_can_not_be_sent() -> None:
    for key in ("ключ", "a\nb"):
        with pytest.raises(ValueError, match="api_key"):
            ChatEndpoint("http://localhost", "m", key)
