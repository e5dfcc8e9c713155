"""What the theory promises of unigram models over tokens (Rajaraman, Jiao, Ramchandran 2024, arXiv 2404.08335).

With `P(t | c)` the probability that the source emits the token t after context c, `Q` the law of the tokens and
`H(Q, P) = E_{c ~ mu} sum_t Q(t) ln 1/P(t | c)`, its heavy-hitting entropy: a tokenizer whose tokens are all improbable
(large H(Q, P)) makes a unigram model nearly as good as the source itself. Contexts are the `order` symbols before a
token; for order 1, the paper's case, that is the symbol before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.markov.encoders import Token
from interp.markov.ngram import token_frequencies
from interp.markov.sources import MarkovSource, entropy


def token_log_probabilities(source: MarkovSource, tokens: Sequence[Token]) -> Float[np.ndarray, "V contexts"]:
    """ln P(t | c) of every token after every context; -inf where impossible."""
    with np.errstate(divide="ignore"):
        log_transition = np.log(source.transition)
    lengths = np.array([len(token) for token in tokens])
    symbols = np.zeros((len(tokens), lengths.max()), np.int64)
    symbols[np.arange(lengths.max()) < lengths[:, None]] = [s for token in tokens for s in token]
    out = np.zeros((len(tokens), source.n_contexts))
    context = np.tile(np.arange(source.n_contexts), (len(tokens), 1))
    for j in range(lengths.max()):
        going = lengths > j
        symbol = symbols[going, j : j + 1]
        out[going] += log_transition[context[going], symbol]
        context[going] = context[going] * source.alphabet_size % source.n_contexts + symbol
    return out


def heavy_hitting_entropy(
    tokens: Sequence[Token], frequencies: Float[np.ndarray, " V"], source: MarkovSource
) -> float:
    """H(Q, P) in nats per token; infinite where a token is impossible after some context."""
    return _heavy(token_log_probabilities(source, tokens), np.asarray(frequencies), source)


def _heavy(
    log_p: Float[np.ndarray, "V contexts"], frequencies: Float[np.ndarray, " V"], source: MarkovSource
) -> float:
    used = frequencies > 0
    return float(-(frequencies[used] @ (log_p[used] @ source.stationary)))


def edge_cost(tokens: Sequence[Token], frequencies: Float[np.ndarray, " V"], source: MarkovSource) -> float:
    """E_{t ~ Q} min(order, |t|) ln(1/delta): the most that the context of a token can change its ln P.

    ln(1/delta) for a source of order 1; infinite for delta = 0.
    """
    delta = source.min_transition()
    reach = np.array([min(source.order, len(token)) for token in tokens])
    return float(frequencies @ reach) * -math.log(delta) if delta > 0 else math.inf


def unigram_bound(source: MarkovSource, heavy: float, cost: float | None = None) -> float:
    """H_inf / (1 - eps) with eps = cost / H(Q, P): the most that the best unigram model loses with greedy encoding.

    The bound of the paper's theorem for data-driven dictionaries, in the limit of long texts.

    Args:
        heavy: H(Q, P), of `heavy_hitting_entropy`.
        cost: `edge_cost`, which extends the bound to higher orders; None is ln(1/delta), that of order 1.

    Returns:
        nats per symbol; infinite where eps >= 1 (the bound says nothing).
    """
    if cost is None:
        delta = source.min_transition()
        cost = -math.log(delta) if delta > 0 else math.inf
    return source.entropy_rate() / (1 - cost / heavy) if cost < heavy else math.inf


def lzw_epsilon(delta: float, d: int, *, constant: float = 0.99) -> float:
    """eps = ln(1/delta) / (0.99 ln d): an LZW dictionary of d tokens costs at most H_inf / (1 - eps), with high
    probability, when it was learnt from about d symbols (up to factors in delta and logarithms). May exceed 1.
    """
    if not 0 < delta < 1 or d < 2:
        raise ValueError(f"delta = {delta} must lie in (0, 1) and d = {d} be at least 2")
    return -math.log(delta) / (constant * math.log(d))


def fixed_length_loss(source: MarkovSource, length: int) -> float:
    """What the best unigram model over all strings of one length reaches, exactly: H(block) / length.

    For the switching source of order k: (min(r, k) H(pi) + max(r - k, 0) H_inf) / r. For order 1 the gap to H_inf
    shrinks like 1 / ln d only, whatever the source.
    """
    if length < 1:
        raise ValueError(f"length = {length} must be at least 1")
    return source.block_entropy(length) / length


def heavy_hitting_exponent(tokens: Sequence[Token], source: MarkovSource) -> float:
    """The largest beta for which every maximal token (no token's prefix) has max_c P(t | c) <= d^-beta."""
    prefixes = {token[:j] for token in tokens for j in range(1, len(token))}
    maximal = [token for token in tokens if token not in prefixes]
    likeliest = token_log_probabilities(source, maximal).max(1)
    return float(-likeliest.max() / math.log(len(tokens)))


@dataclass(frozen=True)
class UnigramBounds:
    """The best unigram loss over the tokens of a text, beside what bounds it; nats per symbol unless said.

    Attributes:
        loss: H(Q) / E|t| of the text.
        entropy_rate: the lower bound.
        symbol_entropy: what the best unigram model over characters reaches.
        upper: `H_inf (H(Q,P) + ln Z) / (H(Q,P) - edge cost)` with `Z = sum_t E_c P(t | c)`. Holds for any dictionary
            with the alphabet and any encoder, up to sampling error in H_inf; infinite where the denominator is not
            positive.
        greedy_upper: `unigram_bound` with the edge cost; for greedy encoding and order 1 the paper's.
        token_entropy, heavy_entropy: H(Q) and H(Q, P), nats per token.
        total_mass: Z; 1 for complete prefix-free dictionaries, at most the longest token's length.
        symbols_per_token: E|t|.
        beta: `heavy_hitting_exponent` of the dictionary.
    """

    loss: float
    entropy_rate: float
    symbol_entropy: float
    upper: float
    greedy_upper: float
    token_entropy: float
    heavy_entropy: float
    total_mass: float
    symbols_per_token: float
    beta: float


def unigram_bounds(
    source: MarkovSource, tokens: Sequence[Token], ids: Int[np.ndarray, " n"]
) -> UnigramBounds:
    """Measure a tokenized text and compute its bounds.

    Why `upper` holds. The text's -ln P is at least the sum over its tokens of -ln P(t | mean context) less the edge
    cost, so E|t| H_inf >= H(Q,P) - cost. And H(Q) is at most the cross-entropy with the law E_c P(t | c) / Z, which by
    Jensen is at most H(Q,P) + ln Z.
    """
    q = token_frequencies(ids, len(tokens))
    mean_length = float(q @ [len(token) for token in tokens])
    log_p = token_log_probabilities(source, tokens)
    heavy = _heavy(log_p, q, source)
    mass = float((np.exp(log_p) @ source.stationary).sum())
    cost = edge_cost(tokens, q, source)
    rate = source.entropy_rate()
    return UnigramBounds(
        loss=float(entropy(q)) / mean_length,
        entropy_rate=rate,
        symbol_entropy=source.symbol_entropy(),
        upper=rate * (heavy + math.log(mass)) / (heavy - cost) if heavy > cost else math.inf,
        greedy_upper=unigram_bound(source, heavy, cost),
        token_entropy=float(entropy(q)),
        heavy_entropy=heavy,
        total_mass=mass,
        symbols_per_token=mean_length,
        beta=heavy_hitting_exponent(tokens, source),
    )
