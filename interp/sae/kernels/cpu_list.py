"""The one dense product, tile by tile, and the list of open gates that is kept of it."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels import cpu_loops
from interp.sae.kernels.cpu_loops import BLOCK, count_open, fill_open, index_by_token, keep_exact
from interp.sae.kernels.lists import CodeParams, LossOptions, OpenGates
from interp.sae.kernels.precision import product_dtype
from interp.sae.kernels.reference import window_start
from interp.sae.kernels.rules import BatchTopK, TopK, Window
from interp.sae.kernels.threads import map_threads

# A tile of the product (in numbers) is still in cache when it is scanned; fewer rows slow the product down.
_TILE_SIZE = 2**19
_SMALLEST_TILE = 128


def compact(
    xc: Float[Tensor, "n d"], weight: Float[Tensor, "F d"], threshold: Float[Tensor, " F"]
) -> OpenGates:
    """List the pairs with ``xc . w_i > threshold_i``, strictly.

    Latents are the rows of a tile, so that scanning it yields the list in (latent, token) order. Open entries
    are counted before they are written: the list is never too short. Where the product runs in bfloat16 it
    only proposes: the listed products are taken again in full precision, and decide.
    """
    n, F = xc.shape[0], weight.shape[0]
    tile = min(F, max(_SMALLEST_TILE, _TILE_SIZE // max(n, 1)))
    limits, latent_ptr = as_array(threshold), np.zeros(F + 1, np.int64)
    counts = latent_ptr[1:]
    weight, xc, narrow = weight.detach(), xc.detach(), product_dtype(xc.device, xc.dtype)
    inputs, vectors, directions = xc.to(narrow).T, as_array(xc), as_array(weight)
    buffers: deque[Tensor] = deque()

    def scan(start: int) -> tuple[np.ndarray, np.ndarray]:
        rows = min(tile, F - start)
        product = buffers.pop() if buffers else torch.empty(tile, n, dtype=xc.dtype)
        if narrow == xc.dtype:
            torch.mm(weight[start : start + rows], inputs, out=product[:rows])
        else:
            product[:rows] = weight[start : start + rows].to(narrow) @ inputs
        pre = product.numpy()
        blocks = np.empty((rows, n // BLOCK), np.uint8)
        total = count_open(pre, limits, start, rows, blocks, counts)
        tokens, values = np.empty(total, np.int32), np.empty(total, pre.dtype)
        fill_open(pre, limits, start, rows, blocks, tokens, values)
        if narrow != xc.dtype:
            total = keep_exact(vectors, directions, limits, start, rows, counts, tokens, values)
            tokens, values = tokens[:total], values[:total]
        buffers.append(product)
        return tokens, values

    tiles = map_threads(scan, range(0, F, tile))
    tokens, values = (np.concatenate(parts) for parts in zip(*tiles, strict=True))
    np.cumsum(counts, out=counts)
    return _indexed(latent_ptr, tokens, values, n)


def listed(
    params: CodeParams, xc: Float[Tensor, "n d"], options: LossOptions, *, guess: float = 0.0
) -> OpenGates:
    """List what a rule keeps of a batch, without an n x F array.

    Args:
        guess: what the smallest score that a `BatchTopK` keeps probably exceeds; only the speed depends on it.
    """
    rule = options.rule
    if isinstance(rule, TopK | BatchTopK):
        return _Selection(params, xc, options, rule).run(guess)
    start = window_start(params, rule) if isinstance(rule, Window) else torch.zeros_like(params.b_enc)
    return compact(xc, params.W_enc, start.detach() - params.b_enc.detach())


class _Selection:
    """The k largest of each token, or of the batch, exactly.

    Of each token: heaps of the largest so far, which later latents rarely enter. Of a batch: whatever isn't below a
    lower bound is listed, and of the list the largest stay; the bound is a guess by the last step, or what it would be
    if an eighth of the latents were all.
    The product is always float32 (or float64): a narrower one would lose entries near the bound.
    """

    def __init__(
        self, params: CodeParams, xc: Float[Tensor, "n d"], options: LossOptions, rule: TopK | BatchTopK
    ) -> None:
        self.xc, self.weight, self.rule = xc.detach(), params.W_enc.detach(), rule
        self.n, self.F = xc.shape[0], params.W_enc.shape[0]
        self.tile = min(self.F, max(_SMALLEST_TILE, _TILE_SIZE // max(self.n, 1)))
        self.bias = as_array(params.b_enc)
        W_dec = params.W_dec.detach()
        self.scale = as_array(options.norms(W_dec)) if rule.by_norm else np.ones(self.F, self.bias.dtype)
        self.absolute = isinstance(rule, TopK) and rule.absolute

    def run(self, guess: float) -> OpenGates:
        """The list that the rule keeps."""
        if isinstance(self.rule, TopK):
            return self._by_token(self.rule.k)
        wanted = self.rule.count(self.n)
        for bound in (guess, None):
            kept = self._of_batch(wanted, bound) if bound is None or bound > 0 else None
            if kept is not None:
                return kept
        raise AssertionError("the bound by the first latents is one")

    def _by_token(self, k: int) -> OpenGates:
        """Heaps of each token's k largest, one set for each run of latents that a thread takes."""
        k, tiles = min(k, self.F), range(0, self.F, self.tile)  # the same tiles on any number of threads
        runs = min(torch.get_num_threads(), len(tiles))
        cuts = [len(tiles) * i // runs for i in range(runs + 1)]

        def walk(first: int, last: int) -> tuple[np.ndarray, ...]:
            scores, values = (np.zeros((self.n, k), self.bias.dtype) for _ in range(2))
            latents, bounds = np.full((self.n, k), self.F, np.int32), np.zeros(self.n, self.bias.dtype)
            for start in tiles[first:last]:
                product = self._product(start)
                given = (product.numpy(), self.bias, self.scale, self.absolute, start, len(product))
                cpu_loops.keep_largest(*given, scores, latents, values, bounds)
            return scores, latents, values

        heaps, *others = map_threads(walk, cuts[:-1], cuts[1:])
        for other in others:
            cpu_loops.merge_largest(*heaps, *other)
        count, latent_ptr = int((heaps[0] > 0).sum()), np.zeros(self.F + 1, np.int64)
        tokens, values = np.empty(count, np.int32), np.empty(count, self.bias.dtype)
        cpu_loops.list_heaps(*heaps, latent_ptr, tokens, values)
        return _indexed(latent_ptr, tokens, values, self.n)

    def _of_batch(self, wanted: int, guess: float | None) -> OpenGates | None:
        """The `wanted` largest; None where the guess was too high."""
        first = [] if guess is not None else self._first_tiles()
        bound = guess if guess is not None else self._bound_of_batch(first, wanted)
        bounds = np.full(self.n, bound, self.bias.dtype)
        latent_ptr, tokens, values, scores = self._candidates(bounds, first)
        if len(scores) <= wanted:
            return (
                None
                if guess is not None and len(scores) < wanted
                else _indexed(latent_ptr, tokens, values, self.n)
            )
        least = np.partition(scores, len(scores) - wanted)[len(scores) - wanted]
        keep = scores > least
        equal = np.flatnonzero(scores == least)
        keep[equal[: wanted - int(keep.sum())]] = True
        return self._only(latent_ptr, tokens, values, keep)

    def _bound_of_batch(self, first: list[Tensor], wanted: int) -> float:
        parts = []
        for start, product in zip(range(0, self.F, self.tile), first, strict=False):
            rows = slice(start, start + len(product))
            scores = (product.numpy() + self.bias[rows, None]) * self.scale[rows, None]
            parts.append(scores[scores > 0])
        positive = np.concatenate(parts)
        if len(positive) <= wanted:
            return 0.0
        return float(np.partition(positive, len(positive) - wanted)[len(positive) - wanted])

    def _first_tiles(self) -> list[Tensor]:
        """Products with the first eighth of the latents."""
        starts = range(0, max(1, self.F // 8), self.tile)
        return map_threads(self._product, starts)

    def _product(self, start: int) -> Tensor:
        return self.weight[start : start + self.tile] @ self.xc.T

    def _candidates(self, bounds: np.ndarray, first: list[Tensor]) -> tuple[np.ndarray, ...]:
        """All entries with a positive score that isn't below the token's bound, in (latent, token) order."""
        latent_ptr = np.zeros(self.F + 1, np.int64)
        counts, buffers = latent_ptr[1:], deque()  # type: ignore[var-annotated]

        def scan(start: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            rows = min(self.tile, self.F - start)
            if start // self.tile < len(first):
                product = first[start // self.tile]
            else:
                buffer = buffers.pop() if buffers else torch.empty(self.tile, self.n, dtype=self.xc.dtype)
                product = buffer[:rows]
                torch.mm(self.weight[start : start + rows], self.xc.T, out=product)
            pre, blocks = product.numpy(), np.empty((rows, self.n // BLOCK), np.uint8)
            given = (pre, self.bias, self.scale, bounds, self.absolute, start, rows, blocks)
            total = cpu_loops.count_scores(*given, counts)
            tokens = np.empty(total, np.int32)
            values, scores = np.empty(total, pre.dtype), np.empty(total, pre.dtype)
            cpu_loops.fill_scores(*given, tokens, values, scores)
            if start // self.tile >= len(first):
                buffers.append(buffer)
            return tokens, values, scores

        tiles = map_threads(scan, range(0, self.F, self.tile))
        np.cumsum(counts, out=counts)
        return latent_ptr, *(np.concatenate(parts) for parts in zip(*tiles, strict=True))

    def _only(
        self, latent_ptr: np.ndarray, tokens: np.ndarray, values: np.ndarray, keep: np.ndarray
    ) -> OpenGates:
        count, new_ptr = int(keep.sum()), np.zeros_like(latent_ptr)
        kept = np.empty(count, tokens.dtype), np.empty(count, values.dtype)
        cpu_loops.drop_entries(latent_ptr, tokens, values, keep, new_ptr, *kept)
        return _indexed(new_ptr, *kept, self.n)


def _indexed(latent_ptr: np.ndarray, tokens: np.ndarray, values: np.ndarray, n: int) -> OpenGates:
    """The list with its index by token."""
    token_ptr, latents = np.empty(n + 1, np.int64), np.empty(len(tokens), np.int32)
    order = np.empty(len(tokens), np.int64)
    index_by_token(latent_ptr, tokens, token_ptr, latents, order)
    return OpenGates(*(torch.from_numpy(a) for a in (latent_ptr, tokens, values, token_ptr, latents, order)))


def as_array(tensor: Tensor) -> np.ndarray:
    """A NumPy view of a CPU tensor (a copy only where it isn't contiguous)."""
    return tensor.detach().contiguous().numpy()
