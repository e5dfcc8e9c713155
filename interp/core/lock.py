"""One writer per folder: a second run in it is refused, and a dead one's lock is no hindrance."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import socket
import threading
import time
from pathlib import Path

from interp.core.messages import warn_once

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"
_held: set[tuple[str, int]] = set()  # paths of lock files, with the thread that holds them
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


class FolderInUse(ValueError):
    """Another run is writing to the folder."""


class RunLock:
    """Holds a folder while the `with` block runs; the system lets it go with the process, however that ends.

    It isn't inherited by programs that are started. The thread that holds it may take it again (a pipeline that trains
    in its own folder); another thread is refused like another process.

    Args:
        folder: made if need be.
        what: that writes there, as messages name it: "training".
        name: of the lock file, for folders that hold several things.

    Raises:
        FolderInUse: another holds it; the message names its host, process and start.
    """

    def __init__(self, folder: str | os.PathLike[str], what: str, *, name: str = LOCK_FILE) -> None:
        self.folder, self.what = Path(folder), what
        self.path = self.folder / name
        self._descriptor: int | None = None
        self._path = os.path.realpath(self.path)
        self._key = (self._path, 0)

    def __enter__(self) -> RunLock:
        key = (self._path, threading.get_ident())
        if key in _held:
            return self
        try:
            import fcntl
        except ImportError:  # not a POSIX system
            warn_once(logger, "fcntl", "this system has no flock: two runs in one folder go unnoticed")
            return self
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            held = error.errno in (errno.EWOULDBLOCK, errno.EACCES)
            holder = os.pread(descriptor, 4096, 0).decode(errors="replace") if held else ""
            os.close(descriptor)
            if held:
                raise FolderInUse(
                    f"{self.folder} is in use by {_said(holder)}; wait for it, stop it, or choose another folder"
                ) from None
            if error.errno not in _UNSUPPORTED:
                raise
            warn_once(
                logger, "flock", f"{self.folder} can't be locked ({error.strerror}): keep to one run there"
            )
            return self
        about = {
            "what": self.what,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, (json.dumps(about) + "\n").encode(), 0)
        self._descriptor = descriptor
        self._key = key
        _held.add(key)
        return self

    def __exit__(self, *exception: object) -> None:
        if self._descriptor is not None:
            # The file stays: removing it would let one who waits on the old and one who makes a new one both in.
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
            _held.discard(self._key)


def _said(holder: str) -> str:
    with contextlib.suppress(ValueError, TypeError, KeyError):
        about = json.loads(holder)
        return f"another {about['what']} (process {about['pid']} on {about['host']}, since {about['since']})"
    return "another run"
