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


def table(losses, q, error=0.0, loss_error=0.0, p=None):
    losses, q = np.asarray(losses, float), np.asarray(q, float)
    # Four atoms, of which the first may be nothing: one size of arrays is one compilation.
    none = losses[:1] - 0.01 * np.arange(4.0 - losses.size, 0, -1)
    losses, q = np.append(none, losses), np.append(np.zeros_like(none), q)
    p = None if p is None else np.append(np.zeros_like(none), p)
    p = q * np.exp(np.where(np.isfinite(losses), losses, -np.inf)) if p is None else np.asarray(p, float)
    return TablePair(Row(losses), Row(p), Row(q), np.float64(error), np.float64(loss_error))


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
