"""`Documents`: texts in memory, with stable ids, a name and a fingerprint (`document_stream.py`: not in memory)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import torch

from interp.core.device import make_generator
from interp.core.messages import one_of

SPLITS = ("all", "train", "heldout")


class TakenText:
    """The fingerprint of a text as far as it was taken: name, sizes and a SHA-256 over documents and ids, in order."""

    def __init__(self, name: str) -> None:
        self.name, self.n_documents, self.n_characters = name, 0, 0
        self._digest = hashlib.sha256()

    def add(self, id_: int, text_hash: bytes, n_characters: int) -> None:
        """One more document, by its `text_hash`."""
        self._digest.update(b"%d:%b" % (id_, text_hash))
        self.n_documents += 1
        self.n_characters += n_characters

    def fingerprint(self) -> dict[str, str | int]:
        return {
            "name": self.name,
            "n_documents": self.n_documents,
            "n_characters": self.n_characters,
            "sha256": self._digest.hexdigest(),
        }


def check_characters(text: str, where: str) -> None:
    """Raise ValueError unless UTF-8 can write the text: half of a surrogate pair is no character to a tokenizer."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{where} holds {text[error.start]!r} at character {error.start}: half of a surrogate pair, which is "
            "not text; mend or remove it"
        ) from error


def text_hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def in_split(text: str, split: str, heldout_fraction: float) -> bool:
    """Whether a document belongs to a split: decided by the hash of its text alone."""
    uniform = int.from_bytes(text_hash(text)[:8], "big") / 2**64
    return (uniform < heldout_fraction) == (split == "heldout")


def check_split(split: str, heldout_fraction: float) -> None:
    one_of("split", split, SPLITS)
    if split != "all" and not 0.0 < heldout_fraction < 1.0:
        raise ValueError(f"heldout_fraction={heldout_fraction}: give a fraction between 0 and 1")


def first_documents(items: Iterable[tuple[int, str]], n_characters: int, name: str) -> Documents:
    """The first documents, until they hold `n_characters`; all of them where there are fewer."""
    ids, texts, length = [], [], 0
    for id_, text in items:
        ids.append(id_)
        texts.append(text)
        length += len(text)
        if length >= n_characters:
            break
    return Documents(tuple(texts), tuple(ids), name)


@dataclass(frozen=True)
class Documents(Sequence[str]):
    """A sequence of texts that remembers where each came from.

    `ids[i]` is the index of document i in its source, so that ids stay the same whether all documents, the
    training split or a shuffled copy is looked at; the ids of two splits never meet.
    """

    texts: tuple[str, ...]
    ids: tuple[int, ...]
    name: str = "texts"

    def __post_init__(self) -> None:
        if len(self.texts) != len(self.ids):
            raise ValueError(f"{len(self.texts)} texts but {len(self.ids)} ids: give one id a text")

    @classmethod
    def from_texts(cls, texts: Sequence[str], name: str = "texts") -> Documents:
        """Number the texts; those that are empty or blank are left out (their numbers are not reused)."""
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"document {i} of {name!r} is a {type(text).__name__}: documents are str")
            check_characters(text, f"document {i} of {name!r}")
        kept = [i for i, text in enumerate(texts) if text.strip()]
        if not kept:
            raise ValueError(f"{name!r} holds no text ({len(texts)} documents, all empty or blank)")
        return cls(tuple(texts[i] for i in kept), tuple(kept), name)

    def __len__(self) -> int:
        return len(self.texts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Documents: ...
    def __getitem__(self, index: int | slice) -> str | Documents:
        if isinstance(index, slice):
            return Documents(self.texts[index], self.ids[index], self.name)
        return self.texts[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def items(self) -> Iterator[tuple[int, str]]:
        """(id, text) of each document, in order."""
        return zip(self.ids, self.texts, strict=True)

    @property
    def n_characters(self) -> int:
        return sum(len(text) for text in self.texts)

    def head(self, n_characters: int) -> Documents:
        """The first documents, until they hold `n_characters`."""
        return first_documents(self.items(), n_characters, self.name)

    def split(self, split: str, heldout_fraction: float = 0.05) -> Documents:
        """The "train" or the "heldout" documents ("all": unchanged).

        A document's side is decided by the hash of its text: equal texts fall on the same side, and adding
        documents moves none of the others.
        """
        check_split(split, heldout_fraction)
        if split == "all":
            return self
        kept = [i for i, text in enumerate(self.texts) if in_split(text, split, heldout_fraction)]
        if not kept:
            raise ValueError(
                f"split={split!r} of {self.name!r} is empty: {len(self)} documents are too few for "
                f"heldout_fraction={heldout_fraction}"
            )
        return Documents(
            tuple(self.texts[i] for i in kept), tuple(self.ids[i] for i in kept), f"{self.name}[{split}]"
        )

    def shuffled(self, seed: int) -> Documents:
        """The same documents, ids included, in an order drawn from `seed`."""
        order = torch.randperm(len(self), generator=make_generator(seed, "documents")).tolist()
        return Documents(tuple(self.texts[i] for i in order), tuple(self.ids[i] for i in order), self.name)

    def fingerprint(self) -> dict[str, str | int]:
        """Name, sizes and a SHA-256 over all texts and ids, in order."""
        taken = TakenText(self.name)
        for id_, text in self.items():
            taken.add(id_, text_hash(text), len(text))
        return taken.fingerprint()
