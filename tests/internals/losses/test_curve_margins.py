"""Numbers read off laws and curves, one argument at a time, with roundings that are large enough to be seen."""

import functools

import jax
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
