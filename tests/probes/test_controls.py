"""Controls: what they keep, what they destroy, and baselines counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.probes.controls import (
    linear_order_scores,
    position_activations,
    random_weights,
    shuffle_relations,
)
from interp.probes.grammar import ControlledGrammar
from interp.probes.treebank import DependencyTree

TREES = ControlledGrammar().sample(80, seed=0)


def test_random_weights_keep_the_architecture_only(tiny_llama: LanguageModel) -> None:
    state = torch.get_rng_state()
    fresh, again, other = (random_weights(tiny_llama, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert (fresh.n_layers, fresh.d_model, fresh.tokenizer) == (3, 32, tiny_llama.tokenizer)
    assert "random weights" in fresh.name
    ids = torch.arange(8)[None]
    outputs = [m.activations(ids, "resid_post.2")["resid_post.2"] for m in (fresh, again, other, tiny_llama)]
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.allclose(outputs[0], outputs[2], atol=1e-3)
    assert not torch.allclose(outputs[0], outputs[3], atol=1e-3)


def test_positions_know_nothing_but_the_place() -> None:
    words = position_activations(TREES, 16)
    same = [i for i, tree in enumerate(TREES) if len(tree) == len(TREES[0])]
    assert len(same) > 1
    assert all(torch.equal(words.sentence(i), words.sentence(same[0])) for i in same)
    assert not torch.allclose(words.sentence(0)[0, 0], words.sentence(0)[0, 1])
    with pytest.raises(ValueError, match="multiple of 4"):
        position_activations(TREES, 6)


def test_the_control_task_is_a_function_of_the_word_form() -> None:
    shuffled = shuffle_relations(TREES, seed=1)
    labels: dict[str, set[str]] = {}
    for tree, before in zip(shuffled, TREES, strict=True):
        assert (tree.words, tree.heads) == (before.words, before.heads)
        for _, word, relation in tree.edges():
            labels.setdefault(tree.words[word], set()).add(relation)
    assert all(len(kinds) == 1 for kinds in labels.values())
    assert shuffled == shuffle_relations(TREES, seed=1)
    changed = [
        a != b
        for t, u in zip(TREES, shuffled, strict=True)
        for a, b in zip(t.edges(), u.edges(), strict=True)
    ]
    assert 0.5 < np.mean(changed) < 1


def test_linear_order_counted_by_hand() -> None:
    # Neighbours in training: (1, 0, det) twice, (1, 2, obj) once: link every word to the next, right to left, det.
    train = [
        DependencyTree(("a", "b", "c"), (1, -1, 1), ("det", "root", "obj")),
        DependencyTree(("a", "b"), (1, -1), ("det", "root")),
    ]
    test = [DependencyTree(("a", "b", "c", "d"), (1, -1, 1, 1), ("det", "root", "obj", "obl"))]
    scores = linear_order_scores(train, test)
    assert (scores.uuas, scores.uas, scores.las) == pytest.approx((2 / 3, 1 / 3, 1 / 3))
