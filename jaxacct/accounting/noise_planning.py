"""`plan_noise`: a noise schedule of greatest utility within a privacy budget, certified at the end."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate, accounting
from jaxacct._numerics.arrays import Array
from jaxacct._printing import plainly
from jaxacct.accounting import Bounds
from jaxacct.accounting.calibration import calibrate
from jaxacct.accounting.noise_search import Goal, maximised
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.composed import Composed

__all__ = ["NoisePlan", "plan_noise"]

_STEP = 0.03  # in log sigma, of the differences that give slopes of delta
_WIDEST = 1e3  # the largest factor by which a schedule may be scaled to meet the budget
_MOST = 100_000  # rounds or iterations: more is a slip, and would not end


class NoisePlan(NamedTuple):
    """What :func:`plan_noise` returns.

    Attributes:
        sigma: the schedule, shape ``(levels,)``, float64.
        mechanism: the whole schedule as one mechanism, each level run as often as ``steps`` says.
        delta: :class:`jaxacct.Bounds` of delta at the target's epsilon; ``upper`` is at most the target.
        utility: the utility of ``sigma``.
        constant: the one sigma for all levels that meets the same target, certified likewise.
        constant_utility: the utility of that constant schedule.
    """

    sigma: np.ndarray
    mechanism: Composed
    delta: Bounds
    utility: float
    constant: float
    constant_utility: float

    def __repr__(self) -> str:
        return plainly(self, self._fields)


def plan_noise(
    make: Callable[[Array], Mechanism],
    utility: Callable[[Array], ArrayLike],
    epsilon: float,
    delta: float,
    *,
    steps: ArrayLike,
    relation: str = "add_or_remove",
    rounds: int = 3,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> NoisePlan:
    """The noise of every level of a schedule that maximises ``utility`` under (epsilon, delta)-DP, certified.

    For example, with variances weighted by a learning-rate schedule ``w``::

        plan_noise(lambda sigma: PoissonSampled(Gaussian(sigma), 0.01), lambda sigma: -(w * sigma**2).sum(),
                   1.0, 1e-5, steps=[250, 250, 250, 250])

    The search follows a smooth approximation of the budget, and only its result is certified. With K(t) = t D_(1+t),
    the cumulant function of the loss, where D is the Rényi divergence, which adds up over steps,

        log delta(epsilon) ~ K(t) - t epsilon - log(t (t + 1)) + slowly varying terms

    at the t that makes it least (the saddle point of delta's contour integral). There, moving t changes nothing, so
    at fixed t noise is traded between levels by the gradient of K, with L-BFGS on log sigma, along the set where K
    stays constant. A weight for each level corrects what K neglects, such that the approximation's gradient is
    the one of the certified bounds (by differences) where a round starts. At the end of a round the whole schedule
    is scaled until its certified delta meets the target, and the next one starts there.

    The result is a local maximum of the approximation: the privacy claim does not depend on it, the optimality does.
    The best of the rounds is returned, and the constant schedule where nothing beats it.

    Args:
        make: from an array of sigmas, shape ``(levels,)`` and possibly traced, to the mechanisms of one step each:
            leaves of that shape, or scalars that all levels share. Needs a Rényi curve.
        utility: from such an array to a scalar, differentiable by JAX; to be maximised. The budget is used up in any
            case.
        epsilon: target, > 0.
        delta: target, strictly between 0 and 1.
        steps: how often each level runs, shape ``(levels,)``; fixed in advance, like the schedule.
        relation: see :func:`jaxacct.delta`.
        rounds: how many rounds, each a search and a certification.
        iterations: of L-BFGS in each round.
        tolerance: relative, of the scale that meets the budget.

    Raises:
        ValueError: a bad value (named), a target that cannot be reached, or a utility that is no finite scalar.
    """
    _validate.function(make=make, utility=utility)
    _validate.number(epsilon=epsilon, delta=delta, rounds=rounds, iterations=iterations)
    _validate.positive(epsilon=epsilon)
    _validate.probability(delta=delta)
    _validate.count(steps=steps, rounds=rounds, iterations=iterations)
    _validate.at_most(_MOST, rounds=rounds, iterations=iterations)
    counts = np.asarray(steps, np.float64)
    if counts.ndim != 1 or counts.size == 0:
        raise ValueError(f"steps must have shape (levels,), got {counts.shape}")

    def certified(sigma: np.ndarray, bracket: tuple[float, float] | None) -> tuple[np.ndarray, Bounds, float]:
        """``sigma`` scaled to the budget, the bounds there, and the utility."""
        found = calibrate(
            lambda scale: _composed(make, scale * sigma, counts),
            epsilon,
            delta,
            relation=relation,
            bracket=bracket,
            tolerance=tolerance,
        )
        scaled = float(found.parameter) * sigma
        return scaled, found.delta, _utility(utility, scaled)

    constant, bounds, constant_utility = certified(np.ones(counts.size), None)
    best = sigma, _, best_utility = constant, bounds, constant_utility
    slope_of = _slope_of(utility)
    for _ in range(int(rounds)):
        slopes = _slopes(make, sigma, counts, epsilon, relation)
        with np.errstate(all="ignore"):
            start = np.log(sigma)
            goal = Goal(make, counts, relation, start, float(epsilon), slopes)
            found = np.exp(maximised(slope_of, goal, start, int(iterations)))
        if not np.isfinite(found).all():
            break
        sigma, bounds, value = certified(found, (1 / _WIDEST, _WIDEST))
        if value > best_utility:
            best, best_utility = (sigma, bounds, value), value
    sigma, bounds, value = best
    return NoisePlan(sigma, _composed(make, sigma, counts), bounds, value, float(constant[0]), constant_utility)


def _levels(make: Callable[[Array], Mechanism], sigma: Array, n: int) -> Mechanism:
    """``make(sigma)`` with every leaf of shape ``(n,)``."""
    levels, shape = make(sigma), (n,)
    for leaf in jax.tree.leaves(levels):
        if np.shape(leaf) not in ((), shape):
            raise ValueError(f"make must return leaves of shape () or {shape}, got {np.shape(leaf)}")
    return jax.tree.map(lambda leaf: np.broadcast_to(np.asarray(leaf, np.float64), shape), levels)


def _composed(make: Callable[[Array], Mechanism], sigma: Array, counts: np.ndarray) -> Composed:
    levels = _levels(make, sigma, counts.size)
    pick = lambda i: jax.tree.map(lambda leaf: leaf[i], levels)  # noqa: E731
    return Composed([pick(i) for i in range(counts.size)], [float(count) for count in counts])


def _slope_of(utility: Callable[[Array], ArrayLike]) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """From log sigma to the utility and its gradient: one small program for all iterations."""
    program = jax.jit(jax.value_and_grad(lambda x: utility(jnp.exp(x))))

    def slope(x: np.ndarray) -> tuple[float, np.ndarray]:
        with jax.enable_x64(True):
            value, gradient = program(x)
        return float(value), np.asarray(gradient)

    return slope


def _utility(utility: Callable[[Array], ArrayLike], sigma: np.ndarray) -> float:
    with jax.enable_x64(True):
        value = np.asarray(jax.jit(utility)(sigma))
    if value.shape != () or not np.isfinite(value):
        raise ValueError(f"utility must return a finite scalar, got {value}")
    return float(value)


def _slopes(make: Callable[[Array], Mechanism], sigma: np.ndarray, counts: np.ndarray, epsilon: float, relation: str):
    """d log delta / d log sigma of every level, by central differences between the bounds' geometric means."""
    n = counts.size
    base, up, down = (_levels(make, sigma * factor, n) for factor in (1.0, np.exp(_STEP), np.exp(-_STEP)))
    rows = np.arange(2 * n)

    def shifted(i: int) -> Mechanism:
        """Level i in 2 n schedules, of which the i-th raises it and the (n + i)-th lowers it."""
        return jax.tree.map(
            lambda b, u, d: np.where(rows == i, u[i], np.where(rows == n + i, d[i], b[i])), base, up, down
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a wide bound here costs utility, not privacy
        bounds = accounting.delta(
            Composed([shifted(i) for i in range(n)], [float(count) for count in counts]), epsilon, relation=relation
        )
    with np.errstate(all="ignore"):
        logs = 0.5 * (np.log(bounds.lower) + np.log(bounds.upper)).reshape(2, n)
    return (logs[0] - logs[1]) / (2.0 * _STEP)
