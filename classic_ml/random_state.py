"""One convention for `random_state`: None, an integer, or a generator of NumPy's new or old kind."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

RandomState = int | np.random.Generator | np.random.RandomState | None


def as_generator(random_state: Any) -> np.random.Generator:
    """The generator that a `random_state` stands for.

    None draws a fresh seed; an integer is `default_rng`'s seed; a Generator is itself, and goes on from where it
    stands; of a RandomState one word is drawn for a seed, so that it moves on and repeats with its own seed.

    Raises:
        TypeError: anything else; ValueError: a negative seed.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(None if random_state is None else as_seed(random_state))


def as_seed(random_state: Any) -> int:
    """A seed for what takes integers only: an integer is itself, of the others one below 2**31 is drawn.

    Raises as `as_generator` does.
    """
    if random_state is None:
        random_state = np.random.default_rng()
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31 - 1))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    if isinstance(random_state, bool) or not isinstance(random_state, Integral):
        raise TypeError(
            f"random_state = {random_state!r} is a {type(random_state).__name__}: give None, an integer, a "
            "numpy Generator or a RandomState"
        )
    if random_state < 0:
        raise ValueError(f"random_state = {random_state} must not be negative")
    return int(random_state)
