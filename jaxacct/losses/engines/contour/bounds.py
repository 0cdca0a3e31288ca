"""delta and epsilon by inverting the Laplace transform of the composed loss, every error bounded.

With M(z) = prod_k E[exp(z L_k)]^T_k, any theta > 0 and D(eps) = delta(eps),

    integral of e^(theta x) D(x) e^(i w x) dx = M(theta + i w) / ((theta + i w) (theta + 1 + i w)).

The trapezoid sum of the inverse transform is D and its aliases e^(theta k c) D(eps + k c), c = 2 pi / step. These,
frequencies that are left out, errors of M and its powers, and what tapers leave out: docs/proofs/contour.md. Near 1,
1 - delta(eps) = E_P[min(1, e^(eps - L))] <= e^(s eps) M(-s) for 0 <= s <= 1, and no contour is needed.

The work does not depend on the number of steps, and the relative error is some 1e-9, not a grid's spacing. Every array
has a leading axis of settings, and parts of a composition are the next one; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, array_module, pick, running_total, stopped
from jaxacct._numerics.least import first_least
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.losses.engines.composition import composition, times
from jaxacct.losses.engines.contour.layers import decay
from jaxacct.losses.engines.contour.plan import Plan, plan
from jaxacct.losses.engines.contour.points import Points, placed
from jaxacct.losses.engines.contour.quadrature import Quadrature, law_and_moments, quadrature
from jaxacct.losses.engines.contour.read_off import Integrand, chernoff, read_delta, read_epsilon, trimmed
from jaxacct.losses.engines.contour.tilted import composed, composed_left_out, digits_of, tilted_upper
from jaxacct.losses.engines.contour.transform import Transform, transform
from jaxacct.losses.engines.saddle_point import spacing_for, tilts_around
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

BACK = np.array([0.03, 0.1, 0.3, 0.5, 0.8, 1.0])[:, None]  # s of the bound on 1 - delta


class Size(NamedTuple):
    """How many points; static."""

    points: int
    """Points of a step's quadrature."""
    nodes: int
    """Frequencies; a power of 2."""


class Prepared(NamedTuple):
    """What precedes the transform: the plan, points and tilted loss of every part, Chernoff's bounds, the spacing.

    ``rest`` bounds 1 - D(plan.epsilon).
    """

    plan: Plan
    points: Points
    parts: Quadrature
    tilts: Array
    log_moments: Array
    spacing: Array
    left_out: Array
    rest: Array


def contour_bounds(
    kind: str, size: Size, pairs: GaussianPair, counts: Array, goal: Array, worst: Array | None = None
) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta or epsilon, by ``kind``, for compositions of GaussianPairs, shape ``(B,)``.

    They always hold, and are useless (0 and 1, 0 and inf) where the contour does not suit the query. Leaves of
    ``pairs`` and ``counts`` have shape ``(B, K)``; ``goal`` is epsilon where ``kind`` is ``"delta"``, and the other way
    round. No upper bound needs to be smaller than ``worst``, those of other directions; NumPy's only.
    """
    chosen = plan(kind, pairs, counts, goal)
    if worst is not None:
        upper = tilted_upper(kind, size.points, pairs, chosen.theta, chosen.cut, counts, goal)
        rest, lower = np.flatnonzero(~(upper <= worst)), np.zeros(goal.shape)
        if rest.size:
            chosen, *some = jax.tree.map(lambda x: x[rest], (chosen, pairs, counts, goal))
            lower[rest], upper[rest] = _bounds_by(kind, size, chosen, *some)
        return lower, upper
    return _bounds_by(kind, size, chosen, pairs, counts, goal)


def _bounds_by(
    kind: str, size: Size, chosen: Plan, pairs: GaussianPair, counts: Array, goal: Array
) -> tuple[Array, Array]:
    prepared = prepare(kind, size, pairs, counts, goal, chosen)
    return bounds_on(kind, prepared, integrand(size, prepared, counts)[0], pairs, counts, goal)


def bounds_on(
    kind: str, prepared: Prepared, terms: Integrand, pairs: GaussianPair, counts: Array, goal: Array
) -> tuple[Array, Array]:
    """Bounds from the terms of :func:`integrand`; see :func:`contour_bounds`."""
    lower, upper = _read(kind, prepared, terms, goal)
    # No loss exceeds the sum of the largest ones: beyond it delta is 0.
    xp = array_module(goal)
    largest = inflated(times(counts, pairs.max_loss()).sum(-1), 1e-9)
    if kind == "delta":
        return xp.where(goal > largest, 0.0, lower), xp.where(goal > largest, 0.0, upper)
    upper = xp.where(largest < upper, largest, upper)
    return xp.minimum(lower, upper), upper


def _read(kind: str, prepared: Prepared, terms: Integrand, goal: Array) -> tuple[Array, Array]:
    terms = trimmed(terms)
    if kind == "delta":
        xp = array_module(goal)
        lower, upper, _, _ = read_delta(terms, goal)
        upper = xp.minimum(upper, chernoff(terms, goal))
        return xp.minimum(xp.maximum(lower, 1.0 - prepared.rest - 4.0 * UNIT), upper), upper
    return read_epsilon(terms, prepared.plan.epsilon, goal)


def integrand(size: Size, prepared: Prepared, counts: Array) -> tuple[Integrand, Transform]:
    """The terms whose sum is delta, and the transforms that they are powers of."""
    found = transform(prepared.parts.losses, prepared.parts.weights, prepared.spacing, size.nodes)
    return _integrand(prepared, counts, found), found


def prepare(
    kind: str, size: Size, pairs: GaussianPair, counts: Array, goal: Array, chosen: Plan | None = None
) -> Prepared:
    """Chooses the contour and puts every part's tilted loss on points: all that comes before the transform."""
    chosen = chosen or plan(kind, pairs, counts, goal)
    theta, cut, xp = chosen.theta, chosen.cut, array_module(chosen.theta)
    wide = xp.broadcast_to(theta[:, None], counts.shape)
    points = placed(pairs, wide, size.points, digits_of(counts), cut)

    tilts = tilts_around(theta, chosen.deviation)
    back = (BACK if kind == "delta" else BACK[:0]) + 0.0 * theta
    every = xp.broadcast_to(xp.concatenate([tilts, -back])[..., None], (len(tilts) + len(back), *counts.shape))
    law, moments = law_and_moments(pairs, wide, every, cut, points)
    moments, missing = composed(moments, counts), composed_left_out(pairs, counts, cut)
    rest = xp.ones_like(theta)
    if kind == "delta":  # no epsilon asks for it
        one, other = moments[tilts.shape[0] :], back * chosen.epsilon
        rest = one + other + 8.0 * UNIT * (xp.abs(one) + xp.abs(other) + 1.0)
        rest = inflated(xp.exp(xp.clip(rest, -600.0, 0.0)).min(0), 1e-12) + missing
        rest = xp.where(rest <= 1.0, rest, 1.0)
    moments = xp.where(tilts > 0, moments[: tilts.shape[0]], 0.0)

    spacing = stopped(spacing_for(theta, tilts, moments, chosen.epsilon, chosen.log_delta))
    each = xp.broadcast_to(spacing[:, None], counts.shape)
    parts = quadrature(pairs, wide, cut, points, each, size.nodes, law)
    return Prepared(chosen, points, parts, tilts, moments, spacing, stopped(missing), stopped(rest))


def _strided(nodes: int) -> np.ndarray:
    """Every fourth frequency, and from the 128th on each that is 3 % larger than the last."""
    far = (128 * 1.03 ** np.arange(max(np.log(nodes / 128) / np.log(1.03), 0.0))).astype(int)
    return np.unique(np.append(np.arange(0, min(nodes, 128), 4), far))


def _integrand(prepared: Prepared, counts: Array, found: Transform) -> Integrand:
    """The powers of the transform, every error, and where to cut off."""
    chosen, parts, spacing = prepared.plan, prepared.parts, prepared.spacing
    xp = array_module(spacing)
    theta, nodes = chosen.theta, found.real.shape[-1]
    found = found._replace(error=parts.error + found.error)
    whole = composition([(parts, found, counts)])
    index = np.arange(nodes)
    frequencies = index * spacing[:, None]
    t = theta[:, None]
    squares = frequencies**2
    size_of = xp.sqrt(t**2 + squares) * xp.sqrt((t + 1.0) ** 2 + squares)
    angle = whole.angle - xp.arctan2(frequencies, t) - xp.arctan2(frequencies, t + 1.0)
    weight = spacing[:, None] / np.pi * np.where(index > 0, 1.0, 0.5) / size_of

    # Cut off where errors of further terms would outweigh what the decay bounds.
    # The decay is known for all larger frequencies, so some will do.
    at = _strided(nodes)
    some = xp.broadcast_to(frequencies[:, None, at], (*counts.shape, at.size))
    fallen = decay(parts.layer_masses, parts.layer_lengths, some)
    left = times(counts[..., None], log1p(-xp.minimum(fallen, 1.0 - 1e-16))).sum(1)
    left = left[:, np.searchsorted(at, index, side="right") - 1]
    beyond = xp.exp(left) / np.pi / xp.maximum(frequencies - spacing[:, None], 1e-300)
    beyond = xp.where(index >= 2, beyond, np.inf)
    total = running_total(weight * whole.off)[:, :-1] + beyond[:, 1:]  # if terms 0 to j are kept
    last = first_least(total)
    kept = index <= last[:, None]
    amplitude = xp.where(kept, weight * whole.power, 0.0)
    return Integrand(
        theta,
        whole.mean,
        whole.mean_error,
        whole.log_total,
        whole.log_error,
        spacing,
        amplitude * xp.cos(angle),
        amplitude * xp.sin(angle),
        inflated(pick(total, last), 1e-9) + (amplitude * UNIT * 16.0 * (1.0 + xp.abs(angle))).sum(-1),
        (amplitude * frequencies).sum(-1),
        prepared.tilts,
        prepared.log_moments,
        prepared.left_out,
    )
