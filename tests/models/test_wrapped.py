"""Models as people have them: compiled, adapted, quantised, put away."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from interp.activations.harvest import harvest
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from tests.models.tiny import tiny_ids, tiny_model

IDS = tiny_ids(2, 8)
SITES = ["resid_mid.0", "mlp_post.1", "resid_post.1"]


def two_layers() -> Any:
    return tiny_model("llama", num_hidden_layers=2)


def compiled_around() -> nn.Module:
    return torch.compile(two_layers(), backend="eager")  # type: ignore[return-value]


def compiled_in_place() -> nn.Module:
    module = two_layers()
    module.compile(backend="eager")
    return module


def compiled_blocks_replaced() -> nn.Module:
    module = two_layers()
    for i in range(2):
        module.model.layers[i] = torch.compile(module.model.layers[i], backend="eager")
    return module


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("make", [compiled_around, compiled_in_place, compiled_blocks_replaced])
def test_compiled_models_are_edited_like_others(make: Callable[[], nn.Module], fresh_compiler: None) -> None:
    """The fault it had: after one plain call compiled code took no notice of hooks, silently."""
    module, plain = make(), load_model(two_layers())
    with torch.no_grad():
        module(IDS)
    model = load_model(module)
    clean = model.logits(IDS)
    assert torch.equal(clean, plain.logits(IDS))
    vector = torch.randn(32, generator=torch.Generator().manual_seed(0))
    edits = {
        "resid_post.1": lambda act, positions: act + 3 * vector,
        "mlp_out.0": lambda act, positions: act * 0,
    }
    with model.edit(edits), plain.edit(edits):
        edited = model.logits(IDS)
        assert torch.equal(edited, plain.logits(IDS))
        assert torch.equal(model.generate(IDS, 6), plain.generate(IDS, 6))
        assert torch.equal(model.loss(IDS).values, plain.loss(IDS).values)
        ours, theirs = model.activations(IDS, SITES), plain.activations(IDS, SITES)
        assert all(torch.equal(ours[site], theirs[site]) for site in theirs)
    assert float((edited - clean).abs().max()) > 0.1
    assert model.fingerprint()["weights"] == plain.fingerprint()["weights"]
    with torch.no_grad():
        assert torch.equal(module(IDS).logits, clean)  # and it is still compiled, and whole


def test_a_data_parallel_model_is_the_model_inside() -> None:
    module = tiny_model("llama")
    assert load_model(nn.DataParallel(module)).module is module


class TestAdapters:
    """peft's low-rank adapters against peft's own forward pass."""

    @pytest.fixture
    def lora(self) -> Any:
        peft = pytest.importorskip("peft")

        def make(**settings: Any) -> Any:
            torch.manual_seed(1)
            config = peft.LoraConfig(r=2, lora_alpha=4, init_lora_weights=False, **settings)
            return peft.get_peft_model(tiny_model("llama"), config).eval()

        return make

    @pytest.mark.parametrize(
        "settings",
        [
            {"target_modules": ["q_proj", "down_proj"]},
            {"target_modules": ["o_proj", "lm_head"]},
            {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
            {"target_modules": ["q_proj", "embed_tokens"], "use_dora": False},
        ],
    )
    def test_named_sites_losses_and_directions(self, lora: Any, settings: dict[str, Any]) -> None:
        adapted = lora(**settings)
        model = load_model(adapted)
        with torch.no_grad():
            wanted = adapted(IDS, output_hidden_states=True)
        assert torch.equal(model.logits(IDS), wanted.logits)
        assert torch.equal(model.activations(IDS, "resid_post.1")["resid_post.1"], wanted.hidden_states[2])
        losses = nn.functional.cross_entropy(
            wanted.logits[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none"
        )
        torch.testing.assert_close(model.loss(IDS).values, losses)
        before = model.fingerprint()
        vectors = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
        directions = model.logit_directions(vectors)
        merged = load_model(adapted.merge_and_unload())
        torch.testing.assert_close(directions, merged.logit_directions(vectors), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(model.logits(IDS), merged.logits(IDS), rtol=1e-4, atol=1e-4)
        assert merged.fingerprint()["weights"] != before["weights"]

    def test_identity_knows_which_adapters_act_and_how_strongly(self, lora: Any) -> None:
        adapted = lora(target_modules=["q_proj"])
        model = load_model(adapted)
        first = model.fingerprint()
        with adapted.disable_adapter():
            off = model.fingerprint()
            assert torch.equal(model.logits(IDS), load_model(tiny_model("llama")).logits(IDS))
        assert first == model.fingerprint() == load_model(lora(target_modules=["q_proj"])).fingerprint()
        assert [key for key in first if first[key] != off[key]] == ["adapters"]
        adapted.base_model.model.model.layers[0].self_attn.q_proj.scaling["default"] = 3.0
        assert [key for key in first if first[key] != model.fingerprint()[key]] == ["adapters"]
        adapted.base_model.model.model.layers[2].self_attn.q_proj.lora_B["default"].weight.data[0, 0] += 1
        assert model.fingerprint()["weights"] != first["weights"]

    def test_an_adapters_folder(self, lora: Any, tmp_path: Path, tiny_tokenizer: Any) -> None:
        tiny_model("llama").save_pretrained(tmp_path / "base")
        tiny_tokenizer.save_pretrained(tmp_path / "base")
        adapted = lora(target_modules=["q_proj", "down_proj"])
        adapted.peft_config["default"].base_model_name_or_path = str(tmp_path / "base")
        adapted.save_pretrained(tmp_path / "adapter")
        with torch.no_grad():
            wanted = adapted(IDS).logits
        model = load_model(tmp_path / "adapter")
        assert torch.equal(model.logits(IDS), wanted)
        assert model.name == str(tmp_path / "adapter")
        assert model.tokenizer.bos_token_id == 256
        first = load_model(tmp_path / "adapter", n_layers=2)
        acts = first.activations(IDS, "resid_post.1")["resid_post.1"]
        assert torch.equal(acts, model.activations(IDS, "resid_post.1")["resid_post.1"])

    def test_what_can_not_be_shown_is_refused(self, lora: Any) -> None:
        import peft

        soft = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
        with pytest.raises(ValueError, match=r"'default' \(PROMPT_TUNING\) acts on the tokens"):
            load_model(peft.get_peft_model(tiny_model("llama"), soft))
        with pytest.raises(ValueError, match=r"peft adapters.*merge them first"):
            load_model(lora(target_modules=["q_proj"]), engine="transformer_lens")
        dora = load_model(lora(target_modules=["lm_head"], use_dora=True))
        with pytest.raises(ValueError, match=r"DoRA.*merge it"):
            dora.logit_directions(torch.zeros(1, 32))


def test_an_adapters_folder_without_peft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_model("llama").save_pretrained(tmp_path / "base")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    settings = {"peft_type": "LORA", "base_model_name_or_path": str(tmp_path / "base")}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    real = builtins.__import__

    def without_peft(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.split(".")[0] == "peft":
            raise ImportError("no peft")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_peft)
    for name in [name for name in sys.modules if name.split(".")[0] == "peft"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ValueError, match=r"adapter' is an adapter.*pip install peft"):
        load_model(adapter)
    (adapter / "adapter_config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"adapter_config.json names no base_model_name_or_path"):
        load_model(adapter)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_a_dynamically_quantised_model(tmp_path: Path) -> None:
    """The fault it had: packed weights are no tensors, and harvest raised."""

    def quantized(column: int | None = None) -> nn.Module:
        module = tiny_model("llama")
        if column is not None:
            module.model.layers[0].mlp.down_proj.weight.data[:, column] = 0
        return torch.ao.quantization.quantize_dynamic(module, {nn.Linear}, dtype=torch.qint8)

    module = quantized()
    model = load_model(module)
    with torch.no_grad():
        wanted = module(IDS, output_hidden_states=True)
    assert torch.equal(model.logits(IDS), wanted.logits)
    store = harvest(model, IDS, ["resid_post.1", "mlp_post.0"], tmp_path, dtype="float32", progress=False)
    stored = store.read("resid_post.1", slice(None))
    assert torch.equal(stored.view(2, 8, 32), wanted.hidden_states[2])
    assert load_model(quantized()).fingerprint() == model.fingerprint()
    assert load_model(quantized(3)).fingerprint()["weights"] != model.fingerprint()["weights"]
    vectors = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    norm = module.model.norm.weight.detach()  # type: ignore[union-attr]
    unembedding = module.lm_head.weight().dequantize()  # type: ignore[operator]
    torch.testing.assert_close(model.logit_directions(vectors), (vectors * norm) @ unembedding.T)


@pytest.mark.parametrize("kind", ["disk", "cpu"])
def test_weights_put_away_by_accelerate(kind: str, tmp_path: Path) -> None:
    """The fault they had: `logit_directions` met a tensor without numbers, the hash passed it over."""
    accelerate = pytest.importorskip("accelerate")

    def away(seed: int, folder: Path, change: float = 0.0) -> LanguageModel:
        module = tiny_model("llama", seed=seed)
        module.model.layers[2].mlp.down_proj.weight.data[1, 3] += change
        if kind == "disk":
            accelerate.disk_offload(module, str(folder), execution_device="cpu")
        else:
            accelerate.cpu_offload(module, execution_device="cpu")
        assert {p.device.type for p in module.parameters()} == {"meta"}
        return load_model(module)

    model = away(0, tmp_path / "a")
    here = load_model(tiny_model("llama"))
    assert model.fingerprint() == here.fingerprint()
    assert away(0, tmp_path / "b", change=1e-3).fingerprint()["weights"] != model.fingerprint()["weights"]
    vectors = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.logit_directions(vectors), here.logit_directions(vectors))
    assert torch.equal(model.loss(IDS).values, here.loss(IDS).values)


def test_weights_put_away_on_loading(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from transformers import AutoModelForCausalLM

    tiny_model("llama").save_pretrained(tmp_path / "model")
    here = {f"model.{part}": "cpu" for part in ("embed_tokens", "rotary_emb", "layers.0")}
    away = dict.fromkeys(("model.layers.1", "model.layers.2", "model.norm", "lm_head"), "disk")
    module = AutoModelForCausalLM.from_pretrained(
        tmp_path / "model", device_map={**here, **away}, offload_folder=tmp_path / "away"
    )
    model, whole = load_model(module), load_model(tmp_path / "model")
    assert model.fingerprint() == whole.fingerprint()
    vectors = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model.logit_directions(vectors), whole.logit_directions(vectors))
