"""Triples: what they end in, how often a word comes, what the tokenizer admits."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from interp.probes.lfp.lexicon import vader_lexicon
from interp.probes.lfp.triples import (
    NEUTRAL_WORDS,
    TEMPLATES,
    ContrastiveTriple,
    build_lexicon_triples,
    is_single_token,
    strong_words,
    trim_to_target,
    triples_from_texts,
)

LEXICON = {
    "good": 1.9,
    "great": 3.1,
    "nice": 1.8,
    "bad": -2.5,
    "awful": -2.0,
    "sad": -2.1,
    "so-so": 0.1,
    ":(": -1.9,
}


def word_tokenizer(*words: str) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {word: i for i, word in enumerate(("<unk>", *words))}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def test_triples_end_in_their_words_and_are_alike_before() -> None:
    triples = build_lexicon_triples(
        ["the film was {word} , they said"], LEXICON, 6, share=0.5, neutral=["round"]
    )
    for t in triples:
        assert t.positive == f"the film was {t.target_positive}"
        assert t.negative == f"the film was {t.target_negative}"
        assert t.neutral == "the film was round"
    assert Counter(t.target_positive for t in triples) == {"good": 2, "great": 2, "nice": 2}
    assert Counter(t.target_negative for t in triples) == {"bad": 2, "awful": 2, "sad": 2}


def test_the_default_words_are_the_outer_quarters_of_vader() -> None:
    up, down = strong_words(vader_lexicon())
    values = sorted(vader_lexicon().values())
    assert min(vader_lexicon()[w] for w in up) >= values[len(values) * 3 // 4]
    assert max(vader_lexicon()[w] for w in down) <= values[len(values) // 4]
    assert "great" in up
    assert "terrible" in down
    assert "table" not in up + down
    assert not any(word in vader_lexicon() for word in NEUTRAL_WORDS)
    assert not any(word in vader_lexicon() for t in TEMPLATES for word in t.replace(":", " ").split())


def test_the_share_of_words() -> None:
    lopsided = {"good": 1.0, "nice": 2.0, "great": 3.0, "so": 0.0, "bad": -1.0}
    assert strong_words(lopsided, 0.4) == (("great", "nice"), ("bad",))
    assert strong_words(lopsided, 1.0) == (("good", "great", "nice"), ("bad",))
    for share in (0.0, 1.5):
        with pytest.raises(ValueError, match="share"):
            strong_words(lopsided, share)


def test_the_seed_decides() -> None:
    a, b = build_lexicon_triples(n=50, seed=1), build_lexicon_triples(n=50, seed=1)
    assert a == b
    assert a != build_lexicon_triples(n=50, seed=2)
    assert len({t.target_positive for t in a}) == 50


def test_only_words_of_one_token_that_stand_for_themselves() -> None:
    tokenizer = word_tokenizer("the", "film", "was", "good", "bad", "awful", "round")
    assert is_single_token("good", tokenizer)
    assert not is_single_token("great", tokenizer)  # would be <unk>, which is one token, too
    triples = build_lexicon_triples(
        ["the film was {word}"], LEXICON, 8, tokenizer=tokenizer, share=0.5, neutral=["square", "round"]
    )
    assert {t.target_positive for t in triples} == {"good"}
    assert {t.target_negative for t in triples} == {"bad", "awful"}
    assert {t.neutral for t in triples} == {"the film was round"}
    with pytest.raises(ValueError, match="no neutral word is left"):
        build_lexicon_triples(
            ["the film was {word}"], LEXICON, 8, tokenizer=tokenizer, share=0.5, neutral=["flat"]
        )


def test_a_byte_tokenizer_admits_no_long_word(tiny_tokenizer: Any) -> None:
    assert not is_single_token("good", tiny_tokenizer)


@pytest.mark.parametrize("template", ["the film was good", "{word} it was", "{word} {word}", "  {word}"])
def test_bad_templates_are_refused(template: str) -> None:
    with pytest.raises(ValueError, match="template"):
        build_lexicon_triples([template], LEXICON, 3)


def test_a_triple_must_end_in_its_target() -> None:
    with pytest.raises(ValueError, match="doesn't end"):
        ContrastiveTriple("it was good indeed", "it was bad", "it was so", "good", "bad")
    with pytest.raises(ValueError, match="neutral"):
        ContrastiveTriple("it was good", "it was bad", "", "good", "bad")


def test_trimming() -> None:
    assert trim_to_target("Not a Good film, great!", {"good", "great"}) == ("not a good", "good")
    with pytest.raises(ValueError, match="no target word"):
        trim_to_target("a goodly film", {"good"})
    with pytest.raises(ValueError, match="single token"):
        trim_to_target("it was great", {"great"}, word_tokenizer("it", "was"))


def test_triples_from_rewritten_sentences(caplog: pytest.LogCaptureFixture) -> None:
    texts = [
        ("The plot is great, and long.", "The plot is awful, and long.", "The plot is round, and long."),
        ("No target here.", "The plot is bad.", "The plot is round."),
        ("Great from the start.", "Bad from the start.", "Round from the start."),
    ]
    caplog.set_level("INFO")
    (made,) = triples_from_texts(texts, LEXICON, share=0.5)
    assert made == ContrastiveTriple(
        "the plot is great", "the plot is awful", "the plot is round", "great", "awful"
    )
    assert "1 triples of 3 sentences" in caplog.text
    with pytest.raises(ValueError, match="none of the 1 sentences"):
        triples_from_texts(texts[1:2], LEXICON, share=0.5)
