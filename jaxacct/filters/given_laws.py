"""A query that is a PLD, with all its probability: what its masses leave of 1 is an infinite loss."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import replaced
from jaxacct.losses.curves.pld import PLD

_MOST = 1.0 + 1e-3  # what upper masses may sum up to: rounding up costs some


def completed(law: PLD, rounding: float = 0.0) -> PLD:
    """``law`` in float64 (inside ``enable_x64``), its missing mass at infinity; NaN masses where it is no law.

    Nobody knows at which loss missing mass belongs, so it counts as the worst. Up to ``rounding`` of it is what float64
    has rounded off the masses and their sum, for filters that admit no infinite loss at all.
    """
    wide = law.float64()
    xp, masses, infinity = floats(wide.masses, wide.infinity_mass)
    total = masses.sum(-1) + infinity
    good = (masses >= 0).all(-1) & (infinity >= 0) & (total <= _MOST)
    missing = 1.0 - total
    missing = xp.where(missing > rounding, missing, 0.0)
    return replaced(
        law,
        masses=xp.where(good[..., None], masses, np.nan),
        infinity_mass=xp.where(good, xp.minimum(infinity + missing, 1.0), np.nan),
    )
