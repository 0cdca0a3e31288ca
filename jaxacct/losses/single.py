"""One run of a mechanism: its hockey stick straight from the tails of its loss, no lattice.

H(eps) = P(L > eps) - e^eps Q(L > eps). For any event E, P(E) - e^eps Q(E) <= H(eps), so tails evaluated at a loss
that is off by eta give at most H, and at least H - (e^eta - 1) P(L > eps - eta).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct.losses.discretize import CEILING

__all__ = ["single_delta", "single_epsilon", "single_value"]

_TINY = 1e-290  # what underflow may hide


def single_delta(pair: Any, epsilon: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta(epsilon) for one run of ``pair``, scalar epsilon."""
    cut = jnp.clip(epsilon, -CEILING, CEILING)
    p, _, q, _, error = (x[0] for x in pair.tails(cut[None]))
    scaled = jnp.exp(cut) * q
    eta = pair.loss_error() + 2.0**-50 * jnp.abs(cut)
    slack = 2.0 * (error + 2.0**-50 * (1.0 + jnp.abs(cut))) * (p + scaled)
    floor = jnp.maximum(-jnp.expm1(epsilon), 0.0)
    # A Q-tail may have underflowed: below, it is at least not more than this.
    hidden = jnp.exp(cut) * _TINY
    # Beyond the ceiling the Q-part is left out above and everything is left out below.
    upper = jnp.where(epsilon > CEILING, p, p - scaled) + slack + 2.0 * jnp.expm1(eta) * (p + slack) + _TINY
    lower = jnp.where(jnp.abs(epsilon) > CEILING, 0.0, p - scaled - slack - hidden)
    upper = jnp.where(jnp.isnan(upper), 1.0, jnp.clip(upper, floor, 1.0))
    under = floor * (1.0 - 2.0**-50)
    return jnp.where(jnp.isnan(lower), under, jnp.clip(lower, under, 1.0)), upper


def single_value(pair: Any, epsilon: Array) -> Array:
    """delta(epsilon) for one run without bounds, to be differentiated.

    The event {L > eps} maximises P - e^eps Q, so moving its edge changes nothing to first order.
    """
    p, _, q, _, _ = (x[0] for x in pair.tails(epsilon[None]))
    return p - jnp.exp(epsilon) * q


def single_epsilon(pair: Any, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta, by certified bisection."""

    def halve(bracket: tuple[Array, Array], side: int) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        enough = single_delta(pair, middle)[side] <= delta
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    def both(brackets, _):
        return (halve(brackets[0], 0), halve(brackets[1], 1)), None

    start = (jnp.zeros(()), jnp.full((), CEILING))
    ((low, _), (_, high)), _ = jax.lax.scan(both, (start, start), None, length=64)
    at_zero, at_end = single_delta(pair, start[0]), single_delta(pair, start[1])
    upper = jnp.where(at_zero[1] <= delta, 0.0, jnp.where(at_end[1] <= delta, high, jnp.inf))
    lower = jnp.where(at_zero[0] > delta, low, 0.0)
    return lower, upper
