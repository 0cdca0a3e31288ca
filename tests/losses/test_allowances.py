"""What formulas add for their rounding is what they say, no less and no more, wherever one term of it is all there is.

The truth has 64 bits (NumPy's long double) or more, so what lies between it and a bound is the allowance, but for the
rounding that it is for. Arguments go to both ends of what makes sense: next to order 1, a millionth of a nat, losses
of a million.
"""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct import PLD, Exponential, LossGrid, PrivacyProfile
from jaxacct.losses import conversions, nodes, single
from jaxacct.losses._parametric import delta_of, epsilon_of
from jaxacct.losses.gaussian_order import gaussian_trade_off
from jaxacct.losses.gdp_curve import log_delta_bounds
from jaxacct.losses.profile import excess_at
from jaxacct.losses.renyi import closed, delta_from_renyi, epsilon_from_renyi, renyi_from_epsilon
from jaxacct.losses.renyi.discrete import _discrete_laplace
from jaxacct.losses.zcdp_curve import _log_conversion, _log_delta
from jaxacct.mechanisms._pair import Tails
from jaxacct.mechanisms._row import Row
from jaxacct.mechanisms._table_pair import TablePair

UNIT = 2.0**-52
Long = np.longdouble
pytestmark = pytest.mark.skipif(np.finfo(Long).nmant < 63, reason="long double has no more digits than double here")


def spread(rng, low, high, count):
    return np.exp(rng.uniform(np.log(low), np.log(high), count))


def allowed(gap, room, low=0.75, high=1.25):
    """``gap`` is ``room``, but for the rounding that ``room`` is for."""
    share = np.asarray(gap / room, float)
    assert share.size > 0
    assert low <= share.min()
    assert share.max() <= high


def bisected(low, high, is_low):
    for _ in range(110):
        middle = np.sqrt(low) * np.sqrt(high)
        below = is_low(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low


@pytest.fixture(autouse=True)
def _in_float64():
    with jax.enable_x64(True):
        yield


def test_conversions_of_renyi_divergences():
    rng, count = np.random.default_rng(0), 4000
    order, rho = 1 + spread(rng, 1e-12, 1e9, count), spread(rng, 1e-18, 1e3, count)
    delta = spread(rng, 1e-300, 1.0, count)
    delta[::2] = 1 - spread(rng, 1e-15, 0.5, count // 2)
    a, r, log_delta = Long(order), Long(rho), np.log(Long(delta))
    first, second = np.where(a < 2, np.log(a - 1) - np.log(a), np.log1p(-1 / a)), (log_delta + np.log(a)) / (a - 1)
    size = np.abs(first) + (np.abs(log_delta) + np.log(a)) / (a - 1)

    found, truth = np.asarray(epsilon_from_renyi(rho, order, delta)), r + first - second
    small = np.sqrt(-np.expm1(-r)) <= delta  # total variation alone
    seen = (truth > 0) & ~small
    assert 300 < seen.sum() < count
    allowed((found - truth)[seen], (16 * UNIT * size + 4 * UNIT * r)[seen])
    assert np.all(found[small] == 0)

    epsilon = np.where(rng.random(count) < 0.3, 0.0, spread(rng, 1e-12, 1e3, count))
    e = Long(epsilon)
    back, truth = np.asarray(renyi_from_epsilon(epsilon, delta, order)), e - first + second
    allowed(truth - back, 32 * UNIT * size + 16 * UNIT * (e + np.abs(first - second)))

    found, log_truth = np.asarray(delta_from_renyi(rho, order, epsilon)), (a - 1) * (r - e + first) - np.log(a)
    log_variation = np.log(-np.expm1(-r)) / 2
    size, shown = (a - 1) * (r + e - first) + np.log(a), (np.minimum(log_truth, log_variation) > -600)
    for seen, truth, room in (
        ((log_truth < log_variation) & (log_truth < -1e-9) & shown, log_truth, 16 * UNIT * size + 8 * UNIT),
        ((log_truth > log_variation + 1e-12) & (log_variation < -1e-9) & shown, log_variation, 8 * UNIT * (1 + 0 * r)),
    ):
        assert seen.sum() > 200
        allowed(np.log(Long(found[seen])) - truth[seen], room[seen], 0.75, 1.25)


def test_total_variation_below_delta_is_seen_to_the_last_units():
    rng = np.random.default_rng(1)
    rho = spread(rng, 1e-15, 1.0, 3000)
    delta = np.sqrt(-np.expm1(-rho)) * (1 + rng.integers(-12, 13, 3000) * UNIT)
    share = np.asarray((np.log(Long(delta)) - np.log(-np.expm1(-Long(rho))) / 2) / UNIT, float)
    zero = np.asarray(epsilon_from_renyi(rho, 1.0001, delta)) == 0  # the conversion itself gives more
    assert np.all(share[zero] >= 2)
    assert np.all(zero[share > 6])


def test_concentrated_privacy():
    rng, count = np.random.default_rng(2), 3000
    rho = spread(rng, 1e-15, 1e3, count)
    epsilon = np.where(rng.random(count) < 0.2, 0.0, spread(rng, 1e-9, 1e3, count))
    log_delta = -spread(rng, 1e-9, 690.0, count)
    delta, back = (np.asarray(jax.jit(f)(*map(jnp.asarray, x))) for f, *x in (
        (_log_delta, rho, epsilon), (_log_conversion, rho, log_delta)
    ))  # fmt: skip
    r, e, d = Long(rho), Long(epsilon), Long(log_delta)
    variation = np.log(np.minimum(r / 2, -np.expm1(-r))) / 2
    b = bisected(Long(1e-30) + 0 * r, (e + 1) / r + 2, lambda b: r * (1 + 2 * b) - np.log1p(1 / b) < e)
    truth = b * (r * (1 + b) - e - np.log1p(1 / b)) - np.log1p(b)
    room = 16 * UNIT * (1 + b * (r * (1 + b) + e + np.log1p(1 / b)) + np.log1p(b))
    by_order = truth + room < variation
    assert 300 < by_order.sum() < count - 300
    allowed((delta - truth)[by_order], room[by_order])
    units, by_distance = np.asarray((delta - variation) / UNIT, float), truth + room > variation + 20 * UNIT
    assert np.all((np.abs(units - 12) <= 3 + np.abs(variation))[by_distance])

    b = bisected(Long(1e-30) + 0 * r, np.sqrt(-d / r) + 1e-12, lambda b: r * b * b + np.log1p(b) < -d)
    truth = r * (1 + b) - np.log1p(1 / b) + (-d - np.log1p(b)) / b
    room = 16 * UNIT * (r * (1 + b) + np.log1p(1 / b) + (-d + np.log1p(b)) / b)
    small = variation <= d
    seen = (truth > 3 * room) & ~small
    assert seen.sum() > 300
    allowed((back - truth)[seen], room[seen])
    assert np.all(back[~small] >= truth[~small])
    assert np.all(back[variation < d - 1e-12] == 0)


def test_gaussian_curves_from_a_millionth_to_a_million():
    def tail(z):
        return mpmath.erfc(z / mpmath.sqrt(2)) / 2

    # Where a, the quantile of P's tail, changes sides of -1 another formula takes over.
    rows = [(mu, mu * (a + mu / 2)) for mu in (1e-6, 0.3, 1.9, 2.1, 30.0, 1e3, 1e6)
            for a in (-40.0, -6.0, -1.6, -1.001, -0.999, -1e-4, 0.3, 3.0, 12.0, 35.0) if a + mu / 2 >= 0]  # fmt: skip
    mu, epsilon = np.array(rows).T
    found = np.asarray(jax.jit(log_delta_bounds)(*map(jnp.asarray, (mu, epsilon))))
    with mpmath.workdps(60):
        for low, high, m, e in zip(*found, *(map(mpmath.mpf, map(float, x)) for x in (mu, epsilon)), strict=True):
            a, b = e / m - m / 2, e / m + m / 2
            truth = mpmath.log(tail(a) - mpmath.exp(e + mpmath.log(tail(b))))
            room = 1e-12 + 8 * UNIT * (abs(a) + 1) * b
            if high < 0 or truth < -room:
                allowed(float(high - truth), float(room))
            assert truth <= high <= 0
            allowed(float(truth - low), float(room), 0.8)

        z = np.array([-8.2, -5.0, -1.0, 0.0, 0.5, 3.0, 12.0, 37.0])
        alpha = np.array([float(tail(x)) for x in z])
        z = [mpmath.findroot(lambda x, p=float(p): tail(x) - p, x) for x, p in zip(z, alpha, strict=True)]
        mus = np.array([1e-6, 0.7, 5.0, 40.0])[:, None]
        for bound, sign in (("lower", -1), ("upper", 1)):
            for row, m in zip(np.asarray(gaussian_trade_off(mus, alpha, bound)), mus[:, 0], strict=True):
                for value, x in zip(row, z, strict=True):
                    at = x - mpmath.mpf(float(m))
                    truth = tail(-at)
                    density = mpmath.exp(-at * at / 2) / mpmath.sqrt(2 * mpmath.pi)
                    room = 1e-14 * (1 + abs(x) + m) * density + 4 * UNIT * (2 + at * at) * truth
                    if truth > 1e-280 and 0 < value < 1 - float(tail(x)):
                        allowed(float(sign * (value - truth)), float(room))
                    assert sign * (value - min(truth, 1 - tail(x))) >= 0
    ask = jax.jit(gaussian_trade_off, static_argnums=2)
    for bound in ("lower", "upper"):
        at = np.array([0.0, 0.3, 1.0])
        nothing = 0.0 * at if bound == "lower" else 1 - at
        for bad in (np.nan, -1.0, np.inf):
            np.testing.assert_array_equal(ask(np.full(3, bad), at, bound), nothing)
    np.testing.assert_array_equal(ask(np.zeros(3), at, "upper"), 1 - at)  # and not a margin more


def test_closed_renyi_curves():
    rng, count = np.random.default_rng(3), 150
    order, epsilon = 1 + spread(rng, 1e-9, 1e5, count), spread(rng, 1e-16, 500.0, count)
    order[:60], epsilon[:30] = 1 + spread(rng, 1e-3, 1e3, 60), spread(rng, 1e-4, 5.0, 30)
    gap = rng.integers(1, 6, count).astype(float)
    pure, more = (np.asarray(closed.pure_divergence(epsilon, order, k)) for k in (2.0, 5.0))
    scale = spread(rng, 0.1, 10.0, count)
    shift = epsilon * scale
    laplace = np.asarray(closed._laplace(scale, shift, order))
    range_ = np.asarray(closed.bounded_range_curve(Exponential(epsilon), order, "remove"))
    discrete = np.asarray(_discrete_laplace(*map(jnp.asarray, (gap / epsilon, gap, order))))
    for i in range(count):
        # Every formula is 1 plus an excess that may be 1e-40.
        with mpmath.workdps(100):
            a, x = mpmath.mpf(float(order[i])), mpmath.mpf(float(epsilon[i]))
            up = mpmath.exp(a * x) * (1 - mpmath.exp((1 - a) * x)) * (1 - mpmath.exp(-a * x))
            by_categories = [mpmath.log1p(up / (k - 1 + mpmath.exp(x))) / (a - 1) for k in (2, 5)]
            ratio = mpmath.mpf(float(shift[i])) / mpmath.mpf(float(scale[i]))
            terms = a * mpmath.exp((a - 1) * ratio), (a - 1) * mpmath.exp(-a * ratio)
            by_scale = mpmath.log(sum(terms) / (2 * a - 1)) / (a - 1)
            t = mpmath.log((a - 1) / a * (1 - mpmath.exp(-a * x)) / (1 - mpmath.exp((1 - a) * x))) + x
            p = (1 - mpmath.exp(t - x)) / (1 - mpmath.exp(-x))
            by_range = mpmath.log(p * mpmath.exp((a - 1) * t) + (1 - p) * mpmath.exp((a - 1) * (t - x))) / (a - 1)
            for value, truth in ((pure[i], by_categories[0]), (more[i], by_categories[1]), (laplace[i], by_scale)):
                # e^excess is rounded up by the margin of its exponent, a share of which remains in the logarithm.
                grown = (a - 1) * truth
                room = -mpmath.expm1(-grown) * (1e-12 + 2.0**-49 * a * x) / grown + 1e-12
                part = (value / truth - 1) / room
                assert value / truth - 1 >= 0
                assert part <= 1.3 if value < x else value <= x * (1 + 2.0**-49)
                assert part >= 0.7 or value >= x
            assert range_[i] / by_range - 1 >= 9e-13 or range_[i] >= x
            # Next to order 1 the excess is a difference that loses digits.
            assert range_[i] / by_range - 1 <= 3e-12 + 2e-12 / (a - 1) + 1e-10 * (x < 1)

            c, d = 1 / mpmath.mpf(float(gap[i] / epsilon[i])), int(gap[i])
            u = mpmath.exp(-c)
            inner = mpmath.fsum(u ** (a * (d - k) + (1 - a) * k) for k in range(1, d))
            moment = (1 - u) / (1 + u) * ((u ** (a * d) + u ** ((1 - a) * d)) / (1 - u) + inner)
            truth = mpmath.log(moment) / (a - 1)
            room = 2.0**-48 * (a * d * c + abs(mpmath.log(1 - u)) + 4) / (a - 1) + 1e-12 * truth
            allowed(float(discrete[i] - truth), float(room), 0.9, 1.1)


GRIDS = [LossGrid(5.0, -20, 41), LossGrid(1e-3, -400, 801)]


def around(grid, rng, count):
    """Losses everywhere, and within two units of lattice points."""
    low, high = (grid.lowest - 2) * grid.spacing, (grid.highest + 2) * grid.spacing
    points = rng.integers(grid.lowest, grid.highest + 1, count // 3) * grid.spacing
    near = points * (1 + rng.integers(-2, 3, points.size) * 2.0**-53)
    return np.concatenate([near, rng.uniform(low, high, count - points.size)]), np.arange(count) < points.size


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_hockey_sticks_of_laws_at_their_word(bound, sign):
    rng = np.random.default_rng(4)
    for grid in GRIDS[:1]:
        n, masses = grid.size, 0.99 * rng.dirichlet(np.full(grid.size, 0.05))
        at, near = around(grid, rng, 900)
        found = PLD(masses, np.array(0.01), grid, bound).hockey_stick(at)
        losses, x = (grid.lowest + np.arange(n)) * Long(grid.spacing), Long(at)
        truth = (masses * -np.expm1(np.minimum(x[:, None] - losses, 0))).sum(-1) + Long(0.01)
        above = (masses * (losses > x[:, None])).sum(-1)
        floor = np.maximum(-np.expm1(x), 0)
        assert np.all(sign * (found - np.clip(truth, floor, 1)) >= 0)
        free = (found < 1) & (np.abs(found - floor) > 1e-14) & ~near
        room = UNIT * (4 * n + 16) * truth + 2 * UNIT * np.abs(at) * (above + truth)
        allowed((sign * (found - truth))[free], room[free], 0.9, 1.15)
        # Next to a lattice point its atom may be on either side.
        atom = (masses * (np.abs(losses - x[:, None]) < 1e-9)).sum(-1)
        room += 2 * UNIT * np.abs(at) * atom + UNIT * np.abs(at)
        assert np.all((sign * (found - np.clip(truth, floor, 1)) <= 1.15 * room)[near & (found < 1)])


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_excess_between_the_points_of_a_grid(bound, sign):
    rng = np.random.default_rng(5)
    for grid in GRIDS:
        h, low, n = grid.spacing, grid.lowest, grid.size
        law = 0.99 * rng.dirichlet(np.full(n, 0.3))
        losses = (low + np.arange(n)) * Long(h)
        # A curve: sums of wedges, with gamma times them on the left.
        heights = (law * -np.expm1(np.minimum(losses[:, None] - losses, 0))).sum(-1) * np.exp(np.minimum(losses, 0))
        e = np.asarray(heights + 0.01 * np.exp(np.minimum(losses, 0)), float)
        at, near = around(grid, rng, 900)
        found = np.asarray(excess_at(jnp.asarray(e), grid, bound, jnp.asarray(at)))
        cell = np.floor(Long(at) / Long(h)).astype(int) - low
        c = np.clip(cell, 0, n - 2)
        t = np.expm1(Long(at) - (c + low) * Long(h)) / np.expm1(Long(h))
        under = e[0] * np.exp(Long(at) - low * Long(h))
        truth = np.where(cell < 0, under, np.where(cell >= n - 1, e[-1], e[c] * (1 - t) + e[c + 1] * t))
        gap = sign * (found - truth)
        assert np.all(gap >= -1e-19 * truth)
        moved = 4 * UNIT * (np.abs(at) + h) * np.exp(h) / np.expm1(h) + 8 * UNIT
        room = np.abs(e[c + 1] - e[c]) * moved + 8 * UNIT * np.maximum(e[c], e[c + 1])
        inner, left = ~near & (cell >= 0) & (cell < n - 1), ~near & (cell < 0)
        allowed(gap[inner], room[inner], 0.8, 1.15)
        allowed(gap[left], (8 * UNIT * (1 + np.abs(at)) * under)[left])
        assert np.all(gap[~near & (cell >= n - 1)] == 0)
        # Which cell a point belongs to is not known: neighbours' slopes count.
        wide = np.abs(np.diff(np.concatenate([[e[0] * np.exp(-h)], e, e[-1:]])))
        steep = np.maximum(np.maximum(wide[c], wide[c + 1]), wide[c + 2])
        assert np.all((gap <= 1.15 * (steep * moved + 8 * UNIT * np.maximum(e[c], e[c + 1])))[near])


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_moments_tilts_and_mirrors(bound, sign):
    rng = np.random.default_rng(6)
    for grid in (LossGrid(3.0, -6, 13),):
        n, masses = grid.size, rng.dirichlet(np.full(grid.size, 0.3))
        masses[rng.integers(n)] = 0.0
        law = PLD(masses, np.array(0.0), grid, bound)
        losses, held = (grid.lowest + np.arange(n)) * Long(grid.spacing), masses > 0
        log_masses = np.log(Long(np.where(held, masses, 1.0)))
        for theta in (0.0, 0.5, 7.0, 30.0):
            terms = np.where(held, theta * losses + log_masses, -np.inf)
            truth = np.log(np.exp(terms - terms.max()).sum()) + terms.max()
            size = np.max(4 * UNIT * (4 + np.where(held, np.abs(terms), 0.0)))
            room = size + 8 * UNIT * theta * np.abs(losses).max() + UNIT * (4 * n + 16) + 4 * UNIT * np.abs(truth)
            allowed(sign * (law.log_moment(theta) - truth), room, 0.9, 1.1)
            made = Long(law.tilt(theta).masses)
            exponent = terms - truth
            seen = held & (exponent > -600)
            error = 4 * UNIT * (4 + theta * np.abs(losses) + np.abs(log_masses) + np.abs(truth) + np.abs(exponent))
            allowed((sign * (made[seen] / np.exp(exponent[seen]) - 1)), (error + room)[seen], 0.9, 1.1)
            assert np.all(made[~held] == 0)
        height = rng.random(n) * np.exp(np.minimum(grid.losses, 0.0))
        mirrored = np.asarray(conversions.reflected(jnp.asarray(height), grid, bound))
        truth = (height * np.exp(-losses))[::-1]
        allowed(sign * (mirrored / truth - 1), (4 * UNIT * (1 + np.abs(losses)))[::-1], 0.6, 1.4)
        to = LossGrid(grid.spacing, grid.lowest - 3, n + 3)
        longer = np.asarray(conversions.moved(jnp.asarray(height), grid, to, bound))
        truth = height[0] * np.exp(Long(grid.spacing) * np.arange(-3, 0))
        allowed(sign * (longer[:3] / truth - 1), 8 * UNIT * (1 + np.abs(to.losses[:3])), 0.8, 1.2)
        np.testing.assert_array_equal(longer[3:], height)
        # A shorter range keeps the slope at 0 and the height at infinity, from below.
        shorter = np.asarray(conversions.moved(jnp.asarray(height), grid, LossGrid(grid.spacing, -4, 9), bound))
        np.testing.assert_array_equal(shorter[1:-1], height[3:-3])
        slope = height[0] * np.exp(2 * Long(grid.spacing))
        ends = (height[2], height[-3]) if bound == "upper" else (min(height[2], slope), height[-1])
        assert shorter[-1] == ends[1]
        assert abs(shorter[0] / ends[0] - 1) <= 9 * UNIT * (1 + 2 * grid.spacing)
        assert sign * (shorter[0] - ends[0]) >= 0


def test_values_of_curves_and_curves_of_values():
    grid = LossGrid(0.25, -16, 33)
    rng = np.random.default_rng(7)
    height = rng.random(33) * np.exp(np.minimum(grid.losses, 0.0)) * np.linspace(0.2, 0.01, 33)
    for bound, sign in (("upper", 1), ("lower", -1)):
        profile = PrivacyProfile(height, grid, bound)
        truth = Long(height) - np.expm1(np.minimum(Long(grid.losses), 0))
        gap, left = sign * (profile.values() - truth), grid.losses < 0
        identity = truth - height
        allowed(gap[left], (4 * UNIT * (identity + truth))[left], 0.6, 1.4)
        np.testing.assert_array_equal(gap[~left], 0.0)


def test_a_curve_from_its_values_is_off_by_their_last_unit():
    grid = LossGrid(0.25, -16, 33)
    losses = Long(grid.losses)
    values = np.asarray(0.9 * np.exp(-0.3 * np.exp(losses)) + 0.05, float)
    values = np.maximum(values, 1 - 0.9 * np.asarray(np.exp(losses), float))
    for bound, sign in (("upper", 1), ("lower", -1)):
        found = PrivacyProfile.from_values(values, grid, bound).excess
        gap = sign * (found - (values + np.expm1(np.minimum(losses, 0))))
        assert np.all(np.abs(gap[losses < 0] / UNIT - 4) <= 1)
        np.testing.assert_array_equal(gap[losses >= 0], 0.0)


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_masses_of_a_curve_are_differences_of_slopes(bound, sign):
    for h, lowest, n in ((0.5, -6, 13), (1e-3, -20, 41), (3.0, -4, 9)):
        grid = LossGrid(h, lowest, n)
        p = np.exp(grid.losses / 2) * np.random.default_rng(8).uniform(0.5, 1.5, n)
        p *= 0.9 / (p * np.maximum(1.0, np.exp(-grid.losses))).sum()
        losses = Long(h) * (lowest + np.arange(n))
        curve = (p * -np.expm1(np.minimum(losses[:, None] - losses, 0))).sum(-1) + 0.02
        e = np.asarray(np.maximum(curve + np.expm1(np.minimum(losses, 0)), 1e-3 * np.exp(np.minimum(losses, 0))), float)
        masses, infinite = (np.asarray(x) for x in conversions.masses_of_excess(jnp.asarray(e), grid, bound))
        steps = np.diff(Long(e))
        right = np.append(steps / np.expm1(Long(h)), 0)
        left = np.append(Long(e[0]), steps / -np.expm1(-Long(h)))
        kink = np.arange(n) == -lowest
        truth, room = right - left + kink, 16 * UNIT * (np.abs(right) + np.abs(left) + kink)
        free = truth > 10 * room
        assert free.sum() >= 5
        if sign > 0:
            allowed((masses - truth)[free], room[free], 0.8, 1.2)
            assert infinite == e[-1]
        elif np.all(free):
            allowed((truth - masses), room + 8 * UNIT * truth, 0.8, 1.2)


def test_nodes_of_curves_are_charged_the_errors_of_their_tails():
    rng, n = np.random.default_rng(9), 9
    for spacing in (0.5, 30.0):
        losses = spacing * np.arange(-4.0, 5.0)
        gamma = np.exp(Long(losses))
        for off in (0.0, 1e-9):

            def tails(count, off=off, ends=(losses[0] - spacing, losses[-1] + spacing)):
                p_above, q_above = np.sort(rng.uniform(0.1, 1, (2, count)))[:, ::-1]
                p_below, q_below = np.sort(rng.uniform(0.1, 1, (2, count)))
                sizes = np.exp(-np.abs(np.linspace(*ends, count)))
                return Tails(p_above, p_below * 1e-3 * sizes, q_above * 1e-3 * sizes, q_below, np.full(count, off))

            t, eta = tails(n + 2), 3e-13
            found = np.asarray(
                jax.jit(nodes.nodes_above)(jnp.asarray(losses), Tails(*map(jnp.asarray, t)), jnp.asarray(eta))
            )
            here, units = slice(1, -1), 2.0**-50 * (1 + np.abs(losses))
            high, low = t.p_above[here] - gamma * t.q_above[here], gamma * t.q_below[here] - t.p_below[here]
            size = np.where(
                losses >= 0, t.p_above[here] + gamma * t.q_above[here], gamma * t.q_below[here] + t.p_below[here]
            )
            missed = np.where(losses >= 0, t.p_above[:-2], gamma * t.q_below[2:]) * np.expm1(eta + units)
            allowed(found - np.where(losses >= 0, high, low), 2 * (off + units) * size + missed, 0.85, 1.15)
            t = tails(n)
            found = np.asarray(jax.jit(nodes.points_below)(jnp.asarray(losses), Tails(*map(jnp.asarray, t))))
            high, low = t.p_above - gamma * t.q_above, gamma * t.q_below - t.p_below
            size = np.where(losses >= 0, t.p_above + gamma * t.q_above, gamma * t.q_below + t.p_below)
            allowed(np.where(losses >= 0, high, low) - found, 2 * (off + units) * size, 0.85, 1.15)
            t = tails(n - 1)
            found = np.asarray(
                jax.jit(nodes.nodes_below)(jnp.asarray(losses), Tails(*map(jnp.asarray, t)), jnp.ones(()), jnp.ones(()))
            )
            right = losses[:-1] >= 0
            at_ends, rooms = [], []
            for end in (losses[:-1], losses[1:]):
                g, slack = np.exp(Long(end)), 2 * (off + 2.0**-50 * (1 + np.abs(end)))
                at_ends.append(np.where(right, t.p_above - g * t.q_above, g * t.q_below - t.p_below))
                rooms.append(slack * np.where(right, t.p_above + g * t.q_above, g * t.q_below + t.p_below))
            used = (at_ends[0] > 0) & (at_ends[1] > 0)
            assert used.sum() >= 5
            ends = [np.where(used, x, 0) for x in at_ends]
            chosen = np.where(ends[1][:-1] < ends[0][1:], ends[1][:-1], ends[0][1:])
            room = np.where(ends[1][:-1] < ends[0][1:], rooms[1][:-1], rooms[0][1:])
            seen = chosen > 0
            allowed((chosen - found[1:-1])[seen], room[seen], 0.85, 1.15)
            assert np.all(found[1:-1][~seen] == 0)


def test_one_run_is_charged_the_rounding_of_its_exponential():
    """A single outcome of loss 1e-9 beyond epsilon, or 5: what is left of P's mass is a difference."""
    for beyond in (1e-3, 5.0):
        for epsilon in (0.3, 20.0, 400.0, 660.0):
            loss = epsilon + beyond
            q = float(np.exp(-Long(loss)) * 0.5)
            pair = TablePair(Row(np.array([-1.0, loss])), Row(np.array([0.5, 0.5])), Row(np.array([0.9, q])),
                             np.float64(0.0), np.float64(0.0))  # fmt: skip
            lower, upper = (float(x) for x in jax.jit(single._from_tails)(pair, jnp.asarray(epsilon)))
            scaled = np.exp(Long(epsilon) + np.log(Long(q)))
            truth, error = 0.5 - scaled, UNIT / 2 * 6  # of two outcomes
            slack = 2 * (error + 2.0**-50 * (1 + epsilon - np.log(q))) * (0.5 + scaled)
            moved = 2 * np.expm1(2.0**-50 * epsilon) * 0.5
            allowed(truth - lower, slack, 0.8, 1.2)
            allowed(upper - truth, slack + moved, 0.8, 1.2)


def test_the_largest_loss_of_laplace_noise_is_rounded_up():
    """At an order of 1e18 the divergence is the ratio itself, but for 1e-18."""
    rng = np.random.default_rng(10)
    scale, shift = rng.uniform(0.5, 2.0, (2, 300))
    found = np.asarray(closed._laplace(scale, shift, 1e18))
    units = np.asarray((found / (Long(shift) / scale) - 1) / UNIT, float)
    assert units.min() >= 2
    assert units.max() <= 6


def test_parameters_that_are_none_give_no_guarantee():
    """Of every one-parameter family: 0 is perfect privacy; what is negative, infinite or no number is none."""
    bad = [-1.0, np.nan, np.inf]
    delta = jax.jit(lambda p, e: delta_of(p, e, lambda p, e: -p - e))
    rows = [(p, e, 1.0) for p in bad for e in (0.0, 1.0, np.inf)]
    rows += [(p, e, 1.0) for p in (0.0, 2.0) for e in (-1.0, np.nan)]
    rows += [(0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, np.inf, 0.0), (2.0, np.inf, 0.0)]
    rows += [(1.0, 0.0, np.exp(-1)), (1.0, 1.0, np.exp(-2)), (2.0, 1e3, np.finfo(float).tiny)]
    p, e, truth = np.array(rows).T
    np.testing.assert_allclose(delta(p, e), truth, rtol=1e-14)
    assert np.all(np.asarray(delta(p, e))[-3:-1] >= np.exp(-Long([1.0, 2.0])))
    epsilon = jax.jit(lambda p, d: epsilon_of(p, d, lambda p, log: p - log))
    rows = [(p, d, np.inf) for p in bad[:2] for d in (0.0, 0.5, 1.0, np.nan)] + [(np.inf, 0.5, np.inf)]
    rows += [(2.0, d, np.inf) for d in (0.0, -0.5, np.nan)] + [(0.0, d, np.inf) for d in (-0.5, np.nan)]
    rows += [(0.0, 0.0, 0.0), (0.0, 0.5, 0.0), (0.0, 1.0, 0.0), (2.0, 1.0, 0.0), (0.5, 1.5, 0.0)]
    rows += [(1.0, 0.5, 1 - np.log(0.5)), (1.0, 1 - 2.0**-53, 1.0)]
    p, d, truth = np.array(rows).T
    np.testing.assert_allclose(epsilon(p, d), truth, rtol=1e-14)
