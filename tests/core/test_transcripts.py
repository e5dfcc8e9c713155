"""Keys of replies and jobs side by side; the file itself is tested through recall's transcripts."""

from __future__ import annotations

import threading
import time

import pytest

from interp.core.transcripts import content_key, side_by_side


def test_a_key_tells_contents_apart_and_does_not_mind_the_order_of_names() -> None:
    assert content_key("m", {"a": 1, "b": 2}) == content_key("m", {"b": 2, "a": 1})
    assert (
        len({content_key("m", [1]), content_key("m", [2]), content_key("n", [1]), content_key(["m", 1])}) == 4
    )


def test_jobs_run_at_the_same_time() -> None:
    together, done = threading.Barrier(3, timeout=20), []

    def job() -> None:
        together.wait()
        done.append(1)

    side_by_side([job] * 6, workers=3, show_progress=False)
    assert len(done) == 6


def test_one_worker_is_the_calling_thread() -> None:
    """A second thread that computes on while Python shuts down after an interrupt aborts the process."""
    threads: list[int] = []
    side_by_side([lambda: threads.append(threading.get_ident())] * 2, workers=1, show_progress=False)
    assert threads == [threading.get_ident()] * 2


def test_a_failing_job_ends_it_and_drops_what_has_not_begun() -> None:
    begun: list[int] = []

    def job(number: int) -> None:
        begun.append(number)
        time.sleep(0.02)  # time for the caller to notice
        raise ValueError("job failed")

    with pytest.raises(ValueError, match="job failed"):
        side_by_side([lambda k=k: job(k) for k in range(200)], workers=2, show_progress=False)
    assert len(begun) < 200
