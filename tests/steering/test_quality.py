from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from interp.steering.pair_activations import PairActivations
from interp.steering.quality import QualityReport, concept_quality


def of(delta: Tensor, base: Tensor | float = 0.0, vector: Tensor | None = None):  # type: ignore[no-untyped-def]
    positive, negative = base + delta, base + torch.zeros_like(delta)
    return concept_quality(positive, negative, delta.mean(0) if vector is None else vector)


def test_equal_differences_agree_completely() -> None:
    quality = of(torch.tensor([[3.0, 4.0]]).expand(6, 2), base=torch.randn(6, 2))
    assert quality.mean_norm == pytest.approx(5, abs=1e-5)
    assert quality.mean_pairwise_cosine == pytest.approx(1)
    assert quality.mean_cosine == pytest.approx(1)
    assert quality.spread == pytest.approx(0, abs=1e-6)
    assert quality.norm_spread == pytest.approx(0, abs=1e-6)
    assert quality.held_out_agreement == 1


def test_against_the_formulas_written_out() -> None:
    generator = torch.Generator().manual_seed(0)
    positive, negative = torch.randn(2, 9, 5, generator=generator).double()
    v = torch.randn(5, generator=generator).double()
    quality = concept_quality(positive, negative, v)
    delta = positive - negative
    cosine = torch.nn.functional.cosine_similarity
    pairs = [float(cosine(a, b, dim=0)) for i, a in enumerate(delta) for j, b in enumerate(delta) if i != j]
    assert quality.mean_pairwise_cosine == pytest.approx(sum(pairs) / len(pairs))
    assert quality.mean_cosine == pytest.approx(float(cosine(delta, v[None]).mean()))
    norms = delta.norm(dim=1)
    assert quality.spread == pytest.approx(-float((delta - delta.mean(0)).norm(dim=1).mean() / norms.mean()))
    assert quality.norm_spread == pytest.approx(-float(norms.var() / norms.mean()))
    a, b = positive @ v, negative @ v
    assert quality.separability == pytest.approx(
        float((a.mean() - b.mean()) / ((a.var() + b.var()) / 2).sqrt())
    )
    held_out = [float(delta[i] @ delta[torch.arange(9) != i].mean(0)) > 0 for i in range(9)]
    assert quality.held_out_agreement == pytest.approx(sum(held_out) / 9)


def test_letters_sixteen_to_eight() -> None:
    """A pure letter direction with 16 : 8 letters: mean cos(Δ, v) is (16 - 8) / 24 and ‖v‖ a third of ‖Δ‖."""
    letter = torch.tensor([0.0, 2.0, 0.0])
    sign = torch.tensor([1.0] * 16 + [-1.0] * 8)
    quality = of(sign[:, None] * letter)
    assert quality.mean_cosine == pytest.approx(1 / 3)
    assert quality.mean_pairwise_cosine == pytest.approx((8**2 - 24) / (24 * 23))
    assert quality.held_out_agreement == pytest.approx(16 / 24)
    # Balanced letters: whatever is left out tips the mean of the others against it.
    balanced = torch.tensor([1.0, -1.0] * 12)[:, None] * letter
    assert of(balanced, vector=letter).held_out_agreement == 0


def test_overfitting_separates_noise_but_does_not_agree_held_out() -> None:
    generator = torch.Generator().manual_seed(1)
    positive, negative = torch.randn(2, 10, 500, generator=generator)
    quality = concept_quality(positive, negative, (positive - negative).mean(0))
    assert quality.separability > 5
    assert quality.mean_cosine > 0.25
    assert quality.held_out_agreement < 0.9
    assert abs(quality.mean_pairwise_cosine) < 0.05


def test_what_is_not_defined_is_nan() -> None:
    one = of(torch.tensor([[1.0, 2.0]]))
    assert math.isnan(one.mean_pairwise_cosine)
    assert math.isnan(one.held_out_agreement)
    assert one.mean_cosine == pytest.approx(1)


def test_report() -> None:
    generator = torch.Generator().manual_seed(0)
    sides = [{n: torch.randn(6, 4, generator=generator) for n in (1, 5)} for _ in range(2)]
    report = PairActivations(sides[0], sides[1]).quality()
    frame = report.to_frame()
    assert list(frame.index) == [1, 5]
    assert frame.loc[5, "mean_cosine"] == report[5].mean_cosine
    assert "held_out_agreement" in str(report)
    assert f"{report[1].spread:.3f}" in str(report)
    assert "separability" in str(report[1])
    stored = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert QualityReport.from_dict(stored) == report
    single = PairActivations({0: torch.ones(1, 2)}, {0: torch.zeros(1, 2)}).quality()
    assert json.dumps(single.to_dict(), allow_nan=False)
    assert len(report.plot().axes) == 2
