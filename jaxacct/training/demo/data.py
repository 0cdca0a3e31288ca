"""Data sets for private training, prepared with public constants only.

Nothing here looks at one record to decide how another is encoded: scales, bins and categories are constants
from the data sets' documentation. A mean, a vocabulary or a largest value taken from the rows would be an
unaccounted release. The number of training examples and the whole held-out part are treated as public.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from jaxacct import _validate
from jaxacct._files import as_path
from jaxacct.training.demo.adult import adult
from jaxacct.training.demo.dataset import Dataset, from_openml, unpacked

DATASETS = ("digits", "adult", "mnist")


def load_data(name: str, path: str | Path | None = None) -> Dataset:
    """The data set ``name``: "digits" (bundled), "adult" or "mnist" (from ``path``; without one, OpenML).

    Raises:
        ValueError: an unknown name, or files that are not what they should be.
        FileNotFoundError: a file that is missing under ``path``.
    """
    _validate.one_of(DATASETS, data=name)
    if name == "digits":
        return digits()
    path = None if path is None else as_path(path=path)
    return adult(path) if name == "adult" else mnist(path)


def digits() -> Dataset:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 x 1, pixels over 16: 1,437 to train on, 360 held out.

    Each image is centred and scaled to unit root mean square by its own pixels.
    """
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    x = (bunch.images.astype(np.float32) / 16.0)[..., None]
    return _split("digits", _normalise(x), bunch.target, 360, "scikit-learn, bundled")


def mnist(folder: Path | None) -> Dataset:
    """MNIST, 28 x 28 x 1, each image centred and scaled from its own pixels.

    With ``folder``: the IDX files ``train-images-idx3-ubyte.gz`` and so on; where only the 10,000 ``t10k``
    images are there, 8,000 are for training and 2,000 are held out. Without: scikit-learn's OpenML loader
    (a download).
    """
    if folder is None:
        bunch = from_openml("mnist_784", 1, "t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz and maybe train-*")
        x = np.asarray(bunch.data, np.float32).reshape(-1, 28, 28, 1) / 255.0
        return _split("mnist", _normalise(x), np.asarray(bunch.target).astype(np.int32), 10_000, "OpenML mnist_784")
    test_x, test_y = _read_images(folder, "t10k")
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        return _split("mnist", test_x, test_y, 2_000, f"{folder} (t10k files only, split)")
    train_x, train_y = _read_images(folder, "train")
    return Dataset("mnist", train_x, train_y, test_x, test_y, 10, str(folder))


def _read_images(folder: Path, prefix: str) -> tuple[np.ndarray, np.ndarray]:
    images = _read_idx(folder / f"{prefix}-images-idx3-ubyte.gz", 3)
    labels = _read_idx(folder / f"{prefix}-labels-idx1-ubyte.gz", 1)
    if len(images) != len(labels):
        raise ValueError(
            f"path {folder} must hold as many {prefix} labels as images, got {len(labels)} and {len(images)}"
        )
    if labels.max() > 9:
        raise ValueError(f"path {folder} must hold labels from 0 to 9, got {labels.max()}")
    return _normalise(images.astype(np.float32)[..., None] / 255.0), labels.astype(np.int32)


def _read_idx(file: Path, dimensions: int) -> np.ndarray:
    raw = unpacked(file, "IDX")
    header = 4 + 4 * dimensions
    if len(raw) < header or raw[:4] != bytes([0, 0, 8, dimensions]):
        raise ValueError(f"path must hold IDX files of {dimensions} dimensions of bytes, got {file}")
    shape = tuple(int(size) for size in np.frombuffer(raw, ">u4", dimensions, offset=4))
    if len(raw) - header != math.prod(shape) or not math.prod(shape):
        raise ValueError(f"path must hold complete IDX files, got {file} with {len(raw) - header} bytes for {shape}")
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def _normalise(images: np.ndarray) -> np.ndarray:
    """Each image minus its own mean, over its own root mean square: one record at a time."""
    centred = images - images.mean(axis=(1, 2, 3), keepdims=True)
    size = np.sqrt((centred**2).mean(axis=(1, 2, 3), keepdims=True))
    return (centred / np.maximum(size, 1e-3)).astype(np.float32)


def _split(name: str, x: np.ndarray, y: np.ndarray, held_out: int, source: str) -> Dataset:
    """A fixed permutation (public, blind to the rows), the last ``held_out`` of which are held out."""
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:-held_out], order[-held_out:]
    x, y = x.astype(np.float32), y.astype(np.int32)
    return Dataset(name, x[train], y[train], x[test], y[test], 10, source)
