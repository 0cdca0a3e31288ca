"""Trade-off curves against exact rational arithmetic, and their tensor products (Proposition 12)."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import binom, norm

import jaxacct
from jaxacct import LossGrid, PrivacyProfile, TradeOff, supremum
from jaxacct.losses.curves import trade_off as tradeoff
from tests import finite, stored

ALPHA = np.array([0.0, 1e-9, 1e-3, 0.1, 0.25, 0.4, 0.5, 0.7, 0.9, 0.999, 1.0])


def curve(experiment, bound="lower"):
    return TradeOff(*finite.as_arrays(experiment), bound)


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_random_curves_are_read_from_their_side(bound):
    rng = np.random.default_rng(1)
    experiments = [finite.random_experiment(rng, 5) for _ in range(40)]
    rows = [finite.as_arrays(one) for one in experiments]
    pad = lambda x: np.pad(x, (0, 5 - len(x)))  # noqa: E731
    batch = TradeOff(np.stack([pad(w) for w, _ in rows]), np.stack([pad(d) for _, d in rows]), bound)
    truth = np.array([[float(finite.trade_off(one, float(a))) for a in ALPHA] for one in experiments])
    f, power = batch.trade_off(ALPHA), batch.power(ALPHA)
    sign = 1 if bound == "lower" else -1
    assert np.all(sign * (truth - f) >= -1e-16)
    assert np.all(sign * (power - (1 - truth)) >= -1e-16)
    np.testing.assert_allclose(f, truth, atol=1e-13)
    np.testing.assert_allclose(power, 1 - truth, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_a_product_is_the_product_of_experiments(bound):
    rng = np.random.default_rng(2)
    for _ in range(5):
        a, b = finite.random_experiment(rng, 4), finite.random_experiment(rng, 4)
        product = curve(a, bound).compose(curve(b, bound))
        truth = np.array([float(finite.trade_off(finite.compose(a, b), float(x))) for x in ALPHA])
        np.testing.assert_allclose(product.trade_off(ALPHA), truth, atol=1e-13)
        sign = 1 if bound == "lower" else -1
        assert np.all(sign * (truth - product.trade_off(ALPHA)) >= -1e-16)


def _binomial(n, p):
    """Exact trade-off of n-fold randomized response: only the number of heads matters."""
    k = np.arange(n, -1, -1)
    widths, drops = binom.pmf(k, n, 1 - p), binom.pmf(k, n, p)
    alpha = np.concatenate([[0], np.cumsum(widths)])
    return lambda x: np.interp(x, alpha, np.concatenate([np.cumsum(drops[::-1])[::-1], [0]]))


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_products_of_fixed_size_stay_on_their_side_and_close(bound):
    single = curve(finite.randomized_response(2), bound)
    step = jax.jit(lambda one, other: one.compose(other, size=128))
    many = single
    for _ in range(30):
        many = step(many, single)
        many = TradeOff(np.asarray(many.widths, np.float64), np.asarray(many.drops, np.float64), bound)
    assert many.widths.shape == (128,)
    alpha = np.linspace(0, 1, 101)
    truth, found = _binomial(31, 2 / 3)(alpha), many.trade_off(alpha)
    sign = 1 if bound == "lower" else -1
    assert np.all(sign * (truth - found) >= -1e-13)
    # Inside a float32 program every array is rounded to float32 and widened by as much, thirty times.
    np.testing.assert_allclose(found, truth, atol=3e-5)
    exact = single
    for _ in range(30):
        exact = exact.compose(single, size=128)
    np.testing.assert_allclose(exact.trade_off(alpha), truth, atol=2e-11)
    assert np.all(sign * (truth - exact.trade_off(alpha)) >= -1e-13)


def test_a_reflection_mirrors_the_curve_and_sym_is_its_own_mirror():
    experiment = finite.compose(finite.randomized_response(3), finite.failing("1/7"), [(1, 1)])
    lopsided = finite.random_experiment(np.random.default_rng(7), 4)
    one = curve(lopsided)
    f = one.trade_off(ALPHA)
    inside = (f > 1e-6) & (ALPHA > 0)
    np.testing.assert_allclose(one.reflect().trade_off(f[inside]), ALPHA[inside], atol=1e-10)
    both = supremum([one, one.reflect()])
    np.testing.assert_allclose(both.trade_off(ALPHA[1:]), both.reflect().trade_off(ALPHA[1:]), atol=1e-11)
    assert np.all(both.trade_off(ALPHA) <= np.minimum(f, one.reflect().trade_off(ALPHA)) + 1e-13)
    symmetric = curve(experiment)
    np.testing.assert_allclose(symmetric.reflect().trade_off(ALPHA), symmetric.trade_off(ALPHA), atol=1e-14)


def test_a_gaussian_curve_has_its_closed_form_in_both_tails():
    alpha = np.array([1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.9, 1 - 1e-6])
    truth, power = norm.cdf(norm.isf(alpha) - 1), norm.sf(norm.isf(alpha) - 1)
    lower = TradeOff.from_profile(PrivacyProfile.from_mechanism(jaxacct.Gaussian(1.0)))
    upper = TradeOff.from_profile(PrivacyProfile.from_mechanism(jaxacct.Gaussian(1.0), "lower"))
    assert np.all(lower.trade_off(alpha) <= truth)
    assert np.all(upper.trade_off(alpha) >= truth)
    assert np.all(lower.power(alpha) >= power)
    assert np.all(upper.power(alpha) <= power)
    np.testing.assert_allclose(lower.trade_off(alpha), upper.trade_off(alpha), rtol=2e-5, atol=1e-12)
    np.testing.assert_allclose(lower.power(alpha), upper.power(alpha), rtol=2e-5)


def test_conjugacy_both_ways():
    """Theorem A.6 and Proposition 9: H from the vertices of f, f from the lines of H, and back."""
    experiment = finite.random_experiment(np.random.default_rng(5), 5)
    one, grid = curve(experiment), LossGrid(0.01, -600, 1201)
    upper, lower = one.profile(grid), TradeOff(one.widths, one.drops, "upper").profile(grid)
    gamma = np.exp(grid.losses)
    truth = np.array([float(finite.hockey_stick(experiment, float(g))) for g in gamma])
    alpha, beta = (np.concatenate([[x], y]) for x, y in zip((0.0, 1.0), one.points(), strict=True))
    by_vertices = np.max(1 - alpha - gamma[:, None] * beta, 1)
    np.testing.assert_allclose(by_vertices, truth, atol=1e-13)
    assert np.all(upper.values() >= truth - 1e-16)
    np.testing.assert_allclose(upper.values(), truth, atol=1e-13)
    assert np.all(lower.values() <= truth + 1e-16)
    np.testing.assert_allclose(lower.values(), truth, atol=2e-2)  # a kink inside a cell is cut off
    x = np.linspace(0.01, 0.99, 33)
    f = np.array([float(finite.trade_off(experiment, float(a))) for a in x])
    by_lines = np.max((1 - x[:, None] - truth) / gamma, 1)
    assert np.all(by_lines <= f + 1e-13)
    back = TradeOff.from_profile(upper)
    assert back.bound == "lower"
    assert np.all(back.trade_off(x) <= f + 1e-16)
    np.testing.assert_allclose(back.trade_off(x), f, atol=2e-3)
    assert np.all(TradeOff.from_profile(lower).trade_off(x) >= f - 1e-16)


def test_points_become_a_curve_and_traced_nonsense_fails_closed():
    f = TradeOff.from_points([0, 0.2, 0.6, 1], [0.7, 0.3, 0.1, 0])
    np.testing.assert_allclose(f.trade_off(np.array([0.0, 0.1, 0.4, 0.8])), [0.7, 0.5, 0.2, 0.05], atol=1e-14)
    read = jax.jit(
        lambda b, bound: TradeOff.from_points(jnp.array([0, 0.2, 0.6, 1]), b, bound).trade_off(0.3), static_argnums=1
    )
    good, bent = jnp.array([0.7, 0.3, 0.1, 0]), jnp.array([0.5, 0.45, 0.2, 0])
    assert float(read(good, "lower")) == pytest.approx(0.25, abs=1e-6)
    assert float(read(bent, "lower")) == 0
    assert float(read(bent, "upper")) == pytest.approx(0.7, abs=1e-6)
    with pytest.raises(ValueError, match="bounds must agree"):
        f.compose(TradeOff(f.widths, f.drops, "upper"))
    with pytest.raises(ValueError, match="size must be at least 16"):
        f.compose(f, size=3)
    with pytest.raises(ValueError, match="alpha must be between 0 and 1"):
        f.trade_off(1.5)


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_curves_that_a_float32_program_rounded_stay_on_their_side(bound):
    rng = np.random.default_rng(0)
    widths = rng.dirichlet(np.ones(4), 200)  # slopes next to 1, and far from it
    drops = widths * np.exp(rng.normal(size=widths.shape) * 10.0 ** rng.uniform(-9, 0, (200, 1)))
    drops /= drops.sum(-1, keepdims=True)
    curve = stored.trade_off(jnp.asarray(widths, jnp.float32), jnp.asarray(drops, jnp.float32), bound)
    with jax.enable_x64(True):
        a, b = (np.asarray(x)[..., None] for x in tradeoff.arrays(curve))
    gamma = np.exp(rng.normal(size=60) * 10.0 ** rng.uniform(-9, 0, 60))

    def excess(a, b):
        """Over (1 - gamma)_+, on either side of gamma = 1 by the masses that count there."""
        return np.where(gamma >= 1, np.maximum(a - gamma * b, 0).sum(-2), np.maximum(gamma * b - a, 0).sum(-2))

    more = (excess(a, b) - excess(widths[..., None], drops[..., None])) * (1 if bound == "lower" else -1)
    assert np.all(more >= -1e-16)
    assert np.all(more <= 1e-6)


@pytest.mark.parametrize(
    ("alpha", "beta", "message"),
    [
        ([0, 0.5, 1], [1, np.nan, 0], "beta must be numbers"),
        ([0, 0.5, 1], [0.9, 0.6, 0], "beta must be at most 1 - alpha, got 0.6 at alpha 0.5"),
        ([0, 0.2, 0.6, 1], [0.5, 0.45, 0.2, 0], "beta must be convex, got"),
        ([0, 0.2, 0.6, 1], [0.5, 0.1, 0.2, 0], "beta must be decreasing, got 0.1 at alpha 0.2"),
        ([0.1, 0.5, 1], [0.5, 0.2, 0], "beta must go from alpha 0 to alpha 1"),
        ([0, 0.5], [0.5, 0.2, 0], "alpha and beta must have one shape"),
        ([0, 0.5, 1], [0.9, 0.3, -0.1], "beta must be at least 0"),
    ],
)
def test_points_that_are_no_curve_are_refused(alpha, beta, message):
    with pytest.raises(ValueError, match=message):
        TradeOff.from_points(alpha, beta)


def test_a_mechanism_that_reveals_nothing_has_the_largest_curve_there_is():
    alpha = np.concatenate([10.0 ** -np.arange(1.0, 17.0), np.linspace(0.0, 1.0, 101)])
    nothing = TradeOff.from_points([0.0, 1.0], [1.0, 0.0], "upper")
    for one, found in zip(alpha, nothing.trade_off(alpha), strict=True):
        assert Fraction(float(found)) >= 1 - Fraction(float(one))


@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_suprema_of_curves_whose_masses_do_not_sum_up_to_one_stay_on_their_side(bound):
    """Rounded up, left out, or kept as float32 numbers."""
    rng, epsilon, most = np.random.default_rng(7), np.linspace(-3.0, 3.0, 61), {"lower": 5e-4, "upper": -0.5}[bound]
    grid, sign = LossGrid(0.125, -40, 81), 1.0 if bound == "lower" else -1.0
    for _ in range(25):
        experiments = [finite.random_experiment(rng, 5) for _ in range(2)]
        pairs = [finite.as_arrays(one) for one in experiments]
        moved = [[one * more for one in pair] for pair in pairs for more in [1.0 + most * rng.random(len(pair[0]))]]
        near = [TradeOff(*(one.astype(np.float32) for one in pair), bound) for pair in pairs]
        for curves in ([TradeOff(*pair, bound) for pair in moved], near):
            values = [[float(finite.trade_off(one, float(a))) for a in ALPHA] for one in experiments]
            truth = [[float(finite.hockey_stick(one, float(np.exp(x)))) for x in epsilon] for one in experiments]
            for first, value in zip(curves, values, strict=True):
                assert np.all(sign * (np.array(value) - supremum([first, first]).trade_off(ALPHA)) >= -1e-15)
            both = supremum(curves)
            if bound == "lower":
                assert np.all(both.trade_off(ALPHA) <= np.min(values, 0) + 1e-15)
            assert np.all(sign * (both.profile(grid).hockey_stick(epsilon) - np.max(truth, 0)) >= -1e-15)


@pytest.mark.parametrize("size", [None, 16])
@pytest.mark.parametrize("bound", ["lower", "upper"])
def test_products_of_curves_whose_two_sums_differ_stay_on_their_side(bound, size):
    """What is above a curve on both sides of slope 1 need not be above it in a product."""
    rng, epsilon, sign = np.random.default_rng(8), np.linspace(-3.0, 3.0, 25), 1.0 if bound == "lower" else -1.0
    for _ in range(15):
        experiments = [finite.random_experiment(rng, 5) for _ in range(2)]
        truth = [float(finite.hockey_stick(finite.compose(*experiments), float(np.exp(x)))) for x in epsilon]
        (widths, drops), other = (finite.as_arrays(one) for one in experiments)
        share = rng.choice([0.0, 1.0], 2) * {"lower": 5e-4, "upper": -0.5}[bound]
        shifted = widths + share[0] * np.maximum(widths - drops, 0), drops + share[1] * np.maximum(drops - widths, 0)
        for curve_of_first in (shifted, [one.astype(np.float32) for one in (widths, drops)]):
            product = TradeOff(*curve_of_first, bound).compose(TradeOff(*other, bound), size)
            found = product.profile(LossGrid(0.125, -40, 81)).hockey_stick(epsilon)
            assert np.all(sign * (found - truth) >= -1e-15)
