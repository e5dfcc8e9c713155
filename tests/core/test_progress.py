"""A bar on a terminal, lines in a log, silence elsewhere."""

from __future__ import annotations

import sys

from interp.core import progress as module
from interp.core.progress import progress


def test_in_a_log_every_report_is_a_line(capsys, monkeypatch):
    monkeypatch.setattr(module, "SECONDS_BETWEEN_LINES", 0.0)
    assert list(progress(range(3), desc="train")) == [0, 1, 2]
    text = capsys.readouterr().err
    lines = text.split("\n")
    assert len(lines) >= 3
    assert all(line.startswith("train:") for line in lines[:-1])
    assert "\r" not in text
    assert "3/3" in lines[-2]


def test_on_a_terminal_it_is_redrawn(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress(total=2, desc="train") as bar:
        bar.update(2)
    assert "\rtrain:" in capsys.readouterr().err


def test_it_can_be_switched_off(capsys):
    assert list(progress(range(3), enabled=False)) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_other_ranks_are_silent_unless_told_otherwise(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    list(progress(range(3)))
    assert capsys.readouterr().err == ""
    list(progress(range(3), enabled=True))
    assert "3/3" in capsys.readouterr().err
