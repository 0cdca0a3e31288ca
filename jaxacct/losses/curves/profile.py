"""`PrivacyProfile`: the hockey-stick curve on a fixed grid, a bound from one side."""

from __future__ import annotations

import dataclasses

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.curve_arrays import compiled, float64, quiet_float64
from jaxacct._numerics.pytree import mechanism as checked_tree
from jaxacct._numerics.pytree import replaced, unchecked
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct._types import Float, Float64
from jaxacct.losses.curves import checks as validity
from jaxacct.losses.curves import conversions
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.grids.convex_envelope import masses_of_excess
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism

__all__ = ["PrivacyProfile"]


@checked_tree
class PrivacyProfile:
    """H(gamma) = sup over events A of P(A) - gamma Q(A), piecewise linear in gamma between the points of a grid.

    Stored as the excess E(gamma) = H(gamma) - (1 - gamma)_+ over perfect privacy at gamma_k = exp(loss k of the
    grid), which keeps the digits of both tails. The curve that is meant is exactly this: H(0) = 1; linear in gamma
    from 0 to the first point and between neighbouring points; constant after the last one. So it is the curve of a
    law on the grid with an atom at infinity of mass ``excess[..., -1]``, and every operation that stays on a grid
    (reflection, supremum, comparison) is one on arrays.

    ``bound`` says on which side of the true curve it lies, everywhere and not only at the points. Operations round
    to that side: chords of a convex curve lie above it, pieces of supporting lines below it, and the last bits of
    every evaluation go the same way.

    Attributes:
        excess: shape ``(..., grid.size)``, float64; JAX's array if it was made from one, else NumPy's.
        grid: losses log(gamma); holds loss 0, and none beyond 650 in absolute value.
        bound: ``"upper"`` (a privacy guarantee) or ``"lower"``.

    Raises:
        ValueError: a concrete excess that is NaN, negative, above min(gamma, 1), or of a curve that is not decreasing.
            Traced ones of that kind are no privacy (upper) or perfect privacy (lower). Bounds need not be convex;
            :meth:`from_values` asks for that as well.

    Source: Dong, Roth, Su 2022, section 2.3; Zhu, Dong, Wang 2022 (which functions are such curves).
    """

    excess: Float[Array, "*batch losses"]
    grid: LossGrid = dataclasses.field(metadata={"static": True})
    bound: str = dataclasses.field(default="upper", metadata={"static": True})

    def __post_init__(self) -> None:
        _validate.one_of(("upper", "lower"), bound=self.bound)
        validity.check_grid(self.grid)
        object.__setattr__(self, "excess", validity.lawful_excess(self.excess, self.grid, self.bound))

    @classmethod
    def from_mechanism(
        cls,
        mechanism: Mechanism,
        bound: str = "upper",
        *,
        relation: str = "add_or_remove",
        grid: LossGrid | None = None,
    ) -> PrivacyProfile:
        """The curve of one run of ``mechanism``, from above or from below.

        Args:
            mechanism: parameters of any shape; a family of mechanisms is a batch of curves. A ``Composed`` must have
                scalar parameters and is composed on the grid by FFT (absolute accuracy about 1e-14).
            bound: ``"upper"`` or ``"lower"``.
            relation: see :func:`jaxacct.delta`; `add_or_remove` and `replace_special` are suprema of two directions.
                To compose, compose each direction and take the supremum last: that is tighter.
            grid: without it, 8,192 losses over all but about 1e-16 of the loss, which needs concrete parameters.

        Raises:
            ValueError: an unknown bound or relation, no analysis for the relation, or a grid that does not fit.
        """
        _validate.one_of(("upper", "lower"), bound=bound)
        with quiet_float64():
            grid = conversions.grid_for([mechanism], relation) if grid is None else grid
            validity.check_grid(grid)
            excess = conversions.mechanism_excess(mechanism, grid, bound, relation)
            return unchecked(cls, excess=excess, grid=grid, bound=bound)

    @classmethod
    def from_values(cls, values: ArrayLike, grid: LossGrid, bound: str = "upper") -> PrivacyProfile:
        """A curve from its values H(gamma) at the points of ``grid``, shape ``(..., grid.size)``.

        Values that came from elsewhere say nothing about gamma < 1 beyond their absolute accuracy of 1e-16.

        Raises:
            ValueError: values that are NaN, or not those of a decreasing convex curve above (1 - gamma)_+ (Theorem
                A.3 of the paper on f-DP filters; Zhu, Dong, Wang 2022), saying what is wrong and where.
                Traced values of that kind give the curve of no privacy (upper) or of perfect privacy (lower).
        """
        _validate.one_of(("upper", "lower"), bound=bound)
        validity.check_grid(grid)
        with quiet_float64():
            good = validity.check_profile_values(values, grid)
        return unchecked(cls, excess=_excess_of_values(values, grid.losses, good, bound), grid=grid, bound=bound)

    @classmethod
    def from_pld(cls, pld: PLD, grid: LossGrid | None = None) -> PrivacyProfile:
        """The curve of a PLD, on the PLD's side. Exact but for rounding where the grid holds every loss of the PLD.

        Args:
            pld: any batch.
            grid: of the PLD's spacing; without it, the PLD's own grid, made to hold loss 0 and cut at 650.

        Raises:
            ValueError: a grid of another spacing.
        """
        _validate.instance(PLD, pld=pld)
        grid = conversions.grid_of_pld(pld.grid) if grid is None else grid
        validity.check_grid(grid)
        return unchecked(cls, excess=conversions.pld_excess(pld, grid), grid=grid, bound=pld.bound)

    def to_pld(self) -> PLD:
        """The law of this very curve on the same grid: P(L = log g) = g (H'(g+) - H'(g-)) (Proposition 5)."""
        masses, infinite = masses_of_excess(self.float64(), self.grid, self.bound)
        return unchecked(PLD, masses=masses, infinity_mass=infinite, grid=self.grid, bound=self.bound)

    def hockey_stick(self, epsilon: ArrayLike) -> Float64[Array, "*shape"]:
        """H(exp(epsilon)), rounded to the side of ``bound``; shape ``batch + epsilon.shape``, float64 in [0, 1]."""
        _validate.finite(epsilon=epsilon)
        return _hockey_stick(self, epsilon)

    def values(self) -> Float64[Array, "*batch losses"]:
        """H at the points of the grid, shape ``(..., grid.size)``, rounded to the side of ``bound``."""
        return _values(self)

    def on(self, grid: LossGrid) -> PrivacyProfile:
        """The same bound on a grid of the same spacing that begins or ends elsewhere.

        Raises:
            ValueError: a different spacing.
        """
        validity.check_grid(grid)
        if grid == self.grid:
            return self
        return replaced(self, excess=conversions.moved(self.float64(), self.grid, grid, self.bound), grid=grid)

    def reflect(self) -> PrivacyProfile:
        """The curve of the pair exchanged, gamma H(1 / gamma) + 1 - gamma (Lemma 16 of the residue paper).

        In excesses E'(gamma) = gamma E(1 / gamma), so nothing cancels and the result is good to a few units in
        both tails. The law is the Esscher tilt of Proposition 1 with the losses' signs turned.
        """
        grid = LossGrid(self.grid.spacing, -self.grid.highest, self.grid.size)
        return replaced(self, excess=conversions.reflected(self.float64(), self.grid, self.bound), grid=grid)

    def symmetrise(self) -> PrivacyProfile:
        """sym(H) = max(H, reflection of H) on a grid that holds both: the curve of either direction."""
        reach = max(-self.grid.lowest, self.grid.highest)
        both = LossGrid(self.grid.spacing, -reach, 2 * reach + 1)
        pair = [side.on(both).float64() for side in (self, self.reflect())]
        return replaced(self, excess=conversions.highest_of(pair, self.bound), grid=both)

    def compose(self, other: PrivacyProfile) -> PrivacyProfile:
        """The tensor product, both pairs run, kept on this curve's grid; see :meth:`PLD.compose` for its accuracy.

        Raises:
            ValueError: different spacings or bounds.
        """
        _validate.instance(PrivacyProfile, other=other)
        return PrivacyProfile.from_pld(self.to_pld().compose(other.to_pld()), self.grid)

    def float64(self) -> Float64[Array, "*batch losses"]:
        """The excess in float64, widened to the side of ``bound`` where a float32 program has rounded it."""
        return _wide(self)


@compiled()
def _wide(profile: PrivacyProfile) -> Array:
    gamma = np.exp(profile.grid.losses)
    excess = xp.asarray(profile.excess)
    wide, upper = excess.astype(np.float64), profile.bound == "upper"
    if excess.dtype != np.float64:
        wide = inflated(wide, 2.0**-23) + 1e-38 if upper else deflated(wide, 2.0**-23) - 1e-38
    worst = np.minimum(gamma, 1.0) if upper else 0.0
    limited = xp.clip(wide, 0.0, np.minimum(inflated(gamma, 1e-12), 1.0))
    return xp.where(wide >= 0.0, limited, worst)


@compiled()
def _hockey_stick(profile: PrivacyProfile, epsilon: Array) -> Array:
    at = float64(epsilon)
    return _with_identity(excess_at(_wide(profile), profile.grid, profile.bound, at), at, profile.bound)


@compiled()
def _values(profile: PrivacyProfile) -> Array:
    return _with_identity(_wide(profile), profile.grid.losses, profile.bound)


def excess_at(excess: Array, grid: LossGrid, bound: str, epsilon: Array) -> Array:
    """E(exp(epsilon)) of the piecewise linear curve, rounded to the side of ``bound``.

    With x = epsilon - l_k, the position in a cell is expm1(x) / expm1(spacing); x is off by a few units of epsilon.
    """
    return _excess_at(excess, np.asarray(grid.spacing), np.asarray(float(grid.lowest)), bound, epsilon)


@compiled("bound")
def _excess_at(excess: Array, h: Array, lowest: Array, bound: str, epsilon: Array) -> Array:
    sign = 1.0 if bound == "upper" else -1.0
    size = excess.shape[-1]
    highest = lowest + (size - 1)
    cell = xp.clip(xp.floor(epsilon / h) - lowest, 0, size - 2).astype(np.int32)
    x = xp.clip(epsilon - (cell + lowest) * h, 0.0, h)
    t = xp.clip(xp.expm1(x) / xp.expm1(h), 0.0, 1.0)
    # One line goes on to the left of the first point, another one to the right of the last.
    ends = xp.concatenate([excess[..., :1] * xp.exp(-h), excess, excess[..., -1:]], -1)
    before, low, high, after = (xp.take(ends, cell + k, axis=-1) for k in range(4))
    value = low * (1.0 - t) + high * t
    # Within the rounding of a point epsilon may be in the cell on its other side.
    off = 4.0 * EPS * (xp.abs(epsilon) + h)
    change = xp.maximum(xp.abs(high - low), xp.where(x <= off, xp.abs(low - before), 0.0))
    change = xp.maximum(change, xp.where(h - x <= off, xp.abs(after - high), 0.0))
    moved = off * xp.exp(h) / xp.expm1(h) + 8.0 * EPS
    value = value + sign * (change * moved + 8.0 * EPS * xp.maximum(low, high))
    under = excess[(..., 0) + (None,) * epsilon.ndim] * xp.exp(xp.minimum(epsilon - lowest * h, 0.0))
    under = inflated(under, sign * 8.0 * EPS * (1.0 + xp.abs(epsilon)))
    value = xp.where(epsilon < lowest * h, under, value)
    top = excess[(..., -1) + (None,) * epsilon.ndim]
    # Within a few units of the last point, which side epsilon is on is not known: the last cell, with its margin.
    value = xp.where(epsilon - highest * h > 8.0 * EPS * xp.abs(epsilon), top, value)
    bounded = xp.clip(value, 0.0, xp.minimum(inflated(xp.exp(epsilon), 8.0 * EPS * (1.0 + xp.abs(epsilon))), 1.0))
    return xp.where(xp.isnan(bounded), xp.fmin(xp.exp(epsilon), 1.0) if sign > 0 else 0.0, bounded)


def _with_identity(excess: Array, epsilon: Array, bound: str) -> Array:
    identity = -xp.expm1(xp.minimum(epsilon, 0.0))
    units = 4.0 * EPS * (1.0 if bound == "upper" else -1.0)
    value = excess + inflated(identity, units)
    return xp.clip(xp.where(epsilon < 0, inflated(value, units), excess), 0.0, 1.0)


@compiled("bound")
def _excess_of_values(values: Array, losses: Array, good: Array, bound: str) -> Array:
    values = float64(values)
    gamma, identity = xp.exp(losses), -xp.expm1(xp.minimum(losses, 0.0))
    limit = xp.minimum(gamma, 1.0)
    rounding = xp.where(losses < 0, 4.0 * EPS, 0.0)
    excess = values - identity + (rounding if bound == "upper" else -rounding)
    return xp.where(good[..., None], xp.clip(excess, 0.0, limit), limit if bound == "upper" else 0.0)
