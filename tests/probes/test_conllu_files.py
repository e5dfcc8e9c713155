"""CoNLL-U: spacing, multiword tokens, empty nodes, errors that name the sentence, and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from interp.probes.conllu_files import read_conllu, write_conllu
from interp.probes.grammar import ControlledGrammar

ROWS = [
    "# sent_id = one",
    "1\tHe\the\tPRON\t_\t_\t4\tnsubj\t_\t_",
    "2-3\tdoesn't\t_\t_\t_\t_\t_\t_\t_\t_",
    "2\tdoes\tdo\tAUX\t_\t_\t4\taux\t_\t_",
    "3\tn't\tnot\tPART\t_\t_\t4\tadvmod\t_\t_",
    "4\tgo\tgo\tVERB\t_\t_\t0\troot\t_\t_",
    "4.1\tgone\tgo\tVERB\t_\t_\t_\t_\t0:root\t_",
    "5-6\tau\t_\t_\t_\t_\t_\t_\t_\t_",
    "5\tà\tà\tADP\t_\t_\t7\tcase\t_\t_",
    "6\tle\tle\tDET\t_\t_\t7\tdet\t_\t_",
    "7\tbar\tbar\tNOUN\t_\t_\t4\tobl\t_\tSpaceAfter=No",
    "8\t.\t.\tPUNCT\t_\t_\t4\tpunct\t_\t_",
]
TEXT = "\n".join(ROWS) + "\n\n"


def test_a_sentence_with_everything() -> None:
    (tree,) = read_conllu(TEXT)
    assert tree.words == ("He", "does", "n't", "go", "à", "le", "bar", ".")
    assert tree.heads == (3, 3, 3, -1, 6, 6, 3, 3)
    assert tree.relations[:3] == ("nsubj", "aux", "advmod")
    assert tree.tags is not None
    assert tree.tags[-1] == "PUNCT"
    assert tree.text == "He doesn't go au bar."
    # `doesn't` is split where its words are; `au`, whose letters are not `à le`, belongs to both.
    assert [tree.text[a:b] for a, b in tree.spans or ()] == [
        "He",
        "does",
        "n't",
        "go",
        "au",
        "au",
        "bar",
        ".",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\t0\troot", "\t1\troot", "sentence 1 one: .* 0 roots"),
        ("7\tcase", "17\tcase", "word 5 .à. has the head 17"),
        ("4\tnsubj", "_\tnsubj", "sentence 1 one"),
        ("\t4\taux", "\t2\taux", "word 2 .does. has the head 2"),
        ("\t4\tpunct", "\t0\tpunct", "there are 2 roots .words with the head 0."),
        (ROWS[1], ROWS[1][:10], "sentence 1 one: a line has no column 'xpos'"),
        ("# sent_id = one\n1\tHe\the\tPRON", "1\tHe\the\tPRON\t_\t_\t99", "sentence 1: "),
    ],
)
def test_broken_sentences_are_named(old: str, new: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_conllu(TEXT.replace(old, new, 1))


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such CoNLL-U file"):
        read_conllu(tmp_path / "absent.conllu")
    (tmp_path / "empty.conllu").write_text("")
    with pytest.raises(ValueError, match="holds no sentences"):
        read_conllu(tmp_path / "empty.conllu")
    (tmp_path / "binary.conllu").write_bytes(b"\xff\x00")
    with pytest.raises(ValueError, match=r"binary\.conllu.* is not UTF-8 text"):
        read_conllu(tmp_path / "binary.conllu")


def test_the_way_back(tmp_path: Path) -> None:
    trees = [*read_conllu(TEXT), *ControlledGrammar().sample(20)]
    write_conllu(tmp_path / "out.conllu", trees)
    again = read_conllu(tmp_path / "out.conllu")
    for before, after in zip(trees, again, strict=True):
        assert (before.words, before.heads, before.relations) == (after.words, after.heads, after.relations)
        assert (before.text, before.spans) == (after.text, after.spans)
