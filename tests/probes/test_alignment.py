"""Every word gets the tokens that hold its letters, whatever the tokenizer's kind."""

from __future__ import annotations

import logging
import unicodedata
from typing import Any

import pytest

from interp.probes.alignment import align, tokens_of_words
from interp.probes.treebank import DependencyTree
from tests.probes.tokenizers_of_all_kinds import ALL, BOS, byte_level


def sentence(text: str, *words: str) -> DependencyTree:
    heads = (-1, *(0 for _ in words[1:]))
    return DependencyTree(words, heads, ("r",) * len(words), text=text)


TREE = sentence("I don't see naïve cats—cat.", "I", "do", "n't", "see", "naïve", "cats", "—", "cat", ".")


def letters(tokenizer: Any, ids: list[int]) -> str:
    """What tokens spell, without the marks of spaces, pieces and accents."""
    text = tokenizer.decode(ids).replace("##", "").replace(" ", "").replace("▁", "").lower()
    return "".join(c for c in unicodedata.normalize("NFD", text) if not unicodedata.combining(c))


@pytest.mark.parametrize("kind", sorted(ALL))
def test_tokens_of_a_word_spell_it(kind: str) -> None:
    tokenizer = ALL[kind]()
    (aligned,) = align([TREE], tokenizer)
    assert aligned is not None
    for word, tokens in zip(TREE.words, aligned.words, strict=True):
        spelled = letters(tokenizer, [aligned.ids[t] for t in tokens])
        wanted = letters(tokenizer, tokenizer(word, add_special_tokens=False)["input_ids"])
        if word in ("do", "n't"):
            continue
        assert (
            spelled
            == wanted
            == "".join(c for c in unicodedata.normalize("NFD", word.lower()) if not unicodedata.combining(c))
        )
    # Every token but BOS belongs to a word (the space of its own that some kinds have does not).
    taken = {t for tokens in aligned.words for t in tokens}
    left = [aligned.ids[t] for t in range(len(aligned.ids)) if t not in taken]
    assert letters(tokenizer, left) in ("", BOS)


@pytest.mark.parametrize("kind", sorted(ALL))
def test_a_token_across_a_contraction_belongs_to_both_words(kind: str) -> None:
    tokenizer = ALL[kind]()
    (aligned,) = align([TREE], tokenizer)
    assert aligned is not None
    do, nt = aligned.words[1], aligned.words[2]
    shared = set(do) & set(nt)
    assert [letters(tokenizer, [aligned.ids[t]]) for t in shared] == ["don"]
    assert letters(tokenizer, [aligned.ids[t] for t in nt]) == "don't"


def test_bos_comes_first_where_there_is_one() -> None:
    tokenizer = byte_level()
    (with_bos,) = align([TREE], tokenizer)
    (without,) = align([TREE], tokenizer, add_bos=False)
    assert with_bos is not None
    assert without is not None
    assert with_bos.ids == (tokenizer.bos_token_id, *without.ids)
    assert with_bos.words == tuple(tuple(t + 1 for t in tokens) for tokens in without.words)


def test_shared_spans_get_the_same_tokens() -> None:
    tree = DependencyTree(("à", "le"), (-1, 0), ("r", "r"), text="au", spans=((0, 2), (0, 2)))
    (aligned,) = align([tree], byte_level(), add_bos=False)
    assert aligned is not None
    assert aligned.words == ((0, 1), (0, 1))


def test_truncation_raises_or_skips(caplog: pytest.LogCaptureFixture) -> None:
    short = sentence("a b", "a", "b")
    with pytest.raises(ValueError, match=r"sentence 1: no token for 'cats' \(max_tokens=16\)"):
        align([short, TREE], byte_level(), max_tokens=16)
    with caplog.at_level(logging.WARNING):
        kept = align([short, TREE], byte_level(), max_tokens=16, on_mismatch="skip")
    assert kept[1] is None
    assert kept[0] is not None
    assert "left out 1 of 2 sentences" in caplog.text


def test_offsets_to_words() -> None:
    offsets = [(0, 2), (2, 5), (5, 5), (5, 8)]  # an empty token belongs to nothing
    assert tokens_of_words(offsets, [(0, 3), (3, 5), (6, 8)]) == [(0, 1), (1,), (3,)]
    assert tokens_of_words(offsets, [(0, 2)], first=4) == [(4,)]


def test_refusals() -> None:
    class Slow:
        is_fast = False

    with pytest.raises(ValueError, match="use a fast one"):
        align([TREE], Slow())
    with pytest.raises(ValueError, match="did you mean 'skip'"):
        align([TREE], byte_level(), on_mismatch="skipp")
