"""The transform of a composition: powers of its parts' transforms, pointwise, with a bound on their error."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.log1p import log1p
from jaxacct.losses.engines.composition import Composition, composition, times
from jaxacct.losses.engines.contour.layers import decay
from jaxacct.losses.engines.contour.quadrature import Quadrature
from jaxacct.losses.engines.contour.transform import Transform, transform
from jaxacct.losses.engines.lines.base import Closed, Line

Parts = list[tuple[Line, Array]]  # a group's line, and how often each of its parts runs

_NEGLIGIBLE = 52.0  # e-foldings of a power below 1 from which on its term is dropped
_CHECKS = 48  # frequencies at which the decay is asked for


class Powers(NamedTuple):
    """A composition at the frequencies that matter.

    Attributes:
        whole: its transform there; ``index`` says which they are, shape ``(n,)``.
        dropped: bound on the modulus at any other frequency, shape ``()``.
        left: bound on the modulus at and beyond frequencies ``checks``, shape ``(B, checks)``, in logarithms.
    """

    whole: Composition
    index: np.ndarray  # pyright: ignore[reportIncompatibleMethodOverride]
    dropped: float
    checks: np.ndarray
    left: Array


def powers(parts: Parts, spacing: Array, nodes: int) -> Powers:
    """The transform of the composition at ``nodes`` multiples of ``spacing``."""
    xp = array_module(spacing)
    quadratures = [line.quadrature(spacing, nodes) for line, _ in parts]
    found, every = [_transform(each, spacing, nodes) for each in quadratures], [count for _, count in parts]
    index, dropped = _that_matter(found, every)
    some = [Transform._make(x[..., index] for x in other) for other in found]

    # The decay is known for all larger frequencies, so a few will do.
    checks = np.unique(np.geomspace(2, nodes - 1, _CHECKS).astype(int))
    left = xp.zeros_like(checks * spacing[:, None])
    for each, counts in zip(quadratures, every, strict=True):
        if each.layer_masses.shape[-1] > 1:
            at = xp.broadcast_to(checks * spacing[:, None, None], (*counts.shape, checks.size))
            fallen = decay(each.layer_masses, each.layer_lengths, at)
            left = left + times(counts[..., None], log1p(-xp.minimum(fallen, 1.0 - 1e-16))).sum(1)
    return Powers(composition(list(zip(quadratures, some, every, strict=True))), index, dropped, checks, left)


def _transform(each: Quadrature | Closed, spacing: Array, nodes: int) -> Transform:
    if isinstance(each, Closed):
        return Transform(each.real, each.imag, each.error)
    found = transform(each.losses, each.weights, spacing, nodes)
    return found._replace(error=found.error + each.error)


def _that_matter(found: list[Transform], every: list[Array]) -> tuple[np.ndarray, float]:
    """Which frequencies have a power that is not negligible, and a bound on all others; all of them in a program."""
    nodes = found[0].real.shape[-1]
    if array_module(found[0].real) is not np:
        return np.arange(nodes), 0.0
    log_bound: Array = 0.0
    for other, counts in zip(found, every, strict=True):
        modulus = np.sqrt((1.0 + other.real) ** 2 + other.imag**2) + other.error
        log_bound = log_bound + times(counts[..., None], np.log(modulus)).sum(1)
    matter = ~(log_bound < -_NEGLIGIBLE).all(0)  # NaN matters
    matter[0] = True
    return np.flatnonzero(matter), 1.01 * float(np.exp(-_NEGLIGIBLE)) * nodes
