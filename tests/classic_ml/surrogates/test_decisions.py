"""Decisions against known distributions: the sheet's figures on Dirichlet draws and on empirical frequencies."""

from __future__ import annotations

import numpy as np
import pytest

from classic_ml.surrogates import (
    PolytopeEmbedding,
    compare_embeddings,
    exact_reports,
    judge_decisions,
    margin_scores,
    noise_quantiles,
    round_robin_schedule,
)

E = PolytopeEmbedding


@pytest.mark.parametrize(
    ("embedding", "agreement", "regret"),
    [
        (E.cube(2), 0.835, 0.0206),
        (E.cube(3), 0.626, 0.0477),
        (E.permutahedron(3), 0.597, 0.0752),
        (E.cross_polytope(3), 0.783, 0.0194),
        (E.cross_polytope(4), 0.757, 0.0170),
    ],
)
def test_one_embedding_on_dirichlet_draws(
    embedding: PolytopeEmbedding, agreement: float, regret: float
) -> None:
    P = np.random.default_rng(0).dirichlet(np.ones(embedding.n_classes), 200_000)
    seen = judge_decisions(P, embedding.link(embedding.embed_distribution(P)))
    assert seen.mode_agreement == pytest.approx(agreement, abs=0.005)
    assert seen.regret == pytest.approx(regret, abs=0.001)
    assert seen.hallucination_rate == 0  # no probability is zero here


def test_empirical_frequencies() -> None:
    rng = np.random.default_rng(0)
    P = rng.dirichlet(np.ones(8), 2000)
    frequencies = np.array([rng.multinomial(400, p) for p in P]) / 400

    def agreement(labels: np.ndarray) -> float:
        return judge_decisions(P, labels).mode_agreement

    schedule = round_robin_schedule(8)
    one_hot = E.simplex(8).link(frequencies)
    # Frequencies tie exactly; scores that differ by rounding must not decide what these leave open.
    several = margin_scores(exact_reports(frequencies, schedule), schedule, 8).round(12).argmax(1)
    np.testing.assert_array_equal(one_hot, several)
    assert agreement(one_hot) == pytest.approx(0.906, abs=0.02)
    for embedding, expected in ((E.cube(3), 0.614), (E.cross_polytope(4), 0.730)):
        labels = embedding.link(embedding.embed_distribution(frequencies))
        assert agreement(labels) == pytest.approx(expected, abs=0.02)


def test_accuracy_on_noisy_labels_hides_what_the_distribution_shows() -> None:
    rng, cube = np.random.default_rng(0), E.cube(3)
    P = np.zeros((4000, 8))
    P[:2000, [1, 2, 4]] = 1 / 3  # decoded as 0, of probability zero
    P[2000:, 3] = 1
    U = cube.embed_distribution(P)
    y = np.array([rng.choice(8, p=p) for p in P])
    seen = judge_decisions(P, cube.link(U), embedding=cube, reports=U, y=y)
    assert seen.accuracy == 0.5  # which a decoder that names one of the three would raise to two thirds only
    assert seen.hallucination_rate == 0.5
    assert seen.may_hallucinate == 0.5
    assert seen.certified == 0.5
    assert seen.regret == pytest.approx(1 / 6)
    assert judge_decisions(P, cube.link(U), negligible=0.4).hallucination_rate == 0.5


def test_figures_by_hand() -> None:
    P = [[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.4, 0.4, 0.2], [0.0, 1.0, 0.0]]
    seen = judge_decisions(P, [0, 1, 1, 2], y=[0, 2, 1, 1], negligible=0.1)
    assert seen.mode_agreement == 0.5  # a tie for the mode counts
    assert seen.regret == pytest.approx((0 + 0.7 + 0 + 1) / 4)
    assert seen.hallucination_rate == 0.5
    assert seen.accuracy == 0.5
    assert seen.n_outputs == 3
    assert (seen.certified, seen.may_hallucinate) == (None, None)
    assert seen.to_frame().loc["decisions", "regret"] == seen.regret
    assert noise_quantiles(P) == pytest.approx(np.quantile([0.5, 0.2, 0.6, 0.0], [0.1, 0.5, 0.9]))


def test_a_table_of_embeddings_with_its_baselines() -> None:
    P = np.random.default_rng(1).dirichlet(np.ones(6), 150)
    embeddings = {
        "one-hot": E.simplex(6),
        "permutahedron": E.permutahedron(3),
        "hexagon": E.polygon(6),
        "part of a cube": E.cube(3, 6),
    }
    table = compare_embeddings(P, embeddings)
    frame = table.to_frame()
    assert list(frame.index) == ["one class for all", *embeddings, "tournament, 5 instances"]
    assert frame.loc["one-hot", "mode_agreement"] == 1
    assert frame.loc["one-hot", "certified"] == 1
    assert frame.loc["tournament, 5 instances", "mode_agreement"] == 1
    assert frame.loc["one class for all", "mode_agreement"] < 0.3
    # The permutahedron of dimension 3 is a hexagon, its vertices in another order.
    assert frame.loc["hexagon", "certified"] < 0.1
    assert (frame.certified.dropna() <= frame.mode_agreement[frame.certified.notna()]).all()
    printed = str(table)
    assert "1 - max p: 10%" in printed
    assert len(printed.splitlines()) == len(frame) + 2
    assert len(table.plot().axes[0].lines) == len(frame)


def test_wrong_lengths_and_half_given_reports() -> None:
    with pytest.raises(ValueError, match="labels has length 1, but P has 2 rows"):
        judge_decisions([[0.5, 0.5]] * 2, [0])
    with pytest.raises(ValueError, match="give both or neither"):
        judge_decisions([[0.5, 0.5]], [0], embedding=E.cube(1))
