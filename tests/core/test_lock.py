"""A folder has one writer; a dead one is no hindrance."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from interp.core.lock import LOCK_FILE, FolderInUse, RunLock
from tests.core.processes import start


def hold(folder, ready):
    with RunLock(folder, "training"):
        ready.touch()
        time.sleep(60)


def refused(folder):
    """What another thread is told that wants the folder."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(FolderInUse) as caught:
        pool.submit(RunLock(folder, "training").__enter__).result()
    return str(caught.value)


def test_a_second_one_is_refused_and_told_of_the_first(tmp_path):
    with RunLock(tmp_path / "run", "training"):
        host = re.escape(socket.gethostname())
        expected = rf"run is in use by another training \(process {os.getpid()} on {host}, since 20"
        assert re.search(expected, refused(tmp_path / "run"))
        with RunLock(tmp_path / "other" / ".." / "run", "a part of the training"):
            pass
        assert "another training" in refused(tmp_path / "run")
        with RunLock(tmp_path / "run", "other things", name=".other"):
            pass
    with RunLock(tmp_path / "run", "training"):
        pass
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [LOCK_FILE, ".other"]


def test_it_is_let_go_when_the_block_fails(tmp_path):
    with pytest.raises(KeyboardInterrupt), RunLock(tmp_path, "training"):
        raise KeyboardInterrupt
    with RunLock(tmp_path, "training"):
        assert (tmp_path / LOCK_FILE).stat().st_size > 0


def test_a_killed_holder_is_no_hindrance(tmp_path):
    ready = tmp_path / "ready"
    process = start(hold, tmp_path, ready)
    try:
        for _ in range(600):
            if ready.exists():
                break
            time.sleep(0.05)
        with pytest.raises(FolderInUse, match=f"process {process.pid} on"), RunLock(tmp_path, "training"):
            pass
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    with RunLock(tmp_path, "training"):
        pass


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\x00", b'{"pid": 3}', b"[]"])
def test_a_damaged_lock_file_still_locks(tmp_path, content):
    with RunLock(tmp_path, "training"):
        (tmp_path / LOCK_FILE).write_bytes(content)
        assert "in use by another run;" in refused(tmp_path)


def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch, caplog):
    import errno
    import fcntl

    def refuse(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with RunLock(tmp_path, "training"):
        pass
    assert "can't be locked" in caplog.text
