"""The priced box with one account per example: each pays for its own norm, at a price set by what it has left."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct.filters.accounts.examples import (
    ExamplesState,
    as_bits,
    check_query,
    looked_up,
)
from jaxacct.filters.accounts.units import PricedPerExampleFilter, rows_for, rows_of
from jaxacct.filters.prices.family import UNITS
from jaxacct.filters.prices.grid_table import DEAR
from jaxacct.filters.prices.look_up import corners_of
from jaxacct.filters.prices.sampled_gaussian import with_one_table
from jaxacct.filters.prices.sampled_gaussian_filter import SampledGaussianFilter
from jaxacct.filters.queries import as_sampled_gaussian, for_norms
from jaxacct.filters.states import filter_class

_LEVELS = 64  # of the budget left, in shares that halve: prices hardly depend on it but at the end


@filter_class(ExamplesState, "per_example", "common", "examples")
class IndividualSampledGaussianFilter(PricedPerExampleFilter):
    """One budget of whole units for each example; see `per_example`.

    An example of norm n is charged for the query with noise multiplier sigma / min(n, sensitivity); norms are first
    rounded up to 7 bits after the leading one, and the price is the largest that the query has while the budget left is
    within a fifth of what it is. Who cannot pay takes no part and keeps what is left. A query is a `PoissonSampled`
    `Gaussian` of the box at the clip norm, with one rate for everybody.

    Attributes:
        common: the `SampledGaussianFilter` whose prices and budget are everybody's.
        near: the largest price at each corner while the budget left after a query is at least half of the least of a
            level, int32, shape ``(sigmas, rates, levels)``.
        whole: the largest price down to nothing left, likewise.
        examples: how many accounts there are, static.
        rows: of the table of prices by norm, static.
    """

    common: SampledGaussianFilter
    near: np.ndarray
    whole: np.ndarray
    examples: int = dataclasses.field(metadata={"static": True})
    rows: int = dataclasses.field(metadata={"static": True})

    def _asked(self, query: object) -> Any:
        check_query(query, self.examples)
        if any(np.ndim(leaf) for leaf in jax.tree.leaves(query)):
            raise ValueError("query must have one rate for everybody; per_example of a menu takes rates of their own")
        return query

    def _prices(self, query: object, clip: Array, bits: Array, left: Array) -> Array:
        highs, row = rows_of(clip, bits, self.rows)
        prices = _prices(self, *as_sampled_gaussian(for_norms(query, highs)))  # pyright: ignore[reportOptionalIterable]
        # Prices rise with the norm already. Sorting keeps the compiler from fusing them into every look-up.
        return looked_up(jnp.sort(prices, axis=0).reshape(-1), row * _LEVELS + _level_of(left))


def _level_of(left: Array) -> Array:
    """Which interval of budgets, each 2^(1/4) times the one below, a number of units is in: from its float32 bits."""
    bits = as_bits(left.astype(jnp.float32))
    return jnp.clip((bits >> 21) - _FIRST, 0, _LEVELS - 1)


_FIRST = int(np.float32(2**15).view(np.int32) >> 21)


def _level_ends() -> np.ndarray:
    """The least and the largest number of units of each level, as `_level_of` has them."""
    starts = ((np.arange(_LEVELS + 1) + _FIRST) << 21).astype(np.int32).view(np.float32).astype(np.float64)
    low, high = starts[:-1] * (1 - 2.0**-23), np.minimum(starts[1:] * (1 + 2.0**-23), UNITS)
    low[0] = 0.0
    return np.stack([np.floor(low), np.ceil(high)])


def _prices(filter: IndividualSampledGaussianFilter, noise: Array, rate: Array) -> Array:
    """Units for each query at each level of the budget left, shape ``(queries, levels)``.

    With b left and the price p, the budget after it is a = b - p; p is certified if it is no less than the price at a.
    """
    good, corners = corners_of(filter.common, noise, rate)

    def mean(table: np.ndarray) -> Array:
        total = jnp.zeros((*noise.shape, _LEVELS))
        for weight, i, k in corners:
            one, weight = jnp.asarray(table)[i, k].astype(jnp.float64), weight[:, None]
            total += jnp.where(weight > 0, jnp.where(one < DEAR, weight * one, jnp.inf), 0.0)
        return jnp.ceil(total + 1e-4)

    near, whole = mean(filter.near), mean(filter.whole)
    found = jnp.where(near <= jnp.asarray(_level_ends()[0]) / 2, near, whole)
    return jnp.where(good[:, None] & (found < DEAR), found, DEAR).astype(jnp.int32)


def _largest(common: SampledGaussianFilter) -> tuple[np.ndarray, np.ndarray]:
    """``near`` and ``whole`` of a box.

    Only budgets that a query leaves count: with b left at most, one of a cell of the grid leaves b less the least price
    of the cell's corners (nothing is dearer than no price, which is what a loud query has for the budgets next to b).
    """
    prices, nodes = np.asarray(common.prices).max(0), np.asarray(common.nodes, np.int64)
    least = prices.min(-1)
    for axis in (0, 1):  # of the cells that a corner belongs to
        padded = np.pad(least, [(1, 1) if axis == i else (0, 0) for i in (0, 1)], mode="edge")
        least = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=axis).min(-1)
    found = []
    for low, high in _level_ends().T:
        used = nodes[:-1] <= np.maximum(high - least.astype(np.int64), 0)[..., None]
        for begin in (low / 2, 0.0):
            # Where every price takes more than half of what is left there is no interval: nothing is near.
            intervals = used & (nodes[1:] >= begin)
            some = np.where(intervals, prices, 0).max(-1)
            found.append(np.where(intervals.any(-1), some, DEAR))
    rows = np.stack(found, -1).astype(np.int32)
    return rows[..., 0::2], rows[..., 1::2]


def individual_box(filter: SampledGaussianFilter, examples: int) -> IndividualSampledGaussianFilter:
    """One account of a box for each example, with one table.

    Raises:
        ValueError: a box of which nothing fits into a whole budget at the prices of accounts.
    """
    if filter.records > 1:
        raise ValueError(f"filter must be one for single records, got one for {filter.records} records of a user")
    common = with_one_table(filter)
    near, whole = _largest(common)
    if min(near[..., -1].min(), whole[..., -1].min()) == DEAR:
        raise ValueError(
            "filter must have a query that an account of its own holds at least once, got "
            f"{filter!r}: use more noise, a smaller rate or a larger epsilon"
        )
    return IndividualSampledGaussianFilter(common, near, whole, examples, rows_for(common.sigmas))
