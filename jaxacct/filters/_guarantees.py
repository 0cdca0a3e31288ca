"""The guarantees that the filters quote."""

from __future__ import annotations

import dataclasses

from jax import Array
from jax.typing import ArrayLike

from jaxacct.losses.gdp_curve import gdp_delta, gdp_epsilon
from jaxacct.losses.renyi import delta_from_renyi, epsilon_from_renyi

__all__ = ["GDPGuarantee", "RenyiGuarantee"]


@dataclasses.dataclass(frozen=True, eq=False)
class GDPGuarantee:
    """mu-GDP of the whole interaction, or an approximation of it where ``is_bound`` is False.

    Attributes:
        mu: the GDP parameter, float64, the budget's shape.
        statement: the theorem, its assumptions, and what the number is not.
        is_bound: whether ``epsilon`` and ``delta`` are proven upper bounds.
    """

    mu: Array
    statement: str
    is_bound: bool = True

    def epsilon(self, delta: ArrayLike) -> Array:
        """The epsilon of mu-GDP at ``delta`` in (0, 1), rounded up; float64. A bound only if ``is_bound``."""
        return gdp_epsilon(self.mu, delta)

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta of mu-GDP at ``epsilon`` >= 0, rounded up; float64. A bound only if ``is_bound``."""
        return gdp_delta(self.mu, epsilon)


@dataclasses.dataclass(frozen=True, eq=False)
class RenyiGuarantee:
    """A Rényi divergence of at most ``rho`` at one order, for the whole interaction.

    Attributes:
        rho: the divergence in nats, float64, the budget's shape.
        order: the order, fixed before the first query.
        statement: the theorem and its assumptions.
        is_bound: always True.
    """

    rho: Array
    order: float
    statement: str
    is_bound: bool = True

    def epsilon(self, delta: ArrayLike) -> Array:
        """The epsilon at ``delta`` in (0, 1) by the tight conversion at this order, rounded up; float64."""
        return epsilon_from_renyi(self.rho, self.order, delta)

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0 by the tight conversion at this order, rounded up; float64."""
        return delta_from_renyi(self.rho, self.order, epsilon)
