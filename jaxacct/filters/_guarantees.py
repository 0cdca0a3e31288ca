"""The guarantees that the filters quote."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.losses import conversions
from jaxacct.losses.gdp_curve import gdp_delta, gdp_epsilon
from jaxacct.losses.profile import PrivacyProfile
from jaxacct.losses.renyi import delta_from_renyi, epsilon_from_renyi

__all__ = ["GDPGuarantee", "MenuGuarantee", "RenyiGuarantee"]


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


@dataclasses.dataclass(frozen=True, eq=False)
class MenuGuarantee:
    """The certified profile of the worst adaptive analyst, of either direction.

    Attributes:
        profile: the curve, a :class:`jaxacct.PrivacyProfile` from above.
        statement: the theorem and its assumptions.
        is_bound: always True.
    """

    profile: PrivacyProfile
    statement: str
    is_bound: bool = True

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta of the whole interaction at ``epsilon`` >= 0, rounded up; float64, the shape of ``epsilon``."""
        _validate.nonnegative(epsilon=epsilon)
        return self.profile.hockey_stick(epsilon)

    def epsilon(self, delta: ArrayLike) -> Array:
        """An epsilon >= 0 at which the profile is at most ``delta``; inf where the table does not reach so far."""
        _validate.probability(delta=delta)
        with jax.enable_x64(True):
            goal = jnp.asarray(delta, jnp.float64) * (1.0 - 1e-12)  # programs round alike to a few units only
            losses = jnp.asarray(self.profile.grid.losses[-self.profile.grid.lowest :])
            meets = self.profile.hockey_stick(losses) <= goal[..., None]
            first = jax.lax.argmax(meets, meets.ndim - 1, jnp.int32)  # of one type in float32 programs too
            low, high = jnp.take(losses, jnp.maximum(first - 1, 0)), jnp.take(losses, first)

            def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
                middle = 0.5 * (ends[0] + ends[1])
                good = jnp.asarray(self.profile.hockey_stick(middle)) <= goal
                return jnp.where(good, ends[0], middle), jnp.where(good, middle, ends[1])

            _, found = jax.lax.fori_loop(0, 50, halve, (low, high))
            found = jnp.where(meets.any(-1), found, jnp.inf)
            return conversions.concrete(found)
