"""`Exponential` and `PermuteAndFlip`: private selection of a candidate with a high score."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.host import floats, hosted
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct._numerics.rounding import inflated
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.bounded_range import BoundedRangePair
from jaxacct.mechanisms.parameters import nonnegative, positive
from jaxacct.mechanisms.randomized_response import Response
from jaxacct.mechanisms.renyi.closed import ROUNDING, from_excess, guarded
from jaxacct.mechanisms.renyi.concentrated import rho_of_pure
from jaxacct.mechanisms.renyi.tails import log_power_excess


@mechanism
class Exponential(Symmetric):
    """Chooses candidate r with probability proportional to exp(``epsilon`` u(r) / (2 sensitivity)).

    Here "sensitivity" is the most that a score u(r) moves between neighbours of the relation in question; scores that
    all move the same way (counts, under `add` or `remove`) allow exp(``epsilon`` u(r) / sensitivity) at the same cost.
    Either way log P(r) / Q(r) over all r spans at most ``epsilon``: the mechanism has bounded range (Durfee, Rogers
    2019), which is better than ``epsilon``-DP.

    The pair is the supremum over all pairs of that range (``BoundedRangePair``; Dong, Durfee, Rogers, "Optimal
    Differential Privacy Composition for Exponential Mechanisms", 2020). For one run it is exact. For compositions it
    is a bound, also if an adaptive analyst chooses scores by what came before; that paper's own formula, one
    shift t for all runs, is smaller but holds only for mechanisms that are all fixed in advance. The pair is
    symmetric: `add`, `remove` and `replace` have one curve.

    Attributes:
        epsilon: the range of the loss, > 0; any shape.

    Raises:
        ValueError: a concrete ``epsilon`` that is not a finite number above 0.
    """

    epsilon: ArrayLike = checked(_validate.positive)

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        return _divergence(nonnegative(self.epsilon), order)

    def _pure(self) -> Array:
        return nonnegative(self.epsilon)

    def _rho(self) -> Array:
        # Bounded range: Cesar, Rogers 2021.
        epsilon = self._pure()
        return xp.minimum(epsilon * epsilon / 8, rho_of_pure(epsilon))

    def _dominating(self, relation: str) -> Runs:
        return [(BoundedRangePair(positive(self.epsilon)), 1.0)]


@mechanism
class PermuteAndFlip(Response):
    """Visits candidates in random order, accepts r with probability exp(``epsilon`` (u(r) - max u) / (2 sensitivity)).

    ``epsilon``-DP, and never worse in expected score than the exponential mechanism (McKenna, Sheldon 2020). It is
    not of bounded range, and pure privacy is all that is proven for it: so the pair is the extremal one of
    ``epsilon``-DP, an upper bound that no mechanism of this kind need attain. A lower bound of delta or epsilon is one
    for that extremal pair, not for permute-and-flip itself.

    Attributes:
        epsilon: above 0; any shape.

    Raises:
        ValueError: a concrete ``epsilon`` that is not a finite number above 0.
    """

    epsilon: ArrayLike = checked(_validate.positive)


@hosted
def _divergence(epsilon: Array, order: Array) -> Array:
    """The largest divergence of any pair with a loss in [t - eps, t], over t: docs/proofs/families.md, theorem 6."""
    xp, a, eps = floats(order, epsilon)
    # T = e^t = (a-1)/a e^eps (1 - e^(-a eps)) / (1 - e^(-(a-1) eps)) makes A largest.
    t = xp.clip(eps + _log_mean(a * eps) - _log_mean((a - 1.0) * eps), 0.0, eps)
    # p e^((a-1) t) + (1-p) e^(-(a-1) (eps-t)) with p e^-t + (1-p) e^(eps-t) = 1, as a mean of f(x) = x^a - 1 - a (x-1)
    # over Q: only positive terms. Q = (p e^-t, 1 - p e^-t), x = e^t and e^(t - eps).
    scale = xp.log(-xp.expm1(-eps))
    log_high = xp.log(-xp.expm1(t - eps)) - scale - t
    log_low = xp.log(-xp.expm1(-t)) - scale
    terms = xp.logaddexp(log_high + log_power_excess(t, a), log_low + log_power_excess(t - eps, a))
    # Being off by d costs a relative 4 (d / eps)^2 + a^2 d^2 / 2 of the excess, and t is off by a few roundoffs.
    off = 2.0**-49 * (1.0 + eps)
    terms = terms + 16.0 * (off / eps) ** 2 + (a * off) ** 2 + ROUNDING / (a - 1.0)
    value = from_excess(terms, a, a * eps)
    # The theorem without a maximisation: a range of eps is a eps^2 / 8 (Cesar, Rogers 2021), and eps-DP.
    return guarded(xp.minimum(xp.minimum(value, eps), inflated(a * eps / 8.0 * eps, ROUNDING)), eps, a)


def _log_mean(x: Array) -> Array:
    """log((1 - e^-x) / x) for x > 0: without the logarithms of 0 that near 0 would cancel."""
    series = x * (x / 24.0 * (1.0 - x**2 / 120.0 * (1.0 - x**2 / 63.0)) - 0.5)
    return xp.where(x < 0.1, series, xp.log(-xp.expm1(-x) / x))
