"""`train`: what it optimises, what it logs, what it writes, several dictionaries on one stream."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from interp.activations.store import ActivationStore
from interp.activations.stream import StoreStream, TensorStream
from interp.core.config import load_config
from interp.core.device import make_generator
from interp.core.stream import ArrayStream
from interp.sae.config import RunConfig, configure
from interp.sae.gated import GatedSAE, GatedSAEConfig
from interp.sae.loading import load_sae
from interp.sae.metrics import fvu, relative_reconstruction_bias
from interp.sae.task import SAETask, build
from interp.sae.training import SAERunConfig, train
from tests.sae.sparse_world import sparse_rows

D = 16
X = sparse_rows(3000, D)
QUIET = {"progress": False, "backend": "dense", "log_every": 10}
SMALL = {"d_sae": 32, "l1_coefficient": 0.5, "steps": 60, "batch_size": 128, "lr": 3e-3, **QUIET}


def parameters_equal(a, b) -> bool:
    pairs = zip(a.named_parameters(), b.named_parameters(), strict=True)
    return all(n == m and torch.equal(p, q) for (n, p), (m, q) in pairs)


# -- It finds the known optimum (the short form of scripts/reproduce/gated_sae.py, A1)


@pytest.fixture(scope="module")
def shrinkage():
    """Orthogonal features, where an L1 SAE's optimum can be written down."""
    l1, p, d = 0.5, 0.1, 8
    generator = make_generator(0, "A1")
    q = torch.linalg.qr(torch.randn(d, d, generator=generator)).Q
    n = 800 * 256
    active = torch.rand(n, d, generator=generator) < p
    x = (active * (0.5 + 1.5 * torch.rand(n, d, generator=generator))) @ q
    options = {"normalization": "none", "b_dec_init": "zero", "resample_at": (), "lr_decay": 0.5}
    options |= {"lr_warmup": 0.0, "l1_warmup": 0.0}
    gated, baseline = train(
        x,
        {"gated": {}, "l1": {"architecture": "standard"}},
        d_sae=d,
        l1_coefficient=l1,
        steps=800,
        batch_size=256,
        lr=1e-2,
        **options,
        **QUIET,
    )
    return {
        "x": x[:50_000],
        "l0": float(active[:50_000].sum()) / 50_000,
        "gated": gated.sae,
        "l1": baseline.sae,
    }


def test_the_baseline_shrinks_as_much_as_theory_says(shrinkage):
    p, h, mean, square = 0.1, 0.25, 1.25, 1.75
    b = p * h / (1 - p)
    gamma = (square - 2 * h * mean + h**2 + (1 - p) * b**2 / p) / (square - h * mean)
    unexplained = (p * h**2 + (1 - p) * b**2) / (p * square - (p * mean) ** 2)
    x_hat = shrinkage["l1"](shrinkage["x"]).x_hat
    assert relative_reconstruction_bias(shrinkage["x"], x_hat) == pytest.approx(gamma, abs=0.005)
    assert fvu(shrinkage["x"], x_hat) == pytest.approx(unexplained, rel=0.03)


def test_the_gated_sae_does_not_shrink(shrinkage):
    out = shrinkage["gated"](shrinkage["x"])
    assert relative_reconstruction_bias(shrinkage["x"], out.x_hat) == pytest.approx(1, abs=0.003)
    assert fvu(shrinkage["x"], out.x_hat) < 0.002
    l0 = float((out.codes > 0).sum()) / len(shrinkage["x"])
    assert l0 == pytest.approx(shrinkage["l0"], rel=0.01)


def test_without_the_auxiliary_term_all_gates_close():
    """The negative control: the gate then feels nothing but the sparsity penalty."""
    sae = GatedSAE(GatedSAEConfig(D, 32))
    optimizer = torch.optim.Adam(sae.parameters(), lr=3e-2, betas=(0.0, 0.999))
    stream = TensorStream(X)
    for _ in range(200):
        x = stream.next_batch(256).values
        p = (x - sae.b_dec) @ sae.W_gate.T
        pi = p + sae.b_gate
        x_hat = sae.decode((pi > 0) * torch.relu(sae.r_mag.exp() * p + sae.b_mag))
        loss = (x_hat - x).pow(2).sum(1).mean() + 2.0 * torch.relu(pi).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    out = sae(X)
    assert (out.codes > 0).sum() / len(X) < 0.05  # of 32 latents, half of which fired at the start
    assert fvu(X, out.x_hat) == pytest.approx(1, abs=0.05)


# -- Several dictionaries on one stream


VARIANTS = {
    "gated": {},
    "sparser": {"l1_coefficient": 1.0, "resample_at": (0.2, 0.5), "dead_window": 0.05},
    "l1": {"architecture": "standard", "d_sae": 48},
    "norm-weighted": {"architecture": "standard", "sparsity": "ri_l1", "beta1": 0.9, "grad_clip": 1.0},
    "untied": {"tied": False, "use_r_mag": False, "detach_centering": True},
    "free decoder": {"sparsity": "ri_l1", "freeze_decoder": False, "mse_reduction": "mean"},
}


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return folder, dict(zip(VARIANTS, train(X, VARIANTS, out=folder, **SMALL), strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_side_by_side_is_bit_for_bit_alone(side_by_side, name):
    alone = train(X, **{**SMALL, **VARIANTS[name]})
    together = side_by_side[1][name]
    assert parameters_equal(alone.sae, together.sae)
    assert [row["loss"] for row in alone.history] == [row["loss"] for row in together.history]


def test_the_stream_is_read_once(side_by_side):
    stream = TensorStream(X)
    train(stream, {"a": {}, "b": {"lr": 1e-2}}, **SMALL)
    assert stream.samples == alone_samples()


def alone_samples() -> int:
    stream = TensorStream(X)
    train(stream, **SMALL)
    return stream.samples


def test_each_gets_a_run_folder(side_by_side):
    folder, results = side_by_side
    for name, result in results.items():
        assert result.out == folder / name
        assert parameters_equal(load_sae(folder / name), result.sae)
        config = load_config(folder / name / "config.yaml", SAERunConfig)
        assert config == result.config
        rows = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
        assert rows == list(result.history)
        assert name in str(result)


def test_one_variant_is_laid_out_like_several(tmp_path):
    (result,) = train(X, {"only": {}}, out=tmp_path, **{**SMALL, "steps": 20})
    assert result.out == tmp_path / "only"
    assert load_sae(tmp_path / "only").cfg == result.sae.cfg
    assert [row["step"] for row in result.history] == [10, 20]
    assert "loss" in result.history.last


def test_a_list_of_variants_is_named_by_what_differs():
    results = train(X, [{"d_sae": 20}, {"d_sae": 24, "lr": 1e-2}], **{**SMALL, "steps": 2})
    assert [r.name for r in results] == ["d_sae=20", "d_sae=24_lr=0.01"]
    assert [r.sae.cfg.d_sae for r in results] == [20, 24]


@pytest.mark.parametrize("name", [n for n in VARIANTS if VARIANTS[n].get("sparsity") != "ri_l1"])
def test_decoder_rows_end_exactly_unit(side_by_side, name):
    norms = side_by_side[1][name].sae.W_dec.norm(dim=1)
    torch.testing.assert_close(norms, torch.ones_like(norms), rtol=0, atol=2e-7)


@pytest.mark.parametrize("name", ["norm-weighted", "free decoder"])
def test_norm_weighted_decoders_are_free(side_by_side, name):
    norms = side_by_side[1][name].sae.W_dec.norm(dim=1)
    assert norms.std() > 1e-3


# -- What is logged and written


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "one"
    return train(X, out=folder, checkpoint_every=25, **SMALL)


def test_logged_rows(run):
    rows = list(run.history)
    assert [row["step"] for row in rows] == [10, 20, 30, 40, 50, 60]
    for row in rows:
        parts = row["reconstruction"] + row["l1_coefficient"] * row["sparsity"] + row["auxiliary"]
        assert row["loss"] == pytest.approx(parts, rel=1e-6)
        assert row["backend"] == "dense"
        assert 0 <= row["dead"] <= 1
        assert row["open_gates"] >= row["l0"] > 0
    assert rows[-1]["samples"] == 2 * len(X) + rows[-1]["samples"] % len(X)
    assert rows[-1]["loss"] < rows[0]["loss"]
    assert rows[-1]["fvu"] < rows[0]["fvu"] < 1.5


def test_schedules_in_the_log(run):
    """60 steps: warm-ups over round(7.5) = 8, decay over the last 12."""
    by_step = {row["step"]: row for row in run.history}
    assert by_step[10]["l1_coefficient"] == by_step[60]["l1_coefficient"] == 0.5
    assert by_step[20]["lr"] == pytest.approx(3e-3)
    assert by_step[60]["lr"] == pytest.approx(3e-3 / 12)


def test_warm_up_of_the_sparsity_is_linear_from_zero():
    result = train(X, **{**SMALL, "steps": 40, "log_every": 1, "l1_warmup": 0.5, "lr_warmup": 0.0})
    seen = [row["l1_coefficient"] for row in result.history][:21]
    assert seen == pytest.approx([0.5 * min(1, (t + 1) / 20) for t in range(21)])


def test_warm_up_of_the_learning_rate_is_a_cosine_from_a_tenth():
    result = train(X, **{**SMALL, "steps": 40, "log_every": 1, "lr_warmup": 0.5})
    rise = [0.1 + 0.9 * (1 - math.cos(math.pi * (t + 1) / 20)) / 2 for t in range(20)]
    assert [row["lr"] for row in result.history][:20] == pytest.approx([3e-3 * r for r in rise])


def test_run_folder(run):
    assert {p.name for p in run.out.iterdir()} >= {"config.yaml", "metrics.jsonl", "summary.json", "sae"}
    assert (run.out / "step_00000060").is_dir()
    assert (run.out / "step_00000050").is_dir()  # two are kept
    assert not (run.out / "step_00000025").exists()
    summary = json.loads((run.out / "summary.json").read_text())
    assert summary["loss"] == run.history.last["loss"]


def test_the_saved_sae_takes_raw_activations(run):
    """The last logged FVU was measured on scaled activations inside the run; raw ones must agree."""
    loaded = load_sae(run.out)
    assert loaded.metadata.activation_scale == pytest.approx(
        math.sqrt(D) / X.norm(dim=1).double().mean().item(), rel=1e-6
    )
    assert loaded.metadata.activation_scale_folded
    assert fvu(X, loaded(X).x_hat) == pytest.approx(run.history.last["fvu"], rel=0.1)


def test_a_checkpoint_can_be_loaded_too(run):
    assert parameters_equal(load_sae(run.out / "step_00000060"), run.sae)


def test_metadata(run):
    m = load_sae(run.out).metadata
    assert (m.steps, m.batch_size, m.lr, m.l1_coefficient, m.seed) == (60, 128, 3e-3, 0.5, 0)
    assert (m.normalization, m.training_dtype, m.tokens) == (
        "mean_norm",
        "float32",
        run.history.last["samples"],
    )
    assert m.loss == {
        "sparsity": "l1",
        "freeze_decoder": True,
        "detach_centering": False,
        "mse_reduction": "sum",
    }
    assert m.library_version


def test_figures_and_text(run):
    figure = run.plot()
    assert [title for ax in figure.axes if (title := ax.get_title())] == ["loss", "l0", "fvu", "dead"]
    assert "16 -> 32 latents" in str(run)


def test_a_finished_run_is_only_read_again(run):
    before = {p: p.stat().st_mtime_ns for p in run.out.glob("step_*/*")}
    again = train(X, out=run.out, checkpoint_every=25, **SMALL)
    assert parameters_equal(again.sae, run.sae)
    assert {p: p.stat().st_mtime_ns for p in run.out.glob("step_*/*")} == before


def test_other_settings_in_the_same_folder_are_refused(run):
    with pytest.raises(ValueError, match=r"l1_coefficient = 0\.5.*asks for 1\.0"):
        train(X, out=run.out, **{**SMALL, "l1_coefficient": 1.0})


# -- The scale, and where rows come from


@pytest.mark.parametrize("normalization", ["mean_norm", "rms", "none"])
def test_normalisations_end_in_raw_units(normalization):
    """Rows 50 times larger: with a scale the result is the same SAE in larger units."""
    l1 = 0.5 if normalization == "mean_norm" else 0.03
    options = {**SMALL, "normalization": normalization, "l1_coefficient": l1}
    small, large = train(X, **options), train(50 * X, **options)
    assert large.metadata.activation_scale == (
        1.0 if normalization == "none" else pytest.approx(small.metadata.activation_scale / 50, rel=1e-5)
    )
    if normalization != "none":
        torch.testing.assert_close(large.sae(50 * X).x_hat, 50 * small.sae(X).x_hat, rtol=0.02, atol=0.5)


def test_b_dec_starts_where_it_should():
    run_config = RunConfig(steps=1, batch_size=8, normalization="none", backend="dense")
    for how, centre in (("mean", X.mean(0)), ("zero", torch.zeros(D))):
        task = SAETask(TensorStream(X), {"a": configure({"b_dec_init": how})}, run_config, device="cpu")
        task._start()
        torch.testing.assert_close(task.trained["a"].sae.b_dec.detach(), centre)


def test_sources_are_alike(tmp_path):
    memmap = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=tuple(X.shape))
    memmap[:] = X.numpy()
    results = [train(source, **SMALL) for source in (X, X.numpy(), memmap, TensorStream(X))]
    assert all(parameters_equal(results[0].sae, other.sae) for other in results[1:])


def test_a_store_tells_where_its_rows_come_from(tmp_path, tiny_llama):
    from interp.activations.harvest import harvest

    texts = [f"the {i}th text of many, which go on a little" for i in range(60)]
    store = harvest(
        tiny_llama, texts, ["resid_post.1", "mlp_out.0"], tmp_path / "s", context_size=32, progress=False
    )
    assert isinstance(store, ActivationStore)
    options = {**SMALL, "steps": 3}
    with pytest.raises(ValueError, match="site"):
        train(tmp_path / "s", **options)
    result = train(tmp_path / "s", site="resid_post.1", **options)
    m = result.metadata
    assert (m.site, m.model_name, m.context_size, m.skip_positions) == (
        "resid_post.1",
        tiny_llama.name,
        32,
        (0,),
    )
    assert m.model_fingerprint["d_model"] == 32
    assert result.sae.cfg.d_in == 32
    same = train(StoreStream(store, "resid_post.1", seed=0, max_norm_multiple=10.0), **options)
    assert parameters_equal(same.sae, result.sae)
    with pytest.raises(ValueError, match="only one"):
        train(X, site="resid_post.1", **options)


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
    assert configure({"sparsity": "ri_l1"}).resample_at == ()
    assert configure({}).resample_at == (0.2, 0.35, 0.5)
    assert configure({"sparsity": "ri_l1", "resample_at": [0.5]}).resample_at == (0.5,)


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
        ({"architecture": "topk"}, "gated, standard"),
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
        ({"variants": {"a/b": {}}}, "name a folder"),
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
    one.guard_r_mag()
    assert one.sae.r_mag[:3].tolist() == [10.0, -10.0, 0.0]


def test_many_processes_are_refused(monkeypatch):
    monkeypatch.setattr("interp.sae.training.Runtime", lambda *_: SimpleNamespace(world_size=2))
    with pytest.raises(ValueError, match="one process"):
        train(X, **SMALL)


def test_build_follows_the_configuration():
    run_config = RunConfig()
    norm_weighted = build(
        configure({"architecture": "standard", "sparsity": "ri_l1", "d_sae": 20}), 8, run_config
    )
    assert not norm_weighted.cfg.apply_b_dec_to_input
    torch.testing.assert_close(norm_weighted.W_dec.norm(dim=1), torch.full((20,), 0.1))
    gated = build(
        configure({"tied": False, "use_r_mag": False, "apply_b_dec_to_input": False}), 8, run_config
    )
    assert (gated.cfg.tied, gated.cfg.use_r_mag, gated.cfg.apply_b_dec_to_input) == (False, False, False)
    assert gated.r_mag is None


def test_a_stream_of_ones_own():
    """Whatever serves [n d] and knows d and sample() will do; a name such as "run" is as good as any."""

    class Plain(ArrayStream):
        d = D

        def sample(self, n, seed=0):
            return X[:n]

    (result,) = train(Plain(X), {"run": {}}, **{**SMALL, "steps": 5})
    assert (result.name, result.sae.cfg.d_in) == ("run", D)
