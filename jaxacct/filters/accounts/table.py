"""`sampled_gaussian` and `menu` with an account for each example, which pays for its own norm in whole units."""

from __future__ import annotations

import dataclasses
import math
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, Real
from jaxacct._numerics.float64 import in_float64
from jaxacct.filters import amounts
from jaxacct.filters.accounts.examples import (
    FLAG,
    INFINITY,
    ExamplesState,
    PerExampleFilter,
    as_bits,
    check_query,
    looked_up,
    settle_norms,
)
from jaxacct.filters.prices.family import UNITS
from jaxacct.filters.prices.grid_table import DEAR
from jaxacct.filters.prices.look_up import corners_of
from jaxacct.filters.prices.sampled_gaussian import with_one_table
from jaxacct.filters.prices.table import TableFilter, fraction_of
from jaxacct.filters.queries import as_sampled_gaussian, for_norms, sensitivity_of
from jaxacct.filters.states import filter_class
from jaxacct.mechanisms.base import shapes_of_settings

_BITS = 7  # of a norm's mantissa that its price depends on: norms are rounded up by at most 1 / 128
_SHIFT = 23 - _BITS
_SPENT = np.int32(2**31 - 1)
_LEVELS = 64  # of the budget left, in shares that halve: prices hardly depend on it but at the end
_FIRST = int(np.float32(2**15).view(np.int32) >> 21)


@filter_class(ExamplesState, "per_example", "filter", "examples")
class TablePerExampleFilter(PerExampleFilter[TableFilter]):
    """One budget of whole units for each example; see `per_example`.

    A word's lower 31 bits are the units spent. An example of norm n is charged for the query with noise multiplier
    sigma / min(n, sensitivity); norms are first rounded up to 7 bits after the leading one. A menu charges the cheapest
    entry that dominates it, a box the largest price that the query has while the budget left is within a fifth of what
    it is. Who cannot pay takes no part and keeps what is left.

    A query is a `Gaussian` or a `PoissonSampled` one. For a menu its rate may be one for each example, shape
    ``(examples,)``, which takes longer; each must depend on that example and earlier outputs only.

    Attributes:
        filter: the `TableFilter` whose prices and budget are everybody's.
        near: of a box, the largest price at each corner while the budget left after a query is at least half of the
            least of a level, int32, shape ``(corners, levels)``.
        whole: of a box, the largest price down to nothing left, likewise.
        examples: how many accounts there are, static.
        rows: of the table of prices by norm, static.
    """

    filter: TableFilter
    near: np.ndarray
    whole: np.ndarray
    examples: int = dataclasses.field(metadata={"static": True})
    rows: int = dataclasses.field(metadata={"static": True})

    def _spent(self, state: ExamplesState) -> Array:
        return state.words & _SPENT

    def _remaining(self, state: ExamplesState) -> Array:
        return jnp.asarray(self.filter.budget, jnp.int32) - self._spent(state)

    def _fraction(self, state: ExamplesState) -> Array:
        return fraction_of(self.filter.budget, self._spent(state))

    def _asked(self, query: object) -> object:
        check_query(query, self.examples)
        if not self.filter.fixed and any(shapes_of_settings(query)):
            raise ValueError("query must have one rate for everybody; per_example of a menu takes rates of their own")
        return query

    def _prices(self, query: object, clip: Array, bits: Array, left: Array) -> Array:
        """Units that each example would pay, by the bits of its clipped norm and the units it has left."""
        if any(shapes_of_settings(query)):  # rates of their own
            return self.filter.price(for_norms(query, jax.lax.bitcast_convert_type(bits, jnp.float32)))
        highs, row = _rows_of(clip, bits, self.rows)
        asked = for_norms(query, highs)
        # Prices rise with the norm already. Sorting keeps the compiler from fusing them into every look-up.
        if self.filter.fixed:
            return looked_up(jnp.sort(self.filter.price(asked)), row)
        noise, rate = cast(tuple[Array, Real], as_sampled_gaussian(asked))
        prices = _prices_at_levels(self, noise, rate)
        return looked_up(jnp.sort(prices, axis=0).reshape(-1), row * _LEVELS + _level_of(left))

    def _charged(self, query: object, norms: ArrayLike, words: Array) -> Array:
        clip, bits, good = _clipped(query, norms, self.examples)
        spent = words & _SPENT
        left = jnp.asarray(self.filter.budget, jnp.int32) - spent
        price = self._prices(query, clip, bits, left)
        fits = good & (bits > 0) & (price <= left)
        return jnp.where(fits, (spent + price) | FLAG, spent)

    def _allowed(self, query: object, norms: ArrayLike, words: Array) -> Array:
        _, bits, good = _clipped(query, norms, self.examples)
        return jax.lax.bitcast_convert_type(jnp.where((words < 0) & good & (bits > 0), bits, 0), jnp.float32)


def of_table(filter: TableFilter, examples: int) -> TablePerExampleFilter:
    """One account of a table for each example; of a box with one table.

    Raises:
        ValueError: a box of which nothing fits into a whole budget at the prices of accounts.
    """
    if filter.records > 1:
        raise ValueError(f"filter must be one for single records, got one for {filter.records} records of a user")
    if filter.fixed:
        nothing = np.zeros((0, _LEVELS), np.int32)
        return TablePerExampleFilter(filter, nothing, nothing, examples, _rows_for(filter.noise))
    common = with_one_table(filter)
    near, whole = _largest(common)
    if min(near[..., -1].min(), whole[..., -1].min()) == DEAR:
        raise ValueError(
            "filter must have a query that an account of its own holds at least once, got "
            f"{filter!r}: use more noise, a smaller rate or a larger epsilon"
        )
    return TablePerExampleFilter(common, near, whole, examples, _rows_for(common.sigmas))


def _clipped(query: object, norms: ArrayLike, examples: int) -> tuple[Array, Array, Array]:
    """The clip norm (float32, rounded up), the bits of min(norm, clip norm), and whether a norm is one."""
    clip = amounts.outward(jnp.asarray(sensitivity_of(query), jnp.float64), "float32", up=True)
    bits = as_bits(settle_norms(norms, examples))
    good = (bits >= 0) & (bits < INFINITY) & (clip > 0) & (clip < jnp.inf)
    return clip, jnp.minimum(bits, as_bits(clip)), good


def _rows_of(clip: Array, bits: Array, rows: int) -> tuple[Array, Array]:
    """The upper ends of the intervals of norms that have one price each, and the interval that each norm is in.

    Intervals (low, high] rise to the clip norm, 2^_BITS of them an octave; the first is for all that are smaller still.
    """
    last = (as_bits(clip) - 1) >> _SHIFT
    highs = jnp.maximum((last + 2 - rows + jnp.arange(rows)) << _SHIFT, 1).astype(jnp.int32)
    highs = jnp.minimum(jax.lax.bitcast_convert_type(highs, jnp.float32), clip)
    return highs, jnp.clip(((bits - 1) >> _SHIFT) - last + rows - 1, 0, rows - 1)


@in_float64
def _rows_for(noise: Array) -> int:
    """Enough for noise multipliers in pieces, NaN for none: norms below all pay the least price."""
    found = np.asarray(amounts.join(noise))
    found = found[~np.isnan(found)]
    span = found.max() / found.min() if found.size else 1.0
    return (min(math.ceil(math.log2(span)), 24) + 1) << _BITS


def _level_of(left: Array) -> Array:
    """Which interval of budgets, each 2^(1/4) times the one below, a number of units is in: from its float32 bits."""
    bits = as_bits(left.astype(jnp.float32))
    return jnp.clip((bits >> 21) - _FIRST, 0, _LEVELS - 1)


def _level_ends() -> np.ndarray:
    """The least and the largest number of units of each level, as `_level_of` has them."""
    starts = ((np.arange(_LEVELS + 1) + _FIRST) << 21).astype(np.int32).view(np.float32).astype(np.float64)
    low, high = starts[:-1] * (1 - 2.0**-23), np.minimum(starts[1:] * (1 + 2.0**-23), UNITS)
    low[0] = 0.0
    return np.stack([np.floor(low), np.ceil(high)])


def _prices_at_levels(filter: TablePerExampleFilter, noise: Array, rate: Real) -> Array:
    """Units for each query at each level of the budget left, shape ``(queries, levels)``.

    With b left and the price p, the budget after it is a = b - p; p is certified if it is no less than the price at a.
    """
    good, corners = corners_of(filter.filter, noise, jnp.asarray(rate))

    def mean(table: np.ndarray) -> Array:
        total = jnp.zeros((*noise.shape, _LEVELS))
        for weight, row in corners:
            one, weight = jnp.asarray(table)[row].astype(jnp.float64), weight[:, None]
            total += jnp.where(weight > 0, jnp.where(one < DEAR, weight * one, jnp.inf), 0.0)
        return jnp.ceil(total + 1e-4)

    near, whole = mean(filter.near), mean(filter.whole)
    found = jnp.where(near <= jnp.asarray(_level_ends()[0]) / 2, near, whole)
    return jnp.where(good[:, None] & (found < DEAR), found, DEAR).astype(jnp.int32)


def _largest(common: TableFilter) -> tuple[np.ndarray, np.ndarray]:
    """``near`` and ``whole`` of a box.

    Only budgets that a query leaves count: with b left at most, one of a cell of the grid leaves b less the least price
    of the cell's corners (nothing is dearer than no price, which is what a loud query has for the budgets next to b).
    """
    prices, nodes = np.asarray(common.lines)[:, : common.first_entry].max(0), np.asarray(common.nodes, np.int64)
    least = prices.min(-1).reshape(np.shape(common.sigmas)[0], -1)
    for axis in (0, 1):  # of the cells that a corner belongs to
        padded = np.pad(least, [(1, 1) if axis == i else (0, 0) for i in (0, 1)], mode="edge")
        least = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=axis).min(-1)
    found = []
    for low, high in _level_ends().T:
        used = nodes[:-1] <= np.maximum(high - least.reshape(-1, 1).astype(np.int64), 0)
        for begin in (low / 2, 0.0):
            # Where every price takes more than half of what is left there is no interval: nothing is near.
            intervals = used & (nodes[1:] >= begin)
            some = np.where(intervals, prices, 0).max(-1)
            found.append(np.where(intervals.any(-1), some, DEAR))
    rows = np.stack(found, -1).astype(np.int32)
    return rows[..., 0::2], rows[..., 1::2]
