"""What decisions are worth against known label distributions, and embeddings side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from classic_ml.surrogates.embedding import PolytopeEmbedding
from classic_ml.surrogates.points import as_distributions, as_labels
from classic_ml.surrogates.tournament import Pairs, instance_vertices, margin_scores, round_robin_schedule

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

QUANTILES = (0.1, 0.5, 0.9)


@dataclass(frozen=True)
class Decisions:
    """Decided classes held against the distributions p(x) that labels come from.

    Attributes:
        name: of whoever decided.
        n_outputs: numbers regressed for one decision at a time.
        n: decisions.
        mode_agreement: share where the class is a mode of p.
        regret: mean of max p - p[class].
        hallucination_rate: share where p[class] is at most `negligible`.
        negligible: the probability that counts as zero.
        accuracy: share of labels drawn that the decisions hit; None where none were given.
        certified: share of reports in the strict region; None without reports.
        may_hallucinate: share of reports in the hallucination region; None without reports.
    """

    name: str
    n_outputs: int
    n: int
    mode_agreement: float
    regret: float
    hallucination_rate: float
    negligible: float = 0.0
    accuracy: float | None = None
    certified: float | None = None
    may_hallucinate: float | None = None

    def to_frame(self) -> pd.DataFrame:
        """One row."""
        return DecisionTable([self]).to_frame()

    def __str__(self) -> str:
        return str(DecisionTable([self]))


@dataclass(frozen=True)
class DecisionTable:
    """Several ways to decide, on the same distributions.

    Attributes:
        rows: one a way.
        noise: quantiles 0.1, 0.5, 0.9 of 1 - max p; None where not asked for.
    """

    rows: Sequence[Decisions]
    noise: tuple[float, ...] | None = None

    def to_frame(self) -> pd.DataFrame:
        """One row per way, columns as in `Decisions`."""
        import pandas as pd

        return pd.DataFrame([vars(row) for row in self.rows]).set_index("name")

    def plot(self) -> Figure:
        """Agreement with the mode and regret against the number of outputs."""
        from classic_ml.surrogates.surrogate_plots import plot_decisions

        return plot_decisions(self)

    def __str__(self) -> str:
        wide = max(len(row.name) for row in self.rows)
        zero = self.rows[0].negligible
        head = "p = 0" if zero == 0 else f"p<={zero:g}"
        lines = [f"{'':<{wide}}  outputs   mode  regret  {head:>7}  accuracy  certified  may be 0"]
        for row in self.rows:
            optional = "  ".join(
                f"{'-' if value is None else f'{value:.3f}':>{width}}"
                for value, width in ((row.accuracy, 8), (row.certified, 9), (row.may_hallucinate, 8))
            )
            lines.append(
                f"{row.name:<{wide}}  {row.n_outputs:7d}  {row.mode_agreement:.3f}  {row.regret:.4f}  "
                f"{row.hallucination_rate:7.4f}  {optional}"
            )
        if self.noise is not None:
            lines.append(
                "1 - max p: "
                + ", ".join(f"{q:.0%} {v:.3f}" for q, v in zip(QUANTILES, self.noise, strict=True))
            )
        return "\n".join(lines)


def judge_decisions(
    P: Any,
    labels: Any,
    *,
    name: str = "decisions",
    embedding: PolytopeEmbedding | None = None,
    reports: Any = None,
    y: Any = None,
    n_outputs: int | None = None,
    negligible: float = 0.0,
) -> Decisions:
    """Hold decided class numbers (N,) against label distributions P (N, n), and labels y (N,) where there are any.

    With `embedding` and its `reports` (N, d), points of its polytope, the regions these lie in are counted too.
    Raises ValueError where lengths differ or only one of the two is given.
    """
    P = as_distributions(P)
    labels = as_labels(labels, P.shape[1])
    if len(labels) != len(P):
        raise ValueError(f"labels has length {len(labels)}, but P has {len(P)} rows")
    if (embedding is None) != (reports is None):
        raise ValueError(
            "embedding and reports say together which regions decisions came from; give both or neither"
        )
    chosen, best = P[np.arange(len(P)), labels], P.max(1)
    strict = zero = None
    if embedding is not None:
        strict = float(embedding.in_strict_region(reports).mean())
        zero = float(embedding.in_hallucination_region(reports).mean())
        n_outputs = embedding.dimension if n_outputs is None else n_outputs
    return Decisions(
        name,
        P.shape[1] if n_outputs is None else n_outputs,
        len(P),
        float((chosen == best).mean()),
        float((best - chosen).mean()),
        float((chosen <= negligible).mean()),
        negligible,
        None if y is None else float((labels == as_labels(y, P.shape[1])).mean()),
        strict,
        zero,
    )


def compare_embeddings(P: Any, embeddings: Mapping[str, PolytopeEmbedding]) -> DecisionTable:
    """Decode the exact means p V of label distributions P (N, n): what is lost before any regressor errs.

    Beside them one class for all rows (the mode of the mean) and the round-robin tournament of n // 2 outputs.
    """
    P = as_distributions(P)
    n = P.shape[1]
    constant = np.full(len(P), P.mean(0).argmax())
    rows = [judge_decisions(P, constant, name="one class for all", n_outputs=0)]
    for name, embedding in embeddings.items():
        U = embedding.embed_distribution(P)
        rows.append(judge_decisions(P, embedding.link(U), name=name, embedding=embedding, reports=U))
    schedule = round_robin_schedule(n)
    scores = margin_scores(exact_reports(P, schedule), schedule, n)
    rows.append(
        judge_decisions(P, scores.argmax(1), name=f"tournament, {len(schedule)} instances", n_outputs=n // 2)
    )
    return DecisionTable(rows, noise_quantiles(P))


def exact_reports(P: Float[np.ndarray, "N n"], schedule: Sequence[Pairs]) -> list[Float[np.ndarray, "N d"]]:
    """p V of every instance of a tournament."""
    return [P @ instance_vertices(pairs, P.shape[1]) for pairs in schedule]


def noise_quantiles(P: Any) -> tuple[float, ...]:
    """Quantiles 0.1, 0.5 and 0.9 of the label noise 1 - max p."""
    return tuple(float(q) for q in np.quantile(1 - as_distributions(P).max(1), QUANTILES))


def low_noise(P: Any, alpha: float, y: Any) -> Float[np.ndarray, "N n"]:
    """(1 - alpha) delta_y + alpha p: distributions with a class of probability 1 - alpha or more.

    Raises ValueError for alpha outside [0, 1].
    """
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha = {alpha} is a share of noise; give one in [0, 1]")
    P = as_distributions(P)
    mixed = alpha * P
    mixed[np.arange(len(P)), as_labels(y, P.shape[1])] += 1 - alpha
    return mixed
