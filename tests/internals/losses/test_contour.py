"""The contour's bounds against truth computed in another way; NumPy's answers and compiled ones are the same."""

import numpy as np
import pytest

from jaxacct.losses.engines.inversion.inversion_bounds import Size, inversion_bounds
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from tests.losses.test_contour import SETTINGS


def _bounds(kind, size, settings, goal, worst=None):
    noise, rate, reverse, steps = (np.array(column, float)[:, None] for column in zip(*settings, strict=True))
    with np.errstate(all="ignore"):
        return inversion_bounds(kind, size, (GaussianPair(noise, rate, reverse),), steps, goal, worst)


EPSILONS = np.array([2.0, 2.0, 1.5, 1.0, 30.0, 2.0, 1.0, 6.0])


def test_few_points_and_nodes_cost_width_and_not_soundness():
    good_lower, good_upper = _bounds("delta", Size(256, 256), SETTINGS, EPSILONS)
    for size in (Size(24, 16), Size(48, 16), Size(32, 64)):
        lower, upper = _bounds("delta", size, SETTINGS, EPSILONS)
        assert np.all(lower <= good_upper)
        assert np.all(good_lower <= upper)


@pytest.mark.parametrize(("kind", "goal"), [("delta", EPSILONS), ("epsilon", np.full(8, 1e-9))])
def test_next_to_a_worse_direction_the_bound_of_one_tilt_is_enough(kind, goal):
    low, high = _bounds(kind, Size(256, 256), SETTINGS, goal)
    every = np.full(8, np.inf)
    zero, tilted = _bounds(kind, Size(256, 256), SETTINGS, goal, every)  # whatever it is, it is no worse
    assert np.all(zero == 0)
    assert np.all(tilted >= low)
    add = np.array([reverse > 0 for _, _, reverse, _ in SETTINGS])
    assert np.all(tilted[add] <= (1.15 if kind == "epsilon" else 8.0) * high[add])  # Chernoff's
    below, above = _bounds(kind, Size(256, 256), SETTINGS, goal, np.where(add, tilted, 0.999 * low))
    np.testing.assert_array_equal([below, above], np.where(add, [zero, tilted], [low, high]))


def test_where_the_contour_does_not_suit_it_says_so():
    # Hardly any step is sampled; the noise is next to nothing; epsilon lies beyond every loss.
    settings = [(1.0, 1e-6, 0.0, 10.0), (0.001, 0.5, 0.0, 3.0), (1.0, 0.1, 1.0, 5.0)]
    goal = np.array([1.0, 1.0, 1.0])
    lower, upper = _bounds("delta", Size(128, 64), settings, goal)
    assert np.all((lower >= 0) & (upper <= 1) & (lower <= upper))
    assert lower[1] <= 0.875 <= upper[1]
    assert lower[2] == 0.0
    low, high = _bounds("epsilon", Size(128, 64), settings, np.full(3, 1e-5))
    assert np.all(low <= high)


def test_not_a_number_is_no_bound():
    lower, upper = _bounds("delta", Size(128, 64), [(np.nan, 0.1, 0.0, 100.0), (1.0, 0.1, 0.0, np.nan)], np.ones(2))
    assert np.all(upper == 1.0)
    assert np.all(lower == 0.0)
    _, high = _bounds("epsilon", Size(128, 64), [(np.nan, 0.1, 0.0, 100.0)], np.full(1, 1e-5))
    assert np.all(np.isinf(high))


def test_an_epsilon_far_beyond_every_loss_has_next_to_no_delta():
    _, upper = _bounds("delta", Size(256, 256), SETTINGS[:3], np.array([1e3, 1e300, 1e5]))
    assert np.all(upper < 1e-290)
