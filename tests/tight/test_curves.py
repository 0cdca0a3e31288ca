"""Curves that are cut, merged or known at points only are close to what they stand for."""

import numpy as np
import pytest
from scipy.stats import norm

import jaxacct
from jaxacct import PLD, FromProfile, Gaussian, LossGrid, PrivacyProfile, TradeOff, supremum


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_merging_segments_of_a_smooth_curve_costs_the_square_of_the_groups(bound):
    profile = PrivacyProfile.from_mechanism(
        jaxacct.Gaussian(1.0), "upper" if bound == "lower" else "lower", grid=LossGrid(1 / 8, -80, 161)
    )
    one = TradeOff.from_profile(profile)
    alpha = np.array([1e-6, 1e-3, 0.1, 0.5, 0.9])
    exact, cut = one.compose(one), one.compose(one, size=256)
    sign = 1 if bound == "lower" else -1
    gap = sign * (exact.trade_off(alpha) - cut.trade_off(alpha))
    assert np.all(gap >= -1e-10)  # the longer curve is read with the larger margin
    assert np.all(gap < 1e-3)
    truth = norm.cdf(norm.isf(alpha) - 2**0.5)
    assert np.all(sign * (truth - cut.trade_off(alpha)) >= 0)
    assert np.all(sign * (truth - exact.trade_off(alpha)) < 2e-3)


def test_pairs_first_and_suprema_last_is_tighter():
    """Lemma A.20 with G_mu and G_(1 - mu): strictly, G_1 against G_sqrt(2)."""
    gaussians = {
        mu: PrivacyProfile.from_mechanism(jaxacct.Gaussian(1 / mu), grid=LossGrid(1 / 32, -512, 1025))
        for mu in (0.25, 0.5, 0.75, 1.0)
    }
    pairwise = supremum([gaussians[mu].compose(gaussians[1 - mu]) for mu in (0.25, 0.5, 0.75)])
    separately = supremum(list(gaussians.values())[:3]).compose(supremum(list(gaussians.values())[:3]))
    at = np.array([0.0, 0.5, 1.0, 2.0])
    assert np.all(pairwise.hockey_stick(at) < separately.hockey_stick(at) * 0.9)
    assert np.all(pairwise.excess <= separately.excess * (1 + 1e-9) + 2e-12)


@pytest.mark.slow
def test_many_points_of_a_gaussian_come_close_to_it_also_composed():
    epsilons = np.linspace(0.0, 6.0, 301)
    gaussian = Gaussian(1.5)
    profile = FromProfile(epsilons, jaxacct.delta(gaussian, epsilons).upper)
    at = np.array([0.2, 0.555, 1.0, 2.0])
    made, true = jaxacct.delta(profile, at), jaxacct.delta(gaussian, at)
    assert np.all(made.upper >= true.lower)
    assert np.all(made.upper <= true.upper * 1.001)
    made, true = jaxacct.delta(profile, at, steps=4), jaxacct.delta(gaussian, at, steps=4)
    assert np.all(made.upper >= true.lower)
    assert np.all(made.upper <= true.upper * 1.01)


@pytest.mark.parametrize("mechanism", [jaxacct.Laplace(1.0), jaxacct.PoissonSampled(jaxacct.Laplace(1.0), 0.02)])
def test_lower_laws_of_bounded_losses_stay_close_to_upper_ones_in_long_compositions(mechanism):
    upper, lower = (PLD.from_mechanism(mechanism, bound).self_compose(1000) for bound in ("upper", "lower"))
    at = np.array([0.0, 0.1, 1.0])
    np.testing.assert_allclose(lower.hockey_stick(at), upper.hockey_stick(at), rtol=1e-5)
