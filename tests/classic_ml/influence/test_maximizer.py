"""LB-MOIM: its guarantees against brute force, its sample numbers, and what it reports."""

from __future__ import annotations

import math
import warnings

import networkx as nx
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from classic_ml.influence import (
    InfluenceGraph,
    Motif,
    MotifInfluenceMaximizer,
    brute_force,
    estimate_bounds,
    exact_motif_influence,
    exact_spread,
    node_motifs,
    select_node_influence,
    triangle_motifs,
)
from classic_ml.influence.imm import SampleRule
from tests.classic_ml.influence import worlds

pytestmark = pytest.mark.filterwarnings("ignore:.*not strongly connected")
FACTOR = 1 - 1 / math.e - 0.3


@pytest.mark.parametrize("cascade", ["lt", "ic"])
@pytest.mark.parametrize("options", [{}, {"lower_bound": "tree", "upper_bound": "min"}])
def test_guarantees_hold_against_brute_force(cascade, options) -> None:
    bound = {
        "lower": f"lower_{options.get('lower_bound', 'seed')}",
        "upper": f"upper_{options.get('upper_bound', 'any')}",
    }
    for seed in range(2):
        edges, motifs = worlds.random_world(seed + 20, cascade=cascade)
        graph = worlds.as_graph(edges, cascade=cascade)
        best = brute_force(graph, motifs, 2, cascade=cascade)[1]
        for strategy in ("lower", "upper", "joint", "sandwich"):
            model = MotifInfluenceMaximizer(
                2, strategy=strategy, epsilon=0.3, ell=2, cascade=cascade, random_state=seed, **options
            ).fit(graph, motifs)
            exact = exact_motif_influence(graph, motifs, model.seeds_, cascade=cascade)
            assert exact.influence.mean >= model.guarantee_ * best - 1e-9
            assert 0 < model.guarantee_ <= 1
            assert model.result_.optimum_bound >= best - 1e-9
            assert abs(model.influence_.mean - exact.influence.mean) <= 5 * model.influence_.stderr + 1e-9
            if strategy in bound:
                value = getattr(exact, bound[strategy]).mean
                assert value >= FACTOR * brute_force(graph, motifs, 2, bound[strategy], cascade=cascade)[1]


def test_example_d_the_bounds_and_the_sandwich() -> None:
    graph, motifs = worlds.as_graph(worlds.D[0]), worlds.D[1]

    def seeds(**options) -> set:
        return set(MotifInfluenceMaximizer(2, random_state=0, **options).fit(graph, motifs).seeds_)

    assert seeds(strategy="lower") == seeds(strategy="lower", lower_bound="tree") == {5, 6}
    assert seeds(strategy="sandwich") == {5, 6}
    # Both {1, 5} and {2, 5} have an upper bound of 3, the best, and an influence of 7/9; the best has 5/3.
    assert seeds(strategy="upper") in ({1, 5}, {2, 5})
    # The best spread, 44/9, is that of 0 with any of the three that are alike.
    assert set(select_node_influence(graph, 2, random_state=0)) in ({0, 5}, {0, 6}, {0, 7})


def test_single_nodes_are_classical_influence_maximisation() -> None:
    edges, _ = worlds.random_world(8)
    graph = worlds.as_graph(edges)
    seeds = select_node_influence(graph, 2, epsilon=0.2, random_state=0)
    best = brute_force(graph, node_motifs(graph), 2, "spread")[1]
    assert exact_spread(graph, seeds) >= (1 - 1 / math.e - 0.2) * best
    model = MotifInfluenceMaximizer(2, strategy="lower", random_state=0).fit(graph, node_motifs(graph))
    assert abs(model.influence_.mean - exact_spread(graph, model.seeds_)) <= 5 * model.influence_.stderr
    assert model.tau_ == 1


def test_triangles_of_les_miserables() -> None:
    graph = nx.les_miserables_graph()
    spread = select_node_influence(graph, 5, epsilon=0.15, random_state=0)
    for r, expected, gain in ((2, 324.3, 1.10), (3, 231.2, 1.15)):
        motifs = triangle_motifs(graph, threshold=r)
        model = MotifInfluenceMaximizer(5, epsilon=0.15, random_state=0).fit(graph, motifs)
        ours = model.influence_.mean
        theirs = estimate_bounds(graph, motifs, spread, 20_000, random_state=1).influence.mean
        assert ours == pytest.approx(expected, rel=0.03)
        assert ours >= gain * theirs * 0.98
        assert model.tau_ <= 1
        assert model.lower_bound_.mean <= ours <= model.upper_bound_.mean


def test_sample_numbers() -> None:
    """lambda' and lambda* of IMM written out for n = 50, k = 3, 20 motifs of total value 30, epsilon 0.2, ell 1."""
    rule = SampleRule(50, 3, 20, 30.0, 0.2, 1.0, 1000)
    sets, failure = math.log(math.comb(50, 3)), math.log(20) + math.log(2)
    eps = math.sqrt(2) * 0.2
    rounds = math.log(math.log2(1000))  # the search can go on to max_samples, beyond log2 of the motifs
    assert rule.search == pytest.approx((2 + 2 * eps / 3) * (sets + failure + rounds) * 30 / eps**2)
    alpha = math.sqrt(failure + math.log(2))
    beta = math.sqrt((1 - 1 / math.e) * (sets + failure + math.log(2)))
    assert rule.selection == pytest.approx(2 * 30 * ((1 - 1 / math.e) * alpha + beta) ** 2 / 0.04)
    assert math.isfinite(SampleRule(5, 5, 1, 1.0, 0.1, 1.0, 2).search)


def test_a_cap_on_samples_voids_the_guarantee_and_says_so() -> None:
    graph = nx.karate_club_graph()
    motifs = triangle_motifs(graph)
    for strategy in ("upper", "sandwich"):
        with pytest.warns(UserWarning, match=r"max_samples = 200 is too few for epsilon = 0\.1.*void"):
            model = MotifInfluenceMaximizer(3, strategy=strategy, max_samples=200, random_state=0).fit(
                graph, motifs
            )
        assert model.result_.void
        assert model.result_.optimum_bound == 45
        assert model.n_samples_ == 200 * (1 + (strategy == "sandwich"))
        assert "without a guarantee" in str(model.result_)


def test_an_influence_far_below_one_is_found() -> None:
    """The optimum of the lower bound is 1/64 of one motif; classical IMM stops looking at 1."""
    graph = InfluenceGraph.from_edges([0, 0], [1, 2], [1 / 8, 1 / 8], scheme="given")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", message=".*not strongly connected")
        model = MotifInfluenceMaximizer(1, strategy="lower", cascade="ic", epsilon=0.3, random_state=0).fit(
            graph, [Motif((1, 2), 2)]
        )
    assert model.seeds_ == [0]
    assert model.influence_.mean == pytest.approx(1 / 64, abs=5 * model.influence_.stderr)
    assert model.n_samples_ > 64


def test_threads_and_seeds() -> None:
    graph = nx.les_miserables_graph()
    motifs = triangle_motifs(graph, threshold=2)
    fits = [
        MotifInfluenceMaximizer(4, epsilon=0.3, n_jobs=n, random_state=state).fit(graph, motifs)
        for n, state in ((1, 5), (2, 5), (-1, np.random.RandomState(5)), (1, np.random.default_rng(5)))
    ]
    assert fits[0].seeds_ == fits[1].seeds_
    assert fits[0].result_.bounds == fits[1].result_.bounds
    assert fits[0].history_ == fits[1].history_
    assert all(len(set(fit.seeds_)) == 4 for fit in fits)


def test_estimates_are_fresh_even_with_the_same_seed() -> None:
    graph = nx.karate_club_graph()
    motifs = triangle_motifs(graph)
    model = MotifInfluenceMaximizer(3, epsilon=0.3, random_state=1).fit(graph, motifs)
    again = estimate_bounds(graph, motifs, model.seeds_, 10_000, random_state=1)
    assert again.influence != model.influence_
    assert again.influence.mean == pytest.approx(model.influence_.mean, abs=7 * again.influence.stderr)
    score = model.score(graph, motifs)
    assert score == model.score(graph, motifs)
    assert score == pytest.approx(model.influence_.mean, abs=7 * again.influence.stderr)


def test_history_result_and_figures() -> None:
    graph = nx.karate_club_graph()
    motifs = triangle_motifs(graph, threshold=2)
    model = MotifInfluenceMaximizer(3, epsilon=0.3, random_state=0).fit(graph, motifs)
    assert [step["seed"] for step in model.history_] == model.seeds_
    assert model.history_[-1]["total"] == pytest.approx(sum(step["gain"] for step in model.history_))
    frame = model.result_.to_frame()
    assert frame.index.tolist() == ["lower", "upper", "direct"]
    assert model.result_.chosen_by == frame.influence.idxmax()
    assert frame.loc[model.result_.chosen_by, "seeds"] == model.seeds_
    text = str(model.result_)
    assert "tau" in text
    assert "direct" in text
    assert "of the best possible" in text
    left, right = model.result_.plot().axes
    assert left.lines[0].get_ydata()[-1] == pytest.approx(model.history_[-1]["total"])
    assert [bar.get_height() for bar in right.patches] == pytest.approx(
        model.result_.bounds.to_frame()["mean"].tolist()
    )


def test_it_is_an_estimator() -> None:
    model = MotifInfluenceMaximizer(7, strategy="joint", upper_bound="min")
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(n_seeds=2).n_seeds == 2
    with pytest.raises(NotFittedError):
        model.score(nx.karate_club_graph(), [Motif((0,), 1)])
    model.set_params(epsilon=0.3, random_state=0).fit(
        nx.karate_club_graph(), [Motif((0, 1, 2), 2), Motif((33, 32), 1)]
    )
    with pytest.raises(ValueError, match=r"seeds_: .* is not a node of the graph"):
        model.score(nx.path_graph(["a", "b"]), [Motif(("a",), 1)])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_seeds": 0}, "n_seeds = 0 must be at least 1"),
        ({"n_seeds": 5}, "n_seeds = 5 is more than the graph's 4 nodes"),
        ({"epsilon": 0.0}, "epsilon = 0.0 must lie in"),
        ({"epsilon": 0.64}, "epsilon = 0.64 must lie in"),
        ({"ell": 0.0}, "ell = 0.0 must be positive"),
        ({"max_samples": 0}, "max_samples = 0 must be at least 1"),
        ({"strategy": "both"}, "strategy = 'both' is not known"),
        ({"lower_bound": "any"}, "lower_bound = 'any' is not known"),
        ({"upper_bound": "seed"}, "upper_bound = 'seed' is not known"),
        ({"cascade": "wc"}, "cascade = 'wc' is not known"),
    ],
)
def test_wrong_parameters_are_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        MotifInfluenceMaximizer(**({"n_seeds": 2} | options)).fit(nx.cycle_graph(4), [Motif((0, 1), 2)])
    with pytest.raises(ValueError, match="motifs is empty"):
        MotifInfluenceMaximizer(2).fit(nx.cycle_graph(4), [])
