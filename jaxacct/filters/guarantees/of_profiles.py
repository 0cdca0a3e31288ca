"""A guarantee given by a whole privacy profile."""

from __future__ import annotations

import dataclasses

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module, repeated
from jaxacct._numerics.curve_arrays import concrete
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, on_host
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid


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
        _validate.nonnegative(epsilon=epsilon)
        return self.curve.hockey_stick(epsilon)

    @in_float64
    def epsilon(self, delta: ArrayLike) -> Array:
        """The least epsilon >= 0 at ``delta`` in (0, 1), rounded up; float64, inf where the curve never gets there."""
        _validate.probability(delta=delta)
        curve = on_host(self.curve)
        _, wanted = floats(delta)
        xp = array_module(wanted, curve)
        wanted = deflated(wanted, 1e-12)  # programs round alike to a few units only
        top = float(curve.grid.losses[-1])
        low, high = xp.zeros_like(wanted), xp.full_like(wanted, top)
        possible = curve.hockey_stick(high) <= wanted

        def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = 0.5 * (ends[0] + ends[1])
            enough = curve.hockey_stick(middle) <= wanted
            return xp.where(enough, ends[0], middle), xp.where(enough, middle, ends[1])

        _, high = repeated(halve, (low, high), 55)
        high = xp.where(curve.hockey_stick(0.0) <= wanted, 0.0, high)
        return concrete(xp.where(possible, high, np.inf))

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The curve itself, or on another grid."""
        return self.curve if grid is None else self.curve.on(grid)


def raised(profile: PrivacyProfile, slack: float) -> PrivacyProfile:
    """The curve plus ``slack`` at every epsilon (at most that of no privacy)."""
    limit = np.minimum(np.exp(profile.grid.losses), 1.0)
    excess = np.minimum(np.asarray(profile.excess, np.float64) + inflated(slack, 2.0**-50), limit)
    return decreasing(unchecked(PrivacyProfile, excess=concrete(excess), grid=profile.grid, bound="upper"))


def decreasing(profile: PrivacyProfile) -> PrivacyProfile:
    """The upper ``profile``, lowered where it rises away from gamma = 1, as a bound with a slack can and H cannot.

    H is decreasing, so at gamma >= 1 it is at most the least bound between 1 and gamma. H is convex and H(0) = 1, so
    E(gamma) / gamma increases on (0, 1], and is at most the least bound on it between gamma and 1.
    """
    excess, losses = np.asarray(profile.excess, np.float64), profile.grid.losses
    center = -profile.grid.lowest
    above = np.minimum.accumulate(excess[..., center:], -1)
    gamma = np.exp(losses[: center + 1])
    share = inflated(excess[..., : center + 1] / gamma, 8 * EPS)
    below = np.minimum.accumulate(share[..., ::-1], -1)[..., ::-1] * gamma
    below = np.minimum(inflated(below, 8 * EPS), excess[..., : center + 1])
    lowered = np.concatenate([below[..., :-1], above], -1)
    return unchecked(PrivacyProfile, excess=concrete(lowered), grid=profile.grid, bound="upper")


def certified(excess: np.ndarray, grid: LossGrid, epsilon: float, delta: float) -> PrivacyProfile:
    """The profile, for both directions, of a certified excess for `remove` at the grid's points.

    Raises:
        ArithmeticError: it misses the target (``epsilon``, ``delta``).
    """
    worst = np.minimum(excess, np.minimum(inflated(np.exp(grid.losses), 2.0**-48), 1.0))
    profile = decreasing(unchecked(PrivacyProfile, excess=concrete(worst), grid=grid, bound="upper").symmetrise())
    reached = float(profile.hockey_stick(epsilon))
    if not reached <= delta:
        raise ArithmeticError(f"the certified curve misses the target: delta {reached:g} at epsilon {epsilon:g}")
    return profile
