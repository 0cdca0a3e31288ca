"""Pairs with finitely many outcomes: tails by sums from either end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, Real, column, pick, ranks, take, xp
from jaxacct._numerics.least import first_greatest
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, deflated
from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails

LEAST = 1e-307
"""Masses up to here may have underflowed: they are not good to a relative error, and count as none from below."""


class Atoms(NamedTuple):
    """Outcomes with the same loss, or single ones: arrays of shape ``(..., atoms)``, sorted by loss.

    A loss of inf is an outcome with q = 0 and one of -inf an outcome with p = 0.
    """

    losses: Array
    p: Array
    q: Array
    error: Real
    """Relative error of the masses above :data:`LEAST`; broadcasts against them."""
    loss_error: Real
    """Absolute error of the finite losses, one for all or one for each; broadcasts against them."""


MOST_LISTED = 8192
"""Outcomes of a window, at most."""


class Window(NamedTuple):
    """Outcomes that hold all but a probability of at most ``rest_p`` under P and ``rest_q`` under Q, ``(...)``.

    A pair with infinitely many outcomes may have a method ``window(log_share)`` that lists, in NumPy, as many as leave
    out about exp(``log_share``), or :data:`MOST_LISTED`.
    """

    atoms: Atoms
    rest_p: Array
    rest_q: Array


def lists_outcomes(pair: Pair) -> bool:
    """Whether ``pair`` has few outcomes, and a method ``atoms()`` that lists them."""
    return hasattr(pair, "lists_outcomes") and pair.lists_outcomes()


class Listed(Pair):
    """A pair whose outcomes are known, one by one: what does not need accurate tails is read off them."""

    def _listed(self) -> Atoms:
        """All outcomes, in any order: masses of infinite losses within their error, others as a survey needs them."""
        raise NotImplementedError

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`; the finite losses, exactly."""
        atoms = self._listed()
        finite = xp.isfinite(atoms.losses)
        seen = finite & (atoms.p > 0)
        log_masses = xp.where(seen, xp.log(xp.where(seen, atoms.p, 1.0)), -np.inf)
        return Survey(xp.where(finite, atoms.losses, 0.0), log_masses)

    def max_loss(self) -> PerSetting:
        """The largest loss that has any probability; rounded up."""
        atoms = self._listed()
        largest = xp.where(atoms.p > 0, atoms.losses, -np.inf).max(-1)
        return xp.where(xp.isnan(atoms.p.sum(-1)), np.nan, largest + self.loss_error())

    def loss_error(self) -> PerSetting:
        """That of the atoms."""
        atoms = self._listed()
        return xp.broadcast_to(atoms.loss_error, atoms.losses.shape).max(-1)

    def infinity(self) -> PerSetting:
        """The mass of the outcomes that Q never has."""
        atoms = self._listed()
        mass = xp.where(atoms.losses == np.inf, atoms.p, 0.0).sum(-1)
        error = xp.broadcast_to(atoms.error, atoms.losses.shape).max(-1)
        return deflated(mass, error + UNIT * (atoms.losses.shape[-1] + 4.0))

    def anchor(self) -> PerSetting:
        """The heaviest atom's loss."""
        atoms = self._listed()
        finite = xp.isfinite(atoms.losses) & (atoms.p + atoms.q > 0)
        heaviest = pick(atoms.losses, first_greatest(xp.where(finite, atoms.p, -1.0)))
        return xp.where(xp.isfinite(heaviest), heaviest, 0.0)


class Tabulated(Listed):
    """A pair of which subclasses give the atoms only.

    All sums are of non-negative numbers, so n roundings make a relative error of n units, in whatever order.
    """

    def lists_outcomes(self) -> bool:
        """Always; pairs that list theirs only sometimes are no ``Tabulated``."""
        return True

    def atoms(self) -> Atoms:
        """The pair itself, computed from the parameters or from a stored table."""
        raise NotImplementedError

    def _listed(self) -> Atoms:
        return self.atoms()

    def tails(self, losses: Edges) -> Tails:
        atoms = self.atoms()
        at_most = ranks(atoms.losses, losses)
        # Comparisons hide a NaN parameter, sums do not.
        poison = 0.0 * (atoms.p.sum(-1) + atoms.q.sum(-1))[..., None]
        nothing = xp.zeros_like(atoms.p[..., :1])
        below = lambda masses: xp.concatenate([nothing, xp.cumsum(masses, -1)], -1)  # noqa: E731
        above = lambda masses: xp.flip(below(xp.flip(masses, -1)), -1)  # noqa: E731
        p_above, p_below, q_above, q_below = (
            poison + take(summed(masses), at_most) for masses in (atoms.p, atoms.q) for summed in (above, below)
        )
        error = xp.broadcast_to(atoms.error + UNIT * (atoms.losses.shape[-1] + 4.0), p_above.shape)
        return Tails(p_above, p_below, q_above, q_below, error)


@mechanism
class TablePair(Tabulated):
    """A stored table; see :class:`Atoms` for what is in it.

    Attributes:
        losses: sorted, -inf and inf included; rows of one size.
        p: masses under P.
        q: masses under Q.
        mass_error: relative error of each mass; float64.
        loss_slack: absolute error of each finite loss; float64.
    """

    losses: Row
    p: Row
    q: Row
    mass_error: Array
    loss_slack: Array

    def atoms(self) -> Atoms:
        """The table."""
        return Atoms(self.losses.values, self.p.values, self.q.values, column(self.mass_error), column(self.loss_slack))
