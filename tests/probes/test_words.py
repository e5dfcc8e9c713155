"""Word activations: those of each sentence by itself, whatever the batch, the store and the pooling."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.probes.alignment import align
from interp.probes.conllu_files import read_conllu, write_conllu
from interp.probes.treebank import DependencyTree
from interp.probes.words import WordActivations, layer_sites, word_activations
from tests.models.tiny import tiny_model

WORDS = ("the cat", "a dog that sees the cat", "he, don't", "the")
TREES = [
    DependencyTree(tuple(t.split()), (-1, *(0 for _ in t.split()[1:])), ("r",) * len(t.split()))
    for t in WORDS
]


@pytest.fixture(scope="module")
def model(tiny_tokenizer: Any) -> LanguageModel:
    return load_model(tiny_model("llama", max_position_embeddings=128), tokenizer=tiny_tokenizer)


def one_by_one(model: LanguageModel, pooling: str) -> list[torch.Tensor]:
    """[L n d] of every sentence, by the model's own front door."""
    sites = list(layer_sites(model).values())
    out = []
    for sentence in align(TREES, model.tokenizer):
        assert sentence is not None
        acts = model.activations(torch.tensor([sentence.ids]), sites)
        stacked = torch.stack([acts[site][0] for site in sites])
        choose = {"mean": lambda x: x.mean(1), "first": lambda x: x[:, 0], "last": lambda x: x[:, -1]}[
            pooling
        ]
        out.append(torch.stack([choose(stacked[:, list(tokens)]) for tokens in sentence.words], dim=1))
    return out


@pytest.mark.parametrize("pooling", ["mean", "first", "last"])
def test_batches_change_nothing(model: LanguageModel, pooling: str) -> None:
    words = word_activations(model, TREES, pooling=pooling, progress=False)
    assert words.layers == (0, 1, 2, 3)
    assert words.lengths.tolist() == [len(tree) for tree in TREES]
    for index, expected in enumerate(one_by_one(model, pooling)):
        assert torch.allclose(words.sentence(index), expected, atol=1e-5)


def test_layer_0_is_the_embedding_and_negative_layers_count_from_the_end(model: LanguageModel) -> None:
    words = word_activations(model, TREES, [0, -1], progress=False)
    assert words.layers == (0, 3)
    assert list(map(str, layer_sites(model, [0, 2, -1]).values())) == [
        "resid_pre.0",
        "resid_post.1",
        "resid_post.2",
    ]
    with pytest.raises(ValueError, match="layer 9"):
        word_activations(model, TREES, [9])


def test_layers_are_the_hidden_states_of_transformers(tiny_gpt2: LanguageModel) -> None:
    tree = TREES[1]
    (sentence,) = align([tree], tiny_gpt2.tokenizer)
    assert sentence is not None
    with torch.no_grad():
        states = tiny_gpt2.module(torch.tensor([sentence.ids]), output_hidden_states=True).hidden_states
    words = word_activations(tiny_gpt2, [tree], pooling="last", progress=False)
    last = [tokens[-1] for tokens in sentence.words]
    # Layer 0 has the learned positions in it. The last hidden state is behind the final norm, ours before it.
    for layer in range(3):
        assert torch.allclose(words.at(layer).values[0], states[layer][0, last], atol=1e-5)


def test_a_store_gives_the_same_and_is_read_again(model: LanguageModel, tmp_path: Path) -> None:
    plain = word_activations(model, TREES, progress=False)
    stored = word_activations(model, TREES, store=tmp_path / "store", progress=False)
    again = word_activations(model, TREES, store=tmp_path / "store", pooling="last", progress=False)
    assert torch.equal(plain.values, stored.values)
    assert torch.equal(again.values, word_activations(model, TREES, pooling="last", progress=False).values)
    with pytest.raises(ValueError, match="store"):
        word_activations(model, TREES[:2], store=tmp_path / "store", progress=False)


def test_sentences_that_do_not_fit(model: LanguageModel, caplog: pytest.LogCaptureFixture) -> None:
    long = DependencyTree(("word",) * 60, (-1, *range(59)), ("r",) * 60)
    with pytest.raises(ValueError, match=r"sentence 1: no token for 'word' \(max_tokens=128\)"):
        word_activations(model, [TREES[0], long], progress=False)
    with caplog.at_level(logging.WARNING):
        words = word_activations(model, [TREES[0], long, TREES[1]], on_mismatch="skip", progress=False)
    assert words.kept == (0, 2)
    with pytest.raises(ValueError, match="none of the 1 sentences"):
        word_activations(model, [long], on_mismatch="skip", progress=False)
    with pytest.raises(ValueError, match="no sentences"):
        word_activations(model, [], progress=False)


def test_arrays_of_ones_own() -> None:
    rows = [np.ones((2, 3), np.float32), np.zeros((1, 3), np.float32)]
    words = WordActivations.from_sentences(rows)
    assert (len(words), words.d, words.starts.tolist()) == (2, 3, [0, 2, 3])
    with pytest.raises(ValueError, match="sentence 1: expected"):
        WordActivations.from_sentences([rows[0], np.zeros((1, 4))])
    with pytest.raises(ValueError, match="sentence 0 hold NaN"):
        WordActivations.from_sentences([np.full((2, 2), np.nan)])
    assert words.at(0).layers == (0,)
    with pytest.raises(ValueError, match="layer = 1 is not known"):
        words.at(1)


def test_conllu_trees_run_through(model: LanguageModel, tmp_path: Path) -> None:
    write_conllu(tmp_path / "a.conllu", TREES)
    words = word_activations(model, read_conllu(tmp_path / "a.conllu"), [1], progress=False)
    assert torch.equal(words.values, word_activations(model, TREES, [1], progress=False).values)
