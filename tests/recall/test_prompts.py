"""The turns of the conversation and the word-span exercise."""

from __future__ import annotations

import pytest

from interp.recall.narration import brashears_vignette
from interp.recall.prompts import PRIMING, STRENGTHS, build_messages, memory_clearance_turns
from interp.recall.sentences import SENTENCES, last_word
from tests.recall.stories import story


@pytest.mark.parametrize(("strength", "sets"), [(0, 0), (2, 3), (3, 6), (4, 9), (5, 12), (6, 15), (7, 3)])
def test_number_and_size_of_the_sets(strength: int, sets: int) -> None:
    turns = memory_clearance_turns(strength, 1)
    assert len(turns) == 2 * sets
    sizes = [7, 7, 7] if strength == 7 else [s for s in range(2, strength + 1) for _ in range(3)]
    for size, asked, answered in zip(sizes, turns[::2], turns[1::2], strict=True):
        sentences = asked["content"].rstrip(".").split(". ")
        assert (asked["role"], answered["role"]) == ("user", "assistant")
        assert len(sentences) == size
        assert answered["content"].split(", ") == [s.split()[-1] for s in sentences]
    assert len({s for t in turns[::2] for s in t["content"].rstrip(".").split(". ")}) == sum(sizes)


def test_the_sentence_bank() -> None:
    assert len(SENTENCES) >= 100
    assert len({last_word(s).casefold() for s in SENTENCES}) == len(SENTENCES)
    assert not any("." in s for s in SENTENCES)


def test_the_turns_in_order() -> None:
    vignette = story(5)
    prompt = build_messages(vignette, 2)
    roles = [m["role"] for m in prompt.messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", *["user", "assistant"] * 3, "user"]
    texts = [m["content"] for m in prompt.messages]
    assert vignette.text in texts[3]
    assert "LAST word" in texts[3]
    assert all(f"({u},{v})" in texts[-1] for u, v in vignette.pair_order)
    assert vignette.text not in texts[-1]


def test_without_the_exercise_story_and_question_are_one_turn() -> None:
    prompt = build_messages(story(5), 0)
    assert [m["role"] for m in prompt.messages] == ["system", "user", "assistant", "user"]
    assert prompt.vignette.text in prompt.messages[-1]["content"]
    assert "Pairs:" in prompt.messages[-1]["content"]


def test_permuted_pairs_are_the_same_pairs_and_are_stored_as_asked() -> None:
    vignette = story(7)
    prompt = build_messages(vignette, 0, permute_pairs=True, random_state=3)
    assert prompt.pairs != vignette.pair_order
    assert {frozenset(p) for p in prompt.pairs} == {frozenset(p) for p in vignette.pair_order}
    listed = prompt.messages[-1]["content"].split("Pairs: ")[1]
    assert listed == ",".join(f"({u},{v})" for u, v in prompt.pairs)
    assert any(p not in vignette.pair_order for p in prompt.pairs)  # some are turned around


def test_priming_stands_before_the_introduction() -> None:
    plain, primed = build_messages(story(5), 0), build_messages(story(5), 0, "female")
    assert "a woman" in primed.messages[1]["content"]
    assert primed.messages[1]["content"].endswith(plain.messages[1]["content"])
    assert primed.messages[2:] == plain.messages[2:]
    brashears = build_messages(brashears_vignette("irreducible", "weak"), 0, "male")
    assert "own sex" in brashears.messages[1]["content"]
    assert brashears.messages[2]["role"] == "assistant"
    assert brashears.messages[3:] == build_messages(brashears_vignette("irreducible", "weak"), 0).messages[1:]


def test_refusals() -> None:
    for strength in (1, 8, -1):
        with pytest.raises(ValueError, match="strength"):
            memory_clearance_turns(strength)
    with pytest.raises(ValueError, match="priming"):
        build_messages(story(5), 0, "robot")
    assert (STRENGTHS, PRIMING) == ((0, 2, 3, 4, 5, 6, 7), ("none", "male", "female"))
