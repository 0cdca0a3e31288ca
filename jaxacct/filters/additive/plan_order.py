"""`plan_order`: the Rényi order for a schedule that is expected but not binding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.rounding import inflated
from jaxacct.filters import amounts
from jaxacct.losses import renyi as _curve
from jaxacct.mechanisms import Composed, Gaussian, PoissonSampled
from jaxacct.mechanisms.base import Mechanism

# Fractions where they matter, whole numbers above: 155 orders, the customary grid.
ORDERS: tuple[float, ...] = (*(k / 10 for k in range(11, 110)), *(float(k) for k in range(11, 64)), 128.0, 256.0, 512.0)


def _schedule(plan: Mechanism, steps: ArrayLike) -> np.ndarray:
    """The plan as rows (mu, rate, steps); arrays of parameters are successive steps."""
    if isinstance(plan, Composed):
        return np.concatenate([_schedule(part, count) for part, count in plan.parts()])
    rate: ArrayLike = 1.0
    inner = plan
    if isinstance(plan, PoissonSampled):
        rate, inner = plan.rate, plan.mechanism
    if not isinstance(inner, Gaussian):
        raise ValueError(f"plan must be a Gaussian, PoissonSampled or Composed mechanism, got {type(plan).__name__}")
    mu = np.asarray(inner.sensitivity, np.float64) / np.asarray(inner.sigma, np.float64)
    columns = np.broadcast_arrays(mu, np.asarray(rate, np.float64), np.asarray(steps, np.float64))
    return np.stack([column.ravel() for column in columns], axis=-1)


def _costs(rows: np.ndarray, orders: Sequence[float]) -> np.ndarray:
    """Divergence per step of each row at each order, shape (orders, rows); equal rows are computed once."""
    distinct, where = np.unique(rows[:, :2], axis=0, return_inverse=True)
    with jax.enable_x64(True):
        query = PoissonSampled(Gaussian(1 / distinct[:, 0]), distinct[:, 1])
        values = np.stack([np.asarray(_curve.renyi(query, order)) for order in orders])
    return values[:, where.ravel()]


def _checked(plan: Mechanism, delta: float, steps: ArrayLike, orders: Sequence[float] | None) -> np.ndarray:
    if _validate.is_traced((plan, steps)):
        raise ValueError("plan must hold concrete numbers: the order is chosen before the program runs, got a tracer")
    _validate.scalar(_validate.probability, delta=delta)
    _validate.count(steps=steps)
    if orders is not None:
        _validate.greater(1.0, orders=orders)
        if np.ndim(orders) != 1 or not len(orders):
            raise ValueError(f"orders must be a sequence of at least one order, got {orders!r:.200}")
    return _schedule(plan, steps)


def _admitted(costs: np.ndarray, steps: np.ndarray, budget: float) -> float:
    """How many steps of the plan, repeated for ever, fit a budget (the last one counted as a fraction)."""
    total = float(np.sum(costs * steps))
    if not np.isfinite(total) or budget <= 0:
        return 0.0
    if total == 0:
        return float("inf")
    rounds, rest = divmod(budget, total)
    sums = np.concatenate([[0.0], np.cumsum(costs * steps)])
    return rounds * float(np.sum(steps)) + float(np.interp(rest, sums, np.concatenate([[0.0], np.cumsum(steps)])))


def _best(
    score: Callable[[list[float]], list[tuple[float, float]]], orders: Sequence[float] | None
) -> tuple[float, float]:
    """(score, order) of the highest score: of the whole orders first, then of the fractions next to the best one."""
    if orders is not None:
        return max(score([float(order) for order in orders]))
    found = max(score([order for order in ORDERS if order == int(order)]))
    return max(found, *score([order for order in ORDERS if abs(order - found[1]) <= 1]))


def plan_order(
    plan: Mechanism,
    delta: float,
    epsilon: float | None = None,
    *,
    steps: ArrayLike = 1,
    orders: Sequence[float] | None = None,
) -> float:
    """The best order of `renyi` for a planned schedule; pick it before the first query.

    Without ``epsilon``, the order at which the plan's own epsilon at ``delta`` is least. With it, the order
    whose (epsilon, delta) budget admits the most steps of the plan, repeated if it ends early. The filter's
    guarantee holds for any order fixed in advance; a plan that turns out differently costs steps, never
    privacy.

    Args:
        plan: `Gaussian`, `PoissonSampled` Gaussian, or `Composed`; arrays of parameters are successive steps.
        delta: strictly between 0 and 1.
        epsilon: the target, or None.
        steps: how often each entry of the plan runs (ignored for `Composed`, which has its own).
        orders: orders to choose from; by default `ORDERS`, first the whole ones, then the fractions near the
            best.

    Returns:
        The order, a Python float.

    Raises:
        ValueError: traced or bad arguments, or an (epsilon, delta) that no order can reach.
    """
    rows = _checked(plan, delta, steps, orders)
    if epsilon is None:
        return _best(lambda some: _epsilons(rows, delta, some), orders)[1]
    _validate.scalar(_validate.positive, epsilon=epsilon)

    def score(some: list[float]) -> list[tuple[float, float]]:
        budgets = np.asarray(_curve.renyi_from_epsilon(epsilon, delta, np.array(some)))
        costs = _costs(rows, some)
        return [(_admitted(c, rows[:, 2], float(b)), a) for c, b, a in zip(costs, budgets, some, strict=True)]

    admitted, order = _best(score, orders)
    if admitted == 0:
        raise ValueError(f"epsilon must be larger for delta {delta:g}: no order leaves any budget, got {epsilon:g}")
    return order


def _epsilons(rows: np.ndarray, delta: float, orders: Sequence[float]) -> list[tuple[float, float]]:
    """(-epsilon, order) of the plan at each order."""
    # The margin is what a filter with that epsilon needs to admit the very plan: its slack, and rounding.
    rho = inflated(_costs(rows, orders) @ rows[:, 2], 4 * amounts.SLACK)
    values = inflated(np.asarray(_curve.epsilon_from_renyi(rho, np.asarray(orders), delta)), 4 * amounts.SLACK)
    return [(-float(value), order) for value, order in zip(values, orders, strict=True)]


def plan_epsilon(
    plan: Mechanism,
    delta: float,
    *,
    order: float | None = None,
    steps: ArrayLike = 1,
    orders: Sequence[float] | None = None,
) -> float:
    """The epsilon a planned schedule needs: ``renyi(plan_epsilon(...), delta, order=order)`` admits it all.

    Args:
        plan: as for `plan_order`.
        delta: strictly between 0 and 1.
        order: the filter's order; by default the one that `plan_order` picks.
        steps: as for `plan_order`.
        orders: as for `plan_order`.

    Returns:
        A Python float, rounded up by about 1e-11 relative so that the filter admits the whole plan.

    Raises:
        ValueError: as `plan_order`.
    """
    if order is not None:
        _validate.scalar(order=order)
    chosen = orders if order is None else [order]
    rows = _checked(plan, delta, steps, chosen)
    return -_best(lambda some: _epsilons(rows, delta, some), chosen)[0]
