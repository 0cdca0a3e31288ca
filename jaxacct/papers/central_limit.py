"""Conditions 1 to 6 of the fully adaptive central limit theorem (Theorem 4.2 of the paper on f-DP filters).

The theorem says that the composition is Delta-approximately GDP between mu - phi and mu + phi, with
Delta = C (rho / sqrt(v) |log(rho / sqrt(v))| + sqrt(kappa / v)) for a universal constant C whose value is unknown.
So its numbers describe a limit and are no privacy guarantee; ``delta_over_constant`` is Delta / C.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.curve_arrays import concrete, float64, quiet_float64
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.samples.poisson import PoissonSampled
from jaxacct.papers.moments import Moments, approximate_moments, loss_moments

__all__ = ["CLT", "clt", "clt_of_box", "clt_of_budget"]

_POINTS = 33  # of a box, along each side


class CLT(NamedTuple):
    """What Theorem 4.2 asks for and gives; all float64 scalars but ``holds``.

    Attributes:
        mu: (m_1 + m_2) / sqrt(v), the limit's GDP parameter.
        phi: (eta_1 + eta_2) / sqrt(v), by which mu may be off.
        rho: largest third absolute central moment over variance, of any step under P or Q (conditions 5 and 6).
        kappa: how far the sum of variances may be from v, under P or Q (conditions 3 and 4).
        v: the middle of those sums.
        m_1, eta_1: the sum of means under P lies within eta_1 of m_1 (condition 1).
        m_2, eta_2: minus the sum of means under Q lies within eta_2 of m_2 (condition 2).
        holds: 4 rho^2 <= v and 4 kappa <= v, without which the theorem says nothing.
        delta_over_constant: Delta divided by the unknown constant C.
    """

    mu: Array
    phi: Array
    rho: Array
    kappa: Array
    v: Array
    m_1: Array
    eta_1: Array
    m_2: Array
    eta_2: Array
    holds: Array
    delta_over_constant: Array


def clt(mechanism: Mechanism, steps: ArrayLike = 1, *, relation: str = "remove") -> CLT:
    """Theorem 4.2 for a schedule that is fixed in advance: conditions 1 and 2 with eta_1 = eta_2 = 0.

    Args:
        mechanism: one step's mechanism with parameters of shape ``(steps,)`` or scalars, see :func:`loss_moments`.
        steps: how often each runs, whole numbers, broadcasts.
        relation: ``"remove"`` or ``"add"``.

    Raises:
        ValueError: steps that are not whole, or a mechanism without moments here.
    """
    _validate.count(steps=steps)
    each = loss_moments(mechanism, relation=relation)
    with quiet_float64():
        count = float64(steps)
        sums = jax.tree.map(lambda m: (m * count).sum(), each)
        return concrete(_theorem(sums, sums, each))


def clt_of_box(
    rate: tuple[float, float], sigma: tuple[float, float], steps: int, *, least_steps: int | None = None
) -> CLT:
    """Theorem 4.2 for an analyst who picks each step's rate and noise multiplier adaptively in a box.

    The sums of conditional moments lie between ``least_steps`` times the smallest and ``steps`` times the largest
    moment in the box. Means are Kullback-Leibler divergences, which go up with the rate and down with the noise (more
    noise, or a mixture with Q, is a kernel on both of the pair), so theirs are at two corners and conditions 1 and 2
    hold on all of the box. Variances and third moments are taken over 33 x 33 points of it, corners included: for
    conditions 3 to 6 that is a survey and no proof that nothing lies beyond.

    Args:
        rate: smallest and largest sampling rate.
        sigma: smallest and largest noise multiplier.
        steps: most steps.
        least_steps: fewest steps; ``steps`` without it.

    Raises:
        ValueError: ends that are out of range or out of order, steps that are not whole.
    """
    least_steps = steps if least_steps is None else least_steps
    _validate.count(steps=steps, least_steps=least_steps)
    if least_steps > steps:
        raise ValueError(f"least_steps must be at most steps = {steps}, got {least_steps}")
    rates, sigmas = _box(rate, sigma)
    each = loss_moments(PoissonSampled(Gaussian(sigmas), rates))
    with quiet_float64():
        # Means under Q are negative: the end of least size is the largest of them.
        low = jax.tree.map(lambda m: np.sign(m.ravel()[0]) * np.min(np.abs(m)) * least_steps, each)
        high = jax.tree.map(lambda m: np.sign(m.ravel()[0]) * np.max(np.abs(m)) * steps, each)
        return concrete(_theorem(low, high, each))


def clt_of_budget(budget: ArrayLike, regime: str, sigma: tuple[float, float], rate: tuple[float, float]) -> CLT:
    """Theorem 4.3: the filter `jaxacct.filters.approximate_gdp` with its budget spent, and parameters in a box.

    The filter fixes the sum of the approximate means to B, and with it that of the approximate variances to 2 B. The
    sums of the moments themselves are off by the approximations' relative errors, of which the largest on either side,
    over 33 x 33 points of the box, are taken: a survey and no proof, as in `clt_of_box`.

    Raises:
        ValueError: ends that are out of range or out of order.
    """
    _validate.scalar(_validate.positive, budget=budget)
    rates, sigmas = _box(rate, sigma)
    box = PoissonSampled(Gaussian(sigmas), rates)
    each, rough = loss_moments(box), approximate_moments(box, regime).moments
    with quiet_float64():
        total = float64(budget)
        share = jax.tree.map(lambda a, b: np.asarray(a) / np.asarray(b), each, rough)
        units = Moments(total, -total, 2.0 * total, 2.0 * total, 0.0, 0.0)
        low, high = (jax.tree.map(lambda x, s, end=end: x * end(s), units, share) for end in (np.min, np.max))
        return concrete(_theorem(low, high, each))


def _box(rate: tuple[float, float], sigma: tuple[float, float]) -> Sequence[np.ndarray]:
    """Rates and noise multipliers at 33 x 33 points of a box, corners included."""
    for name, ends in (("rate", rate), ("sigma", sigma)):
        if len(ends) != 2 or not ends[0] <= ends[1]:
            raise ValueError(f"{name} must be a smallest and a largest value, got {ends!r}")
    return np.meshgrid(np.linspace(*rate, _POINTS), np.geomspace(*sigma, _POINTS), indexing="ij")


def _theorem(low: Moments, high: Moments, each: Moments) -> CLT:
    """``low`` and ``high``: sums of moments over all steps at their ends; ``each``: moments of single steps."""
    xp = array_module(low, high, each)
    m_1, eta_1 = (low.mean_p + high.mean_p) / 2, xp.abs(high.mean_p - low.mean_p) / 2
    m_2, eta_2 = -(low.mean_q + high.mean_q) / 2, xp.abs(high.mean_q - low.mean_q) / 2
    variances = xp.stack([low.variance_p, high.variance_p, low.variance_q, high.variance_q])
    v, kappa = (variances.min() + variances.max()) / 2, (variances.max() - variances.min()) / 2
    rho = xp.maximum(xp.max(each.third_p / each.variance_p), xp.max(each.third_q / each.variance_q))
    root = xp.sqrt(v)
    share = rho / root
    error = share * xp.abs(xp.log(share)) + xp.sqrt(kappa / v)
    holds = (4.0 * rho**2 <= v) & (4.0 * kappa <= v)
    mu, phi = (m_1 + m_2) / root, (eta_1 + eta_2) / root
    return CLT(mu, phi, rho, kappa, v, m_1, eta_1, m_2, eta_2, holds, error)
