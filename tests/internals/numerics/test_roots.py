"""Brackets of crossings: their ends are certified by comparisons, and close within a few units."""

import numpy as np
import pytest

from jaxacct._numerics.roots import crossing

ROOTS = np.array([1e-9, 0.3, 1.0, 7.7, 600.0])
CURVES = {
    "a line": lambda x: ROOTS - x,
    "a parabola": lambda x: ROOTS**2 - x**2,
    "a tail": lambda x: -0.5 * ((x + 3.0) ** 2 - (ROOTS + 3.0) ** 2),
    "a step": lambda x: np.where(x < ROOTS, 1.0, -1.0),
    "a curve with a kink": lambda x: np.where(x < ROOTS, 5.0 * (ROOTS - x), np.maximum(ROOTS - x, -1e-3)),
    "nothing beyond": lambda x: np.where(x < ROOTS, np.log1p(ROOTS - x), -np.inf),
    "no number on either side": lambda x: np.where(np.abs(x - ROOTS) < 1e-3, ROOTS - x, np.nan),
}


@pytest.mark.parametrize("name", CURVES)
def test_ends_are_points_on_either_side(name):
    asked = []

    def above(x):
        asked.append(x)
        with np.errstate(all="ignore"):
            return x < ROOTS, CURVES[name](x)

    low, high = crossing(above, np.zeros(5), np.full(5, 1000.0))
    assert np.all((low < ROOTS) & (high >= ROOTS))
    assert np.all(high - low <= np.maximum(2.0**-49 * high, 2.1 * 2.0**-60 * 1000.0))
    assert len(asked) <= 130  # twice as many as halvings, and a few; mostly a dozen
    for i in range(5):  # a setting's answer is its own
        one = lambda x, i=i: tuple(y[i] for y in above(np.full(5, x)))  # noqa: E731
        assert crossing(one, np.zeros(()), np.full((), 1000.0)) == (low[i], high[i])


def test_an_end_that_nothing_moves_is_the_one_that_was_given():
    always = lambda x: (np.ones(x.shape, bool), np.ones_like(x))  # noqa: E731
    never = lambda x: (np.zeros(x.shape, bool), np.full_like(x, np.nan))  # noqa: E731
    low, high = np.array([0.0, 1.0]), np.array([5.0, 1.0])
    np.testing.assert_array_equal(crossing(always, low, high)[1], high)
    np.testing.assert_array_equal(crossing(never, low, high)[0], low)
