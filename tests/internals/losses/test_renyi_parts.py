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
from jaxacct.mechanisms import discrete_laplace
from jaxacct.mechanisms.pairs.table import TablePair
from jaxacct.mechanisms.renyi import tails

EPS = 2.0**-52


@pytest.fixture(autouse=True)
def _in_float64():
    with jax.enable_x64(True), mp.workdps(60):
        yield


def floats(values):
    return [mp.mpf(float(x)) for x in np.ravel(values)]


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
