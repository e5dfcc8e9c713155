"""What all dictionaries share: the unit-norm constraint, exact rescaling, sparse encoding in tiles, the folder."""

from __future__ import annotations

import json
import logging

import pytest
import torch

from interp.core.files import write_sealed_json
from interp.sae import dictionary
from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.jumprelu import JumpReLUConfig, JumpReLUSAE
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.loading import load_sae
from interp.sae.metadata import SAEMetadata
from tests.sae.sparse_world import randomize, sparse_rows

D, F = 8, 37  # F is no multiple of anything

KINDS = {
    "gated": lambda: GatedSAE(GatedSAEConfig(D, F)),
    "gated untied": lambda: GatedSAE(GatedSAEConfig(D, F, tied=False)),
    "gated without r": lambda: GatedSAE(GatedSAEConfig(D, F, use_r_mag=False)),
    "gated not centred": lambda: GatedSAE(GatedSAEConfig(D, F, False)),
    "standard": lambda: StandardSAE(StandardSAEConfig(D, F)),
    "standard norm-weighted": lambda: StandardSAE(StandardSAEConfig.norm_weighted(D, F)),
    "jumprelu": lambda: JumpReLUSAE(JumpReLUConfig(D, F)),
    "jumprelu not centred": lambda: JumpReLUSAE(JumpReLUConfig(D, F, False)),
}


@pytest.fixture(params=KINDS)
def sae(request):
    return randomize(KINDS[request.param]())


def same(sae, other) -> bool:
    pairs = zip(sae.named_parameters(), other.named_parameters(), strict=True)
    return all(a == b and torch.equal(p, q) for (a, p), (b, q) in pairs)


@pytest.mark.parametrize("into", ["biases", "weights"])
@pytest.mark.parametrize("c", [0.037, 11.0])
def test_folding_the_activation_scale(sae, c, into):
    x = sparse_rows(200, D) / c
    scaled = sae(x * c)
    before = {"W_dec": sae.W_dec.norm(dim=1).detach().clone()}
    sae.fold_activation_scale_(c, into=into)
    raw = sae(x)
    torch.testing.assert_close(raw.x_hat, scaled.x_hat / c, rtol=1e-5, atol=1e-5 / c)
    if into == "biases":
        torch.testing.assert_close(raw.codes, scaled.codes / c, rtol=1e-4, atol=1e-5 / c)
        torch.testing.assert_close(sae.W_dec.norm(dim=1), before["W_dec"])
    else:
        torch.testing.assert_close(raw.codes, scaled.codes, rtol=1e-4, atol=1e-5)
    assert sae.metadata.activation_scale == c
    assert sae.metadata.activation_scale_folded


def test_folding_the_decoder_norms(sae):
    x = sparse_rows(200, D)
    before, norms = sae(x), sae.W_dec.norm(dim=1).detach().clone()
    sae.fold_decoder_norm_()
    after = sae(x)
    torch.testing.assert_close(after.x_hat, before.x_hat, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(after.codes, before.codes * norms, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(sae.W_dec.norm(dim=1), torch.ones(F))


def test_folding_norms_leaves_a_row_of_zeros(sae):
    with torch.no_grad():
        sae.W_dec[3] = 0
    sae.fold_decoder_norm_()
    assert torch.isfinite(sae.W_dec).all()
    assert not sae.W_dec[3].any()


def test_sparse_codes_are_the_dense_ones_whatever_the_tiles(sae, monkeypatch):
    x = sparse_rows(70, D)
    dense = sae.encode(x)
    for tile_numbers in (2**22, 70 * 64):
        monkeypatch.setattr(dictionary, "_TILE_NUMBERS", tile_numbers)
        codes = sae.encode_sparse(x)
        torch.testing.assert_close(codes.to_dense(), dense, rtol=1e-5, atol=1e-6)
        assert (codes.values > 0).all()
        in_order = codes.rows[:-1] * F + codes.indices[:-1] < codes.rows[1:] * F + codes.indices[1:]
        assert in_order.all()


def test_large_work_goes_to_the_kernels_and_agrees(sae, monkeypatch):
    x = sparse_rows(70, D)
    monkeypatch.setattr(dictionary, "_TILE_NUMBERS", 1)
    with torch.no_grad():
        codes = sae.encode_sparse(x)
    torch.testing.assert_close(codes.to_dense(), sae.encode(x), rtol=1e-5, atol=1e-6)


def test_encode_sparse_has_gradients():
    sae, x = randomize(KINDS["gated"]()), sparse_rows(50, D)
    sae.decode(sae.encode_sparse(x)).pow(2).sum().backward()
    listed = [p.grad.clone() for p in sae.parameters() if p.grad is not None]
    sae.zero_grad()
    sae(x).x_hat.pow(2).sum().backward()
    for a, b in zip(listed, [p.grad for p in sae.parameters() if p.grad is not None], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_decoder_rows_get_unit_norm_and_tiny_rows_stay(sae):
    with torch.no_grad():
        sae.W_dec[0] = 1e-20
    sae.normalize_decoder_()
    torch.testing.assert_close(sae.W_dec[1:].norm(dim=1), torch.ones(F - 1))
    assert (sae.W_dec[0] == 1e-20).all()


def test_projected_gradients_are_orthogonal_to_their_rows(sae):
    sae.normalize_decoder_()
    sae.W_dec.grad = torch.randn(F, D)
    before = sae.W_dec.grad.clone()
    sae.project_decoder_grad_()
    assert (sae.W_dec.grad * sae.W_dec).sum(1).abs().max() < 1e-6
    removed = before - sae.W_dec.grad
    torch.testing.assert_close(removed, (before * sae.W_dec).sum(1, keepdim=True) * sae.W_dec.detach())


def test_round_trip_is_bit_identical(sae, tmp_path):
    metadata = SAEMetadata(
        model_name="m", site="resid_post.1", activation_scale=3.5, skip_positions=(0, 1), extra={"a": [1]}
    )
    sae.save_pretrained(tmp_path / "sae", metadata)
    for loaded in (load_sae(tmp_path / "sae"), type(sae).from_pretrained(tmp_path / "sae")):
        assert type(loaded) is type(sae)
        assert loaded.cfg == sae.cfg
        assert loaded.metadata == metadata
        assert same(loaded, sae)
    assert load_sae(tmp_path).cfg == sae.cfg  # the run folder that holds it


def test_an_unfolded_scale_is_folded_at_load(sae, tmp_path):
    x, c = sparse_rows(100, D), 4.0
    expected = sae(x * c).x_hat / c
    sae.save_pretrained(tmp_path, SAEMetadata(activation_scale=c, activation_scale_folded=False))
    loaded = load_sae(tmp_path)
    torch.testing.assert_close(loaded(x).x_hat, expected, rtol=1e-5, atol=1e-5)
    assert loaded.metadata.activation_scale_folded


def test_large_finite_rows_are_taken_and_others_counted(sae):
    x = torch.full((19, D), 1e37)
    assert sae.encode(x).shape == (19, F)  # its sum is infinite, it isn't
    x[3, 1], x[7, 0] = torch.nan, torch.inf
    with pytest.raises(ValueError, match="NaN or infinite values in 2 of 19 rows"):
        sae.encode(x)


# -- folders that are not as they should be


@pytest.fixture
def folder(tmp_path):
    return KINDS["gated"]().save_pretrained(tmp_path)


def rewrite(folder, change) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    config.pop("seal", None)
    write_sealed_json(path, config)


def test_unknown_keys_warn(folder, caplog):
    rewrite(folder, lambda c: (c.update(colour=1), c["config"].update(d_inn=3), c["metadata"].update(x=1)))
    with caplog.at_level(logging.WARNING):
        load_sae(folder)
    assert [word for word in ("'colour'", "'d_inn'", "'x'") if word not in caplog.text] == []
    assert "did you mean 'd_in'" in caplog.text


@pytest.mark.parametrize("key", ["schema_version", "architecture", "config"])
def test_a_missing_key_is_named(folder, key):
    rewrite(folder, lambda c: c.pop(key))
    with pytest.raises(ValueError, match=key):
        load_sae(folder)


def test_a_missing_size_is_named(folder):
    rewrite(folder, lambda c: c["config"].pop("d_in"))
    with pytest.raises(ValueError, match="d_in"):
        load_sae(folder)


def test_a_newer_schema_is_refused(folder):
    rewrite(folder, lambda c: c.update(schema_version=3))
    with pytest.raises(ValueError, match="schema_version 3"):
        load_sae(folder)


def test_an_unknown_architecture_names_the_known(folder):
    rewrite(folder, lambda c: c.update(architecture="gatd"))
    with pytest.raises(ValueError, match="did you mean 'gated'"):
        load_sae(folder)


def test_the_wrong_class_is_refused(folder):
    with pytest.raises(ValueError, match="load_sae"):
        StandardSAE.from_pretrained(folder)


def test_shapes_that_contradict_the_config(folder):
    rewrite(folder, lambda c: c["config"].update(d_in=F, d_sae=D))
    with pytest.raises(ValueError, match=r"shape.*d_in = 37 and d_sae = 8"):
        load_sae(folder)


def test_a_tensor_too_few_or_too_many(folder):
    rewrite(folder, lambda c: c["config"].update(tied=False))
    with pytest.raises(ValueError, match="'W_mag' is missing"):
        load_sae(folder)
    rewrite(folder, lambda c: c["config"].update(tied=True, use_r_mag=False))
    with pytest.raises(ValueError, match="'r_mag' doesn't belong"):
        load_sae(folder)


def test_half_copied_and_broken_files(folder):
    weights = folder / "weights.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"weights\.safetensors is broken"):
        load_sae(folder)
    weights.unlink()
    with pytest.raises(FileNotFoundError, match=r"weights\.safetensors is missing"):
        load_sae(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not valid JSON"):
        load_sae(folder)


def test_folders_without_an_sae_say_what_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cfg\.json"):
        load_sae(tmp_path)
    with pytest.raises(FileNotFoundError, match="not a folder"):
        load_sae(tmp_path / "nowhere")
    KINDS["gated"]().save_pretrained(tmp_path / "a" / "sae")
    KINDS["standard"]().save_pretrained(tmp_path / "b" / "sae")
    with pytest.raises(FileNotFoundError, match="choose one: a, b"):
        load_sae(tmp_path)
