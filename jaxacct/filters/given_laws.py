"""A query that is a PLD, with all its probability: what its masses leave of 1 is an infinite loss."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import replaced
from jaxacct.losses.curves.pld import PLD

_MOST = 1.0 + 1e-3  # what upper masses may sum up to: rounding up costs some


def completed(law: PLD) -> PLD:
    """``law`` in float64 (inside ``enable_x64``), its missing mass at infinity; NaN masses where it is no law."""
    wide = law.float64()
    masses, infinity = with_missing_mass(wide.masses, wide.infinity_mass)
    return replaced(law, masses=masses, infinity_mass=infinity)


def with_missing_mass(masses: Array, infinity: Array, rounding: float = 0.0) -> tuple[Array, Array]:
    """Masses, NaN where they are those of no law, and the mass at infinity with what they leave of 1 (in float64).

    Nobody knows at which loss missing mass belongs, so it counts as the worst. Up to ``rounding`` of it is what float64
    has rounded off the masses and their sum, for filters that admit no infinite loss at all.
    """
    xp, masses, infinity = floats(masses, infinity)
    total = masses.sum(-1) + infinity
    good = (masses >= 0).all(-1) & (infinity >= 0) & (total <= _MOST)
    missing = xp.where(1.0 - total > rounding, 1.0 - total, 0.0)
    return (xp.where(good[..., None], masses, np.nan), xp.where(good, xp.minimum(infinity + missing, 1.0), np.nan))
