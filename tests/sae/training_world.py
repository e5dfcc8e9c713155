"""What the tests of training share: rows, a quick recipe, and bit-for-bit equality."""

from __future__ import annotations

import torch

from tests.sae.sparse_world import sparse_rows

D = 16
X = sparse_rows(3000, D)
QUIET = {"progress": False, "backend": "dense", "log_every": 10}
SMALL = {"d_sae": 32, "l1_coefficient": 0.5, "steps": 60, "batch_size": 128, "lr": 3e-3, **QUIET}


def parameters_equal(a, b) -> bool:
    pairs = zip(a.named_parameters(), b.named_parameters(), strict=True)
    return all(n == m and torch.equal(p, q) for (n, p), (m, q) in pairs)
