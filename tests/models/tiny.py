"""Tiny random models of every family, and a byte-level tokenizer that fits them all."""

from __future__ import annotations

from typing import Any

import torch

D_VOCAB = 260
D_MODEL = 32
N_CTX = 64
WINDOW = 6

_COMMON = {
    "vocab_size": D_VOCAB,
    "hidden_size": D_MODEL,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": N_CTX,
    "pad_token_id": None,
    "bos_token_id": 256,
    "eos_token_id": 257,
}
_GROUPED = {**_COMMON, "num_key_value_heads": 2}
_WINDOWED = {**_GROUPED, "sliding_window": WINDOW}
_GEMMA = {**_WINDOWED, "head_dim": 8, "pad_token_id": 0}

CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "vocab_size": D_VOCAB,
        "n_embd": D_MODEL,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": N_CTX,
        "bos_token_id": 256,
        "eos_token_id": 257,
    },
    "gpt_neo": {
        "vocab_size": D_VOCAB,
        "hidden_size": D_MODEL,
        "num_layers": 4,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 2]],
        "window_size": WINDOW,
        "max_position_embeddings": N_CTX,
        "bos_token_id": 256,
        "eos_token_id": 257,
    },
    "gpt_neox": _COMMON,
    "gpt_neox-serial": {**_COMMON, "use_parallel_residual": False},
    "llama": _GROUPED,
    "mistral": _WINDOWED,
    "qwen2": _GROUPED,
    "qwen3": {**_GROUPED, "head_dim": 16},
    "phi3": _WINDOWED,
    "smollm3": _GROUPED,
    "gemma": {**_GEMMA, "sliding_window": None},
    "gemma2": {**_GEMMA, "final_logit_softcapping": 5.0},
    "gemma3_text": _GEMMA,
    "olmo2": _GROUPED,
    "olmo3": _WINDOWED,
}
FAMILIES = tuple(CONFIGS)
WITH_RESID_MID = tuple(f for f in FAMILIES if f != "gpt_neox")
LAYER_NORM = ("gpt2", "gpt_neo", "gpt_neox", "gpt_neox-serial")


def tiny_model(family: str, seed: int = 0, **overrides: Any) -> Any:
    """A random transformers model whose norms have weights far from one, as trained models have."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family.split("-")[0], **{**CONFIGS[family], **overrides})
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name or "ln_" in name:
                parameter.add_(0.3 * noise)
            else:
                parameter.copy_(0.15 * noise)
    return model


def tiny_ids(b: int, s: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (b, s), generator=torch.Generator().manual_seed(seed))


def byte_tokenizer() -> Any:
    """Byte-level BPE with the 256 bytes, three merges, and <s> = 256, </s> = 257."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {character: i for i, character in enumerate(alphabet)}
    merges = [("h", "e"), ("Ġ", "t")]
    vocab |= {"<s>": 256, "</s>": 257, "he": 258, "Ġt": 259}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="</s>", padding_side="left"
    )
