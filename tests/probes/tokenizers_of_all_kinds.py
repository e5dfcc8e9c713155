"""Small tokenizers of the three kinds, made here: byte-level BPE, SentencePiece and WordPiece."""

from __future__ import annotations

from typing import Any

BOS = "<s>"


def _fast(backend: Any, **tokens: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=backend, **tokens)


def byte_level(*, add_prefix_space: bool = False, trim_offsets: bool = False) -> Any:
    """GPT-2's kind: a token carries the space before its word."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    vocab = {c: i for i, c in enumerate([BOS, *sorted(pre_tokenizers.ByteLevel.alphabet())])}
    merges = [("d", "o"), ("do", "n"), ("Ġ", "c"), ("Ġc", "a"), ("Ġca", "t")]
    vocab |= {a + b: len(vocab) + i for i, (a, b) in enumerate(merges)}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=trim_offsets)
    return _fast(backend, bos_token=BOS)


def sentencepiece(*, as_normalizer: bool) -> Any:
    """Llama's kind: spaces become ▁, by a pre-tokenizer (unigram) or by a normaliser (BPE of Llama 2)."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    letters = list("abcdefghijklmnopqrstuvwxyz'.,▁ïI—")
    if as_normalizer:
        vocab = {c: i for i, c in enumerate(["<unk>", BOS, *letters])}
        merges = [("d", "o"), ("do", "n"), ("▁", "c"), ("▁c", "a"), ("▁ca", "t")]
        vocab |= {a + b: len(vocab) + i for i, (a, b) in enumerate(merges)}
        backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>"))
        steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        backend.normalizer = normalizers.Sequence(steps)
    else:
        pieces = [("<unk>", 0.0), (BOS, 0.0), *((c, -5.0) for c in letters), ("don", -6.0), ("▁cat", -6.0)]
        backend = Tokenizer(models.Unigram(pieces, unk_id=0))
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    return _fast(backend, bos_token=BOS, unk_token="<unk>")


def wordpiece() -> Any:
    """BERT's kind: lower case without accents, pieces inside a word marked ##."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    letters = list("abcdefghijklmnopqrstuvwxyz'.,—")
    entries = ["[UNK]", *letters, *(f"##{c}" for c in letters), "don", "cat", "##s"]
    backend = Tokenizer(
        models.WordPiece({c: i for i, c in enumerate(dict.fromkeys(entries))}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _fast(backend, unk_token="[UNK]")


ALL = {
    "byte-level": byte_level,
    "byte-level, prefix space": lambda: byte_level(add_prefix_space=True),
    "byte-level, trimmed": lambda: byte_level(trim_offsets=True),
    "sentencepiece unigram": lambda: sentencepiece(as_normalizer=False),
    "sentencepiece bpe": lambda: sentencepiece(as_normalizer=True),
    "wordpiece": wordpiece,
}
