"""Replies kept as they come, one JSON line each, so that an interrupted or repeated run asks nothing twice."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from interp.core.files import parse_json, read_regular
from interp.core.identity import Identity, canonical
from interp.core.progress import progress

FAILURES_IN_A_ROW = 8
_LINE_BEGINS = b'{"identity"'

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


@dataclass(frozen=True)
class Question(Generic[R]):
    """Something to be asked once.

    Attributes:
        identity: everything that the reply depends on: who is asked, with which parameters, and what.
        ask: asks it; a failure for this question alone is the reply's `error`, what it raises ends the run.
    """

    identity: Identity
    ask: Callable[[], R]


class TranscriptFile(Generic[R]):
    """An append-only file of replies by question; `path=None` keeps them in memory only.

    A line holds what its reply belongs to (`Question.identity`) and a checksum beside it, and is served for that
    question only. One that was cut short or changed, or whose reply can't be read, is left out with a warning, so
    that it is asked for again. One process writes at a time, from any thread.

    Args:
        path: of the file, made with the first reply.
        from_dict: makes a reply of what its `to_dict` wrote; raises ValueError, KeyError or TypeError where it can't.

    Raises:
        ValueError: a file of something else.
    """

    def __init__(self, path: str | os.PathLike[str] | None, from_dict: Callable[[dict[str, Any]], R]) -> None:
        self.path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._replies: dict[str, R] = {}
        self._torn = False
        if self.path is not None and os.path.lexists(self.path):
            self._read(self.path, from_dict)

    def _read(self, path: Path, from_dict: Callable[[dict[str, Any]], R]) -> None:
        data = read_regular(path)
        self._torn = bool(data) and not data.endswith(b"\n")
        unread: dict[int, str] = {}
        for number, line in enumerate(data.split(b"\n"), 1):
            line = line.strip(b" \t\r\0")  # a crash of the machine leaves zeros
            if not line:
                continue
            if not line.startswith(_LINE_BEGINS) and not _LINE_BEGINS.startswith(line):
                raise ValueError(
                    f"{path}, line {number} is no transcript: {line[:40]!r}; name another file, or remove the line"
                )
            try:
                record = parse_json(line, f"line {number}")
                key = Identity.from_dict(record["identity"], f"line {number}").digest
                if record["sum"] != _checksum(key, record["answer"]):
                    raise ValueError("the reply is not the one that was written")
                self._replies[key] = from_dict(record["answer"])
            except (ValueError, KeyError, TypeError) as error:
                unread[number] = f"{type(error).__name__}: {error}"
        if unread:
            number, problem = next(iter(unread.items()))
            logger.warning(
                "%s: %d of its replies can't be read and will be asked for again; the first is line %d, cut short "
                "or changed (%s)",
                path,
                len(unread),
                number,
                problem,
            )

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, question: Question[R]) -> R | None:
        return self._replies.get(question.identity.digest)

    def put(self, question: Question[R], answer: R) -> None:
        """Keep a reply, and what it belongs to; failed ones are not kept."""
        if answer.error is not None:
            return
        key, kept = question.identity.digest, json.loads(json.dumps(answer.to_dict()))
        record = {"identity": question.identity.to_dict(), "sum": _checksum(key, kept), "answer": kept}
        # A lone surrogate, which UTF-8 has no bytes for, becomes its JSON escape.
        line = json.dumps(record, ensure_ascii=False).encode("utf-8", "backslashreplace")
        with self._lock:
            self._replies[key] = answer
            if self.path is None:
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.write((b"\n" if self._torn else b"") + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
            self._torn = False


def _checksum(key: str, answer: Any) -> str:
    return hashlib.sha256(canonical([key, answer]).encode()).hexdigest()


def ask_and_keep(
    questions: Sequence[Question[R]],
    store: TranscriptFile[R],
    workers: int = 1,
    *,
    desc: str = "",
    show_progress: bool = True,
) -> list[R]:
    """A reply to every question, from the store where it has them; new ones go there as they come.

    A failed reply doesn't keep the others from being asked for, unless `FAILURES_IN_A_ROW` of them come one after the
    other: then nothing more is asked. Interrupting leaves what was answered in the store.

    Raises:
        ConnectionError: some replies failed; those that came are kept, so that another try asks for the rest only.
    """
    open_questions = {q.identity.digest: q for q in questions if store.get(q) is None}
    failed: list[str] = []
    in_a_row = 0
    lock = threading.Lock()

    def problem() -> ConnectionError:
        missing = sum(store.get(question) is None for question in open_questions.values())
        return ConnectionError(
            f"{desc}: {len(failed)} of {len(questions)} replies failed ({failed[0]}); run again to ask for the "
            f"{missing} that are missing"
        )

    def ask(question: Question[R]) -> None:
        nonlocal in_a_row
        if in_a_row >= FAILURES_IN_A_ROW:
            raise problem()
        answer = question.ask()
        store.put(question, answer)
        with lock:
            in_a_row = in_a_row + 1 if answer.error is not None else 0
            if answer.error is not None:
                failed.append(answer.error)

    jobs = [partial(ask, question) for question in open_questions.values()]
    side_by_side(jobs, workers, desc=desc, show_progress=show_progress)
    if failed:
        raise problem()
    return [reply for q in questions if (reply := store.get(q)) is not None]


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
