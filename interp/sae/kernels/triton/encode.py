"""Encode, gate and compact in one kernel: a tiled product whose epilogue lists the open gates.

Pre-activations never reach memory. Each piece of a tile counts its open gates, reserves a range of the list
with one atomic, and writes (token, latent, pre-activation) at prefix-sum positions; a sort by (latent, token)
then takes the atomics' accidental order away.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from interp.sae.kernels.lists import OpenGates
from interp.sae.kernels.triton.launch import check, on_device_of, product_precision

LATENTS_AT_ONCE = 32768  # bounds the bfloat16 copy of the weights
LARGEST_SHORT_KEY = 2**31 - 1  # a sort key is latent * n + token: int32 where that is enough
FIRST_ROOM = 64  # list entries per token before anything is known

# Entries per token to make room for next time, by device, dictionary size and whether the limits are the latents'.
_room: dict[tuple[torch.device, int, bool], int] = {}


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


class Limits(NamedTuple):
    """What is listed: ``pre_ti > threshold_i``, strictly; where there is a bias, ``score_ti > threshold_t``.

    The score is ``(pre_ti + bias_i) * scale_i``, or its magnitude.
    """

    threshold: Float[Tensor, " F"] | Float[Tensor, " n"]
    bias: Float[Tensor, " F"] | None = None
    scale: Float[Tensor, " F"] | None = None
    absolute: bool = False


@dataclass(frozen=True)
class Scan:
    """The list as the tiles left it: in no particular order, in a room that may be too large or too small."""

    tokens: Int[Tensor, " room"]
    latents: Int[Tensor, " room"]
    values: Float[Tensor, " room"]
    length: Int[Tensor, " 1"]
    hits: Int[Tensor, " F"]
    per_token: Int[Tensor, " n"]


def compact(
    xc: Float[Tensor, "n d"],
    weight: Float[Tensor, "F d"],
    threshold: Float[Tensor, " F"],
    *,
    tile: Tile | None = None,
) -> OpenGates:
    """List the pairs with ``xc . w_i > threshold_i``, strictly; no n x F tensor.

    The product runs in torch's precision for it (see :func:`product_precision`).
    """
    return in_order(entries_over(Limits(threshold), xc, weight, tile=tile))


def entries_over(
    limits: Limits,
    xc: Float[Tensor, "n d"],
    weight: Float[Tensor, "F d"],
    *,
    first: int = 0,
    tile: Tile | None = None,
) -> Scan:
    """All entries over the limits among the latents from the first on, in a room that fits.

    The room follows the last call's length; when it is too small, the product is run again with enough: nothing
    is ever cut off.
    """
    check(encode_tiles, xc, weight, *limits[:3])
    precision = product_precision(xc.device)
    tile = tile or TILES[precision]
    n, n_latents = xc.shape[0], weight.shape[0]
    xc, weight = xc.contiguous(), weight.contiguous()
    key = (xc.device, n_latents, limits.bias is None)
    with on_device_of(xc):
        scan = _scan(xc, weight, limits, _room.get(key, FIRST_ROOM) * n, precision, tile, first)
        length = int(scan.length)
        if length > scan.values.shape[0]:
            scan = _scan(xc, weight, limits, length, precision, tile, first)
    _room[key] = 16 + 3 * length // (2 * max(n, 1))
    return replace(
        scan, tokens=scan.tokens[:length], latents=scan.latents[:length], values=scan.values[:length]
    )


def multiply(xc: Float[Tensor, "n d"], weight: Float[Tensor, "m d"]) -> Float[Tensor, "n m"]:
    """``xc @ weight.T`` whole, for few latents: operands in torch's precision, sums and result in float32."""
    check(encode_tiles, xc, weight)
    precision = product_precision(xc.device)
    xc, weight = xc.contiguous(), weight.contiguous()
    out = xc.new_empty(xc.shape[0], weight.shape[0])
    with on_device_of(xc):
        _launch(xc, weight, None, None, out, out.shape[1], precision, TILES[precision], 0)
    return out


def _scan(
    xc: Tensor, weight: Tensor, limits: Limits, room: int, precision: str, tile: Tile, first: int = 0
) -> Scan:
    n, n_latents = xc.shape[0], weight.shape[0]
    scan = Scan(
        tokens=torch.empty(room, dtype=torch.int32, device=xc.device),
        latents=torch.empty(room, dtype=torch.int32, device=xc.device),
        values=torch.empty(room, dtype=torch.float32, device=xc.device),
        length=torch.zeros(1, dtype=torch.int64, device=xc.device),
        hits=torch.zeros(n_latents, dtype=torch.int32, device=xc.device),
        per_token=torch.zeros(n, dtype=torch.int32, device=xc.device),
    )
    _launch(xc, weight, limits, scan, None, room, precision, tile, first)
    return scan


def _launch(
    xc: Tensor,
    weight: Tensor,
    limits: Limits | None,
    scan: Scan | None,
    dense: Tensor | None,
    room: int,
    precision: str,
    tile: Tile,
    first: int,
) -> None:
    (n, d), n_latents = xc.shape, weight.shape[0]
    narrow = precision == "bf16"
    rows = _narrow(xc) if narrow else xc
    at_once = LATENTS_AT_ONCE if narrow else max(n_latents, 1)
    over: list[Tensor | None] = [None] * 3
    made: list[Tensor | None] = [None] * 6
    if limits is not None and scan is not None:
        over = [None if limit is None else limit.contiguous() for limit in limits[:3]]
        made = [scan.tokens, scan.latents, scan.values, scan.length, scan.hits, scan.per_token]
    for start in range(first, n_latents, at_once):
        part = weight[start : start + at_once]
        tiles = triton.cdiv(n, tile.tokens) * triton.cdiv(part.shape[0], tile.latents)
        encode_tiles[(tiles,)](
            rows,
            _narrow(part) if narrow else part,
            *over,
            *made,
            dense,
            n,
            start,
            start + part.shape[0],
            d,
            room,
            PRECISION="tf32" if narrow else precision,
            ABSOLUTE=limits is not None and limits.absolute,
            EVEN=d % tile.depth == 0,
            GROUP=tile.group,
            TOKENS=tile.tokens,
            LATENTS=tile.latents,
            DEPTH=tile.depth,
            PARTS=tile.parts,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )


def _narrow(tensor: Tensor) -> Tensor:
    narrow = tensor.bfloat16()
    # Triton's interpreter multiplies the bits of bfloat16 operands: there, the same numbers in float32.
    return narrow if isinstance(encode_tiles, triton.runtime.JITFunction) else narrow.float()


def in_order(scan: Scan) -> OpenGates:
    """The list by (latent, token), with its index by token."""
    n, n_latents, latents, tokens = len(scan.per_token), len(scan.hits), scan.latents, scan.tokens
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
        values=scan.values[order],
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
    bias,
    scale,
    list_tokens,
    list_latents,
    list_values,
    length,
    hits,
    per_token,
    dense,
    n,
    first,
    last,
    d,
    room,
    PRECISION: tl.constexpr,
    ABSOLUTE: tl.constexpr,
    EVEN: tl.constexpr,
    GROUP: tl.constexpr,
    TOKENS: tl.constexpr,
    LATENTS: tl.constexpr,
    DEPTH: tl.constexpr,
    PARTS: tl.constexpr,
):
    """One tile of ``xc @ weight.T``; ``weight`` holds the rows of latents first..last.

    Its entries over the limits join the list; where ``dense`` (with rows of length ``room``) is given, all go there.
    """
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
    if dense is not None:
        at = tokens.to(tl.int64)[:, None] * room + (first + rows)[None, :]
        tl.store(dense + at, pre, mask=(tokens < n)[:, None] & (first + rows < last)[None, :])
    else:
        _compact_parts(
            pre, tokens, first + left, threshold, bias, scale, list_tokens, list_latents, list_values,
            length, hits, per_token, n, last, room, ABSOLUTE, TOKENS, LATENTS, PARTS,
        )  # fmt: skip


@triton.jit
def _compact_parts(
    pre, tokens, left, threshold, bias, scale, list_tokens, list_latents, list_values,
    length, hits, per_token, n, last, room,
    ABSOLUTE: tl.constexpr, TOKENS: tl.constexpr, LATENTS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    if PARTS == 1:
        _compact_part(
            pre, tokens, left, threshold, bias, scale, list_tokens, list_latents, list_values,
            length, hits, per_token, n, last, room, ABSOLUTE, TOKENS, LATENTS,
        )  # fmt: skip
    else:
        HALF: tl.constexpr = LATENTS // 2
        a, b = tl.split(tl.permute(tl.reshape(pre, (TOKENS, 2, HALF)), (0, 2, 1)))
        _compact_parts(
            a, tokens, left, threshold, bias, scale, list_tokens, list_latents, list_values,
            length, hits, per_token, n, last, room, ABSOLUTE, TOKENS, HALF, PARTS // 2,
        )  # fmt: skip
        _compact_parts(
            b, tokens, left + HALF, threshold, bias, scale, list_tokens, list_latents, list_values,
            length, hits, per_token, n, last, room, ABSOLUTE, TOKENS, HALF, PARTS // 2,
        )  # fmt: skip


@triton.jit
def _compact_part(
    pre, tokens, left, threshold, bias, scale, list_tokens, list_latents, list_values,
    length, hits, per_token, n, last, room,
    ABSOLUTE: tl.constexpr, TOKENS: tl.constexpr, LATENTS: tl.constexpr,
):  # fmt: skip
    latents = left + tl.arange(0, LATENTS)
    if bias is None:
        limit = tl.load(threshold + latents, mask=latents < last, other=float("inf"))
        is_open = (pre > limit[None, :]) & (tokens < n)[:, None]
    else:
        score = pre + tl.load(bias + latents, mask=latents < last, other=0.0)[None, :]
        if scale is not None:
            score *= tl.load(scale + latents, mask=latents < last, other=0.0)[None, :]
        if ABSOLUTE:
            score = tl.abs(score)
        limit = tl.load(threshold + tokens, mask=tokens < n, other=float("inf"))
        is_open = (score > limit[:, None]) & (latents < last)[None, :]
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
