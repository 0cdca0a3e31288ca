"""The hypotheses of docs/proofs/arithmetic.md about elementary functions, where the tests run."""

import itertools
import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy.special import erfcx

from jaxacct._numerics.arrays import erfc
from jaxacct._numerics.log1p import log1p
from jaxacct.filters.prices.kernels import ACCURACY, gaussian_excess

UNIT = 2.0**-53
UNITS = {"exp": 4, "expm1": 6, "log": 4, "log1p": 4, "sin": 2, "cos": 2, "arcsinh": 6, "arctan2": 4, "hypot": 4}
RNG = np.random.default_rng(53)
SIZE = 20_000


def signed(low, high):
    return np.exp(RNG.uniform(math.log(low), math.log(high), SIZE)) * RNG.choice([-1.0, 1.0], SIZE)


POINTS = {
    "exp": [signed(1e-10, 700)],
    "expm1": [signed(1e-12, 700)],
    "log": [np.concatenate([np.exp(RNG.uniform(-690, 690, SIZE)), 1 + signed(1e-12, 0.5)])],
    "log1p": [np.concatenate([RNG.uniform(-1, 2, SIZE), np.abs(signed(1e-15, 1e15)), signed(1e-15, 0.5)])],
    "sin": [signed(1e-8, 1e15)],
    "cos": [signed(1e-8, 1e15)],
    "arcsinh": [signed(1e-8, 1e8)],
    "arctan2": [signed(1e-8, 1e8), signed(1e-8, 1e8)],
    "hypot": [signed(1e-8, 1e8), signed(1e-8, 1e8)],
}


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no longer numbers to compare with")
@pytest.mark.parametrize("library", [np, jnp])
@pytest.mark.parametrize("name", UNITS)
def test_elementary_functions_keep_to_their_units(name, library):
    function = log1p if name == "log1p" else getattr(library, name)
    with jax.enable_x64(True):
        points = [library.asarray(x) for x in POINTS[name]]
        found = np.asarray(function(*points) if library is np else jax.jit(function)(*points))
    truth = getattr(np, name)(*(x.astype(np.longdouble) for x in POINTS[name]))
    off = np.abs((found - truth) / truth) / UNIT
    assert off[np.abs(truth) > 1e-300].max() <= UNITS[name]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no longer numbers to compare with")
def test_numpys_complex_functions_keep_to_their_units():
    turn = np.exp(1j * RNG.uniform(-3.1, 3.1, SIZE))
    x, y = np.abs(signed(1e-8, 600)) * turn, np.abs(signed(1e-8, 1e8)) * turn[::-1]
    wide, other = x.astype(np.clongdouble), y.astype(np.clongdouble)
    near, powers = np.abs(signed(1e-6, 2)) * turn, np.ones(SIZE, np.clongdouble)
    off = lambda found, truth, size: np.max(np.abs(found - truth) / size) / UNIT  # noqa: E731
    for value in (y, 1 + 0.5 * near, turn):
        truth = np.log(value.astype(np.clongdouble))
        assert off(np.log(value), truth, 1 + np.abs(truth)) <= 4
    assert off(np.exp(x), np.exp(wide), np.abs(np.exp(wide))) <= 7
    assert off(x / y, wide / other, np.abs(wide / other)) <= 8
    assert off(x**2, wide * wide, np.abs(wide) ** 2) <= 3
    for function in (np.sinh, np.cosh):
        up = RNG.uniform(0, 15, SIZE)
        truth = function(up.astype(np.longdouble))
        assert off(function(up), truth, truth) <= 4
    for count in range(1, 17):
        powers = powers * near.astype(np.clongdouble)
        assert off(near**count, powers, np.abs(powers)) <= 3 * count


@pytest.mark.parametrize("library", [np, jnp])
def test_tails_of_the_normal_law_keep_to_their_units(library):
    points = np.concatenate([RNG.uniform(0, 26, 400), np.abs(signed(1e-8, 1.0))[:100]])
    with jax.enable_x64(True):
        found = np.asarray(erfc(points) if library is np else jax.jit(erfc)(jnp.asarray(points)))
    for x, value in zip(points, found, strict=True):
        truth = mp.erfc(mp.mpf(float(x)))
        assert abs(mp.mpf(float(value)) / truth - 1) <= (8 + 2 * x * x) * UNIT


def test_pythons_lgamma_keeps_to_its_units():
    for n in range(50, 482):
        assert abs(mp.mpf(math.lgamma(n)) / mp.loggamma(n) - 1) <= 4 * UNIT


def test_scipys_erfcx_keeps_to_its_units():
    # It is a polynomial of degree 6 on each of a hundred intervals between 0 and 50: at the ends, and between them.
    inner = 400 / (np.arange(8, 100)[:, None] + [1e-9, 0.13, 0.5, 0.87, 1 - 1e-9]) - 4
    points = np.concatenate(
        [inner.ravel(), RNG.uniform(-26, 0, 200), np.exp(RNG.uniform(-20, 20, 300)), -(signed(1e-9, 1)[:99] ** 2)]
    )
    with mp.workdps(30):
        for x, value in zip(points, erfcx(points), strict=True):
            truth = mp.exp(mp.mpf(float(x)) ** 2) * mp.erfc(mp.mpf(float(x))) if x < 200 else far(mp.mpf(float(x)))
            assert abs(mp.mpf(float(value)) / truth - 1) <= (16 + 4 * min(x, 0) ** 2) * UNIT


def far(x):
    """erfcx at large x, by its asymptotic series."""
    return (1 - 1 / (2 * x**2) + 3 / (4 * x**4) - 15 / (8 * x**6)) / (x * mp.sqrt(mp.pi))


def test_the_excess_of_a_gaussian_is_as_good_as_prices_count_on():
    for mu in np.exp(RNG.uniform(-7, 2.5, 200)):
        losses = mu * RNG.uniform(0, 9 + mu / 2, 4)
        for loss, value in zip(losses, gaussian_excess(mu, losses), strict=True):
            with mp.workdps(60):
                m, x = mp.mpf(float(mu)), mp.mpf(float(loss))
                truth = mp.exp(-x / 2) * mp.ncdf(m / 2 - x / m) - mp.exp(x / 2) * mp.ncdf(-m / 2 - x / m)
                assert abs(mp.mpf(float(value)) / truth - 1) <= 8 * ACCURACY / min(mu, 1.0)


def test_what_a_difference_of_two_mills_ratios_costs():
    """docs/proofs/gdp-curve.md, lemma 3: both functions fall, so the ends of an interval bound the quotient on it."""
    with mp.workdps(40):
        mills = lambda v: mp.erfc(v / mp.sqrt(2)) * mp.sqrt(mp.pi / 2) * mp.exp(v * v / 2)  # noqa: E731
        slope = lambda v: 1 - v * mills(v)  # noqa: E731
        places = [mp.mpf(i) / 100 - mp.mpf(1) / 2 for i in range(951)]
        largest = max(mills(a) / slope(b + 1) for a, b in itertools.pairwise(places))
    assert largest < 11.32
