"""Places the contour and the cells of a composition, by estimates; nothing here is certified."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, logsumexp, pick
from jaxacct.losses.engines.discrete_laws.cells import placed, with_edge
from jaxacct.losses.engines.saddle_point import best_tilt, ends, estimate, steeper, tilt_bound
from jaxacct.mechanisms.pairs.base import Pair

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
    log_steps = xp.log(counts.sum(-1))

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

    def cumulants(t: Array, surveys: Surveys) -> tuple[Array, Array, Array]:
        """Of the composition at tilts of shape ``(N, B)``."""
        found = [0.0, 0.0, 0.0]
        first = 0
        for losses, log_masses, _ in surveys:
            count = counts[:, first : first + losses.shape[1]]
            first += losses.shape[1]
            exponent = log_masses + t[..., None, None] * losses
            log_total = logsumexp(exponent)
            weights = xp.exp(exponent - log_total[..., None])
            mean = (weights * losses).sum(-1)
            variance = (weights * (losses - mean[..., None]) ** 2).sum(-1)
            for i, one in enumerate((log_total, mean, variance)):
                found[i] = found[i] + xp.where(count > 0, count * one, 0.0).sum(-1)
        return tuple(found)  # pyright: ignore[reportReturnType]

    def searched(surveys: Surveys, low: Array, high: Array, number: int) -> tuple[Array, Array, Array]:
        return best_tilt(lambda t: [tilt_bound(kind, t, cumulants(t, surveys)[0], goal)], low, high, number)

    def anywhere(surveys: Surveys) -> tuple[Array, Array]:
        near, spacing, _ = searched(surveys, *between, _COARSE)
        near, _, value = searched(surveys, near - spacing, near + spacing, _FINE)
        return near, value

    spread = sum(
        xp.where(
            counts[:, i : i + losses.shape[1]] > 0,
            counts[:, i : i + losses.shape[1]] * (xp.exp(log_masses) * xp.clip(losses, -50.0, 50.0) ** 2).sum(-1),
            0.0,
        ).sum(-1)
        for i, (losses, log_masses) in zip(_starts(whole), whole, strict=True)
    )
    between = ends(kind, goal, spread, 1e3)
    surveys = cut(xp.log(goal)) if kind == "epsilon" else cut(xp.full_like(goal, -np.inf))
    near, value = anywhere(surveys)
    if kind == "delta":
        surveys = cut(xp.clip(value, -650.0, 0.0) - 5.0)
        near, value = anywhere(surveys)
        surveys = cut(xp.clip(value, -650.0, 0.0) - 5.0)
    theta = xp.exp(near)
    k0, k1, k2 = (one[0] for one in cumulants(theta[None], surveys))
    if kind == "delta":
        steep = steeper(theta, k1, k2, goal)
        if xp is not np or (steep != theta).any():
            theta = steep
            k0, _, k2 = (one[0] for one in cumulants(theta[None], surveys))
    return Plan(theta, *estimate(kind, theta, k0, k2, goal, value), xp.sqrt(k2), surveys)


def _starts(surveys: Any) -> list[int]:
    starts = np.cumsum([0, *(losses.shape[1] for losses, _ in surveys)])
    return [int(start) for start in starts[:-1]]


def edges_of(group: Pair, survey: tuple[Array, Array, Array], plan: Plan, counts: Array, size: int) -> Array:
    """Edges of the cells of a group's parts, shape ``(B, parts, size + 1)``."""
    losses, log_masses, cut = survey
    xp = array_module(losses)
    theta = xp.broadcast_to(plan.theta[:, None], losses.shape[:-1])
    # Below the first edge lies nothing that matters, even if it were moved up to it.
    exponent = log_masses + theta[..., None] * losses
    floor = logsumexp(exponent) - _WHOLE - xp.log(xp.maximum(counts, 1.0))
    under = xp.log(xp.cumsum(xp.exp(log_masses), -1)) + theta[..., None] * losses
    least = pick(losses, _first(under > floor[..., None], 0))
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


def _first(condition: Array, back: int) -> Array:
    """Index of the first True along the last axis, less ``back``; 0 if there is none."""
    xp = array_module(condition)
    before = (xp.cumsum(condition.astype(np.int32), -1) < 1).sum(-1)
    return xp.maximum(xp.where(before < condition.shape[-1], before, 0) - back, 0)


def _last(condition: Array) -> Array:
    xp = array_module(condition)
    after = (xp.cumsum(condition[..., ::-1].astype(np.int32), -1) < 1).sum(-1)
    return xp.where(after < condition.shape[-1], condition.shape[-1] - 1 - after, condition.shape[-1] - 1)
