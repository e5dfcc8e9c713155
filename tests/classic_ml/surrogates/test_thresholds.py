"""How much label noise each embedding bears: the sheet's values, the definition, and what happens on both sides."""

from __future__ import annotations

import math

import numpy as np
import pytest

from classic_ml.surrogates import PolytopeEmbedding, low_noise

E = PolytopeEmbedding
VALUES = {
    "square": (E.cube(2), 0.5),
    "cube 3": (E.cube(3), 0.5),
    "cross-polytope 3": (E.cross_polytope(3), 0.5),
    "simplex 4": (E.simplex(4), 0.5),
    "permutahedron 3": (E.permutahedron(3), 1 / 3),
    "permutahedron 4": (E.permutahedron(4), 1 / 4),
    "pentagon": (E.polygon(5), (3 - math.sqrt(5)) / 2),
    "hexagon": (E.polygon(6), 1 / 3),
    "octagon": (E.polygon(8), 1 - 1 / math.sqrt(2)),
}
values = pytest.mark.parametrize(("embedding", "alpha"), VALUES.values(), ids=VALUES)


@values
def test_thresholds_are_the_known_ones(embedding: PolytopeEmbedding, alpha: float) -> None:
    assert embedding.alpha_map() == pytest.approx(alpha, abs=1e-9)
    # The same from all vertices, without closed forms or symmetry.
    listed = PolytopeEmbedding(embedding.vertices)
    assert listed.alpha_map() == pytest.approx(alpha, abs=1e-9)
    if embedding.n_classes <= 8:
        assert embedding.alpha_separation() == pytest.approx(alpha, abs=1e-9)
        assert listed.alpha_separation() == pytest.approx(alpha, abs=1e-9)


def test_thresholds_of_custom_vertices_are_ordered_and_right_by_definition() -> None:
    rng = np.random.default_rng(3)
    for _ in range(3):
        V = rng.standard_normal((6, 3))
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        embedding = PolytopeEmbedding(V)
        alpha = embedding.alpha_map()
        assert 0 < alpha <= embedding.alpha_separation() + 1e-9 <= 0.5 + 2e-9

        def leaves_its_cell(a: float, V: np.ndarray = V) -> bool:
            corners = (1 - a) * V[:, None] + a * V[None]  # [y, j]: corners of the copies
            return bool((((corners[:, :, None] - V) ** 2).sum(3).argmin(2) != np.arange(6)[:, None]).any())

        assert not leaves_its_cell(alpha - 1e-6)
        assert leaves_its_cell(alpha + 1e-6)


@values
def test_below_the_threshold_the_mode_is_always_found(embedding: PolytopeEmbedding, alpha: float) -> None:
    rng = np.random.default_rng(0)
    n = embedding.n_classes
    y = rng.integers(n, size=5000)
    for concentration in (1.0, 0.05):  # spread noise, and noise on one class
        P = low_noise(rng.dirichlet(np.full(n, concentration), len(y)), 0.9 * alpha, y)
        assert (embedding.link(embedding.embed_distribution(P)) == y).all()


def test_above_the_threshold_some_modes_are_lost() -> None:
    embedding, rng = E.permutahedron(3), np.random.default_rng(0)
    y = rng.integers(6, size=20_000)
    P = low_noise(rng.dirichlet(np.full(6, 0.3), len(y)), 0.5, y)
    assert 0.5 < (embedding.link(embedding.embed_distribution(P)) == P.argmax(1)).mean() < 1


def test_at_the_threshold_itself_there_are_ties() -> None:
    for embedding in (E.cube(3), E.permutahedron(3), E.polygon(6)):
        n, alpha = embedding.n_classes, embedding.alpha_map()
        y = np.repeat(np.arange(n), n)
        P = low_noise(np.tile(np.eye(n), (n, 1)), alpha, y)
        U = embedding.embed_distribution(P)
        assert embedding.link_with_ties(U)[1].max() > 1
        slightly = low_noise(np.tile(np.eye(n), (n, 1)), alpha * (1 - 1e-6), y)
        labels, ties = embedding.link_with_ties(embedding.embed_distribution(slightly))
        assert (labels == y).all()
        assert ties.max() == 1


def test_low_noise_is_what_it_says() -> None:
    P = low_noise(np.full((2, 4), 0.25), 0.2, [3, 0])
    np.testing.assert_allclose(P, [[0.05, 0.05, 0.05, 0.85], [0.85, 0.05, 0.05, 0.05]])
    with pytest.raises(ValueError, match=r"alpha = 1\.5"):
        low_noise(P, 1.5, [0, 0])
