"""The trapezoid rules behind Rényi curves: their values in high precision, and every error that they are charged."""

import functools
import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxacct.mechanisms.renyi import gaussian, mixture

pytestmark = pytest.mark.usefixtures("in_float64")

EPS = 2.0**-52


def floats(values):
    return [mp.mpf(float(x)) for x in np.ravel(values)]


def integral(density, low, high, step):
    """A trapezoid rule in high precision; it errs by e^(-2 pi d / step), d its height of analyticity."""
    count = math.ceil((high - low) / step)
    return mp.fsum(density(low + mp.mpf(step) * k) for k in range(count + 1)) * mp.mpf(step)


_rule = jax.jit(gaussian._trapezoid, static_argnums=3)

RULES = [(1.0, 0.1, 200.0, 1024), (1.0, 0.3, -120.0, 4096), (1.5, 0.9, 1.02, 1024)]
MORE = [(0.3, 1e-9, 300.0, 1024), (2.0, 0.5, 30.0, 1024), (0.01, 0.9, 2.0, 1024)]
MORE += [(0.3, 1e-6, -200.0, 4096), (2.0, 0.5, -2.0, 4096)]


@pytest.mark.parametrize(
    ("mu", "rate", "b", "nodes"), [*RULES, *(pytest.param(*row, marks=pytest.mark.slow) for row in MORE)]
)
def test_a_trapezoid_rule_is_rounded_up_by_the_size_of_its_exponents(mu, rate, b, nodes):
    """1e-12 and 8 units of the largest t^2: far out, more than what the value itself is off by."""
    value, certified = _rule(*(jnp.asarray([x]) for x in (mu, rate, b)), nodes)
    assert certified[0]
    reach = math.sqrt(144 + 2 * abs(b))
    low, high = min(b, 0.0) * mu - reach, max(b, 2.0) * mu + reach
    margin = 1e-12 + 8 * EPS * max(low**2, high**2)
    with mp.workdps(80):
        q, m, power = mp.mpf(rate), mp.mpf(mu), mp.mpf(b)
        if b == int(b) and b > 0:
            terms = [mp.binomial(int(b), k) * (1 - q) ** (int(b) - k) * q**k for k in range(2, int(b) + 1)]
            truth = mp.fsum(t * mp.expm1(k * (k - 1) * m * m / 2) for k, t in enumerate(terms, 2))
        else:

            def density(t):
                w = q * mp.expm1(m * t - m * m / 2)
                return mp.npdf(t) * ((1 + w) ** power - 1 - power * w)

            truth = integral(density, low, high, 0.15 / mu)
        excess = float(mp.mpf(float(value[0])) - mp.log(truth))
    assert 0.7 * margin <= excess <= 1.3 * margin


def test_a_sampled_gaussian_is_no_worse_than_its_convex_bound():
    """log(1 - q + q e^c) / (a - 1), c = a (a - 1) mu^2 / 2, where the rule is not certified: at every size of c."""
    mu, order = np.array([0.9e-6, 20.0, 200.0, 1e4, 200.0, 30.0]), np.array([1.5, 1.25, 1.25, 1.25, 1.25, 1.5])
    rates = np.array([0.3, 0.3, 0.3, 0.3, 1e-250, 1.0 - 2.0**-40])
    found = gaussian._sampled(mu, rates, order, np.zeros(1), "remove", False, False)
    with mp.workdps(400):
        for value, m, q, a in zip(*map(floats, (found, mu, rates, order)), strict=True):
            c = a * (a - 1) * m * m / 2
            truth = mp.log1p(q * mp.expm1(c)) / (a - 1)
            assert 0 < value / truth - 1 < (3e-14 if q > 1e-200 else 1)
            assert value / truth - 1 > 0.8e-14


@functools.cache
def _divergence(nodes):
    """The mixture's bound with another number of nodes."""

    def run(*args):
        before, mixture._NODES = mixture._NODES, nodes
        try:
            return mixture._divergence(*args)
        finally:
            mixture._NODES = before

    return jax.jit(run)


def divergence(noise, shifts, weights, order, reverse, nodes):
    return float(_divergence(nodes)(*(jnp.asarray(x) for x in (noise, shifts, weights, order, reverse))))


def excess_of_mixture(noise, shifts, weights, order, reverse):
    with mp.workdps(30):
        b = 1 - mp.mpf(order) if reverse else mp.mpf(order)
        s = [mp.mpf(x) / noise for x in shifts]

        def density(x):
            w = mp.fsum(mp.mpf(v) * mp.expm1(x * y - y**2 / 2) for y, v in zip(s, weights, strict=True))
            return mp.npdf(x) * ((1 + w) ** b - 1 - b * w)

        low, high = min(float(b), 0) * max(shifts) / noise - 13, max(float(b), 2) * max(shifts) / noise + 13
        return float(integral(density, low, high, 0.12 * noise / max(shifts)))


@pytest.mark.parametrize(
    ("noise", "shifts", "weights", "order", "reverse", "nodes"),
    [
        pytest.param(1.0, [0.0, 0.5, 1.0], [0.5, 0.25, 0.25], 1.3, False, 64, marks=pytest.mark.slow),
        (0.7, [0.0, 1.0, 1.0], [0.9, 0.05, 0.05], 2.0, False, 64),
        pytest.param(1.0, [0.0, 1.0, 0.3], [0.5, 0.25, 0.25], 2.5, True, 64, marks=pytest.mark.slow),
        (0.7, [0.2, 1.0, 1.0], [0.7, 0.3, 0.0], 4.0, True, 64),
    ],
)
def test_a_mixture_is_charged_its_aliasing_whatever_the_number_of_nodes(noise, shifts, weights, order, reverse, nodes):
    """e 2 e^(d^2 / 2) (2^max(-b, 0) A + 1 + 2 |b|) / (e^(2 pi d / h) - 1) for lines of height d."""
    truth = excess_of_mixture(noise, shifts, weights, order, reverse)
    weights = np.maximum(weights, 1e-300)
    b, s, w = 1 - order if reverse else order, np.array(shifts) / noise, np.array(weights)
    reach = math.sqrt(2 * (80 + abs(b) * math.log(len(s) + 1)))
    high, low = max(b, 2.0) * s.max() + reach, -reach
    if reverse:
        each = b * np.log(w) + b * (b - 1) / 2 * s**2
        low = (b * s - np.sqrt(2 * (80 + np.maximum(each, 0)))).max()
    value = divergence(noise, shifts, weights, order, reverse, nodes)
    assert value >= math.log1p(truth) / (order - 1)
    step = (high - low) / (nodes - 1)
    height = min(math.pi / (3 * s.max()), 2 * math.pi / step)
    lines = math.exp(height**2 / 2) * (2 ** max(-b, 0) * (1 + truth) + 1 + 2 * abs(b))
    charge = 2 * math.e * lines / math.expm1(2 * math.pi * height / step)
    assert 1e-5 * truth < charge < 0.03 * truth
    assert math.expm1(value * (order - 1)) - truth == pytest.approx(charge, rel=0.08)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rate", [0.03125, pytest.param(0.25, marks=pytest.mark.slow)])
def test_next_to_order_1_a_curve_is_rounded_up_by_what_its_difference_lost(rate, reverse):
    """There (1 + w)^b and 1 + b w agree in nearly all digits."""
    with mp.workdps(50):
        for near in 2.0 ** -np.array([4.0, 12.0, 20.0, 28.0, 36.0]):
            b = -near if reverse else 1.0 + near
            value, certified = _rule(*(jnp.asarray([x]) for x in (1.0, rate, b)), 4096 if reverse else 1024)
            assert certified[0]
            mixed = math.expm1(near * divergence(1.0, [0.0, 1.0], [1 - rate, rate], 1.0 + near, reverse, 1024))
            power = mp.mpf(float(b))
            w = lambda x: rate * mp.expm1(x - mp.mpf(0.5))  # noqa: E731
            truth = integral(lambda x: mp.npdf(x) * ((1 + w(x)) ** power - 1 - power * w(x)), -14, 17, 0.15)  # noqa: B023
            room = 4e-12 + 64 * EPS / near
            for found in (mp.exp(mp.mpf(float(value[0]))), mp.mpf(mixed)):
                assert -2 * EPS <= found / truth - 1 <= room
