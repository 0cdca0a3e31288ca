"""Tells which files are safe to read: regular ones (a pipe would block, a device never ends), and one's own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None


def as_path(**named: str | os.PathLike[str]) -> Path:
    """A value as a path."""
    ((name, value),) = named.items()
    try:
        text = os.fsdecode(value)
    except TypeError:
        text = ""
    if not text or "\0" in text:
        raise ValueError(f"{name} must be a path, got {value!r:.200}")
    return Path(text)


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Whether ``path`` leads to a regular file. It may be a link to one."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def refuse_special(path: str | os.PathLike[str], what: str) -> None:
    """Raises ValueError where ``path`` exists and is no regular file: a folder, pipe, device, a link to one."""
    mode = _mode(path)
    if mode is not None and not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise ValueError(f"{what} must be a regular file, got {path}, which is {kind}")


def refuse_special_in(folder: Path, what: str) -> None:
    """Raises ValueError where ``folder`` is there and no folder, or something in it is neither a file nor a folder."""
    mode = _mode(folder)
    if mode is None:
        return
    if not stat.S_ISDIR(mode):
        raise ValueError(f"{what} must be a folder, got {folder}, which is not a folder")
    for place, _, names in os.walk(folder):
        for name in names:
            refuse_special(Path(place) / name, what)


def not_ones_own(found: os.stat_result) -> str | None:
    """Why a file or folder may hold what somebody else put there, in words; None for one that only this user writes."""
    if not hasattr(os, "geteuid"):  # Windows, whose rights are not in a mode
        return None
    if found.st_uid != os.geteuid():
        return f"belongs to user {found.st_uid}, not to user {os.geteuid()} who runs this"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"may be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    return None


def replace(path: Path, data: bytes) -> None:
    """Writes a file under another name first, so that a reader never sees half of it."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(data)
    os.replace(partial, path)


def to_disk(handle: int) -> None:
    """Returns when what was written to an open file is on the disk, not in the drive's own cache."""
    os.fsync(handle)
    if fcntl is not None and hasattr(fcntl, "F_FULLFSYNC"):  # macOS, where fsync stops at that cache
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)


def sync_folder(folder: Path) -> None:
    """Returns when the folder is on the disk: a new file's name is there only then."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        to_disk(handle)
    finally:
        os.close(handle)


def _mode(path: str | os.PathLike[str]) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None
