"""The record of a run, in memory and as lines of JSON."""

from __future__ import annotations

import json
import math

import pytest

from interp.core.history import History


def history():
    result = History()
    result.add(1, {"loss": 3.0, "seconds": 0.1})
    result.add(2, {"loss": math.nan, "seconds": 0.2})
    result.add(3, {"loss": 1.0, "seconds": 0.3, "valid_loss": 2.0})
    return result


def test_columns_leave_out_what_was_not_measured():
    assert history().column("loss") == ([1, 3], [3.0, 1.0])
    assert history().column("valid_loss") == ([3], [2.0])
    assert history().column("absent") == ([], [])
    assert history().last == {"step": 3, "loss": 1.0, "seconds": 0.3, "valid_loss": 2.0}
    assert len(history()) == 3


def test_as_a_table():
    frame = history().to_frame()
    assert list(frame["step"]) == [1, 2, 3]
    assert frame["loss"].isna().tolist() == [False, True, False]


def test_lines_of_json_and_back(tmp_path):
    history().rewrite(tmp_path)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[1]) == {"step": 2, "loss": None, "seconds": 0.2}
    assert History.read(tmp_path).rows == history().rows
    assert [row["step"] for row in History.read(tmp_path, until=2)] == [1, 2]
    assert History.read(tmp_path / "absent").rows == []


def test_a_half_written_last_line_is_left_out_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2')
    assert History.read(tmp_path).rows == [{"step": 1}]
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2, is not valid JSON"):
        History.read(tmp_path)


def test_a_panel_for_every_metric():
    figure = history().plot()
    assert [ax.get_title() for ax in figure.axes] == ["loss", "valid_loss"]
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[1, 3], [3, 1]]
    many = History()
    many.add(1, {f"m{i}": 1.0 for i in range(4)})
    panels = many.plot().axes
    assert [ax.get_visible() for ax in panels] == [True] * 4 + [False] * 2
    assert len(history().plot(["loss"]).axes) == 1


@pytest.mark.parametrize("line", ["[1]", "3", '{"loss": 1}', '{"step": "1"}', '{"step": true}', "[" * 99_999])
def test_a_line_that_is_no_row_is_named(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl, line 2,"):
        History.read(tmp_path)


def test_lost_and_changed_rows_are_told(caplog):
    whole = history()
    whole.check(history().tally(), "run")
    assert caplog.text == ""
    History(whole.rows[:1]).check(whole.tally(), "run")
    assert "holds 1 of 3 rows that were logged" in caplog.text
    History([{**whole.rows[0], "loss": 2.0}, *whole.rows[1:]]).check(whole.tally(), "run")
    assert "holds other numbers than" in caplog.text
