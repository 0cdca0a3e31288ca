"""Numbers read off laws and curves, one argument at a time, with roundings that are large enough to be seen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import LossGrid, PrivacyProfile
from jaxacct.losses.curves import profile
from jaxacct.losses.grids import hockey_stick as pld_curves

UNIT = 1e-5
GRID = LossGrid(0.5, -4, 9)
LOSSES = GRID.losses


@pytest.fixture(autouse=True)
def _large_roundings(in_float64, monkeypatch):
    monkeypatch.setattr(pld_curves, "EPS", UNIT)
    monkeypatch.setattr(profile, "EPS", UNIT)


@functools.cache
def _program(function, *fixed):
    """Traced anew, so that the large roundings stay here; None stands for an array."""

    def program(*arrays):
        left = iter(arrays)
        return function.__wrapped__(*(next(left) if x is None else x for x in fixed))

    return jax.jit(program)


def asked(function, *arguments):
    fixed = (None if isinstance(x, np.ndarray) else x for x in arguments)
    return np.asarray(_program(function, *fixed)(*(x for x in arguments if isinstance(x, np.ndarray))))


AT = np.array([-3.0, -2.00001, -2.0, -1.99999, -1.3, -0.5, -1e-6, 0.0, 0.2, 0.49999, 1.0, 1.99999, 2.0, 2.1, 9.0])


EXCESS = np.array([0.02, 0.05, 0.06, 0.3, 0.31, 0.5, 0.2, 0.19, 0.1])


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_curves_between_their_points(bound, sign):
    h, size = 0.5, 9
    for excess in (EXCESS, 3 * EXCESS):
        found = asked(profile._excess_at, excess, np.array(h), np.array(-4.0), bound, AT)
        for at, one in zip(AT, found, strict=True):
            cell = min(max(int(np.floor(at / h)) + 4, 0), size - 2)
            x = min(max(at - LOSSES[cell], 0.0), h)
            t = np.expm1(x) / np.expm1(h)
            value = excess[cell] * (1 - t) + excess[cell + 1] * t
            off = 4 * UNIT * (abs(at) + h)
            wide = [abs(excess[cell + 1] - excess[cell])]
            if x <= off:  # the cell on the left
                wide.append(abs(excess[cell] - (excess[cell - 1] if cell else excess[0] * np.exp(-h))))
            if h - x <= off:  # the cell on the right; the curve is constant after the last point
                wide.append(abs((excess[cell + 2] if cell + 2 < size else excess[-1]) - excess[cell + 1]))
            moved = off * np.exp(h) / np.expm1(h) + 8 * UNIT
            value += sign * (max(wide) * moved + 8 * UNIT * max(excess[cell], excess[cell + 1]))
            if at < LOSSES[0]:
                value = excess[0] * np.exp(at - LOSSES[0]) * (1 + sign * 8 * UNIT * (1 + abs(at)))
            if at - LOSSES[-1] > 8 * UNIT * abs(at):
                value = excess[-1]
            most = min(np.exp(at) * (1 + 8 * UNIT * (1 + abs(at))), 1.0)
            assert one == pytest.approx(min(max(value, 0.0), most), rel=1e-12), at
    nowhere = asked(profile._excess_at, np.nan * EXCESS, np.array(h), np.array(-4.0), bound, AT)
    np.testing.assert_allclose(nowhere, np.minimum(np.exp(AT), 1.0) if sign > 0 else 0.0, rtol=1e-14)


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_values_and_excesses(bound, sign):
    at = np.array([-3.0, -0.2, 0.0, 1.0])
    excess, identity = np.array([0.01, 0.2, 0.3, 0.1]), np.array([-np.expm1(-3.0), -np.expm1(-0.2), 0.0, 0.0])
    found = profile._with_identity(jnp.asarray(excess), jnp.asarray(at), bound)
    units = 1 + sign * 4 * UNIT
    expected = [(e + i * units) * units if x < 0 else e for e, i, x in zip(excess, identity, at, strict=True)]
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    full = profile._with_identity(jnp.asarray(1 - identity), jnp.asarray(at), bound)
    assert np.all(np.asarray(full) <= 1)
    values = np.maximum(1 - 0.8 * np.exp(LOSSES), 0.1)
    identity, moved = np.maximum(-np.expm1(LOSSES), 0.0), np.where(LOSSES < 0, sign * 4 * UNIT, 0.0)
    found = asked(profile._excess_of_values, values, LOSSES, bound)
    np.testing.assert_allclose(found, np.clip(values - identity + moved, 0, np.minimum(np.exp(LOSSES), 1)), rtol=1e-12)
    found = asked(profile._excess_of_values, values[::-1].copy(), LOSSES, bound)
    np.testing.assert_allclose(found, np.minimum(np.exp(LOSSES), 1.0) if sign > 0 else 0.0)


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_curves_of_single_precision_are_widened(bound, sign):
    excess = np.array([1e-3, 0.0, 0.4, 0.3, 0.2], np.float32)
    grid = LossGrid(0.5, -2, 5)
    found = np.asarray(PrivacyProfile(excess, grid, bound).float64())
    expected = excess.astype(float) * (1 + sign * 2.0**-23) + sign * 1e-38
    np.testing.assert_allclose(found, np.maximum(expected, 0.0), rtol=1e-15)
    wide = PrivacyProfile(np.array([0.9, 0.0, np.nan, -1.0, 2.0]), grid, bound).float64()
    gamma = np.exp(grid.losses)
    worst = 1.0 if bound == "upper" else 0.0
    np.testing.assert_allclose(wide, [gamma[0] * (1 + 1e-12), 0.0, worst, 0.0, 1.0], rtol=1e-14)
