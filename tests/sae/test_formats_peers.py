"""The libraries themselves read what we write, and we what they write; left out where they are not installed.

pip install sae-lens dictionary-learning eai-sparsify
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from interp.sae.formats import save_as
from interp.sae.loading import load_sae
from tests.sae.foreign_files import TRANSCODERS, Case, D, F, K, write
from tests.sae.sparse_world import randomize, sparse_rows
from tests.sae.test_formats import KINDS, NO_WORDS

X = sparse_rows(64, D, noise=0.3)
os.environ.setdefault("SPARSIFY_DISABLE_TRITON", "1")  # its Triton decoder needs a GPU


def words(format: str) -> list[str]:
    return [kind for kind in KINDS if kind not in NO_WORDS[format]]


def peer(name: str):
    return pytest.importorskip(name, exc_type=ImportError)


@pytest.mark.parametrize("kind", words("saelens"))
def test_saelens_reads_ours(tmp_path: Path, kind: str) -> None:
    library = peer("sae_lens")
    sae = randomize(KINDS[kind]())
    save_as(sae, tmp_path, "saelens")
    theirs = library.SAE.load_from_disk(tmp_path)
    torch.testing.assert_close(theirs(X), sae(X).x_hat, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["batchtopk", "matryoshka_batchtopk"])
@pytest.mark.parametrize("by_norm", [False, True])
def test_we_read_saelens_training_checkpoints(tmp_path: Path, kind: str, by_norm: bool) -> None:
    library = peer("sae_lens")
    more = {"matryoshka_widths": [10, F]} if kind != "batchtopk" else {}
    cfg_class = {
        "batchtopk": library.BatchTopKTrainingSAEConfig,
        "matryoshka_batchtopk": library.MatryoshkaBatchTopKTrainingSAEConfig,
    }[kind]
    cfg = cfg_class(d_in=D, d_sae=F, k=K, rescale_acts_by_decoder_norm=by_norm, **more)
    theirs = library.TrainingSAE.get_sae_class_for_architecture(kind)(cfg)
    with torch.no_grad():
        randomize(theirs)
        theirs.topk_threshold.fill_(0.3)
    theirs.save_model(tmp_path / "checkpoint")
    theirs.save_inference_model(tmp_path / "finished")
    expected = library.SAE.load_from_disk(tmp_path / "finished")(X)
    for name in ("checkpoint", "finished"):
        torch.testing.assert_close(load_sae(tmp_path / name)(X).x_hat, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("one", [c for c in TRANSCODERS if c.format == "saelens"], ids=str)
def test_saelens_reads_our_transcoders(tmp_path: Path, one: Case) -> None:
    library = peer("sae_lens")
    write(tmp_path / "theirs", one)
    sae = load_sae(tmp_path / "theirs")
    save_as(sae, tmp_path / "ours", "saelens")
    theirs = library.SAE.load_from_disk(tmp_path / "ours")
    torch.testing.assert_close(theirs(X), sae(X).x_hat, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("one", [c for c in TRANSCODERS if c.format == "sparsify"], ids=str)
def test_sparsify_reads_our_transcoders(tmp_path: Path, one: Case) -> None:
    peer("sparsify")
    from sparsify.sparse_coder import SparseCoder

    write(tmp_path / "theirs", one)
    sae = load_sae(tmp_path / "theirs")
    save_as(sae, tmp_path / "ours", "sparsify")
    theirs = SparseCoder.load_from_disk(tmp_path / "ours")
    torch.testing.assert_close(theirs(X, y=X).sae_out, sae(X).x_hat, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", words("dictionary_learning"))
def test_dictionary_learning_reads_ours(tmp_path: Path, kind: str) -> None:
    peer("dictionary_learning")
    from dictionary_learning.utils import load_dictionary

    sae = randomize(KINDS[kind]())
    save_as(sae, tmp_path, "dictionary_learning")
    theirs, _ = load_dictionary(str(tmp_path), "cpu")
    torch.testing.assert_close(theirs(X), sae(X).x_hat, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", words("sparsify"))
def test_sparsify_reads_ours_and_we_its(tmp_path: Path, kind: str) -> None:
    peer("sparsify")
    from sparsify.sparse_coder import SparseCoder

    sae = randomize(KINDS[kind]())
    save_as(sae, tmp_path / "layers.3", "sparsify")
    theirs = SparseCoder.load_from_disk(tmp_path / "layers.3")
    torch.testing.assert_close(theirs(X).sae_out, sae(X).x_hat, rtol=1e-5, atol=1e-5)
    theirs.save_to_disk(tmp_path / "layers.4.mlp")
    again = load_sae(tmp_path / "layers.4.mlp")
    assert again.metadata.site == "mlp_out.4"
    assert torch.equal(again(X).x_hat, load_sae(tmp_path / "layers.3")(X).x_hat)
