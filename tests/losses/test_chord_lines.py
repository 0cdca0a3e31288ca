"""Which line of a curve a cell takes from below, and what each line costs: the definitions, cell by cell."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct.losses import chord
from jaxacct.losses.chord import CellSums, line_errors

pytestmark = pytest.mark.usefixtures("in_float64")

FACTOR, CELLS = 4, 6


@pytest.mark.parametrize("theta", [0.0, 2.5, 40.0])
def test_cells_are_summed_as_their_definition_has_it(theta, monkeypatch):
    """Atoms of one cell: what its two ends get, and what lines that touch at either end or in the middle lack."""
    rng, h = np.random.default_rng(0), 0.07
    masses, seen = rng.random(FACTOR * CELLS), []
    monkeypatch.setattr(chord, "masses_below", lambda *x: seen.append(x) or (x[0], jnp.zeros(())))

    @jax.jit
    def both(masses, theta):
        chord.coarsen_below(masses, jnp.asarray(h), FACTOR, theta)
        return chord.coarsen_above(masses, jnp.asarray(h), FACTOR, theta), seen[0]

    above, (chords, sums, widths, tilt) = both(jnp.asarray(masses), jnp.asarray(theta))
    np.testing.assert_allclose(widths, FACTOR * h)
    assert float(tilt) == theta
    with mpmath.workdps(40):
        at = [mpmath.mpf(h) * k for k in range(FACTOR + 1)]
        ends = [mpmath.mpf(0)] * (CELLS + 1)
        for c in range(CELLS):
            cell = [mpmath.mpf(float(m)) for m in masses[c * FACTOR : (c + 1) * FACTOR]]
            # P-mass m at loss l has Q-mass m e^-l; tilts weigh a mass at an end by e^(theta (end - l)).
            right = [m * (1 - mpmath.exp(-x)) * mpmath.exp(-theta * x) for m, x in zip(cell, at, strict=False)]
            left = [
                m * (mpmath.exp(at[-1] - x) - 1) * mpmath.exp(theta * (at[-1] - x))
                for m, x in zip(cell, at, strict=False)
            ]
            near = [1, 1, mpmath.mpf(0.5), 0]  # the half of the cell to the left; the middle's atom is shared
            truth = CellSums(
                sum(r * s for r, s in zip(right, near, strict=True)),
                sum(x * (1 - s) for x, s in zip(left, near, strict=True)),
                sum(right),
                sum(left[1:]),
                sum(m * s for m, s in zip(cell, near, strict=True)),
                sum(m * (1 - s) for m, s in zip(cell, near, strict=True)),
            )
            for name, value in truth._asdict().items():
                assert float(getattr(sums, name)[c]) == pytest.approx(float(value), rel=1e-12), name
            up = [m * (1 - mpmath.exp(-x)) / (1 - mpmath.exp(-at[-1])) for m, x in zip(cell, at, strict=False)]
            ends[c] += sum((m - u) * mpmath.exp(-theta * x) for m, u, x in zip(cell, up, at, strict=False))
            ends[c + 1] += sum(u * mpmath.exp(theta * (at[-1] - x)) for u, x in zip(up, at, strict=False))
        # Above: 64 units, 4 for each unit of the exponent, and 4 for a share next to 1.
        unit = 2.0**-53
        for found, below, truth in zip(np.asarray(above), np.asarray(chords), ends, strict=True):
            assert float(below) == pytest.approx(float(truth), rel=1e-13)
            room = unit * (64 + 4 * theta * FACTOR * h) * truth
            assert 0.85 * room <= found - truth <= 1.15 * room + 4 * unit * truth


def errors(left, right, from_right=False, theta=0.0, widths=0.5):
    """x- and x+ at every point for cells of these half masses; each sum says by its number which one it is."""
    n = len(left)
    number = np.arange(n)
    tags = [
        10.0 + number,
        20.0 + number,
        30.0 + number,
        40.0 + number,
    ]  # right_half, left_half, right_whole, left_whole
    sums = CellSums(*(jnp.asarray(x) for x in (*tags, np.array(left, float), np.array(right, float))))
    from_right = jnp.broadcast_to(jnp.asarray(from_right), n)
    return [
        np.asarray(x)
        for x in jax.jit(line_errors)(sums, jnp.broadcast_to(jnp.asarray(widths), n), jnp.asarray(theta), from_right)
    ]


def lines(left, right, from_right=False, widths=0.5):
    """For every cell: m(iddle), l(eft end) or r(ight end)."""
    before, after = errors(left, right, from_right, widths=widths)
    assert before[0] == after[-1] == 0
    assert all(x == 0 or x >= 10 for x in (*before, *after))
    kinds = {(1, 2): "m", (0, 4): "l", (3, 0): "r"}
    return "".join(kinds[round(a) // 10, round(b) // 10] for a, b in zip(after[:-1], before[1:], strict=True))


def test_lines_touch_where_the_neighbours_allow_it():
    for left, right, taken in (
        # Even densities: lines touch in the middle, the last cell's and its neighbour's at their right ends.
        ([1] * 7, [1] * 7, "mmmmmrr"),
        # Less than a quarter on the right: that cell and the one before touch at their right ends.
        ([1, 1, 1, 0.2, 0.2, 0.2, 0.2], [1, 1, 1, 0.2, 0.2, 0.2, 0.2], "mrrmmrr"),
        ([1, 1, 1, 0.26, 0.26, 0.26, 0.26], [1, 1, 1, 0.26, 0.26, 0.26, 0.26], "mmmmmrr"),
        # On the left: that cell and the one after touch at their left ends.
        ([0.2, 0.2, 1, 1, 1, 1, 1], [0.2, 0.2, 1, 1, 1, 1, 1], "mmllmrr"),
        ([0.26, 0.26, 1, 1, 1, 1, 1], [0.26, 0.26, 1, 1, 1, 1, 1], "mmmmmrr"),
        # A hump: what is next to both kinds of jump follows the left one, unless it is the cell of the right one.
        ([0.1, 0.1, 1, 1, 0.1, 0.1, 0.1], [0.1, 0.1, 1, 1, 0.1, 0.1, 0.1], "mmlrmrr"),
        # A spike at a point, in the halves next to it: both of its cells keep their middles.
        ([0, 0, 9, 0, 0, 0, 0.1], [0, 9, 0, 0, 0, 0, 0.1], "mmmmmrr"),
        ([0, 4, 9, 0, 0, 0, 0.1], [0, 9, 3, 0, 0, 0, 0.1], "mlrmmrr"),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 9], [0.1, 0.1, 0.1, 0.1, 0.1, 9, 0.1], "mmmmmmr"),
    ):
        assert lines(left, right) == taken
        assert lines(left, right, np.arange(7) < 2) == "rr" + taken[2:]


def test_jumps_are_those_of_the_density_not_of_the_mass():
    widths = np.array([0.1, 0.1, 0.3, 0.3, 0.9, 0.9, 0.9])
    assert lines(widths, widths, widths=widths) == "mmmmmrr"
    assert lines(np.ones(7), np.ones(7), widths=widths) == "mmmmmrr"
    assert lines(np.ones(7), np.ones(7), widths=widths**2) == "rrrrmrr"


def test_errors_of_lines_are_rounded_up_by_their_margin():
    for theta in (0.0, 30.0):
        before, after = errors([1] * 7, [1] * 7, theta=theta)
        room = 2.0**-53 * (64 + 4 * 0.5 * theta)
        np.testing.assert_allclose(after[:5] / np.arange(10, 15) - 1, room, rtol=0.1)
        np.testing.assert_allclose(before[1:6] / np.arange(20, 25) - 1, room, rtol=0.1)
