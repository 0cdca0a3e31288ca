"""Masses below a curve, move by move, with roundings that are large enough to be seen in every term."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses.grids import supporting_lines as chord
from jaxacct.losses.grids.supporting_lines import CellSums, line_errors, masses_below, signed_below

ROUNDING, POINTS = 1e-3, 9


@pytest.fixture(autouse=True)
def _large_roundings(in_float64, monkeypatch):
    monkeypatch.setattr(chord, "ROUNDING", ROUNDING)


def differences(chords, error, width):
    """Chords minus the second difference of an error at the points, less by the margin of all that is added up."""
    found = []
    for k in range(POINTS):
        terms = [chords[k]]
        terms += [error[k] / -np.expm1(-width), error[k - 1] / np.expm1(-width)] if k else [error[0]]
        terms += [-error[k + 1] / np.expm1(width), error[k] / np.expm1(width)] if k < POINTS - 1 else []
        found.append(sum(terms) - ROUNDING * sum(map(abs, terms)))
    return found


@pytest.mark.parametrize("width", [0.05, 0.4])
def test_second_differences_and_their_margins(width):
    rng, program = np.random.default_rng(0), jax.jit(lambda *given: signed_below(*given))
    for _ in range(3):
        chords, error = rng.random(POINTS), rng.random(POINTS)
        found = program(chords, error, jnp.asarray(width))
        np.testing.assert_allclose(found, differences(chords, error, width), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("width", [0.1, 0.4])
def test_debts_are_carried_away_and_what_is_left_is_spurious(width):
    rng, left, grow = np.random.default_rng(4), [], 1 + ROUNDING
    lines = jax.jit(lambda sums: jnp.maximum(*line_errors(CellSums(*sums))))
    program = jax.jit(lambda chords, sums: masses_below(chords, CellSums(*sums), jnp.asarray(width)))
    # The chord of the neighbours, P- and Q-mass kept; rounded up.
    up = np.expm1(-width) / np.expm1(-2 * width) * (1 + 2 * ROUNDING)
    down = np.expm1(width) / np.expm1(2 * width) * (1 + 2 * ROUNDING)
    for size in (0.002, 0.03, 0.2, 1.0):
        chords, sums = rng.random(POINTS), rng.random((6, POINTS - 1)) * size
        chords[rng.integers(0, POINTS, 2)] = 0.0
        masses = differences(chords, np.asarray(lines(sums)), width)
        for turn in range(24):
            moved = [max(m, 0.0) for m in masses]
            for k, owed in enumerate(max(-m, 0.0) for m in masses):
                if k == POINTS - 1:
                    moved[k] -= owed  # there is nowhere to go
                elif k == 0 or turn >= 8:
                    moved[k + 1] -= owed * grow
                else:
                    moved[k + 1] -= owed * up
                    moved[k - 1] -= owed * down
            masses = moved
        expected = sum(max(-m, 0.0) for m in masses) * (1 + 1e-9)
        for found, spurious in (program(chords, sums), masses_below(chords, CellSums(*sums), np.float64(width))):
            np.testing.assert_allclose(found, np.maximum(masses, 0.0), rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(spurious, expected, rtol=1e-10, atol=1e-12)
        left.append(float(spurious) > 0)
    assert set(left) == {True, False}
