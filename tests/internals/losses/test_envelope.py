"""Convex envelopes of a few points against every chord there is, with roundings that are large enough to be seen."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses.grids import convex_envelope as envelope
from jaxacct.losses.grids.convex_envelope import convex_below, infimum_excess, lower_hull
from jaxacct.losses.grids.hockey_stick import at_lattice_points
from jaxacct.losses.grids.supporting_lines import CellSums, line_errors, signed_below

pytestmark = pytest.mark.usefixtures("in_float64")


def lowest_chord(x, y, i):
    """The convex envelope of points at x[i], and the two points whose chord it is."""
    chords = [(y[i], i, i)]
    for j, k in itertools.product(range(i), range(i + 1, len(x))):
        share = (x[i] - x[j]) / (x[k] - x[j])
        chords.append((y[j] * (1 - share) + y[k] * share, j, k))
    return min(chords)


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_an_infimum_of_profiles_is_the_envelope_but_for_its_rounding(bound, monkeypatch):
    unit = 1e-5
    monkeypatch.setattr(envelope, "EPS", unit)
    rng, losses = np.random.default_rng(3), np.array([-2.0, -1.1, -0.7, -0.1, 0.2, 0.9, 1.0, 2.2, 3.5, 5.0])
    program, seen = jax.jit(lambda y: envelope._envelope(y, jnp.asarray(losses), bound)), set()
    for k in range(12):
        excess = rng.random(10) ** (1 + k % 4) * np.exp(-np.abs(losses)) * 0.2
        found = np.asarray(program(excess))
        gamma, y = np.append(0.0, np.exp(losses)), np.append(0.0, excess)
        flat = np.minimum(gamma, 1.0)
        for i in range(1, 11):
            value, before, after = lowest_chord(gamma, y - flat, i)
            expected = y[i]
            if before < i:
                straddles = gamma[before] < 1 < gamma[after]
                size = max(y[before], y[after]) + straddles
                error = 16 * unit * (1 + np.log(gamma[after] / gamma[i])) * size
                value += flat[i]
                expected = value + error if bound == "upper" else max(min(value - error, y[i]), 0.0)
                seen.add((bool(straddles), before == 0, expected == 0))
            assert found[i - 1] == pytest.approx(expected, rel=1e-11, abs=1e-14)
    assert len(seen) >= 3


def test_the_infimum_is_that_of_the_least_member_at_every_point():
    losses = np.array([-0.5, 0.0, 0.5])
    family = np.array([[[0.1, 0.2, 0.05], [0.3, 0.3, 0.3]], [[0.2, 0.1, 0.04], [0.1, 0.4, 0.2]]])
    found = np.asarray(infimum_excess(jnp.asarray(family), jnp.asarray(losses), "upper"))
    for row, low in zip(found, family.min(0), strict=True):
        gamma, y = np.append(0.0, np.exp(losses)), np.append(0.0, low)
        flat = np.minimum(gamma, 1.0)
        expected = [lowest_chord(gamma, y - flat, i)[0] + flat[i] for i in range(1, 4)]
        np.testing.assert_allclose(row, expected, rtol=1e-12)


def test_vertices_are_those_below_every_chord():
    rng = np.random.default_rng(0)
    hull = jax.jit(lower_hull)
    for bends in (0.0, 1.0):
        for k in range(10):
            x, y, kinks = np.sort(rng.random(9)), rng.random(9) * 0.5 ** (k % 3), bends * rng.random(9)
            kept = np.asarray(hull(x, y, kinks))
            expected = [lowest_chord(x, y - kinks, i)[1] == i for i in range(9)]
            np.testing.assert_array_equal(kept, expected)
    x = np.array([0.0, 1.0, 2.0, 3.0, 3.0])
    np.testing.assert_array_equal(hull(x, np.array([3.0, 2.0, 1.0, 0.0, 5.0]), np.zeros(5)), [1, 0, 0, 1, 1])


POINTS, WIDTH = 12, 0.3


def placed(atoms):
    """Chords and cell sums of atoms (loss, mass) on a lattice from 0 on, by their definitions."""
    chords, sums = np.zeros(POINTS), np.zeros((6, POINTS - 1))
    for loss, mass in atoms:
        k = int(np.ceil(loss / WIDTH)) - 1
        low, high, half = loss - k * WIDTH, (k + 1) * WIDTH - loss, int(loss - k * WIDTH > WIDTH / 2)
        up = min(mass * np.expm1(-low) / np.expm1(-WIDTH), mass)
        chords[k], chords[k + 1] = chords[k] + mass - up, chords[k + 1] + up
        right, left = mass * -np.expm1(-low), mass * np.expm1(high)
        sums[2:4, k] += right, left
        sums[half, k] += (right, left)[half]
        sums[4 + half, k] += mass
    return chords, sums


def test_below_a_spike_lies_the_envelope_of_its_lines_and_never_more(monkeypatch):
    """A share is taken off what comes out; where it is negative, what is too much has to be seen and taken off."""
    off = 1e-4
    monkeypatch.setattr(envelope, "relative_error", lambda n: off)
    rng, width = np.random.default_rng(2), jnp.asarray(WIDTH)

    @jax.jit
    def program(chords, sums, share):
        monkeypatch.setattr(envelope, "_SHARE", share)
        none = jnp.maximum(*line_errors(CellSums(*sums)))
        return convex_below(chords, CellSums(*sums), width), signed_below(chords, none, width)

    lines = jax.jit(lambda sums, right: line_errors(CellSums(*sums), right))
    curve_of = jax.jit(lambda masses: at_lattice_points(masses, WIDTH)[1])
    gamma, mended = np.append(0.0, np.exp(WIDTH * np.arange(POINTS))), 0
    gaps = []
    for k, share in itertools.product(range(8), (1e-3, -1e-3)):
        atoms = [(rng.uniform(0.1, 3.2), rng.random() * 10.0 ** -rng.integers(0, 4)) for _ in range(3 + k)]
        if k == 0:  # nothing to mend: the lattice holds the losses
            atoms = [(3 * WIDTH, 0.3), (7 * WIDTH, 0.5)]
        chords, sums = placed(atoms)
        found, plain = (np.asarray(x) for x in program(chords, sums, share))
        if np.all(plain >= 0):
            np.testing.assert_allclose(found, plain, rtol=1e-12)
            continue
        mended += 1
        truth = np.asarray(curve_of(chords))
        curve = truth * (1 - 2 * off)
        left, right = (np.asarray(x) for x in lines(sums, sums[1] > 0.25 * curve[1:]))
        below = np.minimum(curve - left, np.maximum(curve - right, 0.0))
        # The masses are those of the chords minus what is known to be above, so all that is not known stays.
        meant = np.append(chords.sum(), below + 2 * off * truth)
        meant = np.array([lowest_chord(gamma, meant, i)[0] for i in range(1, POINTS + 1)]) * (1 - share)
        gap = max((meant * (1 + 2 * off) - below).max(), 0.0)
        gaps.append(gap)
        # Lowered by its value where it is the last that is no less than the gap.
        least = meant[meant >= gap].min(initial=np.inf) if gap > 1e-15 else 0.0
        ours = np.asarray(curve_of(found))
        assert np.all(found >= 0)
        assert np.all(ours <= below * (1 + 1e-12) + 1e-15)
        np.testing.assert_allclose(ours, np.maximum(meant - least, 0.0), rtol=1e-7, atol=1e-12)
    assert 8 <= mended <= 14
    assert max(gaps) > 0
