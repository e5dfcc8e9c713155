"""What a seed set is worth: the motif influence and its bounds, sampled backwards or forwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from classic_ml.influence.graph import InfluenceGraph, as_graph, check_cascade
from classic_ml.influence.motifs import NO_MOTIFS, Motif, MotifTable
from classic_ml.random_state import RandomState, as_seed
from interp.core.device import derive_seed
from interp.core.intervals import Interval
from interp.core.messages import at_least, one_of

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("reverse", "forward")
_CHUNK = 4096  # samples drawn together; fixed, so that sums don't depend on the number of threads


@dataclass(frozen=True)
class Estimate:
    """A mean over samples and its standard error; an exact value has a standard error of 0."""

    mean: float
    stderr: float = 0.0

    @property
    def interval(self) -> Interval:
        """95 %, by the normal approximation."""
        return Interval(self.mean - 1.96 * self.stderr, self.mean + 1.96 * self.stderr)

    def __float__(self) -> float:
        return self.mean

    def __str__(self) -> str:
        return f"{self.mean:.6g}" + (f" ± {1.96 * self.stderr:.2g}" if self.stderr else "")

    @classmethod
    def of(cls, samples: Float[np.ndarray, " n"]) -> Estimate:
        spread = samples.std(ddof=1) if len(samples) > 1 else math.nan
        return cls(float(samples.mean()), float(spread / math.sqrt(len(samples))))


@dataclass(frozen=True)
class MotifInfluence:
    """The expected value of activated motifs and the bounds around it, each summed over motifs.

    lower_tree <= lower_seed <= influence <= upper_min <= upper_any, with equality where every threshold is 1.

    Attributes:
        lower_tree: some member is reached that, over live edges inside the motif, reaches the threshold itself. This is
            our reading of the paper's "r-spanning tree"; its own construction could not be checked.
        lower_seed: some single seed reaches the threshold. Ours, at least `lower_tree`.
        influence: the threshold is reached.
        upper_min: min(1, reached members / threshold). Ours, at most `upper_any`.
        upper_any: some member is reached (the paper's super node joined to every member).
        n_samples: 0 where the values are exact.
    """

    lower_tree: Estimate
    lower_seed: Estimate
    influence: Estimate
    upper_min: Estimate
    upper_any: Estimate
    n_samples: int = 0

    @classmethod
    def of(
        cls, means: Float[np.ndarray, " 5"], stderrs: Float[np.ndarray, " 5"], n_samples: int = 0
    ) -> MotifInfluence:
        """From values in the order of the fields."""
        tree, seed, influence, least, some = (
            Estimate(float(m), float(e)) for m, e in zip(means, stderrs, strict=True)
        )
        return cls(tree, seed, influence, least, some, n_samples)

    def to_frame(self) -> pd.DataFrame:
        """A row per quantity: mean, stderr, low and high of its 95 % interval."""
        import pandas as pd

        rows = {name: value for name in BOUNDS if isinstance(value := getattr(self, name), Estimate)}
        table = [(e.mean, e.stderr, e.interval.low, e.interval.high) for e in rows.values()]
        return pd.DataFrame(table, index=list(rows), columns=["mean", "stderr", "low", "high"])

    def __str__(self) -> str:
        source = f"{self.n_samples:,} samples" if self.n_samples else "exact"
        return "\n".join([f"motif influence ({source})", *(f"  {n:<10}  {getattr(self, n)}" for n in BOUNDS)])


BOUNDS = tuple(f.name for f in fields(MotifInfluence) if f.name != "n_samples")


@dataclass(frozen=True, eq=False)
class Spread:
    """Forward runs of a cascade.

    Attributes:
        sizes: [runs] active nodes, seeds included.
        activation: [n] share of runs in which each node was active.
        labels: of the nodes.
    """

    sizes: Int[np.ndarray, " runs"]
    activation: Float[np.ndarray, " n"]
    labels: tuple[Hashable, ...]

    @property
    def estimate(self) -> Estimate:
        """The expected number of active nodes."""
        return Estimate.of(self.sizes.astype(np.float64))

    def to_frame(self) -> pd.DataFrame:
        """A row per node: its share of runs."""
        import pandas as pd

        return pd.DataFrame({"activation": self.activation}, index=pd.Index(self.labels, name="node"))

    def __str__(self) -> str:
        return f"spread {self.estimate} of {len(self.labels)} nodes ({len(self.sizes):,} runs)"


def estimate_bounds(
    graph: Any,
    motifs: Iterable[Motif],
    seeds: Iterable[Hashable],
    n_samples: int,
    *,
    cascade: str = "lt",
    n_jobs: int = 1,
    random_state: RandomState = None,
) -> MotifInfluence:
    """The influence of `seeds` and its four bounds from the same reverse samples.

    A sample is a motif, drawn in proportion to its value, and one live-edge graph, drawn as far as its members look.
    Raises ValueError for seeds outside the graph and what `MotifTable` and `check_cascade` refuse.
    """
    graph = as_graph(graph)
    table = MotifTable.build(graph, motifs)
    stream = streams(random_state, "reverse", 1)[0]
    return sampled_bounds(graph, table, graph.nodes(seeds), n_samples, stream, cascade, n_jobs)


def estimate_motif_influence(
    graph: Any,
    motifs: Iterable[Motif],
    seeds: Iterable[Hashable],
    n_samples: int,
    *,
    method: str = "reverse",
    cascade: str = "lt",
    n_jobs: int = 1,
    random_state: RandomState = None,
) -> Estimate:
    """The influence of `seeds`, backwards from random motifs or forwards from the seeds (then all motifs are seen in
    every run, which costs more and varies less). Raises as `estimate_bounds` does."""
    one_of("method", method, METHODS)
    if method == "reverse":
        return estimate_bounds(
            graph, motifs, seeds, n_samples, cascade=cascade, n_jobs=n_jobs, random_state=random_state
        ).influence
    graph = as_graph(graph)
    table = MotifTable.build(graph, motifs)
    _, gains, _ = _forward(graph, table, graph.nodes(seeds), n_samples, cascade, n_jobs, random_state)
    return Estimate.of(gains)


def simulate_linear_threshold(
    graph: Any, seeds: Iterable[Hashable], n_runs: int, *, n_jobs: int = 1, random_state: RandomState = None
) -> Spread:
    """Run the linear threshold model forwards: a node turns active once the weights from active nodes exceed a
    threshold drawn uniformly from [0, 1), anew for every run."""
    return _spread(graph, seeds, n_runs, "lt", n_jobs, random_state)


def simulate_independent_cascade(
    graph: Any, seeds: Iterable[Hashable], n_runs: int, *, n_jobs: int = 1, random_state: RandomState = None
) -> Spread:
    """Run the independent cascade forwards: a node that turns active has one try, of probability w, at every edge."""
    return _spread(graph, seeds, n_runs, "ic", n_jobs, random_state)


def sampled_bounds(
    graph: InfluenceGraph,
    table: MotifTable,
    seeds: Int[np.ndarray, " k"],
    n_samples: int,
    stream: np.uint64,
    cascade: str,
    n_jobs: int,
) -> MotifInfluence:
    """`estimate_bounds` of node numbers, with samples 0 .. n_samples - 1 of `stream`."""
    from classic_ml.influence.loops import evaluate

    at_least("n_samples", n_samples, 2)
    chosen = np.zeros(graph.n_nodes, np.bool_)
    chosen[seeds] = True
    fixed = sampling_arguments(graph, table, cascade)
    parts = in_chunks(lambda a, b: evaluate(chosen, stream, a, b, *fixed), 0, n_samples, n_jobs)
    sums, squares = (np.sum([part[i] for part in parts], axis=0) for i in (0, 1))
    mean = sums / n_samples
    variance = np.maximum(squares / n_samples - mean**2, 0) * n_samples / (n_samples - 1)
    scale = table.total_value
    return MotifInfluence.of(scale * mean, scale * np.sqrt(variance / n_samples), n_samples)


def sampling_arguments(graph: InfluenceGraph, table: MotifTable, cascade: str) -> tuple[Any, ...]:
    """What the compiled loops over reverse samples take behind the range of samples."""
    odds = graph.odds(cascade)
    motifs = (table.ptr, table.members, table.thresholds, table.cumulative)
    return (cascade == "ic", graph.in_ptr, graph.sources, odds, *motifs)


def streams(random_state: RandomState, purpose: str, n: int) -> list[np.uint64]:
    """`n` independent 64-bit keys; sample i of a key is the same on any number of threads.

    Purposes have keys of their own: an estimate is fresh even where it is given the seed of the selection.
    """
    children = np.random.SeedSequence(derive_seed(as_seed(random_state), "influence", purpose)).spawn(n)
    return [child.generate_state(1, np.uint64)[0] for child in children]


def in_chunks(work: Callable[[int, int], Any], first: int, last: int, n_jobs: int) -> list[Any]:
    """`work(a, b)` on consecutive ranges that cover first .. last - 1, on `n_jobs` threads (-1: all cores)."""
    from joblib import Parallel, delayed

    starts = range(first, last, _CHUNK)
    calls = (delayed(work)(a, min(a + _CHUNK, last)) for a in starts)
    return list(Parallel(n_jobs=n_jobs, prefer="threads")(calls))


def _spread(
    graph: Any, seeds: Iterable[Hashable], n_runs: int, cascade: str, n_jobs: int, random_state: RandomState
) -> Spread:
    graph = as_graph(graph)
    sizes, _, often = _forward(graph, NO_MOTIFS, graph.nodes(seeds), n_runs, cascade, n_jobs, random_state)
    return Spread(sizes, often / n_runs, graph.labels)


def _forward(
    graph: InfluenceGraph,
    table: MotifTable,
    seeds: Int[np.ndarray, " k"],
    n_runs: int,
    cascade: str,
    n_jobs: int,
    random_state: RandomState,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from classic_ml.influence.loops import simulate

    at_least("n_runs" if not len(table) else "n_samples", n_runs, 2)
    check_cascade(graph, cascade)
    stream = streams(random_state, "forward", 1)[0]
    fixed = (*graph.outgoing, *table.by_node(graph.n_nodes), table.thresholds, table.values)
    parts = in_chunks(lambda a, b: simulate(seeds, stream, a, b, cascade == "ic", *fixed), 0, n_runs, n_jobs)
    sizes, gains = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return sizes, gains, np.sum([part[2] for part in parts], axis=0)
