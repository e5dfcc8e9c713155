"""A trained model as Hugging Face keeps one, weights and tokenizer in one folder, for every tool that opens such."""

from __future__ import annotations

import copy
import os
import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from interp.markov.bpe import BPETokenizer
from interp.markov.encoders import Token
from interp.markov.hf_tokenizers import FIRST, HFTokenizer, as_characters
from interp.markov.tokenizer import FixedLengthTokenizer, Tokenizer


def save_model(module: nn.Module, tokenizer: Tokenizer, folder: str | os.PathLike[str]) -> Path:
    """Write the model (see `plain_gpt2`) and its tokenizer as a folder that `load_model` opens.

    The folder is there whole or not at all; one that was there is replaced.
    """
    folder = Path(folder)
    partial = folder.with_name(f"{folder.name}.tmp-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    from transformers.utils import logging

    with_bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # for one file of a few kilobytes
    try:
        plain_gpt2(module).save_pretrained(partial)
        hugging_face_tokenizer(tokenizer).save_pretrained(partial)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    finally:
        if with_bars:
            logging.enable_progress_bar()
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def plain_gpt2(module: Any) -> Any:
    """A `GPT2LMHeadModel` with the logits of `build_transformer`'s model, whose output bias b no GPT-2 file can hold.

    Behind the final norm stands γ n with a mean of 0 over the d entries of n. With the norm's weight 1 and its bias 1,
    W' = W diag(γ) + (b - W γ) 1ᵀ / d gives W' (n + 1) = W γ n + b. The output layer then no longer shares the token
    embedding. All activations up to the final norm are the same.
    """
    from transformers import GPT2LMHeadModel

    config = copy.deepcopy(module.config)
    config.tie_word_embeddings = False
    with torch.random.fork_rng(devices=[]):
        plain = GPT2LMHeadModel(config)
    kept = {k: v.detach().cpu() for k, v in module.state_dict().items() if not k.startswith("lm_head.")}
    plain.transformer.load_state_dict({k.removeprefix("transformer."): v for k, v in kept.items()})
    gamma, weight = (
        x.detach().double().cpu() for x in (module.transformer.ln_f.weight, module.lm_head.weight)
    )
    bias = module.lm_head.bias.detach().double().cpu()
    with torch.no_grad():
        plain.lm_head.weight.copy_(weight * gamma + ((bias - weight @ gamma) / len(gamma))[:, None])
        plain.transformer.ln_f.weight.fill_(1.0)
        plain.transformer.ln_f.bias.fill_(1.0)
    return plain.eval()


def hugging_face_tokenizer(tokenizer: Tokenizer) -> Any:
    """A transformers tokenizer that gives the ids of a fitted one for `as_characters(x)`; other characters are skipped.

    Longest-token dictionaries take time quadratic in the length of a text: give documents, not one long string.

    Raises ValueError where it is not fitted, or two of its tokens are the same string.
    """
    from tokenizers import Regex, decoders, normalizers
    from transformers import PreTrainedTokenizerFast

    pieces = [_piece(token) for token in tokenizer._fitted().tokens_]
    if len(set(pieces)) < len(pieces):
        twice = next(piece for k, piece in enumerate(pieces) if piece in pieces[:k])
        raise ValueError(
            f"{tokenizer.name}: the token {twice!r} is there twice; a tokenizer file can't hold that"
        )
    backend = _backend(tokenizer, pieces)
    last = FIRST + tokenizer.alphabet_size_ - 1
    backend.normalizer = normalizers.Replace(Regex(rf"[^\x{{{FIRST:x}}}-\x{{{last:x}}}]"), "")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)


def _backend(tokenizer: Tokenizer, pieces: list[str]) -> Any:
    from tokenizers import Regex, models, pre_tokenizers
    from tokenizers import Tokenizer as HuggingFace

    vocab = {piece: i for i, piece in enumerate(pieces)}
    kind = tokenizer.hf_kind if isinstance(tokenizer, HFTokenizer) else ""
    if isinstance(tokenizer, FixedLengthTokenizer):
        backend = HuggingFace(models.WordLevel(vocab, unk_token=pieces[0]))
        whole = pre_tokenizers.Split(Regex(rf".{{{tokenizer.length}}}"), "removed", invert=True)
        each = pre_tokenizers.Split(Regex(rf".{{{tokenizer.length}}}|."), "removed", invert=True)
        backend.pre_tokenizer = whole if tokenizer.tail == "drop" else each
        return backend
    if kind == "bpe" or (isinstance(tokenizer, BPETokenizer) and tokenizer.encoder == "merges"):
        merges = [(pieces[left], pieces[right]) for left, right in tokenizer.merges_]
        return HuggingFace(models.BPE(vocab, merges))
    if kind == "unigram" or tokenizer.encoder == "likelihood":
        scored = list(zip(pieces, tokenizer.log_probabilities_.tolist(), strict=True))
        return HuggingFace(models.Unigram(scored))
    return HuggingFace(models.WordPiece(vocab, continuing_subword_prefix="", max_input_chars_per_word=10**9))


def _piece(token: Token) -> str:
    import numpy as np

    return as_characters(np.array(token))
