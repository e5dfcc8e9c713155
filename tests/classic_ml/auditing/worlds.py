"""Instances whose explanation loss is known exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from classic_ml.auditing import BoxRegion, ConstantModel, LocalExplanation

RATES = {"eps1": 0.5, "eps2": 0.1, "gamma": 0.3, "delta": 0.1}
SHARES = (0, 0.02, 0.05, 0.1, 0.1, 0.12, 0.2, 0.5, 0.6, 0.9)


class Cells:
    """[0, 1) in equal cells; g = +1, f = -1 on the first share q_c of cell c: its local loss is q_c."""

    def __init__(self, shares: Sequence[float] | float, n_cells: int | None = None) -> None:
        self.n = n_cells or len(shares)  # type: ignore[arg-type]
        self.shares = np.broadcast_to(np.asarray(shares, float), self.n)
        self._explanations: dict[int, LocalExplanation] = {}

    def cell(self, x: np.ndarray) -> np.ndarray:
        return np.minimum((x[:, 0] * self.n).astype(int), self.n - 1)

    def f(self, X: np.ndarray) -> np.ndarray:
        place = X[:, 0] * self.n - self.cell(X)
        return np.where(place < self.shares[self.cell(X)], -1, 1)

    def explain(self, x: np.ndarray) -> LocalExplanation:
        c = min(int(x[0] * self.n), self.n - 1)
        if c not in self._explanations:
            box = BoxRegion([np.nextafter(c / self.n, -1)], [np.nextafter((c + 1) / self.n, 2)])
            self._explanations[c] = LocalExplanation(box, ConstantModel(1))
        return self._explanations[c]

    def queries(
        self, n: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray], LocalExplanation]]:
        X = np.random.default_rng(seed).uniform(size=(n, 1))
        return X, self.f(X), self.explain


def step(X: np.ndarray) -> np.ndarray:
    """+1 on [0, 0.5), -1 beyond."""
    return np.where(np.asarray(X)[:, 0] < 0.5, 1, -1)
