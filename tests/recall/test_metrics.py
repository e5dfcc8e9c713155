"""Scores and their tables, against worked values and scikit-learn."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score

from interp.recall.metrics import auroc, bounded_ci, mean_ci, proportion_ci, recall_metrics, summarise

TRUE = nx.path_graph(5)
RECALLED = nx.Graph([(0, 1), (1, 2), (0, 2), (3, 4)])


def test_worked_example() -> None:
    scores = recall_metrics(TRUE, RECALLED)
    assert (scores.tp, scores.fp, scores.fn, scores.tn) == (3, 1, 1, 5)
    assert (scores.accuracy, scores.precision, scores.recall, scores.f1) == (0.8, 0.75, 0.75, 0.75)
    assert np.isnan(scores.brier)


def test_agrees_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    for seed in range(5):
        graph = nx.gnp_random_graph(8, 0.4, seed=seed)
        pairs = [(u, v) for u in range(8) for v in range(u)]
        w = {pair: round(rng.random(), 1) for pair in pairs}
        y = [graph.has_edge(*pair) for pair in pairs]
        said = [w[pair] > 0.5 for pair in pairs]
        scores = recall_metrics(graph, w)
        expected = (
            accuracy_score(y, said),
            precision_score(y, said),
            recall_score(y, said),
            f1_score(y, said),
        )
        assert (scores.accuracy, scores.precision, scores.recall, scores.f1) == pytest.approx(expected)
        assert scores.auroc == pytest.approx(roc_auc_score(y, list(w.values())))
        assert scores.brier == pytest.approx(np.mean((np.array(y) - np.array(list(w.values()))) ** 2))


def test_the_threshold_is_strict_and_missing_pairs_are_zero() -> None:
    assert recall_metrics(TRUE, {(0, 1): 0.5, (1, 2): 0.51}).tp == 1
    assert recall_metrics(TRUE, {(0, 1): 0.5}, threshold=0.4).tp == 1


def test_nothing_over_nothing() -> None:
    empty, edge = nx.empty_graph(3), nx.Graph([(0, 1)])
    edge.add_node(2)
    assert recall_metrics(empty, empty).f1 == 1
    assert recall_metrics(edge, empty).f1 == recall_metrics(edge, empty).precision == 0
    assert recall_metrics(empty, edge).recall == 0
    assert np.isnan(auroc(np.array([True, True]), np.array([0.1, 0.2])))


def test_intervals() -> None:
    rng = np.random.default_rng(0)
    few, many = rng.normal(size=8).tolist(), rng.normal(size=50).tolist()
    mean, half, n = mean_ci([*few, float("nan")])
    low, high = stats.t.interval(0.95, 7, np.mean(few), stats.sem(few))
    assert (mean - half, mean + half, n) == (pytest.approx(low), pytest.approx(high), 8)
    assert mean_ci(many)[1] == pytest.approx(1.96 * stats.sem(many))
    assert np.isnan(mean_ci([])[0])
    assert np.isnan(mean_ci([1.0])[1])


def test_intervals_of_proportions_stay_in_their_range() -> None:
    """Of 0s and 1s it is Wilson's, with n - 1 trials since the variance is estimated: the x of which the mean lies
    1.96 standard errors sqrt(x (1 - x) / (n - 1)) away."""
    mean, low, high, n = proportion_ci([1.0] * 31 + [0.0] * 10)
    assert (mean, n) == (pytest.approx(31 / 41), 41)
    assert low < mean < high
    for x in (low, high):
        assert abs(mean - x) == pytest.approx(1.96 * np.sqrt(x * (1 - x) / 40))
    mean, low, high, _ = proportion_ci([0.9, 1.0])  # mean_ci: 0.95 +- 0.635
    assert 0 < low < mean == 0.95 < high < 1
    assert proportion_ci([0.3, 0.3]) == (0.3, 0.3, 0.3, 2)
    assert proportion_ci([1.0, 1.0])[:3] == (1, 1, 1)
    assert np.isnan(proportion_ci([0.4])[1])
    mean, low, high, _ = bounded_ci([-0.9, -1.0], -1, 1)
    assert mean == pytest.approx(-0.95)
    assert -1 <= low < mean < high < 1


def test_tables_by_group() -> None:
    frame = pd.DataFrame({"dataset": list("aab"), "f1": [0.2, 0.4, 0.9]})
    table = summarise(frame, metrics=("f1",)).set_index("dataset")
    assert table.loc["a", "f1"] == pytest.approx(0.3)
    assert tuple(table.loc["a", ["f1_low", "f1_high"]]) == pytest.approx(proportion_ci([0.2, 0.4])[1:3])
    assert table.loc["b", "graphs"] == 1
    with pytest.raises(ValueError, match="no column town"):
        summarise(frame, by=("town",), metrics=("f1",))


def test_refusals() -> None:
    with pytest.raises(ValueError, match="nodes that the true graph doesn't: 9"):
        recall_metrics(TRUE, nx.Graph([(0, 9)]))
    with pytest.raises(ValueError, match="zed"):
        recall_metrics(nx.relabel_nodes(TRUE, str), {("0", "zed"): 1.0})
    with pytest.raises(ValueError, match="at least two"):
        recall_metrics(nx.empty_graph(1), nx.empty_graph(1))
    with pytest.raises(ValueError, match="threshold"):
        recall_metrics(TRUE, RECALLED, threshold=1)
