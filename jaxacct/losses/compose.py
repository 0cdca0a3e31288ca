"""Composition of many steps: tilted FFT powers on lattices that coarsen as the loss widens.

What is carried from level to level, for the dominating ("above") and the dominated ("below") side at once:

* a measure for c rounds of each part, D_k, and one for the rounds that did not fit a power, R;
* scalars, ``missing``: for each measure a bound on the tilted mass that the arrays have wrong. Above it is mass
  that belongs to the truth and is in no array (it lay beyond a window and wrapped around); below it is mass
  that sits in an array and has no right to be there. Composition adds it up like a union bound.

So at the end truth <= above + (mass <= missing, anywhere) and below <= truth + (mass <= missing, anywhere), and
:mod:`jaxacct.losses.read` charges the missing mass at the worst place. Rounding errors of a transform are added
to every entry above, taken from every entry below.

The mass of a power that lies outside its window is bounded by Chernoff on the arrays themselves, which are
exact descriptions of what is convolved: sum_i D_i e^(s (l_i - c)) to the m-th power times e^(-s (end - m c)).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct._log1p import log1p
from jaxacct._rounding import deflated, inflated
from jaxacct.losses.chord import coarsen_above, coarsen_below
from jaxacct.losses.discretize import lattice_origin, step_masses
from jaxacct.losses.fourier import powers
from jaxacct.losses.plan import CENTRE, COARSENING, Layout, Outline, levels_for

__all__ = ["Composition", "compose"]


class Composition(NamedTuple):
    """The tilted composed loss, from above and from below.

    Entry i stands for loss ``origin + (lowest + i) * spacing``; the measure itself is
    ``masses * exp(log_normaliser - theta * loss)``.

    Attributes:
        masses: shape ``(2, n)``: above, below.
        missing: shape ``(2,)``, see the module's docstring.
        infinite: probability of an infinite loss, shape ``(2,)``: upper and lower bound.
        lowest: lattice index of entry 0, scalar.
        origin: loss of lattice index 0, the sum of all steps' origins; scalar.
        spacing: scalar.
        theta: tilt.
        log_normaliser: scalar; ``log_error`` bounds its own rounding.
        log_error: scalar.
        loss_error: how far the true total loss may lie from the lattice's (rounding of every step), scalar.
    """

    masses: Array
    missing: Array
    infinite: Array
    lowest: Array
    origin: Array
    spacing: Array
    theta: Array
    log_normaliser: Array
    log_error: Array
    loss_error: Array


class _Measures(NamedTuple):
    steps: Array  # (2, K, n)
    rest: Array  # (2, n)
    step_missing: Array  # (2, K)
    rest_missing: Array  # (2,)
    step_lowest: Array  # (K,)
    rest_lowest: Array  # ()


def compose(parts: list[Any], steps: Array, outline: Outline, layout: Layout) -> Composition:
    """Composes ``steps[k]`` runs of ``parts[k]``, for every k.

    Args:
        parts: groups of pairs: each a pytree whose leaves have a leading axis; concatenated they are the K parts.
        steps: whole float64 numbers >= 1, shape ``(K,)``.
        outline: the plan's numbers, parts in the same order.
        layout: the plan's sizes, static.
    """
    levels = levels_for(outline, layout)
    spacing = levels.spacing
    n = layout.first
    centre = int(CENTRE * n)
    near = max(64, min(n // 8, 1024))
    # Every part has a lattice of its own, origin_k + index * spacing: convolution only sees the indices, and the
    # origins add up on the side. Index 0 lies a multiple of the pattern's largest stride away from its centre,
    # so that origins (and atoms, with a spacing that divides their period) are points of the pattern and, as
    # windows start at multiples of the ratio, of every coarser lattice.
    stride = n // near
    singles, origins, lowests, loss_error, at = [], [], [], [], 0
    for group in parts:
        size = jax.tree.leaves(group)[0].shape[0]
        here = slice(at, at + size)
        means = outline.means[here]
        origin = jax.vmap(lambda pair, mean: lattice_origin(pair, mean, spacing, near))(group, means)
        low = jnp.round((means - origin) / (stride * spacing)) * stride - centre
        singles.append(
            jax.vmap(
                lambda pair, normaliser, start, low: step_masses(
                    pair, outline.theta, normaliser, start, spacing, low, n, centre, near, outline.cutoff
                )
            )(group, outline.log_normalisers[here], origin, low)
        )
        origins.append(origin)
        lowests.append(low)
        loss_error.append(jax.vmap(lambda pair: pair.loss_error())(group))
        at += size
    single = jax.tree.map(lambda *x: jnp.concatenate(x), *singles)
    origin, lowest = jnp.concatenate(origins), jnp.concatenate(lowests)
    ends = jnp.abs(origin) + jnp.maximum(jnp.abs(lowest), jnp.abs(lowest + n)) * spacing
    # Say every tail was evaluated within eta of its loss. Relabelling the edges moves losses by eta. The split of
    # a cell, made with the edge's gamma instead of the true one, misses at most eta gamma_k r_k of p - gamma_k r_k:
    # in all at most eta gamma Q(L > log gamma) of H(gamma), which a second shift by eta covers.
    step_error = 2.0 * (jnp.concatenate(loss_error) + 2.0**-51 * ends)

    # The barrier keeps XLA from spending seconds on folding what follows from a constant.
    rest = jax.lax.optimization_barrier(jnp.zeros((2, n)).at[:, 0].set(1.0))
    measures = _Measures(
        jnp.stack([single.above, single.below]),
        rest,
        jnp.stack([single.lost, single.spurious]),
        jnp.zeros(2),
        lowest,
        jnp.zeros(()),
    )
    left, reached = steps, jnp.ones(())
    for j in range(layout.levels):
        last = j == layout.levels - 1
        size = layout.first if j == 0 else layout.later
        if last:
            measures = _last_level(measures, left, outline, spacing, size)
            break
        count = levels.counts[j]
        quotient = jnp.floor(left / count)
        leftover = left - quotient * count
        reached = reached * count
        ratio = layout.ratio if j == 0 else COARSENING
        measures = _level(measures, count, quotient, leftover, reached, outline, spacing, size, ratio, layout.later)
        left, spacing = quotient, spacing * ratio

    log_terms = steps * outline.log_normalisers
    log_infinite = jnp.stack([single.infinite_above, single.infinite_below])
    infinite = -jnp.expm1((steps * log1p(-jnp.minimum(log_infinite, 1.0))).sum(-1))
    shifts = steps * origin  # their sum is off by a unit for every addition
    return Composition(
        measures.rest,
        measures.rest_missing,
        infinite * jnp.asarray([1.0 + 1e-12, 1.0 - 1e-12]),
        measures.rest_lowest,
        shifts.sum(),
        spacing,
        outline.theta,
        log_terms.sum(),
        2.0**-50 * (jnp.abs(log_terms).sum() + 1.0) * steps.shape[0],
        inflated((steps * step_error).sum(), 1e-9) + 2.0**-51 * steps.shape[0] * jnp.abs(shifts).sum(),
    )


def _tilt_sums(measures: _Measures, spacing: Array, means: Array, rest_mean: Array, s: Array) -> tuple[Array, Array]:
    """log sum_i D_i exp(s (l_i - mean)) for every step measure (2, K) and for the rest (2,)."""
    index = jnp.arange(measures.rest.shape[-1], dtype=jnp.int32)
    step_losses = (measures.step_lowest[:, None] + index) * spacing - means[:, None]
    rest_losses = (measures.rest_lowest + index) * spacing - rest_mean

    def log_sum(masses: Array, losses: Array) -> Array:
        # Relative to the largest exponent that has mass; what underflows beside it is covered by the 1e-300.
        top = jnp.max(jnp.where(masses > 0, s * losses, -jnp.inf), -1)
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        scaled = jnp.exp(jnp.minimum(s * losses - top[..., None], 0.0))
        return top + jnp.log((masses * scaled).sum(-1) + 1e-300)

    return log_sum(measures.steps, step_losses), log_sum(measures.rest, rest_losses)


def _total(measures: _Measures) -> tuple[Array, Array]:
    """Bounds on the tilted totals to which missing mass is added, for the steps (2, K) and the rest (2,).

    Above it is the array's. Below, with B the array and S its share without a right, every hockey stick of B - S
    is at most the truth's, A; B - S may be negative somewhere, so B^m is compared with A^m one factor at a time,

        B^m <= A^m + sum_j A^(m-1-j) B^j S,    B <= A + S in total, because tilts only weigh hockey sticks,

    which is at most (A + S)^m - A^m in total; and A is at most what the side above has, missing mass included.
    """

    def totals(arrays: Array, missing: Array) -> Array:
        above = inflated(arrays[0].sum(-1), 1e-12)
        return jnp.stack([above, inflated(above + missing[0], 1e-12)])

    return totals(measures.steps, measures.step_missing), totals(measures.rest, measures.rest_missing)


def _compounded(totals: Array, missing: Array, exponents: Array) -> tuple[Array, Array]:
    """log of (total + missing)^exponent, and the relative share of it that is missing, before summing."""
    ratio = missing / jnp.maximum(totals, 1e-300)
    return _powered(exponents, jnp.log(totals + missing + 1e-300)), _powered(exponents, log1p(ratio))


def _wrapped(log_sum: Array, exponent: Array) -> Array:
    """exp(log_sum + exponent), doubled for the rounding of a power of up to 2^53; NaN counts as everything."""
    return _or_everything(2.0 * jnp.exp(log_sum + exponent))


def _or_everything(value: Array) -> Array:
    """What is not a number (an overflowed power times nothing) may be any mass."""
    return jnp.where(jnp.isnan(value), jnp.inf, value)


def _powered(exponents: Array, logs: Array) -> Array:
    """exponents * logs, where a power of 0 ignores an infinite sum."""
    return jnp.where(exponents > 0, exponents * logs, 0.0)


def _weighted(exponents: Array, logs: Array) -> Array:
    return _powered(exponents, logs).sum(-1)


def _supports(masses: Array) -> tuple[Array, Array]:
    """First and last index of each measure that holds mass; an empty one has first > last."""
    index = jnp.arange(masses.shape[-1], dtype=jnp.int32)
    first = jnp.where(masses > 0, index, masses.shape[-1]).min(-1)
    last = jnp.where(masses > 0, index, -1).max(-1)
    return first.astype(masses.dtype), last.astype(masses.dtype)


def _within(first: Array, last: Array, window: Array, size: int) -> Array:
    """Which of ``size`` entries from lattice index ``window`` on can hold mass: those from first to last."""
    index = window[..., None] + jnp.arange(size, dtype=jnp.int32)
    return (index >= first[..., None]) & (index <= last[..., None])


def _rounded(value: Array, error: Array, within: Array) -> tuple[Array, Array]:
    """Entries from above plus their error, from below minus it; value (2, ..., n), error (2, ...).

    Entries that no sum reaches (not ``within``) hold rounding errors only and are emptied: for laws of few atoms
    those errors would be all there is between the bounds.

    Entries that are mostly error are emptied, and what they may have held above is returned as missing mass
    (2, ...): left in place, a floor of 1e-17 at the far end of a window would spoil Chernoff's bound.
    """
    sign = jnp.asarray([1.0, -1.0]).reshape((2,) + (1,) * (value.ndim - 1))
    error = error[..., None]
    moved = jnp.maximum(jnp.maximum(value, 0.0) + sign * error, 0.0)
    kept = (value > 8.0 * error) & within
    dropped = inflated(jnp.where(kept | (sign < 0) | ~within, 0.0, moved).sum(-1), 1e-9)
    return jnp.where(kept, moved, 0.0), dropped


def _level(
    measures: _Measures,
    count: Array,
    quotient: Array,
    leftover: Array,
    reached: Array,
    outline: Outline,
    spacing: Array,
    size: int,
    ratio: int,
    later: int,
) -> _Measures:
    """One power of every step measure, the rest's share, and the move to a lattice ``ratio`` times coarser."""
    parts = measures.steps.shape[1]
    exponents = jnp.where(quotient > 0, count, 0.0)  # a part whose runs are used up needs no power
    power, power_error, rest, rest_error = jax.vmap(lambda d, r: powers(d, r, exponents, leftover))(
        measures.steps, measures.rest
    )
    which = (outline.rounds < deflated(reached, 1e-9)).sum(dtype=jnp.int32)
    which = jnp.minimum(which, outline.rounds.shape[0] - 1)
    offset = 0.5 * (outline.up[which] - outline.down[which])
    totals, _ = _total(measures)
    mean = _means(measures.steps, measures.step_lowest, spacing)
    rest_mean = _means(measures.rest[:, None], measures.rest_lowest[None], spacing)[0]

    # Windows start at a multiple of the ratio, so that their first point is a point of the coarse lattice.
    def window(mean_after: Array) -> Array:
        return jnp.round(((mean_after + offset) / spacing - size / 2) / ratio) * ratio

    step_window = window(exponents * mean)
    power = _unroll(power, step_window - exponents * measures.step_lowest)
    first, last = (exponents * (measures.step_lowest + one) for one in _supports(measures.steps))
    power, step_dropped = _rounded(power, power_error, _within(first, last, step_window, size))

    s_up, s_down = outline.shift_up[which], outline.shift_down[which]
    up = _tilt_sums(measures, spacing, mean, rest_mean, s_up)
    down = _tilt_sums(measures, spacing, mean, rest_mean, -s_down)
    step_end = (step_window + size) * spacing - exponents * mean
    step_begin = exponents * mean - step_window * spacing
    step_wrap = _wrapped(_powered(exponents, up[0]), -s_up * step_end)
    step_wrap += _wrapped(_powered(exponents, down[0]), -s_down * step_begin)

    log_size, log_share = _compounded(totals, measures.step_missing, exponents)
    step_missing = _or_everything(inflated(jnp.exp(log_size) * -jnp.expm1(-log_share), 1e-9) + step_wrap + step_dropped)
    after = rest_mean + (leftover * mean).sum()
    rest_window = window(after)
    rest, rest_missing = _rest_in_window(
        measures, rest, rest_error, leftover, after, rest_window, (s_up, s_down), (up, down), spacing
    )

    everything = jnp.concatenate([power, rest[:, None]], 1)  # (2, K + 1, size)
    above = jax.vmap(lambda m: coarsen_above(m, spacing, ratio, outline.theta))(everything[0])
    below, spurious = jax.vmap(lambda m: coarsen_below(m, spacing, ratio, outline.theta))(everything[1])
    coarse = jnp.pad(jnp.stack([above, below]), ((0, 0), (0, 0), (0, later - above.shape[1])))
    return _Measures(
        coarse[:, :-1],
        coarse[:, -1],
        step_missing + jnp.stack([jnp.zeros(parts), spurious[:-1]]),
        rest_missing + jnp.stack([jnp.zeros(()), spurious[-1]]),
        step_window / ratio,
        rest_window / ratio,
    )


def _last_level(measures: _Measures, left: Array, outline: Outline, spacing: Array, size: int) -> _Measures:
    """The rest times every step measure's remaining power, in one window."""
    parts = measures.steps.shape[1]
    _, _, rest, error = jax.vmap(lambda d, r: powers(d, r, jnp.zeros(parts), left))(measures.steps, measures.rest)
    mean = _means(measures.steps, measures.step_lowest, spacing)
    rest_mean = _means(measures.rest[:, None], measures.rest_lowest[None], spacing)[0]
    after = rest_mean + (left * mean).sum()
    offset = 0.5 * (outline.up[-1] - outline.down[-1])
    window = jnp.round((after + offset) / spacing - size / 2)
    s_up, s_down = outline.shift_up[-1], outline.shift_down[-1]
    up = _tilt_sums(measures, spacing, mean, rest_mean, s_up)
    down = _tilt_sums(measures, spacing, mean, rest_mean, -s_down)
    rest, missing = _rest_in_window(measures, rest, error, left, after, window, (s_up, s_down), (up, down), spacing)
    return measures._replace(rest=rest, rest_missing=missing, rest_lowest=window)


def _rest_in_window(
    measures: _Measures,
    product: Array,
    error: Array,
    exponents: Array,
    after: Array,
    window: Array,
    shifts: tuple[Array, Array],
    tilt_sums: tuple[tuple[Array, Array], tuple[Array, Array]],
    spacing: Array,
) -> tuple[Array, Array]:
    """The circular product of the rest and powers of the steps, laid out from lattice point ``window`` on.

    ``after`` is its mean; ``tilt_sums`` are those of ``measures`` at ``shifts`` upwards and downwards. Returns the
    entries and the missing mass: what was missing, what wrapped around, what was mostly error.
    """
    start = measures.rest_lowest + (exponents * measures.step_lowest).sum()
    ends = zip(_supports(measures.steps), _supports(measures.rest), strict=True)
    first, last = (start + rest + (exponents * step).sum(-1) for step, rest in ends)
    entries = _unroll(product[:, None], (window - start)[None])[:, 0]
    entries, dropped = _rounded(entries, error, _within(first, last, window, product.shape[-1]))
    (s_up, s_down), ((log_up, rest_up), (log_down, rest_down)) = shifts, tilt_sums
    end, begin = (window + product.shape[-1]) * spacing - after, after - window * spacing
    wrap = _wrapped(rest_up + _weighted(exponents, log_up), -s_up * end)
    wrap += _wrapped(rest_down + _weighted(exponents, log_down), -s_down * begin)
    totals, rest_total = _total(measures)
    log_size, log_share = _compounded(totals, measures.step_missing, exponents)
    rest_size, rest_share = _compounded(rest_total, measures.rest_missing, jnp.ones(()))
    log_size, log_share = log_size.sum(-1) + rest_size, log_share.sum(-1) + rest_share
    missing = _or_everything(inflated(jnp.exp(log_size) * -jnp.expm1(-log_share), 1e-9) + wrap + dropped)
    return entries, missing


def _means(masses: Array, lowest: Array, spacing: Array) -> Array:
    """Mean loss of each of K measures, read off the side above; masses (2, K, n), lowest (K,)."""
    index = jnp.arange(masses.shape[-1], dtype=jnp.int32)
    return (lowest + (masses[0] * index).sum(-1) / masses[0].sum(-1)) * spacing


def _unroll(masses: Array, shift: Array) -> Array:
    """Entry i of the result is entry i + shift (mod n); masses (2, K, n), shift (K,)."""
    n = masses.shape[-1]
    start = jnp.mod(shift, n).astype(jnp.int32)
    index = (start[:, None] + jnp.arange(n, dtype=jnp.int32)) % n
    return jnp.take_along_axis(masses, jnp.broadcast_to(index, masses.shape), axis=-1)
