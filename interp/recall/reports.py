"""What a run looks like to people: scores beside the baselines, what could be read, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from interp.recall.baselines import BASELINES, baseline_table, spell_verdicts, verdicts
from interp.recall.metrics import spell_summary

if TYPE_CHECKING:
    import pandas as pd

    from interp.recall.runner import RecallRun

SHOWN = ("accuracy", "f1", "auroc", "coverage")
MAX_SHOWN = 3


def spell_run(run: RecallRun, by: Sequence[str] = ("dataset",), metrics: Sequence[str] = SHOWN) -> str:
    """Scores, baselines, verdicts and reading of a run as text."""
    frame = run.to_frame()
    parts = [
        f"{run.recaller}; pairs with w > {run.threshold} count as recalled (mean [95 % interval] over graphs)",
        spell_summary(run.summary(by, metrics), metrics),
        "Beside recallers that know nothing of the graph, or the last three ties of the story (recency)",
        spell_baselines(baseline_table(frame, by)),
        spell_verdicts(verdicts(frame, by)) or "Nothing could be read, so there is nothing to judge.",
        spell_reading(run),
    ]
    return "\n".join(parts)


def spell_baselines(table: pd.DataFrame) -> str:
    """The table of `baseline_table` with three digits."""
    numbers = ["recalled", *BASELINES]
    return (
        table[["group", "metric", "graphs", *numbers]].round(dict.fromkeys(numbers, 3)).to_string(index=False)
    )


def spell_reading(run: RecallRun) -> str:
    """How much of the replies was understood, with the first pieces that were not."""
    frame = run.to_frame()
    pairs = frame["nodes"] * (frame["nodes"] - 1) // 2
    answered = round(float((frame["coverage"] * pairs).sum()))
    text = f"Read: {answered} of {int(pairs.sum())} pairs"
    for column, what in (
        ("unread", "pieces of text not understood with certainty"),
        ("conflicts", "pairs with contradictory answers"),
        ("unparsed", "statements about pairs that were not asked"),
        ("refusal", "refusals"),
    ):
        if count := int(frame[column].sum()):
            text += f"; {count} {what}"
    pieces = [piece for result in run.results for piece in result.unread][:MAX_SHOWN]
    return "\n".join([text, *(f"  not read: {piece[:120]!r}" for piece in pieces)])
