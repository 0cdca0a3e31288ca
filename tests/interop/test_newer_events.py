"""Events that dp_accounting has beyond its 0.6.0, and attack rates; each is skipped where its event is absent."""

import math
import types

import numpy as np
import pytest

import jaxacct
from jaxacct import interop
from tests.refusals import all_refused

dp = pytest.importorskip("dp_accounting", reason="dp_accounting is in the interop extra")
from dp_accounting import dp_event  # noqa: E402

NEWER = [
    ("EpsilonDeltaDpEvent", (0.5, 1e-6), jaxacct.ApproximateDP(0.5, 1e-6)),
    ("EpsilonDeltaDpEvent", (0.5, 0.0), jaxacct.PureDP(0.5)),
    ("DiscreteGaussianDpEvent", (3.0, 2.0, 1), jaxacct.DiscreteGaussian(3.0, 2)),
    ("DiscreteGaussianDpEvent", (3.0, 1.5), jaxacct.ZeroConcentratedDP(0.125)),
    ("ExponentialMechanismDpEvent", (0.7,), jaxacct.Exponential(0.7)),
    ("PermuteAndFlipDpEvent", (0.7,), jaxacct.PermuteAndFlip(0.7)),
]


def event_of(name, arguments):
    if not hasattr(dp_event, name):
        pytest.skip(f"dp_accounting has no {name}")
    return getattr(dp_event, name)(*arguments)


@pytest.mark.parametrize(("name", "arguments", "mechanism"), NEWER)
def test_a_newer_event_is_read_as_its_mechanism(name, arguments, mechanism):
    accountant = interop.Accountant().compose(dp_event.SelfComposedDpEvent(event_of(name, arguments), 10))
    truth = jaxacct.epsilon(mechanism, 1e-4, steps=10)
    assert float(truth.lower) <= accountant.get_epsilon(1e-4) <= float(truth.upper) * (1 + 1e-9)


@pytest.mark.parametrize(("name", "arguments", "mechanism"), [case for case in NEWER if len(case[1]) != 2])
def test_a_newer_event_is_written_back(name, arguments, mechanism):
    event_of(name, arguments)
    assert type(interop.to_dp_event(mechanism)).__name__ == name


def test_events_without_privacy_are_said_to_have_none():
    for name, arguments in (("EpsilonDeltaDpEvent", (1.0, 1.0)), ("PermuteAndFlipDpEvent", (math.inf,))):
        assert interop.Accountant().compose(event_of(name, arguments)).get_epsilon(0.1) == math.inf


def test_true_positive_rates_are_above_a_gaussian_s_and_near_them():
    from scipy.stats import norm

    accountant = interop.Accountant().compose(dp.GaussianDpEvent(0.5), 4)  # mu = 4
    rates = np.array([1e-3, 0.01, 0.1, 0.5])
    exact = norm.cdf(norm.ppf(rates) + 4.0)
    found = accountant.get_true_positive_rates(rates)
    assert np.all(found >= exact)
    np.testing.assert_allclose(found, exact, atol=5e-3)
    assert accountant.get_true_positive_rates(0.1) == found[2]
    assert interop.Accountant().get_true_positive_rates(0.5) == pytest.approx(0.5)
    assert interop.Accountant().compose(dp.NonPrivateDpEvent()).get_true_positive_rates(0.0) == 1.0
    with pytest.raises(ValueError, match="false_positive_rates must"):
        accountant.get_true_positive_rates(1.5)


def test_noise_over_the_sensitivity_is_not_doubled_again():
    relation = dp.NeighboringRelation.REPLACE_ONE
    bound, moved = interop.Accountant(relation), interop.Accountant(relation, noise_over="sensitivity")
    for accountant, noise in ((bound, 4.0), (moved, 2.0)):
        accountant.compose(dp.GaussianDpEvent(noise), 10)
        accountant.compose(dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(noise)), 10)
        accountant.compose(dp.SampledWithoutReplacementDpEvent(100, 10, dp.GaussianDpEvent(noise)), 10)
    assert bound.get_epsilon(1e-5) == pytest.approx(moved.get_epsilon(1e-5), rel=1e-9)
    with pytest.raises(ValueError, match="noise_over must be"):
        interop.Accountant(noise_over="clip")


class CyclicPoissonSampling:
    sampling_prob, iterations, cycle_length, truncated_batch_size = 0.01, 1001, 2, None


class FixedBatchSampling:
    batch_size, iterations, replace = 10, 100, False


class BallsInBinsSampling:
    iterations, cycle_length = 10, 10


class BMinSepSampling:
    sampling_prob, iterations, min_sep, warm_start, truncated_batch_size = 0.02, 300, 10, True, None


class UserSelectionStrategy:
    base_strategy = BMinSepSampling()


def test_records_that_keep_apart_are_no_worse_than_independent_ones():
    """Whoever took part does not within ten iterations; the proof is in docs/proofs/random-allocation.md."""
    noise = jaxacct.Gaussian(1.0)
    found = interop.mechanism_of_selection(UserSelectionStrategy(), noise)
    assert jaxacct.epsilon(found, 1e-5) == jaxacct.epsilon(jaxacct.PoissonSampled(noise, 0.02), 1e-5, steps=300)
    few = BMinSepSampling()
    few.iterations, few.min_sep = 4, 2
    few.sampling_prob = 1.0
    assert interop.mechanism_of_selection(few, noise).batches == 2
    few.warm_start = False
    assert interop.mechanism_of_selection(few, noise).steps == (2,)
    few.truncated_batch_size = 5
    with pytest.raises(ValueError, match="cut"):
        interop.mechanism_of_selection(few, noise)


def test_strategies_are_mechanisms():
    mechanism_of, noise = interop.mechanism_of_selection, jaxacct.Gaussian(1.0)
    epsilon = lambda mechanism, **rest: jaxacct.epsilon(mechanism, 1e-5, **rest)  # noqa: E731
    truth = epsilon(jaxacct.PoissonSampled(noise, 0.01), steps=501)
    assert epsilon(mechanism_of(CyclicPoissonSampling(), noise)) == truth
    fixed = mechanism_of(FixedBatchSampling(), jaxacct.Gaussian(1.0, 2.0), records=1000)
    assert epsilon(fixed, relation="replace").upper < math.inf
    cut = CyclicPoissonSampling()
    cut.truncated_batch_size = 20
    assert epsilon(mechanism_of(cut, noise, records=2000)).upper > truth.upper
    cut.partition_type = types.SimpleNamespace(name="INDEPENDENT")  # a group may hold everybody
    assert mechanism_of(cut, noise, records=2000).mechanisms[0].records == 2000
    assert epsilon(mechanism_of(BallsInBinsSampling(), noise)) == epsilon(jaxacct.RandomAllocation(noise, 10))
    again = BallsInBinsSampling()
    again.iterations = 20
    kept = epsilon(mechanism_of(again, jaxacct.Gaussian(2.0)))  # a record keeps its bin: as one louder epoch
    louder = epsilon(jaxacct.RandomAllocation(jaxacct.Gaussian(math.sqrt(2.0)), 10))
    assert kept.upper == pytest.approx(louder.upper, rel=1e-6)
    assert kept.lower > epsilon(jaxacct.RandomAllocation(jaxacct.Gaussian(2.0), 10), steps=2).upper
    all_refused(
        ("a record keeps its bin", lambda: mechanism_of(again, jaxacct.Laplace(1.0))),
        ("records must be given", lambda: mechanism_of(FixedBatchSampling(), noise)),
        ("strategy must be one", lambda: mechanism_of(object(), noise)),
    )


def test_jax_privacy_s_plans_calibrate_with_our_accountant():
    try:
        from jax_privacy import execution_plan as plans
    except (ImportError, AttributeError):
        pytest.skip("jax_privacy from 2.2 on, in no extra")
    config = plans.BandMFConfig(strategy=np.ones(1), iterations=100, expected_participations=10)
    found = config.calibrate(epsilon=1.0, delta=1e-5, accountant_fn=interop.Accountant).noise_multiplier
    step = jaxacct.PoissonSampled(jaxacct.Gaussian(found), 0.1)
    assert 0.999 <= float(jaxacct.epsilon(step, 1e-5, steps=100).upper) <= 1.0 + 1e-9
