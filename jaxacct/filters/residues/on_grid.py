"""The composition so far along one path, as an upper PLD on a fixed grid: the state of a filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.host import floats, on_device
from jaxacct._numerics.pieces import join, split_up
from jaxacct._numerics.pytree import replaced, unchecked
from jaxacct.filters import amounts
from jaxacct.filters.given_laws import completed
from jaxacct.filters.printing import number
from jaxacct.losses.curves.conversions import grid_of_pld
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.losses.grids.grid import LossGrid


class ComposedState(NamedTuple):
    """The composed law, each number as two float32 whose sum it is, rounded up; how many queries ran, int32; a mark."""

    masses: Array
    infinity: Array
    rounds: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"ComposedState({number(self.rounds)} queries composed)"


def nothing(grid: LossGrid) -> ComposedState:
    """No query yet: loss 0 for certain (inside ``enable_x64``)."""
    masses, none = np.zeros(grid.size), np.zeros((), np.int32)
    masses[-grid.lowest] = 1.0
    return ComposedState(*on_device((split_up(masses), split_up(np.zeros(())), none)))


def law_of(state: ComposedState, grid: LossGrid) -> PLD:
    """The state as an upper law (inside ``enable_x64``)."""
    return unchecked(PLD, masses=join(state.masses), infinity_mass=join(state.infinity), grid=grid, bound="upper")


def after(state: ComposedState, query: PLD, grid: LossGrid) -> ComposedState:
    """The state with one more query: mass above the grid becomes infinite, mass below it moves up to its end."""
    law = law_of(state, grid).compose(query)
    xp, masses, infinite = floats(law.masses, law.infinity_mass)
    # The law's points from `first` on are the grid's; either may reach farther than the other.
    first, size = grid.lowest - law.grid.lowest, law.grid.size
    start, stop = (min(max(place, 0), size) for place in (first, first + grid.size))
    missing = grid.size - (stop - start)
    ahead = min(max(-first, 0), missing)
    kept = masses[start:stop]
    rounding = 1.0 + 2.0**-52 * size
    below, above = masses[:start].sum(), masses[stop:].sum()
    kept = xp.concatenate([xp.zeros(ahead), kept, xp.zeros(missing - ahead)])
    kept = xp.where(np.arange(grid.size) == 0, kept + below * rounding, kept)
    infinite = (infinite + above) * rounding
    return ComposedState(split_up(kept), split_up(xp.minimum(infinite, 1.0)), state.rounds + 1)


def admitted_if(
    within: Callable[[PLD], Array], law: PLD, state: ComposedState, grid: LossGrid, rounds: int | None
) -> tuple[Array, ComposedState]:
    """Whether ``law`` may run after ``state``, and the state after it (inside ``enable_x64``).

    ``within`` says whether the composed law is within the budget. What is no law is refused, as is the query after
    ``rounds`` others. Raises ValueError for a batch of queries.
    """
    amounts.check_covered(np.shape(state.rounds), np.shape(law.infinity_mass))
    law = completed(law)
    xp, masses, infinity = floats(law.masses, law.infinity_mass)
    admitted = (masses >= 0).all() & (infinity >= 0)
    made = after(state, replaced(law, masses=masses, infinity_mass=infinity), grid)
    admitted &= within(law_of(made, grid)) & _is_law(state)
    if rounds is not None:
        admitted &= state.rounds < rounds
    return admitted, jax.tree.map(lambda new, old: xp.where(admitted, new, old), made, state)


def _is_law(state: ComposedState) -> Array:
    """Whether a state holds a law: one that was damaged may lack the mass that its queries' losses had."""
    masses, infinity = join(state.masses), join(state.infinity)
    least = 1.0 - 2.0**-20
    return (masses >= 0).all() & (infinity >= 0) & (masses.sum() + infinity >= least) & (state.rounds >= 0)


def on_grid(query: Any, grid: LossGrid, relation: str, *, symmetric: bool) -> PLD:
    """The query as an upper law on ``grid``; its supremum with its reversal where the theory is of symmetric losses."""
    side = "lower" if isinstance(query, TradeOff) else "upper"
    if isinstance(query, (PLD, PrivacyProfile, TradeOff)) and query.bound != side:
        raise ValueError(f"query must be a guarantee (bound {side!r}), got bound {query.bound!r}")
    if isinstance(query, PLD):
        query = completed(query)
        if not symmetric and query.grid == grid:
            return query
        query = PrivacyProfile.from_pld(query, grid_of_pld(query.grid))
    if isinstance(query, TradeOff):
        profile = query.profile(grid)
    elif isinstance(query, PrivacyProfile):
        profile = query.on(grid)
    else:
        profile = PrivacyProfile.from_mechanism(query, "upper", relation=relation, grid=grid)
    if symmetric:
        profile = profile.symmetrise().on(grid)
    return profile.to_pld()
