"""The Laplace mechanism."""

from __future__ import annotations

from typing import Any

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import quotient_up
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.antipodal_laplace import AntipodalLaplacePair
from jaxacct.mechanisms.pairs.laplace import LaplacePair
from jaxacct.mechanisms.parameters import Rate, positive

__all__ = ["Laplace"]


@mechanism
class Laplace(Mechanism):
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

    scale: ArrayLike
    sensitivity: ArrayLike = 1.0

    def __post_init__(self) -> None:
        _validate.positive(scale=self.scale, sensitivity=self.sensitivity)

    @property
    def _symmetric(self) -> bool:
        return True

    def _dominating(self, relation: str) -> list[tuple[Any, Any]]:
        return [(LaplacePair(self._epsilon()), 1.0)]

    def _epsilon(self) -> Any:
        """sensitivity / scale, rounded up."""
        return positive(quotient_up(positive(self.sensitivity), positive(self.scale)))

    def _replaced(self, rate: Rate) -> Any:
        return AntipodalLaplacePair(self._epsilon(), rate.value, rate.rest)
