"""What a data set is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Dataset"]


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
