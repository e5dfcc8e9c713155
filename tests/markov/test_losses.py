"""Nats per source symbol: n-gram models, windows, and the theory's bounds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from interp.markov.bounds import (
    edge_cost,
    fixed_length_loss,
    heavy_hitting_entropy,
    heavy_hitting_exponent,
    lzw_epsilon,
    token_log_probabilities,
    unigram_bound,
    unigram_bounds,
)
from interp.markov.bpe import BPETokenizer
from interp.markov.losses import SymbolLoss, evaluate_per_symbol, total_variation, windows_of
from interp.markov.lzw import LZWTokenizer
from interp.markov.ngram import NGramModel, optimal_ngram_loss, optimal_unigram_loss, token_frequencies
from interp.markov.sources import MarkovSource, entropy
from interp.markov.tokenizer import FixedLengthTokenizer

ORDER_1, ORDER_2 = MarkovSource.switching(1, 0.8, 0.8), MarkovSource.switching(2, 0.8, 0.8)
ONES = np.ones(2, np.int64)


# n-gram models.


@pytest.mark.parametrize("source", [MarkovSource.switching(3, 0.8, 0.3), MarkovSource.random(2, 2, seed=3)])
def test_best_mgram_losses_on_a_text_meet_the_closed_form(source: MarkovSource) -> None:
    x = source.sample(400_000, seed=1)
    for context in range(source.order + 2):
        measured = optimal_ngram_loss(x, ONES, context + 1)
        assert measured == pytest.approx(source.ngram_loss(context), abs=0.003)


def test_ngram_model_by_hand() -> None:
    ids, lengths = np.array([0, 1, 0, 1, 1]), np.array([1, 3])
    unigram = NGramModel(1, 2).fit(ids)
    assert np.allclose(unigram.probabilities, [[3 / 7, 4 / 7]])
    bigram = NGramModel(2, 2).fit(ids)
    assert np.allclose(bigram.probabilities, [[1 / 4, 3 / 4], [2 / 4, 2 / 4]])
    loss = bigram.cross_entropy(np.array([0, 1, 1]), lengths)
    assert loss.nats == pytest.approx(-math.log(3 / 4) - math.log(1 / 2))
    assert (loss.symbols, loss.tokens) == (6, 2)  # the first token is context only
    assert loss.per_symbol == pytest.approx(loss.nats / 6)


def test_optimal_unigram_loss_is_the_entropy_over_the_mean_length() -> None:
    ids, lengths = np.array([0, 0, 0, 1]), np.array([1, 5])
    q = np.array([0.75, 0.25])
    assert np.allclose(token_frequencies(ids, 2), q)
    assert optimal_unigram_loss(ids, lengths) == pytest.approx(float(entropy(q)) / (q @ lengths))
    # No other unigram model does better on the text.
    for a in (0.6, 0.74, 0.76, 0.9):
        assert -(3 * math.log(a) + math.log(1 - a)) / 8 > optimal_unigram_loss(ids, lengths)


def test_unseen_tokens_cost_finite_with_smoothing_and_infinite_without() -> None:
    ids = np.array([0, 0, 1])
    for smoothing, finite in ((1.0, True), (0.0, False)):
        model = NGramModel(1, 3, smoothing=smoothing).fit(ids)
        assert math.isfinite(model.cross_entropy(np.array([2]), np.ones(3, int)).nats) == finite


def test_errors_of_models() -> None:
    with pytest.raises(ValueError, match="not fitted"):
        NGramModel(1, 2).cross_entropy(np.array([0]), ONES)
    with pytest.raises(ValueError, match="cells"):
        NGramModel(5, 100)
    with pytest.raises(ValueError, match="too few"):
        NGramModel(3, 2).fit(np.array([0, 1]))
    with pytest.raises(ValueError, match="order = 0"):
        NGramModel(0, 2)


# Windows and models over tokens.


def table_model(log_q: torch.Tensor):
    """A bigram model as a function of token ids."""
    return lambda tokens: log_q[tokens]


def test_evaluation_by_windows_is_the_bigram_loss_of_all_targets_but_those_cut_off() -> None:
    tokenizer = BPETokenizer(6).fit(ORDER_2.sample(5000, seed=1))
    ids = tokenizer.encode(ORDER_2.sample(4000, seed=2))
    model = NGramModel(2, 6).fit(ids)
    context = 37
    used = (len(ids) - 1) // context * context + 1
    expected = model.cross_entropy(ids[:used], tokenizer.token_lengths_)
    loss = evaluate_per_symbol(
        table_model(torch.tensor(model.probabilities).log()), ids, tokenizer.token_lengths_, context
    )
    assert loss.nats == pytest.approx(expected.nats, rel=1e-12)
    assert (loss.symbols, loss.tokens) == (expected.symbols, expected.tokens)
    # The first token of the text is no target; everything else up to the cut is, once.
    assert loss.symbols == tokenizer.token_lengths_[ids[1:used]].sum()


def test_loss_is_a_ratio_of_sums() -> None:
    lengths = np.array([1, 9])
    ids = np.array([0, 1, 0, 0, 1])  # targets 1 0 0 1: 20 symbols
    loss = evaluate_per_symbol(lambda t: torch.zeros(*t.shape, 2), ids, lengths, 2)
    assert loss.per_symbol == pytest.approx(4 * math.log(2) / 20)
    assert loss.per_token == pytest.approx(math.log(2))
    assert loss.symbols_per_token == 5


def test_windows_overlap_in_one_token() -> None:
    assert windows_of(np.arange(9), 3).tolist() == [[0, 1, 2, 3], [3, 4, 5, 6]]
    with pytest.raises(ValueError, match="context_length = 9"):
        windows_of(np.arange(9), 9)


def test_gap_and_standard_error() -> None:
    rate, top = ORDER_2.entropy_rate(), ORDER_2.symbol_entropy()
    middle = SymbolLoss((rate + top) / 2 * 10_000, 10_000, 5000)
    assert middle.relative_gap(ORDER_2) == pytest.approx(0.5)
    assert middle.excess(ORDER_2) == pytest.approx((top - rate) / 2)
    assert middle.standard_error(ORDER_2) == pytest.approx(math.log(4) * 0.4 / 100)  # |ln .8/.2| sqrt(.16)
    assert math.isnan(middle.relative_gap(MarkovSource(np.full((2, 2), 0.5))))


def test_total_variation_is_zero_for_the_source_and_known_for_the_unigram_model() -> None:
    x = ORDER_1.sample(3000, seed=1)
    true = torch.tensor(ORDER_1.transition).log()
    assert total_variation(table_model(true), ORDER_1, x, 50) == pytest.approx(0, abs=1e-12)
    flat = total_variation(lambda t: torch.zeros(*t.shape, 2), ORDER_1, x, 50)
    assert flat == pytest.approx(0.3)  # |0.8 - 0.5|
    with pytest.raises(ValueError, match="order 2"):
        total_variation(table_model(true), ORDER_2, x, 1)


# Bounds.


def test_token_probabilities_agree_with_the_source() -> None:
    source = MarkovSource.random(2, 3, seed=5)
    tokens = [t for n in (1, 2, 3) for t in itertools.product(range(3), repeat=n)]
    log_p = token_log_probabilities(source, tokens)
    for c, context in enumerate(itertools.product(range(3), repeat=2)):
        before = source.log_probability(np.array(context))
        for token, row in zip(tokens, log_p, strict=True):
            assert row[c] == pytest.approx(source.log_probability(np.array(context + token)) - before)
        blocks = np.exp(log_p[-27:, c]).sum()
        assert blocks == pytest.approx(1)


def test_heavy_hitting_entropy_by_hand() -> None:
    tokens, q = [(0,), (1,), (0, 1)], np.array([0.5, 0.25, 0.25])
    # P(0|0) = P(1|1) = .2, P(1|0) = P(0|1) = .8, pi = 1/2; P(01|a) = P(0|a) .8
    single = -(math.log(0.2) + math.log(0.8)) / 2
    expected = 0.75 * single + 0.25 * (single - math.log(0.8))
    assert heavy_hitting_entropy(tokens, q, ORDER_1) == pytest.approx(expected)
    assert edge_cost(tokens, q, ORDER_1) == pytest.approx(math.log(5))
    assert edge_cost(tokens, q, ORDER_2) == pytest.approx(1.25 * math.log(5))
    # maximal tokens: 1 (likeliest after 0: .8) and 01 (after 1: .64); beta = ln(1/.8) / ln 3
    assert heavy_hitting_exponent(tokens, ORDER_1) == pytest.approx(-math.log(0.8) / math.log(3))


def test_bound_formulas() -> None:
    assert unigram_bound(ORDER_1, 4 * math.log(5)) == pytest.approx(ORDER_1.entropy_rate() / 0.75)
    assert unigram_bound(ORDER_1, math.log(5)) == math.inf
    assert unigram_bound(MarkovSource(np.array([[0.0, 1.0], [0.5, 0.5]])), 10.0) == math.inf
    assert lzw_epsilon(0.2, 4096) == pytest.approx(math.log(5) / (0.99 * math.log(4096)))
    with pytest.raises(ValueError, match="delta"):
        lzw_epsilon(0.0, 10)


@pytest.mark.parametrize(
    ("order", "p", "q", "length", "expected"),
    [
        (2, 0.8, 0.8, 4, 0.5967748020),
        (2, 0.8, 0.8, 8, 0.5485886128),
        (1, 0.8, 0.3, 5, 0.5817811918),
        (3, 0.8, 0.8, 2, 0.6931471806),
    ],
)
def test_toy_tokenizer_loss(order: int, p: float, q: float, length: int, expected: float) -> None:
    source = MarkovSource.switching(order, p, q)
    assert fixed_length_loss(source, length) == pytest.approx(expected, abs=1e-9)
    x = source.sample(300_000, seed=1)
    tokenizer = FixedLengthTokenizer(length).fit(x)
    measured = optimal_unigram_loss(tokenizer.encode(x), tokenizer.token_lengths_)
    assert measured == pytest.approx(expected, abs=0.005)


def test_toy_tokenizer_gap_of_a_general_chain_shrinks_like_one_over_length() -> None:
    source = MarkovSource.random(1, 3, seed=8)
    gap = source.symbol_entropy() - source.entropy_rate()
    for length in (1, 2, 7):
        assert fixed_length_loss(source, length) == pytest.approx(source.entropy_rate() + gap / length)


@pytest.mark.parametrize("source", [ORDER_1, ORDER_2, MarkovSource.random(1, 4, seed=2)])
def test_unigram_losses_respect_the_bounds(source: MarkovSource) -> None:
    train, test = source.sample(60_000, seed=1), source.sample(200_000, seed=2)
    slack = 3 * source.loss_deviation() / math.sqrt(len(test))
    losses = []
    for tokenizer in (LZWTokenizer(64), LZWTokenizer(512), LZWTokenizer(512, "likelihood"), BPETokenizer(64)):
        tokenizer.fit(train, source.alphabet_size)
        b = unigram_bounds(source, tokenizer.tokens_, tokenizer.encode(test))
        assert source.entropy_rate() - slack <= b.loss <= b.upper + slack
        assert b.heavy_entropy <= -b.symbols_per_token * math.log(source.min_transition())
        assert 1 <= b.total_mass <= tokenizer.token_lengths_.max()
        losses.append(b.loss)
    assert losses[1] < losses[0] < source.symbol_entropy()


def test_bound_of_blocks_counts_their_mass_once() -> None:
    tokenizer = FixedLengthTokenizer(6).fit(ORDER_1.sample(1000))
    b = unigram_bounds(ORDER_1, tokenizer.tokens_, tokenizer.encode(ORDER_1.sample(100_000, seed=3)))
    assert b.total_mass == pytest.approx(1)
    assert b.upper == pytest.approx(b.greedy_upper)
    assert b.loss < b.upper
