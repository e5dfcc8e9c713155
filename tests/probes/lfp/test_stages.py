"""Stage folders: used again, computed again when inputs change, continued after an interruption."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from interp.probes.lfp.stages import finished, run_stage, up_to


class Counting:
    """A stage that keeps a part in its folder, and fails once before its end where told to."""

    def __init__(self, *, fail: bool = False) -> None:
        self.fail, self.parts, self.results = fail, 0, 0

    def __call__(self, folder: Path) -> dict[str, Any]:
        if not (folder / "part").exists():
            self.parts += 1
            (folder / "part").write_text("kept")
        if self.fail:
            self.fail = False
            raise KeyboardInterrupt
        self.results += 1
        return {"value": self.results, "pair": (1, 2)}


def test_a_finished_stage_is_not_computed_again(tmp_path: Path) -> None:
    compute = Counting()
    first = run_stage(tmp_path, "a", {"n": 1, "layers": (2, 3)}, compute)
    assert first == {"value": 1, "pair": [1, 2]}
    assert run_stage(tmp_path, "a", {"layers": (2, 3), "n": 1}, compute) == first
    assert finished(tmp_path, "a") == first
    assert compute.results == 1


def test_changed_inputs_clear_the_folder_and_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compute = Counting()
    run_stage(tmp_path, "a", {"n": 1, "m": 1}, compute)
    caplog.set_level(logging.WARNING)
    assert run_stage(tmp_path, "a", {"n": 2, "m": 1}, compute)["value"] == 2
    assert compute.parts == 2
    assert "stage a: n changed" in caplog.text
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_an_interrupted_stage_goes_on_with_what_it_kept(tmp_path: Path) -> None:
    compute = Counting(fail=True)
    with pytest.raises(KeyboardInterrupt):
        run_stage(tmp_path, "a", {"n": 1}, compute)
    with pytest.raises(ValueError, match="no finished stage 'a'"):
        finished(tmp_path, "a")
    assert run_stage(tmp_path, "a", {"n": 1}, compute)["value"] == 1
    assert (compute.parts, compute.results) == (1, 1)


def test_former_results_come_back_with_their_inputs(tmp_path: Path) -> None:
    compute = Counting()
    for name in ("a", "b"):
        run_stage(tmp_path, name, {"n": 1}, compute, later=["b"] if name == "a" else [])
    other = Counting(fail=True)
    with pytest.raises(KeyboardInterrupt):  # a slip of the pen, noticed at once
        run_stage(tmp_path, "a", {"n": 2}, other, later=["b"])
    with pytest.raises(ValueError, match="no finished stage 'b'"):
        finished(tmp_path, "b")  # not known to fit any more
    assert run_stage(tmp_path, "a", {"n": 1}, compute, later=["b"])["value"] == 1
    assert run_stage(tmp_path, "b", {"n": 1}, compute)["value"] == 2
    assert compute.results == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_refused_inputs_leave_the_former_result(tmp_path: Path) -> None:
    def refuse(folder: Path) -> dict[str, Any]:
        (folder / "part").write_text("half")
        raise ValueError("n = -1 must not be negative")

    run_stage(tmp_path, "a", {"n": 1}, Counting())
    with pytest.raises(ValueError, match="must not be negative"):
        run_stage(tmp_path, "a", {"n": -1}, refuse)
    assert finished(tmp_path, "a")["value"] == 1
    assert (tmp_path / "a" / "part").read_text() == "kept"


def test_leftovers_of_a_kill_while_clearing_are_removed(tmp_path: Path) -> None:
    (tmp_path / "a.stale").mkdir()
    (tmp_path / "a.stale" / "part").write_text("old")
    run_stage(tmp_path, "a", {"n": 1}, Counting())
    assert not (tmp_path / "a.stale").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="something other"):
        run_stage(tmp_path, "a", {"n": 1}, Counting())
    assert (tmp_path / "a" / "thesis.tex").exists()


def test_stages_up_to_one() -> None:
    assert up_to(("tune", "rank", "saes"), "rank") == ["tune", "rank"]
    with pytest.raises(ValueError, match="did you mean 'rank'"):
        up_to(("tune", "rank", "saes"), "rnak")
