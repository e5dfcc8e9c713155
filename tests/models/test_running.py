"""How a pass runs: early stop, what is put back, gradients, and errors about places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.models.sites import Site
from tests.models.tiny import FAMILIES, tiny_ids, tiny_model

IDS = tiny_ids(2, 8)


def hooks_of(module: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


def state_of(model: LanguageModel) -> dict[str, Any]:
    module = model.module
    return {
        "hooks": hooks_of(module),
        "training": [m.training for m in module.modules()],
        "grad": [p.requires_grad for p in module.parameters()],
        "attention": module.config._attn_implementation,
        "cache": module.config.use_cache,
        "padding": model.tokenizer and model.tokenizer.padding_side,
        "weights": {k: v.clone() for k, v in module.state_dict().items()},
    }


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    weights, others = before.pop("weights"), after.pop("weights")
    return before == after and all(torch.equal(weights[k], others[k]) for k in weights)


@pytest.mark.parametrize("family", FAMILIES)
def test_early_stop_is_bitwise_the_full_pass(family: str) -> None:
    model = load_model(tiny_model(family))
    for site in model.sites():
        short = model.activations(IDS, site)[site]
        assert torch.equal(short, model.activations(IDS, site, stop_early=False)[site]), site


@pytest.mark.parametrize("engine", ["huggingface", "transformer_lens"])
@pytest.mark.parametrize(
    ("sites", "blocks", "head"), [("resid_post.1", 2, 0), ("resid_pre.1", 2, 0), ("embed", 0, 0)]
)
def test_no_block_runs_behind_the_deepest_site(engine: str, sites: str, blocks: int, head: int) -> None:
    model = load_model(tiny_model("llama"), engine=engine)
    ran: list[nn.Module] = []
    for block in model.module.model.layers:
        block.register_forward_pre_hook(lambda m, _: ran.append(m))
    model.module.lm_head.register_forward_hook(lambda m, i, o: ran.append(m))
    model.activations(IDS, [sites, "embed"])
    assert len(ran) == blocks + head


def test_even_the_deepest_pass_skips_the_vocabulary(tiny_llama: LanguageModel) -> None:
    ran = []
    handle = tiny_llama.module.lm_head.register_forward_hook(lambda m, i, o: ran.append(m))
    tiny_llama.activations(IDS, "final_norm", stop_early=False)
    handle.remove()
    assert ran == []


@pytest.mark.parametrize(
    "how", ["activations", "logits", "loss", "generate", "edit", "exception", "interrupt"]
)
def test_everything_is_put_back(how: str, tiny_tokenizer: Any) -> None:
    module = tiny_model("llama", attention_dropout=0.5)
    module.train()
    module.model.layers[1].eval()
    for parameter in module.model.layers[0].parameters():
        parameter.requires_grad_(False)
    model = load_model(module, tokenizer=tiny_tokenizer)
    before = state_of(model)

    def raising(error: type[BaseException]) -> Any:
        def edit(act: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            raise error("stop")

        return edit

    if how == "activations":
        first = model.activations(IDS, "resid_post.2")["resid_post.2"]
        assert torch.equal(first, model.activations(IDS, "resid_post.2")["resid_post.2"])  # no dropout
    elif how == "logits":
        model.logits(IDS)
    elif how == "loss":
        model.loss(["then", "the other then"])
    elif how == "generate":
        model.generate(IDS, 2)
    elif how == "edit":
        with model.edit(
            {"resid_mid.0": lambda act, positions: act * 2, "model.norm:in": lambda act, p: None}
        ):
            model.logits(IDS)
    else:
        error = RuntimeError if how == "exception" else KeyboardInterrupt
        with pytest.raises(error), model.edit({"resid_post.1": raising(error)}):
            model.activations(IDS, ["attn_out.2"])
    assert same(before, state_of(model))


def test_the_bridge_leaves_the_callers_model_and_tokenizer_alone(tiny_tokenizer: Any) -> None:
    module = tiny_model("llama")
    blocks, modules = list(module.model.layers), list(module.modules())
    before = state_of(load_model(module, tokenizer=tiny_tokenizer))
    bridged = load_model(module, engine="transformer_lens", tokenizer=tiny_tokenizer)
    bridged.logits(IDS)
    assert list(module.modules()) == modules
    assert all(a is b for a, b in zip(blocks, module.model.layers, strict=True))
    assert same(before, state_of(load_model(module, tokenizer=tiny_tokenizer)))


def test_a_bridge_somebody_booted_is_used_where_it_stands(tiny_tokenizer: Any, tmp_path: Path) -> None:
    from transformer_lens.model_bridge import TransformerBridge
    from transformers import AutoTokenizer

    tiny_tokenizer.save_pretrained(tmp_path)
    bridge = TransformerBridge.boot_transformers(
        "theirs", hf_model=tiny_model("llama"), tokenizer=AutoTokenizer.from_pretrained(tmp_path)
    )
    model = load_model(bridge)
    assert (model.engine, model.name, model.weight_processing) == ("transformer_lens", "theirs", "none")
    _, cache = bridge.run_with_cache(IDS)
    acts = model.activations(IDS, ["blocks.1.hook_resid_post", "blocks.1.attn.hook_pattern:out"])
    assert torch.equal(acts["resid_post.1"], cache["blocks.1.hook_resid_post"])
    assert torch.equal(acts["blocks.1.attn.hook_pattern:out"], cache["blocks.1.attn.hook_pattern"])


def test_results_can_be_trained_on(tiny_llama: LanguageModel) -> None:
    """Plain tensors without a graph, usable in somebody's own backward pass."""
    acts = tiny_llama.activations(IDS, "resid_post.1")["resid_post.1"]
    assert not acts.requires_grad
    probe = nn.Linear(32, 1)
    probe(acts).sum().backward()
    assert probe.weight.grad is not None


def test_gradients_reach_an_edit(tiny_llama: LanguageModel) -> None:
    """d loss / d steering vector, against a central difference."""
    vector = torch.zeros(32, requires_grad=True)

    def loss() -> torch.Tensor:
        with tiny_llama.edit({"resid_mid.1": lambda act, positions: act + vector}):
            return tiny_llama.loss(IDS, grad=True).mean()

    loss().backward()
    assert vector.grad is not None
    direction = vector.grad / vector.grad.norm()
    with torch.no_grad():
        vector += 1e-2 * direction
        up = loss()
        vector -= 2e-2 * direction
        down = loss()
    assert float((up - down) / 2e-2) == pytest.approx(float(vector.grad.norm()), rel=1e-2)
    assert not tiny_llama.loss(IDS).values.requires_grad


def test_loss_projects_a_chunk_at_a_time(tiny_llama: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = tiny_llama.loss(IDS).values
    rows: list[int] = []
    handle = tiny_llama.module.lm_head.register_forward_hook(lambda m, i, o: rows.append(len(o)))
    monkeypatch.setattr("interp.models.head._CHUNK_LOGITS", 4 * 260)
    chunked = tiny_llama.loss(IDS).values
    handle.remove()
    assert rows == [4, 4, 4, 2]
    torch.testing.assert_close(chunked, whole, rtol=1e-6, atol=1e-6)


def test_places_that_are_not_there(tiny_llama: LanguageModel) -> None:
    with pytest.raises(ValueError, match=r"did you mean 'resid_post'.*resid_mid"):
        tiny_llama.activations(IDS, "resid_psot.1")
    with pytest.raises(ValueError, match=r"layer 3 is out of range.*layers 0 to 2"):
        tiny_llama.activations(IDS, "resid_post.3")
    with pytest.raises(ValueError, match=r"no module 'model.layers.1.mpl'.*model.layers.1.mlp"):
        tiny_llama.activations(IDS, "model.layers.1.mpl:out")
    with pytest.raises(ValueError, match=r"sites=\[\]"):
        tiny_llama.activations(IDS, [])
    with pytest.raises(KeyError, match="no activations of embed"):
        tiny_llama.activations(IDS, "resid_post.1")["embed"]
    with pytest.raises(ValueError, match="not a tensor"):
        tiny_llama.activations(IDS, "model:out")
    assert tiny_llama.check_site("resid_post.-1") == Site("resid_post", 2)


def test_module_paths(tiny_llama: LanguageModel) -> None:
    acts = tiny_llama.activations(
        IDS,
        [
            "model.layers.1:out",
            "resid_post.1",
            "model.layers.1.mlp.down_proj:in",
            "mlp_post.1",
            "lm_head:out",
        ],
    )
    assert torch.equal(acts["model.layers.1:out"], acts["resid_post.1"])
    assert torch.equal(acts["model.layers.1.mlp.down_proj:in"], acts["mlp_post.1"])
    assert torch.equal(acts["lm_head:out"], tiny_llama.logits(IDS))
    assert tiny_llama.width("lm_head:out") == 260
    assert tiny_llama.width("model.layers.1.self_attn.k_proj:out") == 16


def test_an_unknown_family_keeps_its_module_paths() -> None:
    from transformers import AutoModelForCausalLM, OPTConfig

    config = OPTConfig(
        vocab_size=260,
        hidden_size=32,
        num_hidden_layers=2,
        ffn_dim=48,
        num_attention_heads=4,
        word_embed_proj_dim=32,
    )
    module = AutoModelForCausalLM.from_config(config).eval()
    model = load_model(module)
    assert model.sites() == []
    acts = model.activations(IDS, "model.decoder.layers.0:out")["model.decoder.layers.0:out"]
    with torch.no_grad():
        assert torch.equal(acts, module(IDS, output_hidden_states=True).hidden_states[1])
        assert torch.equal(model.logits(IDS), module(IDS).logits)
    with pytest.raises(ValueError, match=r"resid_post.*not available.*opt.*known for gpt2"):
        model.activations(IDS, "resid_post.0")
    with pytest.raises(ValueError, match="family table"):
        model.logit_directions(torch.zeros(1, 32))
    expected = torch.nn.functional.cross_entropy(
        model.logits(IDS)[:, :-1].transpose(1, 2), IDS[:, 1:], reduction="none"
    )
    torch.testing.assert_close(model.loss(IDS).values, expected)


def test_a_plain_module_that_takes_ids() -> None:
    class Bigram(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(260, 260)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.table(input_ids)

    module = Bigram()
    model = load_model(module)
    assert torch.equal(model.activations(IDS, "table:out")["table:out"], module.table(IDS))
    assert torch.equal(model.logits(IDS), module.table(IDS))
    with pytest.raises(ValueError, match="takes no attention_mask"):
        model.logits(IDS, attention_mask=torch.tensor([[0, *[1] * 7]] * 2))


def test_of_a_module_that_runs_twice_the_first_pass_counts() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(260, 4)
            self.square = nn.Linear(4, 4)

        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.square(self.square(self.table(input_ids)))

    module = Twice()
    first = module.square(module.table(IDS))
    for stop_early in (True, False):
        acts = load_model(module).activations(IDS, "square:out", stop_early=stop_early)
        assert torch.equal(acts["square:out"], first)


def test_a_base_model_has_sites_but_no_logits() -> None:
    whole = tiny_model("llama")
    model = load_model(whole.model)
    expected = load_model(whole).activations(IDS, ["resid_post.1", "final_norm"])
    acts = model.activations(IDS, ["resid_post.1", "final_norm"])
    assert all(torch.equal(acts[site], expected[site]) for site in expected)
    with pytest.raises(ValueError, match="no logits"):
        model.logits(IDS)


def test_fingerprint_notices_each_tensor(tiny_tokenizer: Any) -> None:
    module = tiny_model("llama")
    model = load_model(module, tokenizer=tiny_tokenizer)
    before = model.fingerprint()
    assert before == load_model(tiny_model("llama"), tokenizer=tiny_tokenizer).fingerprint()
    assert before["architecture"] == "LlamaForCausalLM"
    assert (before["engine"], before["weight_processing"], before["dtype"]) == (
        "huggingface",
        "none",
        "float32",
    )
    seen = {before["weights"]}
    for parameter in module.parameters():
        with torch.no_grad():
            parameter.add_(1e-3)
        seen.add(model.fingerprint()["weights"])
    assert len(seen) == 1 + len(list(module.parameters()))
    assert load_model(tiny_model("llama", seed=1)).fingerprint()["weights"] not in seen
    assert load_model(module).fingerprint()["tokenizer"] is None
    assert before["tokenizer"] is not None
