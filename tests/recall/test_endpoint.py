"""An OpenAI-compatible endpoint, played by a server on this machine: good replies, failures, nonsense."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from interp.core import messages
from interp.recall.answers import read_answers
from interp.recall.endpoint import EndpointRecaller
from interp.recall.runner import GraphRecallExperiment
from tests.recall.stories import prompt, story

Reply = tuple[int, Any] | tuple[int, Any, dict[str, str]]


class Stub:
    """Answers requests by `script(number, body) -> (status, JSON or raw text)`, those for models by `get()`; None hangs
    up."""

    def __init__(self) -> None:
        self.script: Callable[[int, dict[str, Any]], Any] = lambda number, body: (200, completion("1"))
        self.get: Callable[[], Any] = lambda: (200, {"object": "list", "data": []})
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.at_once = self.most_at_once = 0
        lock, stub = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    number = len(stub.bodies)
                    stub.bodies.append(body)
                    stub.headers.append(dict(self.headers))
                    stub.at_once += 1
                    stub.most_at_once = max(stub.most_at_once, stub.at_once)
                reply = stub.script(number, body)
                with lock:
                    stub.at_once -= 1
                self.answer(reply)

            def do_GET(self) -> None:
                self.answer(stub.get())

            def answer(self, reply: Any) -> None:
                if reply is None:
                    self.close_connection = True
                    return
                status, content, *more = reply
                data = content.encode() if isinstance(content, str) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in (more[0] if more else {}).items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def completion(text: str | None, **more: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": text}, **more}
    return {"choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 20}}


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    yield server
    server.close()


def recaller(stub: Stub, **options: Any) -> EndpointRecaller:
    return EndpointRecaller(stub.url, "some-model", "secret", first_wait=0.001, **options)


def all_ones(number: int, body: dict[str, Any]) -> Reply:
    pairs = body["messages"][-1]["content"].split("Pairs: ")[1]
    return 200, completion(pairs.replace(")", "): 1"))


def test_the_request_and_the_answer(stub: Stub) -> None:
    stub.script = all_ones
    ask = prompt(4)
    endpoint = recaller(stub, seed=3, max_tokens=50, prompt_price=2.0, completion_price=10.0)
    answer = endpoint.answer(ask, sample=2)
    body = stub.bodies[0]
    assert body["messages"] == list(ask.messages)
    assert {
        k: body[k] for k in ("model", "temperature", "seed", "max_tokens", "logprobs", "top_logprobs")
    } == {
        "model": "some-model",
        "temperature": 0.0,
        "seed": 5,
        "max_tokens": 50,
        "logprobs": True,
        "top_logprobs": 5,
    }
    assert stub.headers[0]["Authorization"] == "Bearer secret"
    assert (answer.prompt_tokens, answer.completion_tokens) == (100, 20)
    assert answer.cost == pytest.approx((100 * 2 + 20 * 10) / 1e6)
    assert read_answers([answer], ask).coverage == 1
    assert "secret" not in str((endpoint.name, endpoint.parameters))


def test_token_probabilities_reach_the_pairs(stub: Stub) -> None:
    ask = prompt(3)
    (a, b), (c, d), (e, f) = ask.pairs
    tokens = [f"({a},{b}): ", "1", f", ({c},{d}): ", "0", f", ({e},{f}): ", "1"]
    listed = [{"token": t, "logprob": -0.01, "top_logprobs": []} for t in tokens]
    listed[1] |= {
        "logprob": -0.5108256,
        "top_logprobs": [{"token": "0", "logprob": -1.609438}],
    }  # 0.6 and 0.2
    stub.script = lambda number, body: (200, completion("".join(tokens), logprobs={"content": listed}))
    result = read_answers([recaller(stub).answer(ask)], ask)
    assert result.probabilities[a, b] == pytest.approx(0.75)
    assert result.probabilities[c, d] == pytest.approx(1 - 0.99005, abs=1e-4)


@pytest.mark.parametrize(
    "bad",
    [
        (429, {"error": "slow down"}),
        (429, {"error": "slow down"}, {"retry-after": "0.01"}),
        (429, "", {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}),
        (500, "oops"),
        (503, "<html>busy</html>"),
        (200, "not json"),
        (200, "[1, 2]"),
        (200, {"choices": []}),
        (200, {"choices": [{"message": {"content": ["a"]}}]}),
        (200, {"error": {"message": "overloaded"}}),
        (200, {"choices": [{"message": {"content": "1"}}], "usage": {"tokens": 3}}),
        None,
    ],
)
def test_what_may_pass_is_tried_again(stub: Stub, bad: Any) -> None:
    stub.script = lambda number, body: bad if number < 2 else all_ones(number, body)
    endpoint = recaller(stub)
    answer = endpoint.answer(prompt(4))
    assert answer.error is None
    assert read_answers([answer], prompt(4)).coverage == 1
    assert endpoint.requests_sent == len(stub.bodies) == 3


def test_what_fails_for_good_becomes_an_error(stub: Stub) -> None:
    stub.script = lambda number, body: (500, "oops")
    answer = recaller(stub, retries=2).answer(prompt(4))
    assert answer.error == "status 500: oops"
    assert len(stub.bodies) == 3
    stub.script = lambda number, body: (422, "too long")
    assert "422" in str(recaller(stub).answer(prompt(4)).error)
    assert len(stub.bodies) == 4  # not tried again


@pytest.mark.parametrize("status", [401, 403, 404])
def test_no_access_stops_at_once(stub: Stub, status: int) -> None:
    stub.script = lambda number, body: (status, "no")
    with pytest.raises(ValueError, match="API key"):
        recaller(stub).answer(prompt(4))
    assert len(stub.bodies) == 1


def test_nobody_there() -> None:
    endpoint = EndpointRecaller("http://127.0.0.1:9/v1", "m")
    experiment = GraphRecallExperiment(endpoint, show_progress=False)
    with pytest.raises(
        ConnectionError, match=r"'http://127.0.0.1:9/v1': nothing answers there \(ConnectError"
    ):
        experiment.run([story(4, seed=k) for k in range(5)])
    assert endpoint.requests_sent == 0


def test_without_logprobs_where_the_server_takes_none(stub: Stub, caplog: pytest.LogCaptureFixture) -> None:
    def script(number: int, body: dict[str, Any]) -> Reply:
        return (400, "logprobs is not supported") if "logprobs" in body else all_ones(number, body)

    messages._said.clear()
    caplog.set_level(logging.WARNING)
    stub.script = script
    endpoint = recaller(stub)
    assert [endpoint.answer(prompt(4)).error for _ in range(3)] == [None] * 3
    assert len(stub.bodies) == 4
    assert caplog.text.count("takes no logprobs") == 1


def test_refusals_empty_answers_and_missing_counts(stub: Stub) -> None:
    stub.script = lambda number, body: (
        200,
        {"choices": [{"message": {"content": None, "refusal": "I can't."}}]},
    )
    answer = recaller(stub).answer(prompt(4))
    assert answer.text == "I can't."
    assert answer.prompt_tokens == sum(len(m["content"]) for m in prompt(4).messages) // 4
    assert read_answers([answer], prompt(4)).refusal


def test_tokens_that_do_not_spell_the_text_are_left_out(stub: Stub) -> None:
    listed = {"content": [{"token": "2", "logprob": -0.1}]}
    stub.script = lambda number, body: (200, completion("1", logprobs=listed))
    assert recaller(stub).answer(prompt(4)).tokens == ()


def test_a_run_is_concurrent_counted_and_resumed(stub: Stub, tmp_path: Path) -> None:
    """Four requests stand at the server together; one that fails is asked again by the second run, nothing else is."""
    together = threading.Barrier(4, timeout=20)
    stories = [story(5, seed=k) for k in range(4)]

    def script(number: int, body: dict[str, Any]) -> Reply:
        if number < 4:
            together.wait()
        return (422, "no") if number == 2 else all_ones(number, body)

    stub.script = script
    path = tmp_path / "t.jsonl"
    endpoint = recaller(stub, workers=4, prompt_price=1.0)
    with pytest.raises(ConnectionError, match=r"1 of 4 replies failed \(status 422: no\)"):
        GraphRecallExperiment(endpoint, clearance=0, transcripts=path, show_progress=False).run(stories)
    assert stub.most_at_once == 4
    run = GraphRecallExperiment(endpoint, clearance=0, transcripts=path, show_progress=False).run(stories)
    assert len(stub.bodies) == 5
    frame = run.to_frame()
    assert frame["cost"].sum() == pytest.approx(4 * 100 / 1e6)
    assert frame["prompt_tokens"].sum() == 400
    assert (frame["coverage"] == 1).all()
    assert "secret" not in path.read_text()


def test_arguments_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="base_url"):
        EndpointRecaller("localhost:8000", "m")
    for name, value in {
        "workers": 0,
        "retries": -1,
        "timeout": 0,
        "first_wait": -1,
        "max_tokens": 0,
        "temperature": math.nan,
        "prompt_price": -1,
        "completion_price": -1,
    }.items():
        with pytest.raises(ValueError, match=f"{name} = {value}"):
            EndpointRecaller("http://localhost", "m", **{name: value})
