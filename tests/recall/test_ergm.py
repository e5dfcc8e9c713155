"""Exact and pseudo-likelihood fits, against closed forms and enumeration written out again."""

from __future__ import annotations

from itertools import combinations, product

import networkx as nx
import numpy as np
import pytest
from scipy.optimize import minimize

from interp.recall.ergm import ERGM
from interp.recall.ergm_exact import moments, support
from interp.recall.ergm_statistics import Network, Specification, State, batch_statistics, graph_statistics

TAIL = nx.Graph([(0, 1), (0, 2), (1, 2), (2, 3), (3, 4)])
SMALL = [g for g in nx.graph_atlas_g() if 3 <= len(g) <= 5]  # every graph of 3 to 5 nodes


def every_graph(n: int, statistics: tuple[str, ...]) -> np.ndarray:
    """Statistics of all 2^(n(n-1)/2) graphs, one after another."""
    rows, cols = np.triu_indices(n, k=1)
    states = np.array(list(product((0, 1), repeat=len(rows))))
    matrices = np.zeros((len(states), n, n), int)
    matrices[:, rows, cols] = matrices[:, cols, rows] = states
    return batch_statistics(matrices, Specification(statistics))


def test_enumeration_finds_every_graph() -> None:
    spec = Specification(("edges", "triangles", "alt_two_paths"))
    values, log_counts = support(Network.of(nx.path_graph(4)), spec)
    expected, counts = np.unique(every_graph(4, spec.statistics).round(9), axis=0, return_counts=True)
    np.testing.assert_allclose(values, expected)
    np.testing.assert_allclose(np.exp(log_counts), counts)


def test_worked_fits() -> None:
    exact = ERGM(("edges", "triangles"), method="exact").fit(TAIL)
    np.testing.assert_allclose(exact.coef_, [0.315, -0.444], atol=5e-4)
    np.testing.assert_allclose(ERGM(("edges", "triangles")).fit(TAIL).coef_, [0, 0], atol=1e-6)
    stars = ERGM(("edges", "two_stars"), method="exact").fit(TAIL)
    np.testing.assert_allclose(stars.coef_, [5.208, -1.736], atol=5e-4)
    separated = ERGM(("edges", "two_stars")).fit(TAIL)
    assert not separated.estimable_.any()
    assert np.isnan(separated.coef_).all()


@pytest.mark.parametrize(
    "statistics", [("edges", "triangles"), ("edges", "two_stars"), ("edges", "alt_triangles")]
)
def test_exact_fits_of_all_graphs_up_to_five_nodes_match_their_moments(statistics: tuple[str, ...]) -> None:
    fitted = 0
    for graph in SMALL:
        model = ERGM(statistics, method="exact").fit(graph)
        if not model.estimable_.all():
            continue
        fitted += 1
        z = graph_statistics(graph, statistics)
        _, mean, cov = moments(*support(model.networks_[0], model.spec), model.coef_)
        np.testing.assert_allclose(mean, z, atol=1e-6)
        np.testing.assert_allclose(np.linalg.inv(cov), model.cov_, rtol=1e-4)
    assert fitted >= 15


def test_exact_fit_agrees_with_a_general_optimiser() -> None:
    statistics = ("edges", "alt_two_paths")
    graph = nx.Graph([(0, 1), (1, 2), (2, 3), (1, 3)])
    every, z = every_graph(4, statistics), graph_statistics(graph, statistics)

    def loss(theta: np.ndarray) -> float:
        return float(np.log(np.exp(every @ theta).sum()) - z @ theta)

    model = ERGM(statistics, method="exact").fit(graph)
    best = minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(model.coef_, best.x, atol=1e-4)
    assert model.log_likelihood() == pytest.approx(-loss(model.coef_))


def test_infinite_estimates_are_those_on_the_rim_of_the_attainable() -> None:
    """By the definition: some direction in which no graph lies beyond the observed one."""
    statistics = ("edges", "triangles")
    for n in (3, 4, 5):
        every = np.unique(every_graph(n, statistics), axis=0)
        angles = np.linspace(0, 2 * np.pi, 20_001)
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        for graph in (g for g in SMALL if len(g) == n):
            beyond = ((every - graph_statistics(graph, statistics)) @ directions.T).max(0)
            on_rim = bool((beyond < 5e-3).any())
            model = ERGM(statistics, method="exact").fit(graph)
            assert (not model.estimable_.all()) == on_rim, graph.edges


@pytest.mark.parametrize("method", ["exact", "mple", "mcmcmle", "sa"])
def test_bernoulli_graphs_have_the_closed_form(method: str) -> None:
    graph = nx.gnp_random_graph(6, 0.4, seed=3)
    p, m = nx.density(graph), 15
    model = ERGM(("edges",), method=method).fit(graph)
    tolerance = 1e-6 if method in ("exact", "mple") else 5 * model.summary()["mc_error"].iloc[0]
    np.testing.assert_allclose(model.coef_, [np.log(p / (1 - p))], atol=tolerance)
    relative = 1e-6 if method == "exact" else 0.15  # the others' errors are simulated
    np.testing.assert_allclose(model.se_, [1 / np.sqrt(m * p * (1 - p))], rtol=relative)


def test_pooled_bernoulli_graphs_have_the_pooled_density() -> None:
    graphs = [nx.gnp_random_graph(n, 0.3, seed=n) for n in range(5, 17)]
    edges = sum(g.number_of_edges() for g in graphs)
    dyads = sum(len(g) * (len(g) - 1) // 2 for g in graphs)
    p = edges / dyads
    assert ERGM(("edges",)).fit_pooled(graphs).coef_[0] == pytest.approx(np.log(p / (1 - p)))


def test_naive_errors_are_those_of_logistic_regression() -> None:
    graph = nx.gnp_random_graph(12, 0.3, seed=0)
    model = ERGM(("edges", "triangles"), errors="naive").fit(graph)
    x = Network.of(graph).design(model.spec)
    p = 1 / (1 + np.exp(-x @ model.coef_))
    np.testing.assert_allclose(x.T @ (Network.of(graph).observed - p), 0, atol=1e-6)
    np.testing.assert_allclose(model.cov_, np.linalg.inv(x.T @ ((p * (1 - p))[:, None] * x)), rtol=1e-6)


def test_clustered_errors_are_the_jackknife() -> None:
    """Leaving a graph out and fitting again moves the estimate by what the errors are made of."""
    graphs = [nx.gnp_random_graph(12, 0.25, seed=k) for k in range(30)]
    model = ERGM(("edges", "triangles")).fit_pooled(graphs)
    left_out = [
        ERGM(("edges", "triangles"), errors="naive").fit_pooled(graphs[:k] + graphs[k + 1 :]).coef_
        for k in range(30)
    ]
    moves = model.coef_ - np.array(left_out)
    np.testing.assert_allclose(model.se_, np.sqrt((moves**2).sum(0)), rtol=0.05)
    assert model.estimate_ is not None
    assert model.estimate_.errors == "clustered"


def test_ridge_keeps_separated_coefficients_finite() -> None:
    free = nx.path_graph(6)  # no triangle: the likelihood grows as the coefficient falls
    plain = ERGM(("edges", "triangles")).fit(free)
    assert plain.estimable_.tolist() == [True, False]
    # What remains are the pairs that would not close a triangle, with their own density.
    open_pairs = [d for d in combinations(range(6), 2) if not list(nx.common_neighbors(free, *d))]
    p = 5 / len(open_pairs)
    assert plain.coef_[0] == pytest.approx(np.log(p / (1 - p)), abs=1e-6)
    ridged = ERGM(("edges", "triangles"), ridge=0.01).fit(free)
    assert ridged.estimable_.all()
    assert ridged.coef_[1] < -1


def test_fixed_dyads_condition_the_likelihood() -> None:
    """With all but one dyad held, the model is a coin with the dyad's change statistics."""
    fixed = np.ones((5, 5), bool)
    fixed[0, 3] = fixed[3, 0] = False
    model = ERGM(("edges", "triangles"), method="exact").fit(TAIL, fixed=fixed)
    theta = np.array([-1.0, 0.7])
    added = theta @ np.array([1.0, 1.0])  # 0 and 3 share node 2
    assert model.log_likelihood(theta) == pytest.approx(-np.log(1 + np.exp(added)))


def test_simulated_graphs_have_the_expected_statistics() -> None:
    theta, statistics = np.array([-1.0, 0.5]), ("edges", "triangles")
    weights = np.exp(every_graph(5, statistics) @ theta)
    expected = weights @ every_graph(5, statistics) / weights.sum()
    np.testing.assert_allclose(expected, [3.0196, 0.4085], atol=1e-4)
    drawn = ERGM(statistics, random_state=1).simulate(5, 2500, theta)
    z = np.array([graph_statistics(g, statistics) for g in drawn])
    np.testing.assert_allclose(z.mean(0), expected, atol=0.1)
    again = ERGM(statistics, random_state=1).simulate(5, 3, theta)
    assert [set(g.edges) for g in again] == [set(g.edges) for g in drawn[:3]]


def test_prints_and_refuses() -> None:
    model = ERGM(("edges", "triangles"), method="exact")
    with pytest.raises(ValueError, match="not fitted"):
        model.coef_  # noqa: B018
    text = str(model.fit(TAIL))
    assert "triangles" in text
    assert "exact, 1 graphs" in text
    with pytest.raises(ValueError, match="15 free dyads"):
        ERGM(method="exact").fit(nx.path_graph(7))
    for given, message in [
        ({"method": "mcmle"}, "did you mean 'mcmcmle'"),
        ({"ridge": -1}, "ridge"),
        ({"ridge": float("nan")}, "ridge = nan"),
        ({"ridge": 1, "method": "exact"}, "mple"),
        ({"n_samples": 10}, "100"),
        ({"errors": "robust"}, "errors"),
    ]:
        with pytest.raises(ValueError, match=message):
            ERGM(**given)
    with pytest.raises(ValueError, match="empty"):
        ERGM().fit_pooled([])
    with pytest.raises(ValueError, match="one for each"):
        ERGM().fit_pooled([TAIL], fixed=[TAIL, TAIL])
    with pytest.raises(ValueError, match="finite"):
        ERGM(("edges",)).simulate(4, 1, [np.inf])
    assert State(Network.of(TAIL), Specification(("edges",))).z.tolist() == [5.0]
