"""Regions by hand, and many at once against one by one, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from classic_ml.auditing import (
    BallRegion,
    BoxRegion,
    CallableRegion,
    HalfspaceRegion,
    KernelRegion,
    Region,
    membership,
    regions,
)
from classic_ml.auditing.membership import members

Z = np.array([[0.0, 0.0], [1.0, 0.0], [0.6, 0.8], [0.9, 0.9], [-2.0, 0.0]])


@pytest.mark.parametrize(
    ("region", "inside"),
    [
        (BallRegion([0, 0], 1.0), [1, 1, 1, 0, 0]),
        (BallRegion([0, 0], 1.0, "linf"), [1, 1, 1, 1, 0]),
        (BallRegion([0, 0], 0.0), [1, 0, 0, 0, 0]),
        (BallRegion([0, 0], np.inf), [1, 1, 1, 1, 1]),
        (BoxRegion([0, 0], [1, 0.85]), [1, 1, 1, 0, 0]),
        (BoxRegion([-np.inf, 0], [0, np.inf]), [1, 0, 0, 0, 1]),
        (HalfspaceRegion([[1, 1], [-1, 0]], [1.45, 1.0]), [1, 1, 1, 0, 0]),
        (HalfspaceRegion([[0, 1]], [0]), [1, 1, 0, 0, 1]),
        (KernelRegion([0, 0], 2.0, np.exp(-0.26)), [1, 1, 1, 0, 0]),  # radius 2 sqrt(0.26) = 1.02
        (CallableRegion(lambda rows: rows[:, 0] > 0.95), [0, 1, 0, 0, 0]),
    ],
)
def test_by_hand(region: Region, inside: list[int]) -> None:
    assert region.contains(Z).tolist() == [bool(v) for v in inside]
    assert type(region).__name__ in repr(region)


def test_a_kernel_region_is_where_the_kernel_is_large() -> None:
    rng = np.random.default_rng(0)
    rows, x = rng.normal(size=(500, 3)), rng.normal(size=3)
    kernel = np.exp(-((rows - x) ** 2).sum(1) / 1.3**2)
    assert np.array_equal(KernelRegion(x, 1.3, 0.2).contains(rows), kernel >= 0.2)
    assert 20 < (kernel >= 0.2).sum() < 480


def test_wide_boxes_and_long_pools_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    rows = rng.uniform(size=(300, 70))
    box, ball = BoxRegion(np.full(70, 0.01), np.full(70, 0.99)), BallRegion(np.full(70, 0.5), 2.4)
    space = HalfspaceRegion(rng.normal(size=(3, 70)), np.ones(3))
    want = [((rows >= 0.01) & (rows <= 0.99)).all(1), np.linalg.norm(rows - 0.5, axis=1) <= 2.4]
    want.append((rows @ space.A.T <= 1).all(1))
    monkeypatch.setattr(regions, "CHUNK_BYTES", 4096)
    for region, expected in zip((box, ball, space), want, strict=True):
        assert 0 < expected.sum() < 300
        assert np.array_equal(region.contains(rows), expected)


@given(
    d=st.sampled_from([1, 2, 5, 8, 9, 24]),
    metric=st.sampled_from(["l2", "linf"]),
    offset=st.sampled_from([0.0, 1e6]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=30, deadline=None)
def test_many_regions_are_each_region(d: int, metric: str, offset: float, seed: int) -> None:
    """On a lattice, where distances tie with radii, near the origin and far from it; chunks of a few rows."""
    rng = np.random.default_rng(seed)
    rows = offset + rng.integers(-3, 4, (90, d)) * 0.1
    centers = rows[rng.choice(90, 12)]
    radii = rng.choice([0.0, 0.1, 0.2, 0.1 * np.sqrt(d), 0.3 * np.sqrt(d), np.inf], 12)
    some: list[Region] = [BallRegion(c, r, metric) for c, r in zip(centers, radii, strict=True)]
    some[3] = BoxRegion(centers[3] - 0.1, centers[3] + 0.1)
    some[7] = KernelRegion(centers[7], 0.5, 0.4)
    some[9] = BallRegion(centers[9], 0.2, "l2" if metric == "linf" else "linf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regions, "CHUNK_BYTES", 8192)
        found = dict(members(some, rows))
    assert sorted(found) == list(range(12))
    for i, region in enumerate(some):
        assert np.array_equal(found[i], np.flatnonzero(region.contains(rows)))


def test_far_from_the_origin_the_product_is_not_trusted() -> None:
    """|z|^2 - 2 z.c + |c|^2 loses everything at 1e9, the distance does not."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(200, 12)) + np.where(np.arange(200) % 2, 1e9, -1e9)[:, None]
    balls = [BallRegion(rows[i], 4.5) for i in range(20)]
    found = dict(members(balls, rows))
    for i in range(20):
        near = np.linalg.norm(rows - rows[i], axis=1) <= 4.5
        assert np.array_equal(found[i], np.flatnonzero(near))
    assert 2 < np.mean([len(v) for v in found.values()]) < 90


def test_few_rows_and_single_regions_take_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "_balls", lambda *_: pytest.fail("not batched"))
    assert [rows.tolist() for _, rows in members([BallRegion([0, 0], 1.0)] * 2, Z)] == [[0, 1, 2]] * 2
    assert [len(rows) for _, rows in members([BallRegion([0, 0], 1.0)], np.zeros((100, 2)))] == [100]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BallRegion([0, 0], -1), "radius = -1"),
        (lambda: BallRegion([0, np.nan], 1), "center holds NaN"),
        (lambda: BallRegion([[0, 1]], 1), r"center has shape \(1, 2\)"),
        (lambda: BallRegion([0], 1, "l1"), "metric = 'l1'"),
        (lambda: KernelRegion([0], 0, 0.5), "width = 0"),
        (lambda: KernelRegion([0], 1, 0), "cutoff = 0"),
        (lambda: KernelRegion([0], 1, 1.1), "cutoff = 1.1"),
        (lambda: BoxRegion([0, 2], [1, 1]), "column 1 .*the box is empty"),
        (lambda: BoxRegion([0, 2], [1]), "2 columns, upper 1"),
        (lambda: HalfspaceRegion([[1, 2]], [1, 2]), r"A has shape \(1, 2\)"),
        (lambda: HalfspaceRegion([[1, np.inf]], [1]), "A holds NaN"),
        (lambda: BallRegion([0, 0, 0], 1).contains(Z), r"3 columns, the rows have shape \(5, 2\)"),
        (lambda: CallableRegion(lambda rows: rows[:1, 0] > 0).contains(Z), "for 5 rows"),
        (lambda: CallableRegion(lambda rows: rows[:, 0]).contains(Z), "float64"),
        (
            lambda: list(members([BallRegion([0], 1), BallRegion([0, 0], 1)], np.zeros((99, 2)))),
            "of 1 and of 2",
        ),
    ],
)
def test_refusals(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


def test_a_region_must_be_a_function() -> None:
    with pytest.raises(TypeError, match="contains = 3"):
        CallableRegion(3)  # type: ignore[arg-type]
