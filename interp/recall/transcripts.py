"""Replies kept as they come, one JSON line each, so that an interrupted or repeated run asks nothing twice."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from pathlib import Path
from typing import Any

from interp.recall.answers import Answer, Recaller
from interp.recall.prompts import RecallPrompt

logger = logging.getLogger(__name__)


def transcript_key(recaller: Recaller, prompt: RecallPrompt, sample: int) -> str:
    """SHA-256 of everything a reply depends on: backend, parameters, all messages, pairs, number of the sample."""
    content = [recaller.name, recaller.parameters, prompt.messages, prompt.pairs, sample]
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


class Transcripts:
    """An append-only file of replies by key; `path=None` keeps them in memory only.

    A line cut short by a crash is left out with a warning; one process writes at a time, from any thread.

    Raises:
        ValueError: a whole line that isn't a transcript.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._answers: dict[str, Answer] = {}
        self._torn = False
        if self.path is not None and self.path.is_file():
            self._read(self.path)

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        self._torn = bool(data) and not data.endswith(b"\n")
        lines = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                self._answers[record["key"]] = Answer.from_dict(record["answer"])
            except (ValueError, KeyError, TypeError) as error:
                # Torn lines stay in the file; what follows them was written later and is whole.
                if not line.startswith(b'{"key"'):
                    raise ValueError(
                        f"{path}, line {number} is no transcript ({error}); remove it"
                    ) from error
                logger.warning("%s, line %d was cut short; that reply will be asked for again", path, number)

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> Answer | None:
        return self._answers.get(key)

    def put(self, key: str, answer: Answer, **context: Any) -> None:
        """Keep a reply (and, in the file, what it belongs to); failed ones are not kept."""
        if answer.error is not None:
            return
        line = json.dumps({"key": key, **context, "answer": answer.to_dict()}, ensure_ascii=False)
        with self._lock:
            self._answers[key] = answer
            if self.path is None:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(("\n" if self._torn else "") + line + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._torn = False
