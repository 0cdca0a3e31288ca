"""`Dataset`, and its sources: gzipped files up to a size limit, and downloads."""

from __future__ import annotations

import gzip
import warnings
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxacct._files import refuse_special

MOST_BYTES = 2**28  # of one file, unpacked: nothing larger is read into memory


class Dataset(NamedTuple):
    """A classification problem.

    Attributes:
        name: what it is called in reports.
        train_x: (train, *features) float32, private.
        train_y: (train,) int32, private.
        test_x: (test, *features) float32, treated as public.
        test_y: (test,) int32, treated as public.
        classes: number of labels.
        source: where the rows came from.
    """

    name: str
    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    classes: int
    source: str


def from_openml(name: str, version: int, files: str) -> Any:
    """scikit-learn's download of a data set; ``files`` says what a folder would have to hold instead."""
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it tries once more
            return fetch_openml(name, version=version, as_frame=False, parser="liac-arff", n_retries=1, delay=0.5)
    except OSError as problem:
        raise ConnectionError(
            f"data {name} could not be downloaded from OpenML ({problem}): give the folder that holds {files} as path "
            "(--path), or use digits, which needs no download"
        ) from None


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
