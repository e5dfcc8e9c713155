"""Text to token ids and back to legible strings, without touching the tokenizer's own settings."""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from interp.core.messages import warn_once
from interp.models.inputs import TokenBatch

logger = logging.getLogger(__name__)
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def tokenize(
    tokenizer: Any, texts: str | Sequence[str], *, add_bos: bool | None = None, max_length: int | None = None
) -> TokenBatch:
    """See `LanguageModel.tokenize`."""
    listed = [texts] if isinstance(texts, str) else list(texts)
    if not listed:
        raise ValueError("texts=[]: give at least one text")
    for i, text in enumerate(listed):
        if not isinstance(text, str):
            raise TypeError(f"texts[{i}] is a {type(text).__name__}, not a string")
    if max_length is not None and max_length < 1:
        raise ValueError(f"max_length={max_length}: must be at least 1")
    bos = bos_prefix(tokenizer, add_bos)
    rows = [(bos + ids)[:max_length] for ids in encode(tokenizer, listed, bos)]
    for i, row in enumerate(rows):
        if not row:
            raise ValueError(
                f"texts[{i}]={listed[i]!r} has no tokens; leave empty texts out or pass add_bos=True"
            )
    return pad_right(rows, _padding_id(tokenizer))


def encode(tokenizer: Any, texts: Sequence[str], bos: Sequence[int] = ()) -> list[list[int]]:
    """The token ids of each text, without special tokens but those that are spelled out in it.

    `bos` is what will be put before them. Where a text begins with it already, as a chat template's does, its own is
    left out, so that there is one.
    """
    with own_settings_kept(tokenizer):
        encoded = tokenizer(
            list(texts), add_special_tokens=False, padding=False, truncation=False, verbose=False
        )
    rows = [list(ids) for ids in encoded["input_ids"]]
    doubled = [bool(bos) and ids[: len(bos)] == list(bos) for ids in rows]
    if any(doubled):
        warn_once(
            logger,
            "texts begin with BOS",
            "some texts begin with the BOS token themselves (a chat template writes it): they get no second one",
        )
    return [ids[len(bos) :] if twice else ids for ids, twice in zip(rows, doubled, strict=True)]


@contextmanager
def own_settings_kept(tokenizer: Any) -> Iterator[None]:
    """Put back the truncation and padding of the tokenizer behind a fast tokenizer, which every call of it wipes."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    truncation, padding = getattr(backend, "truncation", None), getattr(backend, "padding", None)
    try:
        yield
    finally:
        if truncation is not None:
            backend.enable_truncation(**truncation)  # type: ignore[union-attr]
        if padding is not None:
            backend.enable_padding(**padding)  # type: ignore[union-attr]


def bos_prefix(tokenizer: Any, add_bos: bool | None) -> list[int]:
    """The ids to put before a text: none, or the BOS token; None does what the tokenizer does by itself."""
    bos = tokenizer.bos_token_id
    if add_bos is None:
        with own_settings_kept(tokenizer):
            natural = tokenizer("a", padding=False, truncation=False, verbose=False)["input_ids"]
        add_bos = bos is not None and len(natural) > 1 and natural[0] == bos
    if add_bos and bos is None:
        raise ValueError("add_bos=True, but this tokenizer has no BOS token")
    return [bos] if add_bos else []


def pad_right(rows: Sequence[Sequence[int]], padding_id: int) -> TokenBatch:
    """Rows of ids as one batch, padded behind their ends."""
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    ids = torch.tensor([[*row, *[padding_id] * (longest - len(row))] for row in rows])
    positions = torch.arange(longest).expand(ids.shape).clone()
    return TokenBatch(ids, (positions < lengths[:, None]).long(), positions)


def _padding_id(tokenizer: Any) -> int:
    candidates = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return next(i for i in candidates if i is not None)


def decode_tokens(tokenizer: Any, ids: Sequence[int] | Tensor) -> list[str]:
    """See `LanguageModel.decode_tokens`."""
    flat = ids.reshape(-1).tolist() if isinstance(ids, Tensor) else [int(i) for i in ids]
    distinct = sorted(set(flat))
    byte_level = _is_byte_level(tokenizer)
    added = {i: str(token) for i, token in _added_tokens(tokenizer).items()}
    shown: dict[int, str] = {}
    for i, piece in zip(distinct, tokenizer.convert_ids_to_tokens(distinct), strict=True):
        if piece is None:
            shown[i] = f"⟨id {i}⟩"
        elif i in added:
            shown[i] = added[i]
        elif byte_level:
            shown[i] = _legible(bytes(_byte_of_character()[c] for c in piece))
        elif match := _BYTE_TOKEN.fullmatch(piece):
            shown[i] = _legible(bytes.fromhex(match[1]))
        else:
            shown[i] = piece.replace("▁", " ")
    return [shown[i] for i in flat]


def _is_byte_level(tokenizer: Any) -> bool:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return hasattr(tokenizer, "byte_decoder")
    decoder = json.loads(backend.to_str())["decoder"] or {}
    kinds = [decoder.get("type"), *(part.get("type") for part in decoder.get("decoders", ()))]
    return "ByteLevel" in kinds


@cache
def _byte_of_character() -> dict[str, int]:
    """The alphabet of byte-level BPE: printable Latin-1 bytes as themselves, the others from U+0100 on."""
    itself = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in itself]
    return {chr(b): b for b in itself} | {chr(0x100 + n): b for n, b in enumerate(others)}


def _legible(data: bytes) -> str:
    """UTF-8 text; bytes that do not make up a character are shown as `⟨E2⟩`."""
    text = data.decode("utf-8", errors="surrogateescape")
    return "".join(f"⟨{ord(c) - 0xDC00:02X}⟩" if 0xDC80 <= ord(c) <= 0xDCFF else c for c in text)


def special_token_ids(tokenizer: Any) -> frozenset[int]:
    """Every id that stands for control rather than text."""
    marked = (i for i, token in _added_tokens(tokenizer).items() if token.special)
    return frozenset({*tokenizer.all_special_ids, *marked})


def _added_tokens(tokenizer: Any) -> dict[int, Any]:
    """Tokens added to a vocabulary, by id; mistral-common's tokenizers know none."""
    added = tokenizer.added_tokens_decoder
    return {} if callable(added) else added


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 of the vocabulary and the special tokens."""
    content = [sorted(tokenizer.get_vocab().items()), sorted(special_token_ids(tokenizer))]
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()
