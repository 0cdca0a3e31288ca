"""A guarantee that is a whole curve."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._rounding import deflated, inflated
from jaxacct.losses.conversions import concrete
from jaxacct.losses.grid import LossGrid
from jaxacct.losses.profile import PrivacyProfile

__all__ = ["ProfileGuarantee", "raised"]


@dataclasses.dataclass(frozen=True, eq=False)
class ProfileGuarantee:
    """The privacy profile of the whole interaction, in every direction its curve is for.

    Attributes:
        curve: an upper `PrivacyProfile`.
        statement: the theorem, its assumptions, and what the number is not.
        is_bound: always True.
    """

    curve: PrivacyProfile
    statement: str
    is_bound: bool = True

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0, rounded up; float64."""
        _validate.numbers(epsilon=epsilon)
        _validate.nonnegative(epsilon=epsilon)
        return self.curve.hockey_stick(epsilon)

    @jax.enable_x64(True)
    def epsilon(self, delta: ArrayLike) -> Array:
        """The least epsilon >= 0 at ``delta`` in (0, 1), rounded up; float64, inf where the curve never gets there."""
        _validate.numbers(delta=delta)
        _validate.probability(delta=delta)
        wanted = deflated(jnp.asarray(delta, jnp.float64), 1e-12)  # programs round alike to a few units only
        top = float(self.curve.grid.losses[-1])
        low, high = jnp.zeros_like(wanted), jnp.full_like(wanted, top)
        possible = jnp.asarray(self.curve.hockey_stick(high)) <= wanted

        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = 0.5 * (ends[0] + ends[1])
            enough = jnp.asarray(self.curve.hockey_stick(middle)) <= wanted
            return jnp.where(enough, ends[0], middle), jnp.where(enough, middle, ends[1])

        _, high = jax.lax.fori_loop(0, 55, halve, (low, high))
        high = jnp.where(jnp.asarray(self.curve.hockey_stick(0.0)) <= wanted, 0.0, high)
        return concrete(jnp.where(possible, high, jnp.inf))

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The curve itself, or on another grid."""
        return self.curve if grid is None else self.curve.on(grid)


def raised(profile: PrivacyProfile, slack: float) -> PrivacyProfile:
    """The curve plus ``slack`` at every order (at most that of no privacy)."""
    limit = np.minimum(np.exp(profile.grid.losses), 1.0)
    excess = np.minimum(np.asarray(profile.excess, np.float64) + inflated(slack, 2.0**-50), limit)
    return PrivacyProfile(concrete(excess), profile.grid, "upper")
