"""The one dense product, tile by tile, and the list of open gates that is kept of it."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.cpu_loops import BLOCK, count_open, fill_open, index_by_token, keep_exact
from interp.sae.kernels.lists import OpenGates
from interp.sae.kernels.precision import product_dtype
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
    token_ptr, latents = np.empty(n + 1, np.int64), np.empty(len(tokens), np.int32)
    order = np.empty(len(tokens), np.int64)
    index_by_token(latent_ptr, tokens, token_ptr, latents, order)
    return OpenGates(*(torch.from_numpy(a) for a in (latent_ptr, tokens, values, token_ptr, latents, order)))


def as_array(tensor: Tensor) -> np.ndarray:
    """A NumPy view of a CPU tensor (a copy only where it isn't contiguous)."""
    return tensor.detach().contiguous().numpy()
