"""From replies to probabilities."""

from __future__ import annotations

import math

import pytest

from interp.models.chat import Token
from interp.recall.answers import Answer, digit_probabilities, read_answers
from interp.recall.parsing import parse_answer
from tests.recall.stories import prompt


def test_one_reply_gives_its_digits_and_zero_for_what_is_missing() -> None:
    ask = prompt(4)
    (a, b), (c, d) = ask.pairs[:2]
    result = read_answers([Answer(f"({a},{b}): 1, ({c},{d}): 0, (x,y): 1", cost=0.5, prompt_tokens=7)], ask)
    assert list(result.probabilities) == list(ask.pairs)
    assert result.probabilities[a, b] == 1
    assert sum(result.probabilities.values()) == 1
    assert result.coverage == pytest.approx(2 / 6)
    assert (result.n_unparsed, result.cost, result.prompt_tokens) == (1, 0.5, 7)


def test_several_replies_are_averaged_over_those_that_answer() -> None:
    ask = prompt(4)
    (a, b), (c, d) = ask.pairs[:2]
    replies = [
        Answer(f"({a},{b}): 1"),
        Answer(f"({a},{b}): 0, ({c},{d}): 1"),
        Answer(f"({a},{b}): 1"),
        Answer("no"),
    ]
    result = read_answers(replies, ask)
    assert result.probabilities[a, b] == pytest.approx(2 / 3)
    assert result.probabilities[c, d] == 1
    assert result.coverage == pytest.approx(2 / 6)


def test_choices_need_no_reading() -> None:
    ask = prompt(4)
    result = read_answers([Answer("anything", choices=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6))], ask)
    assert list(result.probabilities.values()) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    assert result.coverage == 1


def test_digit_tokens_are_found_by_their_place_in_the_text() -> None:
    """Names hold 1s and 0s here; only the answers' own tokens count."""
    pairs = [("A1", "B0"), ("A1", "C1"), ("B0", "C1")]
    pieces = ["(A", "1", ",B", "0", "):", " 1", ", (A", "1", ",C", "1", "): ", "0", "\n(B0,C1): 1 or so"]
    log = math.log
    tokens = [Token(p, log(0.99)) for p in pieces]
    tokens[5] = Token(" 1", log(0.6), {" 1": log(0.6), " 0": log(0.2), "1": log(0.1)})
    tokens[11] = Token("0", log(0.7), {"0": log(0.7), "x": log(0.2)})
    answer = Answer("".join(pieces), tuple(tokens))
    found = digit_probabilities(answer, parse_answer(answer.text, pairs))
    assert found == {pairs[0]: pytest.approx(0.75), pairs[1]: pytest.approx(0.3)}
    assert digit_probabilities(Answer(answer.text), parse_answer(answer.text, pairs)) == {}


def test_saved_and_restored() -> None:
    answer = Answer("a", (Token("a", -0.5, {"b": -1.0}),), 3, 4, 0.1, choices=(0.25,))
    assert Answer.from_dict(answer.to_dict()) == answer


def test_errors_and_refusals_are_kept() -> None:
    result = read_answers([Answer(error="status 500"), Answer("I'm sorry, I cannot.")], prompt(4))
    assert result.errors == ("status 500",)
    assert not result.refusal  # the failed reply refused nothing
    assert read_answers([Answer("I'm sorry, I cannot.")], prompt(4)).refusal
