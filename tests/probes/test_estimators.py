"""PolarProbe and StructuralProbe: the manners of an estimator, predictions, the choice of a weight."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from interp.probes.grammar import ControlledGrammar
from interp.probes.planted import planted_activations
from interp.probes.polar import PolarProbe
from interp.probes.scores import attachment_scores
from interp.probes.structural import StructuralProbe
from interp.probes.treebank import relation_types

TRAIN, TEST = ControlledGrammar().split(80, 20, seed=3)
RELATIONS = relation_types(TRAIN)
PLANTED = [
    planted_activations(trees, RELATIONS, direction=0.6, seed=i) for i, trees in enumerate((TRAIN, TEST))
]
ROWS = [[part.sentence(i)[0].numpy() for i in range(len(part))] for part in PLANTED]


@pytest.fixture(scope="module")
def fitted() -> PolarProbe:
    probe = PolarProbe(rank=40, angular_weight=5.0, lr=2e-2, max_epochs=40, root_weight=0.1)
    return probe.fit(ROWS[0], TRAIN)


def test_the_parts_of_a_fit(fitted: PolarProbe) -> None:
    d = ROWS[0][0].shape[1]
    assert fitted.projection_.shape == (d, 40)
    assert fitted.prototypes_.shape == (len(RELATIONS), 40)
    assert (fitted.mean_.shape, fitted.scale_.shape, fitted.relations_) == ((d,), (d,), RELATIONS)
    assert len(fitted.history_) == 40
    z = (ROWS[1][2] - fitted.mean_) / fitted.scale_ @ fitted.projection_
    assert np.allclose(fitted.transform(ROWS[1])[2], z, atol=1e-3)


def test_predictions_and_their_score(fitted: PolarProbe) -> None:
    predicted = fitted.predict(ROWS[1])
    assert fitted.score(ROWS[1], TEST) == attachment_scores(predicted, TEST).las
    assert fitted.score(ROWS[1], TEST) > 0.5
    gold = [[(head, word) for head, word, _ in tree.edges()] for tree in TEST]
    named = fitted.predict_relations(ROWS[1], gold)
    right = [
        a == r
        for names, tree in zip(named, TEST, strict=True)
        for a, (_, _, r) in zip(names, tree.edges(), strict=True)
    ]
    assert np.mean(right) > 0.9


def test_rooted_predictions_are_trees(fitted: PolarProbe) -> None:
    for edges, tree in zip(fitted.predict(ROWS[1], rooted=True), TEST, strict=True):
        dependents = [word for _, word, _ in edges]
        assert len(edges) == len(set(dependents)) == len(tree) - 1


def test_it_works_in_scikit_learn(fitted: PolarProbe) -> None:
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(ROWS[1])
    with pytest.raises(ValueError, match="'ranks' is no parameter"):
        copy.set_params(ranks=3)
    assert "angular_weight" not in clone(StructuralProbe(rank=3)).get_params()


def test_validation_chooses_among_weights() -> None:
    probe = PolarProbe(rank=16, angular_weight=(0.0, 5.0), lr=2e-2, max_epochs=15)
    with pytest.raises(ValueError, match="give validation sentences"):
        probe.fit(ROWS[0], TRAIN)
    assert probe.fit(ROWS[0], TRAIN, validation=(ROWS[1], TEST)).angular_weight_ == 5.0


def test_structural_probe_predicts_distances_and_depths() -> None:
    train, test = ControlledGrammar().split(200, 20, seed=3)
    planted = [planted_activations(t, RELATIONS, direction=0.6, seed=i) for i, t in enumerate((train, test))]
    seen, unseen = ([part.sentence(i)[0].numpy() for i in range(len(part))] for part in planted)
    distance = StructuralProbe(rank=32, lr=2e-2, max_epochs=30).fit(seen, train)
    errors = [
        np.abs(d - t.distances()).mean()
        for d, t in zip(distance.predict_distances(unseen), test, strict=True)
    ]
    assert np.mean(errors) < 1.2  # 0.53
    assert distance.angular_weight == 0.0
    depth = StructuralProbe(rank=32, lr=2e-2, max_epochs=30, target="depth").fit(seen, train)
    gaps = [np.abs(d - t.depths).mean() for d, t in zip(depth.predict_depths(unseen), test, strict=True)]
    assert np.mean(gaps) < 1.2  # 0.57
    with pytest.raises(ValueError, match="did you mean 'depth'"):
        StructuralProbe(target="dept").fit(ROWS[0], TRAIN)


def test_refusals_name_the_sentence() -> None:
    with pytest.raises(ValueError, match="sentence 0: activations of"):
        PolarProbe(rank=4).fit(ROWS[0][1:], TRAIN[:-1])
    with pytest.raises(ValueError, match="rank=4000"):
        PolarProbe(rank=4000).fit(ROWS[0], TRAIN)
    with pytest.raises(ValueError, match="no sentences"):
        PolarProbe().fit([], [])
