"""Where a contour is put: at the best of all tilts, whatever the size of the losses; and what is read off beside it."""

import numpy as np
import pytest

from jaxacct.losses.engines.contour.bounds import Size, contour_bounds, plan, prepare
from jaxacct.losses.engines.contour.rough import rough_cumulants
from jaxacct.losses.engines.contour.tilted import tilted_upper
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

# noise, rate, reverse, count; epsilon, delta
ROWS = np.array([
    (1.0, 0.01, 0.0, 1000.0, 1.0, 1e-5),
    (0.6, 0.001, 0.0, 300.0, 3.0, 1e-9),  # rare and large losses
    (30.0, 0.5, 0.0, 100.0, 0.3, 1e-6),
    (2.0, 0.3, 1.0, 50.0, 1.5, 1e-4),
    (1e6, 0.01, 0.0, 1.0, 3e-8, 1e-9),  # tilts of 1e8
    (1e6, 0.5, 0.0, 10_000.0, 3e-4, 1e-5),
    (3e5, 0.1, 0.0, 100.0, 2e-5, 1e-8),
    (1.0, 1.0, 0.0, 3.0, 25.0, 1e-40),
])  # fmt: skip
PAIRS = GaussianPair(*(ROWS[:, k, None] for k in range(3)))
COUNTS = ROWS[:, 3, None]


def says(kind, theta, goal, cut):
    """What a tilt says of log delta, or of epsilon; ``theta`` of shape ``(N, B)``."""
    k0 = COUNTS[:, 0] * rough_cumulants(PAIRS, theta[..., None], cut)[0][..., 0]
    bound = k0 - np.log1p(theta) - theta * np.log1p(1 / theta)
    return bound - theta * goal if kind == "delta" else (bound - np.log(goal)) / theta


@pytest.mark.parametrize(("kind", "column"), [("delta", 4), ("epsilon", 5)])
def test_the_tilt_is_the_best_of_all_that_a_slightly_larger_one_would_not_spoil(kind, column):
    goal = ROWS[:, column]
    with np.errstate(all="ignore"):
        chosen = plan(kind, PAIRS, COUNTS, goal)
        every = np.geomspace(1e-6, 1e9, 6000)[:, None] + np.zeros(len(ROWS))
        each = (says(kind, every * larger, goal, chosen.cut) for larger in (1.0, 1.15))
        best = np.nanmin(np.maximum(*each), 0)
        found = says(kind, chosen.theta[None], goal, chosen.cut)[0]
    room = 0.02 * np.maximum(25, np.abs(best)) if kind == "delta" else 0.005 * best
    assert np.all(found <= best + room)
    np.testing.assert_allclose(chosen.epsilon if kind == "delta" else np.exp(chosen.log_delta), goal, rtol=1e-13)
    assert np.all(chosen.deviation > 0)


@pytest.mark.parametrize(("kind", "column"), [("delta", 4), ("epsilon", 5)])
def test_the_guess_of_the_other_number_is_a_good_one(kind, column):
    some = [0, 2, 3]
    pairs, goal = GaussianPair(*(ROWS[some, k, None] for k in range(3))), ROWS[some, column]
    with np.errstate(all="ignore"):
        low, high = contour_bounds(kind, Size(512, 1024), pairs, COUNTS[some], goal)
        guess = plan(kind, pairs, COUNTS[some], goal)
    assert np.all((low <= high) & (high - low <= 1e-6 * high))
    if kind == "delta":
        assert np.all(np.abs(guess.log_delta - np.log(high)) < 0.7)
    else:
        assert np.all(np.abs(guess.epsilon / high - 1) < 0.2)


@pytest.mark.parametrize(("kind", "column"), [("delta", 4), ("epsilon", 5)])
def test_one_tilt_bounds_from_above_and_is_all_that_a_direction_needs_next_to_a_worse_one(kind, column):
    goal = ROWS[:, column]
    with np.errstate(all="ignore"):
        chosen = plan(kind, PAIRS, COUNTS, goal)
        low, high = contour_bounds(kind, Size(512, 1024), PAIRS, COUNTS, goal)
        upper = tilted_upper(kind, 96, PAIRS, chosen.theta, chosen.cut, COUNTS, goal)
        said = says(kind, chosen.theta[None], goal, chosen.cut)[0]
        worst = np.where(ROWS[:, 0] > 1, upper, high / 2)
        below, above = contour_bounds(kind, Size(512, 1024), PAIRS, COUNTS, goal, worst)
    assert np.all(upper >= low)
    add = ROWS[:, 2] > 0  # without a taper few points are enough
    assert np.all(upper[add] <= 1.0001 * (np.exp(said) if kind == "delta" else said)[add])
    some = ROWS[:, 0] > 1
    assert np.all((below <= low) & (low <= above))
    assert np.all(above[some] <= upper[some])
    np.testing.assert_array_equal([below[~some], above[~some]], [low[~some], high[~some]])


def test_beyond_the_largest_loss_of_all_that_runs_nothing_is_left():
    """Added records have losses of -log(1 - rate) at most; removed ones have no largest."""
    pairs = GaussianPair(*(np.array([x, x]) for x in ([1.0, 2.0], [0.1, 0.2], [1.0, 1.0])))
    counts = np.array([[3.0, 2.0], [3.0, 0.0]])
    largest = counts @ -np.log1p([-0.1, -0.2])
    with np.errstate(all="ignore"):
        for share, nothing in ((1 + 1e-8, True), (1 - 1e-8, False)):
            low, high = contour_bounds("delta", Size(64, 64), pairs, counts, largest * share)
            assert np.all((high == 0) == nothing)
            assert np.all(low <= high)
        low, high = contour_bounds("epsilon", Size(64, 64), pairs, counts, np.full(2, 1e-300))
        assert np.all(high <= largest * (1 + 2e-9))
        assert np.all(low <= high)
        other = GaussianPair(pairs.noise, pairs.rate, np.zeros((2, 2)))
        assert np.all(contour_bounds("delta", Size(64, 64), other, counts, 2 * largest)[1] > 0)


def test_frequencies_are_as_far_apart_as_aliases_allow():
    """The period is what brings the best bound of every alias to e^-18 of delta, and 5 percent more."""
    with np.errstate(all="ignore"):
        made = prepare("delta", Size(256, 256), PAIRS, COUNTS, ROWS[:, 4])
    p, tilts, n = made.plan, made.tilts, made.tilts.shape[0] // 2
    excess = made.log_moments - tilts * p.epsilon - np.log1p(tilts) - p.log_delta + 18.0
    gap = np.abs(tilts - p.theta)
    with np.errstate(divide="ignore"):
        needed = np.where(gap > 0, np.maximum(excess, 1.0) / gap, np.inf)
    period = np.maximum(needed[:n].min(0), needed[n:].min(0)) * 1.05
    np.testing.assert_allclose(2 * np.pi / made.spacing, period, rtol=1e-12)
    assert np.all((made.rest >= 0) & (made.rest <= 1))
