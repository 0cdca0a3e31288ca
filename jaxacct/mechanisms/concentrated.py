"""`ZeroConcentratedDP` and `RenyiDP`: mechanisms of which only that guarantee is known."""

from __future__ import annotations

import functools

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import checked, mechanism, unchecked
from jaxacct.mechanisms.base import Mechanism, Symmetric
from jaxacct.mechanisms.gaussian import GDP
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.curve import ConcentratedPair, RenyiPair
from jaxacct.mechanisms.parameters import nonnegative, positive, whole_steps
from jaxacct.mechanisms.renyi.closed import proportional

_DOWN = 1.0 - 2.0**-50


@mechanism
class ZeroConcentratedDP(Symmetric):
    """Any ``rho``-zCDP mechanism, for the relation that is asked about (Bun, Steinke 2016, Definition 1.1).

    rho adds up over runs, also over those between which other mechanisms run (every interaction with the zCDP part is
    zCDP; Vadhan, Zhang 2023 for the concurrent composition of it with the rest). The upper bound of delta is the
    infimum over all orders of the conversion from Rényi divergence of Canonne, Kamath, Steinke 2020, Proposition 12, in
    both directions, and total variation; it is the curve of a dominating pair (``ConcentratedPair``), by which it
    composes with other mechanisms and on samples. The lower bound is the exact curve of one member of the class, the
    Gaussian mechanism with mu = sqrt(2 rho): the best possible conversion lies between the two, so they do not meet.

    Attributes:
        rho: above 0; any shape.

    Raises:
        ValueError: a concrete ``rho`` that is not a finite number above 0.
    """

    rho: ArrayLike = checked(_validate.positive)

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        return proportional(positive(self.rho), order)

    def _rho(self) -> Array:
        return positive(self.rho)

    def _dominating(self, relation: str) -> Runs:
        return [(ConcentratedPair(positive(self.rho)), 1.0)]

    def _runs(self, relation: str, steps: ArrayLike) -> Runs:
        return [(ConcentratedPair(positive(self.rho) * whole_steps(steps)), 1.0)]

    def _witness(self, relation: str) -> Mechanism:
        return unchecked(GDP, mu=_root(2.0 * positive(self.rho)))


@mechanism
class RenyiDP(Symmetric):
    """Any mechanism with Rényi divergence of at most ``epsilon`` at ``order``, in both directions (Mironov 2017).

    The claim is for the relation that is asked about. Divergences of one order add up over runs. Otherwise it is
    treated like ``ZeroConcentratedDP``, with the conversion at this one order. The lower bound is the exact curve of
    the Gaussian mechanism of that divergence, a member of the class that is not its worst.

    Attributes:
        order: above 1; any shape.
        epsilon: divergence in nats, >= 0; broadcasts with ``order``.

    Raises:
        ValueError: a concrete ``order`` that is not a finite number above 1, an ``epsilon`` that is negative or not
            finite.
    """

    order: ArrayLike = checked(functools.partial(_validate.greater, 1.0))
    epsilon: ArrayLike = checked(_validate.nonnegative)

    def _order(self) -> Array:
        order = positive(self.order)
        return xp.where(order > 1.0, order, np.nan)

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        # Divergences increase in the order; above the mechanism's own nothing is known.
        xp, a, known, value = floats(order, self.order, nonnegative(self.epsilon))
        return xp.where((a > 1) & (a <= known) & (known < np.inf) & (value >= 0), value, np.inf)

    def _dominating(self, relation: str) -> Runs:
        return [(RenyiPair(self._order(), nonnegative(self.epsilon)), 1.0)]

    def _runs(self, relation: str, steps: ArrayLike) -> Runs:
        return [(RenyiPair(self._order(), nonnegative(self.epsilon) * whole_steps(steps)), 1.0)]

    def _witness(self, relation: str) -> Mechanism:
        # mu = 0 is no Gaussian; one of 1e-100 stands for it, and its bounds from below are 0.
        mu = _root(2.0 * nonnegative(self.epsilon) / self._order())
        return unchecked(GDP, mu=xp.maximum(mu, 1e-100))


def _root(value: Array) -> Array:
    """Square root, rounded down; a NaN is left to the mechanism's own bounds."""
    return xp.sqrt(value) * _DOWN
