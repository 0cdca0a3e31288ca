"""`PLD`: a privacy loss distribution on a grid, with masses under P and a mass at infinity."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.curve_arrays import compiled, concrete, float64, put, quiet_float64
from jaxacct._numerics.rounding import inflated
from jaxacct._numerics.rows import settings_shapes
from jaxacct.losses.curves.pld_composition import composed
from jaxacct.losses.grids import hockey_stick as pld_curves
from jaxacct.losses.grids.convex_envelope import lowered
from jaxacct.losses.grids.discretize import CEILING, masses_above, masses_below
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions, witness
from jaxacct.mechanisms.pairs.base import Pair

__all__ = ["PLD"]

_SIZE = 2**13
_LEAST = 4  # points of a grid that a mechanism is put on


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["masses", "infinity_mass"], meta_fields=["grid", "bound"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class PLD:
    """Law of the privacy loss log dP/dQ under P, on a fixed grid: a bound from one side on some true law.

    Use it where the distribution itself is needed (pictures, suprema, filters). For a number,
    :func:`jaxacct.epsilon` is tighter: it chooses its own lattices and tilts them, while a PLD keeps its grid,
    and its FFTs cannot resolve hockey sticks below about 1e-15.

    Attributes:
        masses: probability of each loss of the grid, shape ``(..., grid.size)``, float64; a NumPy array outside a
            trace.
        infinity_mass: probability of an infinite loss, shape ``(...)``.
        grid: the lattice, static.
        bound: ``"upper"`` (every operation rounds so that the result still dominates) or ``"lower"``, static.
    """

    masses: Array
    infinity_mass: Array
    grid: LossGrid
    bound: str = "upper"

    @classmethod
    def from_mechanism(
        cls,
        mechanism: Mechanism,
        bound: str = "upper",
        *,
        relation: str = "remove",
        grid: LossGrid | None = None,
    ) -> PLD:
        """The loss of one run of ``mechanism``, from above or from below.

        Args:
            mechanism: a mechanism with scalar parameters. A ``Composed`` is composed on the grid.
            bound: ``"upper"`` or ``"lower"``.
            relation: ``"remove"``, ``"add"``, ``"replace"``, or of ``"replace_special"`` ``"zero_out"`` or
                ``"fill_in"``: one direction at a time (their supremum is looser
                than composing each and taking the worse at the end).
            grid: lattice; without it, one that holds all but about 1e-15 of the loss on 8,192 points, which
                needs concrete parameters.

        Raises:
            ValueError: an unknown bound or relation, no analysis for the relation, or a batch of mechanisms.
        """
        _validate.one_of(("upper", "lower"), bound=bound)
        if isinstance(relation, str) and relation in ("add_or_remove", "replace_special"):
            both = "'remove' or 'add'" if relation == "add_or_remove" else "'zero_out' or 'fill_in'"
            raise ValueError(f"relation must be one direction ({both}), got {relation!r}")
        with quiet_float64():
            # What is below the mechanism's own pair need not be below what it does: a case of it is.
            (parts,) = directions(witness(mechanism, relation) if bound == "lower" else mechanism, relation)
            pairs = [pair for pair, _ in parts]
            settings = np.broadcast_shapes(*settings_shapes(parts))
            if settings:
                raise ValueError(f"mechanism must have scalar parameters, got a batch of shape {settings}")
            counts = [np.asarray(count, np.float64) for _, count in parts]
            if grid is None:
                grid = _grid_for(pairs, counts)
            _validate.instance(LossGrid, grid=grid)
            if grid.size < _LEAST:
                raise ValueError(f"grid must have at least {_LEAST} points, got {grid.size}")
            singles = [_single(pair, grid, bound) for pair in pairs]
            made = [single.self_compose(int(count)) for single, count in zip(singles, counts, strict=True)]
            return concrete(functools.reduce(PLD.compose, made))

    def hockey_stick(self, epsilon: ArrayLike) -> Array:
        """delta(epsilon) of this law: E[(1 - exp(epsilon - L))_+], rounded to the side of ``bound``.

        Args:
            epsilon: any shape; broadcasts after the batch axes of the PLD.

        Returns:
            float64, shape ``batch + epsilon.shape``, in [0, 1].
        """
        _validate.finite(epsilon=epsilon)
        with quiet_float64():
            at = float64(epsilon)
            return concrete(pld_curves.hockey_stick(*self._law(), at, self._sign))

    def trade_off(self, alpha: ArrayLike) -> Array:
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
        with quiet_float64():
            at = float64(alpha)
            return concrete(pld_curves.trade_off(*self._law(), at, self._sign))

    def log_moment(self, theta: ArrayLike) -> Array:
        """log E[exp(theta L); L < inf] under P for a scalar theta >= 0, rounded to the side of ``bound``.

        With infinity_mass 0 it is theta times the Renyi divergence of order theta + 1.
        """
        _validate.number(_validate.nonnegative, theta=theta)
        with quiet_float64():
            masses, _, grid = self._law()
            return concrete(pld_curves.log_moment(masses, grid, float64(theta), self._sign))

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
        with quiet_float64():
            masses, infinity, grid = self._law()
            theta = float64(theta)
            # The normaliser rounds the other way, and the masses once more.
            normaliser = pld_curves.log_moment(masses, grid, theta, -self._sign)
            xp = array_module(normaliser)
            normaliser = xp.where(xp.isfinite(normaliser), normaliser, 0.0)
            made = pld_curves.tilted(masses, grid, theta, normaliser, self._sign)
            return concrete(PLD(made, xp.zeros_like(infinity), grid, self.bound))

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

        def wide(x: Any) -> Any:
            x = x if _validate.is_traced(x) else np.asarray(x)
            if x.dtype == np.float64:
                return x
            up = self.bound == "upper"
            return inflated(x.astype(np.float64), self._sign * 2.0**-23) + (2.0**-126 if up else 0.0)

        return dataclasses.replace(self, masses=wide(self.masses), infinity_mass=wide(self.infinity_mass))

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
        with quiet_float64():
            return concrete(_combine(self.float64(), other.float64(), 1))

    def self_compose(self, steps: int) -> PLD:
        """The law of ``steps`` independent losses added up; ``steps`` is a static whole number >= 1.

        Outside a trace the grid of a long law ends where no more than 2^-80 of the mass lies beyond either end. That
        much counts as infinite, or as the largest sum where losses are bounded (upper), or is left out (lower). In a
        trace the grid holds every sum.

        Raises:
            ValueError: ``steps`` that is no whole number, or a law of more than 2^24 points.
        """
        _validate.whole(steps=steps)
        with quiet_float64():
            return self if steps == 1 else concrete(_combine(self.float64(), None, int(steps)))


def _grid_for(pairs: list[Pair], counts: list[np.ndarray]) -> LossGrid:
    """8,192 points over the composed loss's mean and ten standard deviations, and one step's reach."""
    if _validate.is_traced(pairs):
        raise ValueError("grid must be given where the mechanism's parameters are traced, got None")
    low = high = variance = 0.0
    for pair, count in zip(pairs, counts, strict=True):
        survey = jax.tree.map(np.asarray, pair.survey())
        weights = np.exp(survey.log_masses)
        seen = weights > 1e-18
        mean = float((weights * survey.losses).sum())
        variance += float(count * (weights * (survey.losses - mean) ** 2).sum())
        low += float(count) * mean
        high = max(high, float(np.max(np.abs(survey.losses[seen] - mean))))
    reach = min(10.0 * variance**0.5 + high, CEILING)
    spacing = 2.0 * reach / (_SIZE - 2)
    return LossGrid(spacing, int(np.floor((low - reach) / spacing)), _SIZE)


def _single(pair: Pair, grid: LossGrid, bound: str) -> PLD:
    xp = array_module(pair)
    scalars = jax.tree.map(lambda x: xp.asarray(x, np.float64), pair)
    lattice = np.asarray(grid.spacing), np.asarray(float(grid.lowest)), grid.size
    # Tails were evaluated within half of eta of their losses. Relabelling the edges moves losses by as much. The split
    # of a cell, made with the edge's gamma instead of the true one, misses at most eta/2 gamma_k r_k of
    # p - gamma_k r_k: in all at most eta/2 gamma Q(L > log gamma) of H(gamma), which a second shift covers.
    largest = max(abs(grid.lowest), abs(grid.highest)) * grid.spacing
    eta = 2.0 * (xp.asarray(scalars.loss_error()) + 2.0**-51 * largest)
    if bound == "upper":
        masses, infinite = _masses_above(scalars, *lattice)
        # L + eta is laid on the lattice by connecting the dots: a share of every mass moves up by one point.
        share = inflated(xp.expm1(-eta) / np.expm1(-grid.spacing), 1e-9)
        moved = masses * xp.minimum(share, 1.0)
        masses = inflated(masses - moved, 2.0**-50) + xp.pad(moved[:-1], (1, 0))
        infinite = xp.minimum(infinite + inflated(moved[-1], 1e-12), 1.0)
        masses, infinite = _within(masses, infinite, xp.asarray(scalars.max_loss()) + eta, grid)
        hopeless = ~(share <= 1.0)
        return PLD(xp.where(hopeless, 0.0, masses), xp.where(hopeless, 1.0, infinite), grid, bound)
    masses, certain, clipped = _masses_below(scalars, *lattice)
    # What has no right to be there lowers a hockey stick by at most this, at every epsilon. (The rounding of the loss
    # itself, eta, is not taken off below: some 1e-14 of a nat.)
    infinite = xp.maximum(certain - clipped, 0.0)
    masses = lowered(masses, grid.spacing, inflated(xp.maximum(clipped - certain, 0.0), 1e-9))
    if 0 <= -grid.lowest < grid.size:
        # Every loss dominates the loss that is always 0, which may be more than is left on a coarse grid.
        nothing = put(np.zeros(grid.size), -grid.lowest, 1.0)
        (_, known), (_, found) = (pld_curves.at_lattice_points(m, grid.spacing) for m in (nothing, masses))
        masses = xp.where((infinite == 0) & xp.all(known >= found) & (masses.sum() <= 1.0), nothing, masses)
    return PLD(masses, infinite, grid, bound)


def _within(masses: Any, infinite: Any, largest: Any, grid: LossGrid) -> tuple[Any, Any]:
    """Where no loss is infinite, what was set aside for underflow is put above the largest loss and not at infinity.

    Above it the true curve is 0; below it, mass m / (1 - e^-h) one lattice point further up adds at least m.
    """
    xp = array_module(masses, infinite, largest)
    point = xp.ceil(largest / grid.spacing) + 1.0 - grid.lowest
    fits = (point >= 0) & (point < grid.size) & (infinite <= _UNDERFLOW)
    here = np.arange(grid.size) == point
    more = inflated(infinite / -np.expm1(-grid.spacing), 1e-12)
    return xp.where(fits & here, masses + more, masses), xp.where(fits, 0.0, infinite)


_UNDERFLOW = 1e-250
_masses_above, _masses_below = (compiled(static_argnames="size")(one) for one in (masses_above, masses_below))


@compiled(static_argnums=2)
def _combine(pld: Any, other: Any, steps: int) -> PLD:
    return PLD(*composed(pld, other, steps), pld.bound)
