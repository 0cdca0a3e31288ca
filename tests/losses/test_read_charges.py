"""What a reading of a composed loss is charged, term by term: losses so large that 2^-50 of them are hundredths."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct.losses import read
from jaxacct.losses.compose import Composition
from jaxacct.losses.possible import possible
from jaxacct.losses.read import _delta, _summary

pytestmark = pytest.mark.usefixtures("in_float64")

POINTS = 8


def composition(**changes):
    """All of it in halves and quarters, so that losses of 2^44 are exact."""
    given = {
        "masses": np.array([[0.1, 0.2, 0.0, 0.3, 0.1, 0.05, 0.2, 0.05], [0.1, 0.1, 0.1, 0.2, 0.1, 0.0, 0.2, 0.1]]),
        "missing": np.array([3e-3, 2e-3]),
        "infinite": np.array([1e-2, 9e-3]),
        "lowest": -3.0,
        "origin": 0.5,
        "spacing": 0.25,
        "theta": 2.0,
        "log_normaliser": 0.25,
        "log_error": 3e-3,
        "loss_error": 2.0**-6,
    } | changes
    return Composition(**{name: jnp.asarray(value, jnp.float64) for name, value in given.items()})


def definition(c, epsilon, side, charged):
    """The docstring's sum with 2^-50 of every loss and exponent, in 40 digits."""
    exact = lambda x: mpmath.mpf(float(x))  # noqa: E731
    sign, unit, epsilon = 1 - 2 * side, mpmath.mpf(2) ** -50, exact(epsilon)
    theta, low, h, origin = exact(c.theta), exact(c.lowest), exact(c.spacing), exact(c.origin)
    n = c.masses.shape[-1]
    end = abs(origin) + max(abs(low), abs(low + n)) * h
    error = exact(c.loss_error) + unit * (end + abs(epsilon))
    at = epsilon - sign * error
    exponent = exact(c.log_normaliser) - theta * at
    exponent += sign * (exact(c.log_error) + unit * (1 + abs(theta * epsilon) + abs(exponent)))
    total = slope = mpmath.mpf(0)
    for i in range(n):
        x, mass = origin + (low + i) * h - at, exact(c.masses[side, i])
        if x > 0:
            total += mass * mpmath.exp(exponent - theta * x) * (1 - mpmath.exp(-x))
            slope -= mass * mpmath.exp(exponent - theta * x - x)
    worst = (theta / (1 + theta)) ** theta / (1 + theta)
    charge = mpmath.exp(exponent) * exact(c.missing[side]) * worst if charged else 0
    return total * (1 + sign * mpmath.mpf(1e-11)) + sign * charge + exact(c.infinite[side]), slope


_asked = jax.jit(lambda *given: [_delta(*given, charged) for charged in (False, True)])


def asked(c, epsilon, side, charged):
    return _asked(c, jnp.asarray(epsilon), jnp.asarray(side))[charged]


FAR = 2.0**44
CASES = {
    "near": ({}, 1.0),
    "plain": ({"loss_error": 0.0, "log_error": 0.0, "missing": np.zeros(2), "infinite": np.zeros(2)}, 1.0),
    "far": ({"origin": FAR, "log_normaliser": 2 * FAR + 0.5, "spacing": 1.0}, FAR - 1),
    "far by its index": ({"origin": 0.0, "lowest": FAR - 3, "log_normaliser": 2 * FAR, "spacing": 1.0}, FAR - 1),
    "far below": ({"origin": -FAR, "log_normaliser": -2 * FAR, "spacing": 1.0}, -FAR - 1),
    "there and back": ({"origin": FAR, "lowest": -FAR - 4, "spacing": 1.0, "log_normaliser": 0.0}, 0.5),
    "an atom at the argument, cells wide": (
        {
            "masses": np.eye(POINTS)[[0, 0]],
            "missing": np.zeros(2),
            "loss_error": 0.0,
            "lowest": 8.0,
            "origin": 0.0,
            "spacing": FAR / 8,
            "theta": 8 / FAR,
            "log_normaliser": 8.0,
        },
        FAR,
    ),
    "mostly normaliser": (
        {"loss_error": 0.0, "log_normaliser": FAR, "theta": FAR / 4, "spacing": 1.0, "origin": 4.0},
        4.0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_delta_is_charged_for_its_missing_mass_and_every_rounding(name):
    changes, epsilon = CASES[name]
    c = composition(**changes)
    for side in range(2):
        for charged in (True, False):
            value, slope = asked(c, epsilon, side, charged)
            with mpmath.workdps(40):
                exact, steepness = definition(c, epsilon, side, charged)
                assert exact > 0
                far = 1e-13 if abs(float(c.log_normaliser)) < 100 else 2e-2  # of the margins themselves
                assert abs(mpmath.mpf(float(value)) - exact) <= far * abs(exact)
                assert abs(mpmath.mpf(float(slope)) - steepness) <= far * abs(steepness) + 1e-300


def test_what_underflow_may_hide_is_added_above_only():
    c = composition(masses=np.zeros((2, POINTS)), missing=np.zeros(2), infinite=np.zeros(2))
    assert float(asked(c, 1.0, 0, True)[0]) == 1e-300
    assert float(asked(c, 1.0, 1, True)[0]) == 0.0


def test_a_summary_joins_neighbours_in_their_middle(monkeypatch):
    monkeypatch.setattr(read, "_SUMMARY", 2)
    c = composition()
    found = jax.tree.map(np.asarray, _summary(c))
    assert (found.spacing, found.lowest) == (1.0, 0.0)
    assert found.origin == 0.5 + (-3 + 1.5) * 0.25
    tilted = np.asarray(c.masses) * np.exp(-2.0 * 0.25 * np.tile(np.arange(4) - 1.5, 2))
    np.testing.assert_allclose(found.masses, tilted.reshape(2, 2, 4).sum(-1), rtol=1e-14)
    for name in ("missing", "infinite", "theta", "log_normaliser", "log_error", "loss_error"):
        np.testing.assert_array_equal(getattr(found, name), getattr(c, name))
    monkeypatch.setattr(read, "_SUMMARY", 3)
    assert _summary(c) is not c
    assert _summary(composition(masses=np.zeros((2, 7)))).masses.shape == (2, 7)
    monkeypatch.setattr(read, "_SUMMARY", 100)
    np.testing.assert_array_equal(_summary(c).masses, c.masses)


def test_every_delta_is_at_least_that_of_no_loss_but_for_its_rounding():
    at = -np.array([1e-8, 0.3, 1.0, 20.0, 700.0])
    lower, upper = (np.asarray(x) for x in possible(jnp.zeros(5), jnp.zeros(5), jnp.asarray(at)))
    with mpmath.workdps(40):
        for one, other, x in zip(lower, upper, at, strict=True):
            floor = -mpmath.expm1(mpmath.mpf(x))
            units = 2.0**-53
            assert abs((mpmath.mpf(float(one)) / floor - 1) / units + 8) <= 2
            assert other == 1 or abs((mpmath.mpf(float(other)) / floor - 1) / units - 8) <= 2
            assert other <= 1
