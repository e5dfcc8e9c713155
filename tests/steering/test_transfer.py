"""Transfer between prompts: cells in closed form on the linear model, and the derived figures on planted tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from interp.models.language_model import LanguageModel
from interp.steering.extraction import extract
from interp.steering.prompts import variations
from interp.steering.propensity import PropensityResult, propensity_curve
from interp.steering.transfer import (
    Transfer,
    bernoulli_js,
    bernoulli_kl,
    cross_evaluate,
    generalisation,
    spearman,
)
from interp.steering.vector import SteeringVector
from tests.steering.linear import LAST, PERSONA, linear_model, pairs, slope

TRAIN, TEST = pairs(0, 4), pairs(4, 3)
PROMPTS = ("BASE", "SYS_POS", "SYS_NEG", "USER_POS", "USER_NEG")
LAMBDA = np.array([-1.0, 0.0, 1.0])


@pytest.fixture(scope="module")
def measured(tiny_tokenizer: Any) -> tuple[LanguageModel, Transfer]:
    model = linear_model(tiny_tokenizer)
    return model, cross_evaluate(model, TRAIN, TEST, LAST, progress=False)


def test_every_cell_has_its_closed_form(measured: tuple[LanguageModel, Transfer]) -> None:
    """Linear logits: what a vector does is the same under every prompt."""
    model, transfer = measured
    assert transfer.trained == (*PROMPTS, "mean")
    assert transfer.tested == PROMPTS
    expected = [slope(model, vector) for vector in transfer.vectors.values()]
    np.testing.assert_allclose(transfer.matrix, np.repeat(np.array(expected)[:, None], 5, axis=1), atol=1e-4)
    assert transfer.steerability("SYS_POS", "USER_NEG").mean == pytest.approx(expected[1], abs=1e-4)


def test_vectors_are_those_of_their_prompts_at_the_norm_of_base(
    measured: tuple[LanguageModel, Transfer],
) -> None:
    model, transfer = measured
    base = extract(model, TRAIN, LAST)
    torch.testing.assert_close(transfer.vectors["BASE"][LAST], base[LAST])
    for name, variation in variations(PERSONA).items():
        alone = extract(model, TRAIN, LAST, variation=variation)
        torch.testing.assert_close(transfer.vectors[name][LAST], alone.normalize(base)[LAST])
    raw = cross_evaluate(model, TRAIN, TEST, -1, rescale=False, with_mean=False, progress=False)
    mean = torch.stack([v[LAST] for v in raw.vectors.values()]).mean(0)
    torch.testing.assert_close(transfer.vectors["mean"][LAST], mean * base[LAST].norm() / mean.norm())


def test_shifts_compare_the_unsteered_model_on_the_same_samples(
    measured: tuple[LanguageModel, Transfer],
) -> None:
    model, transfer = measured
    still = SteeringVector({LAST: torch.zeros(32)})
    chosen = variations(PERSONA)
    a, b = (
        propensity_curve(model, TEST, still, multipliers=[0], variation=chosen[n], progress=False).unsteered
        for n in ("BASE", "USER_NEG")
    )
    assert transfer.shift()[0, 4] == pytest.approx(np.abs(a - b).mean(), abs=1e-4)
    np.testing.assert_allclose(transfer.shift(), transfer.shift().T)
    assert transfer.cosine()[0, 1] == pytest.approx(
        transfer.vectors["BASE"].cosine(transfer.vectors["SYS_POS"])[LAST]
    )


def planted(slopes: list[list[float]], unsteered: list[list[float]]) -> Transfer:
    """slopes [train test], unsteered propensities [test n]."""
    names = PROMPTS[: len(slopes)]

    def curve(s: float, start: list[float]) -> PropensityResult:
        values = np.array(start)[:, None] + s * LAMBDA
        return PropensityResult(LAMBDA, values, values, (0,), "answer_token", "", "add", 0, 1, 1)

    curves = {
        j: {k: curve(slopes[a][b], unsteered[b]) for a, k in enumerate(names)} for b, j in enumerate(names)
    }
    angle = np.linspace(0, 1, len(names)) ** 2  # no two differences alike
    vectors = {
        k: SteeringVector({0: torch.tensor([np.cos(x), np.sin(x)], dtype=torch.float32)})
        for k, x in zip(names, angle, strict=True)
    }
    return Transfer(curves, vectors, 0)


def test_relative_steerability_has_a_floor() -> None:
    """The second prompt's own vector reaches 0.2 < 0.25 only: its column is undefined."""
    transfer = planted([[2.0, 0.1], [1.0, 0.2]], [[0.0, 1.0], [2.0, -1.0]])
    np.testing.assert_allclose(transfer.relative(), [[1.0, np.nan], [0.5, np.nan]])
    np.testing.assert_allclose(transfer.relative(min_self=0.1), [[1.0, 0.5], [0.5, 1.0]])
    np.testing.assert_allclose(transfer.shift(), [[0, 2.0], [2.0, 0]])  # (|0 - 2| + |1 + 1|) / 2


def test_the_figures_show_the_cells() -> None:
    transfer = planted([[2.0, 1.0, 0.5], [1.0, 2.0, 0.5], [1.5, 1.0, 1.0]], [[0.0], [1.0], [3.0]])
    left, right, *_ = transfer.plot().axes
    np.testing.assert_allclose(left.images[0].get_array(), transfer.matrix)
    points = np.concatenate([np.asarray(c.get_offsets()) for c in right.collections])
    assert len(points) == 6
    assert [3.0, 0.5] in points.tolist()  # BASE under SYS_NEG: shift |0 - 3|, 0.5 / 1
    assert "BASE" in str(transfer)
    frame = transfer.to_frame()
    assert frame.loc[("BASE", "SYS_NEG"), "relative"] == pytest.approx(0.5)


def test_correlations_agree_with_scipy() -> None:
    rng = np.random.default_rng(0)
    slopes, unsteered = 1 + rng.random((5, 5)), rng.normal(size=(5, 4))
    transfer = planted(slopes.tolist(), unsteered.tolist())
    off = ~np.eye(5, dtype=bool)
    shift = np.abs(unsteered[:, None] - unsteered[None]).mean(-1)
    expected = stats.spearmanr((slopes / np.diag(slopes))[off], shift[off]).statistic
    assert transfer.correlations()["relative_vs_shift"] == pytest.approx(expected)
    means, angle, upper = unsteered.mean(1), np.linspace(0, 1, 5) ** 2, np.triu_indices(5, 1)
    cosine = np.cos(angle[:, None] - angle)
    expected = stats.spearmanr(cosine[upper], np.abs(means[:, None] - means)[upper]).statistic
    assert transfer.correlations()["cosine_vs_shift"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("base", "negative", "positive", "expected"),
    [
        (1.0, 0.0, 4.0, 0.25),
        (-1.0, 0.0, 4.0, 0.0),
        (9.0, 0.0, 4.0, 1.0),
        (3.0, 4.0, 0.0, 0.25),
        (9, 4, 0, 0.0),
    ],
)
def test_base_lies_between_the_prompts(
    base: float, negative: float, positive: float, expected: float
) -> None:
    ones = [[1.0] * 3] * 3
    transfer = planted(ones, [[base], [positive], [negative]])
    assert transfer.base_position() == pytest.approx(expected)
    with pytest.raises(ValueError, match="missing: USER_NEG, USER_POS"):
        transfer.base_position("USER")


def test_data_sets_are_ranked_in_and_out_of_distribution() -> None:
    start = [[0.0]] * 5
    transfers = {
        f"set {n}": planted((s * np.ones((5, 5)) + np.diag([0.1] * 5)).tolist(), start)
        for n, s in enumerate([0.5, 2.0, 1.0, -0.3])
    }
    result = generalisation(transfers)
    np.testing.assert_allclose(result.in_distribution, [0.6, 2.1, 1.1, -0.2])
    np.testing.assert_allclose(result.out_of_distribution["SYS_NEG -> USER_POS"], [0.5, 2.0, 1.0, -0.3])
    assert set(result.correlations().values()) == {1.0}
    assert result.agreement(result)["ID"] == 1.0
    assert "SYS_POS -> USER_NEG: +1.00" in str(result)
    drawn = result.plot().axes[0].collections
    assert [len(c.get_offsets()) for c in drawn] == [4] * 4
    with pytest.raises(ValueError, match="'small' was not measured under"):
        generalisation({"small": planted([[1.0]], [[0.0]])})


def test_distances_between_probabilities() -> None:
    p, q = np.array([0.5, 1.0]), np.array([0.25, 0.0])
    assert bernoulli_kl(p, q)[0] == pytest.approx(0.5 * np.log(2) + 0.5 * np.log(0.5 / 0.75))
    assert bernoulli_js(p, q)[1] == pytest.approx(np.log(2))
    np.testing.assert_allclose(bernoulli_js(p, q), bernoulli_js(q, p))
    transfer = planted([[1.0, 1.0], [1.0, 1.0]], [[0.0], [2.0]])
    sigmoid = 1 / (1 + np.exp(-np.array([0.0, 2.0])))
    assert transfer.shift("js")[0, 1] == pytest.approx(bernoulli_js(sigmoid[:1], sigmoid[1:])[0])


def test_spearman_needs_three_points_and_spread() -> None:
    assert np.isnan(spearman(np.array([1.0, 2.0]), np.array([1.0, 2.0])))
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))
    assert spearman(np.array([1.0, np.nan, 2.0, 5.0]), np.array([3.0, 0.0, 2.0, 1.0])) == -1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": TRAIN}, "in both parts"),
        ({"prompts": {"BASE": variations(None)["BASE"]}}, "at least two"),
        ({"multipliers": [-1.0, 1.0]}, "must hold 0"),
    ],
)
def test_what_is_no_transfer_is_refused(
    measured: tuple[LanguageModel, Transfer], changes: dict[str, Any], message: str
) -> None:
    given: dict[str, Any] = {"train": TRAIN, "test": TEST, "layer": LAST, "progress": False, **changes}
    with pytest.raises(ValueError, match=message):
        cross_evaluate(measured[0], **given)
