"""Judges: the lexicon's verdicts, a chat model's replies, scores of good and of useless descriptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from interp.probes.lfp.contexts import Context, FeatureContexts, TopContexts
from interp.probes.lfp.explain import Explanation
from interp.probes.lfp.gap import activation_gap
from interp.probes.lfp.judge import (
    ChatJudge,
    LexiconJudge,
    Question,
    balanced_accuracy,
    judge_messages,
    read_numbers,
    score_descriptions,
)
from tests.probes.lfp.small_world import NEGATIVE, NEUTRAL, POSITIVE, ScriptedChat

VALENCE = dict.fromkeys(POSITIVE, 2.0) | dict.fromkeys(NEGATIVE, -2.0)


def valence(word: str) -> float:
    return VALENCE.get(word, 0.0)


def contexts(*kinds: tuple[tuple[str, ...], tuple[str, ...]]) -> TopContexts:
    """A feature of each kind: active on sentences with the first words, quiet on those with the second ones."""

    def some(latent: int, words: tuple[str, ...], peak: float) -> tuple[Context, ...]:
        made = []
        for k in range(12):
            tokens = ("the", f"thing{latent}{'a' if peak else 'q'}{k}", "was", words[k % len(words)])
            made.append(Context(" ".join(tokens), tokens, (0.0, 0.0, 0.0, peak and peak - 0.1 * k)))
        return tuple(made)

    return TopContexts(
        tuple(FeatureContexts(1, k, some(k, a, 9.0), some(k, q, 0.0), 0.1) for k, (a, q) in enumerate(kinds)),
        {},
    )


TWO = contexts((POSITIVE, NEGATIVE), (NEGATIVE, NEUTRAL))
TRUE = [
    Explanation(1, 0, 'fires on "good": positive words (mean valence +2.0)', True),
    Explanation(1, 1, 'fires on "bad", "awful": negative words', True),
]


def test_true_descriptions_score_one_and_another_features_less() -> None:
    report = score_descriptions(TRUE, TWO, LexiconJudge(valence), n_each=6)
    assert [s.balanced_accuracy for s in report.scores] == [1.0, 1.0]
    assert report.balanced_accuracy == 1.0
    # By the other's description the first feature's quiet texts, all negative, are the active ones.
    assert report.scores[0].other_description == 0.0
    assert report.scores[1].other_description == 0.5
    assert all(s.correlation is not None and s.correlation > 0.9 for s in report.scores)
    assert (report.scores[0].n_active, report.scores[0].n_quiet) == (6, 6)
    own, other, *_ = report.judgements
    assert (own.own_description, other.own_description) == (True, False)
    assert own.texts == other.texts
    assert [bool(chance) for chance in own.chances or ()] == list(own.active)
    assert [bool(chance) for chance in other.chances or ()] == [not active for active in own.active]
    assert report.to_dict()["judgements"] == []
    assert "balanced accuracy 1.000 over 2 features, 0.250 with another" in str(report)


def test_a_useless_description_is_at_chance() -> None:
    useless = [Explanation(1, 0, 'fires on "nothing"', False), TRUE[1]]
    report = score_descriptions(useless, TWO, LexiconJudge(valence))
    assert report.scores[0].balanced_accuracy == 0.5
    assert report.scores[0].correlation is None


def test_held_out_texts_only_are_judged() -> None:
    shown = {c.text for f in TWO.features for c in f.shown}
    chat = ScriptedChat(lambda messages: "none")
    score_descriptions(TRUE, TWO, ChatJudge(chat), n_each=6)
    asked = {line.split(". ", 1)[-1] for m in chat.asked for line in m[-1]["content"].splitlines()}
    assert shown.isdisjoint(asked)
    assert {c.text for f in TWO.features for c in f.held_out} <= asked


def test_the_lexicon_judge_reads_lists_feelings_and_free_text() -> None:
    judge = LexiconJudge(valence)
    texts = ("the film was good", "the film was great", "the film was bad", "the film was red .")

    def chances(description: str) -> list[float]:
        verdict = judge.judge([Question(description, texts)])[0]
        assert verdict is not None
        return verdict.tolist()

    assert chances('fires on "good", "red"') == [1, 0, 0, 1]
    assert chances('fires on "good": positive words') == [1, 0.75, 0, 0]
    assert chances("negative things") == [0, 0, 0.75, 0]
    assert chances("words about great things") == [0, 1, 0, 0]
    assert chances('fires on "."') == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("reply", "numbers"),
    [
        ("1, 4", [1, 4]),
        ("2", [2]),
        ("1, 3, and 4.", [1, 3, 4]),
        ("1 and 2", [1, 2]),
        ("[1, 2]", [1, 2]),
        (" None. ", []),
        ("5", None),
        ("0", None),
        ("texts 1 and 2", None),
        ("", None),
        ("I can't tell.", None),
    ],
)
def test_replies_are_read_or_refused(reply: str, numbers: list[int] | None) -> None:
    read = read_numbers(reply, 4)
    assert (read is None) == (numbers is None)
    if read is not None and numbers is not None:
        assert np.flatnonzero(read).tolist() == [n - 1 for n in numbers]


def knowing(messages: list[dict[str, str]]) -> str:
    """Replies as the descriptions' author would."""
    description, texts = messages[-1]["content"].split("\n\nTexts:\n")
    words = POSITIVE if "positive" in description else NEGATIVE
    hits = [line.split(".")[0] for line in texts.splitlines() if line.split()[-1] in words]
    return ", ".join(hits) or "none"


def test_a_chat_model_judges_and_is_asked_nothing_twice(tmp_path: Path) -> None:
    chat, path = ScriptedChat(knowing), tmp_path / "t.jsonl"
    report = score_descriptions(TRUE, TWO, ChatJudge(chat, path))
    assert [s.balanced_accuracy for s in report.scores] == [1.0, 1.0]
    assert len(chat.asked) == 4
    assert score_descriptions(TRUE, TWO, ChatJudge(chat, path)) == report
    assert len(chat.asked) == 4
    assert "positive words" in path.read_text()


def test_unreadable_answers_are_counted_not_guessed() -> None:
    chat = ScriptedChat(lambda messages: "it depends" if "positive" in messages[-1]["content"] else "1, 2")
    report = score_descriptions(TRUE, TWO, ChatJudge(chat))
    assert [s.latent for s in report.scores] == [1]
    assert report.n_unreadable == 2
    assert report.scores[0].other_description is None


def test_features_without_contexts_are_skipped() -> None:
    silent = FeatureContexts(1, 2, (), TWO.features[0].quiet, 0.0)
    three = TopContexts((*TWO.features, silent), {})
    report = score_descriptions([*TRUE, Explanation(1, 2, "never", False)], three, LexiconJudge(valence))
    assert (len(report.scores), report.n_skipped) == (2, 1)
    nothing = score_descriptions(
        [Explanation(1, 2, "never", False)], TopContexts((silent,), {}), LexiconJudge(valence)
    )
    assert nothing.balanced_accuracy is None
    assert "nothing to score" in str(nothing)


def test_the_request_numbers_the_texts() -> None:
    system, user = judge_messages(Question("dogs", ("a dog", "a cat")))
    assert "numbers" in system["content"]
    assert user["content"] == "The feature: dogs\n\nTexts:\n1. a dog\n2. a cat"


def test_explanations_of_other_features_are_refused() -> None:
    with pytest.raises(ValueError, match="in their order"):
        score_descriptions(TRUE[::-1], TWO, LexiconJudge(valence))


def test_balanced_accuracy_by_hand() -> None:
    truth = np.array([True, True, True, False])
    assert balanced_accuracy(truth, np.array([True, False, True, False])) == pytest.approx((2 / 3 + 1) / 2)


def test_the_activation_gap_by_hand() -> None:
    features = np.array([[1.0, 0.0, 2.0], [0.5, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 1.0, 1.0]])
    gap = activation_gap(features, [0, 2], np.array([3.1, 3.0, 1.0, -2.0]))
    assert (gap.chosen_high, gap.chosen_low) == (75.0, 25.0)
    assert gap.all_high == pytest.approx(50.0)
    assert (gap.n_high, gap.n_low) == (2, 2)
    assert "75.0 % of 2 high inputs" in str(gap)


def test_gaps_without_two_sides_are_refused() -> None:
    features = np.ones((2, 3))
    with pytest.raises(ValueError, match="nothing on one side"):
        activation_gap(features, [0], np.array([1.0, 2.0]))
    with pytest.raises(ValueError, match="chosen is empty"):
        activation_gap(features, [], np.array([1.0, 4.0]))
    with pytest.raises(ValueError, match="3 columns"):
        activation_gap(features, [3], np.array([1.0, 4.0]))
    with pytest.raises(ValueError, match="one per input"):
        activation_gap(features, [0], np.array([1.0]))
