"""Pieces of trade-off curves, on small numbers that a loop can follow."""

import math

import jax
import numpy as np
import pytest

from jaxacct import TradeOff

pytestmark = pytest.mark.usefixtures("in_float64")

ALPHA, BETA = np.array([0.0, 0.1, 0.3, 0.6, 1.0]), np.array([0.8, 0.5, 0.2, 0.05, 0.0])


@pytest.fixture(scope="module")
def read():
    """A traced curve through points, by its segments: what fails closed is one outcome, or two disjoint ones."""
    return jax.jit(lambda a, b, bound: TradeOff.from_points(a, b, bound), static_argnums=2)


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_traced_points_with_one_mistake_anywhere_fail_closed(read, bound):
    good = read(ALPHA, BETA, bound)
    np.testing.assert_allclose(good.widths, [0.0, 0.1, 0.2, 0.3, 0.4], atol=1e-15)
    np.testing.assert_allclose(good.drops, [0.2, 0.3, 0.3, 0.15, 0.05], atol=1e-15)
    mistakes = []
    for k in range(1, 4):
        # A vertex above the line between its neighbours, below the next one, or left of the one before.
        line = np.interp(ALPHA[k], ALPHA[[k - 1, k + 1]], BETA[[k - 1, k + 1]])
        mistakes.append((ALPHA, np.where(np.arange(5) == k, line + 1e-3, BETA)))
        mistakes.append((ALPHA, np.where(np.arange(5) == k, BETA[k + 1] - 1e-3, BETA)))
        mistakes.append((np.where(np.arange(5) == k, ALPHA[k - 1] - 1e-3, ALPHA), BETA))
        mistakes.append((np.where(np.arange(5) == k, math.nan, ALPHA), BETA))
        mistakes.append((ALPHA, np.where(np.arange(5) == k, math.nan, BETA)))
    first, last = np.array([1.0, 0, 0, 0, 0]), np.array([0, 0, 0, 0, 1.0])
    mistakes += [(ALPHA, BETA + 0.3 * first), (ALPHA, BETA + 1e-8 * last), (ALPHA * (1 - 1e-8), BETA)]
    mistakes += [(ALPHA * (1 - 0.7e-9), BETA + 0.7e-9 * last)]
    for alpha, beta in mistakes:
        found = read(alpha, beta, bound)
        nothing = ([0, 0, 0, 0, 1], [1, 0, 0, 0, 0]) if bound == "lower" else ([1, 0, 0, 0, 0],) * 2
        np.testing.assert_array_equal([found.widths, found.drops], nothing)


def test_a_batch_of_points_is_judged_row_by_row(read):
    bad = np.where(np.arange(5) == 2, 0.9, BETA)
    found = read(np.stack([ALPHA, ALPHA, ALPHA]), np.stack([BETA, bad, BETA + 1e-8 * (np.arange(5) == 4)]), "lower")
    np.testing.assert_allclose(found.widths[0], [0.0, 0.1, 0.2, 0.3, 0.4], atol=1e-15)
    np.testing.assert_array_equal(found.widths[1:], [[0, 0, 0, 0, 1]] * 2)
