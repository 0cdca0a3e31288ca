"""calibrate against closed forms, brute force and dp_accounting: sound in some tests, tight in others."""

import jax
import numpy as np
import pytest
import scipy.optimize
import scipy.special

import jaxacct
from jaxacct import Composed, FromProfile, FromTables, Gaussian, Laplace, PoissonSampled, adversary, calibrate, filters
from tests.refusals import all_refused


def _analytic_gaussian(epsilon, delta, steps=1):
    """The least sigma (Balle, Wang 2018, Theorem 8): steps runs are one of noise sigma / sqrt(steps)."""

    def excess(log_mu):
        mu = np.exp(log_mu)
        first = scipy.special.log_ndtr(mu / 2 - epsilon / mu)
        second = epsilon + scipy.special.log_ndtr(-mu / 2 - epsilon / mu)
        # Far in the tail the difference is lost in rounding: there the mu is too small anyway.
        return first + np.log(max(-np.expm1(second - first), 1e-300)) - np.log(delta)

    return np.sqrt(steps) / np.exp(scipy.optimize.brentq(excess, -12.0, 12.0, xtol=1e-13))


def test_the_analytic_gaussian_mechanism_lies_between_what_fails_and_what_meets():
    """Tightly, after few batches; the float that comes back meets the target when it is asked again."""
    epsilon = np.array([0.001, 0.1, 1.0, 10.0, 100.0])
    delta = np.array([1e-30, 1e-5, 0.2])[:, None]
    found = calibrate(Gaussian, epsilon, delta, steps=100)
    truth = np.array([[_analytic_gaussian(e, d, 100) for e in epsilon] for d in delta[:, 0]])
    assert found.parameter.shape == (3, 5)
    assert np.all(found.refuted <= truth * (1 + 1e-9))
    assert np.all(truth * (1 - 1e-9) <= found.parameter)
    assert np.all(found.parameter / truth - 1 <= 1e-4)
    assert np.all(found.parameter / found.refuted - 1 <= 4.1e-4)
    assert found.evaluations <= 8
    again = jaxacct.delta(Gaussian(found.parameter), epsilon, steps=100)
    assert np.all(again.upper <= delta)
    np.testing.assert_array_equal(again, found.delta)
    finer = calibrate(Gaussian, 1.0, 1e-5, tolerance=1e-9)
    assert 0 <= finer.parameter / _analytic_gaussian(1.0, 1e-5) - 1 <= 2e-9
    assert finer.parameter.shape == ()


def test_a_bracket_of_nine_decades_costs_no_more_queries_than_none():
    step = lambda sigma: PoissonSampled(Gaussian(sigma), 0.05)  # noqa: E731
    wide = calibrate(step, 3.0, 1e-5, steps=200, bracket=(0.05, 1e8))
    assert wide == calibrate(step, 3.0, 1e-5, steps=200)


def test_curves_that_jump_are_searched_in_few_batches():
    # Delta falls to 0 at once where the largest loss of all is epsilon.
    found = calibrate(Laplace, np.array([0.1, 0.5, 1.0, 2.0, 8.0]), 1e-5, steps=7)
    assert found.evaluations <= 30
    assert np.all(found.parameter / found.refuted - 1 <= 2e-4)


def test_sampled_noise_agrees_with_dp_accounting():
    accounting = pytest.importorskip("dp_accounting")
    from dp_accounting.pld import PLDAccountant

    rate, epsilon, delta, steps = np.array([[0.01, 1.0, 1e-5, 1000], [0.05, 4.0, 1e-6, 300]]).T
    found = calibrate(lambda sigma: PoissonSampled(Gaussian(sigma), rate), epsilon, delta, steps=steps)
    again = jaxacct.delta(PoissonSampled(Gaussian(found.parameter), rate), epsilon, steps=steps)
    assert np.all(again.upper <= delta)
    assert np.all(found.parameter / found.refuted - 1 <= 1.01e-2)

    def event(sigma):
        step = accounting.PoissonSampledDpEvent(rate[0], accounting.GaussianDpEvent(sigma))
        return accounting.SelfComposedDpEvent(step, int(steps[0]))

    near = accounting.ExplicitBracketInterval(0.99 * found.parameter[0], 1.01 * found.parameter[0])
    theirs = accounting.calibrate_dp_mechanism(PLDAccountant, event, epsilon[0], delta[0], near, tol=1e-4)
    assert found.parameter[0] == pytest.approx(theirs, rel=3e-4)


def test_most_steps_are_those_of_a_brute_force_search():
    steps = np.arange(1, 65)
    truth = jaxacct.delta(Gaussian(8.0), 1.0, steps=steps)
    goal = np.array([1e-12, 1e-6, 1e-3])
    found = calibrate(lambda n: Gaussian(8.0), 1.0, goal, steps=lambda n: n, seek="largest", whole=True)
    np.testing.assert_array_equal(found.parameter, [(truth.upper <= target).sum() for target in goal])
    np.testing.assert_array_equal(found.refuted, found.parameter + 1)


def test_whole_numbers_may_be_exact_far_beyond_the_tolerance():
    goal = {"epsilon": 0.5, "delta": 1e-5}
    loose, exact = (
        calibrate(lambda n: Composed([Gaussian(1e3)], [n]), **goal, seek="largest", whole=True, tolerance=tolerance)
        for tolerance in (1e-3, 0)
    )
    most = np.floor((1e3 / _analytic_gaussian(0.5, 1e-5)) ** 2)
    assert exact.parameter == most
    assert exact.refuted == most + 1
    assert loose.parameter == np.rint(loose.parameter)
    assert most * (1 - 2e-3) <= loose.parameter <= most


@pytest.mark.slow
def test_the_largest_rate_is_certified_and_tight():
    step = lambda rate: PoissonSampled(Gaussian(1.0), rate)  # noqa: E731
    epsilon = np.array([0.5, 2.0])
    found = calibrate(step, epsilon, 1e-5, steps=1000, seek="largest", bracket=(1e-6, 1))
    assert np.all(jaxacct.delta(step(found.parameter), epsilon, steps=1000).upper <= 1e-5)
    assert np.all(jaxacct.delta(step(found.refuted), epsilon, steps=1000).lower > 1e-5)
    assert np.all(found.refuted / found.parameter - 1 <= 1.01e-2)


def test_arrays_inside_the_mechanism_broadcast_with_the_targets():
    sensitivity = np.array([[1.0], [2.0]])
    found = calibrate(lambda sigma: Gaussian(sigma, sensitivity), np.array([0.5, 1.0, 2.0]), 1e-5)
    truth = sensitivity * np.array([_analytic_gaussian(e, 1e-5) for e in (0.5, 1.0, 2.0)])
    np.testing.assert_allclose(found.parameter, truth, rtol=1.1e-4)


def test_an_end_of_the_bracket_that_meets_is_the_answer_itself():
    found = calibrate(Gaussian, np.array([1.0, 50.0]), 1e-5, bracket=(0.3, 100.0))
    assert found.parameter[1] == 0.3
    assert np.isnan(found.refuted[1])
    assert found.delta.upper[1] <= 1e-5
    assert calibrate(Gaussian, 1.0, 1e-5, bracket=(5.0, 5.0)).parameter == 5.0


def test_targets_that_cannot_be_reached_are_named_or_nan():
    words = r"got epsilon 0\.1 and delta 1e-05, for which its most private end, 2, provably"
    all_refused(
        (words, lambda: calibrate(Gaussian, np.array([10.0, 0.1]), 1e-5, bracket=(0.1, 2.0))),
        # A wrong direction is an error and no wrong number.
        ("see whether seek fits", lambda: calibrate(Gaussian, 1.0, 1e-5, seek="largest", bracket=(0.1, 100.0))),
        ("concrete", lambda: jax.jit(lambda epsilon: calibrate(Gaussian, epsilon, 1e-5).parameter)(1.0)),
    )
    found = calibrate(Gaussian, np.array([10.0, 0.1]), 1e-5, bracket=(0.1, 2.0), unreachable="nan")
    assert np.isnan(found.parameter[1])
    assert np.isnan(found.delta.upper[1])
    assert found.parameter[0] == pytest.approx(_analytic_gaussian(10.0, 1e-5), rel=1e-4)


def test_progress_counts_up_to_every_target():
    calls = []
    found = calibrate(Gaussian, np.array([0.5, 1.0, 2.0]), 1e-5, progress=lambda *call: calls.append(call))
    assert len(calls) == found.evaluations
    assert calls[-1] == (3, 3)
    assert all(total == 3 for _, total in calls)


def test_epsilon_confirms_every_calibrated_parameter():
    """Where bounds of epsilon are wider than those of delta, a parameter that met delta alone was returned."""
    rng = np.random.default_rng(0)
    epsilon, delta = np.exp(rng.uniform(np.log(0.05), np.log(20.0), 40)), 10 ** rng.uniform(-12.0, -3.0, 40)
    rate, steps = 10 ** rng.uniform(-3.0, 0.0, 40), np.rint(np.exp(rng.uniform(0.0, np.log(1e4), 40)))
    make = lambda sigma: PoissonSampled(Gaussian(sigma), rate)  # noqa: E731
    found = jaxacct.calibrate(make, epsilon, delta, steps=steps)
    assert np.all(found.delta.upper <= delta)
    assert np.all(jaxacct.epsilon(make(found.parameter), delta, steps=steps).upper <= epsilon)
    assert np.all(np.abs(np.log(found.parameter / found.refuted)) < 1e-2)


@pytest.mark.parametrize(
    ("kind", "rows"), [(FromTables, ([0.5, 0.5], [0.4, 0.6])), (FromProfile, ([0.1, 0.2], [0.01, 0.001]))]
)
def test_a_table_of_arrays_is_one_setting(kind, rows):
    """As one of lists is, wherever one setting is asked for."""
    found = []
    for one in (kind(*rows), kind(*map(np.array, rows))):
        most = calibrate(lambda _: one, 2.0, 0.1, steps=lambda n: n, seek="largest", whole=True)  # noqa: B023
        cost = adversary.cost_of_adaptivity([one, Gaussian(5.0)], epsilon=2.0, delta=0.1, blocks=3)
        menu = filters.menu([one, Gaussian(5.0)], epsilon=2.0, delta=0.1)
        runs, state = 0, menu.init()
        while True:
            admitted, state = menu.update(0, state)
            if not admitted:
                break
            runs += 1
        found.append((most, cost.block, runs))
    assert found[0] == found[1]
    assert found[0][2] > 0
