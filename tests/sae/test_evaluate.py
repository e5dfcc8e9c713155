"""`evaluate` on a real (tiny) model: anchors of known value, exactness over the set, and bad input."""

from __future__ import annotations

import json
import logging
import math

import numpy as np
import pandas as pd
import pytest
import torch

from interp.activations.stream import TensorStream
from interp.core.stream import ArrayStream
from interp.models.language_model import LanguageModel
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.dictionary import Dictionary
from interp.sae.evaluate import evaluate, evaluate_several
from interp.sae.metadata import SAEMetadata
from interp.sae.metrics import fvu, relative_reconstruction_bias
from interp.sae.scores import SAEEvaluation
from interp.sae.splice import spliced
from tests.sae import tiny_world as world


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    return world.model()


def run(sae: Dictionary, lm: LanguageModel, **options) -> SAEEvaluation:
    options.setdefault("text", world.contexts())
    return evaluate(sae, lm, progress=False, **options)


def losses(lm: LanguageModel, contexts) -> tuple[float, int]:
    """Cross-entropy summed one context at a time by the model's own loss: an independent count."""
    total, count = 0.0, 0
    for i in range(len(contexts)):
        batch = contexts[i]
        result = lm.loss(batch.input_ids, position_ids=batch.position_ids, segment_ids=batch.segment_ids)
        total += result.values.double().sum().item()
        count += int(result.mask.sum())
    return total, count


def test_the_identity_loses_nothing(lm: LanguageModel) -> None:
    result = run(world.identity_sae(), lm)
    assert result.fvu == pytest.approx(0, abs=1e-12)
    assert result.gamma == pytest.approx(1, abs=1e-9)
    assert result.loss_recovered == pytest.approx(1, abs=1e-6)
    assert result.loss_recovered_mean == pytest.approx(1, abs=1e-5)
    assert result.ce_spliced == pytest.approx(result.ce_clean, abs=1e-6)
    assert result.kl_score == pytest.approx(1, abs=1e-6)
    assert result.l0 == pytest.approx(16.0)


def test_a_zero_sae_is_zero_ablation(lm: LanguageModel) -> None:
    result = run(world.zero_sae(), lm)
    assert result.ce_spliced == result.ce_zero
    assert result.loss_recovered == 0.0
    assert result.kl_score == 0.0
    assert result.alive == 0.0
    assert result.n_dead == 8
    assert result.l0 == 0.0


def test_an_sae_that_outputs_the_mean_is_mean_ablation(lm: LanguageModel) -> None:
    contexts = world.contexts()
    mean = run(world.identity_sae(), lm, text=contexts)
    sae = world.zero_sae()
    x = world_rows(lm, contexts)
    with torch.no_grad():
        sae.b_dec.copy_(x.double().mean(0).float())
    result = run(sae, lm, text=contexts)
    assert result.ce_spliced == pytest.approx(mean.ce_mean, abs=1e-5)
    assert result.loss_recovered_mean == pytest.approx(0, abs=1e-4)
    assert result.fvu == pytest.approx(1, abs=1e-6)


def world_rows(lm: LanguageModel, contexts) -> torch.Tensor:
    """The rows an SAE is trained for: all but position 0 of each segment."""
    rows = []
    for i in range(len(contexts)):
        b = contexts[i]
        act = lm.activations(b.input_ids, world.SITE, position_ids=b.position_ids, segment_ids=b.segment_ids)[
            world.SITE
        ]
        rows.append(act[b.position_ids > 0])
    return torch.cat(rows)


def test_with_the_error_term_the_loss_is_the_clean_one(lm: LanguageModel) -> None:
    sae = world.random_sae()
    without = run(sae, lm)
    with_it = run(sae, lm, with_error_term=True)
    assert without.kl_spliced > 0.1
    assert with_it.ce_spliced == pytest.approx(with_it.ce_clean, abs=1e-6)
    assert with_it.kl_spliced == pytest.approx(0, abs=1e-6)
    assert with_it.loss_recovered == pytest.approx(1, abs=1e-5)
    assert with_it.fvu == without.fvu


@pytest.mark.parametrize("mode", ["pad", "pack"])
def test_figures_do_not_depend_on_the_batches_and_equal_an_independent_count(
    lm: LanguageModel, mode: str
) -> None:
    contexts = world.contexts(20, mode=mode)
    sae = world.random_sae()
    small, large = run(sae, lm, text=contexts, batch_size=1), run(sae, lm, text=contexts, batch_size=50)
    for name in ("ce_clean", "ce_spliced", "ce_zero", "ce_mean", "kl_spliced", "kl_zero"):
        assert getattr(small, name) == pytest.approx(getattr(large, name), abs=1e-6)
    assert small.l0 == large.l0
    total, count = losses(lm, contexts)
    assert small.n_predictions == large.n_predictions == count
    assert small.ce_clean == pytest.approx(total / count, abs=1e-6)
    with spliced(lm, sae, world.SITE):
        total, _ = losses(lm, contexts)
    assert small.ce_spliced == pytest.approx(total / count, abs=1e-6)
    x = world_rows(lm, contexts)
    x_hat = sae(x).x_hat.detach()
    assert small.n_tokens == len(x)
    assert small.fvu == pytest.approx(fvu(x, x_hat), rel=1e-5)
    assert small.gamma == pytest.approx(relative_reconstruction_bias(x, x_hat), rel=1e-5)


def test_several_at_once_give_the_figures_of_one_by_one(lm: LanguageModel) -> None:
    contexts = world.contexts(20)
    saes = [world.random_sae(), world.identity_sae(), world.random_sae(24, seed=8)]
    norms = world_rows(lm, contexts).norm(dim=1)
    saes[2].metadata = world.metadata(skip_positions=(0, 1), max_norm=float(norms.median()))
    calls = 0
    forward = lm.module.forward

    def counted(*args, **kwargs):
        nonlocal calls
        calls += 1
        return forward(*args, **kwargs)

    lm.module.forward = counted
    try:
        together = evaluate_several(
            saes, lm, contexts, names=["a", "b", "c"], batch_size=1000, progress=False
        )
    finally:
        del lm.module.forward
    # Clean, three splices, and two ablations for each of two rules of which rows are replaced.
    assert calls == 1 + 3 + 2 * 2
    for sae, name, result in zip(saes, "abc", together, strict=True):
        alone = run(sae, lm, text=contexts, name=name)
        assert result.differs == alone.differs
        assert {
            k: v for k, v in result.to_dict().items() if k not in ("density", "differs", "parts")
        } == pytest.approx(
            {k: v for k, v in alone.to_dict().items() if k not in ("density", "differs", "parts")}, abs=1e-6
        )
    assert together[2].n_tokens < 0.6 * together[0].n_tokens
    assert together[2].ce_zero != together[0].ce_zero
    with pytest.raises(ValueError, match="a name for each"):
        evaluate_several(saes, lm, contexts, names=["a"])
    saes[1].metadata = type(saes[1].metadata)(site="resid_post.2")
    with pytest.raises(ValueError, match=r"several sites \(resid_post.1, resid_post.2\)"):
        evaluate_several(saes, lm, contexts)


def test_rows_above_the_norm_bound_are_left_as_they_are(lm: LanguageModel) -> None:
    contexts = world.contexts(20)
    x = world_rows(lm, contexts)
    bound = float(x.norm(dim=1).quantile(0.8))
    sae = world.zero_sae()
    sae.metadata = world.metadata(max_norm=bound)
    result = run(sae, lm, text=contexts)
    assert result.n_tokens == int((x.norm(dim=1) <= bound).sum())
    with spliced(lm, sae, world.SITE):
        total, count = losses(lm, contexts)
    assert result.ce_spliced == pytest.approx(total / count, abs=1e-6)
    assert result.loss_recovered == 0


def test_kl_equals_the_formula_on_whole_distributions(lm: LanguageModel) -> None:
    contexts = world.contexts(n=1)
    batch = contexts[0]
    sae = world.random_sae()
    clean = lm.logits(batch.input_ids).double()[0, :-1].log_softmax(-1).numpy()
    with spliced(lm, sae, world.SITE):
        other = lm.logits(batch.input_ids).double()[0, :-1].log_softmax(-1).numpy()
    want = (np.exp(clean) * (clean - other)).sum(-1).mean()
    first = world.contexts(n=1)
    result = run(sae, lm, text=first, tokens=int(first.lengths[0]))
    assert result.kl_spliced == pytest.approx(want, rel=1e-4)


def test_positions_say_what_is_replaced(lm: LanguageModel) -> None:
    contexts = world.contexts(mode="pack")
    trained = run(world.zero_sae(), lm, text=contexts)
    everything = run(world.zero_sae(), lm, text=contexts, positions="all")
    assert everything.n_tokens == contexts.n_tokens
    pieces = len(contexts.piece_docs)
    assert trained.n_tokens == contexts.n_tokens - pieces
    assert trained.positions == "trained"
    assert everything.ce_zero != pytest.approx(trained.ce_zero, abs=1e-4)
    assert everything.n_predictions == trained.n_predictions


def test_special_tokens_are_left_as_they_are(lm: LanguageModel) -> None:
    contexts = world.contexts()
    contexts.tokens[contexts.piece_starts[:-1] + 1] = 0  # <eos> at position 1 of every context
    result = run(world.zero_sae(), lm, text=contexts)
    assert result.n_tokens == contexts.n_tokens - 2 * len(contexts)
    sae = world.zero_sae()
    sae.metadata = world.metadata(special_tokens_excluded=False)
    assert run(sae, lm, text=contexts).n_tokens == contexts.n_tokens - len(contexts)


def test_the_model_is_left_without_hooks(lm: LanguageModel) -> None:
    batch = world.contexts(n=1)[0]
    before = lm.logits(batch.input_ids)
    run(world.random_sae(), lm, tokens=50)
    torch.testing.assert_close(lm.logits(batch.input_ids), before, rtol=0, atol=0)


def test_a_stream_gives_the_same_reconstruction_figures_as_the_text(lm: LanguageModel) -> None:
    contexts = world.contexts()
    sae = world.random_sae()
    spliced_in = run(sae, lm, text=contexts)
    stream = TensorStream(world_rows(lm, contexts))
    stream.next_batch(7)
    stream.load_state_dict(TensorStream(world_rows(lm, contexts)).state_dict())
    on_stream = evaluate(sae, stream=stream, batch_size=100, progress=False)
    for name in ("l0", "fvu", "gamma", "gamma_centered", "cosine", "mse", "alive"):
        assert getattr(on_stream, name) == pytest.approx(getattr(spliced_in, name), rel=1e-5)
    assert on_stream.n_tokens == spliced_in.n_tokens
    assert stream.samples == 0  # put back
    assert math.isnan(on_stream.loss_recovered)
    assert on_stream.positions == "stream"


def test_a_plain_array_stream_and_a_limit() -> None:
    x = torch.randn(500, 16, generator=torch.Generator().manual_seed(0))
    result = evaluate(world.random_sae(), stream=ArrayStream(x), tokens=123, progress=False)
    assert result.n_tokens == 123


@pytest.mark.parametrize(("lm_dtype", "sae_dtype"), [(torch.bfloat16, "float32"), (torch.float32, "float64")])
def test_model_and_sae_may_differ_in_dtype(lm_dtype: torch.dtype, sae_dtype: str) -> None:
    sae = world.identity_sae().to(getattr(torch, sae_dtype))
    result = run(sae, world.model(lm_dtype))
    assert result.loss_recovered == pytest.approx(1, abs=2e-2)
    assert result.fvu == pytest.approx(0, abs=1e-6)


def test_a_decoder_without_unit_norm_is_measured_as_it_is(lm: LanguageModel) -> None:
    sae = world.identity_sae()
    with torch.no_grad():
        sae.W_dec.mul_(4)
        sae.W_enc.div_(4)
    assert run(sae, lm).loss_recovered == pytest.approx(1, abs=1e-5)


def test_open_gates_count_gates_whose_magnitude_is_shut(lm: LanguageModel) -> None:
    sae = GatedSAE(GatedSAEConfig(16, 50), seed=0)
    with torch.no_grad():
        sae.b_mag.fill_(-1.0)
        sae.b_dec.fill_(0.1)
    sae.metadata = world.metadata()
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(0))
    pi = (x - sae.b_dec) @ sae.W_gate.T + sae.b_gate
    assert sae.open_gates(x) == int((pi > 0).sum())
    result = run(sae, lm)
    assert result.open_gates > result.l0 > 0


def test_bad_scale_is_noticed_on_the_first_batch(lm: LanguageModel, caplog: pytest.LogCaptureFixture) -> None:
    sae = world.identity_sae()
    with torch.no_grad():
        sae.W_dec.mul_(3)
    sae.metadata = world.metadata()
    with caplog.at_level(logging.WARNING):
        run(sae, lm, site="resid_post.2")
    assert caplog.text.count("worse than the mean") == 1
    assert "of resid_post.2" in caplog.text
    assert "trained at resid_post.1, which is the likely site" in caplog.text


def test_bad_input_is_named(lm: LanguageModel) -> None:
    sae = world.random_sae()
    with pytest.raises(ValueError, match="nothing to measure on"):
        evaluate(sae, lm)
    with pytest.raises(ValueError, match="not both"):
        evaluate(sae, lm, "text", stream=ArrayStream(torch.zeros(4, 16)))
    with pytest.raises(ValueError, match=r"takes activations of width 16, mlp_post.1 .* has 32"):
        run(sae, lm, site="mlp_post.1")
    with pytest.raises(ValueError, match="resid_pots"):
        run(sae, lm, site="resid_pots.1")
    with pytest.raises(ValueError, match="positions = 'some'"):
        run(sae, lm, positions="some")
    with pytest.raises(ValueError, match="ablation = 'none'"):
        run(sae, lm, ablation=("none",))
    sae.metadata = type(sae.metadata)()
    with pytest.raises(ValueError, match="name the site"):
        run(sae, lm)
    with pytest.raises(ValueError, match="NaN"):
        evaluate(sae, stream=ArrayStream(torch.full((4, 16), float("nan"))), progress=False)


def test_text_may_be_strings_and_ablations_may_be_left_out(lm: LanguageModel) -> None:
    result = run(world.random_sae(), lm, text=world.TEXTS[:5], ablation=(), context_size=20)
    assert math.isnan(result.ce_zero)
    assert math.isnan(result.ce_mean)
    assert math.isnan(result.loss_recovered)
    assert result.ce_spliced > 0


def test_result_prints_saves_and_plots(lm: LanguageModel, tmp_path) -> None:
    result = run(world.random_sae(), lm, name="mine")
    text = str(result)
    assert text.startswith("mine: standard, 40 latents at resid_post.1 of LlamaForCausalLM; ")
    assert "loss recovered" in text
    assert "γ centred" in text
    result.kl_score = math.nan
    result.save(tmp_path / "metrics.json")
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert content["kl_score"] is None
    again = SAEEvaluation.load(tmp_path / "metrics.json")
    assert math.isnan(again.kl_score)
    assert again.to_dict() == result.to_dict()
    assert again.density == result.density
    frame = result.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert frame.loc[0, "loss_recovered"] == result.loss_recovered
    assert frame.loc[0, "n_dead"] == result.n_dead
    figure = result.plot()
    assert figure.axes[0].get_xlabel() == "log10 firing density"
    assert len(figure.axes[1].patches) == 4
    from rich.console import Console

    console = Console(width=200)
    with console.capture() as captured:
        console.print(result)
    assert "loss recovered" in captured.get()


def test_codes_can_be_edited_in_the_splice(lm: LanguageModel) -> None:
    batch = world.contexts(n=1)[0]
    sae = world.identity_sae()
    clean = lm.logits(batch.input_ids)
    with spliced(lm, sae, world.SITE, with_error_term=True):
        torch.testing.assert_close(lm.logits(batch.input_ids), clean, rtol=1e-4, atol=1e-5)
    with spliced(lm, sae, world.SITE, edit_codes=lambda codes: codes.select([])):
        silenced = lm.logits(batch.input_ids)
    zero = world.zero_sae()
    with spliced(lm, zero, world.SITE):
        torch.testing.assert_close(silenced, lm.logits(batch.input_ids), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(silenced, clean, atol=1e-2)


def test_what_is_not_as_trained_is_said(lm: LanguageModel, caplog) -> None:
    sae = world.identity_sae()
    assert run(sae, lm).differs == ()
    sae.metadata = world.metadata(model_fingerprint=lm.fingerprint(), model_name="the model")
    assert run(sae, lm).differs == ()
    assert not caplog.records
    other = {**lm.fingerprint(), "weights": "of another model"}
    sae.metadata = world.metadata(model_fingerprint=other, model_name="another")
    found = run(sae, lm, site="resid_post.0", positions="all", with_error_term=True)
    assert [text.split(" (")[0] for text in found.differs] == [
        f"at resid_post.0, trained at {world.SITE}",
        f"{lm.name} has other weights than the model it was trained on",
        "every position replaced",
        "its error added back",
    ]
    assert "not as it was trained" in caplog.text
    assert "NOT as trained" in found.caption
    # Of another number format nothing can be said.
    sae.metadata = world.metadata(model_fingerprint={**other, "dtype": "bfloat16"})
    assert run(sae, lm).differs == ()


def test_kept_metrics_are_of_the_same_model_text_and_tokens(lm: LanguageModel, tmp_path) -> None:
    scores = run(world.identity_sae(), lm, tokens=300)
    world.identity_sae().save_pretrained(tmp_path / "sae")
    assert SAEEvaluation.kept(tmp_path, scores.model, scores.text, 300) is None
    scores.save(tmp_path / "metrics.json")
    kept = SAEEvaluation.kept(tmp_path, scores.model, scores.text, "300")
    assert kept is not None
    assert kept.to_dict() == scores.to_dict()
    for asked in (
        ("other", scores.text, 300),
        (scores.model, "other", 300),
        (scores.model, scores.text, None),
    ):
        assert SAEEvaluation.kept(tmp_path, *asked) is None
    world.random_sae().save_pretrained(tmp_path / "sae")  # another dictionary in its place
    assert SAEEvaluation.kept(tmp_path, scores.model, scores.text, "300") is None


@pytest.mark.parametrize(
    ("trained", "extra", "said"),
    [
        ("mlp_out.2", {}, "the SAE was trained at mlp_out.2, which is the likely site; give its activations"),
        ("blocks.2.hook_resid_post", {}, "was trained there, so check the model and the scale"),
        (
            None,
            {"folder": "layers.2.mlp.act"},
            "which site it was trained, but its folder is 'layers.2.mlp.act'",
        ),
        (None, {}, "doesn't say at which site it was trained; check the site"),
    ],
)
def test_activations_of_another_site_are_noticed_and_the_likely_one_named(
    caplog: pytest.LogCaptureFixture, trained: str | None, extra: dict[str, str], said: str
) -> None:
    """Three times too large a reconstruction is worse than the mean."""
    sae = world.random_sae(threshold=0.0)
    with torch.no_grad():
        sae.W_dec.mul_(3)
    sae.metadata = SAEMetadata(site=trained, extra=extra)
    x = torch.randn(300, 16, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.WARNING):
        result = evaluate(sae, stream=TensorStream(x, seed=0), site="resid_post.2", progress=False)
    assert result.fvu > 1.5
    (warning,) = [record.getMessage() for record in caplog.records if "FVU" in record.getMessage()]
    assert warning.startswith("FVU is ")
    assert "rows of resid_post.2, worse than the mean would be: " in warning
    assert said in warning
