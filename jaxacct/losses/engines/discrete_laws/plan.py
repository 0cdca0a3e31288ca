"""Places the contour and the cells of a composition, by estimates; nothing here is certified."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, logsumexp, pick
from jaxacct._numerics.least import first_least
from jaxacct.losses.engines.composition import times
from jaxacct.losses.engines.saddle_point import best_tilt, ends, estimate, steeper, tilt_bound
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.cells import placed, with_edge

_COARSE, _FINE = 24, 12  # tilts tried: over all magnitudes, then between two of the first
_LEFT_OUT = 21.0  # e-foldings between delta and what is called infinite
_WHOLE = 34.0  # e-foldings between M(theta) and what lies below the first edge


Surveys = list[tuple[Array, Array, Array]]  # of every group the sorted losses, log masses, and those that were cut off


class Plan(NamedTuple):
    """Where to put the contour, shape ``(B,)``."""

    theta: Array
    epsilon: Array
    log_delta: Array
    deviation: Array
    surveys: Surveys


def plan_of(kind: str, groups: tuple[Pair, ...], counts: Array, goal: Array) -> Plan:
    """A tilt near the saddle point, and what lies so far out that it may as well be infinite."""
    xp = array_module(goal)
    whole = []
    for group in groups:
        survey = group.survey()
        # Points without mass say nothing of where mass is.
        massive = survey.log_masses > -np.inf
        largest = xp.where(massive, survey.losses, -np.inf).max(-1, keepdims=True)
        losses = xp.where(massive, survey.losses, largest)
        order = xp.argsort(losses, -1)
        whole.append(tuple(xp.take_along_axis(x, order, -1) for x in (losses, survey.log_masses)))
    log_steps, many = xp.log(counts.sum(-1)), each_group(counts, whole)

    def cut(log_delta: Array) -> Surveys:
        """The surveys without losses that are rarer than a billionth of delta, all steps together."""
        share = xp.exp(xp.maximum(log_delta - _LEFT_OUT - log_steps, -700.0))[:, None, None]
        kept = []
        for losses, log_masses in whole:
            tail = xp.cumsum(xp.exp(log_masses)[..., ::-1], -1)[..., ::-1]
            common = tail > share
            cut_off = xp.where(common, -np.inf, log_masses)
            kept.append((losses, xp.where(common, log_masses, -np.inf), cut_off))
        return kept

    def composed(each: Iterable[Array]) -> Array:
        return sum(times(count, one).sum(-1) for count, one in zip(many, each, strict=True))

    def log_moment(t: Array, surveys: Surveys) -> Array:
        """Of the composition at tilts of shape ``(..., B)``."""
        return composed(logsumexp(log_masses + t[..., None, None] * losses) for losses, log_masses, _ in surveys)

    def cumulants(t: Array, surveys: Surveys) -> tuple[Array, Array, Array]:
        """The same and its derivatives."""
        means, variances = [], []
        for losses, log_masses, _ in surveys:
            exponent = log_masses + t[..., None, None] * losses
            weights = xp.exp(exponent - logsumexp(exponent)[..., None])
            means.append((weights * losses).sum(-1))
            variances.append((weights * (losses - means[-1][..., None]) ** 2).sum(-1))
        return log_moment(t, surveys), composed(means), composed(variances)

    def searched(surveys: Surveys, low: Array, high: Array, number: int) -> tuple[Array, Array, Array]:
        return best_tilt(lambda t: [tilt_bound(kind, t, log_moment(t, surveys), goal)], low, high, number)

    def anywhere(surveys: Surveys) -> tuple[Array, Array]:
        near, spacing, _ = searched(surveys, *between, _COARSE)
        near, _, value = searched(surveys, near - spacing, near + spacing, _FINE)
        return near, value

    spread = composed((xp.exp(logs) * xp.clip(losses, -50.0, 50.0) ** 2).sum(-1) for losses, logs in whole)
    between = ends(kind, goal, spread, 1e3)
    surveys = cut(xp.log(goal)) if kind == "epsilon" else cut(xp.full_like(goal, -np.inf))
    near, value = anywhere(surveys)
    if kind == "delta":
        surveys = cut(xp.clip(value, -650.0, 0.0) - 5.0)
        near, value = anywhere(surveys)
        surveys = cut(xp.clip(value, -650.0, 0.0) - 5.0)
    theta = xp.exp(near)
    k0, k1, k2 = cumulants(theta, surveys)
    if kind == "delta":
        steep = steeper(theta, k1, k2, goal)
        if xp is not np or (steep != theta).any():
            theta = steep
            k0, _, k2 = cumulants(theta, surveys)
    return Plan(theta, *estimate(kind, theta, k0, k2, goal, value), xp.sqrt(k2), surveys)


def each_group(counts: Array, surveys: Sequence[tuple[Array, ...]]) -> list[Array]:
    """``counts`` of all parts, ``(B, K)``, cut into those of each group."""
    ends = np.cumsum([losses.shape[1] for losses, *_ in surveys])
    return [counts[:, end - losses.shape[1] : end] for end, (losses, *_) in zip(ends, surveys, strict=True)]


def edges_of(group: Pair, survey: tuple[Array, Array, Array], plan: Plan, counts: Array, size: int) -> Array:
    """Edges of the cells of a group's parts, shape ``(B, parts, size + 1)``."""
    losses, log_masses, cut = survey
    xp = array_module(losses)
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
    return first_least(array_module(condition).where(condition, 0.0, 1.0))


def _last(condition: Array) -> Array:
    return condition.shape[-1] - 1 - _first(condition[..., ::-1])
