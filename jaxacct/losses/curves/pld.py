"""`PLD`: a privacy loss distribution on a grid, with masses under P and a mass at infinity."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.curve_arrays import compiled, float64, put, quiet_float64
from jaxacct._numerics.pytree import mechanism as checked_tree
from jaxacct._numerics.pytree import replaced, unchecked
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct._numerics.rows import settings_shapes
from jaxacct._types import Float, Float64
from jaxacct.losses.curves import checks as validity
from jaxacct.losses.curves import from_tails as nodes
from jaxacct.losses.curves.pld_composition import Fixed, Points, composed, room
from jaxacct.losses.grids import hockey_stick as pld_curves
from jaxacct.losses.grids.convex_envelope import masses_of_excess
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.losses.grids.hockey_stick import relative_error
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions, witness

__all__ = ["PLD"]

_OUTSIDE = 1e-18  # probability beyond a grid that was chosen


@checked_tree
class PLD:
    """Law of the privacy loss log dP/dQ under P, on a fixed grid: a bound from one side on some true law.

    Use it where the distribution itself is needed (pictures, suprema, filters). For a number,
    :func:`jaxacct.epsilon` is tighter: it chooses its own lattices and tilts them, while a PLD keeps its grid,
    and its FFTs cannot resolve hockey sticks below about 1e-15.

    Attributes:
        masses: probability of each loss of the grid, shape ``(..., grid.size)``, float64; JAX's array if it was made
            from one, else NumPy's.
        infinity_mass: probability of an infinite loss, shape ``(...)``.
        grid: the lattice, static.
        bound: ``"upper"`` (every operation rounds so that the result still dominates) or ``"lower"``, static.

    Raises:
        ValueError: concrete arrays that are no law: NaN, negative masses, a sum beyond 1 or, from above, below 1 (by
            more than 1e-6). Traced ones of that kind have delta 1 (upper), or bound nothing (lower).
    """

    masses: Float[Array, "*batch losses"]
    infinity_mass: Float[Array, "*batch"]
    grid: LossGrid = dataclasses.field(metadata={"static": True})
    bound: str = dataclasses.field(default="upper", metadata={"static": True})

    def __post_init__(self) -> None:
        _validate.instance(LossGrid, grid=self.grid)
        _validate.one_of(("upper", "lower"), bound=self.bound)
        masses, infinite = validity.lawful(self.masses, self.infinity_mass, self.grid, self.bound)
        object.__setattr__(self, "masses", masses)
        object.__setattr__(self, "infinity_mass", infinite)

    @classmethod
    def from_masses(
        cls, masses: ArrayLike, grid: LossGrid, infinity_mass: ArrayLike | None = None, bound: str = "upper"
    ) -> PLD:
        """A law from the probabilities of its losses under P.

        Args:
            masses: of the losses of ``grid``, shape ``(..., grid.size)``.
            grid: the lattice.
            infinity_mass: probability of an infinite loss, shape ``(...)``. Without it, what the masses lack of 1 is
                infinite from above, and left out from below.
            bound: ``"upper"`` or ``"lower"``.

        Raises:
            ValueError: see :class:`PLD`.
        """
        _validate.numbers(masses=masses)
        _validate.instance(LossGrid, grid=grid)
        _validate.one_of(("upper", "lower"), bound=bound)
        with quiet_float64():
            given = float64(masses)
            if given.shape[-1:] != (grid.size,):
                raise ValueError(
                    f"masses must have {grid.size} points on the last axis, as the grid, got {given.shape}"
                )
            if infinity_mass is None:
                infinite = _missing(given) if bound == "upper" else 0.0 * given[..., 0]
            else:
                _validate.numbers(infinity_mass=infinity_mass)
                infinite = float64(infinity_mass)
            return cls(given, infinite, grid, bound)

    @classmethod
    def identity(cls, grid: LossGrid, bound: str = "upper") -> PLD:
        """The loss that is always 0, of a mechanism that reveals nothing; composing with it changes nothing.

        Raises:
            ValueError: a grid without loss 0.
        """
        _validate.instance(LossGrid, grid=grid)
        if grid.lowest > 0 or grid.highest < 0:
            raise ValueError(f"grid must hold loss 0, got losses {grid.losses[0]:g} to {grid.losses[-1]:g}")
        return cls(put(np.zeros(grid.size), -grid.lowest, 1.0), np.zeros(()), grid, bound)

    @classmethod
    def infinite(cls, grid: LossGrid, bound: str = "upper") -> PLD:
        """The loss that is always infinite, of a mechanism that reveals everything: delta is 1 at every epsilon."""
        _validate.instance(LossGrid, grid=grid)
        return cls(np.zeros(grid.size), np.ones(()), grid, bound)

    @classmethod
    def from_mechanism(
        cls, mechanism: Mechanism, bound: str = "upper", *, relation: str = "remove", grid: LossGrid | None = None
    ) -> PLD:
        """The loss of one run of ``mechanism``, from above or from below.

        Args:
            mechanism: a mechanism with scalar parameters. A ``Composed`` is composed on the grid.
            bound: ``"upper"`` or ``"lower"``.
            relation: ``"remove"``, ``"add"``, ``"replace"``, or of ``"replace_special"`` ``"zero_out"`` or
                ``"fill_in"``: one direction at a time (their supremum is looser
                than composing each and taking the worse at the end).
            grid: lattice, which holds loss 0 and none beyond 650; without it, one of 8,192 points around 0 that holds
                all but about 1e-18 of a run, which needs concrete parameters.

        Raises:
            ValueError: an unknown bound or relation, no analysis for the relation, a batch of mechanisms, a bad grid.
        """
        _validate.one_of(("upper", "lower"), bound=bound)
        if isinstance(relation, str) and relation in ("add_or_remove", "replace_special"):
            both = "'remove' or 'add'" if relation == "add_or_remove" else "'zero_out' or 'fill_in'"
            raise ValueError(f"relation must be one direction ({both}), got {relation!r}")
        with quiet_float64():
            # What is below the mechanism's own pair need not be below what it does: a case of it is, in one direction.
            runs, *_ = directions(witness(mechanism, relation) if bound == "lower" else mechanism, relation)
            settings = np.broadcast_shapes(*settings_shapes(runs))
            if settings:
                raise ValueError(f"mechanism must have scalar parameters, got a batch of shape {settings}")
            grid = nodes.grid_for([runs], _OUTSIDE) if grid is None else grid
            validity.check_grid(grid)
            found = []
            for pair, count in runs:
                excess = nodes.excess_of_pair(pair, mechanism, grid, "upper" if bound == "upper" else "law")
                masses, infinite = masses_of_excess(excess, grid, bound)
                one = unchecked(cls, masses=masses, infinity_mass=infinite, grid=grid, bound=bound)
                found.append(one.self_compose(int(count)))
            return functools.reduce(PLD.compose, found)

    def hockey_stick(self, epsilon: ArrayLike) -> Float64[Array, "*shape"]:
        """delta(epsilon) of this law: E[(1 - exp(epsilon - L))_+], rounded to the side of ``bound``.

        Args:
            epsilon: any shape; broadcasts after the batch axes of the PLD.

        Returns:
            float64, shape ``batch + epsilon.shape``, in [0, 1].
        """
        _validate.finite(epsilon=epsilon)
        return _read(self, pld_curves.hockey_stick, epsilon)

    def trade_off(self, alpha: ArrayLike) -> Float64[Array, "*shape"]:
        """Smallest type-II error of a test of Q against P whose type-I error is ``alpha``, rounded to a side.

        T(alpha) = max over gamma of 1 - H(gamma) - gamma alpha with H the hockey stick (Dong, Roth, Su 2022,
        Proposition 2.12), and the maximum is at a lattice point's gamma = exp(loss). An upper law has the larger
        H, so it gives a T rounded *down*, which is the guarantee; a lower law gives one rounded up.

        Args:
            alpha: in [0, 1], any shape; broadcasts after the batch axes of the PLD.

        Returns:
            float64, shape ``batch + alpha.shape``, in [0, 1 - alpha].

        Raises:
            ValueError: a concrete ``alpha`` outside [0, 1].
        """
        _validate.rate(alpha=alpha)
        return _read(self, pld_curves.trade_off, alpha)

    def log_moment(self, theta: ArrayLike) -> Float64[Array, "*shape"]:
        """log E[exp(theta L); L < inf] under P for a scalar theta >= 0, rounded to the side of ``bound``.

        With infinity_mass 0 it is theta times the Renyi divergence of order theta + 1.
        """
        _validate.number(_validate.nonnegative, theta=theta)
        return _log_moment(self, theta)

    def tilt(self, theta: ArrayLike) -> PLD:
        """The Esscher tilt of the finite losses: masses times exp(theta * loss - log_moment(theta)).

        Deep tails become bulk: with N = ``log_moment(theta)`` and L' of the tilted law,

            E[(1 - e^(eps - L))_+; L < inf] = e^N E[e^(-theta L') (1 - e^(eps - L'))_+],

        and it commutes with composition, N adding up. s^-theta (1 - gamma s)_+ is convex and decreasing in
        s = exp(-loss) for theta >= 0, so e^N times hockey sticks of the tilted law bound those of the tilted truth
        from the side of ``bound``. An infinite loss has no finite weight: the result has none. A tilted law that is
        composed is cut as in :meth:`self_compose`, by 2^-80 of its own mass: read it at epsilons on its grid.

        Args:
            theta: scalar >= 0.

        Raises:
            ValueError: a concrete ``theta`` below 0 or not finite.
        """
        _validate.number(_validate.nonnegative, theta=theta)
        return _tilted(self, theta)

    @property
    def _sign(self) -> float:
        return 1.0 if self.bound == "upper" else -1.0

    def _law(self) -> tuple[Array, Array, LossGrid]:
        """Masses and infinity mass as arrays of float64, and the grid."""
        law = self.float64()
        return law.masses, law.infinity_mass, law.grid

    def float64(self) -> PLD:
        """The law in float64, widened to the side of ``bound`` where a float32 program has rounded it.

        Such a program may also have flushed what is below 2^-126, at any loss.
        """
        return _wide(self)

    def compose(self, other: PLD) -> PLD:
        """The law of the sum of two losses: both mechanisms run. Grids must have one spacing; sizes may differ.

        The grid of a long law is cut as in :meth:`self_compose`.

        Raises:
            ValueError: different spacings or bounds, or a law of more than 2^24 points.
        """
        _validate.instance(PLD, other=other)
        if self.grid.spacing != other.grid.spacing:
            raise ValueError(f"spacings must agree, got {self.grid.spacing} and {other.grid.spacing}")
        if self.bound != other.bound:
            raise ValueError(f"bounds must agree, got {self.bound!r} and {other.bound!r}")
        return _combine(self, other, 1)

    def self_compose(self, steps: int) -> PLD:
        """The law of ``steps`` independent losses added up; ``steps`` is a static whole number >= 1.

        Outside a trace the grid of a long law ends where no more than 2^-80 of the mass lies beyond either end. That
        much counts as infinite, or as the largest sum where losses are bounded (upper), or is left out (lower). In a
        trace the grid holds every sum.

        Raises:
            ValueError: ``steps`` that is no whole number, or a law of more than 2^24 points.
        """
        _validate.whole(steps=steps)
        return self if steps == 1 else _combine(self, None, int(steps))


@compiled()
def _missing(masses: Array) -> Array:
    """What the masses lack of 1, rounded up; sums that exceed 1 lack nothing."""
    return xp.maximum(1.0 - deflated(masses.sum(-1), relative_error(masses.shape[-1])), 0.0)


@compiled()
def _wide(law: PLD) -> PLD:
    up, sign = law.bound == "upper", law._sign

    def wide(x: Array) -> Array:
        x = xp.asarray(x)
        if x.dtype == np.float64:
            return x
        return inflated(x.astype(np.float64), sign * 2.0**-23) + (2.0**-126 if up else 0.0)

    return replaced(law, masses=wide(law.masses), infinity_mass=wide(law.infinity_mass))


@compiled("curve")
def _read(law: PLD, curve: Callable[..., Array], at: Array) -> Array:
    return curve(*law._law(), float64(at), law._sign)


@compiled()
def _log_moment(law: PLD, theta: Array) -> Array:
    masses, _, grid = law._law()
    return pld_curves.log_moment(masses, grid, float64(theta), law._sign)


@compiled()
def _tilted(law: PLD, theta: Array) -> PLD:
    masses, infinity, grid = law._law()
    theta = float64(theta)
    # The normaliser rounds the other way, and the masses once more.
    normaliser = pld_curves.log_moment(masses, grid, theta, -law._sign)
    normaliser = xp.where(xp.isfinite(normaliser), normaliser, 0.0)
    made = pld_curves.tilted(masses, grid, theta, normaliser, law._sign)
    return unchecked(PLD, masses=made, infinity_mass=xp.zeros_like(infinity), grid=grid, bound=law.bound)


def _combine(pld: PLD, other: PLD | None, steps: int) -> PLD:
    fixed, points, lowest = room(pld, other, steps)
    masses, infinite = _composed(pld, other, steps, fixed, points)
    grid = LossGrid(pld.grid.spacing, lowest, fixed.length)
    return unchecked(PLD, masses=masses, infinity_mass=infinite, grid=grid, bound=pld.bound)


@compiled("steps", "fixed")
def _composed(pld: PLD, other: PLD | None, steps: int, fixed: Fixed, points: Points) -> tuple[Array, Array]:
    return composed(_wide(pld), None if other is None else _wide(other), steps, fixed, points)
