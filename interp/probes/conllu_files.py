"""CoNLL-U files (Universal Dependencies, https://universaldependencies.org/format.html) to trees and back."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from interp.core.files import atomic_write
from interp.probes.treebank import ROOT, DependencyTree, Span

logger = logging.getLogger(__name__)

COLUMNS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
SHOWN = 5  # faults that a summary tells one by one
_N = "(0|[1-9][0-9]{0,8})"
_ID = re.compile(rf"(?P<word>{_N})|(?P<first>{_N})-(?P<last>{_N})|(?P<before>{_N})\.(?P<empty>{_N})")
_SENT_ID = re.compile(r"#\s*sent_id\s*=\s*(.*\S)")
_Line = tuple[int, str | None]  # its number, from 1, and its text; None where it is not UTF-8


@dataclass(frozen=True)
class BrokenSentences:
    """Sentences of a CoNLL-U file that are left out; prints as a summary, and is false where there are none.

    Attributes:
        name: the file, as messages call it.
        n_sentences: how many the file has, these included.
        faults: of each its number, from 1, its `sent_id`, the line and what is wrong there.
    """

    name: str
    n_sentences: int
    faults: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.faults)

    def __str__(self) -> str:
        more = [f"and {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        head = f"{self.name}: left out {len(self)} of {self.n_sentences} sentences, which are not CoNLL-U"
        return "\n  ".join([head, *self.faults[:SHOWN], *more])


def read_conllu(source: str | os.PathLike[str], *, strict: bool = False) -> list[DependencyTree]:
    """The trees of a CoNLL-U file, or of a string that holds one (recognised by its line breaks).

    A broken sentence is left out, with a warning that counts and names them (`parse_conllu` returns them).

    Raises:
        ValueError: as `parse_conllu`.
    """
    trees, broken = parse_conllu(source, strict=strict)
    if broken:
        logger.warning("%s", broken)
    return trees


def parse_conllu(
    source: str | os.PathLike[str], *, strict: bool = False
) -> tuple[list[DependencyTree], BrokenSentences]:
    """The trees of a CoNLL-U file, or of a string that holds one, and what is wrong with its other sentences.

    Multiword tokens (`3-4`) and empty nodes (`8.1`) are no words of the tree. The text is that of the file's
    words with its `SpaceAfter=No`; a multiword token is written as it stands there, and its words get their
    part of it where their letters add up to it (`don't` = `do n't`), else all of it. A sentence of which no
    word has a part of speech has no tags.

    Args:
        strict: refuse a file with a broken sentence.

    Raises:
        ValueError: no such file, none of its sentences can be read, or (strict) one cannot; names the sentence
            by its number, from 1, and its `sent_id`, and the line.
    """
    name, lines = _lines(source)
    trees: list[DependencyTree] = []
    faults: list[str] = []
    for number, block in enumerate(_sentences(lines), start=1):
        try:
            trees.append(_tree(block))
        except _Fault as fault:
            ids = [found[1] for _, text in block if text and (found := _SENT_ID.match(text))]
            label = f" {ids[0]}" if ids else ""
            faults.append(f"sentence {number}{label}, line {fault.line}: {fault}")
            if strict:
                raise ValueError(f"{name} is not CoNLL-U: {faults[0]}") from fault
    if not trees:
        raise ValueError(f"{name} is not CoNLL-U: {faults[0]}" if faults else f"{name} holds no sentences")
    return trees, BrokenSentences(name, len(trees) + len(faults), tuple(faults))


class _Fault(Exception):
    """What is wrong with a sentence, and on which line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class _Token:
    """A line of a sentence; `words` are the ids that it covers: its own, those of a multiword token, or none."""

    line: int
    words: range
    form: str
    upos: str
    head: str
    relation: str
    spaced: bool

    @property
    def label(self) -> str:
        return f"word {self.words[0]} ({self.form})"


def _lines(source: str | os.PathLike[str]) -> tuple[str, list[_Line]]:
    """What messages call the source, and its lines."""
    if isinstance(source, str) and ("\n" in source or "\t" in source):
        name, data = "the text", source.encode("utf-8", "surrogatepass")
    else:
        name = f"treebank={os.fspath(source)!r}"
        if not Path(source).is_file():
            raise ValueError(f"{name}: no such CoNLL-U file")
        data = Path(source).read_bytes()
    lines: list[_Line] = []
    for number, line in enumerate(re.split(rb"\r\n|\n|\r", data.removeprefix(b"\xef\xbb\xbf")), start=1):
        try:
            lines.append((number, line.decode("utf-8")))
        except UnicodeDecodeError:
            lines.append((number, None))
    return name, lines


def _sentences(lines: Iterable[_Line]) -> list[list[_Line]]:
    """Lines between blank lines; comments alone are no sentence."""
    blocks: list[list[_Line]] = [[]]
    for number, text in lines:
        if text is None or text.strip(" "):
            blocks[-1].append((number, text))
        elif blocks[-1]:
            blocks.append([])
    return [block for block in blocks if not all(text and text.startswith("#") for _, text in block)]


def _tree(block: Sequence[_Line]) -> DependencyTree:
    words, written = _tokens(block)
    heads = []
    for id_, word in enumerate(words, start=1):
        if not (re.fullmatch(_N, word.head) and int(word.head) <= len(words)):
            raise _Fault(word.line, f"{word.label} has the head {word.head}: give one of 0 to {len(words)}")
        if int(word.head) == id_:
            raise _Fault(word.line, f"{word.label} has the head {id_}, itself")
        heads.append(int(word.head) - 1)
    roots = [word for word, head in zip(words, heads, strict=True) if head == ROOT]
    if len(roots) != 1:
        line = roots[1].line if roots else words[0].line
        raise _Fault(line, f"there are {len(roots)} roots (words with the head 0), there must be one")
    text, spans = _text(words, written)
    tagged = any(word.upos != "_" for word in words)
    try:
        return DependencyTree(
            words=tuple(word.form for word in words),
            heads=tuple(heads),
            relations=tuple(word.relation for word in words),
            tags=tuple(word.upos for word in words) if tagged else None,
            text=text,
            spans=spans,
        )
    except ValueError as error:  # a cycle
        raise _Fault(words[0].line, str(error)) from error


def _tokens(block: Sequence[_Line]) -> tuple[list[_Token], list[_Token]]:
    """The words of a sentence, and the tokens that its text is written with: multiword tokens and other words."""
    words: list[_Token] = []
    written: list[_Token] = []
    covered = empty_nodes = 0  # last id in a multiword token; empty nodes since the last word
    for line, text in block:
        if text is None:
            raise _Fault(line, "is not UTF-8 text")
        if text.startswith("#"):
            continue
        cells = text.split("\t")
        if len(cells) != len(COLUMNS):
            raise _Fault(
                line, f"{len(cells)} columns: CoNLL-U has ten, {', '.join(COLUMNS)}, with tabs between"
            )
        if blank := [name for name, cell in zip(COLUMNS, cells, strict=True) if not cell.strip()]:
            raise _Fault(line, f"the column {blank[0]!r} is empty; what is not known is written _")
        id_ = _ID.fullmatch(cells[0])
        if id_ is None:
            raise _Fault(line, f"id {cells[0]!r}: words have 1, multiword tokens 1-2, empty nodes 1.1")
        following = len(words) + 1
        if id_["empty"]:
            empty_nodes += 1
            if (int(id_["before"]), int(id_["empty"])) != (len(words), empty_nodes):
                raise _Fault(line, f"id {cells[0]}: the empty node here is {len(words)}.{empty_nodes}")
            continue
        first, last = (int(id_[name] or id_["word"]) for name in ("first", "last"))
        if first != following:
            raise _Fault(line, f"id {cells[0]} where {following} must follow: ids count from 1 without gaps")
        form, upos, head, relation = (cells[i] for i in (1, 3, 6, 7))
        token = _Token(line, range(first, last + 1), form, upos, head, relation, _spaced(cells[9]))
        if id_["first"]:
            if not covered < first <= last:
                raise _Fault(line, f"id {cells[0]}: multiword tokens hold a word or more and don't overlap")
            covered = last
            written.append(token)
            continue
        words.append(token)
        empty_nodes = 0
        if first > covered:
            written.append(token)
    if not words:
        raise _Fault(block[0][0], "no words")
    if covered > len(words):
        line = written[-1].line
        raise _Fault(line, f"a multiword token reaches to word {covered}, the sentence has {len(words)}")
    return words, written


def _spaced(misc: str) -> bool:
    return "SpaceAfter=No" not in misc.split("|")


def _text(words: Sequence[_Token], written: Sequence[_Token]) -> tuple[str, tuple[Span, ...]]:
    """The sentence as it is written, and where its words stand."""
    text, spans = "", []
    for token in written:
        start = len(text)
        text += token.form
        forms = [words[id_ - 1].form for id_ in token.words]
        splits = "".join(forms) == token.form
        for form in forms:
            end = start + len(form) if splits else len(text)
            spans.append((start, end))
            start = end if splits else start
        text += " " if token.spaced else ""
    return text.rstrip(" "), tuple(spans)


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
