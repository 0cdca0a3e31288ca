"""One run of a mechanism: its hockey stick straight from the tails of its loss, no lattice.

H(eps) = P(L > eps) - e^eps Q(L > eps). For any event E, P(E) - e^eps Q(E) <= H(eps), so tails evaluated at a loss
that is off by eta give at most H, and at least H - (e^eta - 1) P(L > eps - eta).

A pair that knows its curve in closed form may have a method ``log_hockey_stick(epsilon)``, bounds ``(lower, upper)``
of log H for epsilon >= 0, and ``gaussian_mu()``, a mu such that mu-GDP dominates it: then deltas may underflow and
epsilon has no ceiling.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct._rounding import deflated, inflated
from jaxacct.losses.gdp_curve import log_inverse
from jaxacct.losses.possible import possible

__all__ = ["single_delta", "single_epsilon", "single_value"]

_TINY = 1e-290  # what underflow may hide
_LARGEST = 2.0**60  # losses asked for
_ENDS = (1.0, 30.0, 650.0, 1e4, 1e6, 1e9)  # where to begin looking for epsilon
_UNDERFLOW = -700.0


def single_delta(pair: Any, epsilon: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of delta(epsilon) for one run of ``pair``, scalar epsilon."""
    lower, upper = _from_tails(pair, epsilon)
    if hasattr(pair, "log_hockey_stick"):
        log_lower, log_upper = pair.log_hockey_stick(jnp.maximum(epsilon, 0.0))
        rounding = 1e-13  # of exp, up to a logarithm of 700
        closed_lower = jnp.where(log_lower > _UNDERFLOW, deflated(jnp.exp(log_lower), rounding), 0.0)
        # NaN stays NaN, which fails closed below.
        closed_upper = inflated(jnp.exp(jnp.maximum(log_upper, _UNDERFLOW)), rounding)
        closed_upper = jnp.where(log_upper == -jnp.inf, 0.0, closed_upper)
        lower = jnp.where(epsilon >= 0, closed_lower, lower)
        upper = jnp.where(epsilon >= 0, closed_upper, upper)
    return possible(lower, jnp.where(epsilon >= pair.max_loss(), 0.0, upper), epsilon)


def _from_tails(pair: Any, epsilon: Array) -> tuple[Array, Array]:
    cut = jnp.clip(epsilon, -_LARGEST, _LARGEST)
    p, _, q, _, error = (x[0] for x in pair.tails(cut[None]))
    # e^eps Q(L > eps) <= P(L > eps) <= 1, so the exponential cannot overflow but by rounding. A Q-tail that may
    # have underflowed counts as nothing above and as _TINY below.
    log_scaled = cut + jnp.log(jnp.maximum(q, _TINY))
    scaled = jnp.exp(jnp.minimum(log_scaled, 0.0))
    eta = pair.loss_error() + 2.0**-50 * jnp.abs(cut)
    slack = 2.0 * (error + 2.0**-50 * (1.0 + jnp.abs(cut) + jnp.abs(jnp.log(jnp.maximum(q, _TINY))))) * (p + scaled)
    upper = p - jnp.where(q > _TINY, scaled, 0.0) + slack + 2.0 * jnp.expm1(eta) * (p + slack) + _TINY
    return p - jnp.exp(log_scaled) - slack, upper


def single_value(pair: Any, epsilon: Array) -> Array:
    """delta(epsilon) for one run without bounds, to be differentiated.

    The event {L > eps} maximises P - e^eps Q, so moving its edge changes nothing to first order.
    """
    p, _, q, _, _ = (x[0] for x in pair.tails(epsilon[None]))
    return p - jnp.exp(epsilon) * q


def single_epsilon(pair: Any, delta: Array) -> tuple[Array, Array]:
    """``(lower, upper)`` of the smallest epsilon >= 0 with delta(epsilon) <= delta, by certified bisection."""
    largest = pair.max_loss()
    if hasattr(pair, "log_hockey_stick"):
        target = jnp.log(delta)
        curve = lambda epsilon, side: pair.log_hockey_stick(epsilon)[side]  # noqa: E731
        # Where the dominating Gaussian is small enough, so is the pair itself.
        end = log_inverse(pair.gaussian_mu(), target)
        small = jnp.isfinite(end)
        bottom = jnp.zeros(())
    else:
        target = delta
        curve = lambda epsilon, side: single_delta(pair, epsilon)[side]  # noqa: E731
        ends = jnp.asarray(_ENDS)
        found = jax.lax.map(lambda end: curve(end, 1) <= target, ends)
        end, small = jnp.min(jnp.where(found, ends, _ENDS[-1])), found.any()
        # Beyond `end`, rounding alone may have hidden that the target is met.
        bottom = jnp.max(jnp.where(found | (ends > end), 0.0, ends))

    def halve(bracket: tuple[Array, Array], side: int) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        value = curve(middle, side)
        # The end that is to be certified moves by comparisons that hold; one with NaN certifies nothing.
        enough = value <= target if side else ~(value > target)
        return jnp.where(enough, low, middle), jnp.where(enough, middle, high)

    def both(brackets, _):
        return (halve(brackets[0], 0), halve(brackets[1], 1)), None

    zero = jnp.zeros(())
    starts = ((zero, jnp.where(small, end, _LARGEST)), (jnp.minimum(bottom, end), end))
    # The curve certified both ends where it was asked there; asked again elsewhere, it may round to the other side.
    ((lower, _), (_, high)), _ = jax.lax.scan(both, starts, None, length=60)
    upper = jnp.where(curve(zero, 1) <= target, 0.0, jnp.where(small, high, jnp.inf))
    upper = jnp.where(jnp.isnan(largest), upper, jnp.minimum(upper, jnp.maximum(largest, 0.0)))
    upper = jnp.where(jnp.isnan(upper), jnp.inf, upper)
    # An infinite loss that is likelier than delta leaves no epsilon.
    lower = jnp.where(pair.infinity() > delta, jnp.inf, lower)
    return jnp.minimum(lower, upper), upper
