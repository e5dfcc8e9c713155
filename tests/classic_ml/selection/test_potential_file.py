"""An interrupted potential goes on where it stopped, a finished one is read back, another pool's is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from classic_ml.selection import PoolKernel, RDSSSelector, potential_file

X = np.random.default_rng(0).standard_normal((100, 3))


class CountingKernel(PoolKernel):
    """Counts the tiles of more than one row, and fails once a given number is done."""

    def __init__(self, fail_after: int | None = None) -> None:
        inner = PoolKernel.from_rows(X, sigma=1.0, device="cpu")
        self.tiles = 0

        def tile(rows, columns):
            if isinstance(rows, slice) and rows.stop - rows.start > 1:
                if self.tiles == fail_after:
                    raise KeyboardInterrupt
                self.tiles += 1
            return inner.tile(rows, columns)

        super().__init__(100, tile, block_size=30)


def test_interrupted_work_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(potential_file, "SECONDS_BETWEEN_SAVES", 0.0)
    path = tmp_path / "mu.safetensors"
    with pytest.raises(KeyboardInterrupt):
        CountingKernel(fail_after=6).potential(path)
    rest = CountingKernel()
    resumed = rest.potential(path)
    assert rest.tiles == 10 - 6
    assert torch.equal(resumed, CountingKernel().potential())
    again = CountingKernel()
    assert torch.equal(again.potential(path), resumed)
    assert again.tiles == 0


def test_the_selector_reuses_it_for_other_budgets(tmp_path: Path) -> None:
    path = tmp_path / "mu.safetensors"
    first = RDSSSelector(5, sigma=1.0, potential_file=path).fit(X)
    other = RDSSSelector(9, alpha=0.3, sigma=1.0, potential_file=path).fit(X)
    assert other.indices_.tolist() == RDSSSelector(9, alpha=0.3, sigma=1.0).fit_select(X).tolist()
    np.testing.assert_array_equal(first.mu_, other.mu_)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mu.safetensors"
    RDSSSelector(5, sigma=1.0, potential_file=path).fit(X)
    changed = X.copy()
    changed[77] += 1
    for selector, rows in (
        (RDSSSelector(5, sigma=1.1, potential_file=path), X),
        (RDSSSelector(5, sigma=1.0, block_size=50, potential_file=path), X),
        (RDSSSelector(5, sigma=1.0, potential_file=path), changed),
        (RDSSSelector(5, sigma=1.0, potential_file=path), X[:60]),
    ):
        with pytest.raises(ValueError, match="another pool, kernel, sigma or block_size"):
            selector.fit(rows)
    path.write_text("nothing of the kind")
    with pytest.raises(ValueError, match="is no kernel potential"):
        RDSSSelector(5, sigma=1.0, potential_file=path).fit(X)
