"""Masses below and above a curve, move by move, with roundings that are large enough to be seen in every term."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses import chord
from jaxacct.losses.chord import CellSums, coarsen_above, line_errors, masses_below, signed_below

UNIT, ROUNDING = 1e-4, 1e-3
WIDTHS = np.array([0.1, 0.2, 0.2, 0.3, 0.15, 0.4, 0.1, 0.25])
POINTS = len(WIDTHS) + 1


@pytest.fixture(autouse=True)
def _large_roundings(in_float64, monkeypatch):
    monkeypatch.setattr(chord, "UNIT", UNIT)
    monkeypatch.setattr(chord, "ROUNDING", ROUNDING)


def margin(theta, cell):
    return ROUNDING + 4 * UNIT * theta * WIDTHS[cell]


def next_to(theta, k):
    """The larger margin of the cells next to a point."""
    return max(margin(theta, cell) for cell in (k - 1, k) if 0 <= cell < len(WIDTHS))


def differences(chords, error, theta):
    """Chords minus the second difference of an error at the points, less by the margin of all that is added up."""
    found = []
    for k in range(POINTS):
        terms = [chords[k]]
        if k == 0:
            terms.append(error[0])
        else:
            w = WIDTHS[k - 1]
            terms += [error[k] / -np.expm1(-w), error[k - 1] * np.exp(theta * w) / np.expm1(-w)]
        if k < POINTS - 1:
            w = WIDTHS[k]
            terms += [-error[k + 1] * np.exp(-theta * w) / np.expm1(w), error[k] / np.expm1(w)]
        found.append(sum(terms) - next_to(theta, k) * sum(map(abs, terms)))
    return found


@pytest.mark.parametrize("theta", [0.0, 7.0])
def test_second_differences_and_their_margins(theta):
    rng, program = np.random.default_rng(0), jax.jit(lambda *given: signed_below(*given))
    for _ in range(3):
        chords, error = rng.random(POINTS), rng.random(POINTS)
        found = program(chords, error, jnp.asarray(WIDTHS), jnp.asarray(theta))
        np.testing.assert_allclose(found, differences(chords, error, theta), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("theta", [0.0, 7.0])
def test_debts_are_carried_away_and_what_is_left_is_spurious(theta):
    rng, left = np.random.default_rng(4), []
    given = jnp.asarray(WIDTHS), jnp.asarray(theta)
    lines = jax.jit(lambda sums: jnp.maximum(*line_errors(CellSums(*sums), *given)))
    program = jax.jit(lambda chords, sums: masses_below(chords, CellSums(*sums), *given))
    grow = [np.exp(theta * w) * (1 + margin(theta, k)) for k, w in enumerate(WIDTHS)]
    shrink = [np.exp(-theta * w) * (1 + margin(theta, k)) for k, w in enumerate(WIDTHS)]
    for size in (0.002, 0.03, 0.2, 1.0):
        chords, sums = rng.random(POINTS), rng.random((6, POINTS - 1)) * size
        chords[rng.integers(0, POINTS, 2)] = 0.0
        error = np.asarray(lines(sums))
        masses = differences(chords, error, theta)
        for turn in range(24):
            moved = [max(m, 0.0) for m in masses]
            for k, owed in enumerate(max(-m, 0.0) for m in masses):
                if k == POINTS - 1:
                    moved[k] -= owed  # there is nowhere to go
                elif k == 0 or turn >= 8:
                    moved[k + 1] -= owed * grow[k]
                else:  # the chord of the neighbours, P- and Q-mass kept; rounded up
                    before, after = WIDTHS[k - 1], WIDTHS[k]
                    up = np.expm1(-before) / np.expm1(-before - after) * (1 + ROUNDING)
                    down = np.expm1(after) / np.expm1(before + after) * (1 + ROUNDING)
                    moved[k + 1] -= owed * up * grow[k]
                    moved[k - 1] -= owed * down * shrink[k - 1]
            masses = moved
        found, spurious = program(chords, sums)
        np.testing.assert_allclose(found, np.maximum(masses, 0.0), rtol=1e-10, atol=1e-10)
        expected = sum(max(-m, 0.0) for m in masses) * (1 + 1e-9)
        np.testing.assert_allclose(spurious, expected, rtol=1e-10, atol=1e-12)
        left.append(float(spurious) > 0)
    assert set(left) == {True, False}


@pytest.mark.parametrize("theta", [0.0, 7.0])
def test_masses_above_are_rounded_up_by_the_margin_of_their_width(theta):
    factor, h, masses = 4, 0.07, np.random.default_rng(1).random(12)
    found = np.asarray(jax.jit(lambda *given: coarsen_above(*given[:2], factor, given[2]))(masses, h, theta))
    expected = np.zeros(4)
    for i, mass in enumerate(masses):
        cell, at = i // factor, i % factor * h
        up = np.expm1(-at) / np.expm1(-factor * h)
        expected[cell] += mass * np.exp(-theta * at) * (1 - up + 4 * UNIT)
        expected[cell + 1] += mass * np.exp(theta * (factor * h - at)) * up
    np.testing.assert_allclose(found, expected * (1 + ROUNDING + 4 * UNIT * theta * factor * h), rtol=1e-12)
