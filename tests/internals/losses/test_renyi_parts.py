"""The pieces of Rényi curves against high precision, and their room for rounding where it can be seen.

Margins are some 1e-12 of what comes out at common parameters; at uncommon ones each of them is the largest.
"""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxacct._numerics.rows import Row
from jaxacct.losses.renyi import conversion
from jaxacct.mechanisms import Exponential, discrete_laplace, laplace, selection
from jaxacct.mechanisms.pairs.table import TablePair
from jaxacct.mechanisms.renyi import closed, tails

EPS = 2.0**-52


@pytest.fixture(autouse=True)
def _in_float64():
    with jax.enable_x64(True), mp.workdps(60):
        yield


def floats(values):
    return [mp.mpf(float(x)) for x in np.ravel(values)]


def near(found, truth, units):
    """Each within so many units of what it is, or of 1 where it is less."""
    for value, exact in zip(floats(found), truth, strict=True):
        assert abs(value - exact) <= units * EPS * max(1, abs(exact)), (value, exact)


def log_rest(x):
    with mp.workdps(500):
        return mp.log(mp.expm1(x) - x)


LOSSES = np.array([1e-149, 1e-90, 1e-8, 3e-3, 0.3, 0.6, 0.99, 1.0, 1.001, 2.0, 7.0, 29.0, 30.0, 31.0, 45.0, 700.0, 1e5])


def test_the_rest_of_an_exponential_after_two_terms():
    both = np.concatenate([LOSSES, -LOSSES])
    near(jax.jit(closed.log_rest)(both), [log_rest(x) for x in floats(both)], 4)
    near(closed.log_rest(jnp.zeros(1)), [log_rest(mp.mpf(1e-150))], 4)


def test_an_excess_is_rounded_up_by_what_its_exponents_lost():
    """By 1e-12 and 2^-49 of the largest exponent in the logarithm, and by 1e-12 once more."""
    log_excess = np.array([-3.0, 0.0, 2.0, -3.0, 0.0, 700.0])
    order, size = np.array([3.0, 1.5, 40.0, 3.0, 1.5, 4.0]), np.array([1e12, 1e13, 3e12, 0.0, 0.0, 0.0])
    found = jax.jit(closed.from_excess)(log_excess, order, size)
    for value, x, a, room in zip(*map(floats, (found, log_excess, order, size)), strict=True):
        margin = mp.mpf(1e-12) + mp.mpf(2) ** -49 * room
        truth = mp.log1p(mp.exp(x + margin)) / (a - 1) * (1 + mp.mpf(1e-12))
        assert abs(value / truth - 1) < 2e-15


def test_the_mean_of_an_exponential():
    x = np.array([1e-300, 1e-17, 1e-9, 1e-3, 0.03, 0.08, 0.0999, 0.1, 0.11, 0.7, 5.0, 40.0, 800.0])
    near(jax.jit(selection._log_mean)(x), [mp.log(-mp.expm1(-y) / y) for y in floats(x)], 8)


def test_the_rest_of_a_power():
    losses, orders = (x.ravel() for x in np.meshgrid(np.concatenate([LOSSES[1:14], -LOSSES[1:14]]), [1.25, 2.0, 40.0]))
    found = jax.jit(selection._log_power_rest)(losses, orders)
    for value, x, a in zip(*map(floats, (found, losses, orders)), strict=True):
        with mp.workdps(400):
            whole, part = mp.expm1(a * x) - a * x, a * (mp.expm1(x) - x)
            truth, cancelled = mp.log(whole - part), whole / (whole - part)
        assert abs(value - truth) <= EPS * (4 * abs(truth) + 4 * cancelled * max(1, abs(mp.log(whole))))


def test_a_laplace_epsilon_is_rounded_up():
    # At a huge order it is all there is.
    scale = np.array([3.0, 0.7, 11.0])
    found = laplace._divergence(scale, 1.0, 1e300)
    for value, x in zip(floats(found), floats(scale), strict=True):
        assert mp.mpf(2) ** -51 <= value * x - 1 <= mp.mpf(2) ** -49


def test_a_range_is_charged_for_a_shift_that_is_a_little_off():
    """The margin of the logarithm: 16 (d / eps)^2 + (a d)^2 + 1e-12 / (a - 1), d = 2^-49 (1 + eps)."""
    d = mp.mpf(2) ** -49
    for eps, a in ((1e-12, 3e12), (1e-12, 1e12), (2e-12, 6e12), (3.0, 1 + 2.0**-33), (0.5, 1 + 2.0**-31)):
        value = mp.mpf(float(Exponential(eps)._renyi(a, "remove")))
        e, order = mp.mpf(eps), mp.mpf(a)
        big = (order - 1) / order * mp.exp(e) * -mp.expm1(-order * e) / -mp.expm1(-(order - 1) * e)
        t = mp.log(big)
        high, low = -mp.expm1(t - e) / -mp.expm1(-e) / big, -mp.expm1(-t) / -mp.expm1(-e)
        rest = lambda x, order=order: mp.expm1(order * x) - order * mp.expm1(x)  # noqa: E731
        truth = high * rest(t) + low * rest(t - e)
        off = d * (1 + e)
        margin = 16 * (off / e) ** 2 + (order * off) ** 2 + mp.mpf(1e-12) / (order - 1)
        margin += mp.mpf(1e-12) + d * order * e
        # The numbers themselves may be off by a share of that.
        assert 0.8 * margin <= mp.log(mp.expm1(value * (order - 1)) / truth) <= 1.2 * margin


def test_a_range_of_any_size_costs_an_eighth_of_its_square_at_most():
    eps, orders = np.array([1e-9, 1e-4, 1e-2]), np.array([1.0 + 1e-6, 2.0, 50.0])
    found = np.asarray(selection._divergence(eps[:, None], orders))
    for row, e in zip(found, floats(eps), strict=True):
        for value, a in zip(floats(row), floats(orders), strict=True):
            assert value <= a * e**2 / 8 * (1 + mp.mpf(1.01e-12))
            # log(1 + excess) / (a - 1) of the series of the formula: a eps^2 / 8 (1 - O((a eps)^2)).
            assert value >= a * e**2 / 8 * (1 - (a * e) ** 2)


@pytest.mark.parametrize(
    "curve", [closed.pure_divergence, selection._divergence, lambda e, a: laplace._divergence(1.0, e, a)]
)
def test_a_divergence_that_is_no_float_is_no_0(curve):
    np.testing.assert_array_equal(curve(np.array([1e-170, 1e-250]), 2.0), 1e-300)
    assert 1e-298 / 16 < curve(1e-149, 2.0) < 1e-297


def conversion_terms(order, delta):
    a, d = mp.mpf(order), mp.mpf(delta)
    shift = mp.log(1 - 1 / a) - mp.log(d * a) / (a - 1)
    return shift, abs(mp.log(1 - 1 / a)) + (abs(mp.log(d)) + mp.log(a)) / (a - 1)


CONVERSIONS = [(1.0 + 2.0**-20, 0.3), (1.5, 1e-300), (3.0, 0.99), (1e6, 1e-9), (2.5, 0.4)]


def test_the_shift_of_a_conversion_knows_its_rounding():
    orders, deltas = np.array(CONVERSIONS).T
    shifts, roundings = jax.jit(conversion._conversion)(orders, deltas)
    for value, rounding, row in zip(floats(shifts), floats(roundings), CONVERSIONS, strict=True):
        truth, size = conversion_terms(*row)
        assert abs(value - truth) <= 8 * EPS * size
        assert abs(rounding / (16 * EPS * size) - 1) < 1e-9


@pytest.mark.parametrize("rho", [1e-9, 0.7, 1e8])
def test_conversions_are_rounded_by_what_they_say(rho):
    orders, deltas = np.array(CONVERSIONS).T
    epsilon = conversion.epsilon_of_divergence(rho, orders, deltas)
    back = conversion._renyi_from_epsilon(rho, deltas, orders)
    for value, least, row in zip(floats(epsilon), floats(back), CONVERSIONS, strict=True):
        shift, size = conversion_terms(*row)
        unit = EPS * (size + rho)
        if value > 0:  # else total variation is below delta
            wanted = 16 * EPS * size + 4 * EPS * rho
            assert wanted - 3 * unit <= value - (rho + shift) <= wanted + 3 * unit
        margin = (rho - shift) - least
        wanted = 32 * EPS * size + 16 * EPS * (rho + abs(shift))
        assert wanted - 4 * unit <= margin <= wanted + 4 * unit


def test_a_delta_is_rounded_by_the_size_of_its_exponent():
    rows = [(3e5, 1e5, 3e5), (3e5, 1e5, 3e5 + 1e-3), (0.5, 3.0, 300.0), (1e3, 1e6, 1e3), (1e-3, 60.0, 0.5)]
    rho, orders, epsilon = np.array(rows).T
    found = conversion.delta_of_divergence(rho, orders, epsilon)
    for value, (r, a, e) in zip(floats(found), rows, strict=True):
        r, a, e = mp.mpf(r), mp.mpf(a), mp.mpf(e)
        exact = (a - 1) * (r - e + mp.log(1 - 1 / a)) - mp.log(a)
        size = (a - 1) * (r + e - mp.log(1 - 1 / a)) + mp.log(a)
        margin = mp.log(value) - exact
        assert (16 * size + 4) * EPS <= margin + 3 * EPS * size
        assert margin <= (19 * size + 12) * EPS


def test_total_variation_bounds_a_delta_up_to_its_rounding():
    rho = np.array([1e-12, 1e-3, 0.4])
    found = conversion.delta_of_divergence(rho, 1.0 + 2.0**-40, 0.0)
    for value, r in zip(floats(found), floats(rho), strict=True):
        assert 4 * EPS <= value / mp.sqrt(-mp.expm1(-r)) - 1 <= 10 * EPS
    # And an epsilon is 0 from there on, no sooner.
    for r in (1e-12, 1e-3, 0.4):
        exact = float(mp.sqrt(-mp.expm1(-mp.mpf(r))))
        deltas = exact * (1.0 + EPS * np.array([-20.0, 0.0, 2.0, 8.0, 16.0]))
        found = np.asarray(conversion.epsilon_of_divergence(r, 1.0 + 2.0**-40, deltas))
        np.testing.assert_array_equal(found == 0.0, [False, False, False, True, True])


def test_a_discrete_laplace_is_rounded_up_by_its_exponents():
    """Near order 1 what the sum lost is divided by next to nothing."""
    for c, gap, below in ((1e-3, 5, 2.0**-36), (0.7, 14, 2.0**-36), (1e-3, 10_000, 2.0**-34), (20.0, 1, 2.0**-34)):
        a = 1 + mp.mpf(below)
        scale = 1.0 / c
        rate = 1 / mp.mpf(scale)
        value = mp.mpf(
            float(discrete_laplace._divergence(jnp.float64(scale), jnp.float64(gap), jnp.float64(1 + below)))
        )
        t = mp.exp(-rate)
        total = (t ** (a * gap) + t ** ((1 - a) * gap)) / (1 - t)
        ratio = t ** (1 - 2 * a)
        total += t ** (a * gap) * ratio * (ratio ** (gap - 1) - 1) / (ratio - 1)
        truth = mp.log(total * (1 - t) / (1 + t))
        room = mp.mpf(2) ** -48 * (a * gap * rate + abs(mp.log(-mp.expm1(-rate))) + 4)
        lost = value * (a - 1) / (1 + mp.mpf(1e-12)) - truth
        assert 0.75 * room <= lost <= 1.25 * room


def test_without_categories_a_bit_is_answered():
    eps, orders = np.array([1e-3, 0.7, 5.0]), np.array([1.5, 3.0, 40.0])
    for value, e, a in zip(*map(floats, (closed.pure_divergence(eps, orders), eps, orders)), strict=True):
        truth = mp.log((mp.exp(a * e) + mp.exp((1 - a) * e)) / (1 + mp.exp(e))) / (a - 1)
        assert 0 <= value / truth - 1 < 3e-12


def test_a_table_is_rounded_up_by_its_exponents_and_its_errors():
    """1e-12 + error + 2^-48 a |l| in the logarithm, seen where e^(a l) and a mass of e^-(a l) make about 1."""
    q, a = np.array([0.5, 0.25, 0.25, 1e-260]), 1.2
    for error in (0.0, 3e-12):
        for top in (495.0, 500.0):
            losses = np.array([-0.5, 0.0, 0.25, top])
            rows = (Row(losses[None]), Row((q * np.exp(losses))[None]), Row(q[None]))
            pair = TablePair(*rows, np.array([error]), np.array([0.0]))
            value = mp.mpf(float(tails._of_table(pair, np.array([a]))[0])) / (1 + mp.mpf(1e-12)) * (mp.mpf(a) - 1)
            power = mp.mpf(a)
            moved = [x * (1 + mp.mpf(2) ** -50) for x in floats(losses)]
            f = [m * (mp.expm1(power * x) - power * mp.expm1(x)) for m, x in zip(floats(q), moved, strict=True)]
            margin = mp.log(mp.expm1(value) / mp.fsum(f)) - error
            assert 0.75 <= margin / (1e-12 + 2.0**-48 * a * top) <= 1.25
