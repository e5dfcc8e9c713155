"""`train`: dead latents, precision, and options and activations that are refused."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from interp.activations.stream import TensorStream
from interp.core.stream import ArrayStream
from interp.sae.config import RunConfig, configure
from interp.sae.metrics import fvu
from interp.sae.task import SAETask, build
from interp.sae.training import train
from tests.sae.training_world import SMALL, X

# -- Dead latents


def test_silent_tokens_are_counted_exactly():
    run_config = RunConfig(steps=10, batch_size=100, backend="dense")
    task = SAETask(
        TensorStream(X), {"a": configure({"d_sae": 8, "dead_window": 0.3})}, run_config, device="cpu"
    )
    one, expected = task.trained["a"], torch.zeros(8, dtype=torch.int64)
    one.sae.b_gate.data[0] = -1e9
    for step in range(5):
        x = X[step * 100 : (step + 1) * 100]
        fired = (one.sae.encode(x) > 0).any(0)
        one.take_step(x, step)
        expected = torch.where(fired, 0, expected + 100)
        assert torch.equal(one.silent_tokens, expected)
        assert one.dead.tolist() == [i for i in range(8) if expected[i] >= 300]
    assert one.silent_tokens.dtype == torch.int64
    assert one.silent_tokens[0] == 500


def test_resampling_revives_and_restarts_the_learning_rate():
    options = {**SMALL, "steps": 100, "d_sae": 96, "log_every": 1, "lr_warmup": 0.0, "lr_decay": 0.0}
    options |= {"lr_restart": 0.2, "init_fire_rate": None}
    options |= {"b_dec_init": "zero"}  # so that the offset of the data kills latents
    without = train(X + 2, **options, resample_at=())
    revived = train(X + 2, **options, resample_at=(0.4,))
    before = [row["dead"] for row in revived.history][39]
    assert before > 0.1  # there was something to do
    assert without.history.last["dead"] >= before
    assert [row["dead"] for row in revived.history][40] < 0.3 * before
    assert revived.history.last["dead"] < 0.6 * before
    lrs = [row["lr"] / 3e-3 for row in revived.history]
    assert lrs[39] == 1
    expected = [0.1 + 0.9 * (1 - math.cos(math.pi * t / 20)) / 2 for t in range(1, 21)]
    assert lrs[40:60] == pytest.approx(expected)
    assert lrs[60:] == [1.0] * 40
    assert {row["lr"] for row in without.history} == {3e-3}


def test_nothing_dead_restarts_nothing():
    result = train(X, **{**SMALL, "log_every": 1, "lr_warmup": 0.0, "l1_coefficient": 0.0, "lr_decay": 0.0})
    assert {row["dead"] for row in result.history} == {0.0}
    assert {row["lr"] for row in result.history} == {3e-3}


def test_norm_weighted_sparsity_is_not_resampled_unless_asked():
    assert configure({"sparsity": "ri_l1"}).resampling.resample_at == ()
    assert configure({}).resampling.resample_at == (0.2, 0.35, 0.5)
    assert configure({"sparsity": "ri_l1", "resample_at": [0.5]}).resampling.resample_at == (0.5,)


# -- Precision


def test_bf16_keeps_float32_state():
    result = train(X, **{**SMALL, "precision": "bf16"})
    exact = train(X, **SMALL)
    assert all(p.dtype == torch.float32 for p in result.sae.parameters())
    assert fvu(X, result.sae(X).x_hat) == pytest.approx(fvu(X, exact.sae(X).x_hat), rel=0.2)


def test_float64():
    assert all(
        p.dtype == torch.float64
        for p in train(X, **{**SMALL, "precision": "64", "steps": 3}).sae.parameters()
    )


def test_the_list_form_trains_alike():
    """Few steps: with beta1 = 0 rounding grows quickly."""
    options = {**SMALL, "steps": 4, "precision": "64"}
    a, b = train(X, **options), train(X, **{**options, "backend": "reference"})
    assert b.history.last["backend"] == "reference"
    for p, q in zip(a.sae.parameters(), b.sae.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-9)


# -- Errors


def nan_rows():
    x = X.clone()
    x[:, 3] = torch.nan
    return x


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"l1_coefficent": 1.0}, "did you mean 'l1_coefficient'"),
        ({"architecture": "topkk"}, "did you mean .topk."),
        ({"d_sae": 0}, "d_sae = 0"),
        ({"l1_coefficient": -1.0}, "l1_coefficient = -1.0"),
        ({"lr": 0.0}, "lr = 0.0"),
        ({"beta1": 1.0}, "beta1"),
        ({"steps": 0}, "steps = 0"),
        ({"backend": "gpu"}, "did you mean 'cpu'"),
        ({"normalization": "layer_norm"}, "mean_norm"),
        ({"b_dec_init": "median"}, "geometric_median"),
        ({"resample_at": (0.9,)}, "no time to settle"),
        ({"dead_window": 0.0}, "dead_window"),
        ({"init_fire_rate": 1.0}, "init_fire_rate"),
        ({"lr_decay": 1.5}, "lr_decay = 1.5 is a share"),
        ({"precision": "fp16"}, "precision"),
        ({"tracker": "tensorboard"}, "wandb"),
        ({"variants": []}, "variants is empty"),
        ({"variants": [{}, {}]}, "comes twice"),
        ({"variants": {"a/b": {}}}, "name a file or folder"),
        ({"variants": {"a": {"steps": 5}}}, "same for all dictionaries"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_options_out_of_range(options, said):
    with pytest.raises(ValueError, match=said):
        train(X, **{**SMALL, **options})


def test_activations_that_cannot_be_trained_on():
    with pytest.raises(ValueError, match="NaN or Inf"):
        train(nan_rows(), **SMALL)
    with pytest.raises(TypeError, match="TensorStream"):
        train(ArrayStream(X), **SMALL)
    with pytest.raises(ValueError, match="not an activation store"):
        train("/nowhere/at/all", **SMALL)


def test_a_batch_of_another_width_is_named():
    task = SAETask(TensorStream(X), {"a": configure({})}, RunConfig(backend="dense"), device="cpu")
    with pytest.raises(ValueError, match=r"step 1 has shape \(5, 17\), d_in = 16"):
        task._check(torch.zeros(5, 17), 0)
    with pytest.raises(ValueError, match="1 of 5 activations in the batch of step 8 are NaN"):
        task._check(torch.full((5, 16), 1.0).index_fill(0, torch.tensor([2]), torch.nan), 7)


def test_r_mag_is_guarded():
    one = SAETask(TensorStream(X), {"a": configure({})}, RunConfig(backend="dense"), device="cpu").trained[
        "a"
    ]
    one.sae.r_mag.data[:2] = torch.tensor([50.0, -50.0])
    one.sae.after_many_steps_()
    assert one.sae.r_mag[:3].tolist() == [10.0, -10.0, 0.0]


def test_many_processes_are_refused(monkeypatch):
    monkeypatch.setattr("interp.sae.training.Runtime", lambda *_: SimpleNamespace(world_size=2))
    with pytest.raises(ValueError, match="one process"):
        train(X, **SMALL)


def test_build_follows_the_configuration():
    run_config = RunConfig()
    norm_weighted = build(
        configure({"architecture": "standard", "sparsity": "ri_l1", "d_sae": 20}), (8,), run_config
    )
    assert not norm_weighted.cfg.apply_b_dec_to_input
    torch.testing.assert_close(norm_weighted.W_dec.norm(dim=1), torch.full((20,), 0.1))
    gated = build(
        configure({"tied": False, "use_r_mag": False, "apply_b_dec_to_input": False}), (8,), run_config
    )
    assert (gated.cfg.tied, gated.cfg.use_r_mag, gated.cfg.apply_b_dec_to_input) == (False, False, False)
    assert gated.r_mag is None
