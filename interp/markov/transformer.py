"""A small GPT-2, as Hugging Face has it, so that every tool for language models works on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.models.language_model import LanguageModel
from interp.models.sites import Site


@dataclass(frozen=True)
class TransformerConfig:
    """Sizes of the model. Raises ValueError naming the field.

    Attributes:
        width: of the residual stream; a multiple of `n_heads`.
        n_layers, n_heads: as they say; the MLP is four times as wide as the stream.
        context_symbols: how many source symbols a window spans, on average. Comparing at equal text, not at equal
            numbers of tokens, is what keeps a comparison of tokenizers fair.
    """

    width: int = 20
    n_layers: int = 2
    n_heads: int = 2
    context_symbols: int = 256

    def __post_init__(self) -> None:
        for name in ("width", "n_layers", "n_heads", "context_symbols"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} = {getattr(self, name)} must be at least 1")
        if self.width % self.n_heads:
            raise ValueError(f"width = {self.width} must be a multiple of n_heads = {self.n_heads}")


def build_transformer(
    config: TransformerConfig, vocab_size: int, context_length: int, seed: int = 0
) -> nn.Module:
    """A `GPT2LMHeadModel` as in the study of Makkuva et al. 2024 (code `Bond1995/Markov`).

    Pre-norm with exact GELU, learned positions, no dropout; no biases in linear maps and norms (they are kept at 0);
    the output layer shares the token embedding and has a bias. Weights are N(0, 0.02), those of projections back into
    the stream N(0, 0.02 / sqrt(2 n_layers)). `load_model` takes it as it is.

    Args:
        context_length: the longest window, in tokens.
    """
    from transformers import GPT2Config, GPT2LMHeadModel

    gpt2 = GPT2Config(
        vocab_size=vocab_size,
        n_positions=context_length,
        n_embd=config.width,
        n_layer=config.n_layers,
        n_head=config.n_heads,
        activation_function="gelu",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=None,
        eos_token_id=None,
        use_cache=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module: Any = GPT2LMHeadModel(gpt2)
    for name, parameter in module.named_parameters():
        if name.endswith(".bias"):
            parameter.requires_grad_(False).zero_()
    module.lm_head.bias = nn.Parameter(torch.zeros(vocab_size))
    return module


def linear_weights(module: nn.Module) -> list[nn.Parameter]:
    """The trained matrices but the embeddings: what weight decay acts on."""
    return [
        p for name, p in module.named_parameters() if p.requires_grad and p.ndim == 2 and ".h." in f".{name}"
    ]


@torch.no_grad()
def attention_patterns(
    model: LanguageModel, tokens: Int[Tensor, "b s"], layer: int
) -> Float[Tensor, "b heads s s"]:
    """Who attends to whom in a GPT-2: softmax(q k^T / sqrt(d_head)) over the past, from the queries and keys.

    Raises ValueError for another family or a layer out of range.
    """
    if model.family != "gpt2":
        raise ValueError(
            f"attention patterns are read from GPT-2's queries and keys; this is a {model.family}"
        )
    if not 0 <= layer < model.n_layers:
        raise ValueError(f"layer = {layer} is out of range: the model has layers 0 to {model.n_layers - 1}")
    site = Site.parse(f"transformer.h.{layer}.attn.c_attn:out")
    heads = model.config.n_head  # type: ignore[union-attr]
    query, key, _ = (
        part.unflatten(-1, (heads, -1)).transpose(1, 2)
        for part in model.activations(tokens, site)[site].chunk(3, dim=-1)
    )
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    length = scores.shape[-1]
    future = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1)
