"""Looks prices up in a box's table: the units left after queries, in NumPy or inside a trace."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module, repeated
from jaxacct._numerics.host import hosted
from jaxacct._numerics.manual_axes import scan, while_loop
from jaxacct.filters import amounts
from jaxacct.filters.prices.family import UNITS
from jaxacct.filters.prices.grid_table import DEAR

if TYPE_CHECKING:
    from jaxacct.filters.prices.sampled_gaussian_filter import SampledGaussianFilter

Lines = tuple[Array, Array] | Array
"""What prices a query: its (noise, rate), or its own lines in units, shape ``(2, ..., intervals)``."""
Part = tuple[Lines, Array]
"""The lines of a mechanism of a query, and how often it runs."""


def corners_of(box: SampledGaussianFilter, noise: Array, rate: Array) -> tuple[Array, list[tuple[Array, Array, Array]]]:
    """Whether the box covers a query, and (weight, row, column) of the mixture of corners that dominates it."""
    xp = array_module(box, noise, rate)
    sigmas, rates = amounts.join(box.sigmas), amounts.join(box.rates)
    noise, rate = xp.broadcast_arrays(*(xp.asarray(x, np.float64) for x in (noise, rate)))
    good = (noise >= sigmas[0]) & (noise < np.inf) & (rate >= 0) & (rate <= rates[-1])
    noise = xp.clip(xp.where(good, noise, sigmas[-1]), sigmas[0], sigmas[-1])
    rate = xp.clip(xp.where(good, rate, rates[0]), rates[0], rates[-1])
    # The dearer corner's weight, rounded up: in noise the one below, in rate the one above.
    row = xp.clip(_below(xp, sigmas, noise, True), 0, max(sigmas.shape[0] - 2, 0))
    column = xp.clip(_below(xp, rates, rate, False), 0, max(rates.shape[0] - 2, 0))
    next_row, next_column = (xp.minimum(at + 1, x.shape[0] - 1) for at, x in ((row, sigmas), (column, rates)))
    # Lemma 1: the derivative of a curve in 1 / sigma, over exp(-pace / sigma), rises between two corners.
    most = (box.records - 1) * box.records + 1.0
    pace = (most if box.records == 1 else most / 0.75) / (4.0 * sigmas[row])
    here, whole = (pace * (1.0 / sigmas[next_row] - 1.0 / x) for x in (noise, sigmas[row]))
    dearer = _share(xp, here, whole)
    dearer = xp.where(noise >= sigmas[-1], 0.0, dearer) if sigmas.shape[0] > 1 else xp.ones_like(dearer)
    # By how likely the sample holds a record of the user.
    here, whole = (box.records * (xp.log1p(-x) - xp.log1p(-rates[column])) for x in (rate, rates[next_column]))
    oftener = _share(xp, here, whole)
    oftener = xp.where(rate <= rates[0], 0.0, oftener) if rates.shape[0] > 1 else xp.ones_like(oftener)
    corners = [
        (by_noise * by_rate, i, k)
        for by_noise, i in ((dearer, row), (1.0 - dearer, next_row))[: sigmas.shape[0]]
        for by_rate, k in ((oftener, next_column), (1.0 - oftener, column))[: rates.shape[0]]
    ]
    return good, corners


@hosted
def _left_by_table(box: SampledGaussianFilter, noise: Array, rate: Array, left: Array) -> Array:
    """The units left after one run of a sampled Gaussian; -1 where it does not fit."""
    xp = array_module(box, noise, rate, left)
    noise, rate, left = xp.broadcast_arrays(*(xp.asarray(x, np.float64) for x in (noise, rate, left)))
    good, price = _prices_of(box, noise, rate)
    return xp.where(good, _settled(xp, price, xp.asarray(box.nodes), left), -1).astype(np.int32)


def _prices_of(box: SampledGaussianFilter, noise: Array, rate: Array) -> tuple[Array, Callable[[int, Array], Array]]:
    """Whether the box covers a query, and its price at one end of an interval, infinite for none."""
    xp = array_module(box, noise, rate)
    good, corners = corners_of(box, noise, rate)
    prices = xp.asarray(box.prices)

    def mean(end: int, interval: Array) -> Array:
        total = 0.0
        for weight, i, k in corners:
            one = prices[end, i, k, interval].astype(np.float64)
            total = total + xp.where(weight > 0, xp.where(one < DEAR, weight * one, np.inf), 0.0)
        return total

    return good, mean


def price_halfway(box: SampledGaussianFilter, parts: list[Part]) -> Array:
    """What a query costs with about half of the budget left."""
    with jax.enable_x64(True):
        return sum(_halfway(box, lines, runs) for lines, runs in parts)


@hosted
def _halfway(box: SampledGaussianFilter, lines: Lines, runs: Array) -> Array:
    xp = array_module(box, lines, runs)
    interval = int(0.7 * box.nodes.shape[0])  # intervals are as long as the root of the budget
    if isinstance(lines, tuple):
        good, price = _prices_of(box, *(xp.asarray(x, np.float64) for x in lines))
        return xp.where(good, price(1, interval), np.inf) * runs
    return xp.asarray(lines)[1, ..., interval].astype(np.float64) * runs


@hosted
def left_by_lines(lines: Array, nodes: Array, left: Array) -> Array:
    """The units left after one run of a query by its own lines; -1 where it does not fit."""
    xp = array_module(lines, nodes, left)
    lines, left = xp.asarray(lines), xp.asarray(left, np.float64)

    def mean(end: int, interval: Array) -> Array:
        rows = xp.broadcast_to(lines[end], (*interval.shape, lines.shape[-1]))
        one = xp.take_along_axis(rows, interval[..., None], -1)[..., 0].astype(np.float64)
        return xp.where(one < DEAR, one, np.inf)

    return _settled(xp, mean, xp.asarray(nodes), left).astype(np.int32)


def either(left: Array, second_first: Array, first: Array, second: Array) -> Array:
    """The units left by the one of two tables that holds an account, from what each would leave (negative: no fit).

    The last bit of the units left says which table it is. With nothing spent it is the second one if ``second_first``.
    """
    first, second = first - (first & 1), second - ((second + 1) & 1)  # less is left: sound in either table
    return jnp.where(jnp.where(left == UNITS, second_first, (left & 1) == 1), second, first)


def _below(xp: ModuleType, rising: Array, value: Array, right: bool) -> Array:
    """How many of a few numbers are below ``value`` (or equal to it), less 1."""
    less = rising <= value[..., None] if right else rising < value[..., None]
    return less.sum(-1) - 1


def _share(xp: ModuleType, part: Array, whole: Array) -> Array:
    """(1 - exp(part)) / (1 - exp(whole)) of numbers <= 0, rounded up."""
    return xp.clip(xp.expm1(part) / xp.where(whole < 0, xp.expm1(whole), -1.0) + 1e-9, 0.0, 1.0)


def _settled(xp: ModuleType, price: Callable[[int, Array], Array], nodes: Array, left: Array) -> Array:
    """The largest budget after the query whose line allows it; -1 where there is none.

    The interval is the last one whose left end can be reached; any that can be would be sound.
    """
    nodes = nodes.astype(np.float64)
    shape = np.broadcast_shapes(left.shape, price(0, xp.zeros(left.shape, np.int32)).shape)
    left = xp.broadcast_to(left, shape)

    def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        middle = (ends[0] + ends[1]) // 2
        reached = nodes[middle] + price(0, middle) <= left
        return xp.where(reached, middle, ends[0]), xp.where(reached, ends[1], middle)

    start = xp.zeros(shape, np.int32), xp.full(shape, nodes.shape[0] - 1, np.int32)
    low, _ = repeated(halve, start, nodes.shape[0].bit_length())
    begin, first, second = nodes[low], price(0, low), price(1, low)
    length = nodes[low + 1] - begin
    over = left - begin - first
    share = xp.clip(over / xp.maximum(length + second - first, 1.0), 0.0, 1.0)
    asked = xp.ceil(first + share * (second - first) + 1e-4)
    after = xp.minimum(begin + length, left - asked)
    # Rounding the price up may carry the budget after it just below the interval.
    fits = (over >= 0) & (left <= UNITS) & (second < np.inf) & (after >= 0)
    return xp.where(fits, after, -1.0)


def left_after(box: SampledGaussianFilter, parts: list[Part], left: Array) -> Array:
    """The units left after the parts of a query, one after the other; negative where they do not fit."""
    with jax.enable_x64(True):
        alone = len(parts) == 1 and _once(parts[0][1])
        if not alone and all(isinstance(lines, tuple) for lines, _ in parts):
            return _left_by_parts(box, parts, left)
        for lines, runs in parts:
            left = _left_by_runs(box, lines, runs, left)
        return left


def _once(runs: Array) -> bool:
    return not _validate.is_traced(runs) and np.ndim(runs) == 0 and float(runs) == 1.0


def _left_by_runs(box: SampledGaussianFilter, lines: Lines, runs: Array, left: Array) -> Array:
    """The units left after so many runs of one part; -1 where they do not fit."""

    def run(left: Array) -> Array:
        if isinstance(lines, tuple):
            return _left_by_table(box, *lines, left)
        return left_by_lines(lines, box.nodes, left)

    if _once(runs):
        return run(left)
    runs = jnp.asarray(runs, jnp.float64)
    good = (runs >= 1) & (runs == jnp.floor(runs)) & (runs < 2.0**31)

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


@jax.jit
def _left_by_parts(box: SampledGaussianFilter, parts: list[Part], left: Array) -> Array:
    """`left_after` for several sampled Gaussians: one program for all of them."""
    shape = np.broadcast_shapes(*(np.shape(x) for x in jax.tree.leaves((parts, left))))
    noise, rate, runs = (
        jnp.stack([jnp.broadcast_to(jnp.asarray(x, jnp.float64), shape) for x in column])
        for column in zip(*((*lines, runs) for lines, runs in parts), strict=True)
    )

    def body(left: Array, part: Array) -> Array:
        return _left_by_runs(box, part[:2], part[2], left), None

    start = jnp.broadcast_to(jnp.asarray(left), shape)
    return scan(body, start, (noise, rate, runs))[0]
