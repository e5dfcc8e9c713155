"""Strict and hallucination regions: closed forms against linear programs, volumes against exact fractions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from classic_ml.surrogates import PolytopeEmbedding
from classic_ml.surrogates.hulls import draw_from_hull

E = PolytopeEmbedding
CLOSED = {
    "simplex 4": E.simplex(4),
    "cube 1": E.cube(1),
    "cube 3": E.cube(3),
    "permutahedron 3": E.permutahedron(3),
    "permutahedron 4": E.permutahedron(4),
    "cross-polytope 1": E.cross_polytope(1),
    "cross-polytope 2": E.cross_polytope(2),
    "cross-polytope 4": E.cross_polytope(4),
    "polygon 5": E.polygon(5),
    "polygon 8": E.polygon(8),
}


def irwin_hall(d: int, x: float) -> float:
    """P(the sum of d uniforms is at most x)."""
    return sum((-1) ** k * math.comb(d, k) * (x - k) ** d for k in range(int(x) + 1)) / math.factorial(d)


def points(embedding: PolytopeEmbedding, n: int) -> np.ndarray:
    """Points of P, half of them uniform, half pulled to a vertex so that strict ones are among them."""
    rng = np.random.default_rng(0)
    U = embedding.draw(n, rng)
    y = rng.integers(embedding.n_classes, size=n // 2)
    pull = rng.uniform(0.3, 1, (n // 2, 1))
    U[: n // 2] = pull * embedding.transform(y) + (1 - pull) * U[: n // 2]
    return U


@pytest.mark.parametrize("embedding", CLOSED.values(), ids=CLOSED)
def test_closed_forms_agree_with_linear_programs(embedding: PolytopeEmbedding) -> None:
    few = points(embedding, 2 * max(4, 60 // embedding.n_classes))
    margins = np.array([embedding.fibre_margin(u) for u in few])
    least = np.array([embedding.min_probability(u) for u in few])
    np.testing.assert_array_equal(embedding.in_strict_region(few), margins > 1e-8)
    np.testing.assert_array_equal(embedding.in_hallucination_region(few), least < 1e-8)
    # Distances to hulls, the way of custom vertices, are a third computation.
    many, listed = points(embedding, 100), PolytopeEmbedding(embedding.vertices)
    strict = embedding.in_strict_region(many)
    assert strict.any()
    np.testing.assert_array_equal(listed.in_strict_region(many), strict)
    np.testing.assert_array_equal(
        listed.in_hallucination_region(many), embedding.in_hallucination_region(many)
    )


def test_cube_and_cross_polytope_by_their_formulas() -> None:
    cube, cross = E.cube(3), E.cross_polytope(3)
    U = cube.draw(200, 1)
    c = np.minimum(U, 1 - U)  # reflected to vertex 0
    np.testing.assert_array_equal(cube.in_strict_region(U), c.max(1) + c.sum(1) < 1)
    np.testing.assert_array_equal(cube.in_hallucination_region(U), c.sum(1) >= 1)
    least = [cube.min_probability(u) for u in U[:60]]
    np.testing.assert_array_equal(cube.in_hallucination_region(U[:60]), np.array(least) < 1e-8)
    U = cross.draw(200, 2)
    size = -np.sort(-np.abs(U), axis=1)
    strict = size[:, 0] > size[:, 1] + (1 - size.sum(1)) / 2
    np.testing.assert_array_equal(cross.in_strict_region(U), strict)
    margin = size[:, 0] - size[:, 1] - (1 - size.sum(1)) / 2
    np.testing.assert_allclose([cross.fibre_margin(u) for u in U[:20]], margin[:20], atol=1e-7)


FRACTIONS = {
    "square": (E.cube(2), 2 / 3, 0),
    "cube 3": (E.cube(3), 1 / 3, 1 / 6),
    "cube 4": (E.cube(4), 2 / 15, 1 / 2),
    "cube 5": (E.cube(5), 2**5 / math.factorial(6), 0.775),
    "hexagon": (E.polygon(6), 1 / 3, 1 / 3),
    "permutahedron 3": (E.permutahedron(3), 1 / 3, 1 / 3),
    "permutahedron 4": (E.permutahedron(4), 1 / 16, None),  # d! / d! fundamental cells of d^(d - 2)
    "cross-polytope 2": (E.cross_polytope(2), 2 / 3, 0),
    "cross-polytope 3": (E.cross_polytope(3), 2 / 3, 0),
    "cross-polytope 6": (E.cross_polytope(6), 2 / 3, 0),
    "simplex 4": (E.simplex(4), 1, 0),
}


@pytest.mark.parametrize(("embedding", "strict", "hallucination"), FRACTIONS.values(), ids=FRACTIONS)
def test_volume_fractions(embedding: PolytopeEmbedding, strict: float, hallucination: float | None) -> None:
    regions = embedding.volume_fractions(40_000, random_state=0)
    # 0.01 is four standard errors.
    assert regions.strict == pytest.approx(strict, abs=0.01)
    if hallucination is not None:
        assert regions.hallucination == pytest.approx(hallucination, abs=0.01)


def test_hallucination_of_cubes_is_irwin_hall() -> None:
    assert [irwin_hall(d, d - 2) for d in (2, 3, 4, 5)] == pytest.approx([0, 1 / 6, 1 / 2, 0.775])


def test_square_worked_example() -> None:
    square = E.cube(2)
    P = np.array([[0.5, 0, 0, 0.5], [0, 0.5, 0.5, 0]])
    U = square.embed_distribution(P)
    np.testing.assert_allclose(U, 0.5)
    labels, ties = square.link_with_ties(U)
    assert ties.tolist() == [4, 4]
    assert P[np.arange(2), labels].min() == 0
    assert square.in_hallucination_region(U).all()
    u = square.embed_distribution([[0.45, 0.25, 0.2, 0.1]])
    np.testing.assert_allclose(u, [[0.30, 0.35]])
    np.testing.assert_allclose(((u - square.vertices) ** 2).sum(1), [0.2125, 0.5125, 0.6125, 0.9125])
    assert square.link(u)[0] == 0  # the mode, yet the fibre has a p that ties: 2 * .35 + .30 = 1
    assert not square.in_strict_region(u)[0]
    assert square.fibre_margin(u[0]) == pytest.approx(0, abs=1e-8)
    assert square.in_strict_region(u - 1e-6)[0]


def test_decoding_classes_of_probability_zero() -> None:
    third, half = [0, 1 / 3, 1 / 3, 0, 1 / 3, 0, 0, 0], [0, 1 / 2, 1 / 2, 0, 0, 0]
    cube, permutahedron = E.cube(3), E.permutahedron(3)
    u = cube.embed_distribution([third])
    np.testing.assert_allclose(u, 1 / 3)
    assert cube.link(u)[0] == 0
    assert cube.in_hallucination_region(u)[0]
    assert cube.min_probability(u[0]) == pytest.approx(0, abs=1e-9)
    assert permutahedron.vertices[[1, 2]].tolist() == [[1, 3, 2], [2, 1, 3]]
    u = permutahedron.embed_distribution([half])
    np.testing.assert_allclose(u, [[1.5, 2, 2.5]])
    assert permutahedron.link(u)[0] == 0
    assert permutahedron.in_hallucination_region(u)[0]


def test_strictness_is_about_every_distribution_of_the_fibre() -> None:
    cube, rng = E.cube(3), np.random.default_rng(0)
    P = rng.dirichlet(np.full(8, 0.3), 4000)
    U = cube.embed_distribution(P)
    right = cube.link(U) == P.argmax(1)
    strict = cube.in_strict_region(U)
    assert right[strict].all()
    assert 0.1 < strict.mean() < right.mean() - 0.2  # testing the generating p alone overstates it


def test_a_strict_point_never_hallucinates_and_points_outside_are_neither() -> None:
    for embedding in CLOSED.values():
        U = points(embedding, 200)
        assert not (embedding.in_strict_region(U) & embedding.in_hallucination_region(U)).any()
        outside = embedding.vertices[:1] + 2 * (embedding.vertices[:1] - embedding.vertices.mean(0))
        assert not embedding.in_strict_region(outside)[0]
        assert not embedding.in_hallucination_region(outside)[0]
        with pytest.raises(ValueError, match="outside the polytope"):
            embedding.min_probability(outside[0])


def test_every_embedding_below_n_minus_one_dimensions_hallucinates_somewhere() -> None:
    # Radon: two disjoint sets of vertices whose hulls meet; whatever is decoded is in one of them at most.
    rng = np.random.default_rng(0)
    V = rng.standard_normal((5, 3))
    V /= np.linalg.norm(V, axis=1, keepdims=True)  # on a sphere: all extreme
    embedding = PolytopeEmbedding(V)
    radon = np.linalg.svd(np.vstack([V.T, np.ones(5)]))[2][-1]  # affine dependence
    positive = radon > 0
    p, q = np.where(positive, radon, 0), np.where(positive, 0, -radon)
    u = (p / p.sum()) @ V
    np.testing.assert_allclose(u, (q / q.sum()) @ V, atol=1e-12)
    assert embedding.in_hallucination_region([u])[0]
    assert not PolytopeEmbedding(V[:4]).in_hallucination_region(draw_from_hull(V[:4], 100, rng)).any()


def test_uniform_draws_have_the_moments_of_the_body() -> None:
    triangle = PolytopeEmbedding([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    U = triangle.draw(40_000, 0)
    np.testing.assert_allclose(U.mean(0), 1 / 3, atol=0.01)
    np.testing.assert_allclose(U.var(0), 1 / 18, atol=0.003)
    segment = PolytopeEmbedding([[1.0, 1.0], [3.0, 5.0]]).draw(40_000, 0)
    np.testing.assert_allclose(segment.mean(0), [2, 3], atol=0.05)
    np.testing.assert_allclose(segment.var(0), [4 / 12, 16 / 12], rtol=0.05)
    point = PolytopeEmbedding([[2.0, 3.0]])
    assert point.draw(3, 0).tolist() == [[2, 3]] * 3
    listed = PolytopeEmbedding(E.cross_polytope(3).vertices)
    far, near = np.abs(listed.draw(40_000, 0)).sum(1), np.abs(E.cross_polytope(3).draw(40_000, 0)).sum(1)
    np.testing.assert_allclose([far.mean(), near.mean()], 3 / 4, atol=0.01)  # |u|_1 is Beta(3, 1)
    with pytest.raises(ValueError, match="n_samples = 0"):
        triangle.draw(0)


def test_regions_print_plot_and_repeat() -> None:
    regions = E.cube(3).volume_fractions(500, random_state=7)
    again = E.cube(3).volume_fractions(500, random_state=7)
    assert (regions.strict, regions.hallucination) == (again.strict, again.hallucination)
    frame = regions.to_frame()
    assert frame.share.tolist() == [regions.strict, regions.hallucination]
    assert (frame.low <= frame.share).all()
    assert (frame.share <= frame.high).all()
    assert f"{regions.strict:.4f}" in str(regions)
    assert sum(len(c.get_offsets()) for c in regions.plot().axes[0].collections) >= 500
    for flat in (E.cube(1), E.polygon(6), E.permutahedron(3)):
        assert flat.plot(200).axes[0].get_title().startswith(flat.name)
