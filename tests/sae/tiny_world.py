"""A tiny real model with a real byte-level tokenizer, and dictionaries whose answers are known."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from interp.activations.harvest import harvest
from interp.activations.store import ActivationStore
from interp.activations.text import TokenContexts, pack
from interp.models.language_model import LanguageModel
from interp.models.loading import load_model
from interp.sae.architectures.standard import StandardSAE, StandardSAEConfig
from interp.sae.metadata import SAEMetadata

SITE = "resid_post.1"
SUBJECTS = ("The cat", "A dog", "My friend", "The <b>bold</b> script", "Zoë", "Nobody")
VERBS = ("imports", "returns", "reads", "writes", "closes")
OBJECTS = (
    "a module",
    "the value",
    "one file\nand leaves",
    "nothing",
    "an é or “quote”",
    "<script>alert(1)</script>",
)
TEXTS = [
    f"{s} {v} {o}. Then {s.lower()} {w} {p}.\n" * 2
    for s in SUBJECTS
    for v, w in zip(VERBS, VERBS[1:] + VERBS[:1], strict=True)
    for o, p in zip(OBJECTS, OBJECTS[2:] + OBJECTS[:2], strict=True)
]


@cache
def tokenizer():
    """A byte-level BPE trained on the texts: " The" is one token, "ë" may be two."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<eos>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    bpe.train_from_iterator(TEXTS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<eos>")


@cache
def model(dtype: torch.dtype = torch.float32) -> LanguageModel:
    """A Llama of three layers and width 16, random but fixed."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer()),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    return load_model(LlamaForCausalLM(config).to(dtype), tokenizer=tokenizer(), device="cpu")


def contexts(n: int = 60, size: int = 24, mode: str = "pad") -> TokenContexts:
    return pack(TEXTS[:n], model(), context_size=size, mode=mode)


def store(folder: Path, n: int = 150) -> ActivationStore:
    return harvest(model(), contexts(n), [SITE], folder, dtype="float32", shard_tokens=1500, progress=False)


def metadata(**changes) -> SAEMetadata:
    return SAEMetadata(site=SITE, **changes)


def identity_sae() -> StandardSAE:
    """x = ReLU(x) - ReLU(-x): F = 2d, W_dec = (I, -I), exact in any precision."""
    sae = StandardSAE(StandardSAEConfig(16, 32), seed=None)
    with torch.no_grad():
        both = torch.cat([torch.eye(16), -torch.eye(16)])
        sae.W_enc.copy_(both)
        sae.W_dec.copy_(both)
    sae.metadata = metadata()
    return sae


def zero_sae() -> StandardSAE:
    """Reconstructs zero; no latent ever fires."""
    sae = StandardSAE(StandardSAEConfig(16, 8), seed=None)
    sae.metadata = metadata()
    return sae


def random_sae(d_sae: int = 40, seed: int = 3, threshold: float = 0.5) -> StandardSAE:
    """Random directions, firing where the projection is above `threshold`; a few latents are dead."""
    sae = StandardSAE(StandardSAEConfig(16, d_sae), seed=seed)
    with torch.no_grad():
        sae.b_enc.fill_(-threshold)
        sae.b_enc[[5, 11]] = -1e6
    sae.metadata = metadata()
    return sae
