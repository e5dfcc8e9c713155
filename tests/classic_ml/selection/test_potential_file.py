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

        super().__init__(100, tile, block_size=30, about=inner.about)


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
    for selector, rows, what in (
        (RDSSSelector(5, sigma=1.1, potential_file=path), X, "sigma was 1.0 there and is 1.1 here"),
        (RDSSSelector(5, sigma=1.0, block_size=50, potential_file=path), X, "block_size was 4096"),
        (RDSSSelector(5, sigma=1.0, kernel="laplacian", potential_file=path), X, "kernel was 'gaussian'"),
        (RDSSSelector(5, sigma=1.0, potential_file=path), changed, "pool.digest"),
        (RDSSSelector(5, sigma=1.0, potential_file=path), X[:60], "pool.shape"),
    ):
        with pytest.raises(ValueError, match=f"belongs to another kernel potential: .*{what}.*another file"):
            selector.fit(rows)
    path.write_text("nothing of the kind")
    with pytest.raises(ValueError, match="is no kernel potential"):
        RDSSSelector(5, sigma=1.0, potential_file=path).fit(X)
    with pytest.raises(ValueError, match="doesn't say what its values depend on"):
        PoolKernel(100, lambda rows, columns: torch.ones(1)).potential(path)


def test_a_row_far_from_all_others_belongs_to_the_pool_too(tmp_path: Path) -> None:
    """Rows whose kernel with everything is 0 moved next to each other: no kernel row of the others shows it."""
    path = tmp_path / "mu.safetensors"
    pool = X.copy()
    pool[90:] = 1e3 * np.arange(1, 11)[:, None]
    RDSSSelector(5, sigma=1.0, potential_file=path).fit(pool)
    moved = pool.copy()
    moved[90:] = 1e4 + 1e-2 * np.arange(10)[:, None]
    with pytest.raises(ValueError, match=r"pool\.digest"):
        RDSSSelector(5, sigma=1.0, potential_file=path).fit(moved)


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mu.safetensors"
    RDSSSelector(5, sigma=1.0, potential_file=path).fit(X)
    good = path.read_bytes()
    for position in (4, 40, len(good) // 3, len(good) - 500, len(good) - 1):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(ValueError, match=r"mu\.safetensors"):
            RDSSSelector(5, sigma=1.0, potential_file=path).fit(X)
    path.write_bytes(good[:-8])
    with pytest.raises(ValueError, match="is no kernel potential"):
        RDSSSelector(5, sigma=1.0, potential_file=path).fit(X)


def test_one_bit_or_two_signs_make_another_pool(tmp_path: Path) -> None:
    path = tmp_path / "mu.safetensors"
    RDSSSelector(5, sigma=1.0, potential_file=path).fit(X[::-1])
    signs, bit = X[::-1].copy(), X[::-1].copy()
    signs[[1, 4], 2] *= -1
    bit[50, 1] = np.nextafter(bit[50, 1], 2)
    for other in (signs, bit):
        with pytest.raises(ValueError, match=r"pool\.digest"):
            RDSSSelector(5, sigma=1.0, potential_file=path).fit(other)


def test_a_kernel_function_is_known_by_its_code(tmp_path: Path) -> None:
    path = tmp_path / "mu.safetensors"
    width = 2.0
    RDSSSelector(5, kernel=lambda A, B: np.exp(-abs(A[:, :1] - B[:, 0]) / width), potential_file=path).fit(X)
    width = 3.0
    with pytest.raises(ValueError, match="another kernel potential"):
        RDSSSelector(
            5, kernel=lambda A, B: np.exp(-abs(A[:, :1] - B[:, 0]) / width), potential_file=path
        ).fit(X)
