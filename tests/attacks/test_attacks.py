"""What an attacker gets: closed forms of the Gaussian mechanism, and calibration."""

import numpy as np
import pytest
from scipy.stats import norm

from jaxacct import Gaussian, PoissonSampled, PureDP, attacks, filters

RATES = np.array([0.0, 1e-6, 1e-3, 0.01, 0.1, 0.5, 1.0])


@pytest.mark.parametrize("sigma", [0.5, 1.0, 5.0])
def test_the_power_against_a_gaussian_is_its_trade_off(sigma):
    found, truth = attacks.power(Gaussian(sigma), RATES), norm.cdf(norm.ppf(RATES) + 1 / sigma)
    assert np.all(found.lower <= truth + 1e-12)
    assert np.all(truth <= found.upper + 1e-12)
    assert np.all(found.upper - found.lower <= 2e-3 * found.upper + 1e-9)


def test_the_power_under_pure_privacy_has_two_sides():
    found, truth = attacks.power(PureDP(1.0), RATES), np.minimum(np.e * RATES, 1 - (1 - RATES) / np.e)
    assert np.all((found.lower <= truth + 1e-9) & (truth <= found.upper + 1e-12))


def test_advantage_risk_and_predictive_value_belong_together():
    mechanism = Gaussian(1.0)
    total = 2 * norm.cdf(0.5) - 1
    advantage, risk = attacks.advantage(mechanism), attacks.bayes_risk(mechanism, 0.5)
    assert advantage.lower <= total <= advantage.upper
    assert risk.lower <= 0.5 * (1 - total) <= risk.upper
    value = attacks.predictive_value(mechanism, 0.1, 0.01)
    rate = norm.cdf(norm.ppf(0.01) + 1.0)
    assert value.lower <= 0.1 * rate / (0.1 * rate + 0.9 * 0.01) <= value.upper


def test_both_directions_count():
    run = PoissonSampled(Gaussian(1.0), 0.01)
    both = attacks.power(run, 0.001, steps=1000)
    each = [attacks.power(run, 0.001, steps=1000, relation=name) for name in ("add", "remove")]
    assert both.upper == pytest.approx(max(one.upper for one in each), rel=1e-3)


def test_a_filters_guarantee_bounds_the_attacker_from_above_only():
    found = attacks.power(filters.gdp(1.0).guarantee, 0.01)
    assert 0.01 <= found.lower <= norm.cdf(norm.ppf(0.01) + 1.0) <= found.upper < 0.0926
    assert attacks.bayes_risk(filters.gdp(1.0).guarantee, 0.3).lower > 0.2


def test_noise_for_a_target_meets_it_and_hardly_less_does_not():
    found = attacks.calibrate(Gaussian, attacks.power, 0.05, 0.01, tolerance=1e-3)
    assert found.value <= 0.05
    truth = 1 / (norm.ppf(0.05) - norm.ppf(0.01))
    assert truth <= found.parameter <= 1.005 * truth
    with pytest.raises(ValueError, match="target"):
        attacks.calibrate(Gaussian, attacks.power, 0.005, 0.01)


def test_one_attack_goes_one_way():
    run, rates = PoissonSampled(Gaussian(0.5), 0.3), np.array([0.01, 0.1, 0.4])
    special = attacks.power(run, rates, relation="replace_special")  # a special record counts as a missing one
    missing = attacks.power(run, rates)
    assert np.all(special.lower <= missing.upper)
    assert np.all(special.upper <= missing.upper * (1 + 1e-12))
    replaced = attacks.power(run, rates, relation="replace")
    assert np.all(replaced.lower <= replaced.upper)


@pytest.mark.parametrize("sigma", [0.6, 2.0])
def test_one_direction_is_the_best_threshold_of_its_output(sigma):
    """Of a sampled Gaussian, where both directions differ, at rates on either side of the curve's middle."""
    run, q = PoissonSampled(Gaussian(sigma), 0.4), 0.4
    t = np.linspace(-3.0 * sigma, 1.0 + 3.0 * sigma, 25)
    base, mixture = norm.cdf(t / sigma), (1 - q) * norm.cdf(t / sigma) + q * norm.cdf((t - 1.0) / sigma)
    for relation, rates, truth in (("remove", 1 - base, 1 - mixture), ("add", mixture, base)):
        found = attacks.power(run, rates, relation=relation)
        assert np.all(found.lower <= truth + 1e-12)
        assert np.all(truth <= found.upper + 1e-12)
        assert np.all(found.upper - found.lower <= 1e-3)


def test_a_rate_does_not_ask_for_more_of_the_curve_than_it_needs():
    run, rates = PoissonSampled(Gaussian(0.5), 0.01), np.array([1e-3, 0.2])
    alone = [attacks.power(run, rate, steps=100) for rate in rates]
    every = attacks.power(run, np.array([0.0, *rates]), steps=100)
    for i, one in enumerate(alone):
        assert one.lower <= every.upper[i + 1]
        assert every.lower[i + 1] <= one.upper <= 1.001 * every.upper[i + 1]
