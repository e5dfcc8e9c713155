"""Starting values and the activation scale."""

from __future__ import annotations

import math

import pytest
import torch

from interp.sae.init import geometric_median, initial_b_dec, random_directions
from interp.sae.scaling import activation_scale
from tests.sae.sparse_world import sparse_rows


def test_the_median_of_a_line_is_its_median():
    points = torch.tensor([[0.0], [1.0], [2.0], [10.0], [100.0]]).double()
    assert geometric_median(points).item() == pytest.approx(2.0, abs=1e-4)


def test_the_median_of_a_triangle_is_its_fermat_point():
    """Equilateral: the centre. An angle of 120 degrees or more: the corner itself."""
    equilateral = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(0.75)]]).double()
    torch.testing.assert_close(geometric_median(equilateral), equilateral.mean(0), atol=1e-7, rtol=0)
    obtuse = torch.tensor([[0.0, 0.0], [2.0, 0.1], [-2.0, 0.1]]).double()
    torch.testing.assert_close(geometric_median(obtuse), obtuse[0], atol=1e-3, rtol=0)


def test_the_median_of_a_cloud_has_a_vanishing_gradient():
    x = sparse_rows(500).double()
    units = torch.nn.functional.normalize(x - geometric_median(x), dim=1)
    assert units.mean(0).norm() < 1e-6


def test_one_far_point_moves_the_mean_and_not_the_median():
    x = sparse_rows(500)
    far = torch.cat([x, torch.full((1, x.shape[1]), 1e4)])
    assert (initial_b_dec(far, "mean") - initial_b_dec(x, "mean")).norm() > 10
    assert (initial_b_dec(far, "geometric_median") - initial_b_dec(x, "geometric_median")).norm() < 0.05


def test_b_dec_choices():
    x = sparse_rows(50)
    assert not initial_b_dec(x, "zero").any()
    torch.testing.assert_close(initial_b_dec(x, "mean"), x.mean(0))
    with pytest.raises(ValueError, match="geometric_median"):
        initial_b_dec(x, "median")
    with pytest.raises(ValueError, match="n > 0"):
        geometric_median(x[:0])


def test_directions_have_the_length_asked_for_and_no_preferred_one():
    directions = random_directions(4000, 8, seed=0, norm=0.1)
    torch.testing.assert_close(directions.norm(dim=1), torch.full((4000,), 0.1))
    assert directions.mean(0).abs().max() < 0.1 / math.sqrt(4000) * 2
    assert torch.equal(random_directions(10, 8, seed=5), random_directions(10, 8, seed=5))


def test_scales_give_the_sizes_they_promise():
    x = 37 * sparse_rows(4000)
    d = x.shape[1]
    assert (activation_scale(x, "mean_norm") * x).norm(dim=1).mean().item() == pytest.approx(
        math.sqrt(d), rel=1e-5
    )
    assert (activation_scale(x, "rms") * x).pow(2).sum(1).mean().item() == pytest.approx(1.0, rel=1e-5)
    assert activation_scale(x, "none") == 1.0


def test_activations_that_cannot_be_scaled():
    with pytest.raises(ValueError, match="mean norm of 0"):
        activation_scale(torch.zeros(5, 3))
    with pytest.raises(ValueError, match="mean norm of nan"):
        activation_scale(torch.full((5, 3), torch.nan))
    with pytest.raises(ValueError, match="mean_norm"):
        activation_scale(torch.ones(5, 3), "max")
