"""The report of a run: tuned, base and control columns side by side, and what may be said of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.files import atomic_write, read_sealed_json, write_json
from interp.core.plotting import save_figure
from interp.probes.lfp.feedback_plots import plot_columns
from interp.probes.lfp.stages import RESULT

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

STAGES = ("tune", "rank", "saes", "probe", "ablate", "describe")
REPORT = "report"
FIGURES = {"tau": "tau", "tau_positive": "tau within +", "tau_negative": "tau within -"}
FIGURES |= {"pearson": "Pearson", "spearman": "Spearman", "sign_accuracy": "sign accuracy"}
FIGURES |= {"absolute_error": "|error|", "recovered": "recovered", "badly_reconstructed": "badly reconstr."}
SHOWN_DESCRIPTIONS = 10
BELOW_CHANCE = (
    "(words alone: held out, a bag of words can only repeat what is left, which leans away from them: below 0 is no "
    "signal)"
)
FAINT = 0.2  # a tau below is hardly there, however narrow its interval


@dataclass(frozen=True)
class LFPReport:
    """What a run found; prints as tables with sentences.

    Attributes:
        results: of each finished stage by its name ("tune" is empty for a model tuned by other means).
    """

    results: Mapping[str, dict[str, Any]]

    @classmethod
    def load(cls, out: str | os.PathLike[str]) -> LFPReport:
        """The finished stages of a run's folder. Raises ValueError where there is none."""
        found = {name: Path(out) / name / RESULT for name in STAGES}
        results = {name: read_sealed_json(path) for name, path in found.items() if path.is_file()}
        if not results:
            raise ValueError(
                f"{out} holds no finished stage of a run; make one with run_lfp(..., out={str(out)!r})"
            )
        return cls(results)

    def columns(self) -> dict[str, dict[str, Any]]:
        """Agreement of the probe and each control with the true feedback: [value, low, high] by figure."""
        return self.results["probe"]["columns"] if "probe" in self.results else {}

    def to_frame(self) -> pd.DataFrame:
        """Figures down, what was read across: tuned, base model, controls."""
        import pandas as pd

        values = {
            column: {label: figures[key][0] for key, label in FIGURES.items()}
            for column, figures in self.columns().items()
        }
        return pd.DataFrame(values)

    def plot(self) -> Figure:
        """The probe beside its controls. Raises ValueError where the probe hasn't run."""
        if not self.columns():
            raise ValueError("the stage 'probe' hasn't run: there is nothing to plot yet")
        return plot_columns(self.columns())

    def verdict(self) -> list[str]:
        """Sentences on what was measured, none of which claims more than its controls allow."""
        said: list[str] = []
        if tuning := self.results.get("tune"):
            said.append(_tuning_sentence(tuning))
        if "probe" in self.results:
            said += _reading_sentences(self.results["probe"])
        if "ablate" in self.results:
            said.append(_ablation_sentence(self.results["ablate"]))
        if "describe" in self.results:
            said += _description_sentences(self.results["describe"])
        return said

    def __str__(self) -> str:
        parts = []
        if rank := self.results.get("rank"):
            parts.append(_layers_table(rank))
        if saes := self.results.get("saes"):
            parts.append(_dictionaries_table(saes))
        if self.columns():
            parts.append(_columns_table(self.columns()))
            parts.append(_deltas_table(self.results["probe"]["deltas"]))
            if pairs := self.results["probe"]["pairs"]:
                parts.append(_pairs_table(pairs))
        if ablation := self.results.get("ablate"):
            parts.append(_ablation_table(ablation))
        if description := self.results.get("describe"):
            parts.append(_descriptions_table(description))
        return "\n\n".join([*parts, *self.verdict()])

    def save(self, out: str | os.PathLike[str]) -> Path:
        """Write report.json, report.txt and columns.png; returns their folder, ``out/report``."""
        folder = Path(out) / REPORT
        write_json(folder / "report.json", {"verdict": self.verdict(), **self.results})
        with atomic_write(folder / "report.txt") as temporary:
            temporary.write_text(f"{self}\n")
        if self.columns():
            save_figure(self.plot(), folder / "columns.png")
        else:
            (folder / "columns.png").unlink(missing_ok=True)
        return folder


def _tuning_sentence(tuning: Mapping[str, Any]) -> str:
    before, after = tuning["before"], tuning["after"]
    reward = ""
    if after["reward"] is not None:
        reward = f"reward {before['reward']:+.3f} -> {after['reward']:+.3f}, "
    return (
        f"Tuning ({tuning['method']}, {tuning['steps']} steps, {tuning['stopped']}): {reward}"
        f"KL to the base {after['kl']:.3f} nats a token, length {before['length']:.1f} -> {after['length']:.1f} tokens."
    )


def _reading_sentences(probe: Mapping[str, Any]) -> list[str]:
    columns = probe["columns"]
    tuned, base = (_interval(columns[name]["tau"]) for name in ("tuned", "base model"))
    gain = probe["tau_gain"]
    if not (columns["tuned"]["tau"][1] or 0) > 0:
        meaning = "no feedback is read from the tuned model"
    elif gain[1] > 0:
        raw = [columns[f"raw activations{name}"]["tau"][0] for name in ("", ", base model")]
        meaning = (
            "the features of the tuned model tell more of the feedback than those of the base model; their raw "
            f"activations, where no dictionary's own luck plays a part, {_number(raw[0])} and {_number(raw[1])}"
        )
    elif gain[2] < 0:
        meaning = "the features of the tuned model tell less of the feedback than those of the base model"
    else:
        meaning = (
            "what the probe reads was there before tuning; it is no evidence that the feedback was learned"
        )
    said = [
        f"Held-out words: tau {tuned} from the tuned model, {base} from the base model, difference {_interval(gain)}: "
        f"{meaning}."
    ]
    graded = [columns["tuned"][key] for key in ("tau_positive", "tau_negative")]
    within = " and ".join(
        f"{_interval(v)} within {s} words" for v, s in zip(graded, ("positive", "negative"), strict=True)
    )
    if all(low is not None and low > 0 for _, low, _ in graded):
        faintly = "" if min(value for value, _, _ in graded) >= FAINT else " faintly"
        said.append(f"The feedback is{faintly} read in grades: tau {within}.")
    elif (columns["tuned"]["sign_accuracy"][1] or 0) > 0.5:
        said.append(f"Mostly the sign is read, not the grade: tau {within}.")
    if pairs := probe["pairs"]:
        right = [_interval(pairs[name]["accuracy"]) for name in ("tuned", "base model")]
        said.append(
            f"Held-out answers: chosen told from rejected with accuracy {right[0]} from the tuned model's features and "
            f"{right[1]} from the base model's."
        )
    return said


def _ablation_sentence(ablation: Mapping[str, Any]) -> str:
    rows = [row for row in ablation["rows"] if row["mode"] == "error_preserving"]
    chosen = next(row for row in rows if row["name"] == "chosen features")
    others = [row["change"] for row in rows if row["name"] == "random features"]
    return (
        f"Without the probe's top {chosen['n_features']} features the reward changes by {chosen['change']:+.3f} "
        f"(s.e. {chosen['change_error']:.3f}); without as many random ones that fire as often by {min(others):+.3f} to "
        f"{max(others):+.3f} (p = {ablation['p_value']:.2f}, {len(others)} random sets)."
    )


def _description_sentences(description: Mapping[str, Any]) -> list[str]:
    explanations, judge = description["explanations"], description["judge"]
    related = sum(e["task_related"] for e in explanations)
    said = [
        f"{related} of {len(explanations)} described features have to do with the task ({description['explainer']})."
    ]
    if judge["scores"]:
        own, other = (
            _mean([s[key] for s in judge["scores"]]) for key in ("balanced_accuracy", "other_description")
        )
        said.append(
            f"By its description the judge ({judge['judge']}) finds a feature's texts with balanced accuracy "
            f"{_number(own)}, by another feature's with {_number(other)}."
        )
    gap = description["gap"]
    if "why" in gap:
        said.append(f"No activation gap: {gap['why']}.")
    else:
        said.append(
            f"Task-related features are active on {gap['chosen_high']:.1f} % of the {gap['n_high']} inputs of high "
            f"predicted feedback and on {gap['chosen_low']:.1f} % of the {gap['n_low']} others; all features on "
            f"{gap['all_high']:.1f} % of the high ones."
        )
    return said


def _layers_table(rank: Mapping[str, Any]) -> str:
    lines = ["layer  moved by  relative"]
    for (layer, moved), (_, relative) in zip(rank["divergence"], rank["relative"], strict=True):
        mark = "  chosen" if layer in rank["layers"] else ""
        lines.append(f"{layer:<5}  {moved:8.4f}  {relative:8.5f}{mark}")
    return "\n".join(lines)


def _dictionaries_table(saes: Mapping[str, Any]) -> str:
    matched = dict(saes["mmcs"])
    lines = ["model  layer  latents     FVU      L0    dead  MMCS with base"]
    for q in saes["quality"]:
        match = f"  {matched[q['layer']]:.3f}" if q["model"] == "tuned" else ""
        lines.append(
            f"{q['model']:<5}  {q['layer']:<5}  {q['d_sae']:<7}  {q['fvu']:7.4f}  {q['l0']:6.1f}  {q['dead']:5.1%}"
            f"{match}"
        )
    return "\n".join(lines)


def _columns_table(columns: Mapping[str, Mapping[str, Any]]) -> str:
    n = next(iter(columns.values()))
    wide = max(map(len, columns)) + 2
    head = f"feedback read from held-out words ({n['n_words']}: {n['n_positive']} positive, {n['n_negative']} negative)"
    lines = [head, " " * wide + "".join(f"{label:>16}" for label in FIGURES.values())]
    for name, figures in columns.items():
        lines.append(f"{name:<{wide}}" + "".join(f"{_number(figures[key][0]):>16}" for key in FIGURES))
        if name in ("tuned", "base model"):
            bounds = (figures[key][1:] for key in FIGURES)
            lines.append(" " * wide + "".join(f"{f'[{_number(a)}, {_number(b)}]':>16}" for a, b in bounds))
    if "words alone" in columns:
        lines.append(BELOW_CHANCE)
    return "\n".join(lines)


def _deltas_table(deltas: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        "features that move most from neutral to feedback words",
        "feature    positive  negative  contrast    effect",
    ]
    for row in deltas:
        name = f"{row['layer']}/{row['latent']}"
        columns = (row[key] for key in ("positive", "negative", "contrast", "effect"))
        lines.append(f"{name:<9}" + "".join(f"{_number(value):>10}" for value in columns))
    return "\n".join(lines)


def _pairs_table(pairs: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    wide = max(map(len, pairs)) + 2
    lines = [f"{'chosen or rejected, held-out':<{wide}}{'accuracy':>24}{'of pairs':>24}"]
    for name, row in pairs.items():
        lines.append(f"{name:<{wide}}{_interval(row['accuracy']):>24}{_interval(row['pair_accuracy']):>24}")
    return "\n".join(lines)


def _ablation_table(ablation: Mapping[str, Any]) -> str:
    lines = [
        f"{'ablated':<18}{'mode':<18}{'features':>9}{'active':>9}{'reward':>9}{'change':>9}{'s.e.':>8}{'KL':>9}"
    ]
    for r in ablation["rows"]:
        lines.append(
            f"{r['name']:<18}{r['mode'].replace('_', ' '):<18}{r['n_features']:>9}{r['active']:>9.1%}"
            f"{r['reward']:>9.3f}{r['change']:>+9.3f}{r['change_error']:>8.3f}{r['kl']:>9.4f}"
        )
    return "\n".join(lines)


def _descriptions_table(description: Mapping[str, Any]) -> str:
    score = {(s["layer"], s["latent"]): s["balanced_accuracy"] for s in description["judge"]["scores"]}
    lines = ["feature   score  related  description"]
    for e in description["explanations"][:SHOWN_DESCRIPTIONS]:
        name, value = f"{e['layer']}/{e['latent']}", score.get((e["layer"], e["latent"]))
        lines.append(
            f"{name:<9} {_number(value):<6} {'yes' if e['task_related'] else 'no':<8} {e['description']}"
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _interval(estimate: Sequence[float | None]) -> str:
    value, low, high = estimate
    return _number(value) if low is None else f"{_number(value)} [{_number(low)}, {_number(high)}]"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
