"""What an SAE's files say is held against what they are: wrong numbers, sizes and checksums, in every format."""

from __future__ import annotations

import json
import resource

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from interp.core.files import read_json, sha256_file, write_sealed_json
from interp.core.tensor_files import read_tensors
from interp.core.torch_files import read_torch
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.topk import TopKConfig, TopKSAE
from interp.sae.evaluate import evaluate
from interp.sae.formats import NAMES, save_as
from interp.sae.loading import load_sae
from interp.sae.metadata import SAEMetadata
from tests.sae import tiny_world as world
from tests.sae.sparse_world import randomize

D, F = 8, 12
FILES = {
    "ours": ("config.json", "weights.safetensors", "W_dec"),
    "saelens": ("cfg.json", "sae_weights.safetensors", "W_dec"),
    "dictionary_learning": ("config.json", "ae.pt", "decoder.weight"),
    "sparsify": ("cfg.json", "sae.safetensors", "W_dec"),
    "gemma_scope": ("config.json", "params.npz", "W_dec"),
}


def dictionary(kind, d=D):
    """A small one of an architecture that the format has."""
    if kind == "sparsify":
        return randomize(TopKSAE(TopKConfig(d, F, k=3)))
    return randomize(GatedSAE(GatedSAEConfig(d, F)))


@pytest.fixture(params=FILES)
def kind(request):
    return request.param


@pytest.fixture
def folder(tmp_path, kind):
    sae = dictionary(kind)
    if kind == "ours":
        return sae.save_pretrained(tmp_path)
    return save_as(sae, tmp_path, kind)


def rewrite_weights(folder, kind, change) -> None:
    """Other weights, and no checksum that would tell."""
    _, weights, name = FILES[kind]
    path = folder / weights
    if path.suffix == ".npz":
        with np.load(path) as stored:
            arrays = {key: stored[key] for key in stored.files}
        arrays[name] = change(torch.from_numpy(arrays[name])).numpy()
        np.savez(path, **arrays)
        return accept(folder, kind)
    tensors = read_torch(path) if path.suffix == ".pt" else read_tensors(path)
    tensors[name] = change(tensors[name])
    if path.suffix == ".pt":
        torch.save(tensors, path)
    else:
        save_file(tensors, path)
    accept(folder, kind)


def rewrite_config(folder, kind, change) -> None:
    path = folder / FILES[kind][0]
    config = read_json(path)
    change(config)
    path.write_text(json.dumps(config))
    accept(folder, kind)


def accept(folder, kind) -> None:
    if kind == "ours":
        path = folder / "config.json"
        config = {k: v for k, v in read_json(path).items() if k != "seal"}
        write_sealed_json(path, {**config, "sha256": sha256_file(folder / "weights.safetensors")})
    else:
        (folder / "sha256.json").unlink(missing_ok=True)


def with_one(value):
    def change(tensor):
        tensor = tensor.clone()
        tensor[1, 2] = value
        return tensor

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_one(torch.nan), "1 NaN or infinite"),
        (with_one(-torch.inf), "1 NaN or infinite"),
        (lambda t: (10 * t).to(torch.int8), "int8"),
        (lambda t: t.view(torch.int32), "int32"),
        (lambda t: t > 0, "bool"),
        (lambda t: t[:1], "shape"),
        (lambda t: t[0], "shape"),
    ],
)
def test_weights_that_are_no_finite_numbers_are_refused(folder, kind, change, message):
    rewrite_weights(folder, kind, change)
    with pytest.raises(ValueError, match=rf"{FILES[kind][1]}: .*{message}"):
        load_sae(folder)


def test_complex_weights_are_refused(folder, kind):
    rewrite_weights(folder, kind, lambda t: t.to(torch.complex64))
    with pytest.raises(ValueError, match=FILES[kind][1]):
        load_sae(folder)


def test_other_numbers_than_were_written_are_refused(folder, kind):
    path = folder / FILES[kind][1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{FILES[kind][1]} (is broken|was damaged)"):
        load_sae(folder)


def test_other_settings_than_were_written_are_refused(folder, kind):
    path = folder / FILES[kind][0]
    path.write_text(path.read_text().replace('"apply_b_dec_to_input": true', '"apply_b_dec_to_input": false'))
    text = path.read_text()
    path.write_text(text.replace(str(D), str(D + 1), 1) if str(D) in text else text + " ")
    with pytest.raises(ValueError, match=rf"{path.name}.* (changed|shape)"):
        load_sae(folder)


SIZES = {
    "ours": lambda c, n: c["config"].update(d_sae=n),
    "saelens": lambda c, n: c.update(d_sae=n),
    "dictionary_learning": lambda c, n: c["trainer"].update(dict_size=n),
    "sparsify": lambda c, n: c.update(num_latents=n),
}


@pytest.mark.parametrize("kind", SIZES, indirect=True)  # Gemma Scope's files have no sizes but the arrays'
@pytest.mark.parametrize("size", [20_000_000, 10**12, 10**30, 0, -1, 12.0, "12", True, None])
def test_sizes_cost_no_memory_before_they_are_held_against_the_file(folder, kind, size):
    rewrite_config(folder, kind, lambda config: SIZES[kind](config, size))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if size is None and kind in ("saelens", "dictionary_learning"):
        assert load_sae(folder).cfg.d_sae == F  # the shapes leave no doubt
        return
    with pytest.raises(ValueError, match=str(folder)):
        load_sae(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB; it was 1.4 GB


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[]", "{}", "null", '{"a": 1, "a": 2}', '{"d_in": ' + "9" * 5000 + "}", "\xff"]
)
def test_json_of_every_kind_is_named(folder, kind, text):
    if (kind, text) == ("gemma_scope", "{}"):
        return  # it says nothing, and needs to say nothing
    path = folder / FILES[kind][0]
    path.write_text(text, encoding="latin-1")
    (folder / "sha256.json").unlink(missing_ok=True)
    with pytest.raises(ValueError, match=str(folder)):
        load_sae(folder)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("ours", "config"),
        ("ours", "metadata"),
        ("saelens", "metadata"),
        ("dictionary_learning", "trainer"),
        ("dictionary_learning", "metadata"),
        ("sparsify", "metadata"),
        ("gemma_scope", "metadata"),
    ],
    indirect=["kind"],
)
@pytest.mark.parametrize("value", [3, "text", [1], None])
def test_mappings_are_mappings(folder, kind, place, value):
    rewrite_config(folder, kind, lambda config: config.update({place: value}))
    with pytest.raises(ValueError, match=FILES[kind][0]):
        load_sae(folder)


@pytest.mark.parametrize("value", [0, 0.0, -1.0, [], "2.5", True, float("nan"), float("inf"), torch.ones(2)])
def test_a_norm_factor_is_a_positive_number(tmp_path, value):
    save_as(dictionary("dictionary_learning"), tmp_path, "dictionary_learning")
    (tmp_path / "sha256.json").unlink()
    tensors = read_torch(tmp_path / "ae.pt")
    torch.save({"step": 7, "ae": tensors, "norm_factor": value}, tmp_path / "ae.pt")
    with pytest.raises(ValueError, match=r"ae\.pt: norm_factor = .* is not a positive number"):
        load_sae(tmp_path)
    torch.save({"step": 7, "ae": tensors, "norm_factor": None}, tmp_path / "ae.pt")
    assert load_sae(tmp_path).metadata.activation_scale == 1.0


def test_a_folder_of_an_earlier_release_is_read(tmp_path):
    """Schema 1 had no checksums."""
    sae = randomize(GatedSAE(GatedSAEConfig(D, F))).save_pretrained(tmp_path)
    config = {k: v for k, v in read_json(sae / "config.json").items() if k not in ("seal", "sha256")}
    (sae / "config.json").write_text(json.dumps({**config, "schema_version": 1}))
    assert load_sae(sae).cfg == GatedSAEConfig(D, F)


# -- What an export must keep


@pytest.mark.parametrize("format", NAMES)
@pytest.mark.parametrize("excluded", [True, False, None])
def test_an_export_keeps_which_rows_the_sae_is_for(tmp_path, format, excluded):
    known = SAEMetadata(
        model_name="tiny",
        model_fingerprint={"weights": "abc"},
        site="resid_post.1",
        skip_positions=(0, 2),
        special_tokens_excluded=excluded,
        max_norm=41.7,
        context_size=24,
    )
    sae = dictionary(format)
    sae.metadata = known
    save_as(sae, tmp_path, format)
    found = load_sae(tmp_path).metadata
    for name in ("model_name", "model_fingerprint", "site", "skip_positions", "max_norm", "context_size"):
        assert getattr(found, name) == getattr(known, name)
    assert found.special_tokens_excluded == excluded
    save_as(load_sae(tmp_path), tmp_path, format)  # once more
    assert load_sae(tmp_path).metadata.skip_positions == (0, 2)


@pytest.mark.parametrize("format", [name for name in NAMES if name != "sparsify"])  # it has no standard SAE
def test_an_export_evaluates_as_the_sae_does(tmp_path, format):
    lm, contexts = world.model(), world.contexts(20)
    batch = lm.tokenize(world.TEXTS[:20])
    act = lm.activations(batch, world.SITE)[world.SITE][batch.attention_mask.bool()]
    sae = world.random_sae()
    sae.metadata = world.metadata(max_norm=float(act.norm(dim=1).quantile(0.8)), context_size=24)
    before = evaluate(sae, lm, contexts, progress=False)
    save_as(sae, tmp_path, format)
    after = evaluate(load_sae(tmp_path), lm, contexts, progress=False)
    assert after.n_tokens == before.n_tokens < contexts.n_tokens - len(contexts)
    for name in ("fvu", "l0", "ce_spliced", "loss_recovered"):
        assert getattr(after, name) == pytest.approx(getattr(before, name), rel=1e-5)
    assert after.positions == before.positions == "trained"
