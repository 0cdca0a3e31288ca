"""Checks that a database file has one name: under a second one it would have a journal and a lock of its own."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from jaxacct.ledger.errors import LedgerUnavailable


def has_one_name(path: Path) -> None:
    """Raises LedgerUnavailable for a file with hard links, or one that is mounted without its folder."""
    if path.stat().st_nlink > 1:
        # A creator that was killed between its last two steps, or is about to do the second.
        for part in path.parent.iterdir():
            if part.name.startswith(f"{path.name}.") and part.name.endswith(".part"):
                with contextlib.suppress(FileNotFoundError):
                    if part.samefile(path):
                        part.unlink()
    if (names := path.stat().st_nlink) > 1:
        raise LedgerUnavailable(
            f"{path} has {names} names (hard links), each with a lock of its own: keep one; `jaxacct ledger backup` "
            "makes a copy"
        )
    if _is_mounted(path):
        raise LedgerUnavailable(
            f"{path} is mounted as a single file, without the lock beside it: mount the folder that holds it"
        )


def _is_mounted(path: Path) -> bool:
    """Whether a file is a mount of its own, as far as Linux says so."""
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return False
    # The fifth field; blanks, line ends and backslashes in octal.
    name = re.sub(rb"[ \t\n\\]", lambda found: b"\\%03o" % found[0][0], os.fsencode(path))
    return any(line.split(b" ")[4] == name for line in mounts)
