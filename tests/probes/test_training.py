"""Training: together as alone, against a loop written out, validation, resuming, refusals."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from interp.core.device import make_generator
from interp.probes.bank import ProbeBank, ProbeSpec
from interp.probes.grammar import ControlledGrammar
from interp.probes.planted import planted_activations
from interp.probes.training import ProbeTraining, fit_probes, without_training
from interp.probes.treebank import DependencyTree, relation_types
from interp.probes.words import WordActivations

TREES = ControlledGrammar().sample(60, seed=0)
HELD_OUT = ControlledGrammar().sample(20, seed=1, without=TREES)
RELATIONS = relation_types(TREES)
SHORT = ProbeTraining(lr=1e-2, batch_size=20, max_epochs=4, progress=False)


def layers(trees: list[DependencyTree], count: int = 3, seed: int = 0) -> WordActivations:
    """Layers that carry the geometry more or less clearly."""
    parts = [
        planted_activations(trees, RELATIONS, noise=0.05 + 0.5 * i, seed=seed, rotation_seed=i)
        for i in range(count)
    ]
    return WordActivations(
        torch.cat([part.values for part in parts]), tuple(range(count)), parts[0].starts, parts[0].kept
    )


WORDS = layers(TREES)


def test_probes_trained_together_are_those_trained_alone() -> None:
    specs = [
        ProbeSpec(0, 8),
        ProbeSpec(2, 4, angular=0.0, seed=3),
        ProbeSpec(1, 8, angular=5.0),
        ProbeSpec(2, 8, distance=0.0, root=0.5),
    ]
    together = fit_probes(WORDS, TREES, specs, SHORT).bank
    for place, spec in enumerate(specs):
        alone = fit_probes(WORDS, TREES, [spec], SHORT).bank
        k = spec.rank
        assert torch.allclose(together.weight[place, :, :k], alone.weight[0], atol=2e-5)
        assert torch.allclose(together.prototypes[place, :, :k], alone.prototypes[0], atol=2e-5)
        assert torch.allclose(together.centre[place, :k], alone.centre[0], atol=2e-5)
    # What lies beyond a probe's rank stays 0.
    assert float(together.weight[1, :, 4:].abs().max()) == 0.0


def test_structural_probe_agrees_with_a_loop_written_out() -> None:
    """Hewitt and Manning's loss, one sentence at a time with explicit differences, and plain Adam."""
    trees, words = TREES[:8], planted_activations(TREES[:8], RELATIONS)
    config = ProbeTraining(lr=1e-2, batch_size=8, max_epochs=25, standardize=False, progress=False)
    fitted = fit_probes(words, trees, [ProbeSpec(0, 5, angular=0.0)], config)

    d = words.d
    b = (torch.rand(5, d, generator=make_generator(0, "probe")) * 0.1 - 0.05).T.clone().requires_grad_()
    adam = torch.optim.Adam([b], lr=1e-2)
    for _ in range(25):
        loss = torch.zeros(())
        for index, tree in enumerate(trees):
            z = words.sentence(index)[0] @ b
            gap = z[:, None, :] - z[None, :, :]
            predicted = (gap * gap).sum(-1)
            loss = loss + (predicted - torch.tensor(tree.distances())).abs().sum() / len(tree) ** 2
        adam.zero_grad()
        (loss / len(trees)).backward()
        adam.step()
    assert torch.allclose(fitted.bank.weight[0], b, atol=1e-4)
    # Both are the loss of step 25, before its update.
    assert fitted.history.last["distance_loss"] == pytest.approx(loss.item() / len(trees), rel=1e-4)


def test_prototypes_are_mean_edges_of_the_training_trees() -> None:
    fitted = fit_probes(WORDS, TREES, [ProbeSpec(1, 6)], SHORT)
    z = fitted.bank.transform(WORDS)[0]
    sums: dict[str, list[torch.Tensor]] = {}
    for start, tree in zip(WORDS.starts.tolist(), TREES, strict=False):
        for head, word, relation in tree.edges():
            sums.setdefault(relation, []).append(z[start + head] - z[start + word])
    for place, relation in enumerate(fitted.bank.relations):
        assert torch.allclose(
            fitted.bank.prototypes[0, place], torch.stack(sums[relation]).mean(0), atol=1e-4
        )


def test_standardising_makes_scale_and_shift_irrelevant() -> None:
    generator = torch.Generator().manual_seed(0)
    scale, shift = (
        10 ** (4 * torch.rand(WORDS.d, generator=generator) - 2),
        torch.randn(WORDS.d, generator=generator),
    )
    moved = dataclasses.replace(WORDS, values=WORDS.values * scale + shift)
    specs = [ProbeSpec(0, 6)]
    plain, other = (fit_probes(w, TREES, specs, SHORT).bank for w in (WORDS, moved))
    assert torch.allclose(plain.transform(WORDS), other.transform(moved), atol=1e-3)
    z = plain.transform(WORDS)[0]
    assert torch.allclose(z.mean(0), torch.zeros(6), atol=1e-4)


def test_a_feature_that_never_varies_does_no_harm() -> None:
    values = WORDS.values.clone()
    values[:, :, 0] = 7.0
    bank = fit_probes(dataclasses.replace(WORDS, values=values), TREES, [ProbeSpec(0, 6)], SHORT).bank
    assert bool(bank.weight.isfinite().all())
    assert bank.scale[0, 0] == 1.0


def test_validation_keeps_each_probes_best_epoch() -> None:
    config = dataclasses.replace(SHORT, max_epochs=12, patience=2)
    validation = (layers(HELD_OUT, seed=9), HELD_OUT)
    specs = [ProbeSpec(layer, 8, angular=10.0) for layer in (0, 1, 2)]
    fitted = fit_probes(WORDS, TREES, specs, config, validation=validation)
    assert fitted.validation_scores is not None
    assert fitted.best_epochs is not None
    for probe, spec in enumerate(specs):
        scores = fitted.validation_scores[:, probe].tolist()
        # The first best one before the scores failed twice to rise.
        best, waited, epoch = -1.0, 0, 0
        for number, score in enumerate(scores, start=1):
            if waited == 2:
                break
            best, waited, epoch = (score, 0, number) if score > best else (best, waited + 1, epoch)
        assert fitted.best_epochs[probe] == epoch
        alone = fit_probes(WORDS, TREES, [spec], config, validation=validation)
        assert alone.best_epochs == (epoch,)
        assert torch.allclose(alone.bank.weight[0], fitted.bank.weight[probe], atol=1e-4)


def test_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    specs = [ProbeSpec(0, 6), ProbeSpec(1, 6)]
    validation = (layers(HELD_OUT, seed=9), HELD_OUT)
    whole = fit_probes(WORDS, TREES, specs, dataclasses.replace(SHORT, max_epochs=12), validation=validation)
    halves = dataclasses.replace(SHORT, out_dir=str(tmp_path))
    fit_probes(WORDS, TREES, specs, dataclasses.replace(halves, max_epochs=5), validation=validation)
    resumed = fit_probes(
        WORDS, TREES, specs, dataclasses.replace(halves, max_epochs=12), validation=validation
    )
    assert torch.equal(whole.bank.weight, resumed.bank.weight)
    assert whole.best_epochs == resumed.best_epochs
    with pytest.raises(ValueError, match="lr"):
        fit_probes(
            WORDS, TREES, specs, dataclasses.replace(halves, max_epochs=12, lr=0.5), validation=validation
        )
    longer, other = dataclasses.replace(halves, max_epochs=12), layers(TREES, seed=5)
    with pytest.raises(ValueError, match="training sentences"):
        fit_probes(other, TREES, specs, longer, validation=validation)
    with pytest.raises(ValueError, match="validation sentences"):
        fit_probes(WORDS, TREES, specs, longer, validation=(layers(HELD_OUT, seed=8), HELD_OUT))
    with pytest.raises(ValueError, match="standardize"):
        fit_probes(WORDS, TREES, specs, dataclasses.replace(longer, standardize=False), validation=validation)


def test_same_seed_same_probe() -> None:
    first, again, other = (
        fit_probes(WORDS, TREES, [ProbeSpec(0, 4, seed=seed)], SHORT).bank.weight for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=1e-3)


def test_a_lower_rank_starts_as_the_first_columns() -> None:
    wide, narrow = (ProbeBank([ProbeSpec(0, rank)], 10, (0,), ("a",)).weight for rank in (6, 2))
    assert torch.equal(wide[0, :, :2], narrow[0])
    assert 0.03 < float(wide.abs().max()) <= 0.05


def test_no_probe_is_the_standardised_activations() -> None:
    bank = without_training(WORDS, TREES, 1)
    z = bank.transform(WORDS)[0]
    rows = WORDS.values[1].double()
    expected = (rows - rows.mean(0)) / rows.std(0, correction=0)
    assert torch.allclose(z.double(), expected, atol=1e-4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"layer": 7}, "layer 7 is not among"),
        ({"layer": 0, "rank": 500}, "rank=500 is more than the"),
        ({"layer": 0, "rank": 0}, "rank = 0"),
        ({"layer": 0, "angular": -1.0}, "angular=-1"),
        ({"layer": 0, "distance": 0.0, "angular": 0.0}, "would learn nothing"),
    ],
)
def test_specs_that_are_refused(spec: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_probes(WORDS, TREES, [ProbeSpec(**{"rank": 4, **spec})], SHORT)  # type: ignore[arg-type]


def test_data_that_is_refused() -> None:
    spec = [ProbeSpec(0, 4)]
    with pytest.raises(ValueError, match="60 sentences for 59 trees"):
        fit_probes(WORDS, TREES[:-1], spec, SHORT)
    swapped = [TREES[1], TREES[0], *TREES[2:]]
    with pytest.raises(ValueError, match="sentence 0: activations of"):
        fit_probes(WORDS, swapped, spec, SHORT)
    broken = WORDS.values.clone()
    broken[0, 5, 5] = float("nan")
    with pytest.raises(ValueError, match="layer 0 hold NaN"):
        fit_probes(dataclasses.replace(WORDS, values=broken), TREES, spec, SHORT)
    one_type = [dataclasses.replace(tree, relations=("r",) * len(tree)) for tree in TREES]
    with pytest.raises(ValueError, match="two relation types"):
        fit_probes(WORDS, one_type, spec, SHORT)
    structural = fit_probes(WORDS, one_type, [ProbeSpec(0, 4, angular=0.0)], SHORT)
    assert np.isfinite(structural.history.last["loss"])
