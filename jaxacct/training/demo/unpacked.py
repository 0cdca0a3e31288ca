"""Reads gzipped data files up to a size limit."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from jaxacct._files import refuse_special

MOST_BYTES = 2**28  # of one file, unpacked: nothing larger is read into memory


def unpacked(file: Path, kind: str) -> bytes:
    """What ``file``, one of ``kind`` files, holds."""
    refuse_special(file, "path")
    try:
        with gzip.open(file, "rb") as stream:
            raw = stream.read(MOST_BYTES + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise ValueError(f"path must hold gzipped {kind} files, got {file}: {problem}") from None
    if len(raw) > MOST_BYTES:
        raise ValueError(f"path must hold files of at most {MOST_BYTES} bytes, got {file}, which has more")
    return raw
