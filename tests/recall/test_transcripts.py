"""What recall's transcripts hold an answer for."""

from __future__ import annotations

from pathlib import Path

from interp.models.chat import Token
from interp.recall.answers import Answer
from interp.recall.scripted import NoisyRecaller
from interp.recall.transcripts import Transcripts, recall_question
from tests.recall.stories import prompt


def test_answers_come_back(tmp_path: Path) -> None:
    path, question = tmp_path / "t.jsonl", recall_question(NoisyRecaller(), prompt(5), 0)
    given = Answer("é\n1", (Token("é\n1", -0.5, {"b": -1.0}),), cost=0.5, choices=(0.25, 1.0))
    Transcripts(path).put(question, given)
    assert Transcripts(path).get(question) == given


def test_a_question_holds_all_that_an_answer_depends_on() -> None:
    base = NoisyRecaller(seed=1), prompt(5), 0
    variants = [
        (NoisyRecaller(seed=2), prompt(5), 0),
        (NoisyRecaller(seed=1), prompt(5, clearance=2), 0),
        (NoisyRecaller(seed=1), prompt(5, priming="male"), 0),
        (NoisyRecaller(seed=1), prompt(5, permute_pairs=True), 0),
        (NoisyRecaller(seed=1), prompt(5, seed=1), 0),
        (NoisyRecaller(seed=1), prompt(5), 1),
    ]
    keys = {recall_question(*v).identity.digest for v in [base, *variants]}
    assert len(keys) == 7
    again = recall_question(NoisyRecaller(seed=1), prompt(5), 0)
    assert recall_question(*base).identity == again.identity
