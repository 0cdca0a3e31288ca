"""Derivatives of delta against differences of an integral that is computed another way."""

import functools

import numpy as np
import pytest
from scipy.special import ndtr

from jaxacct.losses.engines.contour.bounds import Size, contour_bounds
from jaxacct.losses.engines.derivatives import composition_slopes, run_slopes
from jaxacct.mechanisms.pairs.gaussian import GaussianPair


def one_run(sigma, rate, epsilon, reverse):
    """delta of one run, from the best event."""
    epsilon = np.asarray(epsilon, float)
    ratio = (np.exp(-epsilon if reverse else epsilon) - 1 + rate) / rate
    edge = np.where(ratio > 0, 0.5 + sigma**2 * np.log(np.maximum(ratio, 1e-300)), -np.inf)
    base, shifted = (ndtr((edge - mean) / sigma * (1 if reverse else -1)) for mean in (0, 1))
    mixture = (1 - rate) * base + rate * shifted
    return base - np.exp(epsilon) * mixture if reverse else mixture - np.exp(epsilon) * base


def two_runs(sigma, rate, epsilon, reverse):
    """delta of two runs: that of the second, averaged over the loss of the first."""
    t = np.linspace(-14, 14 + 1 / sigma, 20_001)
    ratio = 1 - rate + rate * np.exp(t / sigma - 0.5 / sigma**2)
    density = np.exp(-0.5 * t * t) / np.sqrt(2 * np.pi) * (t[1] - t[0]) * (1 if reverse else ratio)
    loss = -np.log(ratio) if reverse else np.log(ratio)
    return (density * one_run(sigma, rate, epsilon - loss, reverse)).sum()


def difference(function, numbers, place, step=2e-3):
    def moved(factor):
        return function(*(x * factor if i == place else x for i, x in enumerate(numbers)))

    wide, narrow = ((moved(1 + at) - moved(1 - at)) for at in (2 * step, step))
    return (8 * narrow - wide) / (12 * step) / numbers[place]


def asked(sigma, rate, steps, epsilon, reverse):
    pair = GaussianPair(*(np.array([[x]]) for x in (sigma, rate, float(reverse))))
    return pair, np.array([[float(steps)]]), np.array([epsilon])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("sigma", "rate", "epsilon"), [(10.0, 0.5, 0.1), (3.0, 0.9, 0.8), (1.0, 1.0, 3.0), (1.0, 0.2, 0.3), (1.0, 0.2, 0.5)]
)
def test_two_runs(sigma, rate, epsilon, reverse):
    slopes = composition_slopes(*asked(sigma, rate, 2, epsilon, reverse))
    numbers, found = (sigma, rate, epsilon), (slopes.noise, slopes.rate, slopes.epsilon)
    for place, value in enumerate(found):
        if np.isnan(value) and rate == 0.2:  # where little dies down there may be no derivative
            continue
        if rate < 1 or place != 1:
            truth = difference(functools.partial(two_runs, reverse=reverse), numbers, place)
            np.testing.assert_allclose(value.item(), truth, rtol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("sigma", "rate", "epsilon"), [(1.0, 0.2, 0.1), (0.6, 0.7, 0.9), (5.0, 1e-3, 1e-4)])
def test_one_run(sigma, rate, epsilon, reverse):
    slopes = run_slopes(*asked(sigma, rate, 1, epsilon, reverse))
    numbers, found = (sigma, rate, epsilon), (slopes.noise, slopes.rate, slopes.epsilon)
    for place, value in enumerate(found):
        truth = difference(functools.partial(one_run, reverse=reverse), numbers, place, 1e-4)
        np.testing.assert_allclose(value.item(), truth, rtol=1e-6)
    assert np.isnan(slopes.counts)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "epsilon"),
    [
        (4.0, 0.3, 50, 1.0),
        (1.0, 0.01, 1000, 1.0),
        (2.0, 0.05, 300, 1.5),
        (0.7, 1e-3, 10**6, 2.0),
        (100.0, 1e-3, 10**6, 0.05),
    ],
)
def test_many_runs(sigma, rate, steps, epsilon, reverse):
    def middle(sigma, rate, steps, epsilon):
        with np.errstate(all="ignore"):
            pair, counts, at = asked(sigma, rate, steps, epsilon, reverse)
            lower, upper = contour_bounds("delta", Size(512, 1024), pair, counts, at)
        return 0.5 * (lower + upper).item()

    slopes = composition_slopes(*asked(sigma, rate, steps, epsilon, reverse))
    numbers = (sigma, rate, steps, epsilon)
    np.testing.assert_allclose(slopes.value.item(), middle(*numbers), rtol=1e-7)
    for place, value in enumerate((slopes.noise, slopes.rate, slopes.counts, slopes.epsilon)):
        np.testing.assert_allclose(value.item(), difference(middle, numbers, place), rtol=1e-6)


def test_many_parts_and_settings_at_once():
    pairs = GaussianPair(np.array([[1.0, 2.0], [3.0, 1.5]]), np.array([[0.01, 0.05], [0.2, 1.0]]), np.zeros((2, 2)))
    counts, epsilon = np.array([[500.0, 300.0], [20.0, 1.0]]), np.array([1.0, 2.0])
    slopes = composition_slopes(pairs, counts, epsilon)
    with np.errstate(all="ignore"):
        read = lambda noise: sum(contour_bounds("delta", Size(256, 1024), pairs_of(noise), counts, epsilon)) / 2  # noqa: E731
        pairs_of = lambda noise: GaussianPair(noise, pairs.rate, pairs.reverse)  # noqa: E731
        for part in range(2):
            moved = lambda factor: pairs.noise * np.where(np.arange(2) == part, factor, 1.0)  # noqa: B023, E731
            truth = (read(moved(1 + 1e-4)) - read(moved(1 - 1e-4))) / 2e-4 / pairs.noise[:, part]
            np.testing.assert_allclose(slopes.noise[:, part], truth, rtol=1e-5)


def test_what_has_no_value_has_no_derivative():
    slopes = composition_slopes(*asked(np.nan, 0.1, 10, 1.0, False))
    assert all(np.isnan(x).all() for x in slopes)
    # Ten runs of `add` lose at most 10 log(1 / 0.99).
    assert not composition_slopes(*asked(1.0, 0.01, 10, 1.0, True)).epsilon < 0
