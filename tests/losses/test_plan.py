"""Plans of small surveys, number by number: plain sums and roots, one atom and one level at a time."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from jaxacct.losses.plan import (
    CENTRE,
    COARSENING,
    Layout,
    Outline,
    layouts,
    levels_for,
    outline_for_delta,
    outline_for_epsilon,
    saddle_log_delta,
)

_jitted = {"delta": jax.jit(outline_for_delta), "epsilon": jax.jit(outline_for_epsilon)}


def _asked(kind, survey, goal):
    with jax.enable_x64(True):
        found = _jitted[kind](*(jnp.asarray(x) for x in survey), jnp.asarray(goal))
        return jax.tree.map(np.asarray, found)


def _sums(atoms, logs, steps, t):
    """T K(t), T K'(t), T K''(t), added up over the parts; and each part's."""
    found = []
    for losses, log_masses in zip(atoms, logs, strict=True):
        exponent = t * losses + log_masses
        top = exponent.max()
        weights = np.exp(exponent - top)
        total, mean = weights.sum(), (weights * losses).sum() / weights.sum()
        found.append((top + np.log(total), mean, (weights * (losses - mean) ** 2).sum() / total))
    found = np.array(found).T
    return *(found * steps).sum(1), found


def _log_delta(t, k0, k2, epsilon):
    spread = k2 + t**-2.0 + (t + 1) ** -2.0
    return k0 - t * epsilon - math.log(t * (t + 1)) - math.log(2 * math.pi * spread) / 2


def _root(function):
    """Where a function of t that is negative and then positive changes sign, in [1e-7, 1e8]."""
    if function(1e8) <= 0:
        return 1e8
    return math.exp(brentq(lambda x: function(math.exp(x)), math.log(1e-7), math.log(1e8), xtol=1e-12))


def _cutoff(atoms, logs, steps, log_delta):
    """The least loss above which all runs together have e^-21 of delta."""
    masses = np.concatenate([m * np.exp(x) for m, x in zip(steps, logs, strict=True)])
    losses = np.concatenate(list(atoms))
    return min(x for x in losses if masses[losses > x].sum() <= math.exp(log_delta - 21.0))


FREE = np.array([[-0.31, 0.12, 0.55, 3.1, 9.0], [-1.2, 0.4, 0.9, 1.3, 2.6]])
FREE_LOGS = np.log([[0.5, 0.3, 0.2, 1e-9, 1e-60], [0.1, 0.3, 0.3, 0.29, 0.01]])
GRID = np.array([[-0.5, 0.5, 1.5, 2.5, 3.5], [-1.0, 0.0, 1.0, 2.0, 5.0]])
GRID_LOGS = np.log([[0.5, 0.3, 0.1, 0.1, 1e-300], [0.1, 0.3, 0.3, 0.2, 0.1]])
SURVEYS = {
    "free": (FREE, FREE_LOGS, np.array([30.0, 7.0]), np.zeros(2)),
    "atoms": (GRID, GRID_LOGS, np.array([3.0, 50.0]), np.array([1.0, 0.5])),
    "some atoms": (
        np.stack([GRID[0], FREE[0]]),
        np.stack([GRID_LOGS[0], FREE_LOGS[0]]),
        np.array([3.0, 5.0]),
        [0.5, 0],
    ),
    "once": (FREE, FREE_LOGS, np.ones(2), np.zeros(2)),
}
LOOSE = {"free": 37.0, "atoms": 0.0, "some atoms": 5.0, "once": 2.0}
PERIOD = {"free": 0.0, "atoms": 0.5, "some atoms": 0.5, "once": 0.0}


def _outlined(found, name, log_delta, epsilon, tolerance):
    """All that follows from a tilt."""
    atoms, logs, steps, _ = SURVEYS[name]
    least = _cutoff(atoms, logs, steps, log_delta)
    assert least <= found.cutoff <= least + 1e-8
    logs = np.where(atoms > found.cutoff, -np.inf, logs)
    t = float(found.theta)
    _, _, _, (normalisers, means, variances) = _sums(atoms, logs, steps, t)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9)
    close(found.log_normalisers, normalisers, atol=1e-12)
    close(found.means, means, atol=1e-12)
    close(found.centre, means.sum(), atol=1e-12)
    deviation, most = math.sqrt(variances.sum()), steps.max()
    close(found.deviation, deviation, rtol=1e-6)
    assert (found.total, found.loose, found.period) == (steps.sum(), LOOSE[name], PERIOD[name])
    close(found.epsilon, epsilon, rtol=1e-6)
    close(found.tolerance, tolerance, rtol=1e-6)
    rounds = np.geomspace(1.0, most, 41)
    close(found.rounds, rounds)
    care = 0.0 if LOOSE[name] else 9.0
    shifts = np.geomspace(0.4 / (deviation * math.sqrt(most)), 24.0 / deviation, 40)
    for sign, width, shift, reach, more in (
        (1, found.up, found.shift_up, found.reach_up, 5.0),
        (-1, found.down, found.shift_down, found.reach_down, 0.0),
    ):
        tilted = np.exp(t * atoms + logs - normalisers[:, None])
        grown = [(tilted * np.exp(sign * s * (atoms - means[:, None]))).sum(1) for s in shifts]
        cumulants = np.maximum(np.log(grown), 0.0)  # (shifts, parts)
        for c, here, at in zip(rounds, width, shift, strict=True):
            bounds = [
                (sum(min(c, m) * k for m, k in zip(steps, row, strict=True)) + math.log(most / c) + 27 + care) / s
                for s, row in zip(shifts, cumulants, strict=True)
            ]
            close(here, min(bounds), rtol=1e-6)
            close(at, shifts[np.argmin(bounds)], rtol=1e-6)
        single = [(max(row) + math.log(most) + 22 + care + more) / s for s, row in zip(shifts, cumulants, strict=True)]
        close(reach, min(single), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "epsilon"), [("free", 9.0), ("free", 30.0), ("atoms", 60.0), ("some atoms", 5.0), ("once", 1.0)]
)
def test_the_outline_of_a_delta(name, epsilon):
    atoms, logs, steps, _ = SURVEYS[name]
    found = _asked("delta", SURVEYS[name], epsilon)

    def tilt(logs):
        return _root(lambda t: _sums(atoms, logs, steps, t)[1] - 1 / t - 1 / (t + 1) - epsilon)

    def estimate(logs):
        t = tilt(logs)
        k0, _, k2, _ = _sums(atoms, logs, steps, t)
        return min(_log_delta(t, k0, k2, epsilon), 0.0)

    log_delta = estimate(logs)
    kept = np.where(atoms > found.cutoff, -np.inf, logs)
    np.testing.assert_allclose(found.theta, tilt(kept), rtol=2e-9)
    _outlined(found, name, log_delta, epsilon, 8e-3 if estimate(kept) < math.log(1e-12) else 8e-4)


@pytest.mark.parametrize(("name", "delta"), [("free", 1e-5), ("free", 1e-30), ("atoms", 1e-3), ("once", 0.1)])
def test_the_outline_of_an_epsilon(name, delta):
    atoms, logs, steps, _ = SURVEYS[name]
    found = _asked("epsilon", SURVEYS[name], delta)
    kept = np.where(atoms > found.cutoff, -np.inf, logs)

    def excess(t):
        k0, k1, k2, _ = _sums(atoms, kept, steps, t)
        return math.log(delta) - _log_delta(t, k0, k2, k1 - 1 / t - 1 / (t + 1))

    t = _root(excess)
    np.testing.assert_allclose(found.theta, t, rtol=2e-9)
    epsilon = max(_sums(atoms, kept, steps, t)[1] - 1 / t - 1 / (t + 1), 0.0)
    _outlined(found, name, math.log(delta), epsilon, np.clip(3e-4 * t * epsilon, 8e-4, 0.2))


def test_where_there_is_no_saddle_the_tilt_makes_delta_vanish():
    """Chernoff's bound is below every double there."""
    found = _asked("delta", SURVEYS["once"], 40.0)
    k0 = _sums(*SURVEYS["once"][:2], np.ones(2), float(found.theta))[0]
    assert k0 - found.theta * 40.0 == pytest.approx(-700.0, rel=1e-6)


def test_the_saddle_point_of_a_gaussian_is_close_to_its_delta():
    found = saddle_log_delta(np.float64(7.0), 2.0, 0.3, 1.5)
    assert found == pytest.approx(_log_delta(7.0, 2.0, 0.3, 1.5), rel=1e-14)


def _outline(rng, period, loose):
    """Widths like those of up to 500 rounds."""
    rounds = np.geomspace(1.0, 500.0, 41)
    given = {name: np.zeros(1) for name in Outline._fields}
    given |= {"theta": rng.uniform(0.5, 9), "rounds": rounds, "total": 700.0, "loose": loose, "period": period}
    given |= {"up": rng.uniform(0.5, 3) * rounds**0.6, "down": rng.uniform(0.5, 3) * rounds**0.5}
    given |= {"reach_up": rng.uniform(0.3, 4), "reach_down": rng.uniform(0.3, 1.5)}
    return Outline(**{name: np.asarray(value, np.float64) for name, value in given.items()})


def _levels(outline, layout):
    """The spacing, the powers and the gap, level by level."""
    width = outline.up + outline.down
    points = [layout.first * 0.94] + [layout.later * 0.94] * (layout.levels - 1)
    scales = [1.0] + [COARSENING * layout.first / layout.later * 8.0**j for j in range(layout.levels - 1)]
    spacing = max(
        width[0] / points[0],
        width[-1] / (points[-1] * scales[-1]),
        outline.reach_up / (0.7 * layout.first),
        outline.reach_down / (0.2375 * layout.first),
    )
    period, cells = float(outline.period), 0
    if period >= spacing:
        cells, stride = math.floor(period / spacing), max(8, layout.first // 1024)
        block = 2 ** math.floor(math.log2(min(cells, stride)))
        cells -= cells % block
        if layout.levels == 1 and outline.loose == 0:
            longest, enough = min(300.0, 400.0 / outline.theta), 1
            while enough * longest < period * layout.first:
                enough *= 2
            cells = min(cells, enough)
        spacing = period / cells

    def inflating(scale):
        return float(outline.loose if cells and cells % scale == 0 else outline.total)

    reached, counts, inflation = 1.0, [], inflating(1.0) * spacing**2
    for j in range(layout.levels - 1):
        fits = max(
            [c for c, w in zip(outline.rounds, width, strict=True) if w <= points[j] * scales[j] * spacing] + [1]
        )
        counts.append(max(math.floor(fits / reached * (1 + 1e-9)), 1))
        reached *= counts[-1]
        inflation += inflating(scales[j + 1]) / reached * (scales[j + 1] * spacing) ** 2
    return spacing, counts, outline.theta * (outline.theta + 1) * inflation / 8


@pytest.mark.parametrize("layout", [Layout(2**13, 2**13, 1), Layout(2**15, 2**13, 3), Layout(2**14, 2**14, 2)])
def test_levels_of_many_outlines(layout):
    rng, seen = np.random.default_rng(7), set()
    for k in range(80):
        period = 0.0 if k % 5 == 0 else float(np.exp(rng.uniform(np.log(1e-4), np.log(9.0))))
        outline = _outline(rng, period, (0.0, 200.0, 700.0)[k % 3])
        found = levels_for(outline, layout, np)
        spacing, counts, gap = _levels(outline, layout)
        assert found.spacing == pytest.approx(spacing, rel=1e-12)
        assert [float(x) for x in found.counts] == counts
        assert found.gap == pytest.approx(gap, rel=1e-9)
        seen.add((period > 0, period / spacing >= 1, bool(outline.loose)))
    assert len(seen) >= 5


def test_the_gap_of_one_level_is_the_inflation_of_its_variance():
    """Chords of cells of width h add h^2 / 4 to a step's variance at most; delta feels theta (theta + 1) / 2 of it."""
    outline = _outline(np.random.default_rng(0), 0.0, 700.0)
    found = levels_for(outline, Layout(2**13, 2**13, 1), np)
    assert found.counts == []
    assert found.gap == pytest.approx(0.5 * outline.theta * (outline.theta + 1) * 700 * found.spacing**2 / 4)
    assert CENTRE == 0.25


def test_layouts_by_cost():
    single = [Layout(2**k, 2**k, 1) for k in range(13, 21)]
    several = [Layout(2**k, 2**k, 2) for k in range(13, 17)]
    several += [Layout(2 ** (k + 2), 2**k, levels) for k in range(13, 17) for levels in (2, 3, 5)]
    found = layouts(2**20)
    assert set(found) == set(single + several)
    assert len(found) == len(set(found)) == 24
    costs = [one.first * 1.6 + (one.levels - 1) * one.later for one in found]
    assert costs == sorted(costs)
    assert [one.cost for one in found] == costs
    assert set(layouts(2**14)) == {one for one in found if one.first <= 2**14}
    assert [Layout(2**15, 2**13, 3).ratio, Layout(2**13, 2**13, 2).ratio] == [32, 8]
