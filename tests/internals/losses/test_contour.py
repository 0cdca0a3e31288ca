"""The contour's bounds against truth computed in another way; NumPy's answers and compiled ones are the same."""

import numpy as np

from jaxacct.losses.engines.contour.bounds import Size, contour_bounds
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from tests.losses.test_contour import SETTINGS
from tests.truth import contour_delta


def _bounds(kind, size, settings, goal):
    noise, rate, reverse, steps = (np.array(column, float)[:, None] for column in zip(*settings, strict=True))
    with np.errstate(all="ignore"):
        return contour_bounds(kind, size, GaussianPair(noise, rate, reverse), steps, goal)


EPSILONS = np.array([2.0, 2.0, 1.5, 1.0, 30.0, 2.0, 1.0, 6.0])


def test_bounds_enclose_the_truth_and_are_tight():
    truth = np.array(
        [contour_delta(s, q, t, e, reverse=r > 0) for (s, q, r, t), e in zip(SETTINGS, EPSILONS, strict=True)]
    )
    lower, upper = _bounds("delta", Size(256, 256), SETTINGS, EPSILONS)
    assert np.all(lower <= truth * (1 + 1e-9))
    assert np.all(truth * (1 - 1e-9) <= upper)
    rare = np.array([rate * steps < 50 and steps > 1e4 for _, rate, _, steps in SETTINGS])  # decays slowly
    assert np.all(upper / lower - 1 < np.where(rare, 2e-4, 3e-7))
    low, high = _bounds("epsilon", Size(256, 256), SETTINGS, truth)
    assert np.all((low <= EPSILONS * (1 + 1e-9)) & (high >= EPSILONS * (1 - 1e-9)))
    assert np.all(high / low - 1 < np.where(rare, 2e-5, 3e-7))


def test_few_points_and_nodes_cost_width_and_not_soundness():
    good_lower, good_upper = _bounds("delta", Size(256, 256), SETTINGS, EPSILONS)
    for size in (Size(24, 16), Size(48, 16), Size(32, 64)):
        lower, upper = _bounds("delta", size, SETTINGS, EPSILONS)
        assert np.all(lower <= good_upper)
        assert np.all(good_lower <= upper)


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


RARE = [(1.93, 1.6e-3, 0.0, 1855.0), (2.6, 1.8e-3, 0.0, 1883.0), (4.3, 1e-3, 0.0, 116.0), (0.6, 1.2e-3, 1.0, 143.0)]


def test_rare_sampling_no_longer_wants_lattices():
    delta = np.full(len(RARE), 1e-6)
    low, high = _bounds("epsilon", Size(1024, 4096), RARE, delta)
    assert np.all(high - low <= 2e-4 * high)
    # The other kind of query, whose taper is chosen without knowing delta, agrees at both ends.
    lower, upper = _bounds("delta", Size(1024, 4096), RARE, high)
    assert np.all(lower <= delta)
    assert np.all(_bounds("delta", Size(1024, 4096), RARE, low)[1] >= delta)
    assert np.all(upper - lower <= 1e-2 * upper)


def test_a_root_is_found_from_a_bad_guess():
    # Conversion from Renyi divergence guesses twice the epsilon here, where delta is all rounding error.
    settings = [(1.187, 0.00238, 0.0, 643.0), (1.341, 0.00146, 0.0, 871.0), (0.941, 0.00115, 0.0, 1974.0)]
    low, high = _bounds("epsilon", Size(2048, 1024), settings, np.array([4e-7, 1.4e-6, 6.5e-7]))
    assert np.all(high - low <= 1e-5 * high)


def test_an_epsilon_far_beyond_every_loss_has_next_to_no_delta():
    _, upper = _bounds("delta", Size(256, 256), SETTINGS[:3], np.array([1e3, 1e300, 1e5]))
    assert np.all(upper < 1e-290)
