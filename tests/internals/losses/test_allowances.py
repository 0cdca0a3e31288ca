"""What formulas add for their rounding is what they say, no less and no more, wherever one term of it is all there is.

The truth has 64 bits (NumPy's long double) or more, so what lies between it and a bound is the allowance, but for the
rounding that it is for. Arguments go to both ends of what makes sense: next to order 1, a millionth of a nat, losses
of a million."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct.losses.compare.gaussian_order import gaussian_trade_off
from jaxacct.losses.renyi.zcdp import _log_conversion, _log_delta
from jaxacct.mechanisms.pairs.gaussian_curve import log_delta_bounds
from tests.allowances import UNIT, Long, allowed, needs_long_double, spread

pytestmark = [needs_long_double, pytest.mark.usefixtures("in_float64")]


def bisected(low, high, is_low):
    for _ in range(110):
        middle = np.sqrt(low) * np.sqrt(high)
        below = is_low(middle)
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return low


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
    compiled = np.asarray(jax.jit(log_delta_bounds)(*map(jnp.asarray, (mu, epsilon))))
    found = np.concatenate([compiled, log_delta_bounds(mu, epsilon)], 1)
    with mpmath.workdps(60):
        asked = (map(mpmath.mpf, map(float, np.tile(x, 2))) for x in (mu, epsilon))
        for low, high, m, e in zip(*found, *asked, strict=True):
            a, b = e / m - m / 2, e / m + m / 2
            truth = mpmath.log(tail(a) - mpmath.exp(e + mpmath.log(tail(b))))
            room = UNIT / 2 * (768 + 8 * abs(truth) + 16 * (abs(a) + 1) * b)
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
