"""What fails with some probability is split off exactly: against closed forms in many digits."""

import mpmath
import numpy as np
import pytest

import jaxacct
from tests.truth import contour_delta

GAUSSIAN = jaxacct.PoissonSampled(jaxacct.Gaussian(2.0), 0.05)
RUNS = 300


def _with_failures(delta, failing, runs):
    with mpmath.workdps(400):
        none = (1 - mpmath.mpf(failing)) ** runs
        return float(1 - none + none * mpmath.mpf(delta))


@pytest.mark.parametrize(("failing", "runs"), [(1e-7, 10), (1e-20, 1), (0.3, 2)])
def test_delta_and_epsilon_of_sampled_gaussians_that_may_fail(failing, runs):
    sides = [contour_delta(2.0, 0.05, RUNS, 1.5, reverse=reverse) for reverse in (False, True)]
    truth = _with_failures(max(sides), failing, runs)
    mechanism = jaxacct.Composed([GAUSSIAN, jaxacct.ApproximateDP(0.0, failing)], [RUNS, runs])
    lower, upper = jaxacct.delta(mechanism, 1.5)
    assert lower <= truth * (1 + 1e-9)
    assert truth * (1 - 1e-9) <= upper <= lower * (1 + 1e-6)
    low, high = jaxacct.epsilon(mechanism, truth)
    assert low <= 1.5 * (1 + 1e-8)
    assert 1.5 * (1 - 1e-8) <= high <= low * (1 + 1e-6)


def test_no_epsilon_is_left_where_failing_is_likelier_than_delta():
    failing = np.array([1e-5, 1e-7, 1.0])
    mechanism = jaxacct.Composed([GAUSSIAN, jaxacct.ApproximateDP(0.0, failing)], [RUNS, 1])
    lower, upper = jaxacct.epsilon(mechanism, np.array([1e-6, 1e-6, 0.5]))
    assert np.isinf(upper[[0, 2]]).all()
    assert np.isinf(lower[[0, 2]]).all()
    assert lower[1] <= upper[1] < np.inf


def test_all_runs_that_reveal_nothing_else_leave_the_rest_alone():
    once = jaxacct.Composed([GAUSSIAN, jaxacct.ApproximateDP(0.0, 0.0)], [RUNS, 5])
    assert jaxacct.delta(once, 1.5) == jaxacct.delta(GAUSSIAN, 1.5, steps=RUNS)


@pytest.mark.parametrize(("failing", "runs"), [(1e-290, 3), (1e-12, 10**9), (0.5, 900)])
def test_where_nothing_else_is_left_the_bounds_are_those_of_failing(failing, runs):
    mechanism = jaxacct.Composed([jaxacct.Gaussian(1e3), jaxacct.ApproximateDP(0.0, failing)], [1, runs])
    truth = _with_failures(0.0, failing, runs)
    lower, upper = jaxacct.delta(mechanism, 1.0)
    assert lower <= truth <= upper <= lower * (1 + 1e-10)
