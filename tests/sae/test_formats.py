"""Files of other libraries: what they mean (against NumPy), round trips to the bit, and what an export keeps."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from interp.sae.architectures.batchtopk import BatchTopKConfig, BatchTopKSAE
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.jumprelu import JumpReLUConfig, JumpReLUSAE
from interp.sae.architectures.matryoshka import MatryoshkaConfig, MatryoshkaSAE
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.architectures.tied import TiedSAE, TiedSAEConfig
from interp.sae.architectures.topk import TopKConfig, TopKSAE
from interp.sae.architectures.transcoder import BatchTopKTranscoder, BatchTopKTranscoderConfig
from interp.sae.formats import NAMES, save_as
from interp.sae.loading import load_sae
from interp.sae.metadata import SAEMetadata
from tests.sae.foreign_files import (
    CHECKPOINTS,
    READ,
    SIZES,
    TRANSCODERS,
    WRITTEN,
    D,
    F,
    K,
    arrays,
    case,
    linear,
    read_tensors,
    write,
)
from tests.sae.sparse_world import randomize, sparse_rows

X = sparse_rows(64, D, noise=0.3)


@pytest.mark.parametrize("one", READ, ids=str)
def test_folders_mean_what_they_say(tmp_path, one):
    t = arrays(write(tmp_path / "layers.5", one))
    sae = load_sae(tmp_path / "layers.5")
    codes = one.encode(X.numpy(), t)
    assert 0 < np.count_nonzero(codes) < codes.size  # or the formula would say nothing
    out = sae(X)
    np.testing.assert_allclose(out.codes.detach(), codes, atol=1e-6)
    np.testing.assert_allclose(out.x_hat.detach(), one.decode(codes, t) + linear(X.numpy(), t), atol=1e-6)
    assert sae.architecture == one.architecture
    if one.format in ("saelens", "dictionary_learning"):
        assert (sae.metadata.model_name, sae.metadata.site) == ("gpt2", "resid_post.5")
    if one.format == "sparsify" and one.architecture == "topk":
        assert sae.metadata.site == "resid_post.5"  # of the folder's name
    if one.format == "gemma_scope":
        assert sae.metadata.site is None  # nothing in it says


@pytest.mark.parametrize("one", [c for c in READ if c.format == "saelens" and c not in TRANSCODERS], ids=str)
def test_saelens_folders_that_do_not_centre_the_input(tmp_path, one):
    t = arrays(write(tmp_path, one, apply_b_dec_to_input=False))
    codes = one.encode(X.numpy() + t["b_dec"], t)  # the formula subtracts it again
    np.testing.assert_allclose(load_sae(tmp_path)(X).codes.detach(), codes, atol=1e-6)


@pytest.mark.parametrize("one", WRITTEN, ids=str)
def test_round_trips_are_bit_identical(tmp_path, one):
    tensors = write(tmp_path / "theirs", one)
    save_as(load_sae(tmp_path / "theirs"), tmp_path / "ours", one.format)
    again = read_tensors(tmp_path / "ours", one.format)
    assert set(again) == set(tensors)
    for name, tensor in tensors.items():
        assert again[name].dtype == tensor.dtype, name
        assert torch.equal(again[name], tensor), name
    for name in ("cfg.json", "config.json"):
        if (tmp_path / "theirs" / name).is_file():
            theirs, ours = (json.loads((tmp_path / side / name).read_text()) for side in ("theirs", "ours"))
            assert _within(theirs, ours), name


def _within(a: Any, b: Any) -> bool:
    """Whether all that a says, b says too."""
    if isinstance(a, dict):
        return isinstance(b, dict) and all(key in b and _within(value, b[key]) for key, value in a.items())
    return bool(a == b)


@pytest.mark.parametrize("one", CHECKPOINTS, ids=str)
def test_what_saelens_trains_by_batches_is_written_as_jumprelu_with_theta(tmp_path, one):
    t = arrays(write(tmp_path / "theirs", one))
    sae = load_sae(tmp_path / "theirs")
    save_as(sae, tmp_path / "ours", "saelens")
    cfg = json.loads((tmp_path / "ours" / "cfg.json").read_text())
    assert cfg["architecture"] == "jumprelu"
    threshold = read_tensors(tmp_path / "ours", "saelens")["threshold"]
    assert threshold.shape == (F,)
    scale = np.linalg.norm(t["W_dec"], axis=1) if one.settings["rescale_acts_by_decoder_norm"] else 1.0
    np.testing.assert_allclose(threshold.numpy() * scale, np.full(F, 0.37), rtol=1e-6)
    codes = one.encode(X.numpy(), t)
    np.testing.assert_allclose(load_sae(tmp_path / "ours")(X).codes.detach(), codes, atol=1e-6)


def with_theta(sae, theta=0.3):
    sae.set_theta_(theta)
    return sae


KINDS = {
    "gated": lambda: GatedSAE(GatedSAEConfig(D, F)),
    "gated without r": lambda: GatedSAE(GatedSAEConfig(D, F, use_r_mag=False)),
    "gated not centred": lambda: GatedSAE(GatedSAEConfig(D, F, False)),
    "standard": lambda: StandardSAE(StandardSAEConfig(D, F)),
    "standard norm-weighted": lambda: StandardSAE(StandardSAEConfig.norm_weighted(D, F)),
    "tied": lambda: TiedSAE(TiedSAEConfig(D, F)),
    "jumprelu": lambda: JumpReLUSAE(JumpReLUConfig(D, F)),
    "topk": lambda: TopKSAE(TopKConfig(D, F, k=4)),
    "topk not centred": lambda: TopKSAE(TopKConfig(D, F, False, k=4)),
    "topk by norm": lambda: TopKSAE(TopKConfig(D, F, k=4, rescale_by_decoder_norm=True)),
    "abstopk": lambda: TopKSAE(TopKConfig(D, F, k=4, absolute=True)),
    "batchtopk": lambda: with_theta(BatchTopKSAE(BatchTopKConfig(D, F, k=4))),
    "batchtopk of a fraction": lambda: with_theta(BatchTopKSAE(BatchTopKConfig(D, F, k=4.5))),
    "batchtopk by norm": lambda: with_theta(
        BatchTopKSAE(BatchTopKConfig(D, F, k=4, rescale_by_decoder_norm=True))
    ),
    "matryoshka": lambda: with_theta(MatryoshkaSAE(MatryoshkaConfig(D, F, k=4, widths=(10, 40)))),
    "prefix": lambda: with_theta(MatryoshkaSAE(MatryoshkaConfig(D, F, k=4, widths=(10, 40)))).prefix(10),
}
NO_WORDS = {
    "sparsify": {kind for kind in KINDS if "topk" not in kind}
    | {"topk by norm", "abstopk"}
    | {kind for kind in KINDS if "batchtopk" in kind},
    "dictionary_learning": {"topk by norm", "abstopk"},
    "gemma_scope": {kind for kind in KINDS if kind.startswith("topk")} | {"abstopk"},
    "saelens": set(),
}
# What a kind is written as, where it isn't what it is called.
WRITTEN_AS = {
    ("dictionary_learning", "batchtopk"): "batchtopk",
    ("dictionary_learning", "prefix"): "batchtopk",
    ("dictionary_learning", "matryoshka"): "matryoshka",
    ("dictionary_learning", "batchtopk by norm"): "jumprelu",  # their k is a whole number, and never by norm
    ("dictionary_learning", "batchtopk of a fraction"): "jumprelu",
    ("dictionary_learning", "gated not centred"): "gated",
    ("dictionary_learning", "tied"): "standard",
    ("saelens", "matryoshka"): "jumprelu",
    ("gemma_scope", "gated"): "jumprelu",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("format", NAMES)
@pytest.mark.parametrize("folded", [True, False])
def test_what_is_exported_reconstructs_raw_activations_alike(tmp_path, kind, format, folded):
    sae = randomize(KINDS[kind]())
    c = 1.0 if folded else 2.5
    sae.metadata = SAEMetadata(
        model_name="gpt2", site="resid_post.5", activation_scale=c, activation_scale_folded=folded
    )
    before = {name: tensor.clone() for name, tensor in sae.state_dict().items()}
    if kind in NO_WORDS[format]:
        with pytest.raises(ValueError, match=rf"this {sae.architecture} SAE can't be written as {format} \("):
            save_as(sae, tmp_path, format)
        assert not list(tmp_path.iterdir())
        return
    save_as(sae, tmp_path, format)
    loaded = load_sae(tmp_path)
    expected = sae(X * c).x_hat / c
    torch.testing.assert_close(loaded(X).x_hat, expected, rtol=1e-5, atol=1e-5)
    assert (loaded.metadata.model_name, loaded.metadata.site) == ("gpt2", "resid_post.5")
    assert loaded.architecture == WRITTEN_AS.get((format, kind), loaded.architecture)
    assert all(torch.equal(tensor, before[name]) for name, tensor in sae.state_dict().items())


def test_dictionary_learning_keeps_groups_weights_and_k(tmp_path):
    one = case("dictionary_learning-MatryoshkaBatchTopKSAE")
    write(tmp_path / "theirs", one, group_weights=[0.5, 0.25, 0.25])
    sae = load_sae(tmp_path / "theirs")
    assert sae.cfg.widths == (8, 20, 40)  # sums of the sizes
    assert sae.cfg.k == K
    # Their loss is the mean over three groups of what the weights have multiplied.
    assert sae.metadata.loss["prefix_weights"] == pytest.approx([1 / 6, 1 / 12, 1 / 12])
    save_as(sae, tmp_path / "ours", "dictionary_learning")
    trainer = json.loads((tmp_path / "ours" / "config.json").read_text())["trainer"]
    assert trainer["group_weights"] == pytest.approx([0.5, 0.25, 0.25])
    assert trainer["group_sizes"] == SIZES


def test_sparsify_keeps_the_multi_topk_of_its_loss(tmp_path):
    write(tmp_path / "layers.3.mlp", case("sparsify-topk"), multi_topk=True, expansion_factor=2.5)
    sae = load_sae(tmp_path / "layers.3.mlp")
    assert sae.metadata.loss == {"multi": True}
    assert sae.metadata.site == "mlp_out.3"
    save_as(sae, tmp_path / "ours", "sparsify")
    assert json.loads((tmp_path / "ours" / "cfg.json").read_text())["multi_topk"] is True


@pytest.mark.parametrize(
    ("folder", "site"),
    [
        ("layers.10", "resid_post.10"),
        ("h.2", "resid_post.2"),
        ("layers.10.mlp", "mlp_out.10"),
        ("layers.0.self_attn", "attn_out.0"),
        ("gpt_neox.layers.4", "resid_post.4"),
        ("layers.1.mlp.act", None),
        ("embed_tokens", None),
        ("layers.10/seed1", "resid_post.10"),
        ("layers.7.mlp/seed_2", "mlp_out.7"),
    ],
)
def test_sparsify_says_the_site_by_the_folders_name(tmp_path, folder, site):
    write(tmp_path / folder, case("sparsify-topk"))
    assert load_sae(tmp_path / folder).metadata.site == site


def test_sparsify_counts_latents_by_the_width_where_it_gives_no_number(tmp_path):
    one = case("sparsify-topk")
    shapes = {"encoder.weight": (2 * D, D), "encoder.bias": 2 * D, "W_dec": (2 * D, D), "b_dec": D}
    write(tmp_path, one, {n: torch.ones(s) for n, s in shapes.items()}, num_latents=0, expansion_factor=2)
    assert load_sae(tmp_path).cfg.d_sae == 2 * D


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
    save_as(sae, tmp_path, "saelens")
    metadata = json.loads((tmp_path / "cfg.json").read_text())["metadata"]
    assert metadata["hook_name"] == hook
    assert metadata["sae_lens_version"] >= "6"  # or SAELens would take it for an older folder
    assert load_sae(tmp_path).metadata.site == site


@pytest.mark.parametrize(
    "name", ["saelens-skip_transcoder", "gemma_scope-skip transcoder", "sparsify-transcoder skip"]
)
def test_a_transcoder_keeps_its_two_sites(tmp_path, name):
    one = case(name)
    write(tmp_path / "theirs", one)
    sae = load_sae(tmp_path / "theirs")
    sites = ("resid_mid.5", "mlp_out.5")
    sae.metadata = SAEMetadata(site=sites[0], sites=sites)
    save_as(sae, tmp_path / "ours", one.format)
    known = load_sae(tmp_path / "ours").metadata
    assert (known.site, known.sites) == (sites[0], sites)


def test_a_batchtopk_transcoder_is_written_as_jumprelu(tmp_path):
    sae = randomize(BatchTopKTranscoder(BatchTopKTranscoderConfig(D, F, k=4, d_out=12, skip=True)))
    sae.set_theta_(0.3)
    save_as(sae, tmp_path, "saelens")
    assert json.loads((tmp_path / "cfg.json").read_text())["architecture"] == "jumprelu_skip_transcoder"
    torch.testing.assert_close(load_sae(tmp_path)(X).x_hat, sae(X).x_hat, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("format", NAMES)
def test_the_command_line_writes_every_format(tmp_path, format):
    from interp.cli.sae import export

    sae = randomize(KINDS["topk" if format == "sparsify" else "gated"]())
    sae.save_pretrained(tmp_path / "sae")
    export(sae=tmp_path / "sae", out=tmp_path / "out", to=format)
    torch.testing.assert_close(load_sae(tmp_path / "out")(X).x_hat, sae(X).x_hat, rtol=1e-5, atol=1e-5)


# -- Gemma Scope in particular


def test_gemma_scopes_second_edition(tmp_path):
    """Lower-case keys, safetensors, and a config that names model and place."""
    from safetensors.torch import save_file

    one = case("gemma_scope-jump_relu")
    tensors = one.tensors()
    lower = {name.lower() if name.startswith("W_") else name: t for name, t in tensors.items()}
    save_file(lower, tmp_path / "params.safetensors")
    config = {
        "architecture": "jump_relu",
        "model_name": "google/gemma-3-1b-pt",
        "hf_hook_point_in": "model.layers.7.output",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    sae = load_sae(tmp_path)
    np.testing.assert_allclose(sae(X).codes.detach(), one.encode(X.numpy(), arrays(tensors)), atol=1e-6)
    assert (sae.metadata.model_name, sae.metadata.site) == ("google/gemma-3-1b-pt", "resid_post.7")
    config["hf_hook_point_in"] = "model.layers.7.self_attn.o_proj.input"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_sae(tmp_path).metadata.site == "model.layers.7.self_attn.o_proj:in"


def test_gemma_scopes_packed_and_column_ordered_arrays(tmp_path):
    one = case("gemma_scope-jump_relu")
    t = arrays(one.tensors())
    np.savez_compressed(tmp_path / "params.npz", **{**t, "W_enc": np.asfortranarray(t["W_enc"])})
    np.testing.assert_allclose(load_sae(tmp_path)(X).codes.detach(), one.encode(X.numpy(), t), atol=1e-6)


def test_gemma_scopes_dictionaries_of_scaled_embeddings(tmp_path):
    one = case("gemma_scope-jump_relu")
    t = arrays(write(tmp_path, one))
    sae = load_sae(tmp_path, activation_scale=4.0)
    expected = one.decode(one.encode(4 * X.numpy(), t), t) / 4
    np.testing.assert_allclose(sae(X).x_hat.detach(), expected, atol=1e-6)
