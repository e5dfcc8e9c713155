"""The layer sweep: one vector a layer, each measured as if alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interp.models.language_model import LanguageModel
from interp.steering.extraction import extract
from interp.steering.layers import SWEEP_MULTIPLIERS, best_layer, layer_sweep
from interp.steering.propensity import propensity_curve
from interp.steering.steerability_plots import plot_sweeps
from tests.steering.linear import LAST, linear_model, pairs, slope

TRAIN, TEST = pairs(0, 4), pairs(4, 3)


@pytest.fixture(scope="module")
def model(tiny_tokenizer: Any) -> LanguageModel:
    return linear_model(tiny_tokenizer)


def test_a_sweep_is_its_layers_one_by_one(model: LanguageModel) -> None:
    sweep = layer_sweep(model, TRAIN, TEST, progress=False)
    assert sweep.layers == (0, 1, 2)
    for layer in sweep.layers:
        vector = extract(model, TRAIN, layer)
        curve = propensity_curve(model, TEST, vector, multipliers=SWEEP_MULTIPLIERS, progress=False)
        np.testing.assert_allclose(sweep.curves[layer].values, curve.values, atol=1e-4)
    assert sweep.steerability[LAST].mean == pytest.approx(slope(model, sweep.vector), abs=1e-4)
    assert sweep.best == max(sweep.layers, key=lambda n: sweep.curves[n].steerability().mean)
    assert f"best: {sweep.best}" in str(sweep)
    assert sweep.to_frame().loc[LAST, "anti_fraction"] == sweep.steerability[LAST].anti_fraction


def test_the_figures_show_the_slopes(model: LanguageModel) -> None:
    sweep = layer_sweep(model, TRAIN, TEST, progress=False)
    left, right, *_ = sweep.plot().axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), [s.mean for s in sweep.steerability.values()])
    assert right.images[0].get_array().shape == (len(SWEEP_MULTIPLIERS), 3)
    heat = plot_sweeps({"a": sweep, "b": sweep}).axes[0].images[0].get_array()
    np.testing.assert_allclose(heat[1], [s.mean for s in sweep.steerability.values()])


def test_one_layer_is_chosen_over_data_sets(model: LanguageModel) -> None:
    a, b = layer_sweep(model, TRAIN, TEST, progress=False), layer_sweep(model, TEST, TRAIN, progress=False)
    means = [a.steerability[n].mean + b.steerability[n].mean for n in a.layers]
    assert best_layer({"a": a, "b": b}) == int(np.argmax(means))
    with pytest.raises(ValueError, match="different layers"):
        best_layer({"a": a, "b": layer_sweep(model, TRAIN, TEST, layers=[0], progress=False)})
    with pytest.raises(ValueError, match="at least one layer sweep"):
        best_layer({})


def test_training_pairs_are_not_for_testing(model: LanguageModel) -> None:
    with pytest.raises(ValueError, match="in both parts"):
        layer_sweep(model, TRAIN, TRAIN, progress=False)
