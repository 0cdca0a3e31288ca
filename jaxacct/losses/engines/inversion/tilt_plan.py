"""`tilt_plan` chooses the tilt of the inversion and guesses the answer, from rough laws; nothing here is certified."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, logsumexp, pick, repeated, xp
from jaxacct._numerics.least import first_least
from jaxacct._numerics.rows import settings_shapes
from jaxacct.losses.engines.inversion.composed_transform import times
from jaxacct.losses.engines.inversion.saddle_point import best_tilt, estimate, searched_between, steeper, tilt_bound
from jaxacct.losses.engines.lines.taper import log_taper_above, reach_of
from jaxacct.mechanisms.pairs.base import Pair, sorted_survey
from jaxacct.mechanisms.pairs.cells import placed, with_edge

_TRIED, _TIMES = 12, 4  # tilts, between neighbours of the best one of the last time
_NEXT = 0.1  # distance of neighbours, as logarithms, from which on the next but one counts
_JUMP = 3.0  # e-foldings of delta that a slightly larger tilt may lose
_LEFT_OUT = 21.0  # e-foldings between delta and the probability of what is left out
_FAR = 2000.0  # e-foldings below 1 of what no tilt brings back
_ENDS = 600.0  # e-foldings below 1 of a mass that is no atom but where a survey ends
_BELOW = 60.0  # e-foldings below 1 of the probability of negative losses that matter at no positive tilt
_WHOLE = 34.0  # e-foldings between M(theta) and what lies below the first edge

Survey = tuple[Array, Array]  # sorted losses and the logarithms of their masses, shape (B, parts, points)


class Plan(NamedTuple):
    """Where to invert, shape ``(B,)``.

    Attributes:
        theta: the tilt.
        epsilon, log_delta: the question and a guess of the answer.
        deviation: standard deviation of the tilted loss.
    """

    theta: Array
    epsilon: Array
    log_delta: Array
    deviation: Array

    def log_share(self, counts: Array) -> Array:
        """Logarithm of the probability that each run may leave out, shape ``(B,)``."""
        return self.log_delta - _LEFT_OUT - xp.log(counts.sum(-1))

    def deeper(self, foldings: Array | float) -> Plan:
        """For a delta that is so many e-foldings smaller."""
        return self._replace(log_delta=self.log_delta - foldings)


def tilt_plan(kind: str, groups: tuple[Pair, ...], counts: Array, goal: Array) -> Plan:
    """A tilt near the saddle point: an error there costs digits only in proportion to its square.

    It is that of the best bound on log delta or epsilon (:func:`~saddle_point.tilt_bound`), which stays sensible where
    the saddle-point approximation does not: losses that are rare and large. Losses that are too rare to matter are left
    out, as the inversion leaves them out: otherwise they decide at large tilts.
    """
    whole = [sorted_survey(group) for group in groups]
    many, log_runs = each_group(counts, groups), xp.log(counts.sum(-1))

    def composed(each: Iterable[Array]) -> Array:
        return cast(Array, sum(times(count, one).sum(-1) for count, one in zip(many, each, strict=True)))

    def log_moment(t: Array, surveys: list[Survey]) -> Array:
        """Of the composition at tilts of shape ``(..., B)``; inf where a survey ends too early for them."""
        found = []
        for losses, log_masses in surveys:
            exponent = log_masses + t[..., None, None] * losses
            each, top = logsumexp(exponent), exponent[..., -1]
            found.append(xp.where((log_masses[..., -1] < -_ENDS) & (top > each - 1.0), np.inf, each))
        return composed(found)

    def cumulants(t: Array, surveys: list[Survey]) -> tuple[Array, Array, Array]:
        """The same and its derivatives."""
        means, variances = [], []
        for losses, log_masses in surveys:
            exponent = log_masses + t[..., None, None] * losses
            weights = xp.exp(exponent - logsumexp(exponent)[..., None])
            means.append((weights * losses).sum(-1))
            variances.append((weights * (losses - means[-1][..., None]) ** 2).sum(-1))
        return log_moment(t, surveys), composed(means), composed(variances)

    def ahead(t: Array, value: Array, spacing: Array) -> Array:
        """Counts once neighbours are close, and where it is much worse."""
        return xp.where(spacing < _NEXT, value - (_JUMP if kind == "delta" else _JUMP / t), -np.inf)

    def anywhere(surveys: list[Survey], bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        """The best tilt's logarithm and bound: over all magnitudes first, then between fewer."""
        bound_at = lambda t: [tilt_bound(kind, t, log_moment(t, surveys), goal)]  # noqa: E731

        def nearer(state: tuple[Array, ...]) -> tuple[Array, ...]:
            low, high = state[:2]
            near, spacing, value = best_tilt(bound_at, low, high, _TRIED, ahead)
            return near - spacing, near + 2.0 * spacing, near, value  # where the least of what two say lies

        *_, tilt, value = repeated(nearer, (*bracket, goal, goal), _TIMES)
        return tilt, value

    spread = composed((xp.exp(logs) * xp.clip(losses, -50.0, 50.0) ** 2).sum(-1) for losses, logs in whole)
    between = searched_between(kind, goal, spread)

    def in_turn(state: tuple[Array, ...]) -> tuple[Array, ...]:
        """A bound of delta, and next time without what is too rare for it; a lower one suits smaller tilts only."""
        turn, near, least, log_delta = state[:4]
        nearby = zip((least - 0.5, near + 0.3), between, strict=True)
        bracket = tuple(xp.where(turn > 1, some, every) for some, every in nearby)
        near, value = anywhere(_that_matter(whole, log_delta - _LEFT_OUT - log_runs), bracket)
        return turn + 1, near, xp.minimum(near, least), xp.clip(value, -700.0, 0.0) - 5.0, log_delta, value

    if kind == "delta":
        start = (xp.asarray(0), goal, between[1], *[xp.full_like(goal, -700.0)] * 3)
        _, near, _, _, log_delta, value = repeated(in_turn, start, 3)
    else:
        log_delta = xp.log(goal)
        near, value = anywhere(_that_matter(whole, log_delta - _LEFT_OUT - log_runs), between)
    surveys = _that_matter(whole, log_delta - _LEFT_OUT - log_runs)
    theta = xp.exp(near)
    k0, k1, k2 = cumulants(theta, surveys)
    if kind == "delta":
        steep = steeper(theta, k1, k2, goal)
        if array_module(goal) is not np:
            more = steep - theta
            theta, k0 = steep, k0 + more * (k1 + 0.5 * more * k2)
        elif (steep != theta).any():
            theta = steep
            k0, _, k2 = cumulants(theta, surveys)
    epsilon, log_delta = estimate(kind, theta, k0, k2, goal, value)
    return Plan(theta, epsilon, log_delta, xp.sqrt(k2))


def _that_matter(surveys: list[Survey], log_share: Array) -> list[Survey]:
    """The surveys without losses that are rarer than exp(``log_share``), nor small ones that are too rare.

    Lines of Gaussians leave rare losses out by a smooth taper, and so does this: what is left of them counts at large
    tilts. In normal quantiles of their tails, that is the taper of :mod:`jaxacct.losses.engines.lines.taper`.
    """
    cut, kept = reach_of(xp.maximum(log_share, -700.0))[:, None, None], []
    for losses, log_masses in surveys:
        quantile = xp.sqrt(-2.0 * xp.log(xp.clip(_tails(log_masses), 1e-306, 1.0)))
        log_masses = log_masses + log_taper_above(quantile, cut)
        matters = (log_masses > -_FAR) & ((losses > 0) | (log_masses > -_BELOW))
        log_masses = xp.where(matters, log_masses, -np.inf)
        if array_module(log_share) is np:
            some = np.any(matters, (0, 1))
            some[-1] = True  # of invalid pairs, of which nothing matters, one point is left
            losses, log_masses = losses[..., some], log_masses[..., some]
        kept.append((losses, log_masses))
    return kept


def _tails(log_masses: Array) -> Array:
    return xp.cumsum(xp.exp(log_masses)[..., ::-1], -1)[..., ::-1]


def each_group(counts: Array, groups: tuple[Pair, ...]) -> list[Array]:
    """``counts`` of all parts, ``(B, K)``, cut into those of each group."""
    sizes = [np.broadcast_shapes(*settings_shapes(group))[1] for group in groups]
    ends = np.cumsum(sizes)
    return [counts[:, end - size : end] for end, size in zip(ends, sizes, strict=True)]


def cell_edges(group: Pair, plan: Plan, log_share: Array, counts: Array, size: int) -> Array:
    """Edges of the cells of a group's parts, shape ``(B, parts, size + 1)``."""
    losses, whole = sorted_survey(group)
    common = _tails(whole) > xp.exp(xp.maximum(log_share, -700.0))[:, None, None]
    log_masses, cut = xp.where(common, whole, -np.inf), xp.where(common, -np.inf, whole)
    theta = xp.broadcast_to(plan.theta[:, None], losses.shape[:-1])
    # Below the first edge lies nothing that matters, even if it were moved up to it.
    exponent = log_masses + theta[..., None] * losses
    floor = logsumexp(exponent) - _WHOLE - xp.log(xp.maximum(counts, 1.0))
    under = xp.log(xp.cumsum(xp.exp(log_masses), -1)) + theta[..., None] * losses
    least = pick(losses, _first(under > floor[..., None]))
    # Tails are those of losses that are off by so much: what is beyond must be beyond for all of them.
    most = group.max_loss() + 2.0 * group.loss_error()
    low = least - 1e-9 * xp.abs(least)
    # The first loss that is cut off, or the largest there is where none is.
    after = _last(log_masses > -np.inf) + 1
    beyond = xp.minimum(after, losses.shape[-1] - 1)
    high = xp.minimum(pick(losses, beyond) + 2.0 * group.loss_error(), most)
    high = xp.where((most < np.inf) & ~(pick(cut, beyond) > -np.inf), most, high)
    high = xp.where(high > low, high, low + 1e-3)
    weights = xp.exp(exponent - exponent.max(-1, keepdims=True))
    edges = placed(losses, weights, (low, high), size)
    return with_edge(edges, group.anchor() + 2.0 * group.loss_error())


def _first(condition: Array) -> Array:
    """Index of the first True along the last axis, 0 if there is none."""
    return first_least(xp.where(condition, 0.0, 1.0))


def _last(condition: Array) -> Array:
    return condition.shape[-1] - 1 - _first(condition[..., ::-1])
