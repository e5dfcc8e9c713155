"""Acceptance B, the guarantees of the fitted mixtures, seldom options against plain ones, scikit-learn's own checks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from classic_ml.invariance import (
    AugmentedERM,
    BestResponseTransformClassifier,
    ScaleColumns,
    Shift,
    Unchanged,
    WorstCaseTransformClassifier,
    err_matrix,
    error_table,
    game_value,
    worst_of,
)

SCALES = [ScaleColumns(c, [1]) for c in (1, 0.9, 1.1, 0.8, -1)]


def spurious(rng: np.random.Generator, m: int) -> tuple[np.ndarray, np.ndarray]:
    y = rng.choice([-1, 1], m)
    x1 = y + rng.standard_normal(m)
    return np.c_[x1, 2 * y + 0.5 * rng.standard_normal(m)], y


@pytest.fixture(scope="module")
def acceptance_b():
    rng = np.random.default_rng(0)
    X, y = spurious(rng, 1000)
    X_test, y_test = spurious(rng, 20000)
    fitted = {
        "plain": LogisticRegression().fit(X, y),
        "augmented": AugmentedERM(LogisticRegression(), SCALES).fit(X, y),
        "worst case": WorstCaseTransformClassifier(LogisticRegression(), SCALES, n_rounds=100).fit(X, y),
        "regret": WorstCaseTransformClassifier(
            LogisticRegression(), SCALES, n_rounds=10, objective="regret"
        ).fit(X, y),
    }
    measured = {name: fitted[name] for name in ("plain", "augmented", "worst case")}
    return X, y, X_test, y_test, fitted, error_table(measured, SCALES, X_test, y_test)


def test_acceptance_b(acceptance_b) -> None:
    *_, table = acceptance_b
    worst = dict(zip(table.predictors, table.worst, strict=True))
    assert worst["plain"] >= 0.95
    assert 0.28 <= worst["augmented"] <= 0.40
    assert worst["worst case, mixture"] <= 0.20
    assert worst["worst case"] <= 0.18
    assert worst["worst case"] >= norm.cdf(-1) - table.gap()  # nobody linear does better


def test_majority_errs_at_most_twice_as_often(acceptance_b) -> None:
    *_, fitted, table = acceptance_b
    model = fitted["worst case"]
    assert (model.vote_errors_ <= 2 * model.mixture_errors_ + 1e-12).all()
    rows = dict(zip(table.predictors, table.errors, strict=True))
    assert (rows["worst case"] <= 2 * rows["worst case, mixture"] + 1e-12).all()


def test_attributes_say_what_they_mean(acceptance_b) -> None:
    X, y, *_, fitted, _ = acceptance_b
    model = fitted["worst case"]
    errors = err_matrix(model.estimators_, SCALES, X, y)
    assert model.mixture_errors_ == pytest.approx(errors.mean(0))
    assert model.worst_case_error_ == pytest.approx(errors.mean(0).max())
    assert model.vote_errors_ == pytest.approx(err_matrix([model], SCALES, X, y)[0])
    assert model.game_.costs == pytest.approx(errors)
    assert model.transform_weights_.shape == (100, 5)
    assert model.worst_case_error_ <= model.bound_
    assert model.bound_ == pytest.approx(model.game_.played + math.sqrt(math.log(5) / 200))
    # Each round's weights are those of the rule, from the 0-1 errors before it.
    eta = math.sqrt(8 * math.log(5) / 100)
    grown = np.exp(eta * errors[:41].sum(0))
    assert model.transform_weights_[41] == pytest.approx(grown / grown.sum())
    assert model.mixture_error(X, y) == pytest.approx(errors.mean(0)[0])
    assert model.game_.worst >= game_value(errors).value - 1e-12
    assert model.to_frame().mixture.tolist() == pytest.approx(model.mixture_errors_.tolist())
    assert len(model.plot().axes) == 2


def test_oracle_of_logistic_regression_is_near_an_oracle(acceptance_b) -> None:
    """It minimises a surrogate: its gaps are positive now and then, never by more than a percent here."""
    *_, fitted, _ = acceptance_b
    assert fitted["worst case"].oracle_gap_.max() <= 0.02
    assert fitted["worst case"].oracle_gap_[0] == 0


def test_regret_is_measured_from_the_best_for_each(acceptance_b) -> None:
    X, y, *_, fitted, _ = acceptance_b
    model = fitted["regret"]
    alone = [LogisticRegression().fit(T(X), y) for T in SCALES]
    best = np.diag(err_matrix(alone, SCALES, X, y))
    assert model.best_errors_ == pytest.approx(best)
    errors = err_matrix(model.estimators_, SCALES, X, y)
    assert model.game_.costs == pytest.approx(errors - best)
    assert model.mixture_errors_ == pytest.approx(errors.mean(0))
    assert model.game_.worst <= model.bound_


def test_weights_of_a_round_have_the_total_of_the_rows() -> None:
    """Copies of the identity must leave a regularised learner as it is, whatever K."""
    X, y = spurious(np.random.default_rng(1), 60)
    X[:, 1] *= 0.1
    plain = LogisticRegression(C=0.01, tol=1e-10).fit(X, y)
    for copies in (1, 4):
        family = [Unchanged()] * copies
        augmented = AugmentedERM(LogisticRegression(C=0.01, tol=1e-10), family).fit(X, y)
        game = WorstCaseTransformClassifier(LogisticRegression(C=0.01, tol=1e-10), family, n_rounds=2).fit(
            X, y
        )
        for fitted in (augmented.estimator_, game.estimators_[0], game.estimators_[1]):
            assert fitted.coef_ == pytest.approx(plain.coef_, rel=1e-5)


def test_one_transformation_is_plain_erm() -> None:
    X, y = spurious(np.random.default_rng(2), 80)
    model = WorstCaseTransformClassifier(LogisticRegression(), include_identity=True).fit(X, y)
    assert len(model.estimators_) == 1
    assert model.predict(X).tolist() == LogisticRegression().fit(X, y).predict(X).tolist()
    assert model.transform_weights_.tolist() == [[1.0]]
    assert model.bound_ == model.worst_case_error_


def test_identity_is_not_added_silently() -> None:
    X, y = spurious(np.random.default_rng(3), 80)
    flipped = [ScaleColumns(-1, [1])]
    alone = WorstCaseTransformClassifier(LogisticRegression(), flipped).fit(X, y)
    both = WorstCaseTransformClassifier(LogisticRegression(), flipped, n_rounds=5, include_identity=True).fit(
        X, y
    )
    assert len(alone.transforms_) == 1
    assert alone.score(X, y) < 0.2  # it has only seen the flipped rows
    assert both.transform_names_ == ["ScaleColumns(-1)", "identity"]


def test_augmentation_is_enough_in_the_realisable_case() -> None:
    rng = np.random.default_rng(4)
    y = rng.choice([-1, 1], 200)
    X = np.c_[y * rng.uniform(1, 2, 200), 3 * y + rng.standard_normal(200)]
    tree = DecisionTreeClassifier(random_state=0)
    augmented = AugmentedERM(tree, SCALES).fit(X, y)
    assert augmented.worst_case_error_ == 0
    assert augmented.errors_.tolist() == [0] * 5


def test_arrays_stand_for_functions() -> None:
    X, y = spurious(np.random.default_rng(5), 100)
    arrays = [T(X) for T in SCALES]
    for make in (
        lambda family: WorstCaseTransformClassifier(LogisticRegression(), family, n_rounds=5),
        lambda family: WorstCaseTransformClassifier(
            LogisticRegression(), family, n_rounds=5, oracle_mode="resample", random_state=0
        ),
        lambda family: AugmentedERM(LogisticRegression(), family, n_augment=2, random_state=0),
    ):
        by_array, by_function = make(arrays).fit(X, y), make(SCALES).fit(X, y)
        assert by_array.predict_proba(X) == pytest.approx(by_function.predict_proba(X))
    stacked = WorstCaseTransformClassifier(LogisticRegression(), np.stack(arrays), n_rounds=5).fit(X, y)
    assert len(stacked.transforms_) == 5
    with pytest.raises(ValueError, match=r"transforms\[0\] \(T_0\) holds rows of shape \(100, 2\)"):
        make(arrays).fit(X[:50], y[:50])


def test_resampling_nears_weighting() -> None:
    X, y = spurious(np.random.default_rng(6), 400)
    options = {"n_rounds": 20, "random_state": 0}
    weighted = WorstCaseTransformClassifier(LogisticRegression(), SCALES, **options).fit(X, y)
    drawn = WorstCaseTransformClassifier(LogisticRegression(), SCALES, oracle_mode="resample", **options).fit(
        X, y
    )
    streamed = WorstCaseTransformClassifier(
        LogisticRegression(), SCALES, oracle_mode="resample", max_entries=1, **options
    ).fit(X, y)
    assert drawn.worst_case_error_ == pytest.approx(weighted.worst_case_error_, abs=0.04)
    assert streamed.mixture_errors_ == pytest.approx(drawn.mixture_errors_, abs=1e-12)
    assert streamed.vote_errors_ == pytest.approx(drawn.vote_errors_, abs=1e-12)


def test_resampling_serves_learners_without_weights() -> None:
    X, y = spurious(np.random.default_rng(7), 150)
    for learner in (KNeighborsClassifier(15), make_pipeline(StandardScaler(), GaussianNB())):
        with pytest.raises(ValueError, match=r"takes no sample_weight.*oracle_mode='resample'"):
            WorstCaseTransformClassifier(learner, SCALES).fit(X, y)
        model = WorstCaseTransformClassifier(
            learner, SCALES, n_rounds=10, oracle_mode="resample", random_state=0
        ).fit(X, y)
        assert model.worst_case_error_ <= model.bound_
        assert AugmentedERM(learner, SCALES).fit(X, y).score(X, y) > 0.6


def test_a_draw_without_a_class_still_votes() -> None:
    """One row of a rare class: most draws of the rows miss it."""
    rng = np.random.default_rng(8)
    X, y = rng.standard_normal((12, 2)), np.array([0] * 11 + [1])
    model = WorstCaseTransformClassifier(
        GaussianNB(), [Unchanged()], n_rounds=12, oracle_mode="resample", random_state=0
    ).fit(X, y)
    assert any(len(member.classes_) == 1 for member in model.estimators_)
    assert model.predict_proba(X).sum(1) == pytest.approx(1)
    assert model.predict_votes(X).shape == (12, 2)


def test_voting() -> None:
    X, y = spurious(np.random.default_rng(9), 200)
    named = np.where(y > 0, "yes", "no")
    fitted = {
        voting: WorstCaseTransformClassifier(
            LogisticRegression(), SCALES, n_rounds=20, voting=voting, random_state=3
        ).fit(X, named)
        for voting in ("majority", "random", "soft")
    }
    votes = np.stack([member.predict(X) == "yes" for member in fitted["majority"].estimators_])
    shares = fitted["majority"].predict_votes(X)
    assert shares[:, 1] == pytest.approx(votes.mean(0))
    assert (fitted["majority"].predict(X) == np.where(votes.mean(0) > 0.5, "yes", "no")).all()
    probabilities = np.mean([m.predict_proba(X) for m in fitted["soft"].estimators_], axis=0)
    assert fitted["soft"].predict_proba(X) == pytest.approx(probabilities)
    assert (fitted["soft"].predict(X) == np.array(["no", "yes"])[probabilities.argmax(1)]).all()
    drawn = fitted["random"].predict(X)
    assert drawn.tolist() == fitted["random"].predict(X).tolist()
    certain = np.isin(shares[:, 1], (0, 1))
    assert certain.any()
    assert not certain.all()
    assert (drawn[certain] == fitted["majority"].predict(X)[certain]).all()
    many = np.repeat(X[~certain][:1], 4000, 0)  # a member drawn a row: its labels follow the shares
    share = fitted["majority"].predict_votes(many[:1])[0, 1]
    assert (fitted["random"].predict(many) == "yes").mean() == pytest.approx(share, abs=0.05)


def test_more_than_two_classes() -> None:
    rng = np.random.default_rng(10)
    centres = np.array([[0, 0], [6, 0], [0, 6]])
    y = rng.integers(3, size=150)
    X = centres[y] + rng.standard_normal((150, 2))
    shifts = [Shift([1, 1], c) for c in (-2, 0, 2)]
    model = WorstCaseTransformClassifier(LogisticRegression(), shifts, n_rounds=15).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert (model.vote_errors_ <= 2 * model.mixture_errors_ + 1e-12).all()
    assert model.worst_case_error_ < 0.3


def test_sampler_and_seeds() -> None:
    X, y = spurious(np.random.default_rng(11), 100)

    def sampler(rng: np.random.Generator) -> ScaleColumns:
        return ScaleColumns(rng.uniform(-1, 1), [1])

    def make(seed):
        return WorstCaseTransformClassifier(
            DecisionTreeClassifier(max_depth=2, max_features=1),
            sampler,
            n_transforms=6,
            n_rounds=5,
            random_state=seed,
        ).fit(X, y)

    one, same, other = make(0), make(0), make(1)
    assert [t.factor for t in one.transforms_] == [t.factor for t in same.transforms_]
    assert (one.predict_votes(X) == same.predict_votes(X)).all()  # the trees' own draws too
    assert [t.factor for t in one.transforms_] != [t.factor for t in other.transforms_]
    thrice = AugmentedERM(LogisticRegression(), sampler, n_transforms=4, n_augment=3, random_state=0)
    assert clone(thrice).fit(X, y).errors_.tolist() == thrice.fit(X, y).errors_.tolist()


def test_augmentation_draws_a_transformation_a_row() -> None:
    seen = {}

    class Spy(GaussianNB):
        def fit(self, X, y, sample_weight=None):
            seen.update(X=X, y=y, weight=sample_weight)
            return super().fit(X, y, sample_weight)

    X = np.ones((400, 1))
    y = np.arange(400) % 2
    AugmentedERM(Spy(), [ScaleColumns(k) for k in (1, 2, 3)], n_augment=2, random_state=0).fit(X, y)
    assert seen["X"].shape == (800, 1)
    counts = np.bincount(seen["X"][:, 0].astype(int), minlength=4)[1:]
    assert (abs(counts - 800 / 3) < 6 * math.sqrt(800 * 2 / 9)).all()
    assert seen["weight"].sum() == pytest.approx(400)
    assert seen["y"].tolist() == np.tile(y, 2).tolist()


def test_tolerance_stops_early() -> None:
    X, y = spurious(np.random.default_rng(12), 300)
    model = WorstCaseTransformClassifier(LogisticRegression(), SCALES, n_rounds=300, tol=0.1).fit(X, y)
    assert len(model.estimators_) == len(model.transform_weights_) < 300
    assert model.game_.gap <= 0.1


def test_best_response_finds_the_flip() -> None:
    X, y = spurious(np.random.default_rng(13), 400)
    model = BestResponseTransformClassifier(LogisticRegression(), worst_of(SCALES), n_rounds=12).fit(X, y)
    errors = err_matrix(model.estimators_, SCALES, X, y)
    assert model.worst_errors_ == pytest.approx(errors.max(1))
    assert model.estimators_[0].coef_ == pytest.approx(LogisticRegression().fit(X, y).coef_)
    assert model.worst_errors_[0] > 0.9
    assert model.worst_errors_[model.best_round_] == errors.max(1).min() < 0.25
    assert model.to_frame().worst.tolist() == model.worst_errors_.tolist()
    # Round r + 1 is fitted to what was named in rounds 1..r, with a total weight of m.
    rows = np.concatenate([T(X) for T in model.transforms_[:2]])
    third = LogisticRegression().fit(rows, np.tile(y, 2), sample_weight=np.full(800, 0.5))
    assert model.estimators_[2].coef_ == pytest.approx(third.coef_)
    assert model.played_errors_[2] == pytest.approx((third.predict(rows) != np.tile(y, 2)).mean())
    stopped = BestResponseTransformClassifier(LogisticRegression(), worst_of(SCALES), tol=0.2).fit(X, y)
    assert len(stopped.estimators_) < 12
    assert stopped.worst_errors_[-1] - stopped.played_errors_[-1] <= 0.2
    assert 0 < stopped.mixture_error(X, y) < 0.5


def test_best_response_over_a_continuous_family() -> None:
    """Shifts of any size in [-2, 2] along x2: the exact answer for a linear predictor is at an end or between."""
    X, y = spurious(np.random.default_rng(14), 300)
    grid = [Shift([0, 1], c) for c in np.linspace(-2, 2, 41)]
    model = BestResponseTransformClassifier(LogisticRegression(), worst_of(grid), n_rounds=8).fit(X, y)
    plain = err_matrix([LogisticRegression().fit(X, y)], grid, X, y).max()
    assert model.worst_errors_[model.best_round_] < plain


@pytest.mark.parametrize(
    "model",
    [
        WorstCaseTransformClassifier(LogisticRegression(), [Unchanged(), ScaleColumns(0.9)], n_rounds=2),
        AugmentedERM(LogisticRegression(), [Unchanged(), ScaleColumns(0.9)]),
        BestResponseTransformClassifier(LogisticRegression(), worst_of([ScaleColumns(0.9)]), n_rounds=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scikit_learn(model) -> None:
    check_estimator(model)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"transforms": []}, ValueError, "transforms is empty"),
        ({"transforms": [lambda X: X[1:]]}, ValueError, "a transformation keeps rows and columns"),
        ({"estimator": LogisticRegression}, TypeError, "must be a classifier such as"),
        ({"estimator": None}, TypeError, "must be a classifier such as"),
        ({"voting": "most"}, ValueError, "voting = 'most'"),
        ({"objective": "loss"}, ValueError, "objective = 'loss'"),
        ({"oracle_mode": "exact"}, ValueError, "oracle_mode = 'exact'"),
        ({"n_rounds": 0}, ValueError, "n_rounds = 0"),
        ({"eps": 0}, ValueError, "eps = 0 must be positive"),
        ({"tol": -1}, ValueError, "tol = -1"),
        ({"max_entries": 0}, ValueError, "max_entries = 0"),
        ({"max_entries": 5}, ValueError, "set oracle_mode='resample'"),
        ({"n_transforms": 3}, ValueError, "n_transforms = 3 is for a sampler"),
        ({"estimator": LinearSVC(), "voting": "soft"}, ValueError, "voting = 'soft' needs probabilities"),
    ],
)
def test_what_is_refused(arguments, error, message: str) -> None:
    X, y = spurious(np.random.default_rng(0), 20)
    given = {"estimator": LogisticRegression(), "transforms": SCALES} | arguments
    with pytest.raises(error, match=message):
        WorstCaseTransformClassifier(**given).fit(X, y)


def test_what_else_is_refused() -> None:
    X, y = spurious(np.random.default_rng(0), 20)
    with pytest.raises(ValueError, match="one class only"):
        WorstCaseTransformClassifier(LogisticRegression(), SCALES).fit(X, np.ones(20))
    with pytest.raises(ValueError, match="n_augment = 0"):
        AugmentedERM(LogisticRegression(), SCALES, n_augment=0).fit(X, y)
    with pytest.raises(ValueError, match="n_augment=1 to augment"):
        AugmentedERM(LogisticRegression(), SCALES, max_entries=5).fit(X, y)
    with pytest.raises(TypeError, match="worst_transform = None"):
        BestResponseTransformClassifier(LogisticRegression()).fit(X, y)
    with pytest.raises(ValueError, match="takes no sample_weight"):
        BestResponseTransformClassifier(KNeighborsClassifier(), worst_of(SCALES)).fit(X, y)
    with pytest.raises(ValueError, match="transforms is empty"):
        worst_of([])
    fitted = WorstCaseTransformClassifier(LinearSVC(), SCALES, n_rounds=2).fit(X, y)
    assert not hasattr(fitted, "predict_proba")
    with pytest.raises(ValueError, match="X has 20 rows and y 3 labels"):
        fitted.mixture_error(X, y[:3])
