"""What the package offers, and one convention for randomness in all of it."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import classic_ml.valuation as valuation

HELPERS = {
    "as_game",
    "as_utility",
    "all_coalitions",
    "shapley_from_table",
    "sample_size",
    "cell_order",
    "trigger_columns",
}
HELPERS |= {"effective_size", "worth", "digest", "Memo", "OverAllClasses", "BagLearner", "WeightedBagLearner"}
HELPERS |= {"bag_learner", "fit_classifier"}


def test_everything_public_is_exported_but_what_the_modules_need_of_one_another() -> None:
    written = set()
    for path in Path(valuation.__file__).parent.glob("[a-z]*.py"):
        module = importlib.import_module(f"classic_ml.valuation.{path.stem}")
        written |= {
            name
            for name, value in vars(module).items()
            if (inspect.isclass(value) or inspect.isfunction(value))
            and value.__module__ == module.__name__
            and not name.startswith(("_", "checked_"))
        }
    exported = set(valuation.__all__)
    assert not exported ^ (written - HELPERS)
    assert written >= HELPERS
    assert callable(valuation.du_shapley)


def table() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(5).standard_normal((40, 3))
    return X, (X[:, 0] > 0).astype(int)


def rows_worth(rows: np.ndarray) -> float:
    return float(np.sqrt(rows.sum()))


CASES = {
    "du_shapley_data": lambda s: valuation.du_shapley_data([0, 1, 2] * 5, rows_worth, random_state=s).values,
    "leave_one_out": lambda s: (
        valuation.leave_one_out([0, 1, 2] * 5, rows_worth, subset="random", random_state=s).values
    ),
    "monte_carlo_shapley": lambda s: valuation.monte_carlo_shapley(rows_worth, 5, 6, random_state=s).values,
    "two_d_knn": lambda s: valuation.two_d_knn(*table(), *table(), 3, 2, random_state=s),
    "make_cell_outliers": lambda s: valuation.make_cell_outliers(*table(), random_state=s)[0],
    "plant_trigger": lambda s: valuation.plant_trigger(*table(), [0], source=0, target=1, random_state=s)[0],
    "TwoDOOB": lambda s: valuation.TwoDOOB(n_estimators=8, random_state=s).fit(*table()).cell_values_,
    "TwoDOOB varying": lambda s: (
        valuation.TwoDOOB(GaussianNB(), 8, "varying", random_state=s).fit(*table()).cell_values_
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_seeds_and_generators(name: str) -> None:
    draw = CASES[name]
    makers: list[Any] = [
        lambda: 7,
        lambda: np.int64(7),
        lambda: np.random.default_rng(7),
        lambda: np.random.RandomState(7),
    ]
    for make in makers:
        np.testing.assert_array_equal(draw(make()), draw(make()))
    np.testing.assert_array_equal(draw(7), draw(np.int64(7)))
    for generator in (np.random.default_rng(7), np.random.RandomState(7)):
        assert not np.array_equal(draw(generator), draw(generator), equal_nan=True)  # it moves on
    assert draw(None).shape == draw(7).shape
    with pytest.raises(TypeError, match="random_state = 'seven'"):
        draw("seven")
    with pytest.raises(ValueError, match="random_state = -1"):
        draw(-1)
