"""Privacy profiles: the hockey-stick curve H(gamma) on a fixed grid, a bound from one side."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._rounding import EPS, deflated, inflated
from jaxacct.losses import conversions, validity
from jaxacct.losses.grid import LossGrid
from jaxacct.losses.pld import PLD

__all__ = ["PrivacyProfile"]


@functools.partial(jax.tree_util.register_dataclass, data_fields=["excess"], meta_fields=["grid", "bound"])
@dataclasses.dataclass(frozen=True, eq=False)
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
        excess: shape ``(..., grid.size)``, float64; a NumPy array outside a trace.
        grid: losses log(gamma); holds loss 0, and none beyond 650 in absolute value.
        bound: ``"upper"`` (a privacy guarantee) or ``"lower"``.

    Source: Dong, Roth, Su 2022, section 2.3; Zhu, Dong, Wang 2022 (which functions are such curves).
    """

    excess: Array
    grid: LossGrid
    bound: str = "upper"

    @classmethod
    def from_mechanism(
        cls, mechanism: Any, bound: str = "upper", *, relation: str = "add_or_remove", grid: LossGrid | None = None
    ) -> PrivacyProfile:
        """The curve of one run of ``mechanism``, from above or from below.

        Args:
            mechanism: parameters of any shape; a family of mechanisms is a batch of curves. A ``Composed`` must have
                scalar parameters and is composed on the grid by FFT (absolute accuracy about 1e-14).
            bound: ``"upper"`` or ``"lower"``.
            relation: ``"remove"``, ``"add"``, ``"replace"``, or ``"add_or_remove"``: the supremum of both directions.
                To compose, compose each direction and take the supremum last: that is tighter.
            grid: without it, 8,192 losses over all but about 1e-16 of the loss, which needs concrete parameters.

        Raises:
            ValueError: an unknown bound or relation, no analysis for the relation, or a grid that does not fit.
        """
        _validate.one_of(("upper", "lower"), bound=bound)
        with jax.enable_x64(True):
            grid = conversions.grid_for([mechanism], relation) if grid is None else grid
            validity.check_grid(grid)
            excess = conversions.mechanism_excess(mechanism, grid, bound, relation)
            return cls(conversions.concrete(excess), grid, bound)

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
        _validate.numbers(values=values)
        if not _validate.is_traced(values):
            validity.check_profile_values(np.asarray(values, np.float64), grid)
        with jax.enable_x64(True):
            excess = _excess_of_values(jnp.asarray(values, jnp.float64), jnp.asarray(grid.losses), bound)
            return cls(conversions.concrete(excess), grid, bound)

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
        with jax.enable_x64(True):
            return cls(conversions.concrete(conversions.pld_excess(pld, grid)), grid, pld.bound)

    def to_pld(self) -> PLD:
        """The law of this very curve on the same grid: P(L = log g) = g (H'(g+) - H'(g-)) (Proposition 5)."""
        with jax.enable_x64(True):
            masses, infinite = conversions.masses_of_excess(self.float64(), self.grid, self.bound)
            return conversions.concrete(PLD(masses, infinite, self.grid, self.bound))

    def hockey_stick(self, epsilon: ArrayLike) -> Array:
        """H(exp(epsilon)), rounded to the side of ``bound``; shape ``batch + epsilon.shape``, float64 in [0, 1]."""
        _validate.numbers(epsilon=epsilon)
        _validate.finite(epsilon=epsilon)
        with jax.enable_x64(True):
            excess = excess_at(self.float64(), self.grid, self.bound, jnp.asarray(epsilon, jnp.float64))
            return conversions.concrete(_with_identity(excess, jnp.asarray(epsilon, jnp.float64), self.bound))

    def values(self) -> Array:
        """H at the points of the grid, shape ``(..., grid.size)``, rounded to the side of ``bound``."""
        with jax.enable_x64(True):
            return conversions.concrete(_with_identity(self.float64(), jnp.asarray(self.grid.losses), self.bound))

    def on(self, grid: LossGrid) -> PrivacyProfile:
        """The same bound on a grid of the same spacing that begins or ends elsewhere.

        Raises:
            ValueError: a different spacing.
        """
        validity.check_grid(grid)
        if grid == self.grid:
            return self
        with jax.enable_x64(True):
            excess = conversions.moved(self.float64(), self.grid, grid, self.bound)
            return PrivacyProfile(conversions.concrete(excess), grid, self.bound)

    def reflect(self) -> PrivacyProfile:
        """The curve of the pair exchanged, gamma H(1 / gamma) + 1 - gamma (Lemma 16 of the residue paper).

        In excesses E'(gamma) = gamma E(1 / gamma), so nothing cancels and the result is good to a few units in
        both tails. The law is the Esscher tilt of Proposition 1 with the losses' signs turned.
        """
        with jax.enable_x64(True):
            grid = LossGrid(self.grid.spacing, -self.grid.highest, self.grid.size)
            excess = conversions.reflected(self.float64(), self.grid, self.bound)
            return PrivacyProfile(conversions.concrete(excess), grid, self.bound)

    def symmetrise(self) -> PrivacyProfile:
        """sym(H) = max(H, reflection of H) on a grid that holds both: the curve of either direction."""
        reach = max(-self.grid.lowest, self.grid.highest)
        both = LossGrid(self.grid.spacing, -reach, 2 * reach + 1)
        one, other = self.on(both), self.reflect().on(both)
        with jax.enable_x64(True):
            excess = conversions.supremum_excess(jnp.stack([one.float64(), other.float64()]), self.bound)
            return PrivacyProfile(conversions.concrete(excess), both, self.bound)

    def compose(self, other: PrivacyProfile) -> PrivacyProfile:
        """The tensor product, both pairs run, kept on this curve's grid; see :meth:`PLD.compose` for its accuracy.

        Raises:
            ValueError: different spacings or bounds.
        """
        _validate.instance(PrivacyProfile, other=other)
        return PrivacyProfile.from_pld(self.to_pld().compose(other.to_pld()), self.grid)

    def float64(self) -> Array:
        """The excess in float64, widened to the side of ``bound`` where a float32 program has rounded it."""
        excess = jnp.asarray(self.excess)
        wide = excess.astype(jnp.float64)
        if excess.dtype != jnp.float64:
            wide = inflated(wide, 2.0**-23) + 1e-38 if self.bound == "upper" else deflated(wide, 2.0**-23) - 1e-38
        worst = jnp.minimum(jnp.exp(jnp.asarray(self.grid.losses)), 1.0) if self.bound == "upper" else 0.0
        limited = jnp.clip(wide, 0.0, jnp.minimum(inflated(jnp.exp(jnp.asarray(self.grid.losses)), 1e-12), 1.0))
        return jnp.where(jnp.isnan(wide), worst, limited)


def excess_at(excess: Array, grid: LossGrid, bound: str, epsilon: Array) -> Array:
    """E(exp(epsilon)) of the piecewise linear curve, rounded to the side of ``bound``.

    With x = epsilon - l_k, the position in a cell is expm1(x) / expm1(spacing); x is off by a few units of epsilon.
    """
    return _excess_at(excess, jnp.asarray(grid.spacing), jnp.asarray(float(grid.lowest)), bound, epsilon)


@functools.partial(jax.jit, static_argnames="bound")
def _excess_at(excess: Array, h: Array, lowest: Array, bound: str, epsilon: Array) -> Array:
    sign = 1.0 if bound == "upper" else -1.0
    size = excess.shape[-1]
    highest = lowest + (size - 1)
    cell = jnp.clip(jnp.floor(epsilon / h) - lowest, 0, size - 2).astype(jnp.int32)
    x = jnp.clip(epsilon - (cell + lowest) * h, 0.0, h)
    t = jnp.clip(jnp.expm1(x) / jnp.expm1(h), 0.0, 1.0)
    # One line goes on to the left of the first point, another one to the right of the last.
    ends = jnp.concatenate([excess[..., :1] * jnp.exp(-h), excess, excess[..., -1:]], -1)
    before, low, high, after = (jnp.take(ends, cell + k, axis=-1) for k in range(4))
    value = low * (1.0 - t) + high * t
    # Within the rounding of a point epsilon may be in the cell on its other side.
    off = 4.0 * EPS * (jnp.abs(epsilon) + h)
    change = jnp.maximum(jnp.abs(high - low), jnp.where(x <= off, jnp.abs(low - before), 0.0))
    change = jnp.maximum(change, jnp.where(h - x <= off, jnp.abs(after - high), 0.0))
    moved = off * jnp.exp(h) / jnp.expm1(h) + 8.0 * EPS
    value = value + sign * (change * moved + 8.0 * EPS * jnp.maximum(low, high))
    under = excess[(..., 0) + (None,) * epsilon.ndim] * jnp.exp(jnp.minimum(epsilon - lowest * h, 0.0))
    under = inflated(under, sign * 8.0 * EPS * (1.0 + jnp.abs(epsilon)))
    value = jnp.where(epsilon < lowest * h, under, value)
    top = excess[(..., -1) + (None,) * epsilon.ndim]
    # Within a few units of the last point, which side epsilon is on is not known: the last cell, with its margin.
    value = jnp.where(epsilon - highest * h > 8.0 * EPS * jnp.abs(epsilon), top, value)
    bounded = jnp.clip(value, 0.0, jnp.minimum(inflated(jnp.exp(epsilon), 8.0 * EPS * (1.0 + jnp.abs(epsilon))), 1.0))
    return jnp.where(jnp.isnan(bounded), jnp.fmin(jnp.exp(epsilon), 1.0) if sign > 0 else 0.0, bounded)


def _with_identity(excess: Array, epsilon: Array, bound: str) -> Array:
    identity = -jnp.expm1(jnp.minimum(epsilon, 0.0))
    units = 4.0 * EPS * (1.0 if bound == "upper" else -1.0)
    value = excess + inflated(identity, units)
    return jnp.clip(jnp.where(epsilon < 0, inflated(value, units), excess), 0.0, 1.0)


@functools.partial(jax.jit, static_argnames="bound")
def _excess_of_values(values: Array, losses: Array, bound: str) -> Array:
    gamma, identity = jnp.exp(losses), -jnp.expm1(jnp.minimum(losses, 0.0))
    limit = jnp.minimum(gamma, 1.0)
    rounding = jnp.where(losses < 0, 4.0 * EPS, 0.0)
    excess = values - identity + (rounding if bound == "upper" else -rounding)
    good = validity.is_profile(values, losses)[..., None]
    return jnp.where(good, jnp.clip(excess, 0.0, limit), limit if bound == "upper" else 0.0)
