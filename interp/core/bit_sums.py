"""Digests of tensors and files that cover every bit, at a fraction of a second a gigabyte.

Each 8 KB give two sums modulo 2^64, of the 64-bit words and of their upper halves, each word times a fixed random odd
number. An odd factor is invertible, so one changed word changes the first sum for certain. Of changes to several words
(a permutation, zeroed columns) the first sum misses one in 2^32 at most where a lower half differs, the second where
only upper halves do; in float32 models either is about one in 2^60. That is the multilinear hashing of Lemire & Kaser
(2014). The sums are integers: the same on every device, with any number of threads. They are read in the order of the
elements, whatever the strides, and go into one SHA-256 with dtype and shape.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from interp.core.files import open_regular

HASHING = "sums-1"  # another name for another way of hashing: hashes of different ways aren't compared
_WORDS = 1024
_BLOCK = 8 * _WORDS  # bytes
_BLOCKS_AT_A_TIME = {"cpu": 64}  # what stays in a core's cache; any other device:
_BLOCKS_ON_ACCELERATOR = 8192


def tensor_digest(tensor: Tensor) -> str:
    """SHA-256 of dtype, shape and the sums of a dense tensor."""
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(sums(bytes_of(tensor)).cpu().numpy().astype("<i8").tobytes())
    return digest.hexdigest()


def file_digest(file: Path) -> str:
    """SHA-256 of the sums of a file's bytes, in a tenth of the time that SHA-256 of the bytes may take."""
    digest = hashlib.sha256(f"{file.stat().st_size} ".encode())
    with open_regular(file) as stream:
        while part := stream.read(1 << 26):
            digest.update(
                sums(torch.frombuffer(bytearray(part), dtype=torch.uint8)).numpy().astype("<i8").tobytes()
            )
    return digest.hexdigest()


def bytes_of(tensor: Tensor) -> Tensor:
    """The bytes [n] of a dense tensor's elements in C order, without a copy where they lie so."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def sums(data: Tensor) -> Tensor:
    """The two sums of each block of bytes: int64 [2 blocks]; the last block is filled up with zeros."""
    if data.storage_offset() % 8:  # words must begin where words begin
        data = data.clone()
    whole = len(data) // _BLOCK
    rest = data[whole * _BLOCK :]
    found = torch.empty(2, whole + bool(len(rest)), dtype=torch.int64, device=data.device)
    _sum_blocks(data[: whole * _BLOCK].view(torch.int64).view(whole, _WORDS), found[:, :whole])
    if len(rest):
        _sum_blocks(F.pad(rest, (0, _BLOCK - len(rest))).view(torch.int64).view(1, _WORDS), found[:, whole:])
    return found


def _sum_blocks(words: Tensor, found: Tensor) -> None:
    first, second = _factors(words.device)
    step = _BLOCKS_AT_A_TIME.get(words.device.type, _BLOCKS_ON_ACCELERATOR)
    upper = torch.empty(min(step, len(words)), _WORDS, dtype=torch.int64, device=words.device)
    for start in range(0, len(words), step):
        here = slice(start, start + step)
        part = words[here]
        shifted = torch.bitwise_right_shift(part, 32, out=upper[: len(part)])
        _dot(part, first, found[0, here])
        _dot(shifted, second, found[1, here])


def _dot(words: Tensor, factors: Tensor, out: Tensor) -> None:
    if words.device.type == "cpu":  # needs no room for the terms; other devices don't have it for integers
        torch.mv(words, factors, out=out)
    else:
        torch.sum(words * factors, dim=-1, out=out)


@cache
def _factors(device: torch.device) -> tuple[Tensor, Tensor]:
    """Odd numbers [words], twice; from a hash function, lest they depend on a generator's version."""
    drawn = np.frombuffer(hashlib.shake_256(HASHING.encode()).digest(2 * _BLOCK), dtype="<i8") | 1
    first, second = torch.from_numpy(drawn.astype(np.int64)).view(2, _WORDS).to(device)
    return first, second
