"""Locks a database file by the flock of a file beside it, which holds nothing and is never removed.

SQLite locks by POSIX locks. Those belong to a process and end when it closes *any* descriptor of the file: a thread
that copies or hashes the folder takes them away from the thread that charges. A flock belongs to the open file that
took it, so only who has it can give it back. It orders threads as well as processes, and ends with the process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from jaxacct.ledger.errors import LedgerBusy, LedgerUnavailable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_FIRST, _LONGEST = 0.0005, 0.02  # seconds between two attempts


@contextlib.contextmanager
def held(path: Path, of: Path, *, exclusive: bool, timeout: float) -> Iterator[Callable[[], bool]]:
    """Holds the lock file ``path`` of the database ``of``, alone or with other readers.

    The value tells whether others still find the file that is locked here under its name. A reader who may neither
    open nor make the file goes on without it, by SQLite's own locks.

    Raises:
        LedgerBusy: others held it for longer than ``timeout`` seconds.
        LedgerUnavailable: something else than a file is there, or the system has no flock.
        OSError: the file cannot be opened or made.
    """
    if fcntl is None:
        raise LedgerUnavailable(f"{of}: a ledger in a file needs flock, which this system lacks: give a PostgreSQL URL")
    try:
        file = _taken(path, of, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH, timeout)
    except OSError as problem:
        if exclusive or problem.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        file = None
    if file is None:
        yield lambda: True
        return
    process = os.getpid()
    try:
        yield lambda: _is_named(file, path)
    finally:
        if os.getpid() == process:  # a child that was forked in between shares the lock, and ends only its own part
            fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def _taken(path: Path, of: Path, kind: int, timeout: float) -> int:
    assert fcntl is not None
    deadline, pause = time.monotonic() + timeout, _FIRST
    while True:
        file = _opened(path, of)
        try:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                if _is_named(file, path):
                    return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        if time.monotonic() >= deadline:
            raise LedgerBusy(f"{of}: others held the lock {path.name} for longer than {timeout:g} s")
        time.sleep(min(pause * random.uniform(0.5, 1.5), max(0.0, deadline - time.monotonic())))
        pause = min(2 * pause, _LONGEST)


def _opened(path: Path, of: Path) -> int:
    """The lock file, made if missing for whoever may use the database."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.open(path, flags)
    except FileNotFoundError:
        mode = stat.S_IMODE(of.stat().st_mode) & 0o666
        try:
            file = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode)
            os.fchmod(file, mode)
        except FileExistsError:
            file = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise LedgerUnavailable(f"{of}: {path} must be a regular file")
    return file


def _is_named(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False
