"""Skellam noise against modified Bessel functions in many digits, and in every place that takes a mechanism."""

from __future__ import annotations

import math
from typing import Any

import jax
import mpmath as mp
import numpy as np
import pytest

from jaxacct import ApproximateDP, Skellam, filters
from jaxacct._numerics.rows import flattened
from jaxacct.ledger import canonical
from jaxacct.mechanisms.directions import directions
from tests.mechanisms.test_skellam import masses

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of:RuntimeWarning")


def pair_of(mechanism, relation="remove"):
    return jax.tree.map(lambda x: x[0], flattened(directions(mechanism, relation)[0][0][0], (), np))


@pytest.mark.parametrize(("mu", "gap"), [(1e-3, 1), (0.3, 2), (8.0, 3), (300.0, 1), (2000.0, 40)])
def test_tails_are_sums_of_bessel_functions(mu, gap):
    pair, reach = pair_of(Skellam(mu, gap)), int(60 + 24 * math.sqrt(mu)) + gap
    p = masses(mu, reach)
    at = lambda x: p[abs(x) + reach]  # noqa: E731
    with mp.workdps(60):
        whole = [gap // 2, gap, gap + 1, -1, gap + 1 + int(3 * math.sqrt(mu)), -int(4 * math.sqrt(mu)) - 2]
        outcomes = sorted(set(whole))
        between = [(mp.log(at(x - gap) / at(x)) + mp.log(at(x + 1 - gap) / at(x + 1))) / 2 for x in outcomes]
        found = pair.tails(np.array([float(x) for x in between]))
        below = [mp.mpf(0)]
        for value in p:
            below.append(below[-1] + value)
        above = [mp.mpf(0)]
        for value in reversed(p):
            above.append(above[-1] + value)
        over = lambda n: above[reach - n]  # noqa: E731  P(X > n)
        under = lambda n: below[n + reach + 1]  # noqa: E731
        truth = [[f(x - s) for x in outcomes] for s in (gap, 0) for f in (over, under)]
        for mine, exact in zip(found[:4], truth, strict=True):
            off = [abs(mp.mpf(float(m)) / e - 1) for m, e in zip(mine, exact, strict=True)]
            assert np.all(np.array(off, float) <= found.error)
    assert np.all(found.error < 1e-9)


@pytest.mark.parametrize(("mu", "gap"), [(0.01, 1), (0.7, 3), (12.0, 1), (400.0, 25)])
def test_losses_are_as_near_as_the_pair_says(mu, gap):
    """An atom's tails change between a loss just below it and one just above it."""
    pair = pair_of(Skellam(mu, gap))
    for x in (0, 1, gap, gap + int(5 * math.sqrt(mu)) + 2):
        with mp.workdps(60):
            loss = float(mp.log(mp.besseli(abs(x - gap), 2 * mp.mpf(mu)) / mp.besseli(abs(x), 2 * mp.mpf(mu))))
        room = 1.01 * float(pair.loss_error()) + 1e-15 * abs(loss)
        assert room < 1e-9 * (1 + abs(loss))
        tails = pair.tails(np.array([loss - room, loss + room]))
        mass = float(mp.exp(-2 * mu) * mp.besseli(abs(x), 2 * mu))
        assert tails.q_above[0] - tails.q_above[1] == pytest.approx(mass, rel=1e-6, abs=1e-9 * tails.q_above[0])


def test_traced_tails_are_those_of_the_host_and_fail_closed_where_the_window_is_too_small():
    pair, losses = pair_of(Skellam(np.array(90.0), 3)), np.linspace(-2.0, 2.0, 41)
    fixed = jax.jit(lambda mu: type(pair)(mu, pair.sensitivity).tails(losses))
    with jax.enable_x64(True):
        found, lost = fixed(90.0), fixed(1e6)
    for mine, its in zip(pair.tails(losses)[:4], found[:4], strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-10)
    assert np.all(np.isnan(lost.p_above))


def test_filters_and_ledgers_take_it():
    one = Skellam(50.0, 1)
    made: list[Any] = [filters.gdp_residue(1.0, 1e-6), filters.renyi(4.0, 1e-5, order=8.0)]
    for one_filter in made:
        assert one_filter.update(one, one_filter.init())[0]
    # At every order at once, discrete noise on a lattice is more than a Gaussian's budget; some delta holds it.
    natural: Any = filters.natural(ApproximateDP(1.0, 1e-3), [one], 2)
    assert natural.update(one, natural.init())[0]
    text = canonical.encoded(one, "query")
    assert text["type"] == "Skellam"
