"""Looks prices up in a table: the units left after queries, in NumPy or inside a trace."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, array_module, repeated
from jaxacct._numerics.host import hosted
from jaxacct._numerics.manual_axes import scan, while_loop
from jaxacct._types import PyTree
from jaxacct.filters import amounts
from jaxacct.filters.prices.family import Family
from jaxacct.filters.prices.grid_table import DEAR, lines_in_units
from jaxacct.filters.queries import as_sampled_gaussian, charged_as, parts_of, position_of
from jaxacct.mechanisms.base import Mechanism

if TYPE_CHECKING:
    from jaxacct.filters.prices.table import TableFilter

Mixture = list[tuple[Array, Array]]
"""Weights, and the rows of lines that they belong to, of the queries that together dominate one."""


class Charge(NamedTuple):
    """What a query pays: the weighted mean of some lines, shape ``(2, rows, intervals)`` in units."""

    lines: Array
    mixture: Mixture


Part = tuple[Charge, Real]
"""The charge for a mechanism of a query, and how often it runs."""


def charge_of(lines: Array) -> Charge:
    """That of a query by its own lines, shape ``(2, intervals)``."""
    return Charge(lines[:, None], [(np.ones(()), np.zeros((), np.int32))])


def axes_of(table: TableFilter) -> tuple[Array, Array]:
    """The noise multipliers and the rates of a table's corners; inside ``enable_x64``."""
    return amounts.join(table.sigmas), amounts.join(table.rates)


def parts_in(table: TableFilter, query: object, alone: bool) -> list[Part]:
    """For each part of a query what it is charged, and how often it runs.

    A concrete scalar query, ``alone``, that the axes do not have is priced by itself, where there is a promise; a
    sampled Gaussian at no less than the nearest one that they have, which it dominates.
    """
    if (place := position_of(query)) is not None:
        return [(_entry(table, place), 1.0)]
    online = table.promise if alone and isinstance(table.promise, Family) else None
    found: list[Part] = []
    with jax.enable_x64(True):
        for part, runs in parts_of(query):
            gaussian = as_sampled_gaussian(part)
            if gaussian is not None and (online is None or _on_axes(table, *gaussian)):
                charge = Charge(table.lines, mixture_of(table, *gaussian))
            elif online is not None and isinstance(part, Mechanism) and (table.records == 1 or gaussian is not None):
                charge = _online_charge(table, online, part)
            else:
                raise ValueError(
                    "query must be a Gaussian, a PoissonSampled one, a Composed of them or the integer position of an "
                    f"entry, got {type(part).__name__} (others are priced outside of jit, by sampled_gaussian and by "
                    "menu with online=True, for single records; a ledger takes them as entries: extra= or mechanisms)"
                )
            found.append((charge, runs))
    return found


def _entry(table: TableFilter, place: Array | np.int32) -> Charge:
    """By an entry of the list; what never fits for a position that is none."""
    xp, count = array_module(table, place), np.shape(table.noise)[0]
    good = (xp.asarray(place) >= 0) & (xp.asarray(place) < count)
    with jax.enable_x64(True):
        weight = xp.where(good, np.float64(1.0), np.inf)
    return Charge(table.lines, [(weight, xp.where(good, place, 0) + table.first_entry)] if count else [])


def _on_axes(table: TableFilter, noise: Real, rate: Real) -> bool:
    """Whether a corner dominates a sampled Gaussian; True for NaN, which the table refuses."""
    sigmas, rates = axes_of(table)
    wrong = not (float(noise) > 0 and 0 <= float(rate) <= 1)
    return wrong or bool(float(noise) >= sigmas[0] and float(rate) <= rates[-1])


def _online_charge(table: TableFilter, family: Family, part: Mechanism) -> Charge:
    """By the mechanism's own lines; a sampled Gaussian's are no lower than those of the nearest one on the axes."""
    gaussian = as_sampled_gaussian(part)
    asked = part if gaussian is None else charged_as(float(gaussian[0]), float(gaussian[1]), table.records)
    leaves, structure = jax.tree.flatten(asked)
    rows = (np.asarray(leaf).tolist() for leaf in leaves)
    lines = _online_lines(family, structure, *(tuple(row) if isinstance(row, list) else row for row in rows))
    if gaussian is None:
        return charge_of(lines)
    sigmas, rates = axes_of(table)
    nearest = mixture_of(table, np.maximum(gaussian[0], sigmas[0]), np.minimum(gaussian[1], rates[-1]))
    intervals = np.arange(lines.shape[-1])
    least = [price_of(Charge(table.lines, nearest), end, intervals) for end in range(2)]
    return charge_of(np.maximum(lines, np.stack(least)))


@functools.lru_cache(64)
def _online_lines(family: Family, structure: PyTree, *leaves: float | tuple[float, ...]) -> np.ndarray:
    """The lines of a mechanism with these numbers; a tuple is a row of a table."""
    return lines_in_units(jax.tree.unflatten(structure, leaves), family)


@hosted
def mixture_of(table: TableFilter, noise: Real, rate: Real) -> Mixture:
    """The mixture for a sampled Gaussian: of the corners around it, or else the cheapest entry that dominates it.

    Weights are infinite where there is neither. Inside ``enable_x64``.
    """
    xp = array_module(table, noise, rate)
    both = xp.broadcast_arrays(*(xp.asarray(x, np.float64) for x in (noise, rate)))
    good, found = xp.zeros(both[0].shape, bool), []
    if np.shape(table.sigmas)[0]:
        good, found = corners_of(table, *both)
    if np.shape(table.noise)[0]:
        listed, row = _cheapest(table, *both)
        found = [(xp.where(good, weight, 0.0), row) for weight, row in found] + [(xp.where(good, 0.0, 1.0), row)]
        good = good | listed
    return [(xp.where(good, weight, np.inf), row) for weight, row in found]


def corners_of(table: TableFilter, noise: Array, rate: Array) -> tuple[Array, Mixture]:
    """Whether the axes cover a query, and the mixture of corners that dominates it."""
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
    return good, [
        (by_noise * by_rate, i * rates.shape[0] + k)
        for by_noise, i in ((dearer, row), (1.0 - dearer, next_row))[: sigmas.shape[0]]
        for by_rate, k in ((oftener, next_column), (1.0 - oftener, column))[: rates.shape[0]]
    ]


def _below(xp: ModuleType, rising: Array, value: Array, right: bool) -> Array:
    """How many of a few numbers are below ``value`` (or equal to it), less 1."""
    less = rising <= value[..., None] if right else rising < value[..., None]
    return less.sum(-1) - 1


def _share(xp: ModuleType, part: Array, whole: Array) -> Array:
    """(1 - exp(part)) / (1 - exp(whole)) of numbers <= 0, rounded up."""
    return xp.clip(xp.expm1(part) / xp.where(whole < 0, xp.expm1(whole), -1.0) + 1e-9, 0.0, 1.0)


def _cheapest(table: TableFilter, noise: Array, rate: Array) -> tuple[Array, Array]:
    """Whether an entry dominates a query, and the row of the one that is cheapest with half of the budget left."""
    xp = array_module(table, noise, rate)
    covers = (noise[..., None] >= amounts.join(table.noise)) & (rate[..., None] <= amounts.join(table.rate))
    covers &= ((rate >= 0) & (noise < np.inf))[..., None]
    prices = xp.asarray(table.lines)[1, table.first_entry :, _half(table)].astype(np.int64)
    count = prices.shape[0]
    # The position beside the price: an `argmin` that is lowered outside of float64 would have another type.
    ranks = xp.where(covers, prices * count + np.arange(count), (DEAR + 1) * count)
    return xp.any(covers, -1), (table.first_entry + ranks.min(-1) % count).astype(np.int32)


def _half(table: TableFilter) -> int:
    """The interval with about half of the budget: intervals are as long as the root of their budget."""
    return int(0.7 * (table.nodes.shape[0] - 1))


def price_of(charge: Charge, end: int, interval: Array) -> Array:
    """The price at one end (0, the left one, or 1) of an interval of the budget left, infinite for none."""
    xp = array_module(charge, interval)
    lines, total = xp.asarray(charge.lines), np.inf if not charge.mixture else 0.0
    for weight, row in charge.mixture:
        one = lines[end, row, interval].astype(np.float64)
        total = total + xp.where(weight > 0, xp.where(one < DEAR, weight * one, np.inf), 0.0)
    return xp.asarray(total)


@hosted
def left_after_run(charge: Charge, nodes: Array, left: Array) -> Array:
    """The units left after one run: the largest budget whose line allows it; -1 where there is none.

    The interval is the last one whose left end can be reached; any that can be would be sound.
    """
    xp = array_module(charge, nodes, left)
    shape = np.broadcast_shapes(np.shape(left), *(np.shape(weight) for weight, _ in charge.mixture))
    left = xp.broadcast_to(xp.asarray(left, np.float64), shape)
    nodes, count = xp.asarray(nodes, np.float64), np.shape(nodes)[0] - 1

    def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) // 2
        reached = nodes[middle] + price_of(charge, 0, middle) <= left
        return xp.where(reached, middle, ends[0]), xp.where(reached, ends[1], middle)

    start = xp.zeros(shape, np.int32), xp.full(shape, count, np.int32)
    low, _ = repeated(halve, start, (count - 1).bit_length())
    begin, first, second = nodes[low], price_of(charge, 0, low), price_of(charge, 1, low)
    length = nodes[low + 1] - begin
    over = left - begin - first
    share = xp.clip(over / xp.maximum(length + second - first, 1.0), 0.0, 1.0)
    # A menu's prices are whole; of a box, a mean of whole ones is rounded.
    asked = xp.ceil(first + share * (second - first) + (1e-4 if count > 1 else 0.0))
    after = xp.minimum(begin + length, left - asked)
    # Rounding the price up may carry the budget after it just below the interval.
    fits = (over >= 0) & (left <= nodes[-1]) & (second < np.inf) & (after >= 0)
    return xp.where(fits, after, -1.0).astype(np.int32)


def left_after(table: TableFilter, parts: list[Part], left: Array) -> Array:
    """The units left after the parts of a query, one after the other; negative where they do not fit."""
    with jax.enable_x64(True):
        several = len(parts) > 1 or not _once(parts[0][1])
        if several and not table.fixed and all(charge.lines is table.lines for charge, _ in parts):
            return _left_by_parts(table.nodes, table.lines, [(charge.mixture, runs) for charge, runs in parts], left)
        for charge, runs in parts:
            if table.fixed:
                charge, runs = _several(charge, runs), 1.0
            left = _left_by_runs(table.nodes, charge, runs, left)
        return left


def _several(charge: Charge, runs: Real) -> Charge:
    """That of so many runs, where each costs as much; what never fits for what is no number of runs."""
    xp = array_module(charge, runs)
    count = xp.where(_whole(xp, xp.asarray(runs)), xp.asarray(runs, np.float64), np.inf)
    return Charge(charge.lines, [(weight * count, row) for weight, row in charge.mixture])


def _once(runs: Real) -> bool:
    return not _validate.is_traced(runs) and np.ndim(runs) == 0 and float(runs) == 1.0


def _left_by_runs(nodes: Array, charge: Charge, runs: Real, left: Array) -> Array:
    """The units left after so many runs of one part; -1 where they do not fit."""
    if _once(runs):
        return left_after_run(charge, nodes, left)
    runs = jnp.asarray(runs, jnp.float64)
    good = _whole(jnp, runs) & (runs < 2.0**31)

    def going(state: tuple[Array, Array]) -> Array:
        done, left = state
        return good & (done < runs) & (left >= 0)

    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        return state[0] + 1.0, jnp.where(going(state), left_after_run(charge, nodes, state[1]), state[1])

    # Stops once nothing fits: a refused query may ask for 10^9 runs.
    _, found = while_loop(lambda state: going(state).any(), step, (jnp.float64(0.0), jnp.asarray(left)))
    return jnp.where(good, found, -1)


def _whole(xp: ModuleType, runs: Array) -> Array:
    return (runs >= 1) & (runs == xp.floor(runs))


@jax.jit
def _left_by_parts(nodes: Array, lines: Array, parts: list[tuple[Mixture, Real]], left: Array) -> Array:
    """`left_after` for several sampled Gaussians: one program for all of them."""
    leaves = [jax.tree.leaves(part) for part in parts]
    shape = np.broadcast_shapes(*(np.shape(x) for x in jax.tree.leaves((leaves, left))))
    columns = [jnp.stack([jnp.broadcast_to(x, shape) for x in column]) for column in zip(*leaves, strict=True)]

    def body(left: Array, row: list[Array]) -> tuple[Array, None]:
        mixture, runs = jax.tree.unflatten(jax.tree.structure(parts[0]), row)
        return _left_by_runs(nodes, Charge(lines, mixture), runs, left), None

    return scan(body, jnp.broadcast_to(jnp.asarray(left), shape), columns)[0]


def price_halfway(table: TableFilter, parts: list[Part]) -> Array:
    """What a query costs with about half of the budget left."""
    with jax.enable_x64(True):
        half = np.asarray(_half(table))
        return cast(Array, sum(price_of(charge, 1, half) * runs for charge, runs in parts))


def either(left: Array, budget: Array, second_first: Array, first: Array, second: Array) -> Array:
    """The units left by the one of two tables that holds an account, from what each would leave (negative: no fit).

    The last bit of the units left says which table it is. With nothing spent it is the second one if ``second_first``.
    """
    first, second = first - (first & 1), second - ((second + 1) & 1)  # less is left: sound in either table
    return jnp.where(jnp.where(left == budget, second_first, (left & 1) == 1), second, first)
