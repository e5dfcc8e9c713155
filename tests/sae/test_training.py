"""`train`: several dictionaries on one stream, what it logs and writes, and where its rows come from."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from interp import __version__
from interp.activations.store import ActivationStore
from interp.activations.stream import LiveStream, StoreStream, TensorStream
from interp.core.config import load_config, to_dict
from interp.core.stream import ArrayStream
from interp.sae.config import RunConfig, configure
from interp.sae.loading import load_sae
from interp.sae.metrics import fvu
from interp.sae.task import SAETask
from interp.sae.training import SAERunConfig, train
from tests.sae.training_world import SMALL, D, X, parameters_equal

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
    assert to_dict(m)["library_version"] == __version__


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
    with pytest.raises(ValueError, match=r"l1_coefficient was 0\.5 there and is 1\.0 here.*--no-resume"):
        train(X, out=run.out, **{**SMALL, "l1_coefficient": 1.0})


def test_a_batch_of_more_rows_than_there_are_is_said(caplog):
    caplog.set_level("INFO")
    train(X[:100], **{**SMALL, "steps": 3, "batch_size": 500})
    assert "batch_size = 500, but there are 100 rows" in caplog.text
    assert "3 steps of 100 tokens: 3 passes over 100 rows" in caplog.text


@pytest.mark.parametrize(("name", "value"), [("steps", 3.5), ("d_sae", "64"), ("batch_size", True)])
def test_what_counts_is_an_integer(name, value):
    with pytest.raises(TypeError, match=rf"{name} = .* give an integer"):
        train(X, **{**SMALL, name: value})


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


def test_a_live_stream_tells_what_a_store_tells(tmp_path, tiny_llama):
    from interp.activations.harvest import harvest
    from interp.activations.text import pack

    texts = [f"the {i}th text of many, which go on a little" for i in range(60)]
    contexts = pack(texts, tiny_llama, context_size=32)
    options = {**SMALL, "steps": 3}
    store = harvest(tiny_llama, contexts, "resid_post.1", tmp_path / "s", progress=False)
    kept = train(StoreStream(store), **options).metadata
    live = train(LiveStream(tiny_llama, contexts, "resid_post.1", buffer_tokens=2000), **options).metadata
    for name in (
        *("site", "model_name", "model_fingerprint", "context_size", "text"),
        *("skip_positions", "special_tokens_excluded", "max_norm"),
    ):
        assert getattr(live, name) == getattr(kept, name), name
    assert live.model_fingerprint == tiny_llama.fingerprint()
    assert live.text == contexts.identity()["text"]
    assert live.special_tokens_excluded is True  # the tokenizer has some; in this text there are none
    stream = LiveStream(
        tiny_llama, contexts, "resid_post.1", buffer_tokens=2000, skip_positions=(0, 1), skip_special=False
    )
    other = train(stream, **options).metadata
    assert (other.skip_positions, other.special_tokens_excluded) == ((0, 1), False)
    bounded = StoreStream(store, max_norm_multiple=1.5)
    assert train(bounded, **options).metadata.max_norm == bounded.max_norm == bounded.provenance.max_norm


def test_a_stream_of_ones_own():
    """Whatever serves [n d] and knows d and sample() will do; a name such as "run" is as good as any."""

    class Plain(ArrayStream):
        d = D

        def sample(self, n, seed=0):
            return X[:n]

    (result,) = train(Plain(X), {"run": {}}, **{**SMALL, "steps": 5})
    assert (result.name, result.sae.cfg.d_in) == ("run", D)
