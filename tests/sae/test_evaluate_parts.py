"""`evaluate` on transcoders, crosscoders, prefixes, budgets and measured thresholds: anchors of known value."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest
import torch

from interp.activations.stream import TensorStream
from interp.models.language_model import LanguageModel
from interp.sae.architectures.batchtopk import BatchTopKConfig, BatchTopKSAE
from interp.sae.architectures.crosscoder import Crosscoder, CrosscoderConfig
from interp.sae.architectures.matryoshka import MatryoshkaConfig, MatryoshkaSAE
from interp.sae.architectures.topk import TopKConfig, TopKSAE
from interp.sae.architectures.transcoder import TopKTranscoder, TopKTranscoderConfig
from interp.sae.dictionary import Dictionary
from interp.sae.evaluate import evaluate, evaluate_several
from interp.sae.metadata import SAEMetadata
from interp.sae.metrics import fvu
from interp.sae.scores import SAEEvaluation
from interp.sae.splice import spliced
from tests.sae import tiny_world as world
from tests.sae.test_evaluate import losses, world_rows

MLP = ("model.layers.1.mlp:in", "mlp_out.1")  # 16 -> 16
DOWN = ("mlp_post.1", "mlp_out.1")  # 32 -> 16, a linear map
LAYERS = ("resid_post.0", "resid_post.1")


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return world.model()


def run(sae: Dictionary, lm: LanguageModel, **options: Any) -> SAEEvaluation:
    options.setdefault("text", world.contexts(20))
    return evaluate(sae, lm, progress=False, **options)


def transcoder(sites: tuple[str, str] = MLP, *, d_in: int = 16, **form: Any) -> TopKTranscoder:
    sae = TopKTranscoder(TopKTranscoderConfig(d_in, 24, d_out=16, k=3, **form), seed=0)
    sae.metadata = SAEMetadata(site=sites[0], sites=sites)
    return sae


def rows_at(lm: LanguageModel, site: str) -> torch.Tensor:
    """The rows of all but the first position, one context at a time."""
    contexts, rows = world.contexts(20), []
    for i in range(len(contexts)):
        b = contexts[i]
        act = lm.activations(b.input_ids, site, position_ids=b.position_ids, segment_ids=b.segment_ids)
        rows.append(next(iter(act.values()))[b.position_ids > 0])
    return torch.cat(rows)


def test_a_transcoder_that_outputs_nothing_is_zero_ablation_of_the_output(lm: LanguageModel) -> None:
    sae = transcoder()
    result = run(sae, lm)
    assert (result.site, result.target_site) == MLP
    assert result.ce_spliced == result.ce_zero != result.ce_clean
    assert result.loss_recovered == 0.0
    y = rows_at(lm, "mlp_out.1")
    assert result.fvu == pytest.approx(fvu(y, torch.zeros_like(y)), rel=1e-5)
    assert result.l0 > 0
    assert f"{MLP[0]} -> {MLP[1]} of" in str(result)
    with torch.no_grad():
        sae.b_dec.copy_(y.mean(0))
    mean = run(sae, lm)
    assert mean.loss_recovered_mean == pytest.approx(0, abs=1e-3)
    assert mean.fvu == pytest.approx(1, abs=1e-5)
    assert run(sae, lm, with_error_term=True).ce_spliced == pytest.approx(result.ce_clean, abs=1e-6)


def test_a_transcoder_of_a_linear_map_loses_nothing(lm: LanguageModel) -> None:
    sae = transcoder(DOWN, d_in=32, skip=True)
    with torch.no_grad():
        sae.W_skip.copy_(lm.module.model.layers[1].mlp.down_proj.weight)
    result = run(sae, lm)
    assert result.fvu == pytest.approx(0, abs=1e-10)
    assert result.ce_spliced == pytest.approx(result.ce_clean, abs=1e-5)
    assert result.loss_recovered == pytest.approx(1, abs=1e-4)
    assert result.differs == ()


def test_the_splice_by_hand_gives_the_figures_of_the_evaluation(lm: LanguageModel) -> None:
    sae = transcoder(skip=True)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in (sae.W_dec, sae.W_skip, sae.b_dec):
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    contexts = world.contexts(20)
    result = run(sae, lm)
    with spliced(lm, sae, MLP):
        total, count = losses(lm, contexts)
    assert result.ce_spliced == pytest.approx(total / count, abs=1e-6)
    assert abs(result.ce_spliced - result.ce_clean) > 1e-3
    x, y = rows_at(lm, MLP[0]), rows_at(lm, MLP[1])
    assert result.fvu == pytest.approx(fvu(y, sae(x).x_hat.detach()), rel=1e-5)
    on_stream = evaluate(sae, stream=TensorStream(torch.cat([x, y], 1), widths=(16, 16)), progress=False)
    assert on_stream.fvu == pytest.approx(result.fvu, rel=1e-5)
    assert (on_stream.site, on_stream.target_site) == ("tensor.0", "tensor.1")
    with pytest.raises(ValueError, match="spliced at two, its input and output"), spliced(lm, sae, MLP[0]):
        pass


def test_each_site_of_a_crosscoder_is_measured_and_spliced_by_itself(lm: LanguageModel) -> None:
    """The first site is reconstructed exactly, the second as zero."""
    sae = Crosscoder(CrosscoderConfig(32, 32, blocks=(16, 16)), seed=None)
    both = torch.cat([torch.eye(16), -torch.eye(16)])
    with torch.no_grad():
        sae.W_enc[:, :16] = both
        sae.W_dec[:, :16] = both
        sae.scales.copy_(torch.tensor([1.0, 10.0]))
    sae.metadata = SAEMetadata(sites=LAYERS)
    result = run(sae, lm)
    first, second = result.parts
    assert (first.name, second.name) == LAYERS
    assert first.fvu == pytest.approx(0, abs=1e-12)
    assert first.loss_recovered == pytest.approx(1, abs=1e-4)
    assert second.loss_recovered == 0.0
    x = [rows_at(lm, site) for site in LAYERS]
    assert second.fvu == pytest.approx(fvu(x[1], torch.zeros_like(x[1])), rel=1e-5)
    # Of all sites together, each on the scale of training: the second counts a hundred times.
    lost = 100 * x[1].double().pow(2).sum()
    variance = sum(c**2 * (y - y.mean(0)).double().pow(2).sum() for c, y in zip((1, 10), x, strict=True))
    assert result.fvu == pytest.approx(float(lost / variance), rel=1e-4)
    assert math.isnan(result.loss_recovered)
    zero = run(world.zero_sae(), lm)  # of the second layer
    assert (result.ce_clean, second.ce_spliced) == (zero.ce_clean, zero.ce_zero)
    again = SAEEvaluation.from_dict(result.to_dict())
    assert again.parts == result.parts
    assert "resid_post.1: L0" in str(result)
    with pytest.raises(ValueError, match="none in a single pass"), spliced(lm, sae, LAYERS):
        pass


def test_a_crosscoder_of_two_models_is_measured_on_a_stream(lm: LanguageModel) -> None:
    sae = Crosscoder(CrosscoderConfig(32, 8, blocks=(16, 16)), seed=None)
    sae.metadata = SAEMetadata(
        sites=("base/resid_post.1", "tuned/resid_post.1"), extra={"models": {"base": {}}}
    )
    with pytest.raises(ValueError, match="evaluate it on a StoreStream of their stores"):
        run(sae, lm)
    x = torch.randn(300, 32, generator=torch.Generator().manual_seed(0))
    result = evaluate(sae, stream=TensorStream(x, widths=(16, 16)), progress=False)
    assert [part.fvu for part in result.parts] == pytest.approx(
        [fvu(part, 0 * part) for part in x.split(16, 1)]
    )
    assert all(math.isnan(part.loss_recovered) for part in result.parts)


def matryoshka() -> MatryoshkaSAE:
    sae = MatryoshkaSAE(MatryoshkaConfig(16, 24, k=5, widths=(4, 12, 24)), seed=3)
    sae.set_theta_(0.5)
    sae.metadata = world.metadata()
    return sae


def test_prefixes_are_measured_beside_the_whole(lm: LanguageModel) -> None:
    sae = matryoshka()
    result = run(sae, lm)
    assert [part.name for part in result.parts] == ["first 4", "first 12"]
    for width, part in zip((4, 12), result.parts, strict=True):
        alone = run(sae.prefix(width), lm)
        assert part.d_sae == width
        for name in ("l0", "fvu", "ce_spliced", "loss_recovered", "loss_recovered_mean"):
            assert getattr(part, name) == pytest.approx(getattr(alone, name), abs=1e-6)
    assert result.parts[0].l0 < result.parts[1].l0 < result.l0
    x = world_rows(lm, world.contexts(20))
    on_stream = evaluate(sae, stream=TensorStream(x), progress=False)
    assert [part.fvu for part in on_stream.parts] == pytest.approx([p.fvu for p in result.parts], rel=1e-5)


@pytest.mark.parametrize(
    ("loss", "budgets"), [({}, []), ({"hierarchical": True}, [1, 3]), ({"multi": True}, [24])]
)
def test_budgets_that_were_trained_are_measured(
    lm: LanguageModel, loss: dict[str, bool], budgets: list[int]
) -> None:
    sae = TopKSAE(TopKConfig(16, 40, k=6), seed=3)
    sae.metadata = world.metadata(loss=loss)
    result = run(sae, lm)
    assert result.k == 6
    assert [part.name for part in result.parts] == [f"k = {k}" for k in budgets]
    for k, part in zip(budgets, result.parts, strict=True):
        alone = run(sae.with_k(k), lm)
        assert (part.l0, part.fvu) == pytest.approx((alone.l0, alone.fvu), abs=1e-6)
        assert part.l0 <= k
        assert part.loss_recovered == pytest.approx(alone.loss_recovered, abs=1e-6)
    assert sae.cfg.k == 6


def test_a_threshold_that_gives_another_l0_than_training_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(4000, 16, generator=torch.Generator().manual_seed(0))
    sae = BatchTopKSAE(BatchTopKConfig(16, 40, k=4), seed=3)
    z = torch.relu(x @ sae.W_enc.T).detach()
    right = float(z.flatten().topk(4 * len(x)).values[-1])
    for theta, warned in ((right, False), (0.8 * right, True)):
        sae.set_theta_(theta)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            result = evaluate(sae, stream=TensorStream(x), progress=False)
        assert (abs(result.l0 / 4 - 1) > 0.05) == warned
        assert ("latents per token here and had 4 in training" in caplog.text) == warned
        assert result.k == 4


def test_sites_that_do_not_fit_are_named(lm: LanguageModel) -> None:
    with pytest.raises(ValueError, match=r"of 2 sites, here are 1: resid_post\.1"):
        run(transcoder(), lm, site="resid_post.1")
    with pytest.raises(ValueError, match=r"width 16, mlp_post.1 .* has 32"):
        run(transcoder(), lm, site=DOWN)
    found = run(transcoder(), lm, site=(MLP[0], "mlp_out.2"))
    assert found.differs[0] == f"at {MLP[0]} + mlp_out.2, trained at {MLP[0]} + mlp_out.1"
    other = transcoder((MLP[0], "mlp_out.2"))
    with pytest.raises(ValueError, match="several sites"):
        evaluate_several([transcoder(), other], lm, world.contexts(3), progress=False)
