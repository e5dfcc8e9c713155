"""The file of replies: appended, resumed, and forgiving of a crash in the middle of a line."""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path

import pytest

from interp.recall.answers import Answer
from interp.recall.scripted import NoisyRecaller
from interp.recall.transcripts import Transcripts, transcript_key
from tests.recall.stories import prompt


def test_replies_come_back(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "t.jsonl"
    store = Transcripts(path)
    store.put("k", Answer("é\n1", cost=0.5), sample=0)
    store.put("bad", Answer(error="status 500"))
    again = Transcripts(path)
    assert again.get("k") == Answer("é\n1", cost=0.5)
    assert again.get("bad") is None
    assert len(again) == 1
    assert len(path.read_text().splitlines()) == 1


def test_a_torn_line_is_left_out_and_the_next_one_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.jsonl"
    Transcripts(path).put("a", Answer("1"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole.replace(b'"a"', b'"b"')[:40])
    caplog.set_level(logging.WARNING)
    store = Transcripts(path)
    assert (store.get("a"), store.get("b")) == (Answer("1"), None)
    assert "cut short" in caplog.text
    store.put("c", Answer("2"))
    third = Transcripts(path)
    assert (third.get("a"), third.get("b"), third.get("c")) == (Answer("1"), None, Answer("2"))


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"other": 1}) + "\n")
    with pytest.raises(ValueError, match="line 1 is no transcript"):
        Transcripts(path)


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    store = Transcripts(tmp_path / "t.jsonl")
    threads = [
        threading.Thread(target=lambda k=k: [store.put(f"{k}-{j}", Answer("x" * 500)) for j in range(20)])
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Transcripts(tmp_path / "t.jsonl")) == 80


def test_keys_hold_all_that_a_reply_depends_on() -> None:
    base = NoisyRecaller(seed=1), prompt(5), 0
    variants = [
        (NoisyRecaller(seed=2), prompt(5), 0),
        (NoisyRecaller(seed=1), prompt(5, clearance=2), 0),
        (NoisyRecaller(seed=1), prompt(5, priming="male"), 0),
        (NoisyRecaller(seed=1), prompt(5, permute_pairs=True), 0),
        (NoisyRecaller(seed=1), prompt(5, seed=1), 0),
        (NoisyRecaller(seed=1), prompt(5), 1),
    ]
    keys = {transcript_key(*v) for v in [base, *variants]}
    assert len(keys) == 7
    assert transcript_key(*base) == transcript_key(NoisyRecaller(seed=1), prompt(5), 0)
