"""`plan_budget` over the whole range of targets: a plan near the calibrated noise, or a sentence that is true."""

import pytest

from jaxacct import Gaussian, PoissonSampled, calibrate, training


def calibrated(epsilon, delta, steps, rate):
    def make(sigma):
        return Gaussian(sigma) if rate == 1 else PoissonSampled(Gaussian(sigma), rate)

    return float(calibrate(make, epsilon, delta, steps=steps).parameter)


TARGETS = [
    (8.0, 1e-8, 1000, 0.01), (0.001, 1e-5, 100, 0.1),
    *(
        pytest.param(*target, marks=pytest.mark.slow)
        for target in (
            (5.0, 1e-7, 1000, 0.01), (1.0, 1e-9, 1000, 0.01), (2.0, 1e-12, 300, 0.03), (0.003, 1e-5, 1000, 0.01),
            (25.0, 1e-5, 1000, 0.01), (40.0, 1e-5, 100, 0.1), (100.0, 1e-5, 100, 1.0), (50.0, 1e-5, 1000, 0.01),
            (100.0, 1e-5, 1000, 0.01), (70.0, 1e-5, 300, 0.1),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("epsilon", "delta", "steps", "rate"), TARGETS)
def test_a_plan_is_near_the_noise_that_a_schedule_fixed_in_advance_takes(epsilon, delta, steps, rate):
    plan = training.plan_budget("sampled_gaussian", "constant", epsilon=epsilon, delta=delta, steps=steps, rate=rate)
    noise = plan.schedule.planned[0][0]
    least = calibrated(epsilon, delta, steps, rate)
    assert 0.999 * least < noise < 1.2 * least
    assert bool(plan.filter.update(training.planned_mechanism(plan.schedule), plan.filter.init())[0])
    assert float(plan.filter.guarantee.epsilon(delta)) <= epsilon


def test_where_no_table_holds_the_target_the_plan_says_which_filter_does_and_what_it_takes():
    plan = training.plan_budget("sampled_gaussian", "constant", epsilon=50.0, delta=1e-5, steps=10, rate=0.1)
    assert "renyi" in plan.note
    assert "more noise" in plan.note
    assert plan.filter.guarantee.is_bound
    assert float(plan.filter.guarantee.epsilon(1e-5)) <= 50.0
    assert plan.schedule.planned[0][0] < 1.2 * calibrated(50.0, 1e-5, 10, 0.1)


def test_an_asymptotic_plan_says_what_it_spends():
    target = {"epsilon": 1.0, "delta": 1e-5, "steps": 300, "rate": 0.01}
    plan = training.plan_budget("approximate_gdp", "constant", **target)
    assert "not a bound" in plan.note
    assert plan.filter.guarantee.is_bound is False
