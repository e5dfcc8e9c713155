"""A planted preference for closing triangles is found with its size, and none where none was planted."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from interp.recall.bias import descriptive_bias, microstructure_bias
from interp.recall.ergm import ERGM
from interp.recall.ergm_statistics import graph_statistics
from interp.recall.motifs import motif_bias
from interp.recall.narration import make_vignette
from interp.recall.permutation import shuffled_errors
from interp.recall.runner import GraphRecallExperiment, RecallRun
from interp.recall.scripted import NoisyRecaller, PerfectRecaller

TRIANGLES = ("edges", "triangles")


def recalled(recaller: object, n: int = 60, seed: int = 0) -> RecallRun:
    stories = [make_vignette(nx.gnp_random_graph(14, 0.22, seed=1000 * seed + k), "er", k) for k in range(n)]
    return GraphRecallExperiment(recaller, clearance=0, show_progress=False).run(stories)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def biased() -> RecallRun:
    return recalled(NoisyRecaller(miss=0.15, base=0.02, closed=0.12))


@pytest.fixture(scope="module")
def unbiased() -> RecallRun:
    return recalled(NoisyRecaller(miss=0.15, base=0.05, closed=0.05))


def test_the_planted_bias_is_found(biased: RecallRun) -> None:
    given = (biased.true_graphs(), biased.recalled_graphs())
    fixed = microstructure_bias(*given, statistics=TRIANGLES)
    assert 0.35 <= fixed.coef[1] <= 0.75
    assert fixed.z[1] >= 5
    contrast = microstructure_bias(*given, "contrast", statistics=TRIANGLES)
    assert contrast.z[1] >= 3
    assert contrast.true is not None
    np.testing.assert_allclose(contrast.coef, contrast.recalled - contrast.true)
    four = microstructure_bias(*given)
    assert 0.2 <= four.coef[2] <= 0.6
    assert four.z[2] >= 4
    assert np.abs(four.z[[1, 3]]).max() <= 2.6  # the bias is put where it belongs
    descriptive = descriptive_bias(*given, statistics=TRIANGLES, n_permutations=200)
    assert descriptive.loc["triangles", "z"] > 4
    motifs = motif_bias(*given, 3, n_permutations=100)
    assert motifs.loc["triangle", "z"] > 4


def test_none_is_found_where_there_is_none(unbiased: RecallRun) -> None:
    given = (unbiased.true_graphs(), unbiased.recalled_graphs())
    for reference in ("fixed_true", "contrast"):
        assert abs(microstructure_bias(*given, reference, statistics=TRIANGLES).z[1]) <= 2.6
    assert (
        abs(descriptive_bias(*given, statistics=TRIANGLES, n_permutations=200).loc["triangles", "z"]) <= 2.6
    )
    assert motif_bias(*given, 3, n_permutations=100)["z"].abs().max() <= 2.6


def test_the_edge_coefficient_of_unbiased_errors_is_their_rate(unbiased: RecallRun) -> None:
    given = (unbiased.true_graphs(), unbiased.recalled_graphs())
    only = microstructure_bias(*given, statistics=("edges",))
    false = sum(not t.has_edge(*e) for t, r in zip(*given, strict=True) for e in r.edges)
    possible = sum(len(list(nx.non_edges(t))) for t in given[0])
    rate = false / possible
    assert only.coef[0] == pytest.approx(np.log(rate / (1 - rate)), abs=1e-6)
    assert only.coef[0] == pytest.approx(np.log(0.05 / 0.95), abs=3 * only.se[0])


def test_a_perfect_recall_has_no_pattern() -> None:
    run = recalled(PerfectRecaller(), n=4)
    given = (run.true_graphs(), run.recalled_graphs())
    table = descriptive_bias(*given, n_permutations=20)
    assert (table["difference"] == 0).all()
    assert table["z"].isna().all()
    assert np.isnan(microstructure_bias(*given).coef).all()  # no false edge: minus infinity
    contrast = microstructure_bias(*given, "contrast", statistics=TRIANGLES)
    np.testing.assert_allclose(contrast.coef, 0, atol=1e-9)


def test_means_over_graphs_leave_out_infinite_estimates(biased: RecallRun) -> None:
    true, told = biased.true_graphs()[:12], biased.recalled_graphs()[:12]
    told[0] = true[0].copy()  # no false edge
    table = microstructure_bias(true, told, statistics=TRIANGLES, pooled=False)
    single = [
        microstructure_bias([t], [r], statistics=TRIANGLES).coef for t, r in zip(true, told, strict=True)
    ]
    np.testing.assert_allclose(table.coef, np.nanmean(single, axis=0), atol=1e-9)
    assert table.used.tolist() == np.isfinite(single).sum(0).tolist()
    assert table.used[0] <= 11
    assert (table.to_frame()["dropped"] + table.to_frame()["used"] == 12).all()
    assert "mean over 12 graphs" in str(table)


def test_other_estimators_can_be_used(biased: RecallRun) -> None:
    true, told = biased.true_graphs()[:5], biased.recalled_graphs()[:5]
    quick = microstructure_bias(true, told, statistics=("edges", "alt_triangles"))
    slow = microstructure_bias(true, told, statistics=("edges", "alt_triangles"), method="mcmcmle")
    np.testing.assert_allclose(quick.coef, slow.coef, atol=2 * slow.se.max())
    none = microstructure_bias(true, told, "none", statistics=("edges",))
    assert none.coef[0] == pytest.approx(ERGM(("edges",)).fit_pooled(told).coef_[0])


def test_shuffled_errors_keep_their_numbers(biased: RecallRun) -> None:
    true = nx.to_numpy_array(biased.true_graphs()[0], dtype=int)
    told = nx.to_numpy_array(biased.recalled_graphs()[0], nodelist=list(biased.true_graphs()[0]), dtype=int)
    drawn = shuffled_errors(true, told, 50, 0)
    assert (drawn == drawn.transpose(0, 2, 1)).all()
    assert (((drawn > true).sum((1, 2))) == (told > true).sum()).all()
    assert (((drawn < true).sum((1, 2))) == (told < true).sum()).all()
    assert len(np.unique(drawn, axis=0)) > 40
    assert graph_statistics(drawn[0], ("edges",)) == graph_statistics(told, ("edges",))


def test_refusals() -> None:
    path = nx.path_graph(4)
    with pytest.raises(ValueError, match="as many of each"):
        microstructure_bias([path], [])
    with pytest.raises(ValueError, match="other nodes"):
        microstructure_bias([path], [nx.path_graph(5)])
    with pytest.raises(ValueError, match="reference"):
        microstructure_bias([path], [path], "truth")
    with pytest.raises(ValueError, match="complete"):
        microstructure_bias([nx.complete_graph(4)], [path])
    with pytest.raises(ValueError, match="n_permutations"):
        descriptive_bias([path], [path], n_permutations=1)
