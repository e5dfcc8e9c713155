"""Digests of arrays cover every bit; tensors' and files' are tested with the models that they identify."""

from __future__ import annotations

import numpy as np
import pytest

from interp.core import bit_sums
from interp.core.bit_sums import array_digest


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_digest_covers_every_bit_shape_and_type(dtype) -> None:
    pool = np.random.default_rng(0).standard_normal((7, 3)).astype(dtype)
    seen = {array_digest(pool), array_digest(pool.reshape(3, 7)), array_digest(pool[::-1])}
    bits = pool.view(np.uint8).reshape(-1)
    for position in range(8 * len(bits)):
        bits[position // 8] ^= 1 << position % 8
        seen.add(array_digest(pool))
        bits[position // 8] ^= 1 << position % 8
    assert len(seen) == 3 + 8 * len(bits)
    assert array_digest(pool) == array_digest(np.asfortranarray(pool))
    flipped = pool.copy()
    flipped[[1, 4], 2] *= -1  # two signs
    assert array_digest(flipped) not in seen


def test_an_array_of_several_parts_is_covered_to_its_end(monkeypatch) -> None:
    monkeypatch.setattr(bit_sums, "_PART", 1 << 14)
    pool = np.arange(5000.0)
    before = array_digest(pool)
    pool.flags.writeable = False
    assert array_digest(pool) == before
    for position in (0, 2047, 2048, 4999):
        changed = pool.copy()
        changed[position] += 1
        assert array_digest(changed) != before
