from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from interp.models.language_model import LanguageModel
from interp.steering.apply import steer
from interp.steering.gguf import load_gguf, save_gguf
from interp.steering.vector import SteeringVector
from tests.models.tiny import tiny_ids


def vector() -> SteeringVector:
    generator = torch.Generator().manual_seed(0)
    return SteeringVector({n: torch.randn(32, generator=generator) for n in (1, 2)}, {"family": "llama"})


def test_what_llama_cpp_looks_for(tmp_path: Path) -> None:
    """Its loader wants one-dimensional float32 tensors named direction.<k> with k >= 1; repeng reads the two keys."""
    from gguf import GGMLQuantizationType, GGUFReader

    reader = GGUFReader(save_gguf(vector().to(dtype=torch.bfloat16), tmp_path / "v.gguf"))
    keys = {k: reader.get_field(k).contents() for k in ("general.architecture", "controlvector.model_hint")}  # type: ignore[union-attr]
    assert keys == {"general.architecture": "controlvector", "controlvector.model_hint": "llama"}
    assert reader.get_field("controlvector.layer_count").contents() == 2  # type: ignore[union-attr]
    assert [t.name for t in reader.tensors] == ["direction.1", "direction.2"]
    for tensor, direction in zip(reader.tensors, vector().directions.values(), strict=True):
        assert tensor.tensor_type == GGMLQuantizationType.F32
        assert tensor.shape.tolist() == [32]
        assert np.array_equal(tensor.data, direction.bfloat16().float().numpy())


def test_round_trip(tmp_path: Path) -> None:
    loaded = load_gguf(save_gguf(vector(), tmp_path / "v.gguf"))
    assert loaded.layers == (1, 2)
    assert (loaded.site, loaded.meta["family"]) == ("resid_post", "llama")
    assert all(torch.equal(loaded[n], vector()[n]) for n in (1, 2))


def test_direction_k_is_the_output_of_block_k(tiny_llama: LanguageModel, tmp_path: Path) -> None:
    """llama.cpp adds direction.il at the end of its loop over blocks il = 0, 1, ...; so does our resid_post.il."""
    ids = tiny_ids(1, 6)
    loaded = load_gguf(save_gguf(vector(), tmp_path / "v.gguf"))

    def add(module, args, output):  # type: ignore[no-untyped-def]
        return output + loaded[2]

    handle = tiny_llama.module.model.layers[2].register_forward_hook(add)
    expected = tiny_llama.logits(ids)
    handle.remove()
    with steer(tiny_llama, loaded, layers=2):
        assert torch.allclose(tiny_llama.logits(ids), expected, atol=1e-5)


def test_layer_zero_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with_zero = SteeringVector({0: torch.ones(4), 3: torch.ones(4)})
    with caplog.at_level(logging.WARNING):
        path = save_gguf(with_zero, tmp_path / "v.gguf", model_hint="gpt2")
    assert "layer 0 is left out" in caplog.text
    assert load_gguf(path).layers == (3,)
    with pytest.raises(ValueError, match="layer 0 only"):
        save_gguf(with_zero.only(0), tmp_path / "w.gguf", model_hint="gpt2")
    assert [p.name for p in tmp_path.iterdir()] == ["v.gguf"]


def test_refusals(tmp_path: Path) -> None:
    from gguf import GGUFWriter

    with pytest.raises(ValueError, match="output of blocks, this vector to mlp_out"):
        save_gguf(SteeringVector({1: torch.ones(4)}, {"site": "mlp_out"}), tmp_path / "v.gguf")
    with pytest.raises(ValueError, match="model_hint"):
        save_gguf(SteeringVector({1: torch.ones(4)}), tmp_path / "v.gguf")
    with pytest.raises(FileNotFoundError, match=r"nothing.gguf"):
        load_gguf(tmp_path / "nothing.gguf")
    (tmp_path / "text.gguf").write_text("not a model" * 10)
    with pytest.raises(ValueError, match=r"text.gguf is not a readable GGUF file"):
        load_gguf(tmp_path / "text.gguf")
    whole = save_gguf(vector(), tmp_path / "v.gguf").read_bytes()
    (tmp_path / "half.gguf").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"half.gguf is not a readable GGUF file"):
        load_gguf(tmp_path / "half.gguf")
    for name, arch, message in (
        ("m", "llama", "'llama' file, not a 'controlvector'"),
        ("e", "controlvector", "no tensor"),
    ):
        writer = GGUFWriter(tmp_path / name, arch)
        writer.add_string("general.name", "x")
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(ValueError, match=message):
            load_gguf(tmp_path / name)
