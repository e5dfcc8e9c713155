from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from interp.steering.datasets import load_pairs
from interp.steering.generators import likes
from interp.steering.pairs import ContrastivePair, PairDataset, check_disjoint


def lettered(positive: str, a: str = "Yes", b: str = "No") -> ContrastivePair:
    negative = "(B)" if positive == "(A)" else "(A)"
    return ContrastivePair(f"Q {positive}{a}{b}\n\nChoices:\n(A): {a}\n(B): {b}", positive, negative)


def numbered(n: int) -> PairDataset:
    return PairDataset(tuple(ContrastivePair(f"q{i}", "(A)", "(B)") for i in range(n)), "numbered")


def prompts(pairs: Sequence[ContrastivePair]) -> list[str]:
    return [pair.prompt for pair in pairs]


def test_split_is_a_seeded_shuffle_cut_by_share() -> None:
    pairs = numbered(10)
    order = [f"q{i}" for i in range(10)]
    random.Random(3).shuffle(order)
    train, test = pairs.split(0.4, seed=3)
    assert (prompts(train), prompts(test)) == (order[:4], order[4:])
    assert prompts(pairs) == [f"q{i}" for i in range(10)]  # the original keeps its order
    parts = pairs.split((0.1, 0.2, 0.3), seed=3)
    assert [prompts(part) for part in parts] == [order[:1], order[1:3], order[3:6]]


def test_a_split_keeps_the_letters_and_the_wording_in_balance() -> None:
    """36 items, 18 of each letter; 72 items, 18 of each letter with Yes and with No."""
    for seed in range(5):
        for part in likes(seed=seed).split(0.5, seed=seed):
            assert part.balance() == {"(A)": 9, "(B)": 9}
        for part in likes(kind="yes_no", seed=seed).split((0.5, 0.5), seed=seed):
            counts = part.factors().groupby(["A", "Y"]).size()
            assert counts.tolist() == [9, 9, 9, 9]
    assert [part.balance() for part in likes(seed=1).split((1 / 9, 1 / 3, 5 / 9))] == [
        {"(A)": 2, "(B)": 2},
        {"(A)": 6, "(B)": 6},
        {"(A)": 10, "(B)": 10},
    ]
    # Of 24 (A) and 12 (B) each part has two thirds (A); where that is no whole number, to within one.
    uneven = likes(share_a=2 / 3)
    assert [part.balance() for part in uneven.split(0.5)] == [{"(A)": 12, "(B)": 6}] * 2
    for share in (0.1, 0.3, 0.45):
        for part in uneven.split(share):
            assert abs(part.balance()["(A)"] - 2 / 3 * len(part)) < 1
    split = uneven.split(0.3, seed=4)
    assert sorted(p for part in split for p in prompts(part)) == sorted(prompts(uneven))
    assert prompts(split[0]) == prompts(uneven.split(0.3, seed=4)[0]) != prompts(uneven.split(0.3, seed=5)[0])


def test_answers_that_differ_in_blanks_only_are_no_contrast() -> None:
    """Rendering puts one blank before an answer that brings none: "yes" and " yes" are the same text."""
    for positive, negative in (("yes", " yes"), ("yes\n", "yes"), (" ", "")):
        with pytest.raises(ValueError, match=r"but for blanks .* there is no contrast; the prompt is 'q'"):
            ContrastivePair("q", positive, negative)
    with pytest.raises(ValueError, match=r"record 1 of list: positive = ' yes'"):
        load_pairs([{"prompt": "q", "positive": p, "negative": "yes"} for p in ("no", " yes")])


def test_thirds_cover_everything() -> None:
    parts = numbered(10).split((1 / 3, 1 / 3, 1 / 3))
    assert sum(map(len, parts)) == 10
    assert len({p for part in parts for p in prompts(part)}) == 10


def test_a_repeated_pair_on_both_sides_is_refused() -> None:
    twice = PairDataset(numbered(6).pairs * 2, "twice")
    with pytest.raises(ValueError, match=r"are in both parts, e.g. 'q\d'"):
        twice.split(0.5)
    assert prompts(twice.unique()) == [f"q{i}" for i in range(6)]
    first, second = twice.unique().split(0.5)
    check_disjoint(first, second)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (0.0, "must be positive"),
        (1.5, "must be positive"),
        ((0.5, 0.6), "add up"),
        (0.01, "part 0 .* is empty"),
        (math.nan, "train=nan: shares must be positive"),
    ],
)
def test_wrong_shares(train: float | tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        numbered(10).split(train)


def test_balance_warns_above_sixty_to_forty_once(caplog: pytest.LogCaptureFixture) -> None:
    fair = PairDataset(tuple(lettered(x) for x in ["(A)"] * 6 + ["(B)"] * 4), "fair")
    unfair = PairDataset(tuple(lettered(x) for x in ["(A)"] * 7 + ["(B)"] * 4), "unfair")
    with caplog.at_level(logging.WARNING):
        assert fair.balance() == {"(A)": 6, "(B)": 4}
        assert caplog.text == ""
        assert unfair.balance() == {"(A)": 7, "(B)": 4}
        unfair.balance()
    assert caplog.text.count("(A) 7, (B) 4") == 1
    assert numbered(3)[:1].balance() == {"(A)": 1, "(B)": 0}
    assert PairDataset((ContrastivePair("q", "good", "bad"),), "words").balance() == {}


def test_factors() -> None:
    pairs = [lettered("(A)"), lettered("(B)"), lettered("(A)", "No", "Yes"), lettered("(B)", " No ", "Yes ")]
    frame = PairDataset(tuple(pairs), "2x2").factors()
    assert frame["A"].tolist() == [True, False, True, False]
    assert frame["Y"].tolist() == [True, False, False, True]
    # A long option that begins with Yes is no Yes/No item, and one such pair drops the column.
    longer = PairDataset((*pairs, lettered("(A)", "Yes, gladly", "No")), "long").factors()
    assert list(longer) == ["A"]


def test_factors_without_letters_and_of_ones_own() -> None:
    bare = ContrastivePair("Do you?", " Yes", " No", read_index=-1, factors={"topic": "tea", "length": 2})
    other = ContrastivePair("Don't you?", " No", " Yes", read_index=-1, factors={"topic": "rain"})
    frame = PairDataset((bare, other), "bare").factors()
    assert list(frame) == ["Y", "topic"]
    assert frame["Y"].tolist() == [True, False]
    assert frame["topic"].tolist() == ["tea", "rain"]
    assert PairDataset((ContrastivePair("q", "good", "bad"),), "words").factors().shape == (1, 0)


def test_the_last_option_of_a_prompt_counts() -> None:
    """A question may quote options of its own before the choices."""
    pair = ContrastivePair("(A): quoted\n\nChoices:\n (A) Yes\n (B) No", "(A)", "(B)")
    assert (pair.option_text("(A)"), pair.positive_is_yes) == ("Yes", True)


def test_slices_and_refusals() -> None:
    pairs = PairDataset(numbered(5).pairs, "five", ("You are.", "You are not."))
    assert prompts(pairs[1:3]) == ["q1", "q2"]
    assert pairs[1:3].persona == pairs.persona
    assert pairs[-1].prompt == "q4"
    with pytest.raises(ValueError, match="has no pairs"):
        pairs[5:]
    with pytest.raises(ValueError, match="no contrast"):
        ContrastivePair("q", "(A)", "(A)")
    with pytest.raises(TypeError, match="positive = 3"):
        ContrastivePair("q", 3, "(A)")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"pairs\[0\]"):
        PairDataset(("q",), "words")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="read_index = '-1'"):
        ContrastivePair("q", "good", "bad", read_index="-1")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("answers", "given", "read"),
    [
        (("(A)", "(B)"), None, -2),
        (("(C)", " (A)"), None, -2),
        (("good", "very bad"), None, -1),
        (("a", "b"), 3, 3),
    ],
)
def test_letters_are_read_at_the_letter_and_all_else_at_its_end(
    answers: tuple[str, str], given: int | None, read: int
) -> None:
    assert ContrastivePair("q", *answers, read_index=given).read_index == read  # type: ignore[arg-type]


def test_numpy_integers_are_integers() -> None:
    assert type(ContrastivePair("q", "good", "bad", read_index=np.int64(-3)).read_index) is int


def test_a_digest_tells_pairs_apart_by_what_makes_them_the_same() -> None:
    pair = ContrastivePair("q", "good", "bad")
    assert pair.digest == ContrastivePair("q", "good", "bad", read_index=0, factors={"a": 1}).digest
    others = ContrastivePair("q", "bad", "good"), ContrastivePair("qg", "ood", "bad")
    assert pair.digest not in {other.digest for other in others}
