"""What each filter certifies for one schedule, and what the schedule costs if fixed in advance."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import accounting, filters
from jaxacct._types import PyTree
from jaxacct.adversary import true_cost
from jaxacct.filters.additive.costs import concentrated_cost, pure_cost
from jaxacct.filters.additive.plan_order import ORDERS
from jaxacct.filters.base import Filter
from jaxacct.filters.queries import as_sampled_gaussian
from jaxacct.losses.renyi import epsilon_from_renyi, renyi
from jaxacct.mechanisms import Composed, PoissonSampled, UserLevel
from jaxacct.mechanisms.base import Mechanism

_UP = 1.0 + 2.0**-38  # above the accounts' slack, 2**-40 of a budget
_SLACK = 0.1  # of delta, that the residue filter gives up
_ABOVE = (1.01, 1.04, 1.16, 1.64)  # times the schedule's own epsilon, the targets that are tried
_MOST = 20_000  # steps that the residue filter goes through one by one


class Schedule(NamedTuple):
    """Mechanisms, how often each runs, and the delta at which epsilons are asked for."""

    parts: list[tuple[Mechanism, int]]
    delta: float

    def whole(self) -> Composed:
        """All of it as one mechanism."""
        return Composed([part for part, _ in self.parts], [count for _, count in self.parts])

    def total(self, cost: Callable[[Mechanism], ArrayLike]) -> np.ndarray:
        """The sum of a cost of one run, rounded up."""
        return np.sum([np.asarray(cost(part)) * count for part, count in self.parts], axis=0) * _UP


class Claim(NamedTuple):
    """What somebody says of a schedule.

    Attributes:
        epsilon: at the schedule's delta.
        lower: the truth is above it, where that is known; else NaN.
        kind: "proven" or "asymptotic" (no bound).
    """

    epsilon: float
    lower: float = math.nan
    kind: str = "proven"


def _in_advance(schedule: Schedule) -> Claim:
    """No filter: the composition, if nothing reacts to results."""
    bounds = accounting.epsilon(schedule.whole(), schedule.delta)
    return Claim(float(bounds.upper), lower=float(bounds.lower))


def _certified(budget: Filter, schedule: Schedule) -> Claim:
    return Claim(float(budget.guarantee.epsilon(schedule.delta)))


def _gdp(schedule: Schedule) -> Claim:
    noise = schedule.whole()._gaussian_noise()
    if noise is None:
        raise ValueError("it is for Gaussians without sampling")
    return _certified(filters.gdp(float(np.asarray(1.0 / noise)) * _UP), schedule)


def _renyi(schedule: Schedule) -> Claim:
    """At the order that suits the schedule best, which is known before the first query."""
    try:
        return Claim(filters.plan_epsilon(schedule.whole(), schedule.delta))
    except ValueError:  # other mechanisms than Gaussians: whole orders are enough
        orders = np.asarray([order for order in ORDERS if order == int(order)])
        rho = schedule.total(lambda part: np.asarray([float(renyi(part, order)) for order in orders]))
        return Claim(float(np.min(np.asarray(epsilon_from_renyi(rho, orders, schedule.delta)))) * _UP)


def _limit_of(schedule: Schedule) -> Filter:
    """The filter of the least B, a sum of mean losses, that leaves every step unclipped (Algorithm 2)."""
    for regime in ("small", "large"):
        with contextlib.suppress(ValueError):  # a step outside of the regime
            return filters.approximate_gdp(float(schedule.total(filters.approximate_gdp(1.0, regime)._cost)), regime)
    raise ValueError("it is for sampled Gaussians of rates all below 0.2, or all above 0.8")


def _true_cost(schedule: Schedule) -> Claim:
    """Of that filter: what the worst analyst who picks steps of this schedule by earlier results can do to it."""
    budget = _limit_of(schedule)
    queries = list({repr(part): part for part, _ in schedule.parts}.values())
    lower, upper = true_cost(budget, queries, delta=schedule.delta).epsilon(schedule.delta)
    return Claim(float(upper), float(lower))


def _gdp_residue(schedule: Schedule) -> Claim:
    """The filter for one target, asked step by step."""
    if schedule.whole()._gaussian_noise() is not None:
        raise ValueError("for Gaussians without sampling it is the gdp filter")
    counts = [count for _, count in schedule.parts]
    if sum(counts) > _MOST:
        raise ValueError(f"it goes through steps one by one: at most {_MOST}")
    slack = _SLACK * schedule.delta
    each = [filters.prepare(part) for part, _ in schedule.parts]
    queries = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    which = np.repeat(np.arange(len(each)), counts)

    @jax.jit
    def admits(mu: ArrayLike) -> jax.Array:
        budget = filters.gdp_residue(mu, slack, steps=sum(counts))

        def step(state: PyTree, i: PyTree) -> PyTree:
            admitted, state = budget.update(jax.tree.map(lambda x: x[i], queries), state)
            return state, admitted

        return jax.lax.scan(step, budget.init(), which)[1].all()

    mu_of = lambda target: filters.for_target("gdp_residue", target, schedule.delta, slack=slack).mu  # noqa: E731
    return _least(schedule, lambda target: bool(admits(mu_of(target))))


def _least(schedule: Schedule, admits: Callable[[float], bool]) -> Claim:
    """The least target tried, a little above the schedule's own epsilon, at which every step is admitted."""
    own = _in_advance(schedule).epsilon
    return Claim(next((own * factor for factor in _ABOVE if admits(own * factor)), math.inf))


def _least_target(make: Callable[..., Filter], schedule: Schedule) -> Claim:
    """The filter that ``make`` makes for the schedule's range and one target."""
    parts = [part for part, _ in schedule.parts]
    users = [part for part in parts if isinstance(part, UserLevel)]
    if users:
        if len(users) < len(parts) or make is not filters.sampled_gaussian:
            raise ValueError("it is for sampled Gaussians and single records")
        make = partial(make, records=max(int(part.records) for part in users))  # pyright: ignore[reportArgumentType]
        parts = [PoissonSampled(part.mechanism, part.rate) for part in users]
    with jax.enable_x64(True):
        pairs = [as_sampled_gaussian(part) for part in parts]
    if any(pair is None for pair in pairs):
        raise ValueError("it is for sampled Gaussians")
    noises, rates = (tuple(float(np.asarray(pair[i])) for pair in pairs if pair is not None) for i in (0, 1))
    ends = {"sigma": (min(noises), max(noises)), "rate": (min(rates), max(rates))}
    run = Composed(parts, [count for _, count in schedule.parts])

    def admits(target: float) -> bool:
        budget = make(**ends, epsilon=target, delta=schedule.delta)
        return bool(budget.update(run, budget.init())[0])

    return _least(schedule, admits)


FILTERS: dict[str, Callable[[Schedule], Claim]] = {
    "fixed in advance": _in_advance,
    "pure_dp": lambda one: _certified(filters.pure_dp(float(one.total(pure_cost))), one),
    "zcdp": lambda one: _certified(filters.zcdp(float(one.total(concentrated_cost))), one),
    "gdp": _gdp,
    "renyi": _renyi,
    "approximate_gdp": lambda one: _certified(_limit_of(one), one)._replace(kind="asymptotic"),
}
THOROUGH: dict[str, Callable[[Schedule], Claim]] = {
    "sampled_gaussian": partial(_least_target, filters.sampled_gaussian),
    "closed_form": partial(_least_target, filters.closed_form),
    "approximate_gdp, true cost": _true_cost,
    "gdp_residue": _gdp_residue,
}
