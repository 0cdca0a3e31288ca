"""Error rates of many runs: exact bounds, and a credible interval that is named as one."""

import bisect
import itertools

import numpy as np
import pytest
from scipy import integrate
from scipy.stats import beta, binom

from jaxacct import Gaussian, PureDP, audit

# (false positives, absent, false negatives, present, delta, confidence), and what jax_privacy's CanaryScoreAuditor (at
# commit 8967688c, with an explicit threshold, two-sided) has as epsilon_clopper_pearson.
RECORDED = [
    (3, 500, 10, 500, 1e-5, 0.95, 4.012187138218104),
    (0, 1000, 0, 1000, 1e-5, 0.95, 5.6005774942916355),
    (10, 200, 60, 300, 1e-3, 0.9, 2.206748561573903),
    (40, 100, 1, 100, 0.01, 0.95, 2.191238296184881),
    (50, 100, 50, 100, 1e-5, 0.95, 0.0),
]


def run(wrong, absent, missed, present, delta=1e-5, confidence=0.95, **options):
    return audit.many_runs(wrong, absent, missed, present, delta=delta, confidence=confidence, **options)


@pytest.mark.parametrize(("setting", "epsilon"), [(row[:6], row[6]) for row in RECORDED], ids=str)
def test_the_numbers_are_those_of_jax_privacy_rounded_down(setting, epsilon):
    found = run(*setting).epsilon
    assert found == pytest.approx(epsilon, abs=1e-9)
    assert found <= epsilon


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_randomized_response_exceeds_its_epsilon_as_seldom_as_stated(epsilon):
    # Every pair of counts, with its probability: no simulation.
    runs, rate = 40, 1 / (1 + np.exp(epsilon))
    masses = binom.pmf(np.arange(runs + 1), runs, rate)

    def fewest(wrong):
        """The smallest number of missed canaries with which the bound is no longer above epsilon."""
        at = range(runs + 1)
        return bisect.bisect_left(
            at, True, key=lambda missed: run(wrong, runs, missed, runs, 1e-300).epsilon <= epsilon
        )

    # More errors of one kind leave room for fewer of the other.
    room = itertools.takewhile(lambda pair: pair[1], ((wrong, fewest(wrong)) for wrong in range(runs + 1)))
    probability = sum(masses[wrong] * masses[:missed].sum() for wrong, missed in room)
    assert 0 < probability <= 0.05


def test_a_mechanism_is_refuted_where_its_curve_lies_above_the_rates():
    setting = (3, 400, 5, 400)
    found = {value: run(*setting, mechanism=PureDP(value)) for value in (1.0, 3.0, 5.0)}
    assert [one.refuted for one in found.values()] == [True, True, False]
    assert run(*setting).epsilon > 3.0
    assert found[1.0].p_value < found[3.0].p_value < 0.05 < found[5.0].p_value
    # At the p-value itself the bound of epsilon is the mechanism's.
    at = run(*setting, delta=1e-300, confidence=1 - found[3.0].p_value)
    assert at.epsilon == pytest.approx(3.0, abs=1e-6)


def test_errors_as_often_as_a_mechanism_has_them_refute_nothing():
    # An attack on a Gaussian of mu 1 errs with probability 0.3085.
    assert run(308, 1000, 309, 1000, mechanism=Gaussian(1.0)).p_value > 0.5
    assert run(308, 1000, 309, 1000, mechanism=Gaussian(2.0)).refuted


def mass(epsilon, wrong, absent, missed, present, delta):
    """The posterior's mass on the error rates of (epsilon, delta)-DP mechanisms, by adaptive quadrature."""
    first, second = beta(0.5 + missed, 0.5 + present - missed), beta(0.5 + wrong, 0.5 + absent - wrong)
    g = np.exp(epsilon)

    def inside(x):
        low = max(1 - delta - g * x, (1 - delta - x) / g, 0)
        high = min(delta + g * (1 - x), 1 - (x - delta) / g, 1)
        return first.pdf(x) * max(second.cdf(high) - second.cdf(low), 0)

    ends = first.ppf([1e-12, 0.001, 0.1, 0.5, 0.9, 0.999, 1 - 1e-12])
    return sum(integrate.quad(inside, a, b, limit=200, epsabs=1e-10)[0] for a, b in itertools.pairwise(ends))


@pytest.mark.parametrize("setting", [(3, 500, 10, 500, 1e-5), (40, 100, 10, 100, 0.01), (30, 60, 70, 150, 1e-5)])
def test_the_credible_interval_leaves_equal_posterior_mass_on_both_sides(setting):
    low, high = run(*setting, confidence=0.9).credible
    assert mass(low, *setting) == pytest.approx(0.05, abs=1e-5)
    assert mass(high, *setting) == pytest.approx(0.95, abs=1e-5)


def test_a_finding_tells_confidence_from_belief():
    text = str(run(3, 500, 10, 500, mechanism=Gaussian(1.0)))
    assert "is refuted: it is not the mechanism that was accounted for (epsilon 4.3772 at delta 1e-05)" in text
    assert "no guarantee of privacy" in text
    assert "95 % credible interval" in text
    assert "a degree of belief and no confidence interval" in text


def test_attacks_that_are_always_wrong_or_right_have_finite_bounds():
    assert run(10, 10, 10, 10).epsilon == 0
    assert run(10, 10, 10, 10, mechanism=Gaussian(1.0)).p_value == 1
    best = run(0, 10, 0, 10)
    assert 0 < best.epsilon < best.credible[1] < np.inf
