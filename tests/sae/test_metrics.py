"""Metrics against NumPy formulas on whole arrays, closed forms, and uneven batches."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest
import torch

from interp.sae import metrics

UNEVEN = (1, 7, 200, 3, 89)


@pytest.fixture
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5)) * np.array([1.0, 2.0, 0.5, 3.0, 1.0]) + np.array([4.0, -2.0, 0.0, 1.0, 7.0])
    return x, 0.8 * x + rng.normal(size=x.shape) * 0.3 + 0.1


def accumulate(x: np.ndarray, x_hat: np.ndarray, sizes: tuple[int, ...]) -> metrics.ReconstructionStats:
    stats = metrics.ReconstructionStats()
    for part, part_hat in zip(
        torch.split(torch.from_numpy(x), sizes), torch.split(torch.from_numpy(x_hat), sizes), strict=True
    ):
        stats.update(part, part_hat)
    return stats


def test_whole_set_figures_equal_numpy_whatever_the_batches(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    x, h = arrays
    xc, hc = x - x.mean(0), h - x.mean(0)
    want = {
        "fvu": ((x - h) ** 2).sum() / (xc**2).sum(),
        "mse": ((x - h) ** 2).sum(1).mean(),
        "gamma": (h**2).sum() / (x * h).sum(),
        "centred": (hc**2).sum() / (xc * hc).sum(),
        "cosine": ((x * h).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(h, axis=1)).mean(),
        "l2_ratio": (np.linalg.norm(h, axis=1) / np.linalg.norm(x, axis=1)).mean(),
    }
    for sizes in (UNEVEN, (300,), (150, 150)):
        s = accumulate(x, h, sizes)
        got = {
            "fvu": s.fvu,
            "mse": s.mse,
            "gamma": s.gamma(),
            "centred": s.gamma(center=True),
            "cosine": s.cosine,
            "l2_ratio": s.l2_ratio,
        }
        assert got == pytest.approx(want, rel=1e-12)
        np.testing.assert_allclose(s.mean.numpy(), x.mean(0), rtol=1e-12)


def test_gamma_has_its_three_equivalent_forms_and_minimises(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    x, h = arrays
    gamma = metrics.relative_reconstruction_bias(torch.from_numpy(x), torch.from_numpy(h))
    hh, xx, ee = (h**2).sum(), (x**2).sum(), ((h - x) ** 2).sum()
    assert gamma == pytest.approx(2 * hh / (hh + xx - ee), rel=1e-12)
    grid = gamma * np.array([0.99, 1.0, 1.01])
    assert np.argmin([((h / c - x) ** 2).sum() for c in grid]) == 1


def test_gamma_of_a_scaled_reconstruction_is_the_scale(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    x = torch.from_numpy(arrays[0])
    assert metrics.relative_reconstruction_bias(x, 0.7 * x) == pytest.approx(0.7, rel=1e-12)
    mean = x.mean(0)
    assert metrics.relative_reconstruction_bias(x, mean + 0.7 * (x - mean), center=True) == pytest.approx(0.7)


def test_a_large_common_mean_hides_shrinkage_unless_centred() -> None:
    x = torch.randn(4000, 3, generator=torch.Generator().manual_seed(0)).double()
    x = x - x.mean(0) + 100.0
    shrunk = 100.0 + 0.5 * (x - 100.0)
    assert metrics.relative_reconstruction_bias(x, shrunk) == pytest.approx(1.0, abs=1e-4)
    assert metrics.relative_reconstruction_bias(x, shrunk, center=True) == pytest.approx(0.5, rel=1e-9)


def test_variance_survives_a_mean_a_million_times_the_spread() -> None:
    x = torch.randn(1000, 4, generator=torch.Generator().manual_seed(1)).double()
    noise = 0.1 * torch.randn(1000, 4, generator=torch.Generator().manual_seed(2)).double()
    want = metrics.fvu(x, x + noise)
    stats = accumulate((x + 1e6).numpy(), (x + 1e6 + noise).numpy(), (400, 600))
    assert stats.fvu == pytest.approx(want, rel=1e-8)


def test_fvu_anchors_zero_for_the_identity_and_one_for_the_mean(
    arrays: tuple[np.ndarray, np.ndarray],
) -> None:
    x = torch.from_numpy(arrays[0])
    assert metrics.fvu(x, x) == 0.0
    assert metrics.fvu(x, x.mean(0).expand_as(x)) == pytest.approx(1.0, rel=1e-12)


def test_fvu_is_a_ratio_of_sums_not_a_mean_of_batch_ratios() -> None:
    # Two batches of very different spread: the mean of their ratios would be 0.505.
    x = torch.tensor([[10.0], [-10.0], [1.0], [-1.0]])
    x_hat = torch.tensor([[9.0], [-9.0], [0.0], [0.0]])
    stats = metrics.ReconstructionStats()
    stats.update(x[:2], x_hat[:2])
    stats.update(x[2:], x_hat[2:])
    assert stats.fvu == pytest.approx(4 / 202)


def test_reconstruction_stats_refuse_what_they_cannot_measure() -> None:
    stats = metrics.ReconstructionStats()
    with pytest.raises(ValueError, match="no rows were measured"):
        _ = stats.fvu
    with pytest.raises(ValueError, match="one shape"):
        stats.update(torch.zeros(2, 3), torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"x holds NaN or infinite values in rows 0 to 1"):
        stats.update(torch.tensor([[1.0], [float("nan")]]), torch.zeros(2, 1))
    with pytest.raises(ValueError, match="x_hat holds NaN"):
        stats.update(torch.zeros(2, 1), torch.full((2, 1), float("inf")))


def test_a_reconstruction_without_x_in_it_has_no_gamma(
    arrays: tuple[np.ndarray, np.ndarray], caplog: pytest.LogCaptureFixture
) -> None:
    x = torch.from_numpy(arrays[0])
    stats = metrics.ReconstructionStats()
    stats.update(x, torch.zeros_like(x))
    assert math.isnan(stats.gamma())
    assert caplog.text.count("γ is undefined (NaN)") == 1
    assert math.isnan(stats.gamma(center=True))
    assert caplog.text.count("γ is undefined (NaN)") == 2


def test_constant_data_has_no_fvu() -> None:
    assert math.isnan(metrics.fvu(torch.ones(4, 2), torch.zeros(4, 2)))


def test_firing_stats_equal_dense_formulas_over_uneven_batches() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.rand(300, 11, generator=generator) * (torch.rand(300, 11, generator=generator) < 0.2)
    codes[:, 4] = 0.0
    stats = metrics.FiringStats(11)
    for part in torch.split(codes, UNEVEN):
        rows, latents = part.nonzero(as_tuple=True)
        stats.update(len(part), latents, part[rows, latents])
    assert stats.n == 300
    assert stats.l0 == pytest.approx(metrics.l0(codes), rel=1e-12)
    assert stats.l1 == pytest.approx(codes.double().sum().item() / 300, rel=1e-12)
    assert stats.dead.tolist() == [4]
    torch.testing.assert_close(stats.density, (codes > 0).double().mean(0))
    torch.testing.assert_close(stats.activation_max, codes.double().amax(0))


def test_a_stored_zero_is_not_a_firing() -> None:
    stats = metrics.FiringStats(2)
    stats.update(1, torch.tensor([0, 1]), torch.tensor([0.0, 2.0]))
    assert stats.hits.tolist() == [0, 1]
    assert stats.l0 == 1.0


def test_density_histogram_counts_every_living_latent_once() -> None:
    hits = torch.tensor([0, 1, 10, 100, 1000, 0, 999])
    histogram = metrics.density_histogram(hits, 1000, low=-3.0, bins_per_decade=1)
    assert histogram.edges == (-3.0, -2.0, -1.0, 0.0)
    assert histogram.counts == (1, 1, 3)
    assert histogram.n_dead == 2


def test_weighted_mean_weighs_by_count() -> None:
    mean = metrics.WeightedMean()
    mean.update(torch.tensor([1.0, 1.0, 1.0]))
    mean.update(torch.tensor([5.0]))
    assert mean.value == 2.0


def test_loss_recovered_reads_as_the_paper_says() -> None:
    # Gemma-7B layer 20 residual: clean 2.5426, zero ablation 19.5891; L0 67.3 recovers 99.30 %.
    spliced = 2.5426 + 0.0070 * (19.5891 - 2.5426)
    assert metrics.loss_recovered(2.5426, spliced, 19.5891) == pytest.approx(0.9930)
    assert metrics.loss_recovered(2.0, 1.9, 3.0) == pytest.approx(1.1)
    assert metrics.loss_recovered(2.0, 4.0, 3.0) == pytest.approx(-1.0)


def test_degenerate_ablation_gives_nan_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert math.isnan(metrics.loss_recovered(2.0, 2.1, 2.0 + 1e-7))
        assert math.isnan(metrics.kl_score(0.1, 0.0))
    assert "loss recovered is undefined" in caplog.text
    assert "KL score is undefined" in caplog.text


def test_kl_score_anchors() -> None:
    assert metrics.kl_score(0.0, 2.0) == 1.0
    assert metrics.kl_score(0.5, 2.0) == 0.75


def test_mean_max_cosine_similarity_ignores_length_and_finds_the_best_row() -> None:
    true = torch.eye(3)
    half = math.sqrt(0.5)
    found = torch.tensor([[5.0, 0.0, 0.0], [0.0, half, half]])
    assert metrics.mean_max_cosine_similarity(true, found) == pytest.approx((1 + 2 * half) / 3)
    assert metrics.share_recovered(true, found) == pytest.approx(1 / 3)


def test_frontier_is_interpolated_in_log_log_and_never_extrapolated() -> None:
    # FVU = 2 / L0 is a straight line in log-log.
    l0s = [4.0, 1.0, 16.0]
    values = [2 / v for v in l0s]
    assert metrics.frontier_at(l0s, values, 8.0) == pytest.approx(0.25)
    assert math.isnan(metrics.frontier_at(l0s, values, 20.0))
    with pytest.raises(ValueError, match="above 0"):
        metrics.frontier_at([0.0, 1.0], [1.0, 1.0], 1.0)
