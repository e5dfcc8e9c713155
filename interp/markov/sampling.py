"""Drawing from many categorical laws in constant time: Walker's alias tables, one per context."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int


@dataclass(frozen=True)
class AliasTables:
    """For every (context, column): the share of the column's own symbol, and the symbol that fills the rest."""

    keep: Float[np.ndarray, "contexts A"]
    other: Int[np.ndarray, "contexts A"]


def alias_tables(laws: Float[np.ndarray, "contexts A"]) -> AliasTables:
    """Tables of all laws at once (Walker 1977; the pairing of Vose 1991).

    A column holds 1/A of the mass. As long as there is one, a symbol with less than that shares its column with one
    that has more.
    """
    contexts, size = laws.shape
    mass = laws * size
    keep = np.ones((contexts, size))
    other = np.tile(np.arange(size), (contexts, 1))
    open_columns = np.ones((contexts, size), bool)
    rows = np.arange(contexts)
    for _ in range(size - 1):
        poorest = np.where(open_columns, mass, np.inf).argmin(1)
        richest = np.where(open_columns, mass, -np.inf).argmax(1)
        share = np.minimum(mass[rows, poorest], 1.0)
        keep[rows, poorest], other[rows, poorest] = share, richest
        open_columns[rows, poorest] = False
        mass[rows, richest] -= 1.0 - share
    return AliasTables(keep, other)


def sample_chain(
    n: int, context: int, tables: AliasTables, seed: int, dtype: type[np.integer]
) -> Int[np.ndarray, " n"]:
    """`n` symbols after `context` (its oldest symbol the most significant digit)."""
    from interp.markov import loops

    contexts, size = tables.keep.shape
    shifted = (np.arange(contexts) % (contexts // size) * size)[
        :, None
    ]  # the context without its oldest symbol
    symbols = (np.arange(size)[None], tables.other)
    own, elsewhere = (((shifted + symbol) * size).astype(np.uint32).ravel() for symbol in symbols)
    out = np.empty(n, dtype)
    other = tables.other.astype(np.uint32).ravel()
    loops.sample_chain(out, context * size, tables.keep.ravel(), other, own, elsewhere, size, seed)
    return out
