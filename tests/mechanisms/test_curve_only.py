"""Profiles, zCDP and Rényi guarantees: the pair dominates everything that keeps the guarantee, and is the best such."""

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from scipy import optimize

import jaxacct
from jaxacct import (
    GDP,
    PLD,
    ApproximateDP,
    Composed,
    FromProfile,
    Gaussian,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    RenyiDP,
    ZeroConcentratedDP,
)
from jaxacct.losses.renyi import delta_from_renyi

pytestmark = pytest.mark.filterwarnings("ignore:.*bounds of:RuntimeWarning")


def infimum_over_orders(rho, epsilon):
    """The best order's conversion for rho-zCDP, by a search."""
    log_delta = lambda u: (  # noqa: E731
        np.exp(u) * ((1 + np.exp(u)) * rho - epsilon) + np.exp(u) * np.log1p(-1 / (1 + np.exp(u))) - np.log1p(np.exp(u))
    )
    grid = np.linspace(-30, 15, 2000)
    start = grid[np.argmin(log_delta(grid))]
    found = optimize.minimize_scalar(
        log_delta, bounds=(start - 0.1, start + 0.1), options={"xatol": 1e-10}, method="bounded"
    )
    return np.exp(found.fun)


def test_one_point_is_approximate_dp_and_none_at_infinity_is_pure():
    at = np.linspace(-1.0, 2.0, 13)
    for epsilon, delta in ((0.7, 1e-3), (0.0, 0.2), (1.0, 0.0)):
        made = jaxacct.delta(FromProfile([epsilon], [delta]), at)
        known = jaxacct.delta(ApproximateDP(epsilon, delta), at)
        np.testing.assert_allclose(made.upper, known.upper, rtol=3e-12, atol=2e-15)
        np.testing.assert_allclose(made.lower, known.lower, rtol=3e-12, atol=1e-280)
    for sample in (lambda inner: inner, lambda inner: PoissonSampled(inner, 0.3)):
        pair = [sample(one) for one in (FromProfile([0.3], [1e-4]), ApproximateDP(0.3, 1e-4))]
        composed, known = (jaxacct.delta(one, [-0.2, 0.0, 0.5], steps=5, relation="remove") for one in pair)
        np.testing.assert_allclose(composed, known, rtol=1e-6)
        law = PLD.from_mechanism(pair[0])
        assert law.masses.sum() + law.infinity_mass == pytest.approx(1.0, abs=1e-9)


def test_profiles_in_batches_and_bad_ones():
    batch = FromProfile([[0.5, 1.0], [0.5, 1.0]], [[1e-2, 1e-3], [1e-3, 1e-3]])
    assert jaxacct.delta(batch, 0.5).upper == pytest.approx([1e-2, 1e-3], rel=1e-9)
    # Not increasing, and not convex: only what binds counts.
    assert jaxacct.delta(FromProfile([0.5, 1.0], [1e-3, 1e-2]), 3.0).upper == pytest.approx(1e-3, rel=1e-9)
    with pytest.raises(ValueError, match="at least 1 - exp"):
        FromProfile([-1.0], [0.1])
    with pytest.raises(ValueError, match="deltas must be"):
        FromProfile([1.0], [1.1])
    with pytest.raises(ValueError, match="one shape"):
        FromProfile([1.0, 2.0], [0.1])
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda d: jaxacct.delta(FromProfile([1.0], d), 0.5))(np.array([0.1]))


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=6),
    st.lists(st.floats(-3, 3), min_size=1, max_size=6),
)
def test_a_profile_through_points_of_a_pair_dominates_both_directions_and_keeps_the_points(rows, epsilons):
    p, q = np.array(rows).T + 1e-6
    p, q, epsilons = p / p.sum(), q / q.sum(), np.array(epsilons)
    stick = lambda one, other, at: np.maximum(one[:, None] - np.exp(at) * other[:, None], 0).sum(0)  # noqa: E731
    both = lambda at: np.maximum(stick(p, q, at), stick(q, p, at))  # noqa: E731
    made = FromProfile(epsilons, np.minimum(both(epsilons) * (1 + 1e-12), 1.0))
    at = np.concatenate([np.linspace(-5, 5, 101), epsilons])
    upper, mirrored = jaxacct.delta(made, at).upper, jaxacct.delta(made, -at).upper
    assert np.all(upper >= both(at) - 1e-13)
    assert np.all(upper[101:] <= both(epsilons) * (1 + 1e-11) + 1e-14)
    # It is its own reflection: H(-eps) = 1 - e^-eps + e^-eps H(eps).
    assert np.all(np.abs(mirrored - 1 + np.exp(-at) * (1 - upper)) <= 1e-12 * np.exp(np.abs(at)))


@pytest.mark.parametrize("rho", [1e-6, 1e-2, 0.5, 4.0])
def test_zcdp_is_the_infimum_over_orders_where_that_is_convex(rho):
    epsilons = rho + np.sqrt(rho) * np.array([2.2, 3.0, 5.0, 9.0])
    lower, upper = jaxacct.delta(ZeroConcentratedDP(rho), epsilons)
    best = np.array([infimum_over_orders(rho, epsilon) for epsilon in epsilons])
    np.testing.assert_allclose(upper, best, rtol=1e-7)
    assert np.all(lower <= upper)
    np.testing.assert_allclose(lower, jaxacct.delta(GDP(np.sqrt(2 * rho)), epsilons).lower, rtol=1e-6)
    # Smaller epsilons: total variation, and never more than any order gives.
    small = np.array([0.0, 0.3, 1.0]) * np.sqrt(rho)
    values = jaxacct.delta(ZeroConcentratedDP(rho), small).upper
    assert values[0] <= min(np.sqrt(rho / 2), np.sqrt(-np.expm1(-rho))) * (1 + 1e-9)
    assert np.all(values <= [infimum_over_orders(rho, epsilon) * (1 + 1e-9) for epsilon in small])
    # Both directions: the pair is its own reflection.
    mirrored = jaxacct.delta(ZeroConcentratedDP(rho), -small).upper
    np.testing.assert_allclose(mirrored, 1 - np.exp(-small) * (1 - values), rtol=1e-9)


def test_zcdp_of_a_large_rho_is_the_infimum_below_its_losses_too():
    epsilons = np.array([174.0, 180.0, 185.0, 188.0])
    upper = jaxacct.delta(ZeroConcentratedDP(189.0), epsilons).upper
    best = np.array([infimum_over_orders(189.0, epsilon) for epsilon in epsilons])
    np.testing.assert_allclose(1 - upper, 1 - best, rtol=1e-3)


@pytest.mark.parametrize("order", [1.01, 2.0, 30.0, 1e4])
def test_a_renyi_guarantee_is_at_most_its_conversion(order):
    divergence = np.array([1e-4, 0.1, 3.0])[:, None]
    epsilons = np.array([0.0, 0.01, 0.5, 2.0, 6.0])
    lower, upper = jaxacct.delta(RenyiDP(order, divergence), epsilons)
    assert np.all(upper <= np.asarray(delta_from_renyi(divergence, order, epsilons)) * (1 + 1e-7) + 1e-280)
    assert np.all(lower <= upper)
    # Randomized response of the same divergence is a member of the class.
    for i, value in enumerate(divergence[:, 0]):

        def gap(e0, value=value):
            return np.log((np.exp(order * e0) + np.exp((1 - order) * e0)) / (1 + np.exp(e0))) / (order - 1) - value

        if order * 20 < 600:
            e0 = optimize.brentq(gap, 1e-9, 20.0, xtol=1e-15)
            assert np.all(jaxacct.delta(RandomizedResponse(e0 * (1 - 1e-9)), epsilons).lower <= upper[i])


def test_guarantees_add_up_over_runs_and_dominate_members_in_company():
    single = jaxacct.delta(ZeroConcentratedDP(0.2), 1.0).upper
    for mechanism, steps in (
        (ZeroConcentratedDP(0.05), 4),
        (Composed([ZeroConcentratedDP(0.05), ZeroConcentratedDP(0.1)], [2, 1]), 1),
        (Composed([Composed([ZeroConcentratedDP(0.05)]), ZeroConcentratedDP(0.05)]), 2),
    ):
        assert jaxacct.delta(mechanism, 1.0, steps=steps).upper == pytest.approx(single, rel=1e-12)
    renyi = jaxacct.delta(Composed([RenyiDP(8.0, 0.1), RenyiDP(8.0, 0.2)], [2, 1]), 1.0).upper
    assert renyi == pytest.approx(jaxacct.delta(RenyiDP(8.0, 0.4), 1.0).upper, rel=1e-12)

    epsilons = np.array([0.5, 1.5])
    company = [PureDP(0.3), ZeroConcentratedDP(0.05)]
    mixed = jaxacct.delta(Composed(company, [3, 2]), epsilons)
    member = jaxacct.delta(Composed([RandomizedResponse(0.3), Gaussian(10**0.5)], [3, 2]), epsilons)
    assert np.all(mixed.lower <= mixed.upper)
    np.testing.assert_allclose(mixed.lower, member.lower, rtol=1e-6)
    assert np.all(member.upper <= mixed.upper * 1.02)
    # A sampled guarantee: the pair's own sample, above the Gaussian's.
    sampled = jaxacct.delta(PoissonSampled(ZeroConcentratedDP(0.5), 0.1), epsilons)
    gaussian = jaxacct.delta(PoissonSampled(Gaussian(1.0), 0.1), epsilons)
    assert np.all(gaussian.upper <= sampled.upper)
    assert np.all(sampled.lower <= gaussian.upper)
    assert np.all(sampled.upper <= jaxacct.delta(ZeroConcentratedDP(0.5), epsilons).upper)


def test_the_member_below_a_class_is_rounded_down_in_float32_programs_too():
    rhos = np.random.default_rng(0).uniform(0.02, 1.0, 64).astype(np.float32)
    epsilons = np.float32(4.0) * np.sqrt(rhos)
    answer = jax.jit(lambda rho, epsilon: jaxacct.delta(ZeroConcentratedDP(rho), epsilon).lower)
    lower = np.asarray(answer(rhos, epsilons), float)
    member = jaxacct.delta(GDP(np.sqrt(2.0 * rhos.astype(float))), epsilons.astype(float)).upper
    assert np.all(lower <= member)
    np.testing.assert_allclose(lower, member, rtol=2e-7)
