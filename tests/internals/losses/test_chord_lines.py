"""Which line of a curve a cell takes from below, and what each line costs: the definitions, cell by cell."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses.grids.supporting_lines import CellSums, line_errors

pytestmark = pytest.mark.usefixtures("in_float64")


def errors(left, right, from_right=False):
    """x- and x+ at every point for cells of these half masses; each sum says by its number which one it is."""
    number = np.arange(len(left))
    tags = [base + number for base in (10.0, 20.0, 30.0, 40.0)]  # right_half, left_half, right_whole, left_whole
    sums = CellSums(*(jnp.asarray(x) for x in (*tags, np.array(left, float), np.array(right, float))))
    from_right = jnp.broadcast_to(jnp.asarray(from_right), len(left))
    return [np.asarray(x) for x in jax.jit(line_errors)(sums, from_right)]


def lines(left, right, from_right=False):
    """For every cell: m(iddle), l(eft end) or r(ight end)."""
    before, after = errors(left, right, from_right)
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


def test_errors_of_lines_are_rounded_up_by_their_margin():
    before, after = errors([1] * 7, [1] * 7)
    np.testing.assert_allclose(after[:5] / np.arange(10, 15) - 1, 2.0**-53 * 64, rtol=0.1)
    np.testing.assert_allclose(before[1:6] / np.arange(20, 25) - 1, 2.0**-53 * 64, rtol=0.1)
