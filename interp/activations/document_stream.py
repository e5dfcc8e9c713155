"""`DocumentStream`: documents read when they are wanted, for text that is larger than memory or has no end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch

from interp.activations.documents import Documents, check_split, first_documents, in_split
from interp.core.device import make_generator

# What a shuffle holds in memory, and so how far it reads ahead.
WINDOW_DOCUMENTS = 512
WINDOW_CHARACTERS = 1 << 22


@dataclass(frozen=True)
class DocumentStream:
    """Documents in the order of their source, or mixed in a window of bounded size.

    Ids are the documents' numbers in the source, as in `Documents`; blank documents are left out. What is read
    depends on the source, the split and the seed alone, so reading again gives the same documents (but for a
    generator, which can be read only once).

    Attributes:
        source: the texts: iterated anew each time they are read.
        name: of the source.
        has_end: whether the source is known to end. One that isn't is never read "to the end".
        part: "all", "train" or "heldout", and the expected share of held-out documents (`Documents.split`).
        seed: mixes the documents: each is drawn from the next `WINDOW_DOCUMENTS` that are left (fewer where
            they hold more than `WINDOW_CHARACTERS`). None: in the order of the source.
    """

    source: Iterable[str]
    name: str
    has_end: bool = True
    part: tuple[str, float] = ("all", 0.05)
    seed: int | None = None

    def __iter__(self) -> Iterator[str]:
        return (text for _, text in self.items())

    def items(self) -> Iterator[tuple[int, str]]:
        """(id, text) of each document, read as they are asked for."""
        split, heldout_fraction = self.part
        chosen = (
            (id_, text)
            for id_, text in enumerate(self.source)
            if text.strip() and (split == "all" or in_split(text, split, heldout_fraction))
        )
        return chosen if self.seed is None else _mixed(chosen, self.seed)

    def split(self, split: str, heldout_fraction: float = 0.05) -> DocumentStream:
        """The "train" or the "heldout" documents ("all": unchanged), told apart as in `Documents.split`."""
        check_split(split, heldout_fraction)
        if split == "all":
            return self
        if self.part[0] != "all":
            raise ValueError(
                f"split={split!r} of {self.name!r}, which is one side of a split: take it of the whole"
            )
        return replace(self, part=(split, heldout_fraction), name=f"{self.name}[{split}]")

    def limited(self, n_documents: int) -> DocumentStream:
        """The first so many documents of the source."""
        return replace(self, source=_First(self.source, n_documents), has_end=True)

    def shuffled(self, seed: int) -> DocumentStream:
        """The same documents, mixed within the window."""
        return replace(self, seed=seed)

    @property
    def n_characters(self) -> int:
        """Of all documents; reads them through, keeping none. ValueError where the source has no known end."""
        self.require_end("n_characters")
        return sum(len(text) for text in self)

    def require_end(self, asked: str) -> None:
        """Raise ValueError unless the source is known to end."""
        if not self.has_end:
            raise ValueError(
                f"{asked} of the text {self.name!r}, which has no known end: say how many tokens to take "
                '(tokens="1M"; more than there are takes all), or how many documents (load_text(..., limit=1000))'
            )

    def head(self, n_characters: int) -> Documents:
        """The first documents, until they hold `n_characters`."""
        return first_documents(self.items(), n_characters, self.name)


@dataclass(frozen=True)
class _First:
    texts: Iterable[str]
    n: int

    def __iter__(self) -> Iterator[str]:
        return islice(self.texts, self.n)


def _mixed(items: Iterable[tuple[int, str]], seed: int) -> Iterator[tuple[int, str]]:
    generator = make_generator(seed, "documents")
    random = np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator)))
    window: list[tuple[int, str]] = []
    characters = 0

    def draw() -> tuple[int, str]:
        place = int(random.integers(len(window)))
        window[place], window[-1] = window[-1], window[place]
        return window.pop()

    for item in items:
        window.append(item)
        characters += len(item[1])
        while len(window) == WINDOW_DOCUMENTS or characters > WINDOW_CHARACTERS:
            drawn = draw()
            characters -= len(drawn[1])
            yield drawn
    while window:
        yield draw()
