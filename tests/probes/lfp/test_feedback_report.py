"""What the report may say: sentences follow the figures, and never claim more than the controls allow."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from interp.core.files import write_sealed_json
from interp.probes.lfp.feedback_report import FIGURES, LFPReport


def column(tau: float, graded: float = 0.0, spread: float = 0.1) -> dict[str, Any]:
    figures = {key: [tau, tau - spread, tau + spread] for key in FIGURES}
    figures["tau_positive"] = figures["tau_negative"] = [graded, graded - spread, graded + spread]
    figures["sign_accuracy"] = [(1 + part) / 2 for part in figures["tau"]]
    return {"n_words": 40, "n_positive": 22, "n_negative": 18, **figures}


RESULTS: dict[str, Any] = {
    "tune": {
        "method": "rloo",
        "steps": 120,
        "stopped": "all steps taken",
        "before": {"reward": -0.05, "kl": 0.0, "length": 12.0},
        "after": {"reward": 1.07, "kl": 0.031, "length": 11.5},
        "history": [],
    },
    "rank": {"divergence": [[0, 3.07], [1, 3.75]], "relative": [[0, 0.1], [1, 0.12]], "layers": [1]},
    "saes": {
        "quality": [
            {"model": "base", "layer": 1, "d_sae": 64, "n_tokens": 9000, "fvu": 0.1, "l0": 20.0, "dead": 0.0},
            {"model": "tuned", "layer": 1, "d_sae": 64, "n_tokens": 9000, "fvu": 0.2, "l0": 21.0, "dead": 0.25},
        ],
        "mmcs": [[1, 0.875]],
    },
    "probe": {
        "columns": {
            "tuned": column(0.44),
            "base model": column(0.46),
            "raw activations": column(0.51),
            "raw activations, base model": column(0.52),
            "shuffled labels": column(0.01),
        },
        "tau_gain": [-0.02, -0.1, 0.06],
        "words": [],
        "deltas": [
            {"layer": 1, "latent": 3, "positive": 0.5, "negative": -0.25, "contrast": 0.75, "effect": None},
        ],
        "raw": [],
        "pairs": None,
    },
    "ablate": {
        "rows": [
            {"name": "nothing", "mode": "none", "n_features": 0, "active": 0.0, "reward": 1.0, "change": 0.0,
             "change_error": 0.0, "kl": 0.0},
            {"name": "chosen features", "mode": "error_preserving", "n_features": 10, "active": 0.5, "reward": 0.4,
             "change": -0.6, "change_error": 0.05, "kl": 0.2},
            {"name": "random features", "mode": "error_preserving", "n_features": 10, "active": 0.5, "reward": 0.97,
             "change": -0.03, "change_error": 0.02, "kl": 0.01},
            {"name": "random features", "mode": "error_preserving", "n_features": 10, "active": 0.5, "reward": 1.01,
             "change": 0.01, "change_error": 0.02, "kl": 0.01},
        ],
        "features": [[1, [3, 4]]],
        "p_value": 0.33,
    },
    "describe": {
        "explainer": "lexicon",
        "explanations": [
            {"layer": 1, "latent": 3, "description": "fires on good", "task_related": True},
            {"layer": 1, "latent": 4, "description": "never", "task_related": False},
        ],
        "judge": {
            "judge": "lexicon",
            "scores": [{"layer": 1, "latent": 3, "balanced_accuracy": 0.9, "other_description": 0.5}],
        },
        "gap": {"chosen_high": 80.0, "chosen_low": 20.0, "all_high": 50.0, "n_high": 30, "n_low": 70},
    },
}  # fmt: skip


def report(**changes: Any) -> LFPReport:
    results = copy.deepcopy(RESULTS)
    for key, value in changes.items():
        results["probe"][key] = value
    return LFPReport(results)


def reading(**changes: Any) -> str:
    return " ".join(report(**changes).verdict()[1:3])


def test_no_better_than_the_base_is_no_evidence() -> None:
    said = reading()
    assert "tau 0.440 [0.340, 0.540] from the tuned model, 0.460 [0.360, 0.560] from the base model" in said
    assert "no evidence that the feedback was learned" in said
    assert "Mostly the sign is read, not the grade" in said


def test_where_nothing_is_read_nothing_is_said_of_signs_and_grades() -> None:
    chance = {**report().results["probe"]["columns"], "tuned": column(0.05)}
    said = "\n".join(report(columns=chance).verdict())
    assert "no feedback is read from the tuned model" in said
    assert "sign is read" not in said
    assert "in grades" not in said


def test_better_and_worse_than_the_base_are_said() -> None:
    better = reading(tau_gain=[0.3, 0.2, 0.4])
    assert "tell more of the feedback" in better
    assert "their raw activations, where no dictionary's own luck plays a part, 0.510 and 0.520" in better
    assert "tell less of the feedback" in reading(tau_gain=[-0.3, -0.4, -0.2])


def test_a_tau_that_may_be_zero_says_nothing_whatever_the_gain() -> None:
    columns = {"tuned": column(0.05), "base model": column(-0.4)}
    assert "no feedback is read from the tuned model" in reading(columns=columns, tau_gain=[0.45, 0.3, 0.6])


def test_grades_need_both_signs() -> None:
    graded = {"tuned": column(0.8, graded=0.6), "base model": column(0.1)}
    assert "is read in grades: tau 0.600 [0.500, 0.700] within positive" in reading(columns=graded)
    graded["tuned"]["tau_negative"] = [0.15, 0.1, 0.2]
    assert "is faintly read in grades" in reading(columns=graded)
    graded["tuned"]["tau_negative"] = [0.05, -0.1, 0.2]
    assert "Mostly the sign" in reading(columns=graded)


def test_pairs_are_told_with_the_base_beside_them() -> None:
    row = {"accuracy": [0.8, 0.7, 0.9], "pair_accuracy": [0.9, 0.8, 1.0]}
    better = {"accuracy": [0.95, 0.9, 1.0], "pair_accuracy": [1.0, 0.9, 1.0]}
    made = report(pairs={"tuned": row, "base model": better})
    assert "accuracy 0.800 [0.700, 0.900] from the tuned model's features and 0.950" in made.verdict()[3]
    assert "chosen or rejected, held-out" in str(made)


def test_the_other_sentences_hold_the_figures() -> None:
    said = "\n".join(report().verdict())
    assert "reward -0.050 -> +1.070, KL to the base 0.031 nats a token, length 12.0 -> 11.5 tokens" in said
    assert "top 10 features the reward changes by -0.600 (s.e. 0.050)" in said
    assert "as many random ones that fire as often by -0.030 to +0.010 (p = 0.33, 2 random sets)" in said
    assert "1 of 2 described features" in said
    assert "balanced accuracy 0.900, by another feature's with 0.500" in said
    assert "active on 80.0 % of the 30 inputs" in said


def test_the_tables_stand_side_by_side() -> None:
    text = str(report())
    lines = text.splitlines()
    assert "1        3.7500   0.12000  chosen" in lines
    assert "tuned  1      64        0.2000    21.0  25.0%  0.875" in lines
    assert "feedback read from held-out words (40: 22 positive, 18 negative)" in lines
    row = ["1/3", "0.500", "-0.250", "0.750", "-"]
    assert row in [line.split() for line in lines]
    at = {line.split("  ")[0]: k for k, line in enumerate(lines)}
    assert at["tuned"] < at["base model"] < at["shuffled labels"]
    frame = report().to_frame()
    assert frame.loc["tau", "base model"] == 0.46
    assert frame.loc["tau within +", "tuned"] == 0.0


def test_unfinished_runs_report_what_there_is(tmp_path: Path) -> None:
    write_sealed_json(tmp_path / "rank" / "result.json", RESULTS["rank"])
    early = LFPReport.load(tmp_path)
    assert "chosen" in str(early)
    assert early.verdict() == []
    with pytest.raises(ValueError, match="'probe' hasn't run"):
        early.plot()
    early.save(tmp_path)
    assert not (tmp_path / "report" / "columns.png").exists()
    with pytest.raises(ValueError, match="no finished stage"):
        LFPReport.load(tmp_path / "nowhere")


def test_a_tuning_without_reward_and_a_missing_gap_are_said() -> None:
    results = copy.deepcopy(RESULTS)
    results["tune"]["before"]["reward"] = results["tune"]["after"]["reward"] = None
    results["describe"]["gap"] = {"why": "nothing on one side"}
    results["describe"]["judge"]["scores"] = []
    said = LFPReport(results).verdict()
    assert "reward" not in said[0]
    assert said[-1] == "No activation gap: nothing on one side."
    assert not any("balanced accuracy" in line for line in said)


def test_the_plot_has_a_bar_for_every_column() -> None:
    figure = report().plot()
    assert [len(ax.patches) for ax in figure.axes] == [5, 5, 5, 5]
