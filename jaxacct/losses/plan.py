"""Choosing tilt, lattice and levels for a query; nothing here is certified, and nothing needs to be.

A query composes T_k steps of part k (one part unless the schedule is heterogeneous). From a rough survey of each
part's loss come the cumulant functions K_k(t) = log E[exp(t L_k)], and from those

* the tilt: the saddle point of delta(eps) = 1/(2 pi i) int exp(sum_k T_k K_k(t) - t eps) / (t (t + 1)) dt,
* widths: how wide the tilted loss of c rounds (c steps of each part) is, by Chernoff's bound,
* levels: a single step sits on a fine lattice; after c_1 rounds the loss has widened and moves to a coarser
  one, and so on ("evolving discretisation"). Coarsening by r once per c_j rounds adds (r spacing)^2 / 4 / c_j
  per round to the gap between the bounds' variances, so a constant resolution on every level costs a
  constant gap, however many steps there are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct._arrays import array_module
from jaxacct._least import first_least
from jaxacct._log1p import log1p
from jaxacct._rounding import inflated

__all__ = [
    "CENTRE",
    "COARSENING",
    "Layout",
    "Levels",
    "Outline",
    "layouts",
    "levels_for",
    "outline_for_delta",
    "outline_for_epsilon",
    "saddle_log_delta",
]

CENTRE = 0.25
"""Where on the first lattice a single step's mean lies."""

COARSENING = 8  # lattice ratio between later levels; powers of up to its square fit between two of them
_BISECTIONS = 36
_ROUNDS = 41
_SHIFTS = 40
_HEAVIEST = 400.0  # log of how much a tilt may weigh one end of a lattice against the other
_LONGEST = 300.0  # a lattice that is longer than it needs to be should hold no loss that no double can weigh
_FILL = 0.94  # share of a window that Chernoff's width may take


class Layout(NamedTuple):
    """The static part of a plan: sizes of arrays."""

    first: int
    """Lattice points of the first level."""
    later: int
    """Lattice points of every later level."""
    levels: int

    @property
    def ratio(self) -> int:
        """Coarsening after the first level."""
        return COARSENING * self.first // self.later

    @property
    def cost(self) -> float:
        """Work, in units of points transformed."""
        return self.first * 1.6 + (self.levels - 1) * self.later


class Outline(NamedTuple):
    """What a survey says about one query (arrays of float64).

    Attributes:
        theta: tilt.
        log_normalisers: K_k(theta), shape ``(K,)``.
        epsilon: the query's epsilon, or a guess at it.
        means: tilted mean of each part's loss, shape ``(K,)``.
        centre: tilted mean of one round.
        deviation: tilted standard deviation of one round.
        rounds: c-grid from 1 to max T_k, shape ``(_ROUNDS,)``.
        up, down: how far c rounds reach above and below c * centre.
        reach_up, reach_down: how far one step of any part reaches from its mean.
        shift_up, shift_down: exponents at which Chernoff's bound attains ``up``, ``down``.
        total: number of steps of all parts together.
        cutoff: a loss above which a single step's mass may be called infinite.
        tolerance: the gap log(upper / lower) of delta that is good enough.
        period: the distance of atoms that the lattice should divide, 0 where there are none.
        loose: number of steps of the parts whose loss does not live on multiples of ``period``.
    """

    theta: Array
    log_normalisers: Array
    epsilon: Array
    means: Array
    centre: Array
    deviation: Array
    rounds: Array
    up: Array
    down: Array
    reach_up: Array
    reach_down: Array
    shift_up: Array
    shift_down: Array
    total: Array
    cutoff: Array
    tolerance: Array
    period: Array
    loose: Array


class Levels(NamedTuple):
    """Lattice spacing of the first level, rounds reached after each level, and the predicted gap.

    ``counts[j]`` is c_(j+1) / c_j, the power taken on level j; the last is left to the composition.
    ``gap`` predicts log(upper / lower) of delta.
    """

    spacing: Array
    counts: list[Array]
    gap: Array


def _cumulants(losses: Array, log_masses: Array, t: Array) -> tuple[Array, Array, Array]:
    """K, K', K'' at t for atoms of shape (K, S); shapes (K,)."""
    exponent = t * losses + log_masses
    log_sum = jax.nn.logsumexp(exponent, axis=-1)
    weights = jnp.exp(exponent - log_sum[..., None])
    mean = (weights * losses).sum(-1)
    variance = (weights * (losses - mean[..., None]) ** 2).sum(-1)
    return log_sum, mean, variance


def _saddle(losses: Array, log_masses: Array, steps: Array, positive) -> Array:
    """Bisection for t in [1e-7, 1e8] on ``positive(t, TK, TK', TK'')``, true to the right of the root."""

    def halve(bracket, _):
        low, high = bracket
        middle = 0.5 * (low + high)
        t = jnp.exp(middle)
        cumulants = [(steps * value).sum() for value in _cumulants(losses, log_masses, t)]
        right = positive(t, *cumulants)
        return (jnp.where(right, low, middle), jnp.where(right, middle, high)), None

    start = (jnp.log(jnp.asarray(1e-7)), jnp.log(jnp.asarray(1e8)))
    (low, high), _ = jax.lax.scan(halve, start, None, length=_BISECTIONS)
    return jnp.exp(0.5 * (low + high))


def outline_for_delta(losses: Array, log_masses: Array, steps: Array, periods: Array, epsilon: Array) -> Outline:
    """Outline of delta(epsilon): atoms of shape ``(K, S)``, steps and periods of shape ``(K,)``, scalar epsilon."""

    def far_enough(t, k0, k1, k2):
        # An epsilon beyond every loss has no saddle: stop where Chernoff's bound is below every double.
        return (k1 - 1.0 / t - 1.0 / (t + 1.0) > epsilon) | ~(k1 > -jnp.inf) | (k0 - t * epsilon < -700.0)

    def estimate(log_masses):
        theta = _saddle(losses, log_masses, steps, far_enough)
        k0, _, k2 = ((steps * value).sum() for value in _cumulants(losses, log_masses, theta))
        return theta, jnp.minimum(saddle_log_delta(theta, k0, k2, epsilon), 0.0)

    # Once to know how much mass may be ignored, once more without it.
    cutoff = _cutoff(losses, log_masses, steps, estimate(log_masses)[1])
    log_masses = jnp.where(losses > cutoff, -jnp.inf, log_masses)
    theta, log_delta = estimate(log_masses)
    # Deep in the tail a hundredth of delta will do; above, a thousandth.
    tolerance = jnp.where(log_delta < jnp.log(1e-12), 8e-3, 8e-4)
    return _outline(losses, log_masses, steps, periods, theta, epsilon, cutoff, tolerance)


def outline_for_epsilon(losses: Array, log_masses: Array, steps: Array, periods: Array, delta: Array) -> Outline:
    """Outline of epsilon(delta), by the saddle-point approximation of delta along the tilt."""
    log_delta = jnp.log(delta)
    cutoff = _cutoff(losses, log_masses, steps, log_delta)
    log_masses = jnp.where(losses > cutoff, -jnp.inf, log_masses)

    def far_enough(t, k0, k1, k2):
        value = saddle_log_delta(t, k0, k2, k1 - 1.0 / t - 1.0 / (t + 1.0))
        return (value < log_delta) | jnp.isnan(value)

    theta = _saddle(losses, log_masses, steps, far_enough)
    _, k1, _ = _cumulants(losses, log_masses, theta)
    epsilon = (steps * k1).sum() - 1.0 / theta - 1.0 / (theta + 1.0)
    # A gap in delta is theta times the gap in epsilon: ask for 3e-4 of epsilon. Large gaps are not what they were
    # predicted to be (one run's law, at a spacing of 1 / theta, is not the tilted law any more).
    epsilon = jnp.maximum(epsilon, 0.0)
    tolerance = jnp.clip(3e-4 * theta * epsilon, 8e-4, 0.2)
    return _outline(losses, log_masses, steps, periods, theta, epsilon, cutoff, tolerance)


def saddle_log_delta(t: Any, k0: Any, k2: Any, epsilon: Any) -> Any:
    """Saddle-point approximation of log delta(epsilon) with K = k0 and K'' = k2 at the saddle t."""
    xp = array_module(t)
    spread = k2 + 1.0 / t**2 + 1.0 / (t + 1.0) ** 2
    return k0 - t * epsilon - xp.log(t) - log1p(t) - 0.5 * xp.log(2 * np.pi * spread)


def _cutoff(losses: Array, log_masses: Array, steps: Array, log_delta: Array) -> Array:
    """A loss above which all steps together have a billionth of delta: mass there may as well be infinite.

    A large tilt has a second mode far out in the tail, where a step's probability is 1e-200; it would ask for a
    window a thousand standard deviations wide.
    """
    weighted = jnp.log(steps)[:, None] + log_masses

    def halve(bracket, _):
        low, high = bracket
        middle = 0.5 * (low + high)
        beyond = jax.nn.logsumexp(jnp.where(losses > middle, weighted, -jnp.inf))
        small = beyond <= log_delta - 21.0
        return (jnp.where(small, low, middle), jnp.where(small, middle, high)), None

    start = (jnp.min(losses), jnp.max(losses))
    (_, high), _ = jax.lax.scan(halve, start, None, length=_BISECTIONS)
    return high


def _outline(
    losses: Array,
    log_masses: Array,
    steps: Array,
    periods: Array,
    theta: Array,
    epsilon: Array,
    cutoff: Array,
    tolerance: Array,
) -> Outline:
    # The smallest period; other parts fit if theirs is a multiple of it.
    period = jnp.min(jnp.where(periods > 0, periods, jnp.inf))
    period = jnp.where(jnp.isfinite(period), period, 0.0)
    multiple = periods / jnp.where(period > 0, period, 1.0)
    fits = (periods > 0) & (jnp.abs(multiple - jnp.round(multiple)) <= 1e-9 * multiple)
    # A law may have atoms at a distance and a density besides (Laplace): only what is all atoms costs no gap.
    weights = jnp.exp(theta * losses + log_masses - jnp.max(theta * losses + log_masses, -1, keepdims=True))
    heaviest = _at_least(-weights, losses)[:, None]
    away = jnp.where(weights > 1e-12, (losses - heaviest) / jnp.where(periods > 0, periods, 1.0)[:, None], 0.0)
    fits &= jnp.all(jnp.abs(away - jnp.round(away)) < 1e-6, -1)
    loose = jnp.where(fits, 0.0, steps).sum()
    care = jnp.where(loose > 0, 0.0, 9.0)  # what lives on a lattice deserves wider windows: they are all it costs
    normalisers, means, variances = _cumulants(losses, log_masses, theta)
    most = steps.max()
    deviation = jnp.sqrt(variances.sum())
    # Chernoff exponents from far below one standard deviation of all T rounds to far above that of one.
    scale = jnp.maximum(deviation, 1e-300)
    shifts = jnp.exp(jnp.linspace(jnp.log(0.4 / (scale * jnp.sqrt(most))), jnp.log(24.0 / scale), _SHIFTS))
    centred = losses - means[:, None]
    tilted = theta * losses + log_masses - normalisers[:, None]
    # Excess cumulant of every part, shape (K, shifts): log E_theta[exp(+-s (L - mean))] >= 0.
    above = jax.nn.logsumexp(tilted[:, None, :] + shifts[:, None] * centred[:, None, :], axis=-1)
    below = jax.nn.logsumexp(tilted[:, None, :] - shifts[:, None] * centred[:, None, :], axis=-1)
    above, below = jnp.maximum(above, 0.0), jnp.maximum(below, 0.0)
    rounds = jnp.exp(jnp.linspace(0.0, jnp.log(most), _ROUNDS))
    # What misses a window counts once per use of the level, T / c times; 1e-11 of delta in all.
    exponent = jnp.log(most / rounds)[:, None] + 27.0 + care
    runs = jnp.minimum(rounds[:, None], steps)  # c rounds are no more runs of a part than there are
    up_all = (runs @ above + exponent) / shifts
    down_all = (runs @ below + exponent) / shifts
    # One step must fit into the first lattice, but for a small share of delta.
    single = jnp.log(most) + 22.0 + care
    reach_up = jnp.min(jnp.max((above + single + 5.0) / shifts, axis=0))
    reach_down = jnp.min(jnp.max((below + single) / shifts, axis=0))
    return Outline(
        theta,
        normalisers,
        epsilon,
        means,
        means.sum(),
        deviation,
        rounds,
        jnp.min(up_all, -1),
        jnp.min(down_all, -1),
        reach_up,
        reach_down,
        _at_least(up_all, shifts),
        _at_least(down_all, shifts),
        steps.sum(),
        cutoff,
        tolerance,
        period,
        loose,
    )


def _at_least(widths: Array, shifts: Array) -> Array:
    """The shift that attains the least width of each row."""
    return jax.vmap(lambda row, among: among[first_least(row)])(widths, jnp.broadcast_to(shifts, widths.shape))


def layouts(finest: int) -> list[Layout]:
    """The layouts that a plan chooses from, cheapest first; ``finest`` is the largest first level, a power of 2."""
    # Every layout is a compilation: factors of 2 and 4 between them waste little and keep their number down.
    found = [Layout(2**k, 2**k, 1) for k in range(13, 21)]
    for later in (2**13, 2**14, 2**15, 2**16):
        found += [Layout(later, later, 2), *(Layout(4 * later, later, levels) for levels in (2, 3, 5))]
    found = [layout for layout in found if layout.first <= finest]
    return sorted(found, key=lambda layout: layout.cost)


def _snapped(spacing: Any, period: Any, stride: int, xp: Any) -> tuple[Any, Any]:
    """The least spacing of at least ``spacing`` that divides ``period``, and into how many cells it does (or 0).

    That number is a multiple of ``stride``, or else of a power of 2 not far below it, so that atoms are points of
    the evaluated pattern and of coarser lattices. A spacing above the period stays as it is.
    """
    cells = xp.floor(inflated(period / spacing, 1e-12))
    block = xp.exp2(xp.floor(xp.log2(xp.clip(cells, 1.0, float(stride)))))
    cells = xp.floor(cells / block) * block
    return xp.where(cells > 0, period / xp.maximum(cells, 1.0), spacing), cells


def levels_for(outline: Outline, layout: Layout, xp: Any = jnp) -> Levels:
    """The spacing and the powers with which ``layout`` serves the query, and the gap to expect.

    Outlines may carry leading axes. ``xp`` is the array module: NumPy where a plan is made on the host.
    """
    width = outline.up + outline.down
    first = layout.first * _FILL
    scales = [1.0] + [layout.ratio * float(COARSENING) ** j for j in range(layout.levels - 1)]
    sizes = [first] + [layout.later * _FILL] * (layout.levels - 1)
    # One step has its mean at CENTRE of the first lattice and has to fit; so has one round.
    spacing = xp.maximum(width[..., 0] / first, outline.reach_up / ((0.95 - CENTRE) * layout.first))
    spacing = xp.maximum(spacing, outline.reach_down / (0.95 * CENTRE * layout.first))
    spacing = xp.maximum(spacing, width[..., -1] / (sizes[-1] * scales[-1]))
    spacing, cells = _snapped(spacing, outline.period, max(COARSENING, layout.first // 1024), xp)
    if layout.levels == 1:  # where every loss is an atom, points between atoms only collect rounding errors
        longest = xp.minimum(_LONGEST, _HEAVIEST / outline.theta)
        enough = xp.exp2(xp.ceil(xp.log2(xp.maximum(outline.period * layout.first / longest, 1.0))))
        fewer = xp.where((outline.loose == 0) & (cells > 0), xp.minimum(cells, enough), cells)
        spacing, cells = xp.where(fewer < cells, outline.period / xp.maximum(fewer, 1.0), spacing), fewer
    reached = xp.ones_like(outline.total)
    counts = []

    def inflating(scale: float) -> Any:  # steps whose loss is not on the lattice of this scale anyway
        return xp.where((cells > 0) & (xp.mod(cells, scale) == 0), outline.loose, outline.total)

    inflation = inflating(1.0) * spacing**2
    for j in range(layout.levels - 1):
        window = sizes[j] * scales[j] * spacing
        fits = xp.max(xp.where(width <= window[..., None], outline.rounds, 1.0), axis=-1)
        count = xp.maximum(xp.floor(inflated(fits / reached, 1e-9)), 1.0)
        counts.append(count)
        reached = reached * count
        inflation = inflation + inflating(scales[j + 1]) / reached * (scales[j + 1] * spacing) ** 2
    gap = 0.5 * outline.theta * (outline.theta + 1.0) * inflation / 4.0
    return Levels(spacing, counts, gap)
