"""Locality collapses in high dimension: the sheet's table, and an independent draw of the same ball."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from classic_ml.auditing import audit_plan, ball_on_spheres, largest_local_mass
from classic_ml.auditing.spheres import cap_share

TABLE = {
    3: (0.4611, 0.05047),
    5: (0.4576, 0.00747),
    10: (0.4643, 1.04e-4),
    20: (0.4669, 2.85e-8),
}


@pytest.mark.parametrize("d", TABLE)
def test_largest_mass(d: int) -> None:
    ball = largest_local_mass(d)
    assert (ball.radius, ball.mass) == (
        pytest.approx(TABLE[d][0], abs=1e-4),
        pytest.approx(TABLE[d][1], rel=5e-3),
    )
    assert ball.loss == pytest.approx(1 / 3, abs=1e-6)
    assert ball_on_spheres(d, 1.02 * ball.radius, ball.gap)[1] > 1 / 3


def test_queries_more_than_double_per_dimension() -> None:
    needed = [audit_plan(largest_local_mass(d).mass, 0.5, 0.1, 0.3, 0.1).n_reference for d in (3, 4, 5, 6)]
    assert all(more / less > 2 for less, more in itertools.pairwise(needed))


def test_with_a_fixed_gap_the_mass_stays() -> None:
    """The thresholds are minimised over, not read off a grid: the masses are a little above a coarse search's."""
    for d, coarse in ((3, 0.0759), (20, 0.0344)):
        mass = largest_local_mass(d, 0.05).mass
        assert coarse <= mass <= 1.04 * coarse


@pytest.mark.parametrize(("d", "radius", "gap"), [(2, 0.9, 0.05), (3, 0.57, 0.05), (4, 1.2, 0.3)])
def test_mass_and_loss_against_drawn_points(d: int, radius: float, gap: float) -> None:
    rng = np.random.default_rng(d)
    n = 400_000
    z = rng.normal(size=(n, d))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    outer = np.arange(n) % 2 == 1
    z[outer] *= 1 + gap
    x = np.zeros(d)
    x[0] = 1 + gap
    inside = np.linalg.norm(z - x, axis=1) <= radius
    along, label = z[inside, 0], outer[inside]
    order = np.argsort(along)
    above_outer = label.sum() - np.r_[0, np.cumsum(label[order])]
    above_inner = (~label).sum() - np.r_[0, np.cumsum(~label[order])]
    wrong = above_inner + (label.sum() - above_outer)
    best = np.minimum(wrong, inside.sum() - wrong).min() / inside.sum()
    mass, loss = ball_on_spheres(d, radius, gap)
    assert mass == pytest.approx(inside.mean(), abs=5 * np.sqrt(0.25 / n))
    assert loss == pytest.approx(best, abs=5 * np.sqrt(0.25 / inside.sum()))


def test_caps() -> None:
    angles = np.array([0, np.pi / 3, np.pi / 2, 2 * np.pi / 3, np.pi])
    assert cap_share(angles, 2) == pytest.approx(angles / np.pi)  # an arc
    assert cap_share(angles, 3) == pytest.approx((1 - np.cos(angles)) / 2)  # Archimedes
    assert ball_on_spheres(3, 0, 0.1) == (0, 0)
    assert ball_on_spheres(3, 2.2, 0.1)[0] == pytest.approx(1)


def test_a_ball_that_is_not_centred_at_x_swallows_the_inner_sphere() -> None:
    """Half of the data and a half of the other half: a constant has loss 1/3 on mass 3/4, in any dimension."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(100_000, 6))
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    outer = np.arange(100_000) % 2 == 1
    z[outer] *= 1.05
    inside = np.linalg.norm(z - np.eye(6)[0] * 1e-9, axis=1) <= 1.05
    assert inside.mean() == pytest.approx(0.75, abs=0.01)
    assert outer[inside].mean() == pytest.approx(1 / 3, abs=0.01)
    assert largest_local_mass(6).mass < 0.01


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ball_on_spheres(1, 1, 0.1), "d = 1"),
        (lambda: ball_on_spheres(3, -1, 0.1), "radius = -1"),
        (lambda: ball_on_spheres(3, 1, 0), "gap = 0"),
        (lambda: largest_local_mass(3, max_loss=0.5), "2 max_loss = 1.0"),
    ],
)
def test_refusals(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
