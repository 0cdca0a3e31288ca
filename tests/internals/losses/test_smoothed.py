"""A hockey stick lies between what a small Gaussian more makes of it and what the weights make of that."""

import numpy as np
import pytest
from scipy.stats import norm

from jaxacct.losses.engines.discrete_laws.smoothing import smoothing

LOSSES = np.array([-0.7, -0.1, 0.0, 0.35, 0.9, 1.6])
MASSES = np.array([0.1, 0.2, 0.25, 0.2, 0.2, 0.05])


def _exact(epsilon):
    return float((MASSES * np.maximum(-np.expm1(epsilon - LOSSES), 0.0)).sum())


def _smoothed(epsilon, s):
    """With N(s, 1) against N(0, 1) more: a Gaussian's curve at epsilon - L, for every L."""
    at = epsilon - LOSSES
    return float((MASSES * (norm.cdf(s / 2 - at / s) - np.exp(at) * norm.cdf(-s / 2 - at / s))).sum())


def _below(epsilon, s, theta):
    """The bound from below, from the smoothed curve alone."""
    constants = smoothing(np.asarray(s), np.asarray(theta))
    owed = sum(w * _smoothed(epsilon + x, s) for w, x in zip(constants.owed, constants.ahead, strict=True))
    moment = (MASSES * np.exp(theta * (LOSSES - epsilon))).sum() * np.exp(0.5 * s * s * theta * (theta + 1))
    return float((_smoothed(epsilon, s) - owed - constants.rest * moment) / constants.kept)


@pytest.mark.parametrize("s", [1e-9, 1e-4, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("theta", [0.5, 5.0])
def test_the_lower_bound_lies_below_and_the_smoothed_curve_above(s, theta):
    # At kinks (the losses themselves), beside them, and in between.
    for epsilon in np.concatenate([LOSSES, LOSSES + s, LOSSES - s, np.linspace(-0.5, 1.5, 21)]):
        exact = _exact(epsilon)
        assert _below(epsilon, s, theta) <= exact + 1e-15
        assert _smoothed(epsilon, s) >= exact - 1e-15


def test_both_close_in_with_the_square_of_the_noise():
    # Away from the kinks of a fine law: here the curve of a Gaussian on 4,001 points.
    points = np.linspace(-3.0, 4.0, 4001)
    masses = norm.pdf(points, 0.5, 1.0)
    masses /= masses.sum()
    global LOSSES, MASSES
    saved = LOSSES, MASSES
    try:
        LOSSES, MASSES = points, masses
        gaps = [_smoothed(1.0, s) - _below(1.0, s, 2.0) for s in (0.2, 0.05)]
    finally:
        LOSSES, MASSES = saved
    assert gaps[1] < gaps[0] / 12


def test_weights_are_those_of_a_distribution():
    constants = smoothing(np.array([1e-6, 0.1, 0.9]), np.array([1.0, 1.0, 1.0]))
    total = constants.owed.sum(-1) + constants.kept
    np.testing.assert_allclose(total, 1.0, atol=1e-11)
    assert (constants.owed >= 0).all()
