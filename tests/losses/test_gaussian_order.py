"""Where curves stand among Gaussians, what attackers get, and how far apart curves are."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import jaxacct
from jaxacct import LossGrid, PrivacyProfile, TradeOff, supremum
from jaxacct.losses.compare.distance import delta_divergence
from jaxacct.losses.compare.gaussian_order import gaussian_trade_off, mu_of
from tests import finite

GRID = LossGrid(1 / 16, -160, 321)


def curve(*experiments, bound="lower"):
    arrays = finite.as_arrays(finite.compose(*experiments))
    return TradeOff(*(np.pad(x, (0, 32 - len(x))) for x in arrays), bound)  # one size, so one compilation


RR = finite.randomized_response


def distance_of_trade_offs(*curves):
    """The least D with f(x + D) - D <= g(x) at every vertex of both, either way round, by bisection."""
    polygons = []
    for curve in curves:
        alpha, beta = (np.append(first, x) for first, x in zip((0.0, 1.0), curve.points(), strict=True))
        polygons.append((alpha, np.where(alpha == 0, beta[alpha == 0].min(), beta)))  # not the vertical piece's top

    def beyond(f, g, by):
        x = np.concatenate([g[0], f[0] - by, [0.0, 1.0 - by]])
        x = x[(x >= 0) & (x <= 1.0 - by)]
        return np.max(np.interp(x + by, *f) - by - np.interp(x, *g))

    return brentq(lambda by: max(beyond(*polygons, by), beyond(*polygons[::-1], by)), 0.0, 1.0, xtol=1e-15)


def test_the_gaussian_curve_is_bracketed_in_both_tails():
    mu = np.array([0.0, 0.1, 1.0, 5.0])[:, None]
    alpha = np.array([0.0, 1e-300, 1e-12, 1e-3, 0.5, 0.999, 1.0])
    truth = norm.cdf(norm.isf(alpha) - mu)
    lower, upper = (gaussian_trade_off(mu, alpha, bound) for bound in ("lower", "upper"))
    assert np.all(lower <= truth * (1 + 1e-13))
    assert np.all(upper >= truth * (1 - 1e-13))
    np.testing.assert_allclose(upper, lower, rtol=1e-10, atol=1e-300)
    with pytest.raises(ValueError, match="mu must be a finite number of at least 0"):
        gaussian_trade_off(-1.0, 0.5)


@pytest.mark.slow
def test_smallest_dominating_mu_of_finite_laws():
    """Section D4 and D5 of the residue formulas, and the closed form of randomized response."""
    twice = finite.compose(RR(2), RR(2))
    best = supremum([curve(twice), curve(RR("12/5"))])
    found = [
        mu_of(curve(RR("3/2"), twice)).dominating,
        mu_of(curve(RR("3/2"), RR("12/5"))).dominating,
        mu_of(curve(RR("3/2")).compose(best, size=64), delta=1e-13).dominating,
    ]
    np.testing.assert_allclose(found, [1.113267242, 1.082790170, 1.155779389], atol=2e-9)
    for epsilon in (0.1, 1.0, 3.0):
        mu = float(mu_of(curve(RR(math.exp(epsilon)))).dominating)
        truth = 2 * norm.ppf(math.exp(epsilon) / (1 + math.exp(epsilon)))
        assert truth <= mu * (1 + 1e-15)
        assert mu == pytest.approx(truth, rel=1e-12)
    failing = finite.failing("1/20")
    either = supremum([curve(RR("3/2")), curve(failing)])
    found = [
        mu_of(curve(RR("3/2"), RR("3/2")), delta=0.05).dominating,
        # Equal atoms at infinity are compared from above, so a hair more than 1/20 must be set aside.
        mu_of(curve(RR("3/2"), failing), delta=0.05 + 1e-14).dominating,
        mu_of(curve(RR("3/2")).compose(either, size=64), delta=0.05 + 1e-11).dominating,
    ]
    np.testing.assert_allclose(found, [0.510314148, 0.506694206, 0.567988537], atol=2e-9)
    assert mu_of(curve(failing)).dominating == np.inf


def test_mu_of_gaussians_and_of_their_curves():
    exact = mu_of(jaxacct.Gaussian(np.array([0.5, 2.0])))
    np.testing.assert_allclose(exact.dominating, [2.0, 0.5], rtol=1e-14)
    assert np.all(exact.dominated <= exact.dominating)
    composed = mu_of(jaxacct.Composed([jaxacct.Gaussian(1.0), jaxacct.Gaussian(1.0)]))
    assert composed.dominating == pytest.approx(2**0.5, rel=1e-14)
    upper, lower = (PrivacyProfile.from_mechanism(jaxacct.Gaussian(1.0), b, grid=GRID) for b in ("upper", "lower"))
    above, below = mu_of(upper, delta=1e-9), mu_of(lower, delta=1e-9)
    assert 1 - 1e-7 <= above.dominating < 1.01
    assert 0.99 < below.dominated <= 1 + 1e-7
    assert above.dominated <= above.dominating
    assert mu_of(upper).dominating == np.inf
    with pytest.raises(ValueError, match="delta must be below 1"):
        mu_of(upper, delta=1.0)


def test_the_largest_dominated_mu_is_the_largest():
    """(log 2, 1/5)-DP dominates exactly those Gaussians whose hockey stick stays below it."""
    law = curve(RR(2), finite.failing("1/5"))

    def height(gamma):
        return float(finite.hockey_stick(finite.compose(RR(2), finite.failing("1/5")), gamma))

    def hockey_stick(mu, gamma):
        a = math.log(gamma) / mu
        return norm.cdf(mu / 2 - a) - gamma * norm.cdf(-mu / 2 - a)

    gammas = np.append(np.exp(np.linspace(0, 3, 301)), 2.0)
    truth = brentq(lambda mu: min(height(g) - hockey_stick(mu, g) for g in gammas), 0.1, 2.0, xtol=1e-9)
    found = mu_of(law)
    assert found.dominated == pytest.approx(truth, abs=1e-4)
    assert min(height(g) - hockey_stick(float(found.dominated), g) for g in gammas) >= -1e-12


def test_both_forms_of_the_delta_divergence_agree():
    rng = np.random.default_rng(8)
    pairs = [(curve(RR(2)), curve(RR(3))), (curve(RR(2)), curve(finite.failing("1/3")))]
    pairs += [tuple(curve(finite.random_experiment(rng, 4)) for _ in range(2)) for _ in range(3)]
    # Profiles are compared on a lattice, which holds the slopes of the first pair but not of the others.
    for one, other in pairs:
        lower, upper = delta_divergence(one, other, grid=LossGrid(1 / 256, -2048, 4097))
        found = distance_of_trade_offs(one, other)
        assert lower.dtype == np.float64
        assert lower - 1e-12 <= found <= upper + 1e-12
        assert upper - lower < 2e-3
    # RR_2 against RR_3 at gamma = 1: the total variations differ by 1/6, halved.
    assert distance_of_trade_offs(*pairs[0]) == pytest.approx(1 / 12, abs=1e-12)
    low, high = delta_divergence(jaxacct.Gaussian(1.0), jaxacct.Gaussian(1.2), grid=GRID)
    gamma = np.exp(np.linspace(-5, 5, 20001))
    h = [norm.cdf(m / 2 - np.log(gamma) / m) - gamma * norm.cdf(-m / 2 - np.log(gamma) / m) for m in (1.0, 1 / 1.2)]
    assert low <= np.max(np.abs(h[0] - h[1]) / (1 + gamma)) <= high


def test_three_kinds_of_convergence_are_one_and_uniform_convergence_is_another():
    """Theorems C.6 and C.8 and Example C.5: H_n(gamma) = (1 - gamma / n)_+ goes to 1, at distance 1 / (1 + n)."""
    grid = LossGrid(math.log(2), -4, 17)  # to gamma = 4096
    blatant = TradeOff(np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    gamma = np.exp(grid.losses)
    distances, points, compact, below = [], [], [], []
    for n in (4, 32, 256, 1024):
        # P is one outcome, Q has it with probability 1 / n.
        one = TradeOff(np.array([0.0, 1.0]), np.array([1 - 1 / n, 1 / n]))
        lower, upper = delta_divergence(one, blatant, grid=grid)
        values = one.profile(grid).values()
        np.testing.assert_allclose(values, np.maximum(0, 1 - gamma / n), atol=1e-12)
        assert lower - 1e-12 <= 1 / (1 + n) <= upper + 1e-12
        found = distance_of_trade_offs(one, blatant)
        assert found == pytest.approx(1 / (1 + n), abs=1e-12)
        distances.append(found)
        points.append(1 - values[grid.size // 2])
        compact.append(np.max(1 - values[gamma <= 16.1]))
        below.append(np.max(1 - values))
    for sequence in (distances, points, compact):
        assert np.all(np.diff(sequence) < 0)
        assert sequence[-1] < 0.1 * sequence[0]
    assert min(below) == 1.0  # never uniform on [0, inf)
