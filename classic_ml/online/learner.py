"""What every online learner does: decide, then learn from gradients."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from classic_ml.online.domains import Domain

Vector = Float[np.ndarray, " d"]
Oracle = Callable[[Vector], Vector]
"""The gradient of this round's loss at a point."""


class OnlineLearner(ABC):
    """Plays a point a round. `predict`, then `observe` with the round's gradient oracle, and so on."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._played: Vector | None = None

    def predict(self) -> Vector:
        """The point (d,) played in this round; the same until the round is over."""
        if self._played is None:
            self._played = self._decide()
        return self._played.copy()

    @abstractmethod
    def observe(self, oracle: Oracle) -> None:
        """Learn from the round's loss and end the round; the first query is the gradient at the played point."""

    @abstractmethod
    def _decide(self) -> Vector: ...

    def _in_play(self) -> Vector:
        if self._played is None:
            raise RuntimeError("there is no point in play: call predict() before each update")
        return self._played


class OneGradientLearner(OnlineLearner):
    """A learner that needs one gradient a round, the one at the point that it played."""

    def update(self, gradient: Any) -> None:
        """Learn from the gradient (d,) of the round's loss at the last predicted point, and end the round.

        Raises:
            RuntimeError: nothing was predicted in this round.
            ValueError: another shape, NaN or infinity.
        """
        played = self._in_play()
        self._learn(check_gradient(gradient, self.domain.dim), played)
        self._played = None

    def observe(self, oracle: Oracle) -> None:
        self.update(oracle(self._in_play().copy()))

    @abstractmethod
    def _learn(self, gradient: Vector, played: Vector) -> None: ...


def check_gradient(gradient: Any, dim: int) -> Vector:
    vector = np.array(gradient, dtype=float)
    if vector.shape != (dim,):
        raise ValueError(f"gradient has shape {vector.shape}, the domain's dimension is {dim}; give ({dim},)")
    if not np.isfinite(vector).all():
        raise ValueError(f"gradient = {vector} holds NaN or infinity; is the loss finite at this point?")
    return vector


def check_bound(gradient_bound: float) -> float:
    if not (np.isfinite(gradient_bound) and gradient_bound > 0):
        raise ValueError(f"gradient_bound = {gradient_bound} must be positive: the largest gradient's norm")
    return float(gradient_bound)


class Violations:
    """Says once, or by an error, that an assumption of the guarantees was broken."""

    def __init__(self, action: str) -> None:
        self._action, self._said = action, False

    def tell(self, message: str) -> None:
        if self._action == "raise":
            raise ValueError(f"{message} (on_violation='warn' goes on without the guarantee)")
        if not self._said:
            warnings.warn(f"{message}; the guarantee no longer holds", UserWarning, stacklevel=5)
            self._said = True
