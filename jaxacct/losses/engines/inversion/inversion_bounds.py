"""delta and epsilon of any composition, by inverting the Laplace transform of its loss along one vertical line.

With M(z) = prod_k E[exp(z L_k)]^T_k, any theta > 0 and D(eps) = delta(eps),

    integral of e^(theta x) D(x) e^(i w x) dx = M(theta + i w) / ((theta + i w) (theta + 1 + i w)).

The trapezoid sum of the inverse transform is D and its aliases e^(theta k c) D(eps + k c), c = 2 pi / step. Every part
gives its transform as points and weights with a certified error (`losses.engines.lines`), or is put between two
discrete laws (`laws.cells`), whose transforms are finite sums. Powers are pointwise, so the work does not depend on the
number of steps. Every error: docs/proofs/contour.md, and docs/proofs/transforms.md.

Every array has a leading axis of settings, and parts of a composition are the next one; NumPy's or JAX's.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, Real, array_module, filled_up, stopped, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.losses.engines.inversion.composed_transform import (
    Composition,
    Parts,
    PartTransform,
    composition,
    times,
    transforms,
)
from jaxacct.losses.engines.inversion.integrand import integrand, plain_integrand
from jaxacct.losses.engines.inversion.read_off import Known, bound_by_moments, read_delta, read_epsilon
from jaxacct.losses.engines.inversion.saddle_point import spacing_for, tilts_around
from jaxacct.losses.engines.inversion.tilt_plan import Plan, cell_edges, each_group, tilt_plan
from jaxacct.losses.engines.laws.cells import laws
from jaxacct.losses.engines.lines.line import Totals
from jaxacct.losses.engines.lines.line_of_pair import line_of
from jaxacct.losses.engines.lines.listed_line import ListedLine
from jaxacct.losses.engines.lines.normal_line import NormalLine
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.mixture import MixturePair

_BACK = np.array([0.03, 0.1, 0.3, 0.5, 0.8, 1.0])[:, None]  # s of the bound on 1 - delta
_FARTHEST = 4.0  # standard deviations of the tilted loss between the epsilons that one line is made for


class Size(NamedTuple):
    """How many points; static."""

    points: int
    """Points of the quadrature of a step's transform, or cells of its loss."""
    nodes: int
    """Frequencies; a power of 2."""


class Prepared(NamedTuple):
    """A composition on the line: what precedes the reading.

    Attributes:
        plan: where it is inverted, at frequencies ``spacing`` apart.
        below, above: the parts on either side of the truth, the same where their transforms are known.
        tilts, moments: Chernoff's tilts and upper bounds of the composition's log moments there, shape ``(N, B)``.
        back: the same at tilts -s for the bound on 1 - delta, on the lower side; None where epsilon is asked.
        transforms: of the parts above.
        sides: the composed transform, of either side, or of both at once.
    """

    plan: Plan
    below: Parts
    above: Parts
    spacing: Array
    tilts: Array
    moments: Array
    back: Array | None
    transforms: list[PartTransform]
    sides: list[Composition]


def has_lines(groups: tuple[Pair, ...]) -> bool:
    """Whether all pairs give their transforms, so that more frequencies make bounds as tight as one likes."""
    return all(line_of(group) is not None for group in groups)


def decays(groups: tuple[Pair, ...]) -> bool:
    """Whether some pair's transform decays, so that the largest frequencies carry nothing but errors."""
    return any(isinstance(group, GaussianPair | MixturePair) for group in groups)


def inversion_bounds(
    kind: str, size: Size, groups: tuple[Pair, ...], counts: Array, goal: Array, worst: Array | None = None
) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta or epsilon, by ``kind``, shape ``(B,)``, as ``goal``, which is the other one.

    They always hold, and are useless (0 and 1, 0 and inf) where the inversion does not suit the query. Leaves of groups
    have shape ``(B, parts of the group)``; ``counts``, ``(B, K)``, are in the order of the groups. No upper bound needs
    to be smaller than ``worst``, those of other directions; NumPy's only.
    """
    plan = tilt_plan(kind, groups, counts, goal)
    if worst is None:
        return _bounds(kind, size, plan, groups, counts, goal)
    upper, lower = _one_tilt_bound(kind, size, plan, groups, counts, goal), np.zeros(goal.shape)
    rest = np.flatnonzero(~(upper <= worst))
    if rest.size:
        lower[rest], upper[rest] = _bounds(kind, size, *jax.tree.map(lambda x: x[rest], (plan, groups, counts, goal)))
    return lower, upper


def curve_bounds(size: Size, groups: tuple[Pair, ...], counts: Array, goal: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta at epsilons ``goal``, shape ``(B, n)``, for each composition off one line.

    It is that of the first epsilon; what it says of the others holds, and is wider further away. NumPy's only.
    """
    plan = tilt_plan("delta", groups, counts, goal[:, 0])
    reach = np.minimum(np.abs(goal - goal[:, :1]).max(-1), _FARTHEST * plan.deviation)
    low, high = read("delta", prepare("delta", size, plan, groups, counts, reach), goal.T)
    return low.T, high.T


def _bounds(kind: str, size: Size, plan: Plan, groups: tuple[Pair, ...], counts: Array, goal: Array):
    return read(kind, prepare(kind, size, plan, groups, counts), goal)


def prepare(
    kind: str, size: Size, plan: Plan, groups: tuple[Pair, ...], counts: Array, reach: Array | None = None
) -> Prepared:
    """Puts the parts on the line of the plan's tilt, and composes their transforms.

    ``reach`` is how far from the plan's epsilon delta will be read as well: there a tilted loss is rarer, delta smaller
    by the tilt, and aliases closer.
    """
    far, apart = (0.0, 0.0) if reach is None else (reach, 0.5 * (reach / np.maximum(plan.deviation, 1e-300)) ** 2)
    below, above = parts_of(size, plan.deeper(apart + plan.theta * far), groups, counts)
    tilts = tilts_around(plan.theta, plan.deviation)
    back = -_BACK + 0.0 * plan.theta
    joint = below is above and kind == "delta"
    moments = log_moments(above, xp.concatenate([tilts, back]) if joint else tilts)
    at_back = moments[len(tilts) :] if joint else log_moments(below, back) if kind == "delta" else None
    moments = xp.where(tilts > 0, moments[: len(tilts)], 0.0)
    spacing = stopped(spacing_for(plan.theta, tilts, moments, plan.epsilon, plan.log_delta - apart, far))
    found = transforms(above, spacing, size.nodes)
    sides = [composition(found, spacing)]
    if below is not above:
        sides = [composition(transforms(below, spacing, size.nodes), spacing), *sides]
    return Prepared(plan, below, above, spacing, tilts, moments, at_back, found, sides)


def read(kind: str, prepared: Prepared, goal: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta or epsilon of a composition on its line."""
    low, high = totals(prepared.below), totals(prepared.above)
    failed, lost = failures(low, high)
    known = Known(failed, lost, _largest(high))
    given = prepared.sides, prepared.plan, prepared.spacing, prepared.tilts, prepared.moments
    # In a program that has a part whose transform decays, the payoff's own sum is enough: laws narrow what it leaves.
    decays = any(isinstance(line, NormalLine) for line, _ in prepared.above)
    terms = (plain_integrand if decays and array_module(goal) is not np else integrand)(*given)
    if prepared.back is not None:
        back = prepared.back.reshape(-1, *(1,) * (goal.ndim - 1), goal.shape[-1])
        return read_delta(terms, known._replace(floor=_all_but(back, low, goal)), goal)
    return read_epsilon(terms, known, prepared.plan.epsilon, goal)


def parts_of(size: Size, plan: Plan, groups: tuple[Pair, ...], counts: Array) -> tuple[Parts, Parts]:
    """The parts from below and from above; the same list where all pairs give their transforms."""
    below, above = [], []
    for group, many in zip(groups, each_group(counts, groups), strict=True):
        theta, share = (xp.broadcast_to(x[:, None], many.shape) for x in (plan.theta, plan.log_share(counts)))
        made = line_of(group)
        if made is not None:
            low = high = made(theta, share, size.points)
        else:
            law, above_law = laws(group, cell_edges(group, plan, share[:, 0], many, size.points))
            count = above_law.losses.shape[-1]  # as many points, so that a program's functions are the same for both
            below_law = law._replace(
                losses=filled_up(law.losses, count, law.losses[..., -1:]),
                masses=filled_up(law.masses, count, 0.0 * law.masses[..., -1:]),
            )
            low, high = (ListedLine.of_law(law, theta) for law in (below_law, above_law))
        below.append((low, many))
        above.append((high, many))
    return (above if all(low is high for (low, _), (high, _) in zip(below, above, strict=True)) else below), above


def log_moments(parts: Parts, tilts: Array) -> Array:
    """Upper bounds of sum_k T_k log E[exp(t L_k)] at tilts of shape ``(N, B)``."""

    def at(tilts: Array) -> Array:
        each = (
            inflated(times(counts, line.log_moments(tilts)), 8.0 * UNIT * counts.shape[-1]).sum(-1)
            for line, counts in parts
        )
        return cast(Array, sum(each))

    return at(tilts) if array_module(tilts) is np else jax.lax.map(at, tilts)  # one after the other: less to compile


def totals(parts: Parts) -> list[tuple[Totals, Array]]:
    """What is known of each part's law as a whole, and how often it runs."""
    return [(line.totals(), counts) for line, counts in parts]


def _largest(parts: list[tuple[Totals, Array]]) -> Array:
    """What no sum of finite losses exceeds, shape ``(B,)``; NaN where a law is none."""
    found: Real = 0.0
    for whole, counts in parts:
        most = times(counts, whole.largest)
        found = found + most.sum(-1) + UNIT * (8.0 + 2.0 * most.shape[-1]) * abs(most).sum(-1)
    return cast(Array, found)


def failures(below: list[tuple[Totals, Array]], above: list[tuple[Totals, Array]]) -> tuple[Array, Array]:
    """A lower bound of the probability that some loss is infinite; an upper one, with all that was left out."""
    unit = UNIT * (8.0 + sum(counts.shape[1] for _, counts in above))
    none_of = lambda infinite: log1p(-xp.minimum(infinite, 1.0))  # noqa: E731
    log_low = sum(times(counts, none_of(whole.least_infinite)).sum(-1) for whole, counts in below)
    log_high = sum(times(counts, none_of(whole.most_infinite)).sum(-1) for whole, counts in above)
    left = sum(times(counts, whole.left_out).sum(-1) for whole, counts in above)
    failed = -xp.expm1(log_low) * (1.0 - unit * (4.0 - 8.0 * log_low))
    return failed, inflated(-xp.expm1(log_high), unit * (4.0 - 8.0 * log_high)) + inflated(left, 4.0 * unit)


def _all_but(moments: Array, wholes: list[tuple[Totals, Array]], epsilon: Array) -> Array:
    """A lower bound of the hockey stick of finite losses that is good where almost all of them are far above epsilon.

    It is the total mass less the mean of min(1, e^(epsilon - L)) <= e^(s (epsilon - L)), for any s in [0, 1];
    ``moments`` are log E[e^(-s L)].
    """
    log_rest = moments + _BACK.reshape(-1, *(1,) * epsilon.ndim) * epsilon
    log_rest = log_rest + 8.0 * UNIT * (1.0 + xp.abs(moments) + xp.abs(epsilon))
    log_total = 0.0
    for whole, counts in wholes:
        log_total = log_total + inflated(times(counts, whole.log_mass), 8.0 * UNIT).sum(-1)
    log_total = log_total - 8.0 * UNIT * len(wholes) * xp.abs(log_total)
    return xp.exp(log_total) - xp.exp(log_rest.min(0)) - 16.0 * UNIT


def _one_tilt_bound(kind: str, size: Size, plan: Plan, groups: tuple[Pair, ...], counts: Array, goal: Array) -> Array:
    """The upper bound of delta or epsilon by one tilt; NumPy's only."""
    theta, (below, above) = plan.theta[None], parts_of(size, plan, groups, counts)
    lost = failures(totals(below), totals(above))[1]
    return bound_by_moments(kind, theta, log_moments(above, theta), lost, goal)
