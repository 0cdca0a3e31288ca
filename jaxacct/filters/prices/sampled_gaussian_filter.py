"""The filter of a box: a budget of units, prices and updates (`SampledGaussianFilter`)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import reentrant_x64
from jaxacct._numerics.host import at_hand
from jaxacct._numerics.manual_axes import cond
from jaxacct._printing import rounded_up
from jaxacct.filters import amounts
from jaxacct.filters.marks import row_of
from jaxacct.filters.prices.family import UNITS, Family
from jaxacct.filters.prices.grid_table import DEAR, lines_in_units
from jaxacct.filters.prices.look_up import Part, either, left_after, price_halfway
from jaxacct.filters.prices.units import MenuState, UnitFilter
from jaxacct.filters.queries import as_sampled_gaussian, parts_of, position_of
from jaxacct.filters.states import filter_class
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import Gaussian, UserLevel
from jaxacct.mechanisms.base import Mechanism

_RAREST = 1e-12  # rates below it cost as much
_STATEMENT = (
    "The whole interaction satisfies this privacy profile, for add-or-remove neighbours and at every epsilon at once, "
    "if each query is dominated, given all earlier outputs, by the sampled Gaussian (or the entry) it was charged as, "
    "and every refusal was obeyed. The profile bounds the worst case of all adaptive analysts, because each price was "
    "certified: the promise for the budget left after the query, composed with the query, stays below the promise for "
    "the budget before it, at every epsilon (docs/theorems/priced-box.md), with discretisation, truncation and "
    "rounding counted."
)


@filter_class(MenuState, "sampled_gaussian")
class SampledGaussianFilter(UnitFilter):
    """A budget of whole units for sampled Gaussians of a box; make it with `sampled_gaussian`.

    Attributes:
        prices: units at both ends of every interval of the budget left after a query, by noise and rate; int32, shape
            ``(2, sigmas, rates, intervals)``.
        extra: likewise for the further entries, shape ``(2, entries, intervals)``.
        nodes: the intervals' ends in units, int32.
        sigmas: noise multipliers of the grid in float32 pieces, rising.
        rates: its rates, likewise.
        excess: the certified worst case at the lattice's points, of both tables where there are two.
        grid: of the profile, static.
        target: (epsilon, delta), static.
        family: what online prices are certified against, static; None for a box that was read from a `jaxacct.Ledger`,
            which has no online prices.
        other: a second table for the same box and target, in a wide box; None where there is none. An account's first
            query picks the table in which it is cheaper with half of the budget left, for good, even if it fits into
            the other one only. The last bit of the units spent says which one it is.
        records: how many records a user owns at most, static.
    """

    prices: Array
    extra: Array
    nodes: Array
    sigmas: Array
    rates: Array
    excess: Array
    grid: LossGrid = dataclasses.field(metadata={"static": True})
    target: tuple[float, float] = dataclasses.field(metadata={"static": True})
    family: Family | None = dataclasses.field(default=None, metadata={"static": True, "written": False})
    other: SampledGaussianFilter | None = None
    records: int = dataclasses.field(default=1, metadata={"static": True})

    def __repr__(self) -> str:
        """The box, the target and the number of prices."""
        with jax.enable_x64(True):
            ends = [(float(x[0]), float(x[-1])) for x in (amounts.join(self.sigmas), amounts.join(self.rates))]
        (least, most), (rare, often) = ends
        epsilon, delta = self.target
        entries = np.shape(self.extra)[1]
        return (
            f"sampled_gaussian(sigma {least:.6g} to {most:.6g}, rate {rare:.6g} to {often:.6g}"
            + (f", up to {self.records} records of a user" if self.records > 1 else "")
            + (f", {entries} further entries" if entries else "")
            + f"; epsilon {rounded_up(epsilon)} at delta {delta:g}; budget {UNITS:,} units)"
        )

    @property
    def budget(self) -> np.int32:
        """The whole budget in units: 2,000,000,000 for every box."""
        return np.int32(UNITS)

    @property
    def _statement(self) -> str:
        if self.records == 1:
            return _STATEMENT
        return f"Neighbours differ in all records of one user, who owns at most {self.records}. " + _STATEMENT

    @property
    def _edges(self) -> tuple[Array, Array]:
        return amounts.join(self.sigmas)[:1], amounts.join(self.rates)[-1:]

    @property
    def _entries(self) -> int:
        return np.shape(self.extra)[1]

    def _identity(self) -> list[Array]:
        other = [] if self.other is None else self.other._identity()
        large, small = (self.prices, self.extra), (self.nodes, self.sigmas, self.rates)
        return [row_of(table, most=1024) for table in large] + [row_of(one) for one in small] + other

    def price(self, query: object, state: MenuState | None = None) -> Array:
        """The units that ``query`` would be charged in ``state`` (with nothing spent where it is None); int32.

        2**31 - 1, which no budget holds, for what does not fit, for what has no price and for parameters that make
        no sense. Concrete scalar queries with less noise or a larger rate than the box has, and mechanisms of other
        kinds, are priced online: their own least prices are computed, in some tenths of a second.

        Raises:
            ValueError: see :meth:`update`.
        """
        state = self._start() if state is None else state
        admitted, after = self._after(query, state)
        return jnp.where(admitted, after.spent - state.spent, DEAR)

    def update(self, query: object, state: MenuState) -> tuple[Array, MenuState]:
        """Whether ``query`` may run (a bool array) and the state after it.

        Args:
            query: a `PoissonSampled` `Gaussian` (or a `Gaussian`, which has rate 1); an integer, the position of a
                further entry; or a `Composed` of Gaussians, charged run by run, all or nothing. A query with more
                noise or a smaller rate than the box has is charged as the nearest of the box, which dominates it.
            state: from `init` or `update`. Its shape covers the query's.

        Returns:
            ``(admitted, state)``. What has less noise or a larger rate than the box is refused, unless query and state
            are concrete scalars, when it is priced online. A refused query leaves the state as it was.

        Raises:
            ValueError: a query of another type inside a trace, or of a shape that the state does not cover.
        """
        return self._after(query, state)

    def _left_after(self, query: object, left: Array) -> Array:
        parts = self._lines_of(query, left)
        found = left_after(self, parts, left)
        if self.other is None:
            return found
        # The same arrays, so that a compiler finds a query's place in the grid once.
        other = dataclasses.replace(self.other, sigmas=self.sigmas, rates=self.rates)
        others = other._lines_of(query, left)
        cheaper = _where_fresh(left, lambda: price_halfway(other, others) < price_halfway(self, parts))
        return either(left, cheaper, found, left_after(other, others, left))

    def _lines_of(self, query: object, left: Array) -> list[Part]:
        """For each part (noise, rate), or its lines in units, and how often it runs."""
        if (place := position_of(query)) is not None:
            return [(_entry(self.extra, place), 1.0)]
        alone = not any(map(np.ndim, jax.tree.leaves((query, left))))
        concrete = self.family is not None and at_hand(query, left) and alone
        found = []
        for part, runs in parts_of(query):
            with jax.enable_x64(True):
                gaussian = as_sampled_gaussian(part)
            if gaussian is None and not (concrete and isinstance(part, Mechanism) and self.records == 1):
                raise ValueError(
                    "query must be a Gaussian, a PoissonSampled one, a Composed of them or the integer position of a "
                    f"further entry, got {type(part).__name__} (others are priced outside of jit, and in a ledger only "
                    "where they are in extra=; nowhere with records above 1)"
                )
            if gaussian is None or (concrete and not self._inside(*gaussian)):
                if self.records > 1 and gaussian is not None:
                    part = UserLevel(Gaussian(float(gaussian[0])), max(float(gaussian[1]), _RAREST), self.records)
                leaves, structure = jax.tree.flatten(part)
                found.append((_online_lines(self.family, structure, *(np.asarray(x).item() for x in leaves)), runs))
            else:
                found.append((gaussian, runs))
        return found

    @reentrant_x64
    def _inside(self, noise: Array, rate: Array) -> bool:
        """Whether the grid has a query that dominates a sampled Gaussian; True for NaN, which the table refuses."""
        return bool(self._has(noise, rate)) or not (float(noise) > 0 and 0 <= float(rate) <= 1)


def _where_fresh(left: Array, cheaper: Callable[[], Array]) -> Array:
    """``cheaper()``, which is not worked out where every account has spent something."""
    if not isinstance(left, Tracer):
        return cheaper() if bool((left == UNITS).any()) else jnp.bool_(False)
    shape = jax.eval_shape(cheaper).shape
    return cond(jnp.any(left == UNITS), cheaper, lambda: jnp.zeros(shape, bool))


@functools.lru_cache(64)
def _online_lines(family: Family, structure: Any, *leaves: float) -> np.ndarray:
    """The lines of a mechanism with these numbers."""
    return lines_in_units(jax.tree.unflatten(structure, leaves), family)


def _entry(extra: Array, place: Array) -> Array:
    """The lines of a further entry; those that never fit for a position that is none."""
    xp = jnp if isinstance(place, Tracer) or isinstance(extra, jax.Array) else np
    count = np.shape(extra)[1]
    place = xp.asarray(place)
    if not count:
        return xp.full((2, *place.shape, np.shape(extra)[-1]), DEAR, np.int32)
    good = (place >= 0) & (place < count)
    return xp.where(good[..., None], xp.take(xp.asarray(extra), xp.where(good, place, 0), axis=1), DEAR)
