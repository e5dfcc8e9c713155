"""Transcoders: the worked values, the SAE that they are where y is x, scales of both sites, training and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from interp.activations.stream import TensorStream
from interp.core.config import load_config
from interp.core.device import make_generator
from interp.sae.config import configure
from interp.sae.dictionary import Dictionary
from interp.sae.loading import load_sae
from interp.sae.registry import architecture
from interp.sae.step import make_step
from interp.sae.training import SAERunConfig, train
from tests.activations.synthetic import make_contexts, write_store
from tests.sae.kernels.test_rules import WORKED, X, Y
from tests.sae.sparse_world import randomize, sparse_rows
from tests.sae.test_resume import Interrupt
from tests.sae.training_world import QUIET, parameters_equal

CODES = {
    "transcoder": ("topk", {"k": 3}, {}),
    "batchtopk_transcoder": ("batchtopk", {"k": 2.5}, {}),
    "jumprelu_transcoder": ("jumprelu", {}, {"l0_coefficient": 0.1, "bandwidth": 0.5}),
    "standard_transcoder": ("standard", {}, {"sparsity": "l1", "l1_coefficient": 0.2}),
}


def transcoder(name: str, *, seed: int | None = 0, **form: Any) -> Dictionary:
    kind: Any = architecture(name)
    shape = {"d_in": 6, "d_sae": 20, "d_out": 6, "dtype": "float64", **CODES[name][1]}
    return kind(kind.config_class(**{**shape, **form}), seed=seed)


def pairs(n: int = 1500, *, seed: int = 0) -> torch.Tensor:
    """Rows of x [n 8] and y [n 5] side by side: y is linear in x, and in a sparse part of it."""
    generator = make_generator(0, "pairs")
    x = sparse_rows(2 * n, 8, 12)[seed * n : (seed + 1) * n]
    matrix, sparse = torch.randn(8, 5, generator=generator), torch.randn(8, 5, generator=generator)
    return torch.cat([x, 0.5 * x @ matrix + torch.relu(x - 1) @ sparse + 3], dim=1)


@pytest.mark.parametrize("backend", ["dense", "reference", "cpu"])
def test_the_worked_values_of_a_skip_transcoder(backend: str) -> None:
    params, _, _, _, total, grads = WORKED["skip transcoder"]
    kind: Any = architecture("transcoder")
    sae = kind(kind.config_class(2, 5, d_out=2, k=2, skip=True, dtype="float64"))
    with torch.no_grad():
        for name in ("W_enc", "W_dec", "b_enc", "b_dec", "W_skip"):
            getattr(sae, name).copy_(getattr(params, name))
    loss = sae.loss(X, backend=backend, target=Y)
    loss.total.backward()
    assert float(loss.total.detach()) == pytest.approx(total, abs=1e-7)  # as many digits as the sheet has
    wanted = torch.tensor(grads["W_skip"], dtype=torch.float64)
    assert torch.allclose(sae.W_skip.grad, wanted, rtol=0, atol=1e-6)
    with torch.no_grad():
        error = (sae(X).x_hat - Y).pow(2).sum(1).mean()
    assert float(error) == pytest.approx(total, abs=1e-7)


@pytest.mark.parametrize("backend", ["dense", "cpu"])
@pytest.mark.parametrize("name", CODES)
def test_with_y_equal_to_x_it_is_an_sae_whose_input_is_not_centred(name: str, backend: str) -> None:
    code, form, loss = CODES[name]
    kind: Any = architecture(code)
    shape = {"d_in": 6, "d_sae": 20, "dtype": "float64", "apply_b_dec_to_input": False}
    sae = kind(kind.config_class(**shape, **form), seed=3)
    coder = transcoder(name, seed=3, decoder_start="transpose")
    weight = loss.get("l0_coefficient", loss.get("l1_coefficient", 0.0))
    steps = [make_step(one, betas=(0.9, 0.999), backend=backend, **loss) for one in (sae, coder)]
    for i in range(8):
        x = sparse_rows(64, 6, seed=i).double()
        steps[0](x, weight, 1e-2)
        steps[1](x, weight, 1e-2, target=x)
    for key, parameter in sae.named_parameters():
        torch.testing.assert_close(coder.get_parameter(key), parameter, rtol=1e-10, atol=1e-10)
    assert not torch.equal(coder.W_dec, transcoder(name, seed=3, decoder_start="transpose").W_dec)


@pytest.mark.parametrize("into", ["biases", "weights"])
@pytest.mark.parametrize("name", CODES)
def test_each_site_has_its_own_scale(name: str, into: str) -> None:
    rescaled = {"rescale_by_decoder_norm": True, "decoder_start": "transpose"}
    forms: list[dict[str, Any]] = [{"d_out": 4, "skip": True}, {"skip": True}]
    if CODES[name][0] in ("topk", "batchtopk"):
        forms.append(rescaled)
    for form in forms:
        sae = randomize(transcoder(name, **form))
        if hasattr(sae, "set_theta_"):
            sae.set_theta_(0.4)
        x, c_in, c_out = sparse_rows(40, 6, seed=7).double(), 2.3, 0.17
        wanted, codes = sae(c_in * x).x_hat / c_out, sae.encode(c_in * x)
        if into == "biases":
            sae.fold_activation_scales_((c_in, c_out))
        else:
            sae.fold_activation_scale_(c_in, into=into)
            sae.scale_output_(c_in / c_out)
        torch.testing.assert_close(sae(x).x_hat, wanted, rtol=1e-10, atol=1e-10)
        assert ((codes != 0) == (sae.encode(x) != 0)).all()
        assert (codes != 0).any()
        sparse = sae.encode_sparse(x)
        torch.testing.assert_close(sae.decode(sparse, x), wanted, rtol=1e-10, atol=1e-10)
        if CODES[name][0] != "topk":
            torch.testing.assert_close(sae.to_jumprelu()(x).x_hat, wanted, rtol=1e-10, atol=1e-10)
    with pytest.raises(TypeError, match="looks across latents"):
        transcoder("transcoder").to_jumprelu()


def test_the_logged_fvu_is_of_the_target() -> None:
    rows = pairs()
    options = {"d_sae": 16, "k": 2, "batch_size": len(rows), "steps": 1, "tracker": "none", **QUIET}
    run = train(TensorStream(rows, widths=(8, 5)), architecture="transcoder", **options)
    assert run.history.last["fvu"] == pytest.approx(1, abs=1e-5)  # the decoder starts at 0, b_dec at y's mean
    assert run.sae.b_dec.shape == (5,)


def test_it_learns_and_a_linear_path_beside_it_helps() -> None:
    held_out = pairs(seed=1)
    form = {"d_sae": 24, "k": 2, "lr": 1e-2, "steps": 250, "batch_size": 256}
    variants = {"plain": {}, "skip": {"skip": True}}
    stream = TensorStream(pairs(), widths=(8, 5))
    plain, skip = train(stream, variants, architecture="transcoder", tracker="none", **form, **QUIET)
    x, y = held_out.split((8, 5), dim=1)
    variance = (y - y.mean(0)).pow(2).sum()
    fvus = [float((run.sae(x).x_hat - y).pow(2).sum() / variance) for run in (plain, skip)]
    assert fvus[0] < 0.75
    assert fvus[1] < 0.5 * fvus[0]
    alone = train(
        TensorStream(pairs(), widths=(8, 5)),
        architecture="transcoder",
        skip=True,
        tracker="none",
        **form,
        **QUIET,
    )
    assert parameters_equal(alone.sae, skip.sae)


@pytest.mark.parametrize("name", ["transcoder", "batchtopk_transcoder"])
def test_from_a_store_resumed_saved_and_loaded(tmp_path: Path, name: str) -> None:
    contexts = make_contexts(120)
    rows = pairs(contexts.n_tokens)
    values = {"model.layers.1.mlp:in": rows[:, :8].contiguous(), "mlp_out.1": 30 * rows[:, 8:]}
    store = write_store(tmp_path / "store", contexts, values, dtype="float32")
    options = {
        "architecture": name,
        "site": "model.layers.1.mlp:in",
        "target_site": "mlp_out.1",
        "skip": True,
    }
    options |= {"d_sae": 24, "k": 3, "steps": 40, "batch_size": 128, "checkpoint_every": None, **QUIET}
    straight = train(store, out=tmp_path / "straight", **options)
    with pytest.raises(KeyboardInterrupt):
        train(store, out=tmp_path / "run", callbacks=[Interrupt(20)], **options)
    unfinished = load_sae(next((tmp_path / "run").glob("step_*")))
    assert unfinished.metadata.activation_scales == straight.metadata.activation_scales
    resumed = train(tmp_path / "store", out=tmp_path / "run", callbacks=[Interrupt()], **options)
    assert parameters_equal(straight.sae, resumed.sae)
    again = load_sae(tmp_path / "run")
    assert parameters_equal(again, straight.sae)
    assert (again.metadata.site, again.metadata.sites) == ("model.layers.1.mlp:in", tuple(values))
    c_in, c_out = again.metadata.activation_scales
    assert c_in / c_out > 10
    x, y = rows[:, :8], 30 * rows[:, 8:]
    assert float((again(x).x_hat - y).pow(2).sum() / (y - y.mean(0)).pow(2).sum()) < 0.5
    config = load_config(tmp_path / "run" / "config.yaml", SAERunConfig)
    assert config == resumed.config
    flat = {"architecture": name, **config.sae.form, "lr": config.sae.optimizer.lr}
    assert configure(flat).form == config.sae.form


def test_what_does_not_fit_is_refused() -> None:
    two = TensorStream(pairs(), widths=(8, 5))
    with pytest.raises(ValueError, match=r"'topk' takes the rows of one site, here are 2"):
        train(two, architecture="topk", k=2, d_sae=8, **QUIET)
    with pytest.raises(ValueError, match=r"maps one site to another, here are 1.*target_site"):
        train(pairs(), architecture="transcoder", k=2, d_sae=8, **QUIET)
    with pytest.raises(ValueError, match="name the input, too"):
        train(two, architecture="transcoder", target_site="mlp_out.1", **QUIET)
    with pytest.raises(ValueError, match="give sites, or site and target_site"):
        train(two, architecture="transcoder", sites=["a"], site="b", **QUIET)
    with pytest.raises(ValueError, match="b_dec belongs to its output"):
        transcoder("transcoder", apply_b_dec_to_input=True)
    with pytest.raises(ValueError, match="d_in = 6 and d_out = 4"):
        transcoder("transcoder", d_out=4, decoder_start="transpose")
    with pytest.raises(ValueError, match="rows of zero select nothing"):
        transcoder("transcoder", rescale_by_decoder_norm=True)
    with pytest.raises(ValueError, match="free rows would hide it"):
        transcoder("standard_transcoder").loss(X.repeat(1, 3), target=X.repeat(1, 3))
    sae = transcoder("transcoder", skip=True, d_out=4)
    with pytest.raises(ValueError, match="give it"):
        sae.loss(torch.zeros(3, 6))
    with pytest.raises(ValueError, match=r"must be \[3, d_out = 4\]"):
        make_step(sae)(torch.zeros(3, 6).double(), 0.0, 1e-3, target=torch.zeros(3, 6).double())
    with pytest.raises(ValueError, match="decodes with its input"):
        sae.decode(torch.zeros(3, 20))
    with pytest.raises(ValueError, match="the output's scale"):
        sae.fold_activation_scales_((1.0, 0.0))
