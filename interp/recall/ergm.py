"""Exponential random graph models P(y) = exp(theta . z(y)) / kappa(theta), fitted to one or many observed graphs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from interp.core.messages import one_of
from interp.recall import ergm_approximation, ergm_exact, ergm_mcmc, ergm_pseudo
from interp.recall.ergm_estimate import Estimate
from interp.recall.ergm_sampling import Sampler
from interp.recall.ergm_statistics import DEFAULT_STATISTICS, Network, Specification

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

METHODS = ("mple", "exact", "mcmcmle", "sa")
ERRORS = ("auto", "clustered", "simulated", "naive")


@dataclass
class ERGM:
    """An estimator in the manner of scikit-learn: `ERGM(("edges", "alt_triangles")).fit(graph).coef_`.

    Args:
        statistics: names among `STATISTICS`. `triangles` beside `alt_triangles` is nearly collinear.
        lam: decay of the alternating statistics, above 1.
        method: `mple` (pseudo-likelihood, fast), `exact` (enumeration, up to 15 free dyads), `mcmcmle` (maximum
            likelihood from simulated graphs), `sa` (stochastic approximation).
        ridge: for `mple`, the weight of |theta|^2 / 2 over all statistics but edges.
        errors: for `mple`, where standard errors come from: `clustered` by graph, `simulated` (Godambe), `naive`,
            or `auto`: clustered from 10 graphs on, else simulated.
        n_samples: graphs per sample of `mcmcmle` and `sa`.
        random_state: seed of everything simulated.

    Attributes after a fit (p statistics):
        coef_, se_, z_ [p], cov_ [p p]: NaN where the estimate is at infinity.
        estimable_ [p]: which are finite.
        converged_: whether the estimating equations were met (for simulated ones: every t-ratio below 0.1).
        t_ratios_ [p]: of the last sample; None for `mple` and `exact`.
        estimate_: everything, with the chain's diagnostics.

    Raises:
        ValueError: unknown names, lam <= 1, a graph that isn't simple and undirected, no free dyad, more than 15
            of them for `exact`.
    """

    statistics: Sequence[str] = DEFAULT_STATISTICS
    lam: float = 2.0
    method: str = "mple"
    ridge: float = 0.0
    errors: str = "auto"
    n_samples: int = 1000
    random_state: int = 0
    estimate_: Estimate | None = field(default=None, init=False, repr=False)
    networks_: list[Network] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        one_of("errors", self.errors, ERRORS)
        if not 0 <= self.ridge < math.inf:
            raise ValueError(f"ridge = {self.ridge}: must be finite and not negative")
        if self.ridge and self.method != "mple":
            raise ValueError(f"ridge = {self.ridge} is for method='mple', got method={self.method!r}")
        if self.n_samples < 100:
            raise ValueError(
                f"n_samples = {self.n_samples}: at least 100 for covariances that mean something"
            )
        self.spec = Specification(tuple(self.statistics), self.lam)

    def fit(self, graph: nx.Graph | ndarray, fixed: Any = None) -> ERGM:
        """Fit one graph; `fixed` (a graph or boolean matrix) marks dyads held as they are."""
        return self.fit_pooled([graph], None if fixed is None else [fixed])

    def fit_pooled(self, graphs: Sequence[Any], fixed: Sequence[Any] | None = None) -> ERGM:
        """Fit one coefficient vector to many graphs: the sum of their log-likelihoods."""
        if not len(graphs):
            raise ValueError("graphs is empty; give at least one")
        masks = [None] * len(graphs) if fixed is None else list(fixed)
        if len(masks) != len(graphs):
            raise ValueError(f"fixed: expected one for each of the {len(graphs)} graphs, got {len(masks)}")
        return self.fit_networks([Network.of(g, f) for g, f in zip(graphs, masks, strict=True)])

    def fit_networks(self, networks: Sequence[Network]) -> ERGM:
        """`fit_pooled` for graphs already made `Network`s."""
        self.networks_ = list(networks)
        given, seed = (self.networks_, self.spec), self.random_state
        if self.method == "exact":
            self.estimate_ = ergm_exact.fit(*given)
        elif self.method == "mple":
            self.estimate_ = ergm_pseudo.fit(*given, ridge=self.ridge, errors=self.errors, seed=seed)
        elif self.method == "mcmcmle":
            self.estimate_ = ergm_mcmc.fit(*given, n_samples=self.n_samples, seed=seed)
        else:
            self.estimate_ = ergm_approximation.fit(*given, n_samples=self.n_samples, seed=seed)
        return self

    @property
    def _fitted(self) -> Estimate:
        if self.estimate_ is None:
            raise ValueError("this ERGM is not fitted yet; call fit(graph) first")
        return self.estimate_

    @property
    def coef_(self) -> Float[ndarray, " p"]:
        return self._fitted.coef

    @property
    def cov_(self) -> Float[ndarray, "p p"]:
        return self._fitted.cov

    @property
    def se_(self) -> Float[ndarray, " p"]:
        return np.sqrt(np.diag(self._fitted.cov))

    @property
    def z_(self) -> Float[ndarray, " p"]:
        with np.errstate(divide="ignore"):
            return self.coef_ / self.se_

    @property
    def estimable_(self) -> Bool[ndarray, " p"]:
        return self._fitted.estimable

    @property
    def converged_(self) -> bool:
        return self._fitted.converged

    @property
    def t_ratios_(self) -> Float[ndarray, " p"] | None:
        found = self._fitted.diagnostics
        return None if found is None else found.t_ratios

    def log_likelihood(self, theta: Float[ndarray, " p"] | None = None) -> float:
        """log P(observed graphs) at `theta` (the estimate where not given), by enumeration: 15 free dyads at most."""
        at = self.coef_ if theta is None else np.asarray(theta, float)
        if not np.isfinite(at).all():
            raise ValueError(
                f"theta = {at}: the likelihood needs finite coefficients (is one not estimable?)"
            )
        self._fitted  # noqa: B018
        return ergm_exact.log_likelihood(self.networks_, self.spec, at)

    def simulate(self, n: int, size: int, theta: Float[ndarray, " p"] | None = None) -> list[nx.Graph]:
        """`size` graphs of `n` nodes drawn at `theta` (the estimate where not given), `random_state` seeding."""
        import networkx as nx

        at = self.coef_ if theta is None else np.asarray(theta, float)
        if at.shape != (len(self.spec.statistics),) or not np.isfinite(at).all():
            raise ValueError(f"theta = {at}: expected {len(self.spec.statistics)} finite numbers")
        if n < 2 or size < 1:
            raise ValueError(f"n = {n}, size = {size}: at least two nodes and one graph")
        empty = Network.of(np.zeros((n, n), int))
        sampler = Sampler([empty], self.spec, seed=self.random_state, thinning_sweeps=20)
        states = sampler.graphs(at, size)[0]
        return [nx.from_numpy_array(empty.with_free(row).adjacency) for row in states]

    def summary(self) -> pd.DataFrame:
        """One row a statistic."""
        import pandas as pd

        columns = {"coef": self.coef_, "se": self.se_, "z": self.z_, "estimable": self.estimable_}
        if (found := self._fitted.diagnostics) is not None:
            columns |= {"mc_error": found.mc_errors, "t_ratio": found.t_ratios, "ess": found.effective_sizes}
        return pd.DataFrame(columns, index=list(self.spec.statistics))

    def __str__(self) -> str:
        if self.estimate_ is None:
            return repr(self)
        end = f"{self.method}, {len(self.networks_)} graphs, errors: {self._fitted.errors}, "
        end += "converged" if self.converged_ else "NOT converged"
        if (found := self._fitted.diagnostics) is not None:
            end += f", acceptance {found.acceptance:.2f}, bimodality {found.bimodality:.2f}, "
            end += f"{found.iterations} samples"
        return f"{self.summary().round(3).to_string()}\n{end}"
