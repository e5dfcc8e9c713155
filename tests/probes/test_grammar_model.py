"""The small model of the grammar: its tokenizer, its training, its cache."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from interp.probes.grammar import ControlledGrammar
from interp.probes.grammar_model import GrammarModelConfig, grammar_model, word_tokenizer
from interp.probes.words import word_activations

SMALL = GrammarModelConfig(n_layers=2, d_model=32, n_sentences=600, max_depth=1, steps=80, lr=5e-3)


def test_one_token_a_word() -> None:
    grammar = ControlledGrammar()
    tokenizer = word_tokenizer(grammar.vocabulary)
    for tree in grammar.sample(20):
        ids = tokenizer(tree.text, add_special_tokens=False)["input_ids"]
        assert tokenizer.convert_ids_to_tokens(ids) == list(tree.words)


def test_it_learns_is_kept_and_is_probed(tmp_path: Path) -> None:
    model = grammar_model(SMALL, folder=tmp_path / "m", progress=False)
    trees = ControlledGrammar().sample(50, max_depth=1, seed=9)
    loss = float(model.loss(model.tokenize([tree.text or "" for tree in trees], add_bos=True)).mean())
    # The entropy of a noun alone, one word in three, is log 24 nats; uniform guessing costs log 100.
    assert loss < 0.75 * math.log(len(ControlledGrammar().vocabulary))
    assert word_activations(model, trees, progress=False).layers == (0, 1, 2)
    again = grammar_model(SMALL, folder=tmp_path / "m", progress=False)
    assert again.fingerprint()["weights"] == model.fingerprint()["weights"]
    with pytest.raises(ValueError, match="holds a model of other arguments"):
        grammar_model(GrammarModelConfig(seed=1), folder=tmp_path / "m")
