"""Answers kept as they come, so that an interrupted or repeated run asks nothing twice."""

from __future__ import annotations

import os

from interp.core.transcripts import TranscriptFile, content_key
from interp.recall.answers import Answer, Recaller
from interp.recall.prompts import RecallPrompt


def transcript_key(recaller: Recaller, prompt: RecallPrompt, sample: int) -> str:
    """SHA-256 of everything a reply depends on: backend, parameters, all messages, pairs, number of the sample."""
    return content_key(recaller.name, recaller.parameters, prompt.messages, prompt.pairs, sample)


class Transcripts(TranscriptFile[Answer]):
    """An append-only file of answers by key, see `TranscriptFile`; `path=None` keeps them in memory only."""

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(path, Answer.from_dict)
