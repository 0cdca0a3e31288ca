"""Numbers read off laws and curves, one argument at a time, with roundings that are large enough to be seen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.losses.curves import profile
from jaxacct.losses.grids import hockey_stick as pld_curves

UNIT = 1e-5


GRID = LossGrid(0.5, -4, 9)


LOSSES = GRID.losses


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


MASSES = np.array([0.1, 0.05, 0.0, 0.2, 0.1, 0.15, 0.05, 0.1, 0.2])
SIDES = pytest.mark.parametrize("sign", [1, -1])


@pytest.fixture(autouse=True)
def _large_roundings(in_float64, monkeypatch):
    monkeypatch.setattr(pld_curves, "EPS", UNIT)
    monkeypatch.setattr(profile, "EPS", UNIT)


def curve(masses, at):
    return sum(m * max(-np.expm1(at - x), 0.0) for m, x in zip(masses, LOSSES, strict=True))


def relative(n=9):
    return UNIT * (4 * n + 16)


@SIDES
def test_hockey_sticks(sign):
    for infinity in (0.01, 0.0):
        found = asked(pld_curves.hockey_stick, MASSES, np.array(infinity), GRID, AT, float(sign))
        for at, one in zip(AT, found, strict=True):
            value = curve(MASSES, at) + infinity
            beside = np.abs(LOSSES - at) <= 4 * UNIT * (abs(at) + 0.5)
            mass = MASSES[(at < LOSSES) | (beside & (at >= LOSSES))].sum()
            if at >= LOSSES[-1] and not beside[-1]:
                mass = 0.0
            value += sign * (relative() * value + 2 * UNIT * abs(at) * (mass + value))
            floor = max(-np.expm1(at), 0.0) * (1 + sign * 2.0**-50)
            assert one == pytest.approx(min(max(value, floor), 1.0), rel=1e-12, abs=1e-15), at


@SIDES
def test_hockey_sticks_of_no_mass_and_of_no_numbers(sign):
    at = np.linspace(-0.3, 5.0, AT.size)
    none = asked(pld_curves.hockey_stick, 0 * MASSES, np.array(0.25), GRID, at, float(sign))
    np.testing.assert_allclose(none, np.maximum(0.25 * (1 + sign * (relative() + 2 * UNIT * abs(at))), -np.expm1(at)))
    found = asked(pld_curves.hockey_stick, np.nan * MASSES, np.array(0.25), GRID, at, float(sign))
    np.testing.assert_allclose(found, 1.0 if sign > 0 else np.maximum(-np.expm1(at), 0.0), rtol=1e-12)


@SIDES
def test_trade_offs(sign):
    for grid in (GRID, LossGrid(500.0, -1, 9)):
        losses = grid.losses
        masses = MASSES if grid == GRID else np.array([0.0, 0.2, 0.0, 0.3, 0, 0, 0, 0, 0.4])
        for infinity in (0.01, 0.0):
            alphas = np.array([0.0, 1e-12, 0.01, 0.2, 0.6, 0.99, 1.0])
            found = asked(pld_curves.trade_off, masses, np.array(infinity), grid, alphas, float(sign))
            for alpha, one in zip(alphas, found, strict=True):
                total = min(masses.sum() + infinity, 1.0) * (1 + sign * relative())
                lines = [0.0 if sign > 0 else 1 - total]
                for loss in losses[losses <= 700] if sign > 0 else losses:
                    stick = sum(m * -np.expm1(min(loss - x, 0.0)) for m, x in zip(masses, losses, strict=True))
                    gamma = np.exp(min(loss, 700.0)) * (1 + sign * 4 * UNIT * (1 + abs(loss)))
                    lines.append(1 - (stick + infinity) * (1 + sign * relative()) - gamma * alpha)
                most = (1 - alpha) * (1 if sign > 0 else 1 + 2 * UNIT)
                expected = min(max(max(lines) - sign * 4 * UNIT, 0.0), most)
                assert one == pytest.approx(expected, rel=1e-12, abs=1e-15)
    found = asked(pld_curves.trade_off, np.nan * MASSES, np.array(0.0), GRID, np.full(7, 0.25), float(sign))
    np.testing.assert_allclose(found, 0.0 if sign > 0 else 0.75 * (1 + 2 * UNIT), rtol=1e-12)


@SIDES
def test_moments_and_tilts(sign):
    held = MASSES > 0
    for theta in (0.0, 1.0, 7.0):
        terms = theta * LOSSES[held] + np.log(MASSES[held])
        value = np.log(np.exp(terms).sum())
        error = 4 * UNIT * (4 + np.abs(terms).max()) + 8 * UNIT * theta * 2 + relative() + 4 * UNIT * abs(value)
        found = asked(pld_curves.log_moment, MASSES, GRID, np.array(theta), float(sign))
        assert found == pytest.approx(value + sign * error, rel=1e-12)
        for normaliser in (0.3, -5.0):
            made = asked(pld_curves.tilted, MASSES, GRID, np.array(theta), np.array(normaliser), float(sign))
            exponent = terms - normaliser
            error = 4 + theta * np.abs(LOSSES[held]) + np.abs(np.log(MASSES[held])) + abs(normaliser) + np.abs(exponent)
            np.testing.assert_allclose(made[held], np.exp(exponent) * (1 + sign * 4 * UNIT * error), rtol=1e-12)
            assert not made[~held].any()
    nothing = asked(pld_curves.log_moment, 0 * MASSES, GRID, np.array(1.0), float(sign))
    assert nothing == -np.inf
    steep = asked(pld_curves.tilted, MASSES, GRID, np.array(0.0), np.array(3e4), -1.0)
    assert np.all(steep >= 0)


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
