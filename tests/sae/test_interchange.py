"""Files of SAELens and dictionary_learning: semantics against NumPy, round trips, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.jumprelu import JumpReLUConfig, JumpReLUSAE
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.interchange import save_dictionary_learning, save_saelens
from interp.sae.loading import load_sae
from interp.sae.metadata import SAEMetadata
from interp.sae.saelens import load_saelens
from tests.sae.sparse_world import randomize, sparse_rows

D, F = 16, 40
X = sparse_rows(64, D, noise=0.3)


def relu(z):
    return np.maximum(z, 0)


def draw(**shapes) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(len(shapes))
    return {
        name.replace("__", "."): 0.3 * torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
    }


def gated_codes(xc, W, b_gate, b_mag, r_mag):
    """W is [d F]."""
    p = xc @ W
    return np.where(p + b_gate > 0, relu(np.exp(r_mag) * p + b_mag), 0)


# Independent NumPy forms of what each library computes; t holds its tensors as it stores them.
SAELENS = {
    "standard": (
        {"W_enc": (D, F), "W_dec": (F, D), "b_dec": D, "b_enc": F},
        lambda x, t: relu((x - t["b_dec"]) @ t["W_enc"] + t["b_enc"]),
    ),
    "gated": (
        {"W_enc": (D, F), "W_dec": (F, D), "b_dec": D, "b_gate": F, "b_mag": F, "r_mag": F},
        lambda x, t: gated_codes(x - t["b_dec"], t["W_enc"], t["b_gate"], t["b_mag"], t["r_mag"]),
    ),
    "jumprelu": (
        {"W_enc": (D, F), "W_dec": (F, D), "b_dec": D, "b_enc": F, "threshold": F},
        lambda x, t: (z := (x - t["b_dec"]) @ t["W_enc"] + t["b_enc"]) * (z > t["threshold"]),
    ),
}
DICTIONARY_LEARNING = {
    "AutoEncoder": (
        {"bias": D, "encoder__weight": (F, D), "encoder__bias": F, "decoder__weight": (D, F)},
        lambda x, t: relu((x - t["bias"]) @ t["encoder.weight"].T + t["encoder.bias"]),
        lambda f, t: f @ t["decoder.weight"].T + t["bias"],
    ),
    "AutoEncoderNew": (
        {"encoder__weight": (F, D), "encoder__bias": F, "decoder__weight": (D, F), "decoder__bias": D},
        lambda x, t: relu(x @ t["encoder.weight"].T + t["encoder.bias"]),
        lambda f, t: f @ t["decoder.weight"].T + t["decoder.bias"],
    ),
    "GatedAutoEncoder": (
        {
            "encoder__weight": (F, D),
            "decoder__weight": (D, F),
            "decoder_bias": D,
            "gate_bias": F,
            "mag_bias": F,
            "r_mag": F,
        },
        lambda x, t: gated_codes(
            x - t["decoder_bias"], t["encoder.weight"].T, t["gate_bias"], t["mag_bias"], t["r_mag"]
        ),
        lambda f, t: f @ t["decoder.weight"].T + t["decoder_bias"],
    ),
    "JumpReluAutoEncoder": (
        {"W_enc": (D, F), "b_enc": F, "W_dec": (F, D), "b_dec": D, "threshold": F},
        lambda x, t: (z := x @ t["W_enc"] + t["b_enc"]) * (z > t["threshold"]),
        lambda f, t: f @ t["W_dec"] + t["b_dec"],
    ),
}


def saelens_folder(folder, architecture, /, **cfg):
    tensors = draw(**SAELENS[architecture][0])
    if "threshold" in tensors:
        tensors["threshold"] = tensors["threshold"].abs()
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "sae_weights.safetensors")
    full = {
        "architecture": architecture,
        "d_in": D,
        "d_sae": F,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {
            "sae_lens_version": "6.5.0",
            "model_name": "gpt2",
            "hook_name": "blocks.5.hook_resid_post",
            "context_size": 128,
        },
        **cfg,
    }
    (folder / "cfg.json").write_text(json.dumps({k: v for k, v in full.items() if v is not None}))
    return tensors


def dictionary_learning_folder(folder, dict_class, /, **trainer):
    tensors = draw(**DICTIONARY_LEARNING[dict_class][0])
    if "threshold" in tensors:
        tensors["threshold"] = tensors["threshold"].abs()
    torch.save(tensors, folder / "ae.pt")
    full = {"dict_class": dict_class, "activation_dim": D, "dict_size": F, "lm_name": "pythia", **trainer}
    content = {"trainer": {k: v for k, v in full.items() if v is not None}, "buffer": {}}
    (folder / "config.json").write_text(json.dumps(content))
    return tensors


def numpy_of(tensors):
    return {name: t.numpy() for name, t in tensors.items()}


@pytest.mark.parametrize("architecture", SAELENS)
@pytest.mark.parametrize("centred", [True, False])
def test_saelens_folders_mean_what_they_say(tmp_path, architecture, centred):
    t = numpy_of(saelens_folder(tmp_path, architecture, apply_b_dec_to_input=centred))
    sae = load_sae(tmp_path)
    seen_by_formula = X.numpy() if centred else X.numpy() + t["b_dec"]  # it subtracts b_dec again
    codes = SAELENS[architecture][1](seen_by_formula, t)
    out = sae(X)
    np.testing.assert_allclose(out.codes.detach(), codes, atol=1e-6)
    np.testing.assert_allclose(out.x_hat.detach(), codes @ t["W_dec"] + t["b_dec"], atol=1e-6)
    assert (sae.metadata.model_name, sae.metadata.site) == ("gpt2", "resid_post.5")


@pytest.mark.parametrize("dict_class", DICTIONARY_LEARNING)
def test_dictionary_learning_folders_mean_what_they_say(tmp_path, dict_class):
    t = numpy_of(dictionary_learning_folder(tmp_path, dict_class))
    _, encode, decode = DICTIONARY_LEARNING[dict_class]
    sae = load_sae(tmp_path)
    codes = encode(X.numpy(), t)
    out = sae(X)
    np.testing.assert_allclose(out.codes.detach(), codes, atol=1e-6)
    np.testing.assert_allclose(out.x_hat.detach(), decode(codes, t), atol=1e-6)
    assert sae.metadata.model_name == "pythia"


@pytest.mark.parametrize("architecture", SAELENS)
def test_saelens_round_trips_are_bit_identical(tmp_path, architecture):
    tensors = saelens_folder(tmp_path / "theirs", architecture)
    save_saelens(load_sae(tmp_path / "theirs"), tmp_path / "ours")
    assert_same_tensors(load_file(tmp_path / "ours" / "sae_weights.safetensors"), tensors)
    cfg = [json.loads((tmp_path / side / "cfg.json").read_text()) for side in ("theirs", "ours")]
    assert cfg[0] == cfg[1]


@pytest.mark.parametrize("dict_class", DICTIONARY_LEARNING)
def test_dictionary_learning_round_trips_are_bit_identical(tmp_path, dict_class):
    (tmp_path / "theirs").mkdir()
    tensors = dictionary_learning_folder(tmp_path / "theirs", dict_class)
    save_dictionary_learning(load_sae(tmp_path / "theirs"), tmp_path / "ours")
    assert_same_tensors(torch.load(tmp_path / "ours" / "ae.pt", weights_only=True), tensors)
    trainer = json.loads((tmp_path / "ours" / "config.json").read_text())["trainer"]
    assert (trainer["dict_class"], trainer["activation_dim"], trainer["dict_size"]) == (dict_class, D, F)


def assert_same_tensors(a, b):
    assert set(a) == set(b)
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


KINDS = {
    "gated": lambda: GatedSAE(GatedSAEConfig(D, F)),
    "gated without r": lambda: GatedSAE(GatedSAEConfig(D, F, use_r_mag=False)),
    "gated not centred": lambda: GatedSAE(GatedSAEConfig(D, F, False)),
    "standard": lambda: StandardSAE(StandardSAEConfig(D, F)),
    "standard norm-weighted": lambda: StandardSAE(StandardSAEConfig.norm_weighted(D, F)),
    "jumprelu": lambda: JumpReLUSAE(JumpReLUConfig(D, F)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("save", [save_saelens, save_dictionary_learning])
@pytest.mark.parametrize("folded", [True, False])
def test_what_is_exported_reconstructs_raw_activations_alike(tmp_path, kind, save, folded):
    sae = randomize(KINDS[kind]())
    c = 1.0 if folded else 2.5
    sae.metadata = SAEMetadata(
        model_name="gpt2", site="resid_post.5", activation_scale=c, activation_scale_folded=folded
    )
    save(sae, tmp_path)
    loaded = load_sae(tmp_path)
    expected = sae(X * c).x_hat / c
    torch.testing.assert_close(loaded(X).x_hat, expected, rtol=1e-5, atol=1e-5)
    assert (loaded.metadata.model_name, loaded.metadata.site) == ("gpt2", "resid_post.5")


@pytest.mark.parametrize(
    ("site", "hook"),
    [
        ("resid_post.5", "blocks.5.hook_resid_post"),
        ("attn_z.0", "blocks.0.attn.hook_z"),
        ("mlp_post.3", "blocks.3.mlp.hook_post"),
        ("mlp_out.3", "blocks.3.hook_mlp_out"),
        ("embed", "hook_embed"),
        ("model.layers.3.mlp:in", "model.layers.3.mlp:in"),
    ],
)
def test_sites_get_transformer_lens_names(tmp_path, site, hook):
    sae = KINDS["gated"]()
    sae.metadata = SAEMetadata(site=site)
    save_saelens(sae, tmp_path)
    metadata = json.loads((tmp_path / "cfg.json").read_text())["metadata"]
    assert metadata["hook_name"] == hook
    assert metadata["sae_lens_version"] >= "6"  # or SAELens would take it for an older folder
    assert load_sae(tmp_path).metadata.site == site


def test_an_untied_gated_sae_has_no_counterpart(tmp_path):
    sae = GatedSAE(GatedSAEConfig(D, F, tied=False))
    for save in (save_saelens, save_dictionary_learning):
        with pytest.raises(ValueError, match="tied"):
            save(sae, tmp_path)


# -- SAELens in particular


@pytest.mark.parametrize("architecture", SAELENS)
def test_saelens_activation_scale_is_asked_for_and_folded(tmp_path, architecture):
    c = 3.0
    t = numpy_of(saelens_folder(tmp_path, architecture, normalize_activations="expected_average_only_in"))
    with pytest.raises(ValueError, match="pass activation_scale"):
        load_sae(tmp_path)
    sae = load_sae(tmp_path, activation_scale=c)
    codes = SAELENS[architecture][1](X.numpy() * c, t)
    expected = (codes @ t["W_dec"] + t["b_dec"]) / c
    np.testing.assert_allclose(sae(X).x_hat.detach(), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["layer_norm", "constant_norm_rescale", "covariance_whitening"])
def test_saelens_normalisations_of_each_token_are_refused(tmp_path, kind):
    saelens_folder(tmp_path, "gated", normalize_activations=kind)
    with pytest.raises(ValueError, match=kind):
        load_sae(tmp_path)


def test_a_scale_that_is_not_needed_is_refused(tmp_path):
    saelens_folder(tmp_path, "gated")
    with pytest.raises(ValueError, match="as they are"):
        load_saelens(tmp_path, activation_scale=2.0)


def test_saelens_before_version_6(tmp_path):
    """Flat keys, no metadata, a factor on the latents; architecture and centring by their defaults."""
    t = saelens_folder(tmp_path, "standard", architecture=None, metadata=None, apply_b_dec_to_input=None)
    factor = torch.rand(F) + 0.5
    save_file({**t, "scaling_factor": factor}, tmp_path / "sae_weights.safetensors")
    cfg = json.loads((tmp_path / "cfg.json").read_text())
    cfg.update(
        hook_point="blocks.2.hook_mlp_out",
        model_name="gelu-1l",
        finetuning_scaling_factor=True,
        activation_fn_str="relu",
        normalize_activations=False,
    )
    (tmp_path / "cfg.json").write_text(json.dumps(cfg))
    sae = load_sae(tmp_path)
    assert (sae.metadata.site, sae.metadata.model_name) == ("mlp_out.2", "gelu-1l")
    t = numpy_of(t)
    codes = SAELENS["standard"][1](X.numpy(), t) * factor.numpy()
    np.testing.assert_allclose(sae(X).x_hat.detach(), codes @ t["W_dec"] + t["b_dec"], atol=1e-6)


def test_saelens_topk_in_its_old_spelling_is_named(tmp_path):
    saelens_folder(tmp_path, "standard", architecture=None, activation_fn_str="topk")
    with pytest.raises(ValueError, match=r"topk.*jumprelu"):
        load_sae(tmp_path)


# -- Shapes and names that don't fit


def test_transposed_weights_are_never_turned(tmp_path):
    t = saelens_folder(tmp_path, "standard")
    t["W_enc"] = t["W_enc"].T.contiguous()
    save_file(t, tmp_path / "sae_weights.safetensors")
    with pytest.raises(ValueError, match=r"W_enc has shape.*d_in = 16 and d_sae = 40"):
        load_sae(tmp_path)


def test_square_weights_without_sizes_are_ambiguous(tmp_path):
    tensors = draw(W_enc=(D, D), W_dec=(D, D), b_dec=D, b_enc=D)
    saelens_folder(tmp_path, "standard", d_in=None, d_sae=None)
    save_file(tensors, tmp_path / "sae_weights.safetensors")
    with pytest.raises(ValueError, match="16 x 16 and the config gives no d_in and d_sae"):
        load_sae(tmp_path)


def test_sizes_may_be_left_out_where_shapes_tell(tmp_path):
    saelens_folder(tmp_path, "gated", d_in=None, d_sae=None)
    assert (load_sae(tmp_path).cfg.d_in, load_sae(tmp_path).cfg.d_sae) == (D, F)
    (tmp_path / "dl").mkdir()
    dictionary_learning_folder(tmp_path / "dl", "GatedAutoEncoder", activation_dim=None, dict_size=None)
    assert (load_sae(tmp_path / "dl").cfg.d_in, load_sae(tmp_path / "dl").cfg.d_sae) == (D, F)


def test_missing_and_unknown_tensors_are_named(tmp_path):
    t = saelens_folder(tmp_path, "gated")
    t["b_enc"] = t.pop("r_mag")
    save_file(t, tmp_path / "sae_weights.safetensors")
    with pytest.raises(ValueError, match="missing: r_mag, unknown: b_enc"):
        load_sae(tmp_path)


# -- dictionary_learning in particular


def test_a_backup_is_brought_to_raw_activations(tmp_path):
    """Backups hold the trainer's whole state, with weights for activations divided by norm_factor."""
    t = dictionary_learning_folder(tmp_path, "GatedAutoEncoder")
    backup = {"step": 7, "ae": t, "optimizer": {}, "config": {}, "norm_factor": 2.5}
    torch.save(backup, tmp_path / "ae.pt")
    sae, t = load_sae(tmp_path), numpy_of(t)
    _, encode, decode = DICTIONARY_LEARNING["GatedAutoEncoder"]
    expected = decode(encode(X.numpy() / 2.5, t), t) * 2.5
    np.testing.assert_allclose(sae(X).x_hat.detach(), expected, atol=1e-5)


def test_an_unknown_class_names_the_known(tmp_path):
    dictionary_learning_folder(tmp_path, "AutoEncoder", dict_class="AutoEncoderTopK")
    with pytest.raises(ValueError, match=r"AutoEncoderTopK.*GatedAutoEncoder"):
        load_sae(tmp_path)


def test_pickled_code_is_not_run(tmp_path):
    dictionary_learning_folder(tmp_path, "AutoEncoder")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "ae.pt")
    with pytest.raises(ValueError, match="more than tensors"):
        load_sae(tmp_path)


def test_the_class_must_be_said(tmp_path):
    torch.save({}, tmp_path / "ae.pt")
    with pytest.raises(FileNotFoundError, match="which class"):
        load_sae(tmp_path)
