"""Figures are objects in the house style, without global state."""

from __future__ import annotations

import subprocess
import sys

import pytest

from interp.core.plotting import COLOURS, new_figure, pareto, save_figure


def test_a_figure_in_the_house_style():
    import matplotlib

    before = matplotlib.rcParams["axes.spines.top"]
    _, ax = new_figure()
    ax.plot([1, 2], [3, 4])
    assert ax.lines[0].get_color() == COLOURS[0]
    assert not ax.spines["top"].get_visible()
    assert matplotlib.rcParams["axes.spines.top"] == before
    assert new_figure(2, 3)[1].shape == (2, 3)
    assert new_figure(size=(3.0, 2.0))[0].get_size_inches().tolist() == [3.0, 2.0]


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")])
def test_figures_are_saved_by_their_ending(tmp_path, name, magic):
    figure, ax = new_figure()
    ax.plot([1, 2])
    save_figure(figure, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(magic)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_frontier_joins_its_points_in_order():
    _, ax = new_figure()
    pareto(ax, [30, 10, 20], [0.3, 0.1, 0.2], "gated")
    assert ax.lines[0].get_xydata().tolist() == [[10, 0.1], [20, 0.2], [30, 0.3]]
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["gated"]


def test_pyplot_stays_out():
    code = (
        "import sys; from interp.core.plotting import new_figure; new_figure(); "
        "print('matplotlib.pyplot' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
