"""Sequences of convex losses, one a round: linear, squared, logistic, or your own functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from classic_ml.online.domains import Domain

Vector = Float[np.ndarray, " d"]


class Losses(ABC):
    """T losses f_0 ... f_{T-1} on R^d."""

    dim: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def value(self, t: int, x: Vector) -> float:
        """f_t(x)."""

    @abstractmethod
    def gradient(self, t: int, x: Vector) -> Vector:
        """The gradient (d,) of f_t at x."""

    def values(self, x: Vector) -> Float[np.ndarray, " T"]:
        """Every loss at one point."""
        return np.array([self.value(t, x) for t in range(len(self))])

    def total_gradient(self, x: Vector) -> Vector:
        """The gradient (d,) of the sum of all losses."""
        return np.sum([self.gradient(t, x) for t in range(len(self))], axis=0)

    def closed_form_minimizer(self, domain: Domain) -> Vector | None:
        """The point of the domain at which the sum is least, where it has a closed form; else None."""
        return None


class LinearLosses(Losses):
    """f_t(x) = <c_t, x>, c [T d]."""

    def __init__(self, costs: Any) -> None:
        self.costs = _rows("costs", costs)
        self.dim = self.costs.shape[1]

    def __len__(self) -> int:
        return len(self.costs)

    def value(self, t: int, x: Vector) -> float:
        return float(self.costs[t] @ x)

    def gradient(self, t: int, x: Vector) -> Vector:
        return self.costs[t]

    def values(self, x: Vector) -> Float[np.ndarray, " T"]:
        return self.costs @ x

    def total_gradient(self, x: Vector) -> Vector:
        return self.costs.sum(0)

    def closed_form_minimizer(self, domain: Domain) -> Vector:
        return domain.linear_minimizer(self.costs.sum(0))


class SquaredLosses(Losses):
    """f_t(x) = |x - b_t|^2 / 2, targets b [T d]: 1-strongly convex."""

    def __init__(self, targets: Any) -> None:
        self.targets = _rows("targets", targets)
        self.dim = self.targets.shape[1]

    def __len__(self) -> int:
        return len(self.targets)

    def value(self, t: int, x: Vector) -> float:
        away = x - self.targets[t]
        return float(away @ away) / 2

    def gradient(self, t: int, x: Vector) -> Vector:
        return x - self.targets[t]

    def values(self, x: Vector) -> Float[np.ndarray, " T"]:
        return ((x - self.targets) ** 2).sum(1) / 2

    def total_gradient(self, x: Vector) -> Vector:
        return len(self) * x - self.targets.sum(0)

    def closed_form_minimizer(self, domain: Domain) -> Vector:
        return domain.project(self.targets.mean(0))


class LogisticLosses(Losses):
    """f_t(w) = log(1 + exp(-y_t <a_t, w>)), rows a [T d], signs y [T] of -1 and 1: exp-concave on bounded sets."""

    def __init__(self, features: Any, signs: Any) -> None:
        features, signs = _rows("features", features), np.asarray(signs)
        if signs.shape != (len(features),) or not np.isin(signs, (-1, 1)).all():
            raise ValueError(f"signs must be -1 or 1 for each of the {len(features)} rows of features")
        self._signed = features * signs[:, None]
        self.dim = features.shape[1]

    def __len__(self) -> int:
        return len(self._signed)

    def value(self, t: int, x: Vector) -> float:
        return float(np.logaddexp(0, -self._signed[t] @ x))

    def gradient(self, t: int, x: Vector) -> Vector:
        return -_sigmoid(-self._signed[t] @ x) * self._signed[t]

    def values(self, x: Vector) -> Float[np.ndarray, " T"]:
        return np.logaddexp(0, -self._signed @ x)

    def total_gradient(self, x: Vector) -> Vector:
        return -_sigmoid(-self._signed @ x) @ self._signed


class LossFunctions(Losses):
    """Your own: a (value, gradient) pair of functions of x [d] for each round."""

    def __init__(
        self, rounds: Sequence[tuple[Callable[[Vector], float], Callable[[Vector], Vector]]], dim: int
    ) -> None:
        if not rounds:
            raise ValueError("rounds is empty; give a (value, gradient) pair of functions for each round")
        self._rounds, self.dim = list(rounds), dim

    def __len__(self) -> int:
        return len(self._rounds)

    def value(self, t: int, x: Vector) -> float:
        return float(self._rounds[t][0](x))

    def gradient(self, t: int, x: Vector) -> Vector:
        return np.asarray(self._rounds[t][1](x), dtype=float)


def _rows(name: str, value: Any) -> Float[np.ndarray, "T d"]:
    rows = np.array(value, dtype=float)
    if rows.ndim != 2 or 0 in rows.shape or not np.isfinite(rows).all():
        raise ValueError(f"{name} has shape {rows.shape}; give finite numbers, a row for each round [T d]")
    return rows


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(x / 2))
