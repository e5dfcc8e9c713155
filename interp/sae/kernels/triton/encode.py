"""Encode, gate and compact in one kernel: a tiled product whose epilogue lists the open gates.

Pre-activations never reach memory. Each piece of a tile counts its open gates, reserves a range of the list
with one atomic, and writes (token, latent, pre-activation) at prefix-sum positions; a sort by (latent, token)
then takes the atomics' accidental order away.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from interp.sae.kernels.lists import OpenGates
from interp.sae.kernels.triton.launch import check, on_device_of, product_precision

LATENTS_AT_ONCE = 32768  # bounds the bfloat16 copy of the weights
LARGEST_SHORT_KEY = 2**31 - 1  # a sort key is latent * n + token: int32 where that is enough
FIRST_ROOM = 64  # list entries per token before anything is known

# Entries per token to make room for next time, by device and dictionary size.
_room: dict[tuple[torch.device, int], int] = {}


@dataclass(frozen=True)
class Tile:
    """Tokens x latents of a program's tile, the depth of a product step, and how the epilogue is cut up.

    parts: pieces of the tile's columns that the epilogue compacts one after the other, which bounds its
        registers. group: tiles of tokens that share a sweep over the latents (for the L2 cache).
    """

    tokens: int
    latents: int
    depth: int
    parts: int
    warps: int
    stages: int
    group: int = 16


TILES = {
    "bf16": Tile(128, 256, 64, parts=8, warps=8, stages=3),
    "tf32": Tile(128, 128, 32, parts=4, warps=8, stages=3),
    "ieee": Tile(64, 64, 16, parts=1, warps=4, stages=2),
}


def compact(
    xc: Float[Tensor, "n d"],
    weight: Float[Tensor, "F d"],
    threshold: Float[Tensor, " F"],
    *,
    tile: Tile | None = None,
) -> OpenGates:
    """List the pairs with ``xc . w_i > threshold_i``, strictly; no n x F tensor.

    The product runs in torch's precision for it (see :func:`product_precision`). The list's room follows the
    last call's length; when it is too small, the product is run again with enough: nothing is ever cut off.
    """
    check(encode_tiles, xc, weight, threshold)
    precision = product_precision(xc.device)
    tile = tile or TILES[precision]
    n, n_latents = xc.shape[0], weight.shape[0]
    xc, weight, threshold = xc.contiguous(), weight.contiguous(), threshold.contiguous()
    key = (xc.device, n_latents)
    with on_device_of(xc):
        scan = _scan(xc, weight, threshold, _room.get(key, FIRST_ROOM) * n, precision, tile)
        length = int(scan.length)
        if length > scan.values.shape[0]:
            scan = _scan(xc, weight, threshold, length, precision, tile)
        _room[key] = 16 + 3 * length // (2 * max(n, 1))
        return _in_order(scan, length, n_latents)


@dataclass(frozen=True)
class _Scan:
    """The list as the tiles left it: in no particular order, perhaps longer than its room."""

    tokens: Tensor
    latents: Tensor
    values: Tensor
    length: Tensor
    hits: Tensor
    per_token: Tensor


def _scan(xc: Tensor, weight: Tensor, threshold: Tensor, room: int, precision: str, tile: Tile) -> _Scan:
    (n, d), n_latents = xc.shape, weight.shape[0]
    scan = _Scan(
        tokens=torch.empty(room, dtype=torch.int32, device=xc.device),
        latents=torch.empty(room, dtype=torch.int32, device=xc.device),
        values=torch.empty(room, dtype=torch.float32, device=xc.device),
        length=torch.zeros(1, dtype=torch.int64, device=xc.device),
        hits=torch.zeros(n_latents, dtype=torch.int32, device=xc.device),
        per_token=torch.zeros(n, dtype=torch.int32, device=xc.device),
    )
    narrow = precision == "bf16"
    rows = _narrow(xc) if narrow else xc
    at_once = LATENTS_AT_ONCE if narrow else max(n_latents, 1)
    for first in range(0, n_latents, at_once):
        part = weight[first : first + at_once]
        tiles = triton.cdiv(n, tile.tokens) * triton.cdiv(part.shape[0], tile.latents)
        encode_tiles[(tiles,)](
            rows,
            _narrow(part) if narrow else part,
            threshold,
            scan.tokens,
            scan.latents,
            scan.values,
            scan.length,
            scan.hits,
            scan.per_token,
            n,
            first,
            first + part.shape[0],
            d,
            room,
            PRECISION="tf32" if narrow else precision,
            EVEN=d % tile.depth == 0,
            GROUP=tile.group,
            TOKENS=tile.tokens,
            LATENTS=tile.latents,
            DEPTH=tile.depth,
            PARTS=tile.parts,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return scan


def _narrow(tensor: Tensor) -> Tensor:
    narrow = tensor.bfloat16()
    # Triton's interpreter multiplies the bits of bfloat16 operands: there, the same numbers in float32.
    return narrow if isinstance(encode_tiles, triton.runtime.JITFunction) else narrow.float()


def _in_order(scan: _Scan, length: int, n_latents: int) -> OpenGates:
    n = scan.per_token.shape[0]
    latents, tokens = scan.latents[:length], scan.tokens[:length]
    if n * n_latents <= LARGEST_SHORT_KEY:
        keys, order = torch.sort(latents * n + tokens)
    else:
        keys, order = torch.sort(latents.long() * n + tokens)
    latents = torch.div(keys, max(n, 1), rounding_mode="floor").int()
    tokens = (keys - latents * n if keys.dtype == torch.int32 else keys - latents.long() * n).int()
    by_token = torch.sort(tokens, stable=True).indices
    return OpenGates(
        latent_ptr=_pointers(scan.hits),
        tokens=tokens,
        values=scan.values[:length][order],
        token_ptr=_pointers(scan.per_token),
        latents=latents[by_token],
        order=by_token,
    )


def _pointers(counts: Tensor) -> Tensor:
    ends = counts.cumsum(0, dtype=torch.int64)
    return torch.cat([ends.new_zeros(1), ends])


@triton.jit(do_not_specialize=["first", "room"])
def encode_tiles(
    xc,
    weight,
    threshold,
    list_tokens,
    list_latents,
    list_values,
    length,
    hits,
    per_token,
    n,
    first,
    last,
    d,
    room,
    PRECISION: tl.constexpr,
    EVEN: tl.constexpr,
    GROUP: tl.constexpr,
    TOKENS: tl.constexpr,
    LATENTS: tl.constexpr,
    DEPTH: tl.constexpr,
    PARTS: tl.constexpr,
):
    """One tile of ``xc @ weight.T``; ``weight`` holds the rows of latents first..last."""
    token_tiles = tl.cdiv(n, TOKENS)
    program = tl.program_id(0)
    per_group = GROUP * tl.cdiv(last - first, LATENTS)
    group = program // per_group
    tall = min(token_tiles - group * GROUP, GROUP)
    tokens = (group * GROUP + program % per_group % tall) * TOKENS + tl.arange(0, TOKENS)
    left = program % per_group // tall * LATENTS
    rows = left + tl.arange(0, LATENTS)

    # Rows beyond the end wrap around: they are in memory, and the epilogue leaves them out.
    depth = tl.arange(0, DEPTH)
    at_x = xc + (tokens % n).to(tl.int64)[:, None] * d + depth[None, :]
    at_w = weight + (rows % (last - first)).to(tl.int64)[:, None] * d + depth[None, :]
    pre = tl.zeros((TOKENS, LATENTS), tl.float32)
    for done in range(0, d, DEPTH):
        if EVEN:
            a = tl.load(at_x)
            b = tl.load(at_w)
        else:
            a = tl.load(at_x, mask=depth[None, :] < d - done, other=0.0)
            b = tl.load(at_w, mask=depth[None, :] < d - done, other=0.0)
        pre = tl.dot(a, tl.trans(b), pre, input_precision=PRECISION)
        at_x += DEPTH
        at_w += DEPTH
    _compact_parts(
        pre, tokens, first + left, threshold, list_tokens, list_latents, list_values,
        length, hits, per_token, n, last, room, TOKENS, LATENTS, PARTS,
    )  # fmt: skip


@triton.jit
def _compact_parts(
    pre, tokens, left, threshold, list_tokens, list_latents, list_values,
    length, hits, per_token, n, last, room, TOKENS: tl.constexpr, LATENTS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    if PARTS == 1:
        _compact_part(
            pre, tokens, left, threshold, list_tokens, list_latents, list_values,
            length, hits, per_token, n, last, room, TOKENS, LATENTS,
        )  # fmt: skip
    else:
        HALF: tl.constexpr = LATENTS // 2
        a, b = tl.split(tl.permute(tl.reshape(pre, (TOKENS, 2, HALF)), (0, 2, 1)))
        _compact_parts(
            a, tokens, left, threshold, list_tokens, list_latents, list_values,
            length, hits, per_token, n, last, room, TOKENS, HALF, PARTS // 2,
        )  # fmt: skip
        _compact_parts(
            b, tokens, left + HALF, threshold, list_tokens, list_latents, list_values,
            length, hits, per_token, n, last, room, TOKENS, HALF, PARTS // 2,
        )  # fmt: skip


@triton.jit
def _compact_part(
    pre, tokens, left, threshold, list_tokens, list_latents, list_values,
    length, hits, per_token, n, last, room, TOKENS: tl.constexpr, LATENTS: tl.constexpr,
):  # fmt: skip
    latents = left + tl.arange(0, LATENTS)
    limit = tl.load(threshold + latents, mask=latents < last, other=float("inf"))
    is_open = (pre > limit[None, :]) & (tokens < n)[:, None]
    one = is_open.to(tl.int32)
    of_token = tl.sum(one, axis=1)
    count = tl.sum(of_token, axis=0)
    if count > 0:
        of_latent = tl.sum(one, axis=0)
        tl.atomic_add(hits + latents, of_latent, mask=of_latent > 0, sem="relaxed")
        tl.atomic_add(per_token + tokens, of_token, mask=of_token > 0, sem="relaxed")
        start = tl.atomic_add(length, count.to(tl.int64), sem="relaxed")
        at = (tl.cumsum(of_token, axis=0) - of_token)[:, None] + tl.cumsum(one, axis=1) - one
        fits = is_open & (at < room - start)
        tl.store(list_values + start + at, pre, mask=fits)
        tl.store(list_tokens + start + at, tl.broadcast_to(tokens[:, None], (TOKENS, LATENTS)), mask=fits)
        tl.store(list_latents + start + at, tl.broadcast_to(latents[None, :], (TOKENS, LATENTS)), mask=fits)
