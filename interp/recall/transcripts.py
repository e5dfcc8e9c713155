"""Answers kept as they come, so that an interrupted or repeated run asks nothing twice."""

from __future__ import annotations

import os
from functools import partial

from interp.core.identity import Identity
from interp.core.transcripts import Question, TranscriptFile
from interp.recall.answers import Answer, Recaller
from interp.recall.prompts import RecallPrompt


def recall_question(recaller: Recaller, prompt: RecallPrompt, sample: int) -> Question[Answer]:
    """A prompt put to a recaller, with all that the answer depends on."""
    identity = Identity.of(
        "reply",
        model=recaller.name,
        parameters=recaller.parameters,
        messages=prompt.messages,
        pairs=prompt.pairs,
        sample=sample,
    )
    return Question(identity, partial(recaller.answer, prompt, sample))


class Transcripts(TranscriptFile[Answer]):
    """An append-only file of answers by question, see `TranscriptFile`; `path=None` keeps them in memory only."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(path, Answer.from_dict)
