"""`Documents`: texts with stable ids, a name and a fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import torch

from interp.core.device import make_generator
from interp.core.messages import one_of

SPLITS = ("all", "train", "heldout")


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

    @property
    def n_characters(self) -> int:
        return sum(len(text) for text in self.texts)

    def split(self, split: str, heldout_fraction: float = 0.05) -> Documents:
        """The "train" or the "heldout" documents ("all": unchanged).

        A document's side is decided by the hash of its text: equal texts fall on the same side, and adding
        documents moves none of the others.
        """
        one_of("split", split, SPLITS)
        if split == "all":
            return self
        if not 0.0 < heldout_fraction < 1.0:
            raise ValueError(f"heldout_fraction={heldout_fraction}: give a fraction between 0 and 1")
        kept = [
            i
            for i, text in enumerate(self.texts)
            if (_uniform(text) < heldout_fraction) == (split == "heldout")
        ]
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
        digest = hashlib.sha256()
        for id_, text in zip(self.ids, self.texts, strict=True):
            data = text.encode("utf-8", "surrogatepass")
            digest.update(f"{id_}:{len(data)}:".encode())
            digest.update(data)
        return {
            "name": self.name,
            "n_documents": len(self),
            "n_characters": self.n_characters,
            "sha256": digest.hexdigest(),
        }


def _uniform(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
