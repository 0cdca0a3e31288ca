"""mu and regret of a run, against the curve itself."""

import math

import numpy as np
import pytest

import jaxacct
from jaxacct import Gaussian, PoissonSampled, filters
from tests.refusals import all_refused


def test_a_gaussian_is_its_own_mu_without_regret():
    found = jaxacct.gdp_summary(Gaussian(2.0), steps=16)
    assert found.mu.lower <= 2.0 <= found.mu.upper <= 2.0 + 1e-9
    assert found.regret.upper < 1e-9
    assert jaxacct.gdp_summary(Gaussian(2.0), steps=np.array([0, 4])).mu.upper == pytest.approx([0.0, 1.0])
    assert jaxacct.gdp_summary(Gaussian(1e11)).mu.lower == 0.0  # all of delta is aside
    assert found.describes_well
    assert "whole curve" in str(found)


@pytest.mark.parametrize(("sigma", "rate", "steps", "aside"), [(9.4, 0.328, 2000, 1e-10), (1.0, 0.01, 1000, 1e-6)])
def test_the_curve_is_nowhere_above_that_of_mu_and_a_smaller_mu_is_refuted(sigma, rate, steps, aside):
    run = PoissonSampled(Gaussian(sigma), rate)
    found = jaxacct.gdp_summary(run, steps=steps, delta_aside=aside)
    assert found.mu.upper - found.mu.lower < 1e-4
    epsilons = np.linspace(0.0, 1.05 * float(jaxacct.epsilon(run, aside, steps=steps).upper), 37)
    delta = jaxacct.delta(run, epsilons, steps=steps)
    of_mu = jaxacct.delta(jaxacct.GDP(found.mu.upper), epsilons)
    assert np.all(delta.lower <= np.maximum(of_mu.upper, aside))
    smaller = jaxacct.delta(jaxacct.GDP(found.mu.lower * 0.999), epsilons)
    last = jaxacct.epsilon(run, aside, steps=steps).lower
    assert np.any(smaller.upper < delta.lower) or jaxacct.delta(jaxacct.GDP(found.mu.lower * 0.999), last).upper < aside
    regret = np.max((of_mu.lower - delta.upper) / (1 + np.exp(epsilons)))
    assert regret <= found.regret.upper
    assert found.regret.lower <= found.regret.upper <= 1.01 * found.regret.lower + 3e-6


def test_settings_are_arrays_and_a_filters_guarantee_serves():
    found = jaxacct.gdp_summary(Gaussian(np.array([1.0, 2.0])))
    assert np.all(np.abs(found.mu.upper - [1.0, 0.5]) < 5e-4)
    whole = jaxacct.gdp_summary(filters.gdp(0.7).guarantee)
    assert 0.7 <= whole.mu.upper < 0.7005
    # gdpnum: mu 1.56856 without false-positive rates below 1e-10, and between 1.567 and 1.571 by deltas.
    peer = jaxacct.gdp_summary(PoissonSampled(Gaussian(9.4), 0.328), steps=2000)
    assert 1.567 < peer.mu.lower <= peer.mu.upper < 1.571
    # Nothing is claimed at the ends of the search, nor of a run that reveals a record.
    assert jaxacct.gdp_summary(filters.gdp(1e5).guarantee).mu.upper == math.inf
    assert jaxacct.gdp_summary(jaxacct.ApproximateDP(0.1, 1e-3)).mu.upper == math.inf
    assert jaxacct.gdp_summary(jaxacct.PureDP(0.0)).mu.lower == 0.0


def test_a_wrong_argument_is_named():
    all_refused(
        ("delta_aside", lambda: jaxacct.gdp_summary(Gaussian(1.0), delta_aside=0.0)),
        ("mechanism must be", lambda: jaxacct.gdp_summary(3.0)),
        ("steps", lambda: jaxacct.gdp_summary(Gaussian(1.0), steps=2.5)),
        ("relation", lambda: jaxacct.gdp_summary(Gaussian(1.0), relation="none")),
        # A guarantee is for the whole run.
        ("steps", lambda: jaxacct.gdp_summary(filters.gdp(1.0).guarantee, steps=10)),
        ("steps", lambda: jaxacct.attacks.advantage(filters.gdp(1.0).guarantee, steps=10)),
    )


def test_a_bend_next_to_epsilon_0_counts_in_the_regret():
    # A loss of 0.002 nearly always, a large one sometimes: the bend lies within the first cell.
    small, large, often = 1 / (1 + math.exp(-0.002)), 1 / (1 + math.exp(-8.0)), 1 - 1e-4
    p = [often * small, often * (1 - small), 1e-4 * large, 1e-4 * (1 - large)]
    run = jaxacct.FromTables(p, [p[1], p[0], p[3], p[2]])
    found = jaxacct.gdp_summary(run, delta_aside=1e-6)
    epsilons = np.linspace(0.0, 0.03, 31)
    gain = jaxacct.delta(jaxacct.GDP(found.mu.upper), epsilons).lower - jaxacct.delta(run, epsilons).upper
    assert np.max(gain / (1 + np.exp(epsilons))) <= found.regret.upper


def test_the_last_epsilon_is_as_good_as_its_delta():
    """Delta at the epsilon found for 1e-10 has bounds of its own, which may lie just above: mu was infinite then."""
    found = jaxacct.gdp_summary(jaxacct.UserLevel(Gaussian(1.5), 0.01, 4), steps=100, delta_aside=1e-8)
    assert found.mu.upper < 1.001 * found.mu.lower


def test_noise_for_a_mu_is_calibrated():
    of_mu = lambda run: jaxacct.gdp_summary(run).mu  # noqa: E731
    found = jaxacct.attacks.calibrate(Gaussian, of_mu, 1.5, tolerance=1e-3)
    assert found.value <= 1.5
    assert found.parameter == pytest.approx(1 / 1.5, rel=2e-3)
    with pytest.raises(ValueError, match="least"):
        jaxacct.attacks.calibrate(Gaussian, of_mu, 1.5, least=1.0)


def test_one_direction_has_the_mu_of_both():
    run = PoissonSampled(Gaussian(0.8), 0.3)
    both, add = (jaxacct.gdp_summary(run, relation=name, delta_aside=1e-6) for name in ("add_or_remove", "add"))
    assert add.mu == both.mu
