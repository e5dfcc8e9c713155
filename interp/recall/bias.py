"""Which patterns a recall has too much or too little of: coefficients of random graph models of the errors."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from interp.core.messages import one_of
from interp.recall.ergm import ERGM
from interp.recall.ergm_statistics import DEFAULT_STATISTICS, Network, Specification, batch_statistics
from interp.recall.metrics import mean_ci
from interp.recall.permutation import against_shuffled, aligned

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd
    from matplotlib.figure import Figure

REFERENCES = ("fixed_true", "contrast", "none")
DROPPED = (
    "dropped: the pattern is as rare or as frequent as it can be, so that its coefficient is infinite (a ridge keeps "
    "it finite), or the true graph is complete and no edge can be false"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MicrostructureBias:
    """One coefficient a statistic; positive is a bias towards the pattern.

    Attributes:
        statistics: their names.
        coef, se: [p]; NaN where not estimable.
        true, recalled: the two coefficients of the `contrast`, else None and the coefficient itself.
        reference: which graph was modelled, see `microstructure_bias`.
        pooled: one fit to all graphs (else the mean over graphs, with `se` from their scatter).
        used: graphs that the coefficient rests on [p]; `n_graphs` were given.
        undefined: why there are no coefficients at all, if so: where the same was said of every pair that could have
            been told apart, the likelihood has no maximum.
    """

    statistics: tuple[str, ...]
    coef: Float[ndarray, " p"]
    se: Float[ndarray, " p"]
    true: Float[ndarray, " p"] | None
    recalled: Float[ndarray, " p"]
    reference: str
    pooled: bool
    used: ndarray
    n_graphs: int
    undefined: str = ""

    @property
    def z(self) -> Float[ndarray, " p"]:
        return self.coef / np.where(self.se > 0, self.se, np.nan)

    def to_frame(self) -> pd.DataFrame:
        """Rows by statistic: coef, se, z, 95 % interval, graphs used and dropped; for the contrast both sides."""
        import pandas as pd

        columns: dict[str, Any] = {"coef": self.coef, "se": self.se, "z": self.z}
        columns |= {"low": self.coef - 1.96 * self.se, "high": self.coef + 1.96 * self.se}
        if self.true is not None:
            columns |= {"true": self.true, "recalled": self.recalled}
        columns |= {"used": self.used, "dropped": self.n_graphs - self.used}
        return pd.DataFrame(columns, index=list(self.statistics))

    def plot(self) -> Figure:
        """Coefficients with 95 % intervals."""
        from interp.recall.score_plots import plot_bias

        return plot_bias({self.reference: self})

    def __str__(self) -> str:
        if self.undefined:
            return f"undefined ({self.reference}, {self.n_graphs} graphs): {self.undefined}"
        how = "pooled over" if self.pooled else "mean over"
        text = f"{self.to_frame().round(3).to_string()}\n{self.reference}, {how} {self.n_graphs} graphs"
        return f"{text}\n{DROPPED}" if (self.used < self.n_graphs).any() else text


def microstructure_bias(
    true_graphs: Sequence[nx.Graph],
    recalled_graphs: Sequence[nx.Graph],
    reference: str = "fixed_true",
    *,
    statistics: Sequence[str] = DEFAULT_STATISTICS,
    lam: float = 2.0,
    method: str = "mple",
    pooled: bool = True,
    ridge: float = 0.0,
    random_state: int = 0,
) -> MicrostructureBias:
    """Coefficients of the recalled graphs' patterns.

    Args:
        reference: fixed_true: the union of true and recalled edges is modelled with the true ones held, so that the
            coefficients speak of false edges: where are they put? contrast: coefficients of the recalled minus those
            of the true graphs, standard errors from what each graph adds to the difference (from the sum of the two
            variances where single graphs' parts are not known). none: those of the recalled graphs.
        pooled: one coefficient vector for all graphs, the robust choice below 20 nodes; else the mean over graphs
            of those whose estimate is finite, with the standard error of that mean.
        statistics, lam, method, ridge: see `ERGM`.

    Raises:
        ValueError: graphs that don't match, an unknown reference, or (fixed_true) no false edge possible in any.
    """
    one_of("reference", reference, REFERENCES)
    spec = Specification(tuple(statistics), lam)
    settings = {"statistics": spec.statistics, "lam": lam, "method": method, "ridge": ridge}
    pairs = aligned(true_graphs, recalled_graphs)
    if reference == "fixed_true":
        # A complete true graph has no place for a false edge.
        open_pairs = [(t, r) for t, r in pairs if t.sum() < len(t) * (len(t) - 1)]
        if not open_pairs:
            raise ValueError("reference='fixed_true': every true graph is complete, so no edge can be false")
        recalled = [Network.of(t | r, fixed=t > 0) for t, r in open_pairs]
    else:
        recalled = [Network.of(r) for _, r in pairs]
    if why := _undefined(recalled, reference):
        nothing = np.full(len(spec.statistics), np.nan)
        true = nothing if reference == "contrast" else None
        used = np.zeros(len(spec.statistics), int)
        return MicrostructureBias(
            spec.statistics, nothing, nothing, true, nothing, reference, pooled, used, len(pairs), why
        )
    fit = _pooled if pooled else _mean
    coef, se, used, by_graph = fit(recalled, settings, random_state)
    if reference != "contrast":
        return MicrostructureBias(spec.statistics, coef, se, None, coef, reference, pooled, used, len(pairs))
    true, true_se, true_used, true_by_graph = fit([Network.of(t) for t, _ in pairs], settings, random_state)
    if by_graph is not None and true_by_graph is not None:
        spread = _paired(by_graph - true_by_graph, pooled)
    else:
        spread = np.hypot(se, true_se)
    both = np.minimum(used, true_used)
    return MicrostructureBias(
        spec.statistics, coef - true, spread, true, coef, reference, pooled, both, len(pairs)
    )


def _undefined(networks: Sequence[Network], reference: str) -> str:
    """Why no coefficient can be told from these graphs, or nothing."""
    states = np.concatenate([network.observed for network in networks])
    if states.any() and not states.all():
        return ""
    infinite = "coefficients are infinite (even with a ridge, which leaves that of the edges free)"
    if states.all():
        which = (
            "every pair was recalled, the false ones too"
            if reference == "fixed_true"
            else "every pair was recalled"
        )
        return f"{which}, so that no pattern can be told from any other and {infinite}"
    which = "not one false edge was recalled" if reference == "fixed_true" else "not one edge was recalled"
    return f"{which}, so that there is nothing to find a pattern in and {infinite}"


Fitted = tuple[ndarray, ndarray, ndarray, ndarray | None]  # coefficients, errors, graphs used, parts by graph


def _pooled(networks: Sequence[Network], settings: dict[str, Any], seed: int) -> Fitted:
    model = ERGM(**settings, random_state=seed).fit_networks(networks)
    influence = None if model.estimate_ is None else model.estimate_.influence
    return model.coef_, model.se_, np.where(model.estimable_, len(networks), 0), influence


def _mean(networks: Sequence[Network], settings: dict[str, Any], seed: int) -> Fitted:
    fits = np.stack(
        [
            ERGM(**settings, errors="naive", random_state=seed + k).fit_networks([network]).coef_
            for k, network in enumerate(networks)
        ]
    )
    used = np.isfinite(fits).sum(0)
    mean = np.array([mean_ci(column.tolist())[0] for column in fits.T])
    return mean, _paired(fits, pooled=False), used, fits


def _paired(parts: Float[ndarray, "g p"], pooled: bool) -> Float[ndarray, " p"]:
    """Standard errors from what each graph contributes: to a pooled estimate, or as a value of its own to a mean."""
    if pooled:
        return np.sqrt((parts**2).sum(0))
    columns = [column[np.isfinite(column)] for column in parts.T]
    return np.array([c.std(ddof=1) / np.sqrt(len(c)) if len(c) > 1 else np.nan for c in columns])


def descriptive_bias(
    true_graphs: Sequence[nx.Graph],
    recalled_graphs: Sequence[nx.Graph],
    *,
    statistics: Sequence[str] = DEFAULT_STATISTICS,
    lam: float = 2.0,
    n_permutations: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """z(R) - z(E) summed over graphs, always defined, and its z-score against errors in random places.

    See `permutation.against_shuffled` for the columns.
    """
    spec = Specification(tuple(statistics), lam)
    return against_shuffled(
        true_graphs,
        recalled_graphs,
        lambda a: batch_statistics(a, spec),
        spec.statistics,
        n_permutations=n_permutations,
        seed=seed,
    )
