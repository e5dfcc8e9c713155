"""What prose says, against a corpus of phrasings whose meaning is known: nothing is invented, nothing turned round."""

from __future__ import annotations

from functools import cache

from interp.recall.narration import STYLES
from interp.recall.parsing import parse_answer
from tests.recall.phrasings import NAMES, PAIRS, phrasings

CORPUS = list(dict.fromkeys(phrasings()))


@cache
def read(text: str) -> tuple[set[frozenset[str]], set[frozenset[str]]]:
    answers = parse_answer(text, PAIRS, NAMES).answers
    return {frozenset(p) for p, w in answers.items() if w > 0.5}, {
        frozenset(p) for p, w in answers.items() if w <= 0.5
    }


def test_nothing_is_invented_and_nothing_turned_round() -> None:
    assert len(CORPUS) > 500
    for phrasing in CORPUS:
        present, absent = read(phrasing.text)
        assert present <= phrasing.present, phrasing
        assert absent <= phrasing.absent, phrasing


def test_what_is_said_plainly_is_read() -> None:
    plain = [phrasing for phrasing in CORPUS if phrasing.plain]
    assert len(plain) > 300
    assert [p.text for p in plain if read(p.text) != (p.present, p.absent)] == []


def test_what_is_not_read_is_counted_and_shown() -> None:
    for phrasing in CORPUS:
        if not phrasing.plain:
            found = parse_answer(phrasing.text, PAIRS, NAMES)
            said = phrasing.present | phrasing.absent
            if {frozenset(pair) for pair in found.answers} != said or not said:
                assert found.n_unread + found.n_unparsed > 0, phrasing
                assert found.unread, phrasing


def test_the_storys_own_words_are_read() -> None:
    """Models repeat the narrative; every relation of every style is understood, alone and merged into one sentence."""
    for style in STYLES.values():
        for first in style.relations:
            text = f"{NAMES[0]} {first} {NAMES[1]}"
            assert read(f"{text}.") == ({frozenset(NAMES[:2])}, set()), text
            for second in style.relations:
                both = ({frozenset(NAMES[:2]), frozenset((NAMES[0], NAMES[2]))}, set())
                assert read(f"{text}, and also {second} {NAMES[2]}.") == both, (first, second)


def test_a_correction_puts_right_what_it_names_and_no_more() -> None:
    text = "(Ann,Bob): 1\n(Ann,Cy): 0\nCorrection: Ann is not linked with Bob."
    answers = parse_answer(text, PAIRS, NAMES).answers
    assert answers == {("Ann", "Bob"): 0, ("Ann", "Cy"): 0}
    assert not parse_answer("(Ann,Bob): 1\nWait, that is wrong.", PAIRS, NAMES).answers
