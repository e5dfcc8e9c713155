"""The chat endpoint by itself; what it does about failures is tested through recall, which came first."""

from __future__ import annotations

from typing import Any

import pytest

from interp.models.chat_endpoint import ChatEndpoint, ChatReply, Token
from tests.recall.test_endpoint import Stub, completion, stub  # noqa: F401

HELLO = [{"role": "user", "content": "hello"}]


def test_a_conversation_goes_out_and_the_reply_comes_back(stub: Stub) -> None:  # noqa: F811
    def script(number: int, body: dict[str, Any]) -> Any:
        return (503, "busy") if number == 0 else (200, completion("good day"))

    stub.script = script
    endpoint = ChatEndpoint(stub.url, "m", "secret", seed=3, max_tokens=9, first_wait=0.001, prompt_price=2.0)
    reply = endpoint.complete(HELLO, sample=4)
    assert reply == ChatReply("good day", (), 100, 20, 100 * 2 / 1e6)
    assert stub.bodies[1] == {
        "model": "m",
        "messages": HELLO,
        "temperature": 0.0,
        "seed": 7,
        "max_tokens": 9,
    }
    assert (endpoint.requests_sent, endpoint.workers) == (2, 4)
    assert "secret" not in f"{endpoint.name} {endpoint.parameters}"


def test_a_failure_for_good_is_in_the_reply(stub: Stub) -> None:  # noqa: F811
    stub.script = lambda number, body: (422, "too long")
    assert ChatEndpoint(stub.url, "m", "k").complete(HELLO).error == "status 422: too long"
    stub.script = lambda number, body: (404, "no such model")
    with pytest.raises(ValueError, match="the model's name"):
        ChatEndpoint(stub.url, "m", "k").complete(HELLO)


def test_replies_become_dictionaries_and_come_back() -> None:
    reply = ChatReply("a", (Token("a", -0.5, {"b": -1.0}),), 3, 4, 0.1)
    assert ChatReply.from_dict(reply.to_dict()) == reply
