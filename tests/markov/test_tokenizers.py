"""Tokenizers and encoders: worked examples, independent naive implementations, Hugging Face's own encoders."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.markov.bpe import BPETokenizer, SequentialBPETokenizer
from interp.markov.catalogue import make_tokenizer
from interp.markov.encoders import Trie, fit_log_probabilities, greedy_encode, likeliest_encode
from interp.markov.hf_tokenizers import KINDS, HFTokenizer, as_characters
from interp.markov.lzw import LZ78Tokenizer, LZWTokenizer
from interp.markov.sources import MarkovSource
from interp.markov.tokenizer import CharTokenizer, FixedLengthTokenizer, Tokenizer

TEXT = MarkovSource.random(2, 3, seed=0).sample(3000, seed=1)


def digits(text: str) -> np.ndarray:
    return np.array([int(c) for c in text])


def spelled(tokenizer: Tokenizer, ids: np.ndarray | None = None) -> list[str]:
    tokens = tokenizer.tokens_ if ids is None else [tokenizer.tokens_[i] for i in ids]
    return ["".join(map(str, token)) for token in tokens]


# Worked examples.


def test_bpe_merges_the_most_frequent_pair_and_breaks_ties_low() -> None:
    x = digits("0011001100110011")
    tokenizer = BPETokenizer(6).fit(x)
    assert tokenizer.merges_ == [(0, 0), (1, 1), (2, 3), (4, 4)]
    assert spelled(tokenizer) == ["0", "1", "00", "11", "0011", "00110011"]
    assert tokenizer.encode(x).tolist() == [5, 5]


def test_bpe_replaces_from_left_to_right() -> None:
    zeros = np.zeros(6, int)
    assert BPETokenizer(3).fit(zeros).encode(zeros).tolist() == [2, 2, 2]
    x = digits("0000010000")
    tokenizer = BPETokenizer(4).fit(x)
    assert tokenizer.merges_ == [(0, 0), (2, 2)]
    assert tokenizer.encode(x).tolist() == [3, 0, 1, 3]


def test_greedy_takes_the_longest_token() -> None:
    tokens = [tuple(map(int, t)) for t in ("0", "1", "00", "001", "0011", "11", "01")]
    ids = greedy_encode(digits("00110011010"), Trie(tokens, 2))
    assert [tokens[i] for i in ids] == [(0, 0, 1, 1), (0, 0, 1, 1), (0, 1), (0,)]


def test_lzw_goes_on_at_the_symbol_that_broke_the_match() -> None:
    x = digits("0011001100110011")
    assert spelled(LZWTokenizer(10).fit(x))[2:] == ["00", "01", "11", "10", "001", "110", "0011", "100"]
    assert spelled(LZ78Tokenizer(5).fit(x))[2:] == ["00", "11", "001"]


def test_fixed_length_codes_or_drops_the_tail() -> None:
    x = digits("0110111")
    dropped = FixedLengthTokenizer(3).fit(x)
    assert dropped.encode(x).tolist() == [0b011, 0b011]
    coded = FixedLengthTokenizer(3, tail="symbols").fit(x)
    assert coded.encode(x).tolist() == [0b011, 0b011, 8 + 1]
    assert np.array_equal(coded.decode(coded.encode(x)), x)
    assert (dropped.vocab_size_, coded.vocab_size_) == (8, 10)


# Against independent implementations.


def naive_bpe(x: list[int], vocab_size: int) -> tuple[list[tuple[int, int]], list[int]]:
    ids, merges, n_symbols = list(x), [], max(x) + 1
    while n_symbols + len(merges) < vocab_size:
        counts: dict[tuple[int, int], int] = {}
        for pair in itertools.pairwise(ids):
            counts[pair] = counts.get(pair, 0) + 1
        best = min(counts, key=lambda pair: (-counts[pair], pair))
        new, out = n_symbols + len(merges), []
        merges.append(best)
        while ids:
            if tuple(ids[:2]) == best:
                out.append(new)
                ids = ids[2:]
            else:
                out.append(ids.pop(0))
        ids = out
    return merges, ids


def test_bpe_agrees_with_a_naive_one() -> None:
    x = TEXT[:600]
    merges, ids = naive_bpe(x.tolist(), 15)
    tokenizer = BPETokenizer(15).fit(x)
    assert tokenizer.merges_ == merges
    assert tokenizer.encode(x).tolist() == ids


def test_lzw_agrees_with_its_pseudo_code() -> None:
    x = TEXT.tolist()
    tokens = [(0,), (1,), (2,)]
    i = 0
    while len(tokens) < 40:
        j = i + 1
        while tuple(x[i:j]) in tokens:
            j += 1
        tokens.append(tuple(x[i:j]))
        i = j - 1
    assert list(LZWTokenizer(40).fit(TEXT).tokens_) == tokens


def ways(x: tuple[int, ...], tokens: list[tuple[int, ...]]) -> list[list[int]]:
    """Every way to write x."""
    if not x:
        return [[]]
    return [
        [i, *rest]
        for i, token in enumerate(tokens)
        if x[: len(token)] == token
        for rest in ways(x[len(token) :], tokens)
    ]


@given(st.lists(st.integers(0, 1), min_size=1, max_size=10), st.integers(0, 1000))
@settings(max_examples=25, deadline=None)
def test_likeliest_encoding_is_the_best_of_all(x: list[int], seed: int) -> None:
    tokens = [(0,), (1,), (0, 0), (0, 1), (1, 0, 1), (0, 1, 1, 0)]
    log_q = np.log(np.random.default_rng(seed).dirichlet(np.ones(len(tokens))))
    ids = likeliest_encode(np.array(x), Trie(tokens, 2), log_q)
    assert [s for i in ids for s in tokens[i]] == x
    best = max(log_q[way].sum() for way in ways(tuple(x), tokens))
    assert log_q[ids].sum() == pytest.approx(best, abs=1e-12)


def test_fitting_probabilities_never_lowers_the_objective() -> None:
    trie = LZWTokenizer(60).fit(TEXT)._trie

    def objective(rounds: int) -> float:
        log_q = fit_log_probabilities(TEXT, trie, 60, rounds=rounds)
        return float(log_q[likeliest_encode(TEXT, trie, log_q)].sum() + log_q.sum())

    values = [objective(rounds) for rounds in range(1, 7)]
    assert all(b >= a - 1e-9 for a, b in itertools.pairwise(values))
    assert values[-1] > values[0] + 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab_size", [8, 16])
def test_hugging_face_dictionaries_are_encoded_as_by_the_library(kind: str, vocab_size: int) -> None:
    """On 200 strings. WordPiece has other pieces at the beginning of a word: there a symbol is put in front."""
    tokenizer = HFTokenizer(kind, vocab_size, max_piece_length=6).fit(TEXT)
    source = MarkovSource.random(2, 3, seed=0)
    longest = 0
    for seed in range(200):
        x = source.sample(60, seed=100 + seed)
        front = "0" if kind == "wordpiece" else ""
        theirs = tokenizer.hf_.encode(front + as_characters(x)).tokens
        if front:
            assert theirs.pop(0) == front
            theirs = [piece.removeprefix("##") for piece in theirs]
        assert spelled(tokenizer, tokenizer.encode(x)) == theirs
        longest = max(longest, *map(len, theirs))
    assert longest > 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocab_size", [3, 10, 20])
def test_a_hugging_face_dictionary_has_the_size_asked_for(kind: str, vocab_size: int) -> None:
    """The library counts its unknown token and, for WordPiece, every symbol twice."""
    tokenizer = HFTokenizer(kind, vocab_size).fit(TEXT)
    assert tokenizer.vocab_size_ == len(set(tokenizer.tokens_)) == vocab_size
    assert tokenizer.tokens_[:3] == ((0,), (1,), (2,))


def test_a_dictionary_that_ends_short_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    x = np.tile([0, 1], 50)
    for tokenizer, n in (
        (HFTokenizer("wordpiece", 400), None),
        (SequentialBPETokenizer(90, threshold=1000), 2),
        (LZWTokenizer(300), None),
    ):
        for _ in range(2):
            tokenizer.fit(x)
        assert tokenizer.vocab_size_ < tokenizer.vocab_size
        assert n is None or tokenizer.vocab_size_ == n
        said = f"{tokenizer.method}: {tokenizer.vocab_size_} tokens instead of {tokenizer.vocab_size}: "
        assert caplog.text.count(said) == 1
        assert tokenizer.name == f"{tokenizer.method} {tokenizer.vocab_size} ({tokenizer.vocab_size_} tokens)"


def test_hugging_face_learns_our_merges() -> None:
    ours, theirs = BPETokenizer(12).fit(TEXT), HFTokenizer("bpe", 12).fit(TEXT)
    assert set(ours.tokens_) == set(theirs.tokens_)


# What holds for all.

ALL = [
    CharTokenizer(),
    FixedLengthTokenizer(4, tail="symbols"),
    *(BPETokenizer(20, encoder) for encoder in BPETokenizer.encoders),
    SequentialBPETokenizer(12),
    *(LZWTokenizer(50, encoder) for encoder in LZWTokenizer.encoders),
    LZ78Tokenizer(50),
    HFTokenizer("bpe", 12),
    HFTokenizer("wordpiece", 12),
]


@pytest.mark.parametrize("tokenizer", ALL, ids=lambda t: t.name)
def test_decoding_gives_the_text_back(tokenizer: Tokenizer) -> None:
    tokenizer.fit(TEXT)
    for seed in range(3):
        x = MarkovSource.random(1, 3, seed=9).sample(501, seed)  # another source: every token may come
        ids = tokenizer.encode(x)
        assert ids.dtype == np.int64
        assert np.array_equal(tokenizer.decode(ids), x)
        assert tokenizer.token_lengths_[ids].sum() == len(x)
    assert set(tokenizer.tokens_) >= {(0,), (1,), (2,)}


def test_merges_and_greedy_differ_over_one_dictionary() -> None:
    merges, greedy = (BPETokenizer(20, encoder).fit(TEXT) for encoder in ("merges", "greedy"))
    assert merges.tokens_ == greedy.tokens_
    assert not np.array_equal(merges.encode(TEXT), greedy.encode(TEXT))


def test_sequential_bpe_learns_each_merge_from_new_text() -> None:
    # The first half is all 01, the second all 10: the second merge can only come from text with 10s.
    x = np.concatenate([np.tile([0, 1], 500), np.tile([1, 0], 500)])
    tokenizer = SequentialBPETokenizer(4, threshold=2).fit(x)
    assert tokenizer.merges_ == [(0, 1), (2, 2)]
    stopped = SequentialBPETokenizer(10, threshold=1000).fit(x)
    assert stopped.vocab_size_ == 2


def test_bpe_stops_when_no_pair_comes_twice(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = BPETokenizer(30).fit(digits("010101"))
    assert tokenizer.vocab_size_ < 30
    assert "comes twice" in caplog.text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: BPETokenizer(2).fit(digits("012")), "below the 3 symbols"),
        (lambda: BPETokenizer(1), "vocab_size = 1"),
        (lambda: BPETokenizer(9, "longest"), "encoder"),
        (lambda: BPETokenizer(9).encode(digits("01")), "not fitted"),
        (lambda: CharTokenizer().fit(digits("01")).encode(digits("02")), "symbol 2"),
        (lambda: CharTokenizer().fit(digits("01")).decode(digits("7")), "symbol 7"),
        (lambda: CharTokenizer().fit(np.array([], int)), "at least one symbol"),
        (lambda: FixedLengthTokenizer(0), "length = 0"),
        (lambda: FixedLengthTokenizer(40).fit(digits("01")), "tokens"),
        (lambda: FixedLengthTokenizer(2, tail="keep"), "tail"),
        (lambda: HFTokenizer("sentence", 10), "kind"),
        (lambda: make_tokenizer("bep"), "did you mean 'bpe'"),
        (lambda: make_tokenizer("hf-bpe", 9, encoder="greedy"), "one encoder"),
        (lambda: make_tokenizer("blocks", 1), "below the 2"),
        (lambda: greedy_encode(digits("01"), Trie([(0,)], 2)), "position 1"),
        (lambda: likeliest_encode(digits("01"), Trie([(0,)], 2), np.zeros(1)), "no way"),
    ],
)
def test_errors_name_what_is_wrong(call, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_symbols_are_whole_numbers() -> None:
    with pytest.raises(TypeError, match="whole numbers"):
        CharTokenizer().fit(np.array([0.5, 1.0]))


def test_names_make_tokenizers() -> None:
    assert isinstance(make_tokenizer("lzw", 9, encoder="likelihood"), LZWTokenizer)
    blocks = make_tokenizer("blocks", 30, alphabet_size=3)
    assert isinstance(blocks, FixedLengthTokenizer)
    assert blocks.length == 3
    assert make_tokenizer("characters").name == "characters"
