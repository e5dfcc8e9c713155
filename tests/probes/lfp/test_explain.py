"""Explanations: the lexicon's permutation test on features of known kind, and the chat model's requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from interp.probes.lfp.contexts import Context, FeatureContexts, TopContexts
from interp.probes.lfp.explain import (
    NEVER,
    ChatExplainer,
    LexiconExplainer,
    describe_messages,
)
from tests.probes.lfp.small_world import ScriptedChat

VALENCE = {"good": 2.0, "great": 3.0, "bad": -2.0, "awful": -3.0}
BACKGROUND = {"the": 60, "was": 20, "film": 12, "good": 2, "great": 2, "bad": 2, "awful": 2}


def context(word: str, peak: float) -> Context:
    return Context(f"the film was {word} .", ("the", " film", " was", f" {word}", " ."), (0, 0, 0, peak, 0))


def feature(latent: int, *words: str, n: int = 10) -> FeatureContexts:
    top = tuple(context(words[k % len(words)], 5.0 - 0.1 * k) for k in range(n)) if words else ()
    return FeatureContexts(3, latent, top, tuple(context("old", 0.0) for _ in range(4)), 0.1)


KINDS = TopContexts(
    (
        feature(0, "good", "good", "great"),
        feature(1, "awful", "awful", "bad"),
        feature(2, "the", "film"),
        feature(3),
        feature(4, "good", "good", "bad", "bad"),
    ),
    BACKGROUND,
)


def explainer(**options: object) -> LexiconExplainer:
    return LexiconExplainer(lambda word: VALENCE.get(word, 0.0), **options)  # type: ignore[arg-type]


def test_features_of_feeling_are_told_from_others() -> None:
    positive, negative, plain, silent, mixed = explainer().explain(KINDS)
    assert [e.task_related for e in (positive, negative, plain, silent, mixed)] == [
        True,
        True,
        False,
        False,
        True,
    ]
    assert '"good"' in positive.description
    assert "positive words (mean valence +2." in positive.description
    assert "negative words" in negative.description
    assert negative.valence is not None
    assert negative.valence < -2
    assert "for and against" in mixed.description
    assert "not shown to have more feeling" in plain.description
    assert (silent.description, silent.p_value) == (NEVER, 1.0)


def test_the_p_value_is_that_of_the_permutations() -> None:
    """A single top token of |valence| 2: random tokens reach it at rate 8/100."""
    one = TopContexts((feature(0, "good", n=1),), BACKGROUND)
    p = explainer(n_shuffles=20_000).explain(one)[0].p_value
    assert p == pytest.approx(0.08, abs=0.01)
    assert not explainer(n_shuffles=20_000).explain(one)[0].task_related


def test_the_lexicon_gives_the_same_answer_twice() -> None:
    assert explainer(seed=4).explain(KINDS) == explainer(seed=4).explain(KINDS)


def test_many_features_are_tested_at_a_false_discovery_rate() -> None:
    """p is .08 of a single top token (above): enough at a rate of .1 alone, not as the smallest of 21."""
    doubtful = tuple(feature(k, "the", n=1) for k in range(20))
    one = feature(99, "good", n=1)
    lexicon = explainer(level=0.1, n_shuffles=20_000)
    alone = lexicon.explain(TopContexts((one,), BACKGROUND))[0]
    assert alone.task_related
    among = lexicon.explain(TopContexts((*doubtful, one), BACKGROUND))
    assert among[-1].p_value == alone.p_value
    assert not any(e.task_related for e in among)


def test_the_request_shows_tokens_with_levels() -> None:
    one = FeatureContexts(0, 0, (context("good", 4.0),), (), 0.1)
    system, user = describe_messages(one)
    assert system["role"] == "system"
    assert user["content"] == "the\t0\n film\t0\n was\t0\n good\t10\n .\t0"
    rare = Context("w " * 9 + "good", ("w",) * 9 + ("good",), (0.0,) * 9 + (2.0,))
    assert describe_messages(FeatureContexts(0, 0, (rare,), (), 0.1))[1]["content"].endswith(
        "good\t10\nActive tokens again:\ngood\t10"
    )


def test_the_chat_model_sees_five_shown_contexts() -> None:
    many = FeatureContexts(0, 0, tuple(context(f"word{k}", 5.0) for k in range(20)), (), 0.1)
    content = describe_messages(many, seed=1)[1]["content"]
    seen = {int(line.split("word")[1].split("\t")[0]) for line in content.splitlines() if "word" in line}
    assert len(seen) == 5
    assert all(k % 2 == 0 for k in seen)  # the others are held out for the judge
    assert describe_messages(many, seed=1) == describe_messages(many, seed=1)
    assert describe_messages(many, seed=2) != describe_messages(many, seed=1)


def reply(messages: list[dict[str, str]]) -> str:
    text = messages[-1]["content"]
    if "Reply with 1" in text:
        return "1" if "joy" in text else " 0"
    return "joy\n words" if "good" in text else "articles"


def test_the_chat_model_describes_and_classifies(tmp_path: Path) -> None:
    chat = ScriptedChat(reply)
    path = tmp_path / "transcripts.jsonl"
    found = ChatExplainer(chat, path).explain(KINDS)
    assert [e.description for e in found] == ["joy words", "articles", "articles", NEVER, "joy words"]
    assert [e.task_related for e in found] == [True, False, False, False, True]
    n = len(chat.asked)
    assert ChatExplainer(chat, path).explain(KINDS) == found
    assert len(chat.asked) == n  # all came from the transcripts
    assert len(path.read_text().splitlines()) == n


def test_failed_replies_are_asked_for_again_the_others_are_not(tmp_path: Path) -> None:
    chat = ScriptedChat(lambda messages: None if "awful" in messages[-1]["content"] else reply(messages))
    path = tmp_path / "transcripts.jsonl"
    with pytest.raises(ConnectionError, match=r"1 of 4 replies failed .*run again"):
        ChatExplainer(chat, path).explain(KINDS)
    chat.script, chat.asked = reply, []
    assert len(ChatExplainer(chat, path).explain(KINDS)) == 5
    assert sum("awful" in messages[-1]["content"] for messages in chat.asked) == 1
    assert not any("film\t10" in messages[-1]["content"] for messages in chat.asked)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        LexiconExplainer(level=1.5)
    with pytest.raises(ValueError, match="n_records"):
        ChatExplainer(ScriptedChat(reply), n_records=0)
