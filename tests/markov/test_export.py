"""What a training leaves behind must be the model it trained, with its tokenizer, for every other command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from interp.activations import ActivationStore
from interp.cli import app
from interp.markov.bpe import BPETokenizer
from interp.markov.catalogue import make_tokenizer
from interp.markov.export import hugging_face_tokenizer, plain_gpt2, save_model
from interp.markov.hf_tokenizers import as_characters
from interp.markov.sources import MarkovSource
from interp.markov.tokenizer import FixedLengthTokenizer
from interp.markov.training import TrainingConfig, train_transformer
from interp.markov.transformer import TransformerConfig, build_transformer
from interp.models.loading import load_model

SOURCE = MarkovSource.random(2, 3, seed=0)
TEXT = SOURCE.sample(5000, 1)


@pytest.mark.parametrize(
    ("kind", "encoder"),
    [
        ("characters", None),
        ("blocks", None),
        ("bpe", None),
        ("bpe", "greedy"),
        ("bpe", "likelihood"),
        ("sequential-bpe", None),
        ("lzw", None),
        ("hf-bpe", None),
        ("hf-wordpiece", None),
        ("hf-unigram", None),
    ],
)
def test_the_tokenizer_written_gives_our_ids(kind: str, encoder: str | None) -> None:
    ours = make_tokenizer(kind, 12, encoder=encoder, alphabet_size=3).fit(TEXT, 3)
    theirs = hugging_face_tokenizer(ours)
    for seed in range(20):
        x = SOURCE.sample(101, 50 + seed)
        ids = ours.encode(x)
        found = theirs(f"{as_characters(x)}\n")["input_ids"]
        if kind == "hf-unigram":  # 2 + 22 and 22 + 2 are equally likely: either is right, if none is likelier
            assert theirs.decode(found) == as_characters(x)
            scores = ours.log_probabilities_
            assert scores[found].sum() == pytest.approx(scores[ids].sum(), rel=1e-12)
        else:
            assert found == ids.tolist()
        assert theirs.decode(ids) == as_characters(ours.decode(ids))
    assert theirs("a, b")["input_ids"] == []


def test_a_tail_in_symbols_and_large_alphabets() -> None:
    tailed = FixedLengthTokenizer(2, tail="symbols").fit(TEXT, 3)
    x = SOURCE.sample(7, 3)
    assert hugging_face_tokenizer(tailed)(as_characters(x))["input_ids"] == tailed.encode(x).tolist()
    many = np.random.default_rng(0).integers(
        0, 60, 2000
    )  # characters up to "k", brackets and backslash among them
    wide = BPETokenizer(64).fit(many, 60)
    assert hugging_face_tokenizer(wide)(as_characters(many))["input_ids"] == wide.encode(many).tolist()


def test_the_model_written_has_the_same_logits_and_activations(tmp_path: Path) -> None:
    """Whatever the output bias and the final norm's weights are: they are folded into the output layer."""
    module = build_transformer(TransformerConfig(), 12, 64, seed=3)
    with torch.no_grad():
        module.lm_head.bias.normal_(0, 2)
        module.transformer.ln_f.weight.normal_(1, 0.3)
    tokenizer = BPETokenizer(12).fit(TEXT, 3)
    for _ in range(2):  # a second time over the first
        save_model(module.eval(), tokenizer, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    opened, live = (
        load_model(tmp_path / "model"),
        load_model(module, tokenizer=hugging_face_tokenizer(tokenizer)),
    )
    x = as_characters(SOURCE.sample(90, 7))
    assert torch.equal(opened.tokenize(x).input_ids, live.tokenize(x).input_ids)
    torch.testing.assert_close(opened.logits(x), live.logits(x), rtol=0, atol=1e-4)
    site = "resid_post.1"
    assert torch.equal(opened.activations(x, site)[site], live.activations(x, site)[site])
    assert module.lm_head.weight is module.transformer.wte.weight  # the model itself is left as it was
    assert plain_gpt2(module).config.tie_word_embeddings is False


def test_a_dictionary_that_no_file_holds_is_refused_before_training(tmp_path: Path) -> None:
    twice = BPETokenizer(6).fit(TEXT, 3)
    twice._set_tokens([*twice.tokens_[:5], twice.tokens_[4]])
    with pytest.raises(ValueError, match="is there twice"):
        train_transformer(
            SOURCE, twice, training=TrainingConfig(steps=1), out=tmp_path / "run", progress=False
        )
    assert not (tmp_path / "run").exists()


def test_a_trained_model_is_harvested_by_the_command(tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    small = ("--width", 8, "--n-layers", 1, "--context-symbols", 32, "--test-symbols", 3000, "--steps", 3)
    shown = run("markov", "train", "--vocab-size", 6, *small, "--device", "cpu", "--out", tmp_path / "run")
    assert f"{tmp_path / 'run' / 'model'} is a model" in shown
    text = tmp_path / "text.jsonl"
    run("markov", "source", "--kernel", tmp_path / "run" / "source.npy", "--n", 1100, "--text", text)
    documents = [json.loads(line)["text"] for line in text.read_text().splitlines()]
    assert list(map(len, documents)) == [512, 512, 76]
    x = MarkovSource.switching(2, 0.8, 0.8).sample(1100, 0)
    assert "".join(documents) == as_characters(x)
    model = ("--model", tmp_path / "run" / "model", "--site", "resid_post.0")
    run("harvest", *model, "--text", text, "--split", "all", "--context-size", 8, "--out", tmp_path / "store")
    store = ActivationStore.open(tmp_path / "store")
    assert store.width() == 8
    tokenizer = load_model(tmp_path / "run" / "model").tokenizer
    assert store.n_tokens == sum(map(len, tokenizer(documents)["input_ids"]))
