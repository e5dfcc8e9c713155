"""An auditor of local explanations: queries in, a share of wrong explanations with an interval out, or what is missing.

Bhattacharjee, von Luxburg 2024, "Auditing Local Explanations is Hard", NeurIPS, arXiv 2407.13281.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array

from classic_ml.auditing.explanations import LocalExplanation
from classic_ml.auditing.judging import judge
from classic_ml.auditing.membership import IntArray
from classic_ml.auditing.plans import Constants, audit_plan, check_rates
from classic_ml.auditing.pool import QueryPool, sharing
from classic_ml.auditing.report import AuditReport
from classic_ml.random_state import RandomState, as_generator
from interp.core.messages import at_least

Explanations = Sequence[LocalExplanation] | Callable[[npt.NDArray[np.float64]], LocalExplanation]


class ExplanationAuditor(BaseEstimator):
    """Estimate L_gamma, the share of inputs whose local explanation is wrong on at least gamma of its region.

    All it sees are queries: inputs x drawn from the data, the classifier's labels f(x) and the explanations
    (R_x, g_x).  Some of the inputs are audited, the others are the reference on which the local models are held
    against the classifier; no input is evidence for its own explanation. A region with few reference points says
    nothing, and where that leaves too much open the answer is "needs_more_queries", with a number.

    Decided is an audit in one of two ways, each right with probability at least 1 - delta whatever the regions' masses:

    - "counts", the paper's simple audit: enough points audited, and all but eps2 / 4 of them with at least k_min
      reference points in their region. Then L_{gamma (1 + eps1)} - eps2 <= estimate <= L_{gamma (1 - eps1)} + eps2.
      (With eps2 / 2 left undetermined, the paper's proof needs the masses known to be as planned: audited points
      that are undetermined, misjudged and unluckily drawn could add up to 3/2 eps2.)
    - "certificate": the exact intervals of the local losses leave an interval of L_gamma of at most 2 eps2.

    The explainer must not have seen the reference points: with regions or models fitted to them nothing holds.
    Every look at a growing pool has its own delta: for K looks give delta / K.

    Args:
        eps1: blur of the threshold, relative.  eps2: accuracy of the share.
        gamma: local loss from which an explanation is called wrong.  delta: probability of failure.
        constants: "tight", or the "paper"'s.
        n_audit: inputs to audit; None takes a quarter of the queries, at most as many as the plan asks for.
        strict: refuse explanations whose region lacks their own input; False warns.
        random_state: None, an integer, a Generator or a RandomState: which inputs are audited.

    Attributes:
        report_: the last `AuditReport`.
    """

    def __init__(
        self,
        eps1: float = 0.1,
        eps2: float = 0.05,
        gamma: float = 0.1,
        delta: float = 0.05,
        *,
        constants: Constants = "tight",
        n_audit: int | None = None,
        strict: bool = True,
        random_state: RandomState = None,
    ) -> None:
        self.eps1 = eps1
        self.eps2 = eps2
        self.gamma = gamma
        self.delta = delta
        self.constants = constants
        self.n_audit = n_audit
        self.strict = strict
        self.random_state = random_state

    def audit(self, X: Any, f_X: Any, explanations: Explanations) -> AuditReport:
        """Audit a fresh sample.

        Args:
            X: inputs [n, d].
            f_X: the classifier's labels [n], of any kind and number.
            explanations: one for each input, or a function x [d] -> LocalExplanation, then asked for the audited
                inputs only.

        Raises:
            ValueError: lengths that differ, inputs outside their own region (named), rates outside (0, 1), fewer than
                two queries or an n_audit that leaves no reference.
        """
        self._pool = None
        return self.partial_fit(X, f_X, explanations).report_

    def partial_fit(self, X: Any, f_X: Any, explanations: Explanations) -> ExplanationAuditor:
        """Add the queries of another user to the pool; every input keeps its role, audited or reference."""
        check_rates(self.eps1, self.eps2, self.gamma, self.delta, self.constants)
        X, labels = _checked(X, f_X)
        pool = getattr(self, "_pool", None) or QueryPool(as_generator(self.random_state), X.shape[1])
        if X.shape[1] != pool.width:
            raise ValueError(f"X has {X.shape[1]} columns, the pool so far {pool.width}")
        if not callable(explanations):
            if len(explanations) != len(X):
                raise ValueError(f"{len(explanations)} explanations for {len(X)} inputs: give one each")
            self._check_own_regions(explanations, X, np.arange(len(X)) + pool.n_rows)
        n_total = pool.n_rows + len(X)
        chosen = pool.rng.permutation(len(X))[: max(0, self._split(n_total) - len(pool.explanations))]
        audited = np.sort(chosen)
        reference = np.setdiff1d(np.arange(len(X)), audited)
        if callable(explanations):
            new = [explanations(x) for x in X[audited]]
            self._check_own_regions(new, X[audited], audited + pool.n_rows)
        else:
            new = [explanations[i] for i in audited]
        pool.add(new, X, labels, audited, reference)
        if strange := pool.counts.strange - pool.known:
            warnings.warn(
                f"local models gave labels the classifier never did: {sorted(map(str, strange))} against "
                f"{sorted(map(str, pool.known))}; are they spelt alike?",
                UserWarning,
                stacklevel=2,
            )
        self._pool = pool
        self.report_ = judge(
            pool,
            eps1=self.eps1,
            eps2=self.eps2,
            gamma=self.gamma,
            delta=self.delta,
            constants=self.constants,
            quarter=self.n_audit is None,
        )
        return self

    def _split(self, n_total: int) -> int:
        if n_total < 2:
            raise ValueError(f"{n_total} query: an audit needs one to audit and one for reference at least")
        if self.n_audit is None:
            enough = audit_plan(1.0, self.eps1, self.eps2, self.gamma, self.delta, self.constants).n_audit
            return min(enough, max(1, n_total // 4))
        at_least("n_audit", self.n_audit, 1)
        if self.n_audit >= n_total:
            raise ValueError(f"n_audit = {self.n_audit} of {n_total} queries leaves none for reference")
        return self.n_audit

    def _check_own_regions(
        self, explanations: Sequence[LocalExplanation], X: npt.NDArray[np.float64], rows: IntArray
    ) -> None:
        outside: list[int] = []
        for explanation, own in sharing(explanations).values():
            outside += [own[j] for j in np.flatnonzero(~explanation.region.contains(X[own]))]
        if outside:
            named = ", ".join(str(rows[i]) for i in sorted(outside)[:10]) + (
                ", ..." if len(outside) > 10 else ""
            )
            message = f"{len(outside)} of {len(X)} inputs lie outside their own region (rows {named})"
            if self.strict:
                raise ValueError(f"{message}; mend the regions, or give strict=False")
            warnings.warn(message, UserWarning, stacklevel=3)


def _checked(X: Any, f_X: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[Any]]:
    X = check_array(X, dtype=np.float64, input_name="X")
    labels = np.asarray(f_X)
    if labels.shape != (len(X),):
        raise ValueError(f"f_X has shape {labels.shape} for {len(X)} inputs: give one label each")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError(
            f"f_X holds {int(np.isnan(labels).sum())} NaN: every input needs the classifier's label"
        )
    return X, labels
