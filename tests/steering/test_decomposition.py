"""Shares of variance on planted tables, in closed form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from interp.steering.decomposition import cells, decompose_variance

A = np.tile([0, 0, 1, 1], 50)
Y = np.tile([0, 1, 0, 1], 50)


def test_a_planted_balanced_design_has_its_closed_form() -> None:
    """s = 1 + 2 A + 0.5 Y + e with e orthogonal to both: the parts are 4 var(A), 0.25 var(Y) and var(e)."""
    noise = np.random.default_rng(0).normal(0, 0.3, 200)
    design = np.column_stack([np.ones(200), A, Y])
    noise -= design @ np.linalg.lstsq(design, noise, rcond=None)[0]
    result = decompose_variance(1 + 2 * A + 0.5 * Y + noise, {"letter": A, "yes": Y})
    assert result.explained["letter"] == pytest.approx(4 * A.var(ddof=1))
    assert result.explained["yes"] == pytest.approx(0.25 * Y.var(ddof=1))
    assert result.unexplained == pytest.approx(noise.var(ddof=1))
    assert sum(result.shares.values()) + result.unexplained / result.total == pytest.approx(1)


def test_with_independent_noise_the_shares_are_near() -> None:
    noise = np.random.default_rng(1).normal(0, 0.5, 200)
    shares = decompose_variance(1 + 2 * A + 0.5 * Y + noise, {"letter": A, "yes": Y}).shares
    total = 1 + 1 / 16 + 0.25
    assert shares["letter"] == pytest.approx(1 / total, abs=0.04)
    assert shares["yes"] == pytest.approx(1 / 16 / total, abs=0.03)


def test_the_first_of_two_equal_factors_takes_all() -> None:
    result = decompose_variance(2.0 * A, {"letter": A, "copy": A})
    assert result.shares == pytest.approx({"letter": 1.0, "copy": 0.0})


def test_the_order_matters_where_factors_overlap() -> None:
    """Correlated factors: each alone explains what the other also does."""
    a, y = np.array([0, 0, 0, 1, 1, 1]), np.array([0, 0, 1, 0, 1, 1])
    first = decompose_variance(a + y, {"a": a, "y": y})
    last = decompose_variance(a + y, {"y": y, "a": a})
    assert first.unexplained == pytest.approx(0)
    assert last.unexplained == pytest.approx(0)
    r2 = np.corrcoef(a, a + y)[0, 1] ** 2
    assert first.shares["a"] == pytest.approx(r2)
    assert last.shares["a"] == pytest.approx(1 - np.corrcoef(y, a + y)[0, 1] ** 2)


def test_there_is_no_interaction_term() -> None:
    result = decompose_variance((A == Y).astype(float), {"letter": A, "yes": Y})
    assert result.shares == pytest.approx({"letter": 0.0, "yes": 0.0}, abs=1e-12)
    assert result.unexplained == pytest.approx(result.total)


def test_a_constant_factor_is_dropped_with_share_zero() -> None:
    result = decompose_variance(2.0 * A, {"yes": np.ones(200), "letter": A})
    assert result.explained == pytest.approx({"yes": 0.0, "letter": result.total})
    assert result.constant == ("yes",)
    assert "(constant)" in str(result)


def test_no_variance_has_shares_of_zero() -> None:
    assert decompose_variance(np.ones(200), {"letter": A}).shares == {"letter": 0.0}


def test_words_are_categories() -> None:
    """Three groups with means 0, 1 and 5: the share is between-group over total sum of squares."""
    groups = np.repeat(["x", "y", "z"], 40)
    slopes = np.repeat([0.0, 1.0, 5.0], 40) + np.tile([-1.0, 1.0], 60)
    result = decompose_variance(slopes, pd.DataFrame({"group": groups}))
    between = 40 * ((np.array([0, 1, 5]) - 2) ** 2).sum()
    assert result.shares["group"] == pytest.approx(between / (between + 120))
    assert result.to_frame().loc["unexplained", "share"] == pytest.approx(120 / (between + 120))


def test_cells_count_and_summarise() -> None:
    frame = cells(np.array([1.0, 3.0, -1.0, -1.0]), {"letter": ["A", "A", "B", "B"], "yes": [1, 1, 0, 1]})
    assert frame.loc[("A", 1), "n"] == 2
    assert frame.loc[("A", 1), "mean"] == 2.0
    assert frame.loc[("B", 0), "anti_fraction"] == 1.0


@pytest.mark.parametrize(
    ("slopes", "factors", "message"),
    [
        ([1.0], {"a": [1]}, "at least two samples"),
        ([1.0, 2.0], {}, "name at least one column"),
        ([1.0, 2.0], {"a": [1, 2, 3]}, r"factors\['a'\]: expected 2 values"),
        ([1.0, 2.0], {"a": [1.0, float("nan")]}, "isn't finite"),
    ],
)
def test_tables_that_cannot_be_shared_out_are_refused(slopes: list, factors: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decompose_variance(slopes, factors)
