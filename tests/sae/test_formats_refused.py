"""Folders of other libraries that say too little, too much or something else: asked about, folded, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from interp.sae.architectures.gated import GatedSAE, GatedSAEConfig
from interp.sae.architectures.topk import TopKConfig, TopKSAE
from interp.sae.dictionary import Dictionary
from interp.sae.foreign import ForeignForm, ForeignValue
from interp.sae.formats import NAMES, format_of, save_as
from interp.sae.formats.shared import kinds
from interp.sae.loading import load_sae
from interp.sae.registry import _known, register_architecture
from tests.sae.foreign_files import READ, SAELENS, TRANSCODERS, D, F, K, arrays, case, write
from tests.sae.sparse_world import randomize, sparse_rows

X = sparse_rows(64, D, noise=0.3)


def test_an_untied_gated_sae_has_no_counterpart(tmp_path):
    sae = GatedSAE(GatedSAEConfig(D, F, tied=False))
    for name in NAMES:
        with pytest.raises(ValueError, match=r"tied = False.*that has"):
            save_as(sae, tmp_path, name)


def test_a_crosscoder_has_no_counterpart(tmp_path):
    from interp.sae.registry import architecture

    kind = architecture("crosscoder")
    cfg = kind.config_class(d_sae=F, **kind.shape((D, D)))
    for name in NAMES:
        with pytest.raises(ValueError, match=rf"this crosscoder SAE can't be written as {name} \(.*that has"):
            save_as(kind(cfg, seed=0), tmp_path, name)
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_names_the_known():
    with pytest.raises(ValueError, match=r"'sae_lens'.*did you mean 'saelens'"):
        format_of("sae_lens")


# -- Architectures bring their own forms


@pytest.fixture
def register():
    """Register for one test."""
    before = dict(_known)
    yield register_architecture
    _known.clear()
    _known.update(before)


class Quieter(TopKSAE):
    """Another function than its base's."""

    architecture = "quieter"

    def code(self, xc):
        return super().code(xc) / 2

    def sparse_code(self, xc):
        return Dictionary.sparse_code(self, xc)


def test_a_subclass_is_not_taken_for_its_base(tmp_path, register):
    register(Quieter)
    with pytest.raises(ValueError, match=r"quieter SAE can't be written as saelens"):
        save_as(Quieter(TopKConfig(D, F, k=K)), tmp_path, "saelens")
    write(tmp_path, case("saelens-topk"))
    assert load_sae(tmp_path).architecture == "topk"


def test_a_registered_architecture_is_read_and_written_by_what_it_says(tmp_path, register):
    class Named(Quieter):
        architecture = "named"
        foreign = {  # noqa: RUF012
            "saelens": (
                ForeignForm(
                    "named",
                    {"W_enc*": "W_enc", "W_dec": "W_dec", "b_enc": "b_enc", "b_dec": "b_dec"},
                    values=(ForeignValue("k", "how_many"),),
                ),
            )
        }

    register(Named)
    sae = randomize(Named(TopKConfig(D, F, k=K)))
    save_as(sae, tmp_path, "saelens")
    cfg = json.loads((tmp_path / "cfg.json").read_text())
    assert (cfg["architecture"], cfg["how_many"]) == ("named", K)
    loaded = load_sae(tmp_path)
    assert type(loaded) is Named
    assert torch.equal(loaded(X).x_hat, sae(X).x_hat)
    with pytest.raises(ValueError, match="this named SAE can't be written as sparsify"):
        save_as(sae, tmp_path, "sparsify")


def test_two_architectures_of_one_kind_are_an_error(register):
    class Again(Quieter):
        architecture = "again"
        foreign = TopKSAE.foreign

    register(Again)
    with pytest.raises(ValueError, match=r"both again and topk say they are sparsify's 'topk'"):
        kinds("sparsify")


# -- SAELens in particular


@pytest.mark.parametrize("one", [c for c in READ if c.format == "saelens" and c not in TRANSCODERS], ids=str)
@pytest.mark.parametrize("stored", [True, False])
def test_saelens_activation_scale_is_asked_for_and_folded(tmp_path, one, stored):
    c = 3.0
    t = arrays(write(tmp_path, one, normalize_activations="expected_average_only_in"))
    if stored:  # as its checkpoints do
        (tmp_path / "activation_scaler.json").write_text(json.dumps({"scaling_factor": c}))
        sae = load_sae(tmp_path)
    else:
        with pytest.raises(ValueError, match="pass activation_scale"):
            load_sae(tmp_path)
        sae = load_sae(tmp_path, activation_scale=c)
    expected = one.decode(one.encode(X.numpy() * c, t), t) / c
    np.testing.assert_allclose(sae(X).x_hat.detach(), expected, atol=1e-5)


def test_a_scaled_transcoder_is_refused(tmp_path):
    write(tmp_path, case("saelens-transcoder"), normalize_activations="expected_average_only_in")
    with pytest.raises(ValueError, match="doesn't say how its output was scaled"):
        load_sae(tmp_path, activation_scale=2.0)


@pytest.mark.parametrize("kind", ["layer_norm", "constant_norm_rescale", "covariance_whitening"])
def test_saelens_normalisations_of_each_token_are_refused(tmp_path, kind):
    write(tmp_path, case("saelens-gated"), normalize_activations=kind)
    with pytest.raises(ValueError, match=kind):
        load_sae(tmp_path)


@pytest.mark.parametrize("name", ["saelens-gated", "dictionary_learning-AutoEncoder", "sparsify-topk"])
def test_a_scale_that_is_not_needed_is_refused(tmp_path, name):
    write(tmp_path, case(name))
    with pytest.raises(ValueError, match="as they are"):
        load_sae(tmp_path, activation_scale=2.0)


def test_saelens_before_version_6(tmp_path):
    """Flat keys, no metadata, a factor on the latents; architecture and centring by their defaults."""
    one = case("saelens-standard")
    t = write(
        tmp_path,
        one,
        architecture=None,
        metadata=None,
        apply_b_dec_to_input=None,
        hook_point="blocks.2.hook_mlp_out",
        model_name="gelu-1l",
        finetuning_scaling_factor=True,
        activation_fn_str="relu",
        normalize_activations=False,
    )
    factor = torch.rand(F) + 0.5
    save_file({**t, "scaling_factor": factor}, tmp_path / "sae_weights.safetensors")
    sae = load_sae(tmp_path)
    assert (sae.metadata.site, sae.metadata.model_name) == ("mlp_out.2", "gelu-1l")
    codes = one.encode(X.numpy(), arrays(t)) * factor.numpy()
    np.testing.assert_allclose(sae(X).x_hat.detach(), one.decode(codes, arrays(t)), atol=1e-6)


@pytest.mark.parametrize("architecture", [None, "standard"])
def test_saelens_topk_in_its_old_spelling(tmp_path, architecture):
    one = case("saelens-topk")
    old = {"architecture": architecture, "activation_fn_str": "topk", "activation_fn_kwargs": {"k": K}}
    t = arrays(write(tmp_path, one, **old, k=None, rescale_acts_by_decoder_norm=None, metadata=None))
    sae = load_sae(tmp_path)
    assert sae.cfg == TopKConfig(D, F, k=K)
    np.testing.assert_allclose(sae(X).codes.detach(), one.encode(X.numpy(), t), atol=1e-6)


def test_saelens_thresholds_in_their_old_form(tmp_path):
    one = case("saelens-jumprelu")
    t = write(tmp_path, one)
    stored = {n: x for n, x in t.items() if n != "threshold"} | {"log_threshold": t["threshold"].log()}
    save_file(stored, tmp_path / "sae_weights.safetensors")
    torch.testing.assert_close(load_sae(tmp_path).threshold.data, t["threshold"])


@pytest.mark.parametrize("theta", [0.0, -1.0])
@pytest.mark.parametrize("name", ["saelens-batchtopk", "dictionary_learning-BatchTopKSAE"])
def test_a_threshold_that_was_never_measured_is_refused(tmp_path, name, theta):
    one = case(name)
    tensors = one.tensors()
    (key,) = set(tensors) & {"topk_threshold", "threshold"}
    write(tmp_path, one, {**tensors, key: torch.tensor(theta, dtype=tensors[key].dtype)})
    with pytest.raises(ValueError, match=r"threshold.*before it was measured"):
        load_sae(tmp_path)


# -- Shapes, names and settings that don't fit


def test_transposed_weights_are_never_turned(tmp_path):
    one = case("saelens-standard")
    t = one.tensors()
    write(tmp_path, one, {**t, "W_enc": t["W_enc"].T.contiguous()})
    with pytest.raises(ValueError, match=r"W_enc has shape.*d_in = 16 and d_sae = 40"):
        load_sae(tmp_path)


def test_square_weights_without_sizes_are_ambiguous(tmp_path):
    square = {
        "W_enc": torch.ones(D, D),
        "W_dec": torch.ones(D, D),
        "b_dec": torch.ones(D),
        "b_enc": torch.ones(D),
    }
    write(tmp_path, case("saelens-standard"), square, d_in=None, d_sae=None)
    with pytest.raises(ValueError, match="16 x 16 and the config gives no d_in and d_sae"):
        load_sae(tmp_path)


@pytest.mark.parametrize(
    "name", ["saelens-gated", "dictionary_learning-GatedAutoEncoder", "dictionary_learning-BatchTopKSAE"]
)
def test_sizes_may_be_left_out_where_shapes_tell(tmp_path, name):
    write(tmp_path, case(name), d_in=None, d_sae=None, activation_dim=None, dict_size=None)
    cfg = load_sae(tmp_path).cfg
    assert (cfg.d_in, cfg.d_sae) == (D, F)


def test_missing_and_unknown_tensors_are_named(tmp_path):
    one = case("saelens-gated")
    t = one.tensors()
    t["b_enc"] = t.pop("r_mag")
    write(tmp_path, one, t)
    with pytest.raises(ValueError, match="missing: r_mag, unknown: b_enc"):
        load_sae(tmp_path)


@pytest.mark.parametrize("one", SAELENS, ids=str)
def test_an_architecture_that_nobody_knows(tmp_path, one):
    write(tmp_path, one, architecture="temporal")
    with pytest.raises(ValueError, match=r"cfg.json: architecture = 'temporal' is not known; .*jumprelu"):
        load_sae(tmp_path)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("saelens-topk", {"k": None}, r"cfg.json has no 'k'"),
        ("saelens-topk", {"k": 0}, r"cfg.json: k = 0"),
        ("saelens-topk", {"k": 41}, r"cfg.json: k = 41"),
        ("saelens-topk", {"k": "5"}, r"cfg.json: k = '5'"),
        ("saelens-matryoshka_batchtopk", {"matryoshka_widths": [8, 20]}, r"cfg.json: widths"),
        ("saelens-matryoshka_batchtopk", {"matryoshka_widths": "all"}, r"cfg.json: widths"),
        ("dictionary_learning-AutoEncoderTopK", {"k": 6}, r"ae.pt: k = 5, but 6 in config.json"),
        ("dictionary_learning-MatryoshkaBatchTopKSAE", {"group_weights": 3}, r"config.json: group_weights"),
        ("sparsify-topk", {"activation": "groupmax"}, r"groupmax.*each of k groups.*topk"),
        ("sparsify-topk", {"k": None}, r"cfg.json has no 'k'"),
        ("sparsify-topk", {"num_latents": 0, "expansion_factor": 3}, r"shape.*d_sae = 48"),
    ],
)
def test_settings_that_do_not_fit_are_named(tmp_path, name, settings, message):
    write(tmp_path, case(name), **settings)
    with pytest.raises(ValueError, match=message):
        load_sae(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": torch.tensor([5, 6], dtype=torch.int32)}, "k"),
        ({"k": torch.tensor(5.0)}, "k can't be used"),
        ({"threshold": torch.tensor(torch.nan)}, "threshold can't be used"),
        ({"group_sizes": torch.tensor([8, 12])}, "widths"),
        ({"group_sizes": torch.tensor([8, 12, 20], dtype=torch.float32)}, "group_sizes can't be used"),
        ({"group_sizes": torch.tensor([[8, 12, 20]])}, "group_sizes can't be used"),
        ({"group_sizes": torch.tensor([-8, 28, 20])}, "widths"),
    ],
)
def test_numbers_in_tensors_are_not_believed(tmp_path, change, message):
    one = case("dictionary_learning-MatryoshkaBatchTopKSAE")
    write(tmp_path, one, {**one.tensors(), **change}, group_weights=None)
    with pytest.raises(ValueError, match=message):
        load_sae(tmp_path)


# -- dictionary_learning in particular


@pytest.mark.parametrize("name", ["GatedAutoEncoder", "BatchTopKSAE", "MatryoshkaBatchTopKSAE"])
def test_a_backup_is_brought_to_raw_activations(tmp_path, name):
    """Backups hold the trainer's whole state, with weights for activations divided by norm_factor."""
    one = case(f"dictionary_learning-{name}")
    t = write(tmp_path, one)
    backup = {"step": 7, "ae": t, "optimizer": {}, "config": {}, "norm_factor": 2.5}
    torch.save(backup, tmp_path / "ae.pt")
    expected = one.decode(one.encode(X.numpy() / 2.5, arrays(t)), arrays(t)) * 2.5
    np.testing.assert_allclose(load_sae(tmp_path)(X).x_hat.detach(), expected, atol=1e-5)


def test_an_unknown_class_names_the_known(tmp_path):
    write(tmp_path, case("dictionary_learning-AutoEncoder"), dict_class="CrossCoder")
    with pytest.raises(ValueError, match=r"CrossCoder.*GatedAutoEncoder"):
        load_sae(tmp_path)


def test_pickled_code_is_not_run(tmp_path):
    write(tmp_path, case("dictionary_learning-AutoEncoder"))
    torch.save(torch.nn.Linear(2, 2), tmp_path / "ae.pt")
    with pytest.raises(ValueError, match="more than tensors"):
        load_sae(tmp_path)


def test_the_class_must_be_said(tmp_path):
    torch.save({}, tmp_path / "ae.pt")
    with pytest.raises(FileNotFoundError, match="which class"):
        load_sae(tmp_path)


# -- Folders of several, and of none


def test_a_folder_of_several_hook_points_names_them(tmp_path):
    for name in ("layers.3", "layers.10.mlp"):
        write(tmp_path / name, case("sparsify-topk"))
    with pytest.raises(FileNotFoundError, match=r"several SAEs, choose one: layers.10.mlp, layers.3"):
        load_sae(tmp_path)
    assert load_sae(tmp_path, subfolder="layers.3").metadata.site == "resid_post.3"


def test_a_folder_without_a_dictionary_says_what_was_looked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cfg.json \(SAELens\).*ae.pt.*params.npz"):
        load_sae(tmp_path)
