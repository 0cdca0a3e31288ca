"""Reading a composed loss: every charge and allowance from its definition, in 64 bits; epsilon at its own curve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses.compose import Composition
from jaxacct.losses.read import delta_bounds, epsilon_bounds
from tests.allowances import Long, needs_long_double

pytestmark = [needs_long_double, pytest.mark.usefixtures("in_float64")]
POINTS = 2048
PLAIN = {
    "masses": np.zeros((2, POINTS)),
    "missing": np.zeros(2),
    "infinite": np.zeros(2),
    "lowest": -900.0,
    "origin": 0.3,
    "spacing": 1 / 128,
    "theta": 3.0,
    "log_normaliser": -4.0,
    "log_error": 0.0,
    "loss_error": 0.0,
}


def composition(**changes):
    return Composition(**{name: jnp.asarray(value, jnp.float64) for name, value in (PLAIN | changes).items()})


def law(theta=3.0, seed=0):
    """Tilted masses of about a Gaussian, less of them below."""
    rng = np.random.default_rng(seed)
    losses = PLAIN["origin"] + (PLAIN["lowest"] + np.arange(POINTS)) * PLAIN["spacing"]
    masses = np.exp(-0.5 * ((losses - 1.0) / 0.8) ** 2) * rng.uniform(0.5, 1.5, POINTS)
    masses[[0, -1]] = 1e-4
    return np.stack([masses, 0.999 * masses]) / masses.sum()


def exact(c, epsilon, side):
    """The bound of the docstring without allowances for rounding, at a loss moved by the loss's own error."""
    sign = 1 - 2 * side
    at = Long(epsilon) - sign * Long(float(c.loss_error))
    losses = Long(float(c.origin)) + (float(c.lowest) + np.arange(POINTS)) * Long(float(c.spacing))
    theta, x = Long(float(c.theta)), losses - at[:, None]
    payoff = np.where(x > 0, np.exp(-theta * np.maximum(x, 0)) * -np.expm1(-np.maximum(x, 0)), 0)
    scale = np.exp(Long(float(c.log_normaliser)) - theta * at + sign * Long(float(c.log_error)))
    worst = (theta / (1 + theta)) ** theta / (1 + theta)
    charge = sign * Long(float(c.missing[side])) * worst
    return (
        scale * ((np.asarray(c.masses[side]) * payoff).sum(-1) + charge) + Long(float(c.infinite[side])),
        scale,
        losses,
    )


AT = np.array([-2.0, 0.0, 0.31, 0.5, 1.0, 2.0, 4.0, 7.5, 8.9])
READERS = [jax.jit(jax.vmap(read, in_axes=(None, 0))) for read in (delta_bounds, epsilon_bounds)]


def ask(reader, c, goals):
    """Always for as many: one program."""
    return (np.asarray(x)[: len(goals)] for x in READERS[reader](c, jnp.asarray(np.resize(goals, 10))))


def deltas(c, epsilons):
    return ask(0, c, epsilons)


def epsilons(c, goals):
    return ask(1, c, goals)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"missing": np.array([3e-3, 2e-3])},
        {"infinite": np.array([1e-3, 0.9e-3])},
        {"log_error": 1e-3, "loss_error": 2e-3},
        {"theta": 0.25, "log_normaliser": 0.5, "missing": np.array([3e-3, 2e-3])},
        {"origin": 1e7 + 0.3, "lowest": -900.0},
        {"log_normaliser": 3e7 - 4.0, "origin": 1e7 + 0.3},
    ],
)
def test_deltas_are_what_they_are_charged_and_no_more(changes):
    c = composition(masses=law(), **changes)
    shift = float(c.origin) - 0.3
    at = AT + shift
    lower, upper = deltas(c, at)
    top, scale, losses = exact(c, at, 0)
    bottom, _, _ = exact(c, at, 1)
    floor = np.maximum(-np.expm1(np.minimum(Long(at), 0)), 0)
    # 1e-11 of the sum, and 2^-50 of the loss's and the exponent's parts.
    moved = 2.0**-50 * (np.abs(losses).max() + np.abs(at))
    theta, normaliser = float(c.theta), float(c.log_normaliser)
    exponent = 2.0**-50 * (1 + 2 * np.abs(theta * at) + np.abs(normaliser - theta * at))
    for truth, found, sign, infinite in ((top, upper, 1, c.infinite[0]), (bottom, lower, -1, c.infinite[1])):
        free = (truth < 1) & (truth > floor * (1 + 1e-6)) & (truth > 1e-290)
        assert free.sum() >= 3 or shift
        finite = truth - Long(float(infinite))
        part = finite - sign * scale * np.asarray(c.missing)[0 if sign > 0 else 1]  # at least what the sum has
        gap = sign * (found - truth)
        assert np.all(gap[free] >= -(2.0**-53) * float(infinite))  # which its own margin of 1e-12 covers
        room = (
            1e-11 * np.maximum(np.abs(part), np.abs(finite))
            + (exponent + (2 * theta + 30) * moved) * finite
            + 2.0**-53 * float(infinite)
        )
        assert np.all(gap[free] <= 1.5 * room[free])
        if not shift and not c.missing.any():
            assert np.all(gap[free] >= 0.7e-11 * finite[free] - 2.0**-53 * float(infinite))
    assert np.all(lower <= upper)


def test_the_loss_and_the_exponent_are_allowed_their_rounding():
    """Where 2^-50 of them is more than 1e-11: at losses of ten million that cancel."""
    c = composition(masses=law(), origin=1e7 + 0.3, log_normaliser=3e7 - 4.0)
    at = 1e7 + AT[2:7]
    lower, upper = deltas(c, at)
    (top, *_), (bottom, *_) = exact(c, at, 0), exact(c, at, 1)
    exponent = 2.0**-50 * (1 + 3e7 + 4)
    moved = 2.0**-50 * 2e7
    for gap in ((upper - top) / top, (bottom - lower) / bottom):
        assert np.all(gap >= 0.9 * (exponent + 3 * moved))
        assert np.all(gap <= 1.1 * (exponent + 3 * moved) + 20 * moved)


def test_what_is_not_a_number_bounds_nothing():
    for changes in ({"missing": np.full(2, np.nan)}, {"masses": np.full((2, POINTS), np.nan)}, {"log_error": np.nan}):
        lower, upper = deltas(composition(**({"masses": law()} | changes)), np.array([0.5, -1.0]))
        np.testing.assert_array_equal(upper, 1.0)
        np.testing.assert_allclose(lower, [0.0, 1 - np.exp(-1.0)], rtol=1e-14)
        lower, upper = epsilons(composition(**({"masses": law()} | changes)), np.array([1e-3, 1e-9]))
        np.testing.assert_array_equal(upper, np.inf)
        np.testing.assert_array_equal(lower, 0.0)
    # Nothing is missing: a weight that is no number is of no account.
    c = composition(masses=law(), theta=0.0, log_normaliser=0.0)
    lower, upper = deltas(c, np.array([0.5]))
    assert 0.1 < float(lower[0]) <= float(upper[0]) <= 1.01 * float(lower[0])


@pytest.mark.parametrize("theta", [3.0, 0.2])
def test_an_epsilon_is_where_its_own_curve_meets_delta(theta):
    losses = PLAIN["origin"] + (PLAIN["lowest"] + np.arange(POINTS)) * PLAIN["spacing"]
    untilted = law() * np.exp((theta - 3.0) * (losses - 1.0))
    c = composition(masses=untilted, theta=theta, log_normaliser=3.0 * (theta - 3.0), infinite=np.array([1e-9, 5e-10]))
    lower, upper = deltas(c, AT[1:7])
    for curve, side in ((upper, 1), (lower, 0)):
        found = list(epsilons(c, np.where(curve < 1, curve, 0.5)))[side]
        free = (curve < 0.9) & (curve > 1e-8)
        assert free.sum() >= 3
        away = (found - AT[1:7])[free] * (1 if side else -1)
        assert np.all(away >= -1e-15)
        assert np.all(away <= 1e-9)
    lower, upper = epsilons(c, np.array([4e-10, 7e-10, 0.999999, 2e-9]))
    # Less than the infinite loss: no epsilon, from above from 1e-9 and from below from 5e-10 on.
    np.testing.assert_array_equal(np.isinf(upper), [True, True, False, False])
    assert lower[0] >= 8.9  # the end of the lattice, where the curve still has 5e-10
    assert lower[2] == upper[2] == 0.0
    assert 0 < lower[1] < 9
    assert 0 < lower[3] <= upper[3] < 9
