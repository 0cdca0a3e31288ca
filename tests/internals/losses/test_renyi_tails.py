"""The divergence of a pair from its tails: toy tables whose declared errors are large enough to be seen."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.pairs.table import TablePair
from jaxacct.mechanisms.renyi import tails

pytestmark = pytest.mark.usefixtures("in_float64")

UNIT = 2.0**-53


def table(losses, q, error=0.0, loss_error=0.0, p=None):
    losses, q = np.asarray(losses, float), np.asarray(q, float)
    # Four atoms, of which the first may be nothing: one size of arrays is one compilation.
    none = losses[:1] - 0.01 * np.arange(4.0 - losses.size, 0, -1)
    losses, q = np.append(none, losses), np.append(np.zeros_like(none), q)
    p = None if p is None else np.append(np.zeros_like(none), p)
    p = q * np.exp(np.where(np.isfinite(losses), losses, -np.inf)) if p is None else np.asarray(p, float)
    return TablePair(Row(losses), Row(p), Row(q), np.float64(error), np.float64(loss_error))


def edges_of(pair):
    return tails._edges(pair, np.asarray(pair.loss_error())[..., None], np.asarray(pair.max_loss())[..., None])


@jax.jit
def _bounds(pairs, orders, tilts, moments):
    return tails.log_excess(pairs, orders, tilts, moments)


def bounds(pairs, orders, tilts=(1.0,) * 3, moments=(math.inf,) * 3):
    """Of several tables at several orders, shape ``(pairs, orders)``; in batches of 36."""
    every = [jax.tree.map(lambda x: np.asarray(x)[None], one) for one in pairs for _ in orders]
    count = len(every)
    batch = jax.tree.map(lambda *x: np.concatenate(x), *(every[i % count] for i in range(36)))
    rows = lambda values: np.tile(np.asarray(values, float), (36, 1))  # noqa: E731
    found = _bounds(batch, np.resize(np.tile(orders, len(pairs)), 36), rows(tilts), rows(moments))
    return np.asarray(found)[:count].reshape(len(pairs), len(orders))


def rest(loss, a):
    return np.expm1(a * loss) - a * np.expm1(loss)


def largest_possible(losses, q, error, a):
    """log E_Q[f] of the worst pair whose masses are all within ``error`` of these, its losses their true ratio."""
    total = 0.0
    for loss, mass in zip(losses, q, strict=True):
        signs = itertools.product((1 - error, 1 + error), repeat=2)
        total += max(s * mass * rest(loss + math.log(t / s), a) for s, t in signs)
    return math.log(total)


ORDERS = np.array([1.3, 4.0, 30.0])


@pytest.mark.parametrize("error", [1e-3, pytest.param(1e-6, marks=pytest.mark.slow)])
def test_a_bound_from_tails_holds_for_every_pair_within_the_declared_errors(error):
    rng = np.random.default_rng(4)
    losses, q = np.sort(rng.normal(size=(12, 4)), -1), rng.dirichlet(np.ones(4), 12)
    losses[:, -1] = np.abs(losses[:, -1]) + losses[:, -2].clip(0)
    found = bounds([table(*row, error, 2.1 * error) for row in zip(losses, q, strict=True)], ORDERS)
    for values, one, masses in zip(found, losses, q, strict=True):
        for value, a in zip(values, ORDERS, strict=True):
            worst, nominal = largest_possible(one, masses, error, a), math.log((masses * rest(one, a)).sum())
            assert worst <= value <= nominal + 260 * error


def test_masses_of_cells_come_from_the_smaller_tail():
    masses, error = np.array([0.125, 0.5, 0.0, 0.25, 0.125]), np.array([1.0, 2.0, 3.0, 4.0, 1.0, 5.0]) * 1e-3
    below = np.append(0.0, np.cumsum(masses))
    above = 1.0 - below
    upper, slack = tails._upper_cells(jnp.asarray(above), jnp.asarray(below), jnp.asarray(error))
    moved = 2e-3 * np.array([0.125 * 2, 0.625 * 3, 0.375 * 4, 0.375 * 4, 0.125 * 5])
    np.testing.assert_allclose(upper, masses + moved, rtol=1e-14)
    np.testing.assert_allclose(
        slack, np.where(masses > 0, 2 * moved / np.where(masses > 0, masses, 1), 1.0), rtol=1e-14
    )
    # A tail that rounding has bent has no negative mass.
    bent, _ = tails._upper_cells(jnp.array([0.25, 0.26]), jnp.array([0.5, 0.51]), jnp.array([0.0, 0.0]))
    np.testing.assert_array_equal(bent, 0.0)


def test_the_cells_lie_between_the_losses_and_one_more_around_them():
    one = table([-2.0, -0.5, 0.0, 1.0], [0.3, 0.3, 0.0, 0.4], 0.0, 0.01)
    edges = np.asarray(edges_of(one))
    largest = 1.01
    points = [-2.04, -2.0, -0.5, 0.0, 1.0, largest, largest + 0.04]
    assert edges.size == 6 * 8 + 1
    np.testing.assert_allclose(
        edges, np.append(np.linspace(points[:-1], points[1:], 8, endpoint=False).T.ravel(), points[-1]), rtol=1e-13
    )
    # Without an error of the losses there is one of rounding: eight units.
    edges = np.asarray(edges_of(table([-2.0, -0.5, 0.0, 1.0], [0.3, 0.3, 0.0, 0.4])))
    assert edges[0] == -2.0 - 16 * UNIT
    assert edges[-1] == 1.0 + 8 * UNIT
    # What is farther than 600 is left to the moments, and an infinite loss is on no grid.
    edges = np.asarray(edges_of(table([-800.0, 0.5, 700.0], [0.3, 0.3, 0.4], p=[0.0, 0.5, 0.5])))
    assert edges[0] == pytest.approx(-600.0, rel=1e-14)
    assert edges[-1] == pytest.approx(600.0, rel=1e-14)


def test_beyond_the_grid_the_best_moment_counts():
    """All mass that matters is at a loss of 700: the bound is e^(-s l) E[e^((a + s) L)] at the grid's end."""
    one = table([0.0, 700.0], [1.0, 1e-300], p=[1.0, 1e-9])
    tilts, top = np.array([0.25, 1.0, 2.5]), np.asarray(edges_of(one))[-2] * (1 - 4 * UNIT)
    margin = 1e-12 + 16 * UNIT * 1.5 * 600
    for best in range(3):
        moments = tilts * 600 + np.where(np.arange(3) == best, 300.0, 400.0)
        found = bounds([one], [1.5], tilts, moments)[0, 0]
        assert found == pytest.approx(moments[best] - tilts[best] * top + margin, abs=2.5e-13)
    assert bounds([one], [1.5])[0, 0] == math.inf


def test_infinite_losses_and_what_is_no_number_know_nothing():
    assert bounds([table([0.0, math.inf], [1.0, 0.0], p=[0.9, 0.1])], [1.5], moments=[1.0] * 3)[0, 0] == math.inf
    assert np.isfinite(bounds([table([0.0, math.inf], [1.0, 0.0], p=[1.0, 0.0])], [1.5])[0, 0])
    for broken in (table([0.0, 1.0], [0.5, math.nan]), table([0.0, 1.0], [0.5, 0.5], p=[math.nan, 0.5])):
        assert bounds([broken], [1.5], moments=[1.0] * 3)[0, 0] == math.inf
    assert bounds([table([0.0, 1.0], [0.5, 0.5], loss_error=math.nan)], [1.5], moments=[1.0] * 3)[0, 0] == math.inf


def test_where_q_is_no_float_the_mass_of_p_bounds_a_cell():
    """At a loss of 590 a Q-mass of 1e-300 is not trusted: f(x) <= x^a gives p e^((a - 1) l)."""
    loss, p, a = 590.0, 1e-44, 1.25
    one = table([0.0, loss], [1.0, p * math.exp(-loss)], p=[1.0, p])
    found = bounds([one], [a])[0, 0]
    assert 0 <= found - (math.log(p) + (a - 1) * loss) < 1e-6


def test_the_divergence_of_a_table_is_charged_its_errors():
    """By the formula: losses away from 0 by their error, 1e-12 + error + 2^-48 a |l| in the logarithm."""
    losses, q = np.array([-1.5, -0.25, 0.5, 1.25]), np.array([0.2, 0.3, 0.4, 0.1])
    for error, loss_error, scale in (
        (0.0, 0.0, 1.0),
        (1e-3, 0.0, 1.0),
        (0.0, 1e-3, 1.0),
        (1e-3, 1e-3, 1e-9),
        (0.0, 0.0, 400.0),
    ):
        for a in (1.5, 3.0, 1e9):
            if a * scale > 1e4:
                continue
            away = losses * scale + np.sign(losses) * loss_error
            p = q * np.exp(losses * scale)
            pair = TablePair(Row(losses * scale), Row(p), Row(q), np.float64(error), np.float64(loss_error))
            found = float(tails._of_table(jax.tree.map(lambda x: jnp.asarray(x)[None], pair), jnp.array([a]))[0])
            margin = 1e-12 + error + 2.0**-48 * a * np.abs(away).max()
            if a * np.abs(away).max() < 600:
                value = math.log1p((q * rest(away, a)).sum() * math.exp(margin)) / (a - 1)
                assert found == pytest.approx(value * (1 + 1e-12), rel=2e-13)
            else:
                big = a * away + np.log(q)
                value = (np.logaddexp.reduce(big) + margin) / (a - 1)
                assert found == pytest.approx(value * (1 + 1e-12), rel=1e-13)


def test_an_outcome_that_p_never_has_counts_by_its_mass():
    q, a = np.array([0.25, 0.75]), 3.0
    one = table([-math.inf, math.log(4 / 3)], q)
    found = float(tails._of_table(jax.tree.map(lambda x: jnp.asarray(x)[None], one), jnp.array([a]))[0])
    assert found == pytest.approx(math.log(4 / 3), rel=1e-11)
    assert found >= math.log(4 / 3)
