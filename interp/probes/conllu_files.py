"""CoNLL-U files (Universal Dependencies) to trees and back, by the library `conllu`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from interp.core.files import atomic_write
from interp.probes.treebank import ROOT, DependencyTree, Span

_COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


def read_conllu(source: str | os.PathLike[str]) -> list[DependencyTree]:
    """The trees of a CoNLL-U file, or of a string that holds one (recognised by its tabs).

    Multiword tokens (`3-4`) and empty nodes (`8.1`) are no words of the tree. The text is that of the file's
    words with its `SpaceAfter=No`; a multiword token is written as it stands there, and its words get their
    part of it where their letters add up to it (`don't` = `do n't`), else all of it.

    Raises:
        ValueError: a file without sentences, or one that is not CoNLL-U or whose tree is broken; the message
            names the sentence by its number, from 1, and its `sent_id`.
    """
    import conllu
    from conllu.exceptions import ParseException

    text, name = str(source), "the text"
    if "\t" not in text:
        name = f"treebank={os.fspath(source)!r}"
        if not Path(source).is_file():
            raise ValueError(f"{name}: no such CoNLL-U file")
        try:
            text = Path(source).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is not CoNLL-U: it is not UTF-8 text ({error})") from error
    try:
        sentences = conllu.parse(text)
    except (ParseException, KeyError, IndexError, ValueError) as error:
        raise ValueError(f"{name} is not CoNLL-U: {error}") from error
    if not any(sentences):
        raise ValueError(f"{name} holds no sentences")
    trees = []
    for number, sentence in enumerate(sentences, start=1):
        try:
            trees.append(_tree(sentence))
        except (ValueError, TypeError) as error:
            label = f" {sentence.metadata['sent_id']}" if "sent_id" in sentence.metadata else ""
            raise ValueError(f"{name}, sentence {number}{label}: {error}") from error
    return trees


def _tree(sentence: Any) -> DependencyTree:
    if missing := [name for token in sentence for name in _COLUMNS if name not in token]:
        raise ValueError(
            f"a line has no column {missing[0]!r}: CoNLL-U has ten, {', '.join(_COLUMNS)}, with tabs between"
        )
    words = [token for token in sentence if isinstance(token["id"], int)]
    place = {token["id"]: i for i, token in enumerate(words)}
    heads = []
    for token in words:
        if token["head"] not in (0, *place) or token["head"] == token["id"]:
            raise ValueError(f"word {token['id']} ({token['form']}) has the head {token['head']}")
        heads.append(ROOT if token["head"] == 0 else place[token["head"]])
    if heads.count(ROOT) != 1:
        raise ValueError(f"there are {heads.count(ROOT)} roots (words with the head 0), there must be one")
    text, spans = _written(sentence, place)
    return DependencyTree(
        words=tuple(token["form"] for token in words),
        heads=tuple(heads),
        relations=tuple(token["deprel"] for token in words),
        tags=tuple(token["upos"] or "_" for token in words),
        text=text,
        spans=tuple(spans),
    )


def _written(sentence: Any, place: dict[int, int]) -> tuple[str, list[Span]]:
    """The sentence as it is written, and where its words stand."""
    forms = {token["id"]: token["form"] for token in sentence}
    text, spans, covered = "", [(0, 0)] * len(place), 0
    for token in sentence:
        kind = token["id"]
        if isinstance(kind, tuple) and kind[1] == "-":
            ids = [i for i in range(kind[0], kind[2] + 1) if i in place]
            covered = kind[2]
        elif isinstance(kind, int) and kind > covered:
            ids = [kind]
        else:
            continue
        start = len(text)
        text += token["form"]
        splits = "".join(forms[i] for i in ids) == token["form"]
        for i in ids:
            end = start + len(forms[i]) if splits else len(text)
            spans[place[i]] = (start, end)
            start = end if splits else start
        text += "" if (token["misc"] or {}).get("SpaceAfter") == "No" else " "
    return text.rstrip(" "), spans


def write_conllu(path: str | os.PathLike[str], trees: Iterable[DependencyTree]) -> None:
    """Write trees as a CoNLL-U file, atomically; `read_conllu` reads the same trees (levels are not kept)."""
    with atomic_write(path) as temporary:
        temporary.write_text("".join(map(_block, trees)), encoding="utf-8")


def _block(tree: DependencyTree) -> str:
    text, spans, tags = tree.text or "", tree.spans or (), tree.tags or ("_",) * len(tree)
    rows = [f"# text = {text}"]
    for i, (word, (start, end)) in enumerate(zip(tree.words, spans, strict=True)):
        spaced = "_" if text[end : end + 1] in ("", " ") else "SpaceAfter=No"
        partners = [j for j, span in enumerate(spans) if span == (start, end)]
        if len(partners) > 1 and partners[0] == i:
            whole = f"{i + 1}-{partners[-1] + 1}"
            rows.append("\t".join((whole, text[start:end], *"_______", spaced)))
        cells = (word, "_", tags[i], "_", "_", str(tree.heads[i] + 1), tree.relations[i], "_", spaced)
        rows.append("\t".join((str(i + 1), *cells)))
    return "\n".join(rows) + "\n\n"
