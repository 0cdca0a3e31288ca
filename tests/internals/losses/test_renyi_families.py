"""Rényi curves of every family: sound and tight against high precision, and against what a PLD says."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxacct import (
    Exponential,
    Laplace,
    PoissonSampled,
)
from jaxacct._numerics.rows import Row
from jaxacct.mechanisms import laplace
from jaxacct.mechanisms.pairs.table import TablePair
from jaxacct.mechanisms.renyi import closed
from jaxacct.mechanisms.renyi.from_pair import doubled as _doubled
from jaxacct.mechanisms.renyi.from_pair import from_pair as _from_pair
from jaxacct.mechanisms.renyi.from_pair import sampled_moment as _convex
from jaxacct.mechanisms.renyi.mixture import _curve
from jaxacct.mechanisms.renyi.tails import log_excess


def test_closed_curves_know_nothing_where_nothing_makes_sense():
    epsilon, orders = (
        np.array([[-1.0], [math.nan], [0.0], [math.inf], [0.7]]),
        np.array([0.5, 1.0, math.inf, math.nan, 4.0]),
    )
    with jax.enable_x64(True):
        for found in (
            closed.pure_divergence(np.where(epsilon == 0, np.nan, epsilon), orders),  # at 0 it is 0
            jax.tree.map(lambda _: epsilon, Exponential(1.0))._renyi(orders, "remove"),
            laplace._divergence(1.0, epsilon, orders),
            laplace._divergence(epsilon, 0.3, orders),
        ):
            sensible = np.isfinite(found)
            assert sensible.sum() == 1
            assert 0 < found[-1, -1] < 0.7


def test_the_bound_by_convexity_is_its_formula_at_every_size():
    moments, rates, order = [1e-5, 1.0, 29.0, 31.0, 200.0, 1e3], [0.0, 1e-30, 1e-6, 0.5, 1.0], 3.0
    with jax.enable_x64(True), mp.workdps(40):
        for c in moments:
            found = _convex(lambda a, c=c: jnp.full(5, c) / (a - 1), np.array(rates), jnp.asarray(order))
            for value, rate in zip(np.asarray(found), rates, strict=True):
                truth = mp.log1p(mp.mpf(rate) * mp.expm1(mp.mpf(c)))
                assert truth <= float(value) <= truth * (1 + mp.mpf(3e-12))


def test_twice_an_excess_is_its_formula_at_every_size():
    logs = np.array([1e-300, 1e-12, 0.3, 0.999, 1.001, 30.0, 700.0])
    with jax.enable_x64(True), mp.workdps(330):
        for value, c in zip(np.asarray(_doubled(jnp.asarray(logs))), logs, strict=True):
            exact = mp.log1p(2 * mp.expm1(mp.mpf(float(c))))
            truth = exact if c < 1 else mp.mpf(float(c)) + mp.log(2)
            assert exact <= value
            assert 8e-13 <= value / truth - 1 <= 1.2e-12


def test_a_moment_of_the_order_itself_counts_where_it_is_less():
    pair = jax.tree.map(lambda x: jnp.asarray(x)[None], PoissonSampled(Laplace(1.0), 0.1)._dominating("remove")[0][0])
    with jax.enable_x64(True):
        ask = lambda small: np.asarray(_from_pair(pair, np.array([3.0]), lambda a: jnp.where(a == 3.0, small, 90.0)))  # noqa: E731
        by_tails = float(ask(80.0)[0])
        assert by_tails == pytest.approx(0.013126405, rel=1e-6)
        np.testing.assert_allclose(ask(by_tails), by_tails / 2, rtol=1e-12)
        np.testing.assert_array_equal(ask(math.nan), by_tails)


def test_weights_are_those_of_a_law():
    """They may add up to 1 but for a billionth, and are divided by what they add up to."""
    with jax.enable_x64(True):
        noise, orders, reverse = np.ones(3), np.full(3, 2.5), np.zeros(3, bool)
        weights = np.array([0.25, 0.75]) * np.array([[1.0], [1 - 9e-9], [1 + 9e-9]])
        found = np.asarray(_curve(noise, np.tile([0.0, 1.0], (3, 1)), weights, orders, reverse))
    np.testing.assert_allclose(found, found[0], rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("order", [1.5, 64.0])
def test_the_divergence_of_atoms_keeps_its_margin_at_large_losses(order):
    """P has all but nothing at one loss of hundreds: log sum q f(e^loss), of which a e^loss is nearly all."""
    largest = np.linspace(100.3, 599.7, 40)
    losses = np.stack([np.full(40, -0.1), largest], 1)
    q = np.stack([np.ones(40), np.exp(-largest) / 2], 1)
    ones = np.ones(40)
    with jax.enable_x64(True), mp.workdps(400):
        pairs = TablePair(Row(losses), Row(q * np.exp(losses)), Row(q), ones * 2.0**-49, ones * 0.0)
        found = np.asarray(log_excess(pairs, order * ones, ones[:, None], np.full((40, 1), np.inf)))
        for value, row, masses in zip(found, losses, q, strict=True):
            terms = [(mp.mpf(float(loss)), mp.mpf(float(mass))) for loss, mass in zip(row, masses, strict=True)]
            truth = mp.log(mp.fsum(m * (mp.exp(order * x) - 1 - order * mp.expm1(x)) for x, m in terms))
            assert 0 <= float(value) - truth <= 1e-11 + 40 * 2.0**-53 * order * float(row[1])


def test_at_huge_orders_a_range_costs_all_of_it_however_small_it_is():
    # An order of 1e200 times a range of 1e-160 is far up the curve, though the square of the range is no float.
    for epsilon, order in ((1e-160, 1e200), (1e-160, 1e300), (1e-20, 1e150), (1.0, 1e300), (700.0, 1e300)):
        with jax.enable_x64(True):
            value = float(Exponential(epsilon)._renyi(order, "remove"))
        assert epsilon * (1 - 1e-12) <= value <= epsilon
