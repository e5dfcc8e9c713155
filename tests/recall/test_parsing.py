"""A table of answers as models write them, and what must be read from each."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.recall.parsing import ParsedAnswer, parse_answer

PAIRS = [("Anna", "Bob"), ("Anna", "Carl"), ("Bob", "Carl")]
YES_NO_YES = {
    "as asked": "(Anna,Bob): 1, (Anna,Carl): 0, (Bob,Carl): 1",
    "no spaces": "(Anna,Bob):1,(Anna,Carl):0,(Bob,Carl):1",
    "turned around, other case, other signs": "( bob , ANNA )=1\n(carl, anna) - 0\n(Carl,Bob) : 1.",
    "full stops between": "(Anna,Bob): 1. (Anna,Carl): 0. (Bob,Carl): 1.",
    "bold": "**(Anna, Bob)**: 1\n**(Anna, Carl)**: 0\n**(Bob, Carl)**: 1",
    "backticks and quotes": "`(Anna, Bob)`: `1`\n(\"Anna\", 'Carl'): 0\n(“Bob”, “Carl”): 1",
    "numbered from 1": "1. (Anna, Bob): 1\n2. (Anna, Carl): 0\n3. (Bob, Carl): 1",
    "numbered from 0": "0. (Anna,Bob): 1\n1. (Anna,Carl): 0\n2. (Bob,Carl): 1",
    "bullets with words": "- Anna and Bob: yes\n- Anna and Carl: no\n- Bob – Carl: Yes",
    "asterisks": "* Anna / Bob = 1\n* Anna / Carl = 0\n* Bob / Carl = 1",
    "arrows": "Anna -> Bob: 1\nAnna → Carl: 0\nBob <-> Carl: 1",
    "ticks": "Anna & Bob ✓\nAnna & Carl ✗\nBob & Carl ✅",
    "true and false": "(Anna,Bob): True\n(Anna,Carl): False\n(Bob,Carl): true",
    "answer on its own line": "(Anna,Bob)\n1\n(Anna,Carl)\n0\n(Bob,Carl)\n1",
    "labelled": "(Anna,Bob) answer: 1\n(Anna,Carl) answer: 0\n(Bob,Carl) answer: 1",
    "with reasons": "(Anna,Bob): 1 (they are friends), (Anna,Carl): 0 (no link between Anna and Carl), (Bob,Carl): 1",
    "markdown table": "| A | B | Answer |\n|---|---|---|\n| Anna | Bob | 1 |\n| Anna | Carl | 0 |\n| Bob | Carl | 1 |",
    "csv": "u,v,answer\nAnna,Bob,1\nAnna,Carl,0\nBob,Carl,1",
    "tab-free columns": "Anna; Bob; 1\nAnna; Carl; 0\nBob; Carl; 1",
    "code fence": "```\n(Anna, Bob): 1\n(Anna, Carl): 0\n(Bob, Carl): 1\n```",
    "json by pair": '{"Anna-Bob": 1, "Anna-Carl": 0, "(Bob, Carl)": 1}',
    "json objects": '[{"pair": ["Anna","Bob"], "connected": true}, {"pair": ["Anna","Carl"], "connected": false}, '
    '{"pair": ["Bob","Carl"], "connected": true}]',
    "json source and target": '[{"source": "Anna", "target": "Bob", "answer": 1}, {"source": "Anna", "target": "Carl", '
    '"answer": 0}, {"source": "Bob", "target": "Carl", "answer": 1}]',
    "nested json": '{"Anna": {"Bob": 1, "Carl": 0}, "Bob": {"Carl": 1}}',
    "matrix": "      Anna Bob Carl\nAnna  0 1 0\nBob   1 0 1\nCarl  0 1 0",
    "markdown matrix": "| | Anna | Bob | Carl |\n|---|---|---|---|\n| Anna | - | 1 | 0 |\n| Bob | 1 | - | 1 |\n"
    "| Carl | 0 | 1 | - |",
    "adjacency list": "Anna: Bob\nBob: Anna, Carl\nCarl: Bob",
    "adjacency list, arrows": "Anna -> [Bob]\nBob -> [Anna, Carl]\nCarl -> [Bob]",
    "sentences": "Anna and Bob are associated. Anna and Carl are not associated. Bob and Carl are linked.",
    "prose": "Anna is friends with Bob. Carl is also connected to Bob, but not to Anna.",
    "while": "Anna is linked with Bob but not with Carl, while Bob and Carl are linked.",
    "negation in a word": "Anna and Bob are connected; Anna and Carl are unconnected; Bob and Carl are connected.",
    "contraction": "Anna knows Bob. Anna doesn't know Carl - no tie links Anna and Carl. Bob is tied to Carl.",
    "questions": "Is Anna associated with Bob? Yes. Is Anna associated with Carl? No, they are not. "
    "Is Bob associated with Carl? Yes.",
    "in words": "(Anna,Bob): associated\n(Anna,Carl): not associated\n(Bob,Carl): associated",
    "headed lists": "Associated: (Anna,Bob), (Bob,Carl)\nNot associated: (Anna,Carl)",
    "headed lists below": "Pairs with 1:\n- Anna, Bob\n- Bob, Carl\nPairs with 0:\n- Anna, Carl",
    "digits only": "1, 0, 1",
    "digits in a row": "101",
    "digits below each other": "1\n0\n1",
    "draft in thoughts": "<think>(Anna,Bob): 0? (Anna,Carl): 1</think>\n(Anna,Bob): 1, (Anna,Carl): 0, (Bob,Carl): 1",
    "preamble": "Sure! All 3 pairs:\n(Anna,Bob): 1\n(Anna,Carl): 0\n(Bob,Carl): 1\nHope it helps!",
    "corrects itself": "(Anna,Bob): 0, (Anna,Carl): 0, (Bob,Carl): 1. Correction: (Anna,Bob): 1",
    "full-width signs": "（Anna，Bob）：1\n（Anna，Carl）：0\n（Bob，Carl）：1",
}


def values(answer: ParsedAnswer) -> list[float | None]:
    return [answer.answers.get(pair) for pair in PAIRS]


@pytest.mark.parametrize("text", YES_NO_YES.values(), ids=YES_NO_YES.keys())
def test_reads(text: str) -> None:
    read = parse_answer(text, PAIRS)
    assert values(read) == [1, 0, 1]
    assert read.coverage == 1
    assert read.n_unread == 0
    assert not read.refusal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [None, None, None]),
        ("Pairs: (Anna,Bob),(Anna,Carl),(Bob,Carl)", [None, None, None]),
        ("0. (Anna,Bob)\n1. (Anna,Carl)\n2. (Bob,Carl)", [None, None, None]),
        ("(Anna,Bob): 7, (Anna,Carl): 10", [None, None, None]),
        ("1, 0", [None, None, None]),
        ("1, 0, 1, 1", [None, None, None]),
        ("(Anna,Bob): 1, (Anna,Carl): 0, (Bob,Ca", [1, 0, None]),
        ("(Anna,Bob): 0.9, (Anna,Carl): .1, (Bob,Carl): 1.0", [0.9, 0.1, 1.0]),
        ("Anna is connected to Bob and Carl.", [1, 1, None]),
        ("Anna, Bob and Carl are all connected.", [1, 1, 1]),
        ("Neither Anna nor Bob is linked with Carl.", [None, 0, 0]),
    ],
)
def test_reads_what_is_there_and_no_more(text: str, expected: list[float | None]) -> None:
    read = parse_answer(text, PAIRS)
    assert values(read) == expected
    assert read.coverage == pytest.approx(sum(v is not None for v in expected) / 3)


def test_duplicates() -> None:
    text = "(Anna,Bob): 0, (Bob,Anna): 1, (Anna,Carl): 0, (Anna,Carl): 0"
    last, mean = parse_answer(text, PAIRS), parse_answer(text, PAIRS, duplicates="mean")
    assert values(last) == [1, 0, None]
    assert values(mean) == [0.5, 0, None]
    assert (last.n_duplicates, last.n_conflicts) == (2, 1)


def test_unknown_names_and_pairs_are_counted_and_shown() -> None:
    text = "(Anna,Bob): 1, (Anna,Zed): 1, (Bob,Bob): 0, (Anna,Dora): 1, (Yan,Zed): 0"
    read = parse_answer(text, PAIRS, nodes=["Anna", "Bob", "Carl", "Dora"])
    assert values(read) == [1, None, None]
    assert read.n_unparsed == 4
    assert {"(Anna,Zed): 1", "(Yan,Zed): 0"} <= set(read.unread)
    assert any("Dora" in piece for piece in read.unread)


def test_what_cannot_be_read_is_reported() -> None:
    read = parse_answer("(Anna,Bob): 1\nAs for Carl and Anna, who can tell\nNice weather", PAIRS)
    assert values(read) == [1, None, None]
    assert read.unread == ("As for Carl and Anna, who can tell",)


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I cannot recall the narrative.",
        "As an AI language model, I have no memory of earlier turns.",
        "I don’t remember these people.",
        "Unable to determine any association.",
    ],
)
def test_refusals(text: str) -> None:
    assert parse_answer(text, PAIRS).refusal
    assert not parse_answer(f"{text}\n(Anna,Bob): 1", PAIRS).refusal


def test_spans_are_where_the_digits_stand() -> None:
    text = "<think>(Anna,Bob): 0</think> KLR 1: (Anna,Bob): 1; (Carl,Anna)=0\n1"
    read = parse_answer(text, PAIRS)
    assert {pair: text[slice(*span)] for pair, span in read.spans.items()} == {PAIRS[0]: "1", PAIRS[1]: "0"}
    assert text[: read.spans[PAIRS[0]][0]].endswith("(Anna,Bob): ")
    positions = parse_answer("x: 1, 0, 1", PAIRS)
    assert positions.positional
    assert [positions.spans[p][0] for p in PAIRS] == [3, 6, 9]


def test_names_with_digits_and_spaces() -> None:
    pairs = [("KLR2", "AK Abara"), ("KLR2", "BVX3")]
    read = parse_answer("1. (KLR2, AK_Abara): 1\n2. (BVX3, KLR2): 0", pairs)
    assert list(read.answers.values()) == [1, 0]
    assert not parse_answer("(KLR2x, BVX33): 1", pairs).answers


def test_refuses_nonsense_arguments() -> None:
    with pytest.raises(ValueError, match="pairs"):
        parse_answer("1", [])
    with pytest.raises(ValueError, match="twice"):
        parse_answer("1", [("a", "b"), ("b", "a")])
    with pytest.raises(ValueError, match="duplicates"):
        parse_answer("1", PAIRS, duplicates="first")


NAMES = ["Anna", "Bob", "Carl", "Dora"]
ALL = [(a, b) for i, a in enumerate(NAMES) for b in NAMES[i + 1 :]]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0, 1]), min_size=6, max_size=6), st.randoms(use_true_random=False))
def test_round_trip_in_any_order_and_orientation(answers: list[int], random) -> None:  # type: ignore[no-untyped-def]
    order = list(range(6))
    random.shuffle(order)
    pieces = []
    for k in order:
        u, v = ALL[k] if random.random() < 0.5 else ALL[k][::-1]
        pieces.append(f"({u},{v}): {answers[k]}")
    read = parse_answer(random.choice([", ", "\n", "; ", ". "]).join(pieces), ALL)
    assert [read.answers[p] for p in ALL] == answers


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                [
                    *NAMES,
                    "Zed",
                    "0",
                    "1",
                    ":",
                    "(",
                    ")",
                    ",",
                    "\n",
                    "|",
                    "-",
                    "not",
                    "connected",
                    "?",
                    ".",
                    '"',
                    "{",
                ]
            ),
            st.text(max_size=3),
        ),
        max_size=60,
    )
)
def test_never_breaks_and_never_invents(pieces: list[str]) -> None:
    read = parse_answer(" ".join(pieces), ALL)
    assert set(read.answers) <= set(ALL)
    assert all(0 <= v <= 1 for v in read.answers.values())
    assert 0 <= read.coverage <= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Lists of edges say nothing about other pairs, and a name's second line doesn't replace its first.
        ("Anna -> Bob\nAnna -> Dora\nBob -> Dora", [1, None, 1, None, 1, None]),
        ("Not connected:\nAnna: Bob\nCarl: Dora", [None] * 6),
        # A matrix that contradicts itself, and one whose cell is no answer.
        ("  Anna Bob\nAnna 0 1\nBob 0 0", [None] * 6),
        ("  Anna Bob Carl\nAnna - 1 0\nBob 1 -1 0", [1, 0, None, None, None, None]),
        ("Not associated:\n(Anna,Bob): 1\n(Anna,Carl): 0", [None, 0, None, None, None, None]),
        ("(Anna,Bob): no idea\n(Anna,Carl): no", [None, 0, None, None, None, None]),
        ("(Anna,Bob): >0\n(Anna,Carl): <1\n(Anna,Dora) => 1", [None, None, 1, None, None, None]),
        ('{"Anna": {"Bob": 1, "Carl": -1}}', [1, None, None, None, None, None]),
        ("Answer: not 1, 0, 1, 1, 0, 1", [None] * 6),
    ],
)
def test_lists_are_as_strict_as_prose(text: str, expected: list[float | None]) -> None:
    read = parse_answer(text, ALL, NAMES)
    assert [read.answers.get(pair) for pair in ALL] == expected
