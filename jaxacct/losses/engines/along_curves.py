"""Reads delta at many epsilons of one composition off few lines of inversion.

The inequality of docs/proofs/contour.md holds at every epsilon, whatever line was chosen. Its bounds are narrow up to a
few standard deviations of the tilted loss away from the epsilon that the line was chosen for. So curves cost little
more than a few of their points.
"""

from __future__ import annotations

import functools

import jax
import numpy as np

from jaxacct.losses.engines.inversion.inversion_bounds import Size, curve_bounds
from jaxacct.losses.engines.narrowing import Narrowing

_FEWEST = 6  # epsilons of one composition that are a curve
_LINES = 8  # for one curve at most
_TOGETHER = 3  # epsilons on one line at least


def along_curves(batch: Narrowing, size: Size, members: np.ndarray, width: float) -> np.ndarray:
    """Narrows the members that belong to curves; returns the members that are still open."""
    for rows in _curves(batch, members):
        run = functools.partial(curve_bounds, size)
        batch.asked(run, size.points * size.nodes**0.5, rows)
    return batch.still_open(members, width)


def _curves(batch: Narrowing, members: np.ndarray) -> list[np.ndarray]:
    """Members with one composition, in the order of their epsilons: arrays of a row for each line.

    The first of a row lies in its middle, and may be repeated.
    """
    if members.size < _FEWEST:
        return []
    groups, counts, goal = batch.query(members)
    leaves = [leaf.reshape(members.size, -1) for leaf in jax.tree.leaves((groups, counts))]
    _, each, sizes = np.unique(np.concatenate(leaves, 1), axis=0, return_inverse=True, return_counts=True)
    found: dict[int, list[np.ndarray]] = {}
    order = np.lexsort((goal, each))
    ends = np.cumsum(sizes)
    for start, end in zip(ends - sizes, ends, strict=True):
        if end - start < _FEWEST:
            continue
        own, together = members[order[start:end]], max(_TOGETHER, -(-(end - start) // _LINES))
        for first in range(0, own.size, together):
            row = own[first : first + together]
            middle = row[[row.size // 2]]
            row = np.concatenate([middle, row, np.repeat(middle, together - row.size)])
            found.setdefault(together, []).append(row)
    return [np.array(rows) for rows in found.values()]
