"""All minimal sets that forecast equally well, as a product of equivalence classes that is never written out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from classic_ml.random_state import RandomState, as_generator


@dataclass(frozen=True)
class SolutionSet:
    """One member of every class is one solution; the first member of each is the reference solution."""

    classes: list[list[Any]]

    @property
    def n_solutions(self) -> int:
        """The product of the class sizes, exact however large."""
        return math.prod(len(members) for members in self.classes)

    def at(self, index: int) -> list[Any]:
        """Solution `index` of 0..n_solutions-1, the last class varying fastest. Raises ValueError outside."""
        if not 0 <= index < self.n_solutions:
            raise ValueError(f"index = {index} must lie in 0..{self.n_solutions - 1}")
        chosen = []
        for members in reversed(self.classes):
            index, digit = divmod(index, len(members))
            chosen.append(members[digit])
        return chosen[::-1]

    def iterate(self, max_solutions: int | None = None) -> Iterator[list[Any]]:
        """Solutions in the order of `at`, one at a time."""
        if max_solutions is not None and max_solutions < 0:
            raise ValueError(f"max_solutions = {max_solutions} must not be negative; None means all")
        return (list(s) for s in itertools.islice(itertools.product(*self.classes), max_solutions))

    def sample(self, n: int, random_state: RandomState = None) -> list[list[Any]]:
        """`n` solutions drawn uniformly and independently."""
        if n < 0:
            raise ValueError(f"n = {n} must not be negative")
        rng = as_generator(random_state)
        return [[members[rng.integers(len(members))] for members in self.classes] for _ in range(n)]
