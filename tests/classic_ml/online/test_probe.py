"""The online probe: an estimator, its rounds by hand, streams, and its honest scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import check_estimator

from classic_ml.online import (
    LEARNERS,
    L2Ball,
    LogisticLosses,
    OnlineGradientDescent,
    OnlineProbe,
    UniversalOnlineLearner,
    run_online,
)
from interp.activations.stream import TensorStream

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 4)) * [1, 5, 0.2, 1]
Y = np.where(X @ [1.0, -0.3, 2.0, 0.0] + 0.3 * RNG.logistic(size=300) > 0.2, "yes", "no")


def test_is_an_estimator() -> None:
    check_estimator(OnlineProbe(random_state=0), on_skip=None)


@pytest.mark.parametrize("name", LEARNERS)
def test_learns(name: str) -> None:
    probe = OnlineProbe(name, random_state=0).fit(X[:200], Y[:200])
    best = LogisticRegression(C=1e3).fit(X[:200], Y[:200]).score(X[200:], Y[200:])
    chance = max((Y[200:] == "yes").mean(), (Y[200:] == "no").mean())
    assert probe.score(X[200:], Y[200:]) > (best + chance) / 2
    assert probe.classes_.tolist() == ["no", "yes"]


def rows(X: np.ndarray, bound: float) -> np.ndarray:
    shortened = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True) / bound) / bound
    return np.column_stack([shortened, np.ones(len(X))]) / np.sqrt(2)


def test_rounds_are_those_of_the_learner_on_logistic_losses() -> None:
    probe = OnlineProbe(radius=3.0, feature_bound=2.0, horizon=300).partial_fit(X, Y)
    signs = np.where(Y == "yes", 1, -1)
    ball = L2Ball(3.0, 5)
    result = run_online(UniversalOnlineLearner(ball, 300, 1.0), LogisticLosses(rows(X, 2.0), signs))
    np.testing.assert_allclose(probe.round_losses_, result.losses, atol=1e-9)
    assert probe.progressive_log_loss_ == pytest.approx(result.losses.mean())
    margins = (rows(X, 2.0) * result.decisions).sum(1) * signs
    assert probe.progressive_accuracy_ == pytest.approx((margins > 0).mean())
    mean = result.decisions.mean(0) / np.sqrt(2)
    np.testing.assert_allclose(probe.coef_, mean[None, :-1] / 2.0, atol=1e-9)
    np.testing.assert_allclose(probe.intercept_, mean[-1:], atol=1e-9)
    assert probe.n_shortened_ == (np.linalg.norm(X, axis=1) > 2).sum()
    odds = X @ probe.coef_[0] + probe.intercept_[0]
    np.testing.assert_allclose(probe.decision_function(X), odds)
    np.testing.assert_allclose(probe.predict_proba(X)[:, 1], 1 / (1 + np.exp(-odds)))


def test_batches_are_means() -> None:
    probe = OnlineProbe(
        lambda domain, horizon, bound: OnlineGradientDescent(domain, bound),
        radius=3.0,
        feature_bound=2.0,
        batch_size=128,
    ).partial_fit(X, Y)
    signed = rows(X, 2.0) * np.where(Y == "yes", 1, -1)[:, None]
    ball, w, losses = L2Ball(3.0, 5), np.zeros(5), []
    for t, part in enumerate((signed[:128], signed[128:256], signed[256:])):
        margins = part @ w
        losses.append(np.log1p(np.exp(-margins)).mean())
        slope = -(part / (1 + np.exp(margins))[:, None]).mean(0)
        w = ball.project(w - 6 / np.sqrt(t + 1) * slope)
    np.testing.assert_allclose(probe.round_losses_, losses)
    weighted = np.dot(losses, [128, 128, 44]) / 300
    assert probe.progressive_log_loss_ == pytest.approx(weighted)  # of rows, not of rounds


def test_fit_takes_one_random_pass() -> None:
    probe = OnlineProbe(random_state=3, batch_size=7).fit(X, Y)
    order = np.random.default_rng(3).permutation(300)
    bound = np.linalg.norm(X, axis=1).max()
    other = OnlineProbe(horizon=43, batch_size=7, feature_bound=bound).partial_fit(X[order], Y[order])
    np.testing.assert_array_equal(probe.coef_, other.coef_)
    assert len(probe.round_losses_) == 43
    assert probe.learner_.horizon == 43
    assert (probe.feature_bound_, probe.n_shortened_) == (bound, 0)
    again = OnlineProbe(random_state=3, batch_size=7).fit(X, Y)
    np.testing.assert_array_equal(probe.coef_, again.coef_)
    assert not np.array_equal(probe.coef_, OnlineProbe(random_state=4, batch_size=7).fit(X, Y).coef_)


def test_partial_fits_add_up_and_fit_starts_anew() -> None:
    parts = OnlineProbe(feature_bound=4.0, horizon=16)
    for a in range(0, 300, 60):
        parts.partial_fit(X[a : a + 60], Y[a : a + 60], classes=["no", "yes"])
    whole = OnlineProbe(feature_bound=4.0, horizon=16).partial_fit(X, Y)
    np.testing.assert_array_equal(parts.coef_, whole.coef_)
    assert parts.learner_.horizon == 256  # 16 + 32 + ... + 128 rounds are used up, and 60 of these played
    parts.random_state = 0
    np.testing.assert_array_equal(
        parts.fit(X, Y).coef_, OnlineProbe(feature_bound=4.0, random_state=0).fit(X, Y).coef_
    )


def test_streams_of_activations() -> None:
    source = TensorStream(torch.tensor(X, dtype=torch.float32), seed=1)
    is_yes = (Y == "yes").astype(int)

    def labels(batch):
        return is_yes[batch.doc_ids.numpy()]

    probe = OnlineProbe(batch_size=10, feature_bound=6.0, horizon=60)
    probe.fit_stream(source, labels, 20).fit_stream(source, labels, 40)
    assert source.epoch == 2
    other = OnlineProbe(batch_size=10, feature_bound=6.0, horizon=60)
    again = TensorStream(torch.tensor(X, dtype=torch.float32), seed=1)
    for _ in range(60):
        batch = again.next_batch(10)
        other.partial_fit(batch.values.numpy().astype(float), labels(batch), classes=[0, 1])
    np.testing.assert_array_equal(probe.coef_, other.coef_)
    assert probe.score(X, is_yes) > 0.8


def test_a_constant_zero_input_is_a_probe_of_the_base_rate() -> None:
    y = np.array([1] * 30 + [0] * 10)
    probe = OnlineProbe(random_state=0).fit(np.zeros((40, 2)), y)
    assert probe.feature_bound_ == 1.0
    np.testing.assert_array_equal(probe.coef_, [[0, 0]])
    assert probe.predict(np.zeros((3, 2))).tolist() == [1, 1, 1]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="learner = 'universl' is not known; did you mean 'universal'"):
        OnlineProbe("universl").fit(X, Y)
    with pytest.raises(ValueError, match=r"classes are .*'no'.*: a probe needs two"):
        OnlineProbe().partial_fit(X, np.full(300, "no"))
    with pytest.raises(ValueError, match=r"y holds .*'maybe'.*, not among classes"):
        OnlineProbe().partial_fit(X, Y).partial_fit(X[:2], ["maybe", "yes"])
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        OnlineProbe().fit(X, np.arange(300) % 3)
    for wrong in ("large", 0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=r"feature_bound = .* must be 'auto' or a positive number"):
            OnlineProbe(feature_bound=wrong).fit(X, Y)
    with pytest.raises(ValueError, match="radius = 0 must be a positive number"):
        OnlineProbe(radius=0).fit(X, Y)
    with pytest.raises(ValueError, match="batch_size = 0 must be at least 1"):
        OnlineProbe(batch_size=0).fit(X, Y)
    with pytest.raises(ValueError, match="horizon = 0 must be at least 1"):
        OnlineProbe(horizon=0).partial_fit(X, Y)
    narrow = OnlineProbe(batch_size=4).fit_stream(TensorStream(np.float32(X)), lambda batch: [0, 1, 0, 1], 1)
    with pytest.raises(ValueError, match=r"a batch has values of shape \(4, 2\) and labels of \(4,\)"):
        narrow.fit_stream(TensorStream(np.float32(X[:, :2])), lambda batch: [0, 1, 0, 1], 1)
    with pytest.raises(ValueError, match=r"labels of \(1,\); give rows of 4 numbers"):
        narrow.fit_stream(TensorStream(np.float32(X)), lambda batch: [0], 1)
    with pytest.raises(ValueError, match="n_batches = 0 must be at least 1"):
        OnlineProbe().fit_stream(TensorStream(np.float32(X)), lambda batch: Y, 0)
