"""One meaning of `random_state` for all of classic_ml."""

from __future__ import annotations

import numpy as np
import pytest

from classic_ml.random_state import as_generator, as_seed


def test_integers_are_the_seeds_of_default_rng():
    assert as_generator(7).random() == as_generator(np.int64(7)).random() == np.random.default_rng(7).random()
    assert as_seed(7) == 7


def test_a_generator_goes_on_from_where_it_stands():
    rng = np.random.default_rng(0)
    assert as_generator(rng) is rng
    first, second = as_seed(rng), as_seed(rng)
    again = np.random.default_rng(0)
    assert (first, second) == (as_seed(again), as_seed(again))
    assert first != second
    assert 0 <= first < 2**31


def test_the_old_kind_repeats_with_its_seed_and_moves_on():
    draws = [as_generator(state).random() for state in [np.random.RandomState(5)] * 2]
    assert draws[0] != draws[1]
    assert as_generator(np.random.RandomState(5)).random() == draws[0]


def test_none_is_fresh():
    assert as_generator(None).random() != as_generator(None).random()


@pytest.mark.parametrize(
    ("value", "error"), [("3", TypeError), (1.5, TypeError), (True, TypeError), (-1, ValueError)]
)
def test_anything_else_is_refused_by_name(value, error):
    with pytest.raises(error, match="random_state = "):
        as_generator(value)
