"""What a rule keeps of a batch, listed exactly and without an n x F tensor.

Of a selection a bound comes first: the k largest of a first part of the latents are no larger than the k largest
of all. Whatever isn't below it is listed by the encoder's kernel, and of the list the largest stay.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

from interp.sae.kernels.lists import CodeParams, LossOptions, OpenGates
from interp.sae.kernels.reference import index_by_token, window_start
from interp.sae.kernels.rules import BatchTopK, TopK, Window, largest
from interp.sae.kernels.triton.encode import Limits, Scan, compact, entries_over, in_order, multiply
from interp.sae.kernels.triton.launch import check, on_device_of

FIRST_SHARE = 8  # the first part holds one latent in so many
LARGEST_PART = 2**26  # pre-activations of the first part
BLOCK = 1024  # candidates of a token that are looked at together


@torch.no_grad()
def listed(
    params: CodeParams, xc: Float[Tensor, "n d"], options: LossOptions, *, guess: float = 0.0
) -> OpenGates:
    """List what a rule keeps of a batch.

    Args:
        guess: what the smallest score that a `BatchTopK` keeps probably exceeds; only the speed depends on it.
    """
    rule = options.rule
    if isinstance(rule, TopK | BatchTopK):
        return _Selection(params, xc, options, rule).run(guess)
    start = window_start(params, rule) if isinstance(rule, Window) else torch.zeros_like(params.b_enc)
    return compact(xc, params.W_enc, start - params.b_enc)


class _Selection:
    """The k largest of each token, or of the batch: scores are positive, the first of equals is larger."""

    def __init__(
        self, params: CodeParams, xc: Float[Tensor, "n d"], options: LossOptions, rule: TopK | BatchTopK
    ) -> None:
        self.rule, self.xc, self.weight, self.bias = rule, xc, params.W_enc, params.b_enc
        self.scale = options.norms(params.W_dec) if rule.by_norm else None
        self.absolute = isinstance(rule, TopK) and rule.absolute
        (self.n, _), F = xc.shape, len(params.b_enc)
        part = min(max(F // FIRST_SHARE, 2 * math.ceil(rule.k)), F // 2, LARGEST_PART // max(self.n, 1))
        self.first = max(part, 1)

    def run(self, guess: float) -> OpenGates:
        """The list that the rule keeps."""
        if self.n == 0:
            return compact(self.xc, self.weight, -self.bias)
        if isinstance(self.rule, TopK):
            gates = self._candidates(self.rule.k)
            return _only(gates, _largest_of_tokens(gates, self._score_of(gates), self.rule.k))
        wanted, kept = self.rule.count(self.n), None
        if guess > 0:
            bounds = self.xc.new_full((self.n,), guess)
            kept = in_order(self._over(bounds, 0))
        if kept is None or len(kept) < wanted:
            kept = self._candidates(wanted)
        return _only(kept, largest(self._score_of(kept), wanted))

    def _candidates(self, k: int) -> OpenGates:
        """Entries among which are the k largest of each token (of the batch), or all that are positive."""
        pre = multiply(self.xc, self.weight[: self.first])
        scores = self._score(pre, slice(self.first))
        among = scores if isinstance(self.rule, TopK) else scores.view(1, -1)
        bounds = scores.new_zeros(self.n)
        if k <= among.shape[1]:
            bounds += among.topk(k, dim=1).values[:, -1].clamp_min(0)
        tokens, latents = torch.nonzero((scores >= bounds[:, None]) & (scores > 0), as_tuple=True)
        # Of scores equal to the bound the first are larger: beyond the first part only what is over it counts.
        rest = self._over(bounds, self.first)
        return in_order(
            Scan(
                tokens=torch.cat([tokens.int(), rest.tokens]),
                latents=torch.cat([latents.int(), rest.latents]),
                values=torch.cat([pre[tokens, latents], rest.values]),
                length=rest.length + len(tokens),
                hits=rest.hits.scatter_add(0, latents, torch.ones_like(latents, dtype=torch.int32)),
                per_token=rest.per_token.scatter_add(0, tokens, torch.ones_like(tokens, dtype=torch.int32)),
            )
        )

    def _over(self, bounds: Float[Tensor, " n"], first: int) -> Scan:
        limits = Limits(bounds, self.bias, self.scale, self.absolute)
        return entries_over(limits, self.xc, self.weight, first=first)

    def _score(self, pre: Tensor, latents: Tensor | slice) -> Tensor:
        score = pre + self.bias[latents]
        if self.scale is not None:
            score = score * self.scale[latents]
        return score.abs() if self.absolute else score

    def _score_of(self, gates: OpenGates) -> Float[Tensor, " z"]:
        return self._score(gates.values, gates.latent_of_entry())


def _largest_of_tokens(gates: OpenGates, scores: Float[Tensor, " z"], k: int) -> Bool[Tensor, " z"]:
    """Marks each token's k largest scores, the first latent of equals."""
    check(keep_largest, scores)
    by_token = scores[gates.order]
    keep = torch.empty_like(by_token, dtype=torch.bool)
    with on_device_of(scores):
        keep_largest[(gates.n_tokens,)](gates.token_ptr, by_token, keep, k, BLOCK=BLOCK)
    return torch.empty_like(keep).scatter_(0, gates.order, keep)


def _only(gates: OpenGates, keep: Bool[Tensor, " z"]) -> OpenGates:
    entries = torch.nonzero(keep)[:, 0]
    if len(entries) == len(gates):
        return gates
    latents, tokens = gates.latent_of_entry()[entries], gates.tokens[entries]
    values, size = gates.values[entries], {"n_tokens": gates.n_tokens, "n_latents": gates.n_latents}
    return index_by_token(latents, tokens, values, **size)


@triton.jit(do_not_specialize=["k"])
def keep_largest(token_ptr, scores, keep, k, BLOCK: tl.constexpr):
    """Mark a token's k largest positive scores, the first of equals.

    Their bits are in their order. Bit by bit, from the highest, it is found from where on there are k: ``found`` have
    at least the bits ``least``, which are k or more, and ``above`` at least ``upper``, which are fewer.
    """
    t = tl.program_id(0).to(tl.int64)
    begin, end = tl.load(token_ptr + t), tl.load(token_ptr + t + 1)
    least, found, upper, above, bit = 0, (end - begin).to(tl.int32), 0x7FFFFFFF, 0, 30
    while (found > k) & (bit >= 0):
        trial = least | (1 << bit)
        one = tl.zeros((BLOCK,), tl.int32)
        for q in range(begin, end, BLOCK):
            entries = q + tl.arange(0, BLOCK)
            bits = tl.load(scores + entries, mask=entries < end, other=0.0).to(tl.int32, bitcast=True)
            one += (bits >= trial).to(tl.int32)
        count = tl.sum(one, axis=0)
        if count >= k:
            least, found = trial, count
        else:
            upper, above = trial, count
        bit -= 1
    room = k - above
    for q in range(begin, end, BLOCK):
        entries = q + tl.arange(0, BLOCK)
        bits = tl.load(scores + entries, mask=entries < end, other=0.0).to(tl.int32, bitcast=True)
        between = ((bits >= least) & (bits < upper) & (entries < end)).to(tl.int32)
        place = tl.cumsum(between, axis=0)
        tl.store(keep + entries, (bits >= upper) | ((between > 0) & (place <= room)), mask=entries < end)
        room -= tl.sum(between, axis=0)
