"""MMCS: permuted dictionaries, and all assignments tried one by one."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

from interp.probes.lfp.matching import mmcs
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.architectures.tied import TiedSAE, TiedSAEConfig


def directions(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def test_a_permuted_and_rescaled_copy_matches_fully() -> None:
    small = directions(12, 6, 0)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    found = mmcs(small, 3.0 * small[order])
    assert found.mean == pytest.approx(1.0)
    assert torch.equal(order[torch.from_numpy(found.matched)], torch.arange(12))


def test_the_best_of_all_assignments() -> None:
    a, b = directions(4, 3, 2), directions(6, 3, 3)
    cosines = torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=-1).numpy()
    best = max(permutations(range(6), 4), key=lambda p: sum(cosines[i, j] for i, j in enumerate(p)))
    found = mmcs(a, b)
    assert tuple(found.matched) == best
    assert found.mean == pytest.approx(np.mean([cosines[i, j] for i, j in enumerate(best)]), abs=1e-6)


def test_greedy_would_be_worse() -> None:
    """Both rows like the same direction best; only one may have it."""
    a = torch.tensor([[1.0, 0.0], [0.9, 0.4359]])
    b = torch.tensor([[0.95, 0.3122], [0.0, 1.0]])
    assert mmcs(a, b).matched.tolist() == [0, 1]
    assert len(set(mmcs(directions(20, 3, 0), directions(30, 3, 1)).matched.tolist())) == 20


def test_dictionaries_and_the_best_latents() -> None:
    tied = TiedSAE(TiedSAEConfig(5, 4), seed=0)
    big = StandardSAE(StandardSAEConfig(5, 9), seed=1)
    with torch.no_grad():
        big.W_dec[[8, 2]] = 2 * tied.W[[0, 3]]
    found = mmcs(tied, big)
    assert set(found.best(2)) == {8, 2}
    assert found.to_frame().loc[0, "matched"] == 8
    assert str(found).startswith("MMCS 0.")


def test_dictionaries_that_cannot_match() -> None:
    with pytest.raises(ValueError, match="width"):
        mmcs(directions(3, 4, 0), directions(3, 5, 0))
    with pytest.raises(ValueError, match="other way round"):
        mmcs(directions(4, 4, 0), directions(3, 4, 0))
