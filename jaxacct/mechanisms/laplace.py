"""`Laplace`: Laplace noise on a query with an l1 sensitivity."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct._numerics.rounding import inflated, quotient_up
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.pairs.base import Pair, Runs
from jaxacct.mechanisms.pairs.laplace import LaplacePair
from jaxacct.mechanisms.pairs.replaced.laplace import AntipodalLaplacePair
from jaxacct.mechanisms.parameters import Rate, positive
from jaxacct.mechanisms.renyi.concentrated import rho_of_laplace


@mechanism
class Laplace(Symmetric):
    """Adds Laplace noise to a query whose value moves by at most ``sensitivity`` in L1 between neighbours.

    (sensitivity / scale)-DP (Dwork, McSherry, Nissim, Smith 2006). Its dominating pair is Lap(0, scale) against
    Lap(sensitivity, scale), which is symmetric, so `add`, `remove` and `replace` have the same curve; the sensitivity
    is the one *for the relation in question*.

    For vectors with independent noise on every coordinate, one coordinate that moves by all of the L1 sensitivity is
    the worst case. A change of coordinates one after the other is a chain, so its trade-off function is at least
    g(1 - f) of the coordinates' f and g (group privacy: Dong, Roth, Su 2022, proof of Theorem 2.14); and for
    log-concave noise on the line, where T(shift by t)(a) = F(F^-1(1 - a) - t), that is exactly the trade-off function
    of the two shifts added up.

    Attributes:
        scale: the b of the density exp(-abs(x) / b) / (2 b), in the units of the query; any shape, > 0.
        sensitivity: L1 sensitivity in the same units, broadcasts with ``scale``; > 0.

    Raises:
        ValueError: a concrete ``scale`` or ``sensitivity`` that is not a finite number above 0.
    """

    scale: ArrayLike = checked(_validate.positive)
    sensitivity: ArrayLike = checked(_validate.positive, default=1.0)

    def _dominating(self, relation: str) -> Runs:
        return [(LaplacePair(self._epsilon()), 1.0)]

    def _pure(self) -> Array:
        return inflated(positive(self.sensitivity) / positive(self.scale), 2.0**-51)

    def _rho(self) -> Array:
        return rho_of_laplace(self._pure())

    def _epsilon(self) -> Array:
        """sensitivity / scale, rounded up."""
        return positive(quotient_up(positive(self.sensitivity), positive(self.scale)))

    def _replaced(self, rate: Rate) -> Pair:
        return AntipodalLaplacePair(self._epsilon(), rate.value, rate.rest)
