"""The pipeline's inputs: prompts apart from those measured on, texts given or written, pairs from a file."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from interp.probes.lfp.data import LFPData, beginnings, kept_data, lexicon_data, load_pairs
from interp.probes.lfp.lexicon import vader_lexicon
from interp.probes.lfp.tuning import PreferencePair
from tests.probes.lfp.small_world import LEXICON, SUBJECTS, small_data, small_model

TEMPLATES = ["the film was {word}"]
LONG = [f"the {s} was old and the {t} was red and good ." for s in SUBJECTS for t in SUBJECTS]


def test_texts_given_become_prompts_and_are_split(tmp_path: Path) -> None:
    data = lexicon_data(
        small_model(), [*LONG, "too short"], templates=TEMPLATES, lexicon=LEXICON, n_eval_prompts=4, n_triples=12
    )  # fmt: skip
    assert len(data.eval_prompts) == 4
    assert set(data.prompts).isdisjoint(data.eval_prompts)
    assert all(
        any(text.startswith(prompt) for text in LONG) for prompt in (*data.prompts, *data.eval_prompts)
    )
    assert all(2 <= len(prompt.split()) <= 10 for prompt in data.prompts)
    assert set(data.texts) <= set(LONG)
    assert len(data.triples) == 12
    assert LFPData.from_dict(json.loads(json.dumps(data.to_dict()))) == data


def test_without_texts_the_model_writes_them() -> None:
    model = small_model()
    data = lexicon_data(
        model, templates=TEMPLATES, lexicon=LEXICON, n_texts=40, n_triples=4, n_prompts=9, max_new_tokens=5
    )
    assert (len(data.prompts), len(data.eval_prompts), len(data.texts)) == (9, 54, 40)
    assert set(data.prompts).isdisjoint(data.eval_prompts)
    again = lexicon_data(
        model, templates=TEMPLATES, lexicon=LEXICON, n_texts=40, n_triples=4, n_prompts=9, max_new_tokens=5
    )
    assert data == again


def test_what_is_missing_or_refused_is_known_before_the_model_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.probes.lfp.data.continuations", None)
    vader_lexicon.cache_clear()
    monkeypatch.setitem(sys.modules, "vaderSentiment.vaderSentiment", None)
    with pytest.raises(ImportError, match=r"interp-toolkit\[feedback\]"):
        lexicon_data(small_model())
    with pytest.raises(ValueError, match="no positive word is left"):
        lexicon_data(small_model(), templates=TEMPLATES, lexicon={"unknown": 1.0})


def test_beginnings_have_two_to_ten_words() -> None:
    lengths = {len(text.split()) for text in beginnings(["w " * 30] * 300)}
    assert lengths == set(range(2, 11))


def test_kept_data_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    how = {"templates": TEMPLATES, "lexicon": LEXICON, "n_texts": 20, "n_triples": 4, "max_new_tokens": 3}
    first = kept_data(tmp_path, model, **how)
    monkeypatch.setattr("interp.probes.lfp.data.continuations", None)
    pair = PreferencePair("a", " b", " c")
    assert kept_data(tmp_path, model, pairs=[pair], **how) == replace(first, pairs=(pair,))


def test_pairs_are_read_from_lines(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"prompt": "a", "chosen": " b", "rejected": " c"}\n')
    assert load_pairs(path) == (PreferencePair("a", " b", " c"),)
    path.write_text('{"prompt": "a", "chosen": " b"}\n')
    with pytest.raises(ValueError, match=r"pair 1\.rejected"):
        load_pairs(path)
    path.write_text("")
    with pytest.raises(ValueError, match="holds no pairs"):
        load_pairs(path)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="can be begun differently"):
        lexicon_data(small_model(), ["too short"], templates=TEMPLATES, lexicon=LEXICON)
    data = small_data(small_model())
    with pytest.raises(ValueError, match="triples is empty"):
        replace(data, triples=())
    with pytest.raises(TypeError, match="one string"):
        replace(data, texts="a text")
