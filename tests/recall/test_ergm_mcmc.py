"""Maximum likelihood from simulated graphs: against enumeration, published reference fits, and planted coefficients."""

from __future__ import annotations

import logging

import networkx as nx
import numpy as np
import pytest

from interp.recall.ergm import ERGM
from interp.recall.ergm_sampling import Sampler, bimodality, effective_size
from interp.recall.ergm_statistics import Network, Specification, graph_statistics
from interp.recall.graphs import brashears_graph

SMALL = [g for g in nx.graph_atlas_g() if 3 <= len(g) <= 5]


@pytest.mark.slow
@pytest.mark.parametrize(
    "statistics", [("edges", "triangles"), ("edges", "two_stars"), ("edges", "alt_triangles")]
)
def test_agrees_with_enumeration_on_every_graph_up_to_five_nodes(statistics: tuple[str, ...]) -> None:
    """The same coefficients are finite, and those are equal within a few Monte Carlo errors."""
    off = []
    for graph in SMALL:
        exact = ERGM(statistics, method="exact").fit(graph)
        simulated = ERGM(statistics, method="mcmcmle", n_samples=600).fit(graph)
        np.testing.assert_array_equal(simulated.estimable_, exact.estimable_)
        if exact.estimable_.all():
            assert simulated.converged_
            error = simulated.summary()["mc_error"].to_numpy()
            off.append((simulated.coef_ - exact.coef_) / error)
            np.testing.assert_allclose(simulated.se_, exact.se_, rtol=0.5)
    off = np.concatenate(off)
    assert np.abs(off).max() < 4.5
    assert 0.5 < np.sqrt((off**2).mean()) < 1.5


@pytest.mark.parametrize("method", ["mcmcmle", "sa"])
def test_reference_fit_of_the_reducible_vignette(method: str) -> None:
    graph = brashears_graph("reducible")
    start = ERGM(("edges", "alt_triangles"), errors="naive").fit(graph)
    np.testing.assert_allclose(start.coef_, [-3.565, 1.444], atol=1e-3)
    model = ERGM(("edges", "alt_triangles"), method=method, random_state=1).fit(graph)
    assert model.converged_
    assert model.t_ratios_ is not None
    assert model.t_ratios_.max() < 0.1
    np.testing.assert_allclose(model.coef_[0], -2.91, atol=0.25)
    np.testing.assert_allclose(model.coef_[1], 0.93, atol=0.12)
    np.testing.assert_allclose(model.se_, [0.48, 0.26], atol=0.06)


def test_recovers_planted_coefficients_within_its_errors() -> None:
    planted = np.array([-1.6, -0.1, 0.5])
    statistics = ("edges", "two_stars", "alt_triangles")
    graphs = ERGM(statistics, random_state=5).simulate(16, 16, planted)
    single = [ERGM(statistics, method="mcmcmle", random_state=k).fit(g) for k, g in enumerate(graphs[:8])]
    z = np.array([(m.coef_ - planted) / m.se_ for m in single if m.estimable_.all()])
    assert len(z) >= 6
    assert np.abs(z).max() < 3.5
    pooled = ERGM(statistics, method="mcmcmle").fit_pooled(graphs)
    assert pooled.converged_
    assert np.abs((pooled.coef_ - planted) / pooled.se_).max() < 3
    assert (pooled.se_ < np.array([m.se_ for m in single if m.estimable_.all()]).mean(0) / 2).all()


@pytest.mark.slow
def test_hundred_nodes() -> None:
    planted = np.array([-4.2, 0.9])
    statistics = ("edges", "alt_triangles")
    graph = ERGM(statistics, random_state=2).simulate(100, 1, planted)[0]
    assert 60 < graph.number_of_edges() < 400
    model = ERGM(statistics, method="mcmcmle", n_samples=300).fit(graph)
    assert model.converged_
    assert np.abs((model.coef_ - planted) / model.se_).max() < 3


def test_a_degenerate_model_is_said_to_be_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    model = ERGM(("edges", "triangles"), method="mcmcmle").fit(brashears_graph("reducible"))
    assert not model.converged_ or "degenerate" in caplog.text
    assert "not converged" in caplog.text or "degenerate" in caplog.text


@pytest.mark.parametrize("method", ["mcmcmle", "sa"])
def test_empty_complete_and_triangle_free_graphs(method: str) -> None:
    for graph in (nx.empty_graph(8), nx.complete_graph(8)):
        model = ERGM(("edges", "triangles"), method=method).fit(graph)
        assert not model.estimable_.any()
        assert np.isnan(model.coef_).all()
    star = ERGM(("edges", "triangles"), method=method).fit(nx.random_labeled_tree(12, seed=1))
    assert star.estimable_.tolist() == [True, False]
    assert np.isfinite(star.coef_[0])


def test_samples_of_several_networks_are_sums() -> None:
    spec, theta = Specification(("edges",)), np.array([-0.5])
    networks = [Network.of(nx.empty_graph(n)) for n in (4, 6)]
    z = Sampler(networks, spec, seed=0).statistics(theta, 3000)[:, 0]
    p = 1 / (1 + np.exp(0.5))
    assert z.mean() == pytest.approx(21 * p, abs=0.25)
    assert z.var() == pytest.approx(21 * p * (1 - p), rel=0.12)


def test_held_dyads_never_change() -> None:
    graph = nx.gnp_random_graph(8, 0.4, seed=0)
    network = Network.of(nx.compose(graph, nx.path_graph(8)), fixed=graph)
    sampler = Sampler([network], Specification(("edges", "triangles")), seed=0)
    for states in sampler.graphs(np.array([-1.0, 0.2]), 20)[0]:
        drawn = network.with_free(states).adjacency
        assert (drawn[nx.to_numpy_array(graph) > 0] == 1).all()
    z = sampler.statistics(np.array([-1.0, 0.2]), 1)[0]
    last = sampler._states[0].arrays[3]
    np.testing.assert_allclose(z, graph_statistics(last, ("edges", "triangles")), atol=1e-9)


def test_effective_size_and_bimodality() -> None:
    rng = np.random.default_rng(0)
    white = rng.normal(size=20_000)
    assert effective_size(white) == pytest.approx(20_000, rel=0.1)
    slow = np.zeros(20_000)
    for k in range(1, len(slow)):
        slow[k] = 0.8 * slow[k - 1] + white[k]
    assert effective_size(slow) == pytest.approx(20_000 / 9, rel=0.25)  # (1 - 0.8) / (1 + 0.8)
    assert effective_size(np.ones(50)) == 50
    assert bimodality(white) == pytest.approx(1 / 3, abs=0.02)
    assert bimodality(rng.uniform(size=20_000)) == pytest.approx(1 / 1.8, abs=0.02)
    assert bimodality(np.repeat([0.0, 1.0], 50)) == pytest.approx(1)


def test_same_seed_same_fit() -> None:
    graph = brashears_graph("reducible")
    fits = [ERGM(("edges", "alt_triangles"), method="mcmcmle", random_state=4).fit(graph) for _ in range(2)]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)
    np.testing.assert_array_equal(fits[0].cov_, fits[1].cov_)
