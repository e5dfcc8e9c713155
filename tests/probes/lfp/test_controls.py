"""Controls: what reads nothing must be at chance, and what leaks must show it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from interp.probes.lfp.controls import bag_of_words, feedback_controls, words_alone
from interp.probes.lfp.probe import TripleFeatures
from tests.probes.lfp.sparse_codes import coded


@pytest.fixture(scope="module")
def controls():
    world = coded(noise=0.1)
    base = coded(noise=0.1, strength=0.0, seed=5).features
    raw = TripleFeatures(*(part + 0.5 for part in world.features))
    return feedback_controls(
        world.triples, world.features, base=base, raw=raw, lexicon=world.lexicon, n_bootstrap=200
    )


def test_the_planted_signal_is_read_and_its_controls_are_at_chance(controls) -> None:
    assert controls["tuned"].tau.value >= 0.85
    assert controls["raw activations"].tau.value == pytest.approx(controls["tuned"].tau.value, abs=0.02)
    assert controls["direct supervision"].tau.value >= 0.95
    assert abs(controls["base model"].tau.value) <= 0.2
    assert abs(controls["shuffled labels"].tau.value) <= 0.1
    assert controls["shuffled labels"].sign_accuracy.value <= 0.62
    assert 0.3 < controls["base model"].sign_accuracy.value < 0.7
    assert abs(controls["random probe"].tau.value) < 0.5
    interval = controls["shuffled labels"].tau.interval
    assert interval.low < 0 < interval.high


def test_words_alone_show_what_a_split_by_texts_leaks(controls) -> None:
    assert controls["words alone, split by texts"].sign_accuracy.value >= 0.95
    assert controls["words alone, split by texts"].tau.value > 0.6
    assert abs(controls["words alone"].tau.value) <= 0.2


def test_one_template_leaves_nothing_but_the_word() -> None:
    world = coded(n=200)
    held_out = words_alone(world.features, world.triples, world.lexicon)
    assert 0.2 < held_out.agreement(n_bootstrap=5).sign_accuracy.value < 0.8


def test_a_table_a_frame_and_a_figure(controls) -> None:
    text = str(controls)
    assert text.splitlines()[1].startswith("tuned ")
    assert "words alone, split by texts" in text
    frame = controls.to_frame()
    assert frame.loc["tuned", "tau"] == controls["tuned"].tau.value
    json.dumps(controls.to_dict(), allow_nan=False)
    figure = controls.plot()
    assert [ax.get_title() for ax in figure.axes] == ["sign accuracy", "Kendall's tau"]
    assert len(figure.axes[0].patches) == len(controls.rows)


def test_the_bag_counts_words() -> None:
    assert bag_of_words(["it was so so", "It was good"]).tolist() == [[0, 1, 2, 1], [1, 1, 0, 1]]


def test_the_same_seed_gives_the_same_table() -> None:
    world = coded(n=150, noise=0.2)
    tables = [
        feedback_controls(
            world.triples, world.features, lexicon=world.lexicon, n_draws=2, n_bootstrap=5, seed=seed
        ).to_dict()
        for seed in (3, 3, 4)
    ]
    assert tables[0] == tables[1]
    assert tables[0] != tables[2]
    assert np.isfinite(tables[0]["tuned"]["tau"]).all()
