"""Looks prices up in a table: the units left after queries, in NumPy or inside a trace."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, array_module, repeated
from jaxacct._numerics.host import hosted
from jaxacct._numerics.manual_axes import scan, while_loop
from jaxacct.filters import amounts
from jaxacct.filters.prices.family import Family
from jaxacct.filters.prices.grid_table import DEAR, lines_in_units
from jaxacct.filters.queries import as_sampled_gaussian, charged_as, parts_of, position_of
from jaxacct.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from jaxacct.filters.prices.table import TableFilter

Lines = tuple[Real, ...] | Array
"""What prices a query: its (noise, rate), its lines in units, shape ``(2, ..., intervals)``, or the dearer of both."""
Part = tuple[Lines, Real]
"""The lines of a mechanism of a query, and how often it runs."""
Price = Callable[[int, Array], Real]
"""A query's price at one end (0, the left one, or 1) of an interval, infinite for none."""


def axes_of(table: TableFilter) -> tuple[Array, Array]:
    """The noise multipliers and the rates of a table's corners; inside ``enable_x64``."""
    return amounts.join(table.sigmas), amounts.join(table.rates)


def parts_in(table: TableFilter, query: object, alone: bool) -> list[Part]:
    """For each part of a query (noise, rate), or its lines in units, and how often it runs.

    A concrete scalar query, ``alone``, that the axes do not have is priced by itself, where there is a promise; a
    sampled Gaussian at no less than the nearest one that they have, which it dominates.
    """
    if (place := position_of(query)) is not None:
        return [(_entry(table.entries, place), 1.0)]
    online = table.promise if alone and isinstance(table.promise, Family) else None
    found: list[Part] = []
    for part, runs in parts_of(query):
        with jax.enable_x64(True):
            gaussian = as_sampled_gaussian(part)
            inside = gaussian is not None and (online is None or _on_axes(table, *gaussian))
        if gaussian is not None and inside:
            found.append((gaussian, runs))
        elif online is not None and isinstance(part, Mechanism) and (table.records == 1 or gaussian is not None):
            asked = part if gaussian is None else charged_as(float(gaussian[0]), float(gaussian[1]), table.records)
            leaves, structure = jax.tree.flatten(asked)
            own = _online_lines(online, structure, *(np.asarray(x).item() for x in leaves))
            found.append((own if gaussian is None else (*_nearest(table, *gaussian), own), runs))
        else:
            raise ValueError(
                "query must be a Gaussian, a PoissonSampled one, a Composed of them or the integer position of an "
                f"entry, got {type(part).__name__} (others are priced outside of jit, by sampled_gaussian and by menu "
                "with online=True, for single records; a ledger takes them as entries: extra= or mechanisms)"
            )
    return found


def _on_axes(table: TableFilter, noise: Real, rate: Real) -> bool:
    """Whether a corner dominates a sampled Gaussian; True for NaN, which the table refuses."""
    sigmas, rates = axes_of(table)
    wrong = not (float(noise) > 0 and 0 <= float(rate) <= 1)
    return wrong or bool(float(noise) >= sigmas[0] and float(rate) <= rates[-1])


def _nearest(table: TableFilter, noise: Real, rate: Real) -> tuple[Array, Array]:
    """The noise and the rate that a table's axes have next to these."""
    with jax.enable_x64(True):
        sigmas, rates = axes_of(table)
        return np.maximum(noise, sigmas[0]), np.minimum(rate, rates[-1])


@functools.lru_cache(64)
def _online_lines(family: Family, structure: Any, *leaves: float) -> np.ndarray:
    """The lines of a mechanism with these numbers."""
    return lines_in_units(jax.tree.unflatten(structure, leaves), family)


def _entry(entries: Array, place: Array | np.int32) -> Array:
    """The lines of an entry; those that never fit for a position that is none."""
    xp = jnp if isinstance(place, Tracer) or isinstance(entries, jax.Array) else np
    count = np.shape(entries)[1]
    place = xp.asarray(place)
    if not count:
        return xp.full((2, *place.shape, np.shape(entries)[-1]), DEAR, np.int32)
    good = (place >= 0) & (place < count)
    return xp.where(good[..., None], xp.take(xp.asarray(entries), xp.where(good, place, 0), axis=1), DEAR)


def corners_of(table: TableFilter, noise: Array, rate: Array) -> tuple[Array, list[tuple[Array, Array, Array]]]:
    """Whether the axes cover a query, and (weight, row, column) of the mixture of corners that dominates it."""
    xp = array_module(table, noise, rate)
    sigmas, rates = axes_of(table)
    noise, rate = xp.broadcast_arrays(*(xp.asarray(x, np.float64) for x in (noise, rate)))
    good = (noise >= sigmas[0]) & (noise < np.inf) & (rate >= 0) & (rate <= rates[-1])
    noise = xp.clip(xp.where(good, noise, sigmas[-1]), sigmas[0], sigmas[-1])
    rate = xp.clip(xp.where(good, rate, rates[0]), rates[0], rates[-1])
    # The dearer corner's weight, rounded up: in noise the one below, in rate the one above.
    row = xp.clip(_below(xp, sigmas, noise, True), 0, max(sigmas.shape[0] - 2, 0))
    column = xp.clip(_below(xp, rates, rate, False), 0, max(rates.shape[0] - 2, 0))
    next_row, next_column = (xp.minimum(at + 1, x.shape[0] - 1) for at, x in ((row, sigmas), (column, rates)))
    # Lemma 1: the derivative of a curve in 1 / sigma, over exp(-pace / sigma), rises between two corners.
    most = (table.records - 1) * table.records + 1.0
    pace = (most if table.records == 1 else most / 0.75) / (4.0 * sigmas[row])
    here, whole = (pace * (1.0 / sigmas[next_row] - 1.0 / x) for x in (noise, sigmas[row]))
    dearer = _share(xp, here, whole)
    dearer = xp.where(noise >= sigmas[-1], 0.0, dearer) if sigmas.shape[0] > 1 else xp.ones_like(dearer)
    # By how likely the sample holds a record of the user.
    here, whole = (table.records * (xp.log1p(-x) - xp.log1p(-rates[column])) for x in (rate, rates[next_column]))
    oftener = _share(xp, here, whole)
    oftener = xp.where(rate <= rates[0], 0.0, oftener) if rates.shape[0] > 1 else xp.ones_like(oftener)
    corners = [
        (by_noise * by_rate, i, k)
        for by_noise, i in ((dearer, row), (1.0 - dearer, next_row))[: sigmas.shape[0]]
        for by_rate, k in ((oftener, next_column), (1.0 - oftener, column))[: rates.shape[0]]
    ]
    return good, corners


def _below(xp: ModuleType, rising: Array, value: Array, right: bool) -> Array:
    """How many of a few numbers are below ``value`` (or equal to it), less 1."""
    less = rising <= value[..., None] if right else rising < value[..., None]
    return less.sum(-1) - 1


def _share(xp: ModuleType, part: Array, whole: Array) -> Array:
    """(1 - exp(part)) / (1 - exp(whole)) of numbers <= 0, rounded up."""
    return xp.clip(xp.expm1(part) / xp.where(whole < 0, xp.expm1(whole), -1.0) + 1e-9, 0.0, 1.0)


def _cheapest(table: TableFilter, noise: Array, rate: Array) -> tuple[Array, Array]:
    """Whether an entry dominates a query, and the position of the one that is cheapest with half of the budget left."""
    xp = array_module(table, noise, rate)
    covers = (noise[..., None] >= amounts.join(table.noise)) & (rate[..., None] <= amounts.join(table.rate))
    covers &= ((rate >= 0) & (noise < np.inf))[..., None]
    prices = xp.asarray(table.entries)[1, :, _half(table)].astype(np.int64)
    count = prices.shape[0]
    # The position beside the price: an `argmin` that is lowered outside of float64 would have another type.
    ranks = xp.where(covers, prices * count + np.arange(count), (DEAR + 1) * count)
    return xp.any(covers, -1), (ranks.min(-1) % count).astype(np.int32)


def _half(table: TableFilter) -> int:
    """The interval with about half of the budget: intervals are as long as the root of their budget."""
    return int(0.7 * (table.nodes.shape[0] - 1))


def _prices_of(table: TableFilter, noise: Real, rate: Real) -> tuple[Array, Price]:
    """Whether the table has a sampled Gaussian, and its price: of the corners around it, or else of an entry."""
    xp = array_module(table, noise, rate)
    both = xp.broadcast_arrays(*(xp.asarray(x, np.float64) for x in (noise, rate)))
    axes, some = (np.shape(x)[1] > 0 for x in (table.corners, table.entries))
    on_axes, corners = corners_of(table, *both) if axes else (np.zeros(both[0].shape, bool), [])
    listed, place = _cheapest(table, *both) if some else (np.zeros(both[0].shape, bool), 0)
    whole, entries = xp.asarray(table.corners), xp.asarray(table.entries)

    def price(end: int, interval: Array) -> Real:
        total: Real = 0.0
        for weight, i, k in corners:
            one = whole[end, i, k, interval].astype(np.float64)
            total = total + xp.where(weight > 0, xp.where(one < DEAR, weight * one, np.inf), 0.0)
        if not some:
            return total
        one = entries[end, place, interval].astype(np.float64)
        return xp.where(on_axes, total, xp.where(one < DEAR, one, np.inf))

    return on_axes | listed, price


@hosted
def _left_by_table(table: TableFilter, noise: Array, rate: Array, left: Array) -> Array:
    """The units left after one run of a sampled Gaussian; -1 where it does not fit."""
    xp = array_module(table, noise, rate, left)
    noise, rate, left = xp.broadcast_arrays(*(xp.asarray(x, np.float64) for x in (noise, rate, left)))
    good, price = _prices_of(table, noise, rate)
    return xp.where(good, _settled(xp, price, xp.asarray(table.nodes), left), -1).astype(np.int32)


@hosted
def left_by_lines(lines: Array, nodes: Array, left: Array) -> Array:
    """The units left after one run of a query by its own lines; -1 where it does not fit."""
    xp = array_module(lines, nodes, left)
    lines, left = xp.asarray(lines), xp.asarray(left, np.float64)

    def price(end: int, interval: Array) -> Real:
        rows = xp.broadcast_to(lines[end], (*interval.shape, lines.shape[-1]))
        one = xp.take_along_axis(rows, interval[..., None], -1)[..., 0].astype(np.float64)
        return xp.where(one < DEAR, one, np.inf)

    shape = np.broadcast_shapes(lines.shape[1:-1], left.shape)
    return _settled(xp, price, xp.asarray(nodes), xp.broadcast_to(left, shape)).astype(np.int32)


def _settled(xp: ModuleType, price: Price, nodes: Array, left: Array) -> Array:
    """The largest budget after the query whose line allows it; -1 where there is none.

    The interval is the last one whose left end can be reached; any that can be would be sound.
    """
    nodes, count = nodes.astype(np.float64), nodes.shape[0] - 1

    def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) // 2
        reached = nodes[middle] + price(0, middle) <= left
        return xp.where(reached, middle, ends[0]), xp.where(reached, ends[1], middle)

    start = xp.zeros(left.shape, np.int32), xp.full(left.shape, count, np.int32)
    low, _ = repeated(halve, start, (count - 1).bit_length())
    begin, first, second = nodes[low], price(0, low), price(1, low)
    length = nodes[low + 1] - begin
    over = left - begin - first
    share = xp.clip(over / xp.maximum(length + second - first, 1.0), 0.0, 1.0)
    # A menu's prices are whole; of a box, a mean of whole ones is rounded.
    asked = xp.ceil(first + share * (second - first) + (1e-4 if count > 1 else 0.0))
    after = xp.minimum(begin + length, left - asked)
    # Rounding the price up may carry the budget after it just below the interval.
    fits = (over >= 0) & (left <= nodes[-1]) & (second < np.inf) & (after >= 0)
    return xp.where(fits, after, -1.0)


def left_after(table: TableFilter, parts: list[Part], left: Array) -> Array:
    """The units left after the parts of a query, one after the other; negative where they do not fit."""
    with jax.enable_x64(True):
        alone = len(parts) == 1 and _once(parts[0][1])
        if not (alone or table.fixed) and all(isinstance(lines, tuple) and len(lines) == 2 for lines, _ in parts):
            return _left_by_parts(table, parts, left)
        for lines, runs in parts:
            left = _left_by_runs(table, lines, runs, left)
        return left


def _once(runs: Real) -> bool:
    return not _validate.is_traced(runs) and np.ndim(runs) == 0 and float(runs) == 1.0


def _left_by_runs(table: TableFilter, lines: Lines, runs: Real, left: Array) -> Array:
    """The units left after so many runs of one part; -1 where they do not fit."""

    def run(left: Array) -> Array:
        if not isinstance(lines, tuple):
            return left_by_lines(lines, table.nodes, left)
        noise, rate, *own = lines
        after = [_left_by_table(table, noise, rate, left), *(left_by_lines(one, table.nodes, left) for one in own)]
        return functools.reduce(array_module(after).minimum, after)

    if _once(runs):
        return run(left)
    if table.fixed:
        return _left_by_multiples(run(table.nodes[-1]), table.nodes[-1], runs, left)
    runs = jnp.asarray(runs, jnp.float64)
    good = _whole(jnp, runs) & (runs < 2.0**31)

    def going(state: tuple[Array, Array]) -> Array:
        done, left = state
        return good & (done < runs) & (left >= 0)

    # Stops once nothing fits: a refused query may ask for 10^9 runs.
    _, found = while_loop(
        lambda state: going(state).any(),
        lambda state: (state[0] + 1.0, jnp.where(going(state), run(state[1]), state[1])),
        (jnp.float64(0.0), jnp.asarray(left)),
    )
    return jnp.where(good, found, -1)


@hosted
def _left_by_multiples(after: Array, budget: Array, runs: Array, left: Array) -> Array:
    """The same where one run leaves ``after`` of the budget, and costs as much whatever is left."""
    xp = array_module(after, budget, runs, left)
    after, budget, runs, left = (xp.asarray(x, np.float64) for x in (after, budget, runs, left))
    found = left - runs * (budget - after)
    fits = _whole(xp, runs) & (after >= 0) & (found >= 0) & (left <= budget)
    return xp.where(fits, found, -1.0).astype(np.int32)


def _whole(xp: ModuleType, runs: Array) -> Array:
    return (runs >= 1) & (runs == xp.floor(runs))


@jax.jit
def _left_by_parts(table: TableFilter, parts: list[Part], left: Array) -> Array:
    """`left_after` for several sampled Gaussians: one program for all of them."""
    shape = np.broadcast_shapes(*(np.shape(x) for x in jax.tree.leaves((parts, left))))
    noise, rate, runs = (
        jnp.stack([jnp.broadcast_to(jnp.asarray(x, jnp.float64), shape) for x in column])
        for column in zip(*((*lines, runs) for lines, runs in parts), strict=True)
    )

    def body(left: Array, part: Array) -> tuple[Array, None]:
        return _left_by_runs(table, part[:2], part[2], left), None

    start = jnp.broadcast_to(jnp.asarray(left), shape)
    return scan(body, start, (noise, rate, runs))[0]


def price_halfway(table: TableFilter, parts: list[Part]) -> Array:
    """What a query costs with about half of the budget left."""
    with jax.enable_x64(True):
        return cast(Array, sum(_halfway(table, lines, runs) for lines, runs in parts))


@hosted
def _halfway(table: TableFilter, lines: Lines, runs: Real) -> Array:
    xp = array_module(table, lines, runs)
    interval = xp.asarray(_half(table), np.int32)
    if isinstance(lines, tuple):
        good, price = _prices_of(table, *lines[:2])
        return xp.where(good, price(1, interval), np.inf) * runs
    return xp.asarray(lines)[1, ..., interval].astype(np.float64) * runs


def either(left: Array, budget: Array, second_first: Array, first: Array, second: Array) -> Array:
    """The units left by the one of two tables that holds an account, from what each would leave (negative: no fit).

    The last bit of the units left says which table it is. With nothing spent it is the second one if ``second_first``.
    """
    first, second = first - (first & 1), second - ((second + 1) & 1)  # less is left: sound in either table
    return jnp.where(jnp.where(left == budget, second_first, (left & 1) == 1), second, first)
