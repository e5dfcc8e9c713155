"""The baselines pick distinct rows, by a seed, and do what their papers say on pools with a known answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from classic_ml.selection import (
    SELECTORS,
    compare_selectors,
    select_activeft,
    select_herding,
    select_kcenter,
    select_kmeans,
    select_random,
    select_stratified,
    select_usl,
)
from classic_ml.selection.comparison import learner_accuracy

ON_ROWS = [select_random, select_kmeans, select_kcenter, select_herding, select_usl]


@pytest.fixture(scope="module")
def clusters() -> tuple[np.ndarray, np.ndarray]:
    """Six tight groups of 30 in different directions."""
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(6), 30)
    return 10 * np.eye(6)[label] + 0.1 * rng.standard_normal((180, 6)), label


@pytest.mark.parametrize("select", ON_ROWS)
def test_distinct_rows_by_a_seed(clusters: tuple[np.ndarray, np.ndarray], select) -> None:
    X, _ = clusters
    picks = select(X, 25, random_state=3)
    assert len(set(picks.tolist())) == 25
    assert picks.min() >= 0
    assert picks.max() < len(X)
    assert select(X, 25, random_state=3).tolist() == picks.tolist()
    with pytest.raises(ValueError, match="n_samples = 180"):
        select(X, 180)


@pytest.mark.parametrize("select", [select_kmeans, select_kcenter, select_usl, select_herding])
def test_separate_groups_get_one_pick_each(clusters: tuple[np.ndarray, np.ndarray], select) -> None:
    X, label = clusters
    assert sorted(label[select(X, 6, random_state=0)]) == list(range(6))


def test_activeft_steps_are_adams_on_its_loss(clusters: tuple[np.ndarray, np.ndarray]) -> None:
    """The same prototypes from the loss written out, in float64, with torch's Adam."""
    X, _ = clusters
    rows = torch.from_numpy(X / np.linalg.norm(X, axis=1, keepdims=True))
    theta = (
        rows[torch.from_numpy(np.random.default_rng(0).choice(180, 12, replace=False))]
        .clone()
        .requires_grad_()
    )
    adam = torch.optim.Adam([theta], lr=1e-3)
    for _ in range(300):
        attraction = (rows @ theta.T / 0.07).amax(1).mean()
        among = [torch.cat([theta[:j], theta[j + 1 :]]) @ theta[j] / 0.07 for j in range(12)]
        loss = torch.stack([a.logsumexp(0) for a in among]).mean() - attraction
        adam.zero_grad()
        loss.backward()
        adam.step()
        with torch.no_grad():
            theta /= theta.norm(dim=1, keepdim=True)
    distances = torch.cdist(theta.detach(), rows)
    expected: list[int] = []
    for row in distances:
        expected.append(next(int(i) for i in row.argsort() if int(i) not in expected))
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert select_activeft(X, 12, random_state=0).tolist() == expected
    assert torch.equal(torch.get_rng_state(), before)


def test_activeft_spreads_over_directions(clusters: tuple[np.ndarray, np.ndarray]) -> None:
    X, label = clusters
    picks = select_activeft(X, 12, random_state=0)
    assert len(set(picks.tolist())) == 12
    start = np.random.default_rng(0).choice(180, 12, replace=False)
    assert len(set(label[picks])) >= len(set(label[start]))


def test_kcenter_on_a_line_goes_where_it_is_farthest() -> None:
    X = np.array([0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11])[:, None]
    first = int(np.random.default_rng(5).integers(11))
    assert first == 7
    assert select_kcenter(X, 4, random_state=5).tolist() == [7, 0, 10, 3]


def test_kcenter_survives_duplicates() -> None:
    assert len(set(select_kcenter(np.zeros((6, 2)), 5).tolist())) == 5


def test_usl_prefers_dense_rows(clusters: tuple[np.ndarray, np.ndarray]) -> None:
    X, _ = clusters
    centres = X.reshape(6, 30, 6).mean(1)
    away = np.linalg.norm(X - centres.repeat(30, axis=0), axis=1)
    assert away[select_usl(X, 6, random_state=0)].mean() < away.mean()


def test_stratified_shares_equally() -> None:
    y = np.repeat([0, 1, 2], [50, 20, 10])
    assert np.bincount(y[select_stratified(y, 15, random_state=0)]).tolist() == [5, 5, 5]
    assert sorted(np.bincount(y[select_stratified(y, 16, random_state=0)])) == [5, 5, 6]
    with pytest.raises(ValueError, match="has 10 rows"):
        select_stratified(y, 60)


def test_learners_on_separate_groups(clusters: tuple[np.ndarray, np.ndarray]) -> None:
    X, label = clusters
    picks = select_kmeans(X, 6, random_state=0)
    for learner in ("label_spreading", "self_training", "logistic"):
        assert learner_accuracy(X, label, picks, learner=learner) == 1.0
    one_class = np.flatnonzero(label == 2)[:4]
    assert learner_accuracy(X, label, one_class) == pytest.approx(26 / 176)
    with pytest.raises(ValueError, match="did you mean 'logistic'"):
        learner_accuracy(X, label, picks, learner="logistics")


def test_comparison_repeats_and_summarises(clusters: tuple[np.ndarray, np.ndarray]) -> None:
    X, label = clusters
    names = [name for name in SELECTORS if name != "activeft"]  # it is slow
    result = compare_selectors(X, label, (6, 12), names, n_repeats=2, n_draws=2)
    frame, summary = result.to_frame(), result.summary()
    assert len(frame) == 2 * 2 * (4 + 2 * (len(names) - 4))
    assert summary.loc[("k-means", 12)].accuracy == 1.0
    assert summary.loc[("stratified", 6)].classes == 6
    by_hand = frame[(frame.selector == "random") & (frame.budget == 6)].accuracy.mean()
    assert summary.loc[("random", 6)].accuracy == pytest.approx(by_hand)
    assert "alpha=0" in str(result)
    assert len(result.plot().axes) == 2
    own = compare_selectors(X, label, (6,), {"first": lambda pool, m, seed: range(m)}, n_repeats=1)
    assert own.to_frame().selector.tolist() == ["first"]


def test_comparison_refuses_nonsense(clusters: tuple[np.ndarray, np.ndarray]) -> None:
    X, label = clusters
    with pytest.raises(ValueError, match="180 rows and y 3"):
        compare_selectors(X, label[:3], (5,))
    with pytest.raises(ValueError, match="did you mean 'k-means'"):
        compare_selectors(X, label, (5,), ["kmeans"])
    for arguments, message in (
        ({"pool_size": 500}, "pool_size = 500"),
        ({"pool_size": 0}, "pool_size = 0"),
        ({"n_repeats": 0}, "n_repeats = 0 must be at least 1"),
        ({"n_draws": 0}, "n_draws = 0 must be at least 1"),
        ({"budgets": ()}, "budgets is empty"),
        ({"selectors": []}, "selectors is empty"),
        ({"budgets": (5, 135)}, "n_samples = 135"),
        ({"budgets": (5, 5)}, "5 is there twice"),
        ({"learner": "svm"}, "learner = 'svm'"),
        ({"sigma": 0.0}, "sigma = 0.0"),
    ):
        with pytest.raises(ValueError, match=message):
            compare_selectors(X, label, **({"budgets": (5,)} | arguments))


@pytest.mark.slow
def test_digits_figures() -> None:
    """Means over ten pools of 1400 digits, as recorded from an independent implementation."""
    X, y = load_digits(return_X_y=True)
    result = compare_selectors(
        X / 16, y, (20, 40), ["rdss", "alpha=0", "alpha=1", "random"], pool_size=1400, random_state=100
    )
    table = result.summary()
    assert table.loc[("rdss", 20)].accuracy == pytest.approx(0.823, abs=0.01)
    assert table.loc[("rdss", 40)].accuracy == pytest.approx(0.902, abs=0.01)
    assert table.loc[("alpha=1", 20)].accuracy == pytest.approx(0.853, abs=0.01)
    for name, values in {"rdss": (0.0174, 0.0077), "alpha=1": (0.0085, 0.0031)}.items():
        assert table.loc[name].mmd2.tolist() == pytest.approx(values, abs=2e-4)
    for m in (20, 40):
        ours, none, random = (table.loc[(name, m)] for name in ("rdss", "alpha=0", "random"))
        assert ours.accuracy - none.accuracy >= 0.05
        assert ours.mmd2 < 0.7 * random.mmd2
        assert table.loc[("alpha=1", m)].mmd2 < ours.mmd2 < random.mmd2 < none.mmd2
        assert ours.classes == 10
