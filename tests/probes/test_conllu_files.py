"""CoNLL-U: spacing, multiword tokens, empty nodes, errors that name the sentence, and the way back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from interp.probes.conllu_files import parse_conllu, read_conllu, write_conllu
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


LAST = "8\t.\t.\tPUNCT\t_\t_\t4\tpunct\t_\t_"


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("\t0\troot", "\t1\troot", 2, "there are 0 roots"),
        ("\t4\tpunct", "\t0\tpunct", 12, "there are 2 roots .words with the head 0."),
        ("7\tcase", "17\tcase", 9, "word 5 .à. has the head 17: give one of 0 to 8"),
        ("7\tcase", "9" * 5000 + "\tcase", 9, "word 5 .à. has the head 9999"),
        ("4\tnsubj", "_\tnsubj", 2, "word 1 .He. has the head _"),
        ("4\tnsubj", "²\tnsubj", 2, "word 1 .He. has the head ²"),
        ("\t4\taux", "\t2\taux", 4, "word 2 .does. has the head 2, itself"),
        ("_\t4\tobl", "_\t6\tobl", 2, "hangs in a cycle"),
        (ROWS[1], ROWS[1][:10], 2, "4 columns: CoNLL-U has ten, id, form"),
        (ROWS[1], ROWS[1] + "\t_", 2, "11 columns"),
        ("PRON\t_", "PRON\t", 2, "the column 'xpos' is empty"),
        ("1\tHe", "1\t", 2, "the column 'form' is empty"),
        # Ids: from 1, none twice, left out, out of order or of another kind.
        ("1\tHe", "0\tHe", 2, "id 0 where 1 must follow"),
        ("2\tdoes", "1\tdoes", 4, "id 1 where 2 must follow"),
        (LAST, LAST.replace("8", "9", 1), 12, "id 9 where 8 must follow"),
        (f"{ROWS[10]}\n{LAST}", f"{LAST}\n{ROWS[10]}", 11, "id 8 where 7 must follow"),
        ("1\tHe", "x\tHe", 2, "id 'x': words have 1"),
        ("1\tHe", "-1\tHe", 2, "id '-1': words have 1"),
        ("1\tHe", "9" * 5000 + "\tHe", 2, "id '999"),
        # Multiword tokens stand before their words, hold one or more and don't overlap.
        ("2-3", "3-4", 3, "id 3-4 where 2 must follow"),
        ("2-3", "2-1", 3, "id 2-1: multiword tokens hold a word or more"),
        ("2-3", "2-5", 8, "id 5-6: multiword tokens .* don't overlap"),
        ("5-6", "5-9", 8, "a multiword token reaches to word 9, the sentence has 8"),
        # Empty nodes are counted from the word before them.
        ("4.1", "3.1", 7, "id 3.1: the empty node here is 4.1"),
        ("4.1", "4.2", 7, "id 4.2: the empty node here is 4.1"),
        ("4.1", "4.0", 7, "id 4.0: the empty node here is 4.1"),
    ],
)
def test_broken_sentences_are_named_and_left_out(old: str, new: str, line: int, message: str) -> None:
    assert old in TEXT
    good = TEXT.replace("sent_id = one", "sent_id = two")
    text = TEXT.replace(old, new, 1) + good
    trees, broken = parse_conllu(text)
    assert trees == read_conllu(good)
    assert (broken.n_sentences, len(broken)) == (2, 1)
    assert re.match(rf"sentence 1 one, line {line}: .*{message}", broken.faults[0])
    with pytest.raises(
        ValueError, match=rf"the text is not CoNLL-U: sentence 1 one, line {line}: .*{message}"
    ):
        read_conllu(text, strict=True)
    with pytest.raises(ValueError, match=rf"is not CoNLL-U: sentence 1 one, line {line}: "):
        read_conllu(TEXT.replace(old, new, 1))  # nothing else to read


def test_what_is_left_out_is_counted_and_shown(caplog: pytest.LogCaptureFixture) -> None:
    bad = TEXT.replace("\t0\troot", "\t1\troot")
    trees = read_conllu(TEXT + 7 * bad + TEXT)
    assert len(trees) == 2
    (warning,) = caplog.messages
    assert (
        "the text: left out 7 of 9 sentences, which are not CoNLL-U\n  sentence 2 one, line 15: " in warning
    )
    assert warning.endswith("\n  and 2 more")
    assert not parse_conllu(TEXT)[1]


def test_files_as_other_programs_write_them(tmp_path: Path) -> None:
    (tree,) = read_conllu(TEXT)
    path = tmp_path / "a.conllu"
    for data in (
        b"\xef\xbb\xbf" + TEXT.encode(),  # with a byte order mark
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.strip().encode(),
        ("# newdoc\n\n\n" + TEXT + "\n \n# the end\n").encode(),
    ):
        path.write_bytes(data)
        assert read_conllu(path, strict=True) == [tree]
    assert read_conllu("\ufeff" + TEXT, strict=True) == [tree]
    # An empty node before the first word, two in a row, one within a multiword token, a token of one word.
    more = TEXT.replace(
        ROWS[1], "0.1\tIt\t_\t_\t_\t_\t_\t_\t_\t_\n0.2\tIt\t_\t_\t_\t_\t_\t_\t_\t_\n" + ROWS[1]
    )
    more = more.replace(ROWS[4], "2.1\tso\t_\t_\t_\t_\t_\t_\t_\t_\n" + ROWS[4])
    more = more.replace(ROWS[11], "8-8\t.\t_\t_\t_\t_\t_\t_\t_\t_\n" + ROWS[11])
    assert read_conllu(more, strict=True) == [tree]
    # Bytes that are no text break one sentence only.
    path.write_bytes(TEXT.encode().replace(b"bar", b"b\xffr", 1) + TEXT.encode())
    trees, broken = parse_conllu(path)
    assert trees == [tree]
    assert broken.faults == ("sentence 1 one, line 11: is not UTF-8 text",)
    untagged = re.sub(r"(PRON|AUX|PART|VERB|ADP|DET|NOUN|PUNCT)", "_", TEXT)
    assert read_conllu(untagged)[0].tags is None


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such CoNLL-U file"):
        read_conllu(tmp_path / "absent.conllu")
    (tmp_path / "empty.conllu").write_text("")
    with pytest.raises(ValueError, match="holds no sentences"):
        read_conllu(tmp_path / "empty.conllu")
    (tmp_path / "binary.conllu").write_bytes(b"\xff\x00")
    with pytest.raises(
        ValueError, match=r"binary\.conllu.* is not CoNLL-U: sentence 1, line 1: is not UTF-8 text"
    ):
        read_conllu(tmp_path / "binary.conllu")


def test_the_way_back(tmp_path: Path) -> None:
    trees = [*read_conllu(TEXT), *ControlledGrammar().sample(20)]
    write_conllu(tmp_path / "out.conllu", trees)
    again = read_conllu(tmp_path / "out.conllu")
    for before, after in zip(trees, again, strict=True):
        assert (before.words, before.heads, before.relations) == (after.words, after.heads, after.relations)
        assert (before.text, before.spans) == (after.text, after.spans)
