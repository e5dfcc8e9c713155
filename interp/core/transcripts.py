"""Replies kept as they come, one JSON line each, so that an interrupted or repeated run asks nothing twice."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from interp.core.progress import progress

logger = logging.getLogger(__name__)


class Reply(Protocol):
    """What transcripts keep: written as a dictionary, failed where `error` isn't None."""

    @property
    def error(self) -> str | None: ...

    def to_dict(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=Reply)


def content_key(*content: Any) -> str:
    """SHA-256 of JSON values: of everything that a reply depends on."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


class TranscriptFile(Generic[R]):
    """An append-only file of replies by key; `path=None` keeps them in memory only.

    A line cut short by a crash is left out with a warning; one process writes at a time, from any thread.

    Args:
        path: of the file, made with the first reply.
        from_dict: makes a reply of what its `to_dict` wrote.

    Raises:
        ValueError: a whole line that isn't a transcript.
    """

    def __init__(self, path: str | os.PathLike[str] | None, from_dict: Callable[[dict[str, Any]], R]) -> None:
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._replies: dict[str, R] = {}
        self._torn = False
        if self.path is not None and self.path.is_file():
            self._read(self.path, from_dict)

    def _read(self, path: Path, from_dict: Callable[[dict[str, Any]], R]) -> None:
        data = path.read_bytes()
        self._torn = bool(data) and not data.endswith(b"\n")
        lines = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                self._replies[record["key"]] = from_dict(record["answer"])
            except (ValueError, KeyError, TypeError) as error:
                # Torn lines stay in the file; what follows them was written later and is whole.
                if not line.startswith(b'{"key"'):
                    raise ValueError(
                        f"{path}, line {number} is no transcript ({error}); remove it"
                    ) from error
                logger.warning("%s, line %d was cut short; that reply will be asked for again", path, number)

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, key: str) -> R | None:
        return self._replies.get(key)

    def put(self, key: str, answer: R, **context: Any) -> None:
        """Keep a reply (and, in the file, what it belongs to); failed ones are not kept."""
        if answer.error is not None:
            return
        line = json.dumps({"key": key, **context, "answer": answer.to_dict()}, ensure_ascii=False)
        with self._lock:
            self._replies[key] = answer
            if self.path is None:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(("\n" if self._torn else "") + line + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._torn = False


def side_by_side(
    jobs: Sequence[Callable[[], None]], workers: int, *, desc: str = "", show_progress: bool = True
) -> None:
    """Run jobs, `workers` at a time; the first that fails, or an interrupt, ends it and drops those not begun.

    One worker is this thread: an interrupt reaches the job, and no thread computes on while Python shuts down.
    """
    bar = progress(total=len(jobs), desc=desc, enabled="auto" if show_progress and jobs else False)
    if workers == 1:
        with bar:
            for job in jobs:
                job()
                bar.update()
        return
    with bar, ThreadPoolExecutor(max_workers=workers) as pool:
        futures = [pool.submit(job) for job in jobs]
        try:
            for done in as_completed(futures):
                done.result()
                bar.update()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
