"""Conversions of an ex-post rho, which bounds all Rényi orders at once, to ex-post (epsilon, delta).

No order may be chosen for the rho that came back: with enough budgets to stop at, the loss surely passes
rho + 2 sqrt(rho log(1/delta)), the best order's epsilon, at some of them (docs/theorems/ex-post-zcdp.md). What is fixed
in advance may be used: a mixture of orders for whatever rho comes back, or, with a public list of budgets, a share of
delta for each.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import accounting
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.expost.conversions import approximate_epsilon
from jaxacct.filters.expost_readings import approximate_reading, probable_reading
from jaxacct.mechanisms import GDP

_ORDERS = 1.0 + 2.0 ** np.arange(-2, 10)
"""Of the mixture: within a factor of sqrt(2) of the best distance from 1 for rho from 4e-5 to 30 at delta 1e-5."""
_AROUND = np.exp(np.linspace(-2.0, 2.0, 801))
"""Distances of orders from 1, over the best one for Markov's inequality, among which `_best_order` looks."""


@in_float64
def by_mixture(rho: ArrayLike, delta: float, tight: bool) -> Array:
    """The epsilon for whatever rho comes back, by orders that pay together with equal weights; rounded up."""
    rho = jnp.asarray(rho, jnp.float64)
    orders = jnp.asarray(_ORDERS)
    sums = inflated(rho[..., None] * orders, 2.0 * EPS)
    reading = approximate_reading if tight else probable_reading
    return jnp.where(rho >= 0, reading(orders, jnp.where(sums >= 0, sums, jnp.inf), jnp.asarray(delta)), jnp.inf)


def listed(budgets: ArrayLike) -> np.ndarray:
    """Budgets a millionth larger: what came back as one of them may have been rounded up, in float32 too."""
    return inflated(np.asarray(budgets, np.float64), 2.0**-20)


@in_float64
def by_budget(rho: ArrayLike, budgets: np.ndarray, table: np.ndarray) -> Array:
    """The entry of ``table`` at the first of rising ``budgets`` that is at least rho; inf beyond the last one."""
    index = jnp.searchsorted(jnp.asarray(budgets), jnp.asarray(rho, jnp.float64), side="left")
    found = jnp.asarray(np.append(table, np.inf))[index]
    return jnp.where(jnp.asarray(rho) >= 0, found, jnp.inf)  # NaN promises nothing


def table(budgets: np.ndarray, delta: float, *, gaussian: bool, tight: bool, order: float | None) -> np.ndarray:
    """An epsilon for each of the public ``budgets``, with shares of delta that add up to delta; shape ``(m,)``.

    Args:
        budgets: rho, rising, of `listed`.
        delta: of the whole list.
        gaussian: losses are those of a stopped Brownian motion or of what is made from one, and only a
            delta-approximate epsilon is wanted: a post-processing's loss need not have a Gaussian's tail.
        tight: as in `approximate_epsilon`.
        order: no entry is larger than this order's conversion of it. Each budget's share is then what a Gaussian has
            above that conversion, and an equal part of the rest. Where there is no rest, or nothing says that losses
            are Gaussian, the conversion itself comes back.
    """
    rho = budgets
    share = np.full(rho.shape, delta / rho.size * (1.0 - 4.0 * EPS))
    if order is None:
        return _gaussian_row(rho, share) if gaussian else _concentrated_row(rho, share, tight)
    known = np.asarray(approximate_epsilon(inflated(order * rho, EPS), order=order, delta=delta, tight=tight))
    used = np.asarray(accounting.delta(GDP(_mu(rho)), known).upper)
    rest = delta - inflated(float(used.sum()), 1e-12)
    if not gaussian or rest <= 0:
        return known
    return np.minimum(_gaussian_row(rho, (used + rest / rho.size) * (1.0 - 1e-12)), known)


def _gaussian_row(rho: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The epsilon at which sqrt(2 rho)-GDP has delta ``share``."""
    return np.asarray(accounting.epsilon(GDP(_mu(rho)), share).upper)


def _concentrated_row(rho: np.ndarray, share: np.ndarray, tight: bool) -> np.ndarray:
    """The least epsilon of all orders for a rho that is fixed, each at its own share of delta."""
    best = np.clip(np.sqrt(np.maximum(-np.log(share), 0.1) / rho), 1e-5, 1e15)
    orders = 1.0 + best[:, None] * _AROUND
    sums = inflated(orders * rho[:, None], 2.0 * EPS)
    found = approximate_epsilon(sums, order=orders, delta=share[:, None], tight=tight)
    return np.asarray(found).min(-1)


def _mu(rho: np.ndarray) -> np.ndarray:
    return inflated(np.sqrt(2.0 * rho), 4.0 * EPS)
