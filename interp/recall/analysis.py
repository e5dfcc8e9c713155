"""Everything that is looked at after a run: scores, patterns of the errors, motifs; as tables, files and figures."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.files import atomic_write, write_json
from interp.core.messages import each_once
from interp.core.plotting import save_figure
from interp.recall.baselines import Verdict, baseline_table, spell_verdicts, verdicts, with_baselines
from interp.recall.bias import MicrostructureBias, descriptive_bias, microstructure_bias
from interp.recall.ergm_statistics import DEFAULT_STATISTICS
from interp.recall.metrics import METRICS, spell_summary
from interp.recall.motifs import motif_bias
from interp.recall.reports import spell_baselines, spell_reading
from interp.recall.runner import CONSENSUS, RecallRun
from interp.recall.score_plots import plot_bias, plot_motifs, plot_scores

if TYPE_CHECKING:
    import pandas as pd

SAME_EVERYWHERE = (
    "undefined: as many errors as there can be, or none, so that placing them elsewhere changes nothing"
)
SUMMARISED = (*METRICS, "coverage")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RecallAnalysis:
    """Tables of one run.

    Attributes:
        cases: a row a case, with its baselines' scores; `summary`: means with 95 % intervals by group.
        baselines: mean accuracy and F1 by group beside those of `baselines.BASELINES`; `verdicts`: of the best of them.
        reading: how much of the replies was understood.
        bias: coefficients by group, under its label; `all` pools every case.
        descriptive, motifs: counts against errors in random places, over all cases.
        threshold: w above it is a recalled edge in the scores; `consensus`: w from it on is one in the patterns.
    """

    cases: pd.DataFrame
    summary: pd.DataFrame
    baselines: pd.DataFrame
    verdicts: list[Verdict]
    reading: str
    bias: dict[str, MicrostructureBias]
    descriptive: pd.DataFrame
    motifs: pd.DataFrame
    threshold: float
    consensus: float

    def bias_frame(self) -> pd.DataFrame:
        """The coefficients of all groups, one row a group and statistic."""
        import pandas as pd

        tables = {label: table.to_frame() for label, table in self.bias.items()}
        return pd.concat(tables, names=["group", "statistic"]).reset_index()

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write results.json, a .csv a table and three figures."""
        import pandas as pd

        out = Path(folder)
        tables = {"cases": self.cases, "summary": self.summary, "baselines": self.baselines}
        tables["verdicts"] = pd.DataFrame([asdict(v) | {"better": v.better} for v in self.verdicts])
        tables["bias"] = self.bias_frame()
        tables["descriptive"] = self.descriptive.reset_index(names="statistic")
        tables["motifs"] = self.motifs.reset_index(names="motif")
        for name, table in tables.items():
            with atomic_write(out / f"{name}.csv") as temporary:
                table.to_csv(temporary, index=False)
        thresholds = {"threshold": self.threshold, "consensus": self.consensus}
        write_json(
            out / "results.json", {**thresholds, **{name: _records(table) for name, table in tables.items()}}
        )
        save_figure(plot_scores(self.cases), out / "scores.png")
        save_figure(plot_bias(self.bias), out / "bias.png")
        save_figure(plot_motifs({"all": self.motifs}), out / "motifs.png")
        return out

    def __str__(self) -> str:
        shown = spell_summary(self.summary, SUMMARISED)
        parts = [
            f"Scores (mean [95 % interval]); a pair is recalled where w > {self.threshold}\n{shown}",
            f"Baselines\n{spell_baselines(self.baselines)}",
            f"Verdict\n{spell_verdicts(self.verdicts)}",
            self.reading,
            f"From here on a pair is recalled where w >= {self.consensus}",
        ]
        parts += [f"Pattern coefficients, {label}\n{table}" for label, table in self.bias.items()]
        for title, table in (
            ("Statistics against errors in random places", self.descriptive),
            ("Motifs of four nodes against errors in random places", self.motifs),
        ):
            shown = table.round(2).to_string() if table["z"].notna().any() else SAME_EVERYWHERE
            parts.append(f"{title}\n{shown}")
        return "\n\n".join(parts)


def analyse(
    run: RecallRun,
    *,
    by: Sequence[str] = ("dataset",),
    consensus: float = CONSENSUS,
    reference: str = "fixed_true",
    statistics: Sequence[str] = DEFAULT_STATISTICS,
    lam: float = 2.0,
    method: str = "mple",
    ridge: float = 0.0,
    n_permutations: int = 1000,
    random_state: int = 0,
) -> RecallAnalysis:
    """Score a run and look for patterns in its errors.

    Args:
        by: columns of `RecallRun.to_frame` whose values make the groups.
        consensus: w >= it counts as an edge for the patterns; the scores use the run's own threshold.
        reference, statistics, lam, method, ridge: see `microstructure_bias`.
        n_permutations: for the z-scores of statistics (a fifth of it for motifs).

    Raises:
        ValueError: an unknown column or one twice, no answer that could be read, or what `microstructure_bias`
            refuses.
    """
    if not 0 < consensus <= 1:
        raise ValueError(f"consensus = {consensus}: expected 0 < consensus <= 1")
    each_once("by", by)
    summary = run.summary(by, SUMMARISED)
    _warn_of_repetitions(run, by)
    legible = run.legible()
    cases, true, recalled = legible.to_frame(), legible.true_graphs(), legible.recalled_graphs(consensus)
    settings: dict[str, Any] = {"statistics": statistics, "lam": lam, "method": method, "ridge": ridge}
    settings |= {"random_state": random_state, "reference": reference}
    bias = {"all": microstructure_bias(true, recalled, **settings)}
    groups = cases.groupby(list(by), sort=True).indices
    if len(groups) > 1:
        for key, rows in groups.items():
            label = " ".join(map(str, key)) if isinstance(key, tuple) else str(key)
            bias[label] = microstructure_bias(
                [true[k] for k in rows], [recalled[k] for k in rows], **settings
            )
    spread = descriptive_bias(
        true, recalled, statistics=statistics, lam=lam, n_permutations=n_permutations, seed=random_state
    )
    motifs = motif_bias(true, recalled, 4, n_permutations=max(2, n_permutations // 5), seed=random_state)
    frame = run.to_frame()
    return RecallAnalysis(
        with_baselines(frame),
        summary,
        baseline_table(frame, by),
        verdicts(frame, by),
        spell_reading(run),
        bias,
        spread,
        motifs,
        run.threshold,
        consensus,
    )


def _warn_of_repetitions(run: RecallRun, by: Sequence[str]) -> None:
    """Say so where one group holds the same graphs under several conditions."""
    groups = run.to_frame().groupby(list(by))
    for condition in ("narrative", "clearance", "priming"):
        if condition not in by and groups[condition].nunique().max() > 1:
            logger.warning(
                "by: a group holds the same graphs under more than one %s, and intervals take them for different ones; "
                "name %s too",
                condition,
                condition,
            )


def _records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for JSON, with None for what isn't a number."""
    rows = table.to_dict(orient="records")
    return [{str(k): _plain(v) for k, v in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
