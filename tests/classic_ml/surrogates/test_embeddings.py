"""Vertices, links, ties and projections of every embedding against listing, sorting and brute-force search."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from classic_ml.surrogates import EMBEDDINGS, PolytopeEmbedding, embedding_for

E = PolytopeEmbedding
NAMED = {
    "simplex 4": E.simplex(4),
    "cube 1": E.cube(1),
    "cube 3": E.cube(3),
    "permutahedron 2": E.permutahedron(2),
    "permutahedron 4": E.permutahedron(4),
    "cross-polytope 1": E.cross_polytope(1),
    "cross-polytope 3": E.cross_polytope(3),
    "polygon 3": E.polygon(3),
    "polygon 7": E.polygon(7),
}
named = pytest.mark.parametrize("embedding", NAMED.values(), ids=NAMED)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def listed(embedding: PolytopeEmbedding) -> PolytopeEmbedding:
    """The same vertices without their closed forms."""
    return PolytopeEmbedding(embedding.vertices)


def test_vertices_are_the_tables() -> None:
    np.testing.assert_array_equal(E.simplex(3).vertices, np.eye(3))
    np.testing.assert_array_equal(E.cube(3).vertices, list(itertools.product((0, 1), repeat=3)))
    np.testing.assert_array_equal(E.permutahedron(4).vertices, list(itertools.permutations(range(1, 5))))
    np.testing.assert_array_equal(E.cross_polytope(3).vertices, np.vstack([np.eye(3), -np.eye(3)]))
    angles = [2 * math.pi * y / 5 for y in range(5)]
    np.testing.assert_allclose(
        E.polygon(5).vertices, [[math.cos(a), math.sin(a)] for a in angles], atol=1e-15
    )


@named
def test_every_vertex_decodes_to_its_class(embedding: PolytopeEmbedding) -> None:
    every = np.arange(embedding.n_classes)
    assert embedding.link(embedding.vertices).tolist() == every.tolist()
    labels, ties = embedding.link_with_ties(embedding.vertices)
    assert labels.tolist() == every.tolist()
    assert set(ties) == {1}
    assert embedding.in_strict_region(embedding.vertices).all()


@named
def test_link_is_the_nearest_vertex_to_the_projection(embedding: PolytopeEmbedding, rng) -> None:
    V = embedding.vertices
    U = V.mean(0) + 1.5 * rng.standard_normal((300, V.shape[1]))
    projected = embedding.project(U)
    squares = ((projected[:, None] - V) ** 2).sum(2)
    clear = np.diff(np.sort(squares, 1)[:, :2]).ravel() > 1e-7
    assert clear.mean() > 0.6
    np.testing.assert_array_equal(embedding.link(U)[clear], squares.argmin(1)[clear])
    # The named polytopes are symmetric in their mirrors, so that their links need no projection.
    np.testing.assert_array_equal(embedding.link(U), embedding.nearest(projected))
    np.testing.assert_array_equal(embedding.link(U), listed(embedding).link(U))


@named
def test_projection_meets_its_optimality_condition(embedding: PolytopeEmbedding, rng) -> None:
    V = embedding.vertices
    U = V.mean(0) + 1.5 * rng.standard_normal((60, V.shape[1]))
    for version in (embedding, listed(embedding)):
        X = version.project(U)
        # x in P is nearest to u where no vertex lies on u's side: <u - x, v - x> <= 0.
        assert np.einsum("nd,nvd->nv", U - X, V - X[:, None]).max() < 1e-9
        assert version.contains(X).all()
        np.testing.assert_allclose(version.project(X), X, atol=1e-9)
    np.testing.assert_allclose(embedding.project(U), listed(embedding).project(U), atol=1e-9)
    np.testing.assert_array_equal(embedding.contains(U), listed(embedding).contains(U))


def test_projection_of_a_custom_polytope_against_a_general_solver(rng) -> None:
    V = rng.standard_normal((4, 3)) * 2  # a tetrahedron
    u = np.array([3.0, -1.0, 2.0])
    solved = minimize(
        lambda w: np.sum((w @ V - u) ** 2),
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(PolytopeEmbedding(V).project(u[None])[0], solved.x @ V, atol=1e-5)


def test_nearest_before_projecting_is_another_link() -> None:
    triangle = PolytopeEmbedding([[0, 0], [4, 0], [1, 1]])
    u = np.array([[1.5, -2.0]])
    # |u - v|^2 = 6.25, 10.25, 9.25; from the projection (1.5, 0) it is 2.25, 6.25, 1.25.
    np.testing.assert_allclose(triangle.project(u), [[1.5, 0]], atol=1e-12)
    assert triangle.nearest(u)[0] == 0
    assert triangle.link(u)[0] == 2


def test_links_are_thresholds_ranks_and_signed_argmax(rng) -> None:
    U = rng.random((200, 4))
    bits = (U > 0.5).astype(int)
    assert E.cube(4).link(U).tolist() == [int("".join(map(str, row)), 2) for row in bits]
    ranks = U.argsort(1).argsort(1) + 1
    order = list(itertools.permutations(range(1, 5)))
    assert E.permutahedron(4).link(U).tolist() == [order.index(tuple(row)) for row in ranks]
    signed = U - 0.5
    largest = np.abs(signed).argmax(1)
    negative = signed[np.arange(200), largest] < 0
    assert E.cross_polytope(4).link(signed).tolist() == (largest + 4 * negative).tolist()


def test_the_class_of_ranks_is_the_vertex_itself_not_its_inverse() -> None:
    embedding = E.permutahedron(3)
    label = embedding.link([[30.0, -1.0, 7.0]])[0]
    assert embedding.transform([label])[0].tolist() == [3, 1, 2]
    assert embedding.vertices[label].tolist() == [3, 1, 2]


def test_a_centred_cube_decodes_at_zero_what_the_unit_cube_decodes_at_a_half(rng) -> None:
    unit, centred = E.cube(3), PolytopeEmbedding(2 * E.cube(3).vertices - 1)
    U = rng.uniform(-0.3, 1.3, (200, 3))
    np.testing.assert_array_equal(centred.link(2 * U - 1), unit.link(U))
    assert centred.alpha_map() == pytest.approx(unit.alpha_map(), abs=1e-12)


def test_ties_go_to_the_lowest_class_and_are_counted() -> None:
    tied = [
        (E.cube(3), [0.5, 0.5, 0.9], 1, 4),
        (E.cube(2), [0.5, 0.5], 0, 4),
        (E.permutahedron(4), [2.5, 2.5, 1.0, 4.0], 8, 2),
        (E.permutahedron(4), [2.5, 2.5, 2.5, 2.5], 0, 24),
        (E.permutahedron(4), [1.5, 3.5, 3.5, 1.5], 3, 4),
        (E.cross_polytope(3), [0.0, -0.2, 0.2], 2, 2),
        (E.cross_polytope(3), [0.0, 0.0, 0.0], 0, 6),
        (E.simplex(3), [0.2, 0.4, 0.4], 1, 2),
        (E.polygon(4), [0.5, 0.5], 0, 2),
        (E.polygon(5), [0.0, 0.0], 0, 5),
    ]
    for embedding, u, label, count in tied:
        for version in (embedding, listed(embedding)):
            labels, counts = version.link_with_ties([u])
            assert (labels[0], counts[0]) == (label, count), (version, u)
            assert version.link([u])[0] == label


def test_rounding_does_not_untie() -> None:
    u = np.array([0.1 + 0.2, 0.3, 0.4])  # 0.30000000000000004 and 0.3
    assert E.permutahedron(3).link([u])[0] == E.permutahedron(3).link([[0.3, 0.3, 0.4]])[0]
    assert E.cross_polytope(2).link([[0.3, -(0.1 + 0.2)]])[0] == 0


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["cube", "permutahedron", "cross-polytope"]), st.integers(2, 20), st.randoms())
def test_codes_of_many_dimensions_need_no_list(name: str, d: int, random) -> None:
    embedding = {"cube": E.cube, "permutahedron": E.permutahedron, "cross-polytope": E.cross_polytope}[name](
        d
    )
    y = np.array([random.randrange(embedding.n_classes) for _ in range(5)] + [0, embedding.n_classes - 1])
    V = embedding.transform(y)
    noise = 0.4 * np.array([[random.uniform(-1, 1) for _ in range(d)] for _ in y])
    np.testing.assert_array_equal(embedding.link(V + noise), y)
    assert embedding.contains(V).all()
    assert embedding.in_strict_region(V).all()
    assert not embedding.in_hallucination_region(V).any()
    projected = embedding.project(V + 3 * noise)
    assert embedding.contains(projected).all()
    np.testing.assert_array_equal(embedding.link(projected), embedding.link(V + 3 * noise))


def test_too_many_vertices_are_not_listed() -> None:
    assert E.cube(62).transform([2**62 - 1]).sum() == 62
    assert E.permutahedron(20).transform([math.factorial(20) - 1])[0].tolist() == list(range(20, 0, -1))
    with pytest.raises(ValueError, match="too many to list"):
        E.cube(20).vertices  # noqa: B018
    with pytest.raises(ValueError, match="at most 62 bits"):
        E.cube(63)
    with pytest.raises(ValueError, match="end at 20!"):
        E.permutahedron(21)


def test_mean_embeddings() -> None:
    P = np.random.default_rng(1).dirichlet(np.ones(8), 20)
    np.testing.assert_allclose(E.cube(3).embed_distribution(P), P @ E.cube(3).vertices)
    pairs = E.cross_polytope(4).embed_distribution(P)
    np.testing.assert_allclose(pairs, P[:, :4] - P[:, 4:], atol=1e-15)


def test_the_first_vertices_of_a_polytope_are_an_embedding_of_their_own() -> None:
    part, whole = E.cube(4, 10), E.cube(4)
    np.testing.assert_array_equal(part.vertices, whole.vertices[:10])
    assert "part of a cube" in repr(part)
    assert E.cube(3, 8).name == "cube"
    np.testing.assert_array_equal(part.link(part.vertices), np.arange(10))
    corner = np.array([[1.0, 1.0, 1.0, 1.0]])  # class 15 is no class of the part
    assert whole.contains(corner)[0]
    assert not part.contains(corner)[0]
    assert part.link(corner)[0] < 10


@pytest.mark.parametrize(
    ("name", "n", "dimension"),
    [
        ("cube", 2, 1), ("cube", 3, 2), ("cube", 256, 8), ("cube", 257, 9),
        ("permutahedron", 2, 2), ("permutahedron", 6, 3), ("permutahedron", 7, 4), ("permutahedron", 120, 5),
        ("cross-polytope", 5, 3), ("cross-polytope", 6, 3), ("simplex", 5, 5), ("polygon", 40, 2),
    ],
)  # fmt: skip
def test_the_smallest_embedding_of_each_kind(name: str, n: int, dimension: int) -> None:
    embedding = embedding_for(name, n)
    assert (embedding.n_classes, embedding.dimension) == (n, dimension)


def test_errors_name_what_was_seen() -> None:
    with pytest.raises(ValueError, match=r"row 3 lies in the hull of the others \(1 of 4"):
        PolytopeEmbedding([[0, 0], [1, 0], [0, 1], [0.5, 0.5]])
    with pytest.raises(ValueError, match=r"\[1.0, 0.0\] is there twice"):
        PolytopeEmbedding([[0, 0], [1, 0], [1, 0]])
    with pytest.raises(ValueError, match="not finite in row 1"):
        PolytopeEmbedding([[0, 0], [np.nan, 0]])
    with pytest.raises(ValueError, match=r"n_classes = 9, but <cube embedding: 8 classes"):
        E.cube(3, 9)
    with pytest.raises(ValueError, match=r"y holds 8; classes are 0\.\.7"):
        E.cube(3).transform([0, 8])
    with pytest.raises(TypeError, match="dtype float64"):
        E.cube(3).transform([0.0])
    with pytest.raises(ValueError, match=r"U has shape \(1, 2\); give \(N, 3\)"):
        E.cube(3).link([[0.1, 0.2]])
    with pytest.raises(ValueError, match=r"P row 1 is no distribution: it sums to 1.2"):
        E.cube(1).embed_distribution([[0.5, 0.5], [0.6, 0.6]])
    with pytest.raises(ValueError, match="n_classes = 2 must be at least 3"):
        E.polygon(2)
    with pytest.raises(ValueError, match="did you mean 'permutahedron'"):
        embedding_for("permutohedron", 4)
    with pytest.raises(TypeError, match="give an integer"):
        E.cube(2.5)  # type: ignore[arg-type]
    assert len(EMBEDDINGS) == 5
