"""plan_noise: certified at the end, better than constant noise, and the closed-form optimum where there is one."""

import numpy as np
import pytest

import jaxacct
from jaxacct import Gaussian, PoissonSampled, plan_noise

WEIGHTS = np.array([1.0, 0.5, 0.25, 0.1])  # a learning-rate schedule
STEPS = np.array([10, 20, 30, 40])


def _utility(sigma):
    return -(WEIGHTS * STEPS * sigma**2).sum()


@pytest.fixture(scope="module")
def gaussian():
    return plan_noise(Gaussian, _utility, 1.0, 1e-5, steps=STEPS)


@pytest.fixture(scope="module")
def sampled():
    return plan_noise(lambda sigma: PoissonSampled(Gaussian(sigma), 0.05), _utility, 1.0, 1e-5, steps=STEPS, rounds=2)


@pytest.mark.parametrize("name", ["gaussian", "sampled"])
@pytest.mark.slow
def test_the_schedule_that_is_returned_meets_the_target_when_it_is_asked_again(name, request):
    plan = request.getfixturevalue(name)
    again = jaxacct.delta(plan.mechanism, 1.0)
    assert again.upper <= 1e-5
    assert again == plan.delta
    parts = [getattr(part, "mechanism", part).sigma for part in plan.mechanism.mechanisms]
    np.testing.assert_array_equal(plan.sigma, parts)


def test_gaussians_reach_the_closed_form_optimum(gaussian):
    # The budget fixes B = sum T / sigma^2. By Cauchy and Schwarz sum w T sigma^2 >= (sum T sqrt(w))^2 / B, with
    # equality for sigma^2 in proportion to 1 / sqrt(w).
    budget = (STEPS / gaussian.sigma**2).sum()
    best = -((STEPS * np.sqrt(WEIGHTS)).sum() ** 2) / budget
    assert gaussian.utility == pytest.approx(best, rel=1e-7)
    np.testing.assert_allclose(gaussian.sigma * WEIGHTS**0.25, gaussian.sigma[0], rtol=1e-3)
    # And no slack: the constant schedule has the same budget, up to the tolerance of both scales.
    assert budget == pytest.approx(STEPS.sum() / gaussian.constant**2, rel=4e-4)


@pytest.mark.slow
def test_sampled_schedules_beat_constant_noise_at_an_equal_certified_budget(sampled):
    constant = PoissonSampled(Gaussian(sampled.constant), 0.05)
    assert jaxacct.delta(constant, 1.0, steps=STEPS.sum()).upper <= 1e-5 * (1 + 1e-3)
    assert sampled.constant_utility == pytest.approx(_utility(sampled.constant), rel=1e-12)
    assert sampled.utility > 0.9 * sampled.constant_utility


def _contour_log_delta(sigma, rate, epsilon, t):
    """log delta of the whole schedule in the direction `remove`: the contour integral of tests/truth.py."""
    z = t + 1j * np.linspace(0.0, 60.0, 401)
    log_mgf = np.zeros(z.size, complex)
    for noise, count in zip(sigma, STEPS, strict=True):
        x = np.linspace(-12 * noise, 12 * noise + 2 + t / noise, 1501)
        loss = np.logaddexp(np.log1p(-rate), np.log(rate) + (x - 0.5) / noise**2)
        p = np.exp(loss - 0.5 * (x / noise) ** 2) / (noise * np.sqrt(2 * np.pi)) * (x[1] - x[0])
        log_mgf += count * np.log((p * np.exp(z[:, None] * loss)).sum(1))
    integrand = (np.exp(log_mgf - z * epsilon) / (z * (z + 1))).real
    return np.log(np.trapezoid(integrand, z.imag) / np.pi)


@pytest.mark.slow
def test_a_sampled_schedule_is_a_stationary_point_of_delta_itself(sampled):
    log_delta = lambda sigma: _contour_log_delta(sigma, 0.05, 1.0, 15.0)  # noqa: E731
    assert log_delta(sampled.sigma) == pytest.approx(np.log(sampled.delta.upper), abs=2e-3)
    shifts = 1.0 + 1e-3 * np.eye(4)
    slopes = [(log_delta(sampled.sigma * up) - log_delta(sampled.sigma / up)) / 2e-3 for up in shifts]
    # Lagrange: at the optimum, what noise buys in log delta per utility is the same for every level.
    price = np.array(slopes) / (2 * WEIGHTS * STEPS * sampled.sigma**2)
    assert np.all(np.abs(price / price.mean() - 1) < 0.05)
