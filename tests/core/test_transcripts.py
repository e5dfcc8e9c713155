"""The file of replies: appended, resumed, forgiving of a crash in the middle of a line; asking many questions."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from interp.core.identity import Identity
from interp.core.transcripts import (
    FAILURES_IN_A_ROW,
    Question,
    TranscriptFile,
    ask_and_keep,
    content_key,
    side_by_side,
)


@dataclass(frozen=True)
class Said:
    text: str = ""
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def said(values: dict[str, Any]) -> Said:
    return Said(**values)


def transcripts(path: Path | None) -> TranscriptFile[Said]:
    return TranscriptFile(path, said)


def question(name: object, ask: Callable[[], Said] = Said) -> Question[Said]:
    return Question(Identity.of("reply", model="m", parameters={"seed": 1}, messages=[name]), ask)


def test_replies_come_back_and_failed_ones_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t.jsonl"
    store = transcripts(path)
    store.put(question("k"), Said("é\n1 \ud800"))
    store.put(question("bad"), Said(error="status 500"))
    again = transcripts(path)
    assert again.get(question("k")) == Said("é\n1 \ud800")
    assert again.get(question("bad")) is None
    assert len(again) == len(path.read_text().splitlines()) == 1


def test_wherever_a_crash_cuts_the_last_line_the_rest_is_read_and_the_reply_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.jsonl"
    store = transcripts(path)
    store.put(question("a"), Said("1"))
    first = path.read_bytes()
    store.put(question("b"), Said("2"))
    whole = path.read_bytes()
    line = range(len(first), len(whole) - 1)
    for cut in (*line[:9], *line[9::17], *line[-3:]):
        for end in (b"", b"\0" * 7):
            path.write_bytes(whole[:cut] + end)
            caplog.clear()
            store = transcripts(path)
            assert (store.get(question("a")), store.get(question("b"))) == (Said("1"), None)
            assert ("line 2, cut short or changed" in caplog.text) == (cut > len(first))
            store.put(question("c"), Said("3"))
            third = transcripts(path)
            assert [third.get(question(name)) for name in "abc"] == [Said("1"), None, Said("3")]


def test_a_line_is_served_for_its_own_question_and_as_it_was_written_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.jsonl"
    store = transcripts(path)
    store.put(question("a"), Said("1"))
    store.put(question("b"), Said("2"))
    one, two = (json.loads(line) for line in path.read_text().splitlines())
    other = {**one["identity"], "covers": {**one["identity"]["covers"], "parameters": {"seed": 2}}}
    for changed in (
        {**one, "answer": two["answer"]},
        {**one, "answer": {"text": None, "error": None}},
        {**one, "identity": two["identity"]},
        {**one, "identity": other},
        {"identity": one["identity"], "answer": one["answer"]},
        {"identity": one["identity"]},
        {"identity": [], "sum": {}, "answer": 2},
    ):
        path.write_text(json.dumps(changed) + "\n" + json.dumps(two) + "\n")
        caplog.clear()
        store = transcripts(path)
        assert (store.get(question("a")), store.get(question("b"))) == (None, Said("2"))
        assert (
            "1 of its replies can't be read and will be asked for again; the first is line 1" in caplog.text
        )
    path.write_text('{"identity": ' + "[" * 100_000 + "\n" + json.dumps(two) + "\n")
    assert len(transcripts(path)) == 1


@pytest.mark.parametrize("content", [json.dumps({"other": 1}), "# Notes", "[1]", "\x7fELF"])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(content + "\n")
    with pytest.raises(ValueError, match=r"t\.jsonl, line 1 is no transcript"):
        transcripts(path)
    with pytest.raises(ValueError, match="is not a regular file"):
        transcripts(tmp_path)


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    store = transcripts(tmp_path / "t.jsonl")
    threads = [
        threading.Thread(
            target=lambda k=k: [store.put(question(f"{k}-{j}"), Said("x" * 500)) for j in range(20)]
        )
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(transcripts(tmp_path / "t.jsonl")) == 80


def test_the_others_are_asked_and_kept_when_one_fails(tmp_path: Path) -> None:
    asked: list[int] = []

    def ask(number: int) -> Said:
        asked.append(number)
        return Said(error="no line") if number == 2 and asked.count(2) == 1 else Said(str(number))

    questions = [question(k, lambda k=k: ask(k)) for k in range(5)]
    with pytest.raises(
        ConnectionError, match=r"m: 1 of 6 replies failed \(no line\); run again to ask for the 1"
    ):
        ask_and_keep([*questions, questions[0]], transcripts(tmp_path / "t"), desc="m", show_progress=False)
    found = ask_and_keep([*questions, questions[0]], transcripts(tmp_path / "t"), show_progress=False)
    assert [reply.text for reply in found] == ["0", "1", "2", "3", "4", "0"]
    assert asked == [0, 1, 2, 3, 4, 2]


@pytest.mark.parametrize("workers", [1, 3])
def test_nothing_more_is_asked_when_many_in_a_row_fail(workers: int) -> None:
    asked: list[int] = []

    def ask(number: int) -> Said:
        asked.append(number)
        return Said("yes") if number == 3 else Said(error="gone")

    questions = [question(k, lambda k=k: ask(k)) for k in range(400)]
    store = transcripts(None)
    with pytest.raises(ConnectionError, match=r"replies failed \(gone\); run again to ask for the 399"):
        ask_and_keep(questions, store, workers, show_progress=False)
    assert store.get(questions[3]) == Said("yes")
    assert FAILURES_IN_A_ROW < len(asked) < 4 + FAILURES_IN_A_ROW + workers


def test_a_key_tells_contents_apart_and_does_not_mind_the_order_of_names() -> None:
    assert content_key("m", {"a": 1, "b": 2}) == content_key("m", {"b": 2, "a": 1})
    assert (
        len({content_key("m", [1]), content_key("m", [2]), content_key("n", [1]), content_key(["m", 1])}) == 4
    )


def test_jobs_run_at_the_same_time() -> None:
    together, done = threading.Barrier(3, timeout=20), []

    def job() -> None:
        together.wait()
        done.append(1)

    side_by_side([job] * 6, workers=3, show_progress=False)
    assert len(done) == 6


def test_one_worker_is_the_calling_thread() -> None:
    """A second thread that computes on while Python shuts down after an interrupt aborts the process."""
    threads: list[int] = []
    side_by_side([lambda: threads.append(threading.get_ident())] * 2, workers=1, show_progress=False)
    assert threads == [threading.get_ident()] * 2


def test_a_failing_job_ends_it_and_drops_what_has_not_begun() -> None:
    begun: list[int] = []

    def job(number: int) -> None:
        begun.append(number)
        time.sleep(0.02)  # time for the caller to notice
        raise ValueError("job failed")

    with pytest.raises(ValueError, match="job failed"):
        side_by_side([lambda k=k: job(k) for k in range(200)], workers=2, show_progress=False)
    assert len(begun) < 200
