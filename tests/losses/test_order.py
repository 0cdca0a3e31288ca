"""The Blackwell order against exact rational arithmetic; suprema, infima, crossings, chains."""

import math
from fractions import Fraction as F

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import LossGrid, PrivacyProfile, TradeOff, dominates, supremum
from jaxacct.losses.compare.chain import is_chain
from jaxacct.losses.compare.order import NO, UNDECIDED, YES, crossings, known_order
from jaxacct.losses.compare.suprema import infimum
from tests import finite, stored
from tests.refusals import all_refused

GRID = LossGrid(1 / 32, -320, 641)


def curve(experiment, bound="lower"):
    return TradeOff(*finite.as_arrays(experiment), bound)


def gaussian(sigma, bound="upper", grid=GRID):
    return PrivacyProfile.from_mechanism(jaxacct.Gaussian(sigma), bound, grid=grid)


def test_random_experiments_are_ordered_as_in_rational_arithmetic():
    rng = np.random.default_rng(4)
    seen = []
    for trial in range(40):
        a = finite.random_experiment(rng, 3, singular=trial % 2 == 0)
        # Every second one is a coarsening of the first, or leakier by one more run, so that all answers occur.
        b = finite.compose(a, finite.randomized_response("3/2")) if trial % 3 == 0 else finite.random_experiment(rng, 3)
        found = dominates(curve(b), curve(a))
        true = finite.at_most(a, b)
        seen.append(true)
        if found.verdict == YES:
            assert true
        if found.verdict == NO:
            assert not true
            gamma = np.exp(min(max(float(found.epsilon), -600.0), 600.0))
            gap = float(finite.hockey_stick(a, gamma) - finite.hockey_stick(b, gamma))
            if found.epsilon != -np.inf:
                assert gap >= float(found.gap) - 1e-14
        assert (found.verdict == UNDECIDED) == (abs(float(found.gap)) < 1e-12 and not found.slack <= 0)
    assert any(seen)
    assert not all(seen)


@pytest.mark.slow
def test_mechanisms_are_ordered_with_certificates_and_the_gap_is_where_it_says():
    small = jaxacct.PoissonSampled(jaxacct.Gaussian(1.0), 0.1)
    big = jaxacct.Gaussian(0.9)
    assert dominates(big, small, grid=GRID).word == "yes"
    no = dominates(small, big, grid=GRID)
    assert no.word == "no"
    truth = [jaxacct.delta(m, float(no.epsilon)) for m in (big, small)]
    assert no.gap <= truth[0].upper - truth[1].lower
    assert no.gap >= (truth[0].lower - truth[1].upper) * (1 - 1e-9)
    # A numerical yes, where no closed form helps: two curves of different shape.
    other = jaxacct.PoissonSampled(jaxacct.Gaussian(0.7), 0.01)
    assert dominates(jaxacct.Gaussian(0.3), other, grid=LossGrid(1 / 16, -800, 1601)).word == "yes"
    # Closer together than the grid can see.
    nearly = jaxacct.Composed([jaxacct.Gaussian(1.0 + 1e-9), jaxacct.PoissonSampled(jaxacct.Gaussian(50.0), 0.001)])
    assert dominates(nearly, jaxacct.Gaussian(1.0), grid=GRID).word == "undecided"


def test_curves_at_their_word():
    upper, lower = gaussian(1.0), gaussian(1.0, "lower")
    assert dominates(upper, lower).word == "yes"
    assert dominates(lower, upper).word == "no"
    assert dominates(upper, upper).word == "yes"
    batch = PrivacyProfile(np.stack([upper.excess, lower.excess, gaussian(0.5).excess]), GRID)
    np.testing.assert_array_equal(dominates(batch, upper).verdict, [YES, NO, YES])
    two = upper.to_pld().self_compose(2)
    # The law's arrays come out of an FFT, good to about 1e-12.
    assert dominates(two, upper, tolerance=1e-10).word == "yes"
    assert dominates(upper.to_pld(), two).word == "no"


def test_the_order_runs_traced_and_in_batches():
    upper = gaussian(1.0)
    batch = PrivacyProfile(np.stack([gaussian(0.8).excess, gaussian(1.25).excess]), GRID)
    found = jax.jit(lambda a, b: dominates(a, b, tolerance=1e-6))(batch, upper)
    np.testing.assert_array_equal(np.asarray(found.verdict), [YES, NO])
    mapped = jax.vmap(lambda a: dominates(a, upper).verdict)(batch)
    np.testing.assert_array_equal(np.asarray(mapped), [YES, NO])
    broken = stored.profile(np.full(GRID.size, np.nan), GRID)
    # No privacy is what a broken upper curve is read as: nobody else's curve dominates it.
    assert int(jax.jit(lambda a, b: dominates(a, b).verdict)(upper, broken)) == NO


def test_crossings_of_randomized_responses_are_exact():
    """D3 of the residue formulas: RR_2 twice and RR_3 cross at 11/5, and at its mirror image."""
    twice = curve(finite.compose(*[finite.randomized_response(2)] * 2))
    found = crossings(twice, curve(finite.randomized_response(3)), most=4)
    assert found.count == 2
    grid = LossGrid(math.log(3) / 64, -128, 257)
    fine = crossings(twice, curve(finite.randomized_response(3)), grid=grid, most=4)
    assert fine.count == 2
    for end, answer in zip((0, 1), (math.log(5 / 11), math.log(11 / 5)), strict=True):
        assert found.lower[end] <= answer <= found.upper[end]
        assert fine.lower[end] <= answer <= fine.upper[end]
        assert fine.upper[end] - fine.lower[end] < 0.06
        assert fine.estimate[end] == pytest.approx(answer, abs=1e-3)
    assert np.isnan(found.lower[2:]).all()


@pytest.mark.slow
def test_the_calibration_point_of_the_corrected_example():
    """Example 3.3 of the paper on f-DP filters: futures (2.25, 2.25) and (0.1, 10) at rate 1/2 cross at 1.36333033."""

    def sampled(mu):
        return jaxacct.PoissonSampled(jaxacct.Gaussian(1 / mu), 0.5)

    truth = 1.36333033  # by quadrature over the first outcome
    pairs = [jaxacct.Composed([sampled(a), sampled(b)]) for a, b in ((2.25, 2.25), (0.1, 10.0))]
    # Losses reach 140; outside the grid they would be called infinite.
    found = crossings(*pairs, relation="remove", grid=LossGrid(1 / 16, -32, 2500), most=2)
    assert found.count == 1
    assert np.exp(found.lower[0]) <= truth <= np.exp(found.upper[0])
    assert np.exp(found.upper[0]) - np.exp(found.lower[0]) < 0.3  # three cells of 1 / 16


@pytest.mark.slow
def test_chains_and_families_that_are_none():
    gaussians = [jaxacct.Gaussian(s) for s in (1.0, 0.5, 3.0, 1.0)]
    assert is_chain(gaussians, grid=GRID).word == "yes"
    failing = [curve(finite.failing(d)) for d in ("1/10", "1/3", "1/50")]
    assert is_chain(failing).word == "yes"
    single = [curve(finite.randomized_response(x)) for x in ("3/2", 2, 3)]
    assert is_chain(single).word == "yes"
    mixed = [*single, curve(finite.compose(*[finite.randomized_response(2)] * 2))]
    found = is_chain(mixed)
    assert found.word == "no"
    assert sorted(found.pair) == [2, 3]
    first, second = (finite.randomized_response(3), finite.compose(*[finite.randomized_response(2)] * 2))
    if found.pair[0] == 3:
        first, second = second, first
    here, there = np.exp(found.epsilon)
    assert finite.hockey_stick(first, here) > finite.hockey_stick(second, here)
    assert finite.hockey_stick(first, there) < finite.hockey_stick(second, there)
    sampled = jaxacct.PoissonSampled(jaxacct.Gaussian(0.3), 0.1)
    assert is_chain([jaxacct.Gaussian(1.0), sampled], grid=LossGrid(1 / 16, -400, 801)).word == "no"
    batch = PrivacyProfile(np.stack([gaussian(s).excess for s in (1.0, 2.0, 0.7)]), GRID)
    assert is_chain(batch, tolerance=1e-12).word == "yes"


@pytest.mark.parametrize("bound", ["upper", "lower"])
def test_supremum_and_infimum_stay_on_their_side_between_the_points(bound):
    rng = np.random.default_rng(6)
    grid = LossGrid(0.25, -16, 33)
    experiments = [finite.random_experiment(rng, 4) for _ in range(3)]
    family = [curve(one, "lower" if bound == "upper" else "upper").profile(grid) for one in experiments]
    at = np.sort(rng.uniform(grid.losses[0] - 1, grid.losses[-1] + 1, 400))
    true = np.array([[float(finite.hockey_stick(one, float(np.exp(e)))) for e in at] for one in experiments])
    best, least = supremum(family), infimum(family)
    sign = 1 if bound == "upper" else -1
    assert np.all(sign * (best.hockey_stick(at) - true.max(0)) >= -1e-15)
    # The infimum is the convex envelope of the minimum; its lower hull on a dense set of points is close to it.
    dense = np.concatenate([[0.0], np.exp(np.linspace(-6, 6, 4001))])
    values = np.array([[float(finite.hockey_stick(one, float(g))) for g in dense] for one in experiments]).min(0)
    hull = [0]
    for k in range(1, len(dense)):
        while len(hull) > 1:
            a, b = hull[-2:]
            if (values[b] - values[a]) * (dense[k] - dense[b]) < (values[k] - values[b]) * (dense[b] - dense[a]):
                break
            hull.pop()
        hull.append(k)
    envelope = np.interp(np.exp(at), dense[hull], values[hull])
    inner = np.abs(at) < 4.9
    assert np.all((sign * (least.hockey_stick(at) - envelope))[inner] >= -1e-4)
    np.testing.assert_allclose(least.hockey_stick(at)[inner], envelope[inner], atol=0.1)
    # Least and greatest: below any upper bound made of the members, convex, and no member is below the infimum.
    np.testing.assert_allclose(
        best.excess, np.max([p.excess for p in family], 0), atol=0.0 if bound == "upper" else 0.1
    )
    assert np.all(least.excess <= np.min([p.excess for p in family], 0) + 1e-14)
    assert bound == "lower" or dominates(best, family[0]).word == "yes"


@pytest.mark.parametrize(("bound", "sign"), [("lower", 1), ("upper", -1)])
def test_both_routes_to_a_supremum_lead_to_the_largest_hockey_stick(bound, sign):
    """Proposition 11: maxima of hockey sticks, and the convex envelope of trade-off curves; orders are powers of 2."""
    rng, grid, alpha = np.random.default_rng(3), LossGrid(math.log(2), -8, 17), np.linspace(0.025, 1.0, 40)
    gammas = [F(2) ** k for k in range(-8, 9)]
    for _ in range(4):
        family = [finite.random_experiment(rng, 4) for _ in range(3)]
        truth = [max(finite.hockey_stick(one, g) for one in family) - max(F(0), 1 - g) for g in gammas]
        by_curves = supremum([curve(one, bound) for one in family])
        assert by_curves.bound == bound
        for found in (by_curves.profile(grid), supremum([curve(one, bound).profile(grid) for one in family])):
            assert all(sign * (F(float(value)) - exact) >= 0 for value, exact in zip(found.excess, truth, strict=True))
            if bound == "lower":
                np.testing.assert_allclose(found.excess, np.array(truth, float), atol=1e-12)
        other = supremum([curve(one) for one in family]).trade_off(alpha)
        np.testing.assert_allclose(by_curves.trade_off(alpha), other, atol=1e-12)


def test_families_of_mechanisms_batches_and_laws():
    sigma = np.array([0.7, 1.0, 1.5])
    rate = np.array([0.1, 0.5, 0.9])
    family = jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)
    best = supremum(family, relation="remove", grid=GRID)
    members = [jaxacct.PoissonSampled(jaxacct.Gaussian(s), r) for s, r in zip(sigma, rate, strict=True)]
    again = supremum(members, relation="remove", grid=GRID)
    np.testing.assert_allclose(best.excess, again.excess, rtol=1e-12)
    batch = PrivacyProfile.from_mechanism(family, relation="remove", grid=GRID)
    np.testing.assert_array_equal(supremum(batch).excess, best.excess)
    np.testing.assert_allclose(jax.jit(lambda p: supremum(p).excess)(batch), best.excess, rtol=2e-7, atol=1e-37)
    laws = [PrivacyProfile(row, GRID).to_pld() for row in batch.excess]
    np.testing.assert_allclose(supremum(laws).excess, best.excess, atol=1e-11)
    lower = supremum(members, bound="lower", relation="remove", grid=GRID)
    assert np.all(lower.excess <= best.excess)


def test_families_that_do_not_fit_are_refused():
    pair = TradeOff(np.full((2, 2), 0.5), np.full((2, 2), 0.5))
    profiles, single = PrivacyProfile(np.zeros((2, GRID.size)), GRID), PrivacyProfile(np.zeros(GRID.size), GRID)
    one, wide = gaussian(1.0), PrivacyProfile(np.zeros(3), LossGrid(1 / 16, -1, 3))
    all_refused(
        (r"sequence must have no batch axes, got shape \(2, 32\)", lambda: dominates(pair, pair)),
        (r"sequence must have no batch axes, got shape \(2, 32\)", lambda: is_chain([pair, pair])),
        (r"members of a sequence .* no batch axes, got shapes \[\(2, 641\)\]", lambda: is_chain([profiles, profiles])),
        ("no batch axes, got shapes", lambda: is_chain([profiles, single])),
        (r"spacings must agree, got 0.03125, 0.0625", lambda: dominates(one, wide)),
        ("family must have at least one member", lambda: supremum([])),
        ("bounds must agree", lambda: supremum([one, gaussian(1.0, "lower")])),
        ("bound must be that of the curves", lambda: supremum([one], bound="lower")),
        (
            "PrivacyProfile must hold numbers, got nan",
            lambda: dominates(one, stored.profile(one.excess * np.nan, GRID)),
        ),
        ("grid must be given for a family of trade-off", lambda: infimum([curve(finite.failing("1/10"))])),
        ("tolerance must be a finite number of at least 0", lambda: dominates(one, one, tolerance=-1.0)),
    )


def sampled(sigma, rate=1.0):
    inner = jaxacct.Gaussian(sigma)
    return jaxacct.PoissonSampled(inner, rate) if rate < 1 else inner


ONE, MIXED = sampled(1.0, 0.5), jaxacct.Composed([sampled(1.0, 0.5), sampled(2.0, 0.25)], (2, 3))
TWO, THREE = (jaxacct.Composed([ONE], steps) for steps in (2, 3))
ZERO = PrivacyProfile(np.zeros(5), LossGrid(0.5, -2, 5))
KNOWN = [(ONE, ONE), (ONE, sampled(2.0, 0.5)), (ONE, sampled(1.0, 0.25)), (sampled(1.0), ONE), (THREE, TWO), (TWO, TWO)]
UNKNOWN = [
    *((b, a) for a, b in KNOWN if a is not b), (sampled(1.0, 0.25), sampled(2.0, 0.5)), (MIXED, ONE), (ONE, MIXED),
    (jaxacct.Laplace(1.0), sampled(5.0, 0.5)), (sampled(0.1, 0.5), jaxacct.Laplace(5.0)),
    (ZERO, sampled(1.0)), (sampled(1.0), ZERO),
    # A batch is no single answer.
    (sampled(np.array([1.0, 1.0]), 0.5), ONE), (sampled(np.array([1.0]), 0.5), ONE),
]  # fmt: skip


def test_sampled_gaussians_that_are_ordered_in_closed_form():
    for relation in ("add_or_remove", "remove"):
        assert all(known_order(one, other, relation) for one, other in KNOWN[:3])
        assert not any(known_order(one, other, relation) for one, other in UNKNOWN)
    assert all(known_order(one, other, "add_or_remove") for one, other in KNOWN)  # one direction stands for both
    traced = jax.jit(lambda x: jnp.asarray(known_order(jaxacct.Gaussian(x), jaxacct.Gaussian(2 * x), "add_or_remove")))
    assert not traced(1.0)
