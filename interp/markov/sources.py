"""Markov sources of any order over a finite alphabet, and everything about them that has a closed form."""

from __future__ import annotations

import functools
import logging
import math
import os
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from interp.core.device import derive_seed
from interp.core.files import atomic_write, open_regular, read_json
from interp.core.messages import one_of, warn_once
from interp.markov.sampling import AliasTables, alias_tables, sample_chain

logger = logging.getLogger(__name__)

LARGEST_TABLE = 2**22  # cells of a transition table
LARGEST_SOLVE = 4096  # contexts of a chain whose stationary law is solved for
INITIAL = ("stationary", "uniform")


def entropy(law: Float[np.ndarray, "*shape A"]) -> Float[np.ndarray, "*shape"]:
    """Entropy in nats over the last axis; 0 ln 0 is 0."""
    positive = np.where(law > 0, law, 1.0)
    return 0.0 - (law * np.log(positive)).sum(-1)  # not -0.0 where nothing is uncertain


class MarkovSource:
    """A source whose next symbol depends on the last `order` symbols.

    Entropies and losses are in nats per symbol.

    Args:
        transition: `[A^order, A]`, or `[A, ..., A, A]` with one axis per symbol of the context, oldest first. Row c
            is the law of the next symbol after context c; as an index, the oldest symbol of a context is its most
            significant digit.
        initial: law of the first `order` symbols: `stationary`, or `uniform` (independent and uniform).
        stationary: the stationary law of the contexts, where it is known (it is checked) or not unique.

    Attributes:
        alphabet_size, order, n_contexts: A, k and A^k.

    Raises:
        ValueError: no table, rows that are no laws (to 1e-8), a wrong number of them, or a `stationary` that isn't.
    """

    def __init__(
        self,
        transition: Float[np.ndarray, "*contexts A"],
        *,
        initial: str = "stationary",
        stationary: Float[np.ndarray, " contexts"] | None = None,
    ) -> None:
        one_of("initial", initial, INITIAL)
        try:
            table = np.array(transition, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"transition is no table of numbers: {error}") from error
        size = table.shape[-1] if table.ndim else 0
        if table.ndim < 2 or size < 2:
            raise ValueError(
                f"transition has shape {table.shape}; give [A^order, A] with at least 2 symbols A"
            )
        table = np.ascontiguousarray(table.reshape(-1, size))
        order = round(math.log(len(table), size)) if len(table) > 1 else 0
        if order < 1 or size**order != len(table):
            raise ValueError(
                f"transition has {len(table)} rows of {size} symbols; give {size}^order rows, order >= 1"
            )
        if not np.isfinite(table).all() or (table < 0).any():
            raise ValueError("transition holds numbers below 0, NaN or infinities; every row must be a law")
        off = abs(table.sum(1) - 1)
        if off.max() > 1e-8:
            row = int(off.argmax())
            raise ValueError(
                f"transition: row {row} sums to {table[row].sum():.10g}; every row must sum to 1"
            )
        self.transition = table / table.sum(1, keepdims=True)
        self.alphabet_size, self.order, self.n_contexts = size, order, len(table)
        self.initial = initial
        self._given = None if stationary is None else self._checked(np.asarray(stationary, np.float64))

    # Kinds of sources.

    @classmethod
    def switching(cls, order: int, p: float, q: float, *, initial: str = "stationary") -> MarkovSource:
        """The binary source of Rajaraman et al. 2024: the symbol `order` steps back decides, and it alone.

        `P(1 | x[n - order] = 0) = p` and `P(0 | x[n - order] = 1) = q`; `order` interleaved chains of order 1, whose
        first symbols are independent.

        Raises ValueError for p or q outside (0, 1] or an order below 1 or above 21.
        """
        for name, value in (("p", p), ("q", q)):
            if not 0 < value <= 1:
                raise ValueError(f"{name} = {value} must lie in (0, 1]: at 0 the source would never switch")
        _check_order(order, 2)
        if p == q == 1:
            warn_once(logger, "periodic", "p = q = 1: the source is periodic, its entropy rate is 0")
        old = np.arange(2**order) >> (order - 1)
        ones = np.where(old == 0, p, 1 - q)
        pi = np.array([q, p]) / (p + q)
        law = functools.reduce(lambda a, b: np.multiply.outer(a, b).ravel(), [pi] * order)
        return cls(np.stack([1 - ones, ones], 1), initial=initial, stationary=law)

    @classmethod
    def random(
        cls, order: int = 1, alphabet_size: int = 2, *, seed: int = 0, initial: str = "stationary"
    ) -> MarkovSource:
        """Every row drawn from Dirichlet(1), that is uniformly among the laws."""
        if alphabet_size < 2:
            raise ValueError(f"alphabet_size = {alphabet_size} must be at least 2")
        _check_order(order, alphabet_size)
        generator = np.random.default_rng(derive_seed(seed, "random source"))
        table = generator.dirichlet(np.ones(alphabet_size), size=alphabet_size**order)
        return cls(table, initial=initial)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> MarkovSource:
        """A table [A^order, A] from a .json (nested lists) or .npy file.

        Raises ValueError for another ending or a file that holds no table.
        """
        path = Path(path)
        if path.suffix == ".npy":
            try:
                with open_regular(path) as file:
                    table = np.load(file, allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise ValueError(f"{path} holds no array of numbers as numpy.save writes it") from error
        elif path.suffix == ".json":
            table = read_json(path, list)
        else:
            raise ValueError(f"{path}: a transition table is a .json or .npy file")
        try:
            return cls(table)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as a .npy file that `from_file` reads."""
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.save(file, self.transition)

    # Laws.

    @functools.cached_property
    def stationary(self) -> Float[np.ndarray, " contexts"]:
        """The stationary law of the contexts (of `order` symbols).

        Raises ValueError where it is not unique, or where there are more than 4096 contexts to solve for.
        """
        return self._solve() if self._given is None else self._given

    def block_law(self, length: int) -> Float[np.ndarray, " blocks"]:
        """Stationary law of the `A^length` blocks; the first symbol of a block is its most significant digit."""
        if length < 1 or self.alphabet_size**length > LARGEST_TABLE:
            raise ValueError(f"length = {length}: needs 1 <= length and A^length <= {LARGEST_TABLE}")
        law = self.stationary
        if length <= self.order:
            return law.reshape(self.alphabet_size**length, -1).sum(1)
        for _ in range(length - self.order):
            law = (law.reshape(-1, self.n_contexts, 1) * self.transition).ravel()
        return law

    def symbol_law(self) -> Float[np.ndarray, " A"]:
        """pi, the stationary law of one symbol."""
        return self.block_law(1)

    # Closed forms, in nats per symbol unless it says otherwise.

    def symbol_entropy(self) -> float:
        """H(pi): what the best model that sees no context reaches."""
        return float(entropy(self.symbol_law()))

    def entropy_rate(self) -> float:
        """H_inf: what no model can beat."""
        return float(self.stationary @ entropy(self.transition))

    def block_entropy(self, length: int) -> float:
        """Entropy of a block of `length` symbols, in nats per block."""
        known = min(length, self.order)
        return float(entropy(self.block_law(known))) + (length - known) * self.entropy_rate()

    def ngram_loss(self, context: int) -> float:
        """What the best model reaches that sees the last `context` symbols: H(block context + 1) - H(block context)."""
        if context < 0:
            raise ValueError(f"context = {context} must not be negative")
        loss = self.block_entropy(context + 1) - (self.block_entropy(context) if context else 0.0)
        return max(0.0, loss)  # a difference of two sums, whose rounding can leave -1e-17

    def min_transition(self) -> float:
        """delta, the smallest transition probability; the theory assumes it above 0."""
        return float(self.transition.min())

    def loss_deviation(self) -> float:
        """Standard deviation of -ln P(symbol | context) under the stationary law."""
        surprise = -np.log(np.where(self.transition > 0, self.transition, 1.0))
        law = self.stationary[:, None] * self.transition
        return float(np.sqrt((law * (surprise - self.entropy_rate()) ** 2).sum()))

    # Strings.

    def sample(self, n: int, seed: int = 0) -> Int[np.ndarray, " n"]:
        """A string of `n` symbols; bytes for alphabets up to 256, else int32.

        Same seed, same string; a longer string begins with the shorter one.

        Raises ValueError for an `n` below 1 or beyond the memory.
        """
        if n < 1:
            raise ValueError(f"n = {n} must be at least 1")
        generator = np.random.default_rng(derive_seed(seed, "initial"))
        law = self.stationary if self.initial == "stationary" else None
        context = int(generator.choice(self.n_contexts, p=law))
        dtype = np.uint8 if self.alphabet_size <= 256 else np.int32
        first = np.array(np.unravel_index(context, (self.alphabet_size,) * self.order), dtype)
        try:
            rest = sample_chain(
                max(0, n - self.order), context, self._tables, derive_seed(seed, "chain"), dtype
            )
            return np.concatenate([first[:n], rest])
        except MemoryError as error:
            raise ValueError(f"n = {n}: a string of that many symbols doesn't fit into memory") from error

    def contexts(self, x: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n-order"]:
        """The index of the context that stands before each of `x[order:]`."""
        index = np.zeros(max(0, len(x) - self.order), np.int64)
        for j in range(self.order):
            index = index * self.alphabet_size + x[j : j + len(index)]
        return index

    def log_probabilities(self, x: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """ln P(x[i] | x[:i]) of every symbol, the first `order` by the initial law; -inf where impossible."""
        x = as_symbols(x, self.alphabet_size)
        known = min(len(x), self.order)
        with np.errstate(divide="ignore"):
            first = np.full(known, -math.log(self.alphabet_size))
            if self.initial == "stationary":
                index = [
                    int(np.ravel_multi_index(x[:j], (self.alphabet_size,) * j)) for j in range(1, known + 1)
                ]
                blocks = np.log([self.block_law(j + 1)[i] for j, i in enumerate(index)])
                first = np.diff(blocks, prepend=0.0)
            return np.concatenate([first, np.log(self.transition[self.contexts(x), x[self.order :]])])

    def log_probability(self, x: Int[np.ndarray, " n"]) -> float:
        """ln P(x) of a whole string."""
        return float(self.log_probabilities(x).sum())

    def __repr__(self) -> str:
        return (
            f"MarkovSource({self.alphabet_size} symbols, order {self.order}, H(pi) {self.symbol_entropy():.4f}, "
            f"entropy rate {self.entropy_rate():.4f} nats per symbol)"
        )

    # Shared machinery.

    @functools.cached_property
    def _tables(self) -> AliasTables:
        return alias_tables(self.transition)

    def _step(self, law: Float[np.ndarray, " contexts"]) -> Float[np.ndarray, " contexts"]:
        """The law of the contexts one symbol later."""
        return (law[:, None] * self.transition).reshape(self.alphabet_size, -1).sum(0)

    def _checked(self, law: Float[np.ndarray, " contexts"]) -> Float[np.ndarray, " contexts"]:
        if law.shape != (self.n_contexts,) or (law < 0).any() or abs(law.sum() - 1) > 1e-8:
            raise ValueError(f"stationary must be a law of the {self.n_contexts} contexts")
        if abs(self._step(law) - law).max() > 1e-8:
            raise ValueError("stationary is not: one step of the chain changes it by more than 1e-8")
        return law

    def _solve(self) -> Float[np.ndarray, " contexts"]:
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        size, n = self.alphabet_size, self.n_contexts
        if n > LARGEST_SOLVE:
            raise ValueError(
                f"{n} contexts are too many to solve for the stationary law (at most {LARGEST_SOLVE}); "
                "lower the order, or give stationary="
            )
        rows = np.repeat(np.arange(n), size)
        columns = (rows % (n // size)) * size + np.tile(np.arange(size), n)
        chain = csr_array((self.transition.ravel(), (rows, columns)), shape=(n, n))
        chain.eliminate_zeros()
        _, component = connected_components(chain, connection="strong")
        left = component[rows] != component[columns]
        closed = set(component) - set(component[rows[left & (self.transition.ravel() > 0)]])
        if len(closed) > 1:
            raise ValueError(
                f"the chain falls into {len(closed)} parts that it never leaves: its stationary law is not unique; "
                "give stationary= to choose one"
            )
        # n equations of rank n - 1; the last is replaced by "the law sums to 1".
        system = chain.toarray().T - np.eye(n)
        system[-1] = 1.0
        law = np.linalg.solve(system, np.eye(n)[-1])
        law = np.maximum(law, 0.0)
        return law / law.sum()


def as_symbols(x: Int[np.ndarray, " n"], alphabet_size: int | None = None) -> Int[np.ndarray, " n"]:
    """`x` as an array of symbols.

    Raises TypeError for other than whole numbers, ValueError for another shape or a symbol outside 0 .. A - 1.
    """
    array = np.asarray(x)
    if array.dtype.kind not in "iu":
        raise TypeError(f"x holds {array.dtype}; symbols are whole numbers 0, 1, ...")
    if array.ndim != 1 or len(array) == 0:
        raise ValueError(f"x has shape {array.shape}; give a string of at least one symbol, [n]")
    low, high = int(array.min()), int(array.max())
    if low < 0 or (alphabet_size is not None and high >= alphabet_size):
        bad = low if low < 0 else high
        end = "" if alphabet_size is None else f" .. {alphabet_size - 1}"
        raise ValueError(f"x holds the symbol {bad}, outside the alphabet 0{end}")
    return array


def _check_order(order: int, alphabet_size: int) -> None:
    if order < 1:
        raise ValueError(f"order = {order} must be at least 1")
    if alphabet_size ** (order + 1) > LARGEST_TABLE:
        raise ValueError(
            f"order = {order} over {alphabet_size} symbols needs {alphabet_size}^{order + 1} cells; "
            f"at most {LARGEST_TABLE}"
        )
