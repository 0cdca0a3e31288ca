"""Pairs with finitely many outcomes: tails by sums from either end."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from jaxacct._least import first_greatest
from jaxacct._rounding import UNIT, deflated
from jaxacct.mechanisms._pair import Survey, Tails
from jaxacct.mechanisms._register import mechanism
from jaxacct.mechanisms._row import Row

__all__ = ["LEAST", "Atoms", "TablePair", "Tabulated"]

LEAST = 1e-307
"""Masses up to here may have underflowed: they are not good to a relative error, and count as none from below."""

_SAME = 1e-9  # share of the range of losses below which two of them count as one atom, for planning
_COMMENSURATE = 1e-6  # of a period that an atom may be off it, for planning


class Atoms(NamedTuple):
    """Outcomes with the same loss, or single ones: arrays of shape ``(atoms,)``, sorted by loss.

    A loss of inf is an outcome with q = 0 and one of -inf an outcome with p = 0.
    """

    losses: Array
    p: Array
    q: Array
    error: Any
    """Relative error of each of the masses above :data:`LEAST`."""
    loss_error: Any
    """Absolute error of the finite losses, one for all or one for each."""


class Tabulated:
    """A :class:`jaxacct.mechanisms._pair.Pair` of which subclasses give the atoms only.

    All sums are of non-negative numbers, so n roundings make a relative error of n units, in whatever order.
    """

    def atoms(self) -> Atoms:
        """The pair itself, computed inside the trace from scalar parameters or from a stored table."""
        raise NotImplementedError

    def tails(self, losses: Array) -> Tails:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        atoms = self.atoms()
        at_most = jnp.searchsorted(atoms.losses, losses, side="right")
        # Comparisons hide a NaN parameter, sums do not.
        poison = 0.0 * (atoms.p.sum() + atoms.q.sum())
        below = lambda masses: poison + jnp.pad(jnp.cumsum(masses), (1, 0))[at_most]  # noqa: E731
        above = lambda masses: poison + jnp.flip(jnp.pad(jnp.cumsum(jnp.flip(masses)), (1, 0)))[at_most]  # noqa: E731
        error = atoms.error + UNIT * (atoms.losses.shape[-1] + 4.0) + 0.0 * losses
        return Tails(above(atoms.p), below(atoms.p), above(atoms.q), below(atoms.q), error)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms._pair.Pair`; the finite losses, exactly."""
        atoms = self.atoms()
        finite = jnp.isfinite(atoms.losses)
        seen = finite & (atoms.p > 0)
        log_masses = jnp.where(seen, jnp.log(jnp.where(seen, atoms.p, 1.0)), -jnp.inf)
        return Survey(jnp.where(finite, atoms.losses, 0.0), log_masses)

    def max_loss(self) -> Array:
        """The largest loss that has any probability; rounded up."""
        atoms = self.atoms()
        largest = jnp.max(jnp.where(atoms.p > 0, atoms.losses, -jnp.inf))
        return jnp.where(jnp.isnan(atoms.p.sum()), jnp.nan, largest + atoms.loss_error)

    def loss_error(self) -> Array:
        """That of the atoms."""
        return jnp.asarray(self.atoms().loss_error)

    def infinity(self) -> Array:
        """The mass of the outcomes that Q never has."""
        atoms = self.atoms()
        mass = jnp.where(atoms.losses == jnp.inf, atoms.p, 0.0).sum()
        return deflated(mass, atoms.error + UNIT * (atoms.losses.shape[-1] + 4.0))

    def anchors(self) -> tuple[Array, Array]:
        """The heaviest atom's loss, and the smallest gap if all others lie at multiples of it."""
        atoms = self.atoms()
        finite = jnp.isfinite(atoms.losses) & (atoms.p + atoms.q > 0)
        origin = atoms.losses[first_greatest(jnp.where(finite, atoms.p, -1.0))]
        away = jnp.where(finite, atoms.losses - origin, 0.0)
        ordered = jnp.sort(away)
        gaps = ordered[1:] - ordered[:-1]
        period = jnp.min(jnp.where(gaps > _SAME * jnp.max(jnp.abs(away)), gaps, jnp.inf), initial=jnp.inf)
        ratio = away / period
        regular = jnp.isfinite(period) & jnp.all(jnp.abs(ratio - jnp.round(ratio)) < _COMMENSURATE)
        return jnp.where(jnp.isfinite(origin), origin, 0.0), jnp.where(regular, period, 0.0)


@mechanism
class TablePair(Tabulated):
    """A stored table; see :class:`Atoms` for what is in it.

    Attributes:
        losses: sorted, -inf and inf included; rows of one size.
        p: masses under P.
        q: masses under Q.
        mass_error: relative error of each mass; scalar float64.
        loss_slack: absolute error of each finite loss; scalar float64.
    """

    losses: Row
    p: Row
    q: Row
    mass_error: Any
    loss_slack: Any

    def atoms(self) -> Atoms:
        """The table."""
        losses, p, q = (jnp.asarray(row.values) for row in (self.losses, self.p, self.q))
        return Atoms(losses, p, q, jnp.asarray(self.mass_error), jnp.asarray(self.loss_slack))
