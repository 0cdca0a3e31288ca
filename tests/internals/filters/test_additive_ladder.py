"""The ladder of bands, its closed form and its product of responses, against exact sums in high precision."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.adversary.filters import ladder as module
from jaxacct.adversary.filters.ladder import Ladder, LadderGuarantee

RNG = np.random.default_rng(6)


def test_what_theorem_9_says_is_rounded_up_and_its_h_down():
    with mpmath.workdps(40):
        for epsilon in 10.0 ** RNG.uniform(-3, 1, 30):
            rounds = int(RNG.integers(1, 10**6))
            e = mpmath.mpf(epsilon)
            truth = mpmath.expm1(e) / (mpmath.exp(e) + mpmath.exp(-e))
            delta = 10.0 ** RNG.uniform(-12, -4)
            h = module._check(epsilon, delta, rounds)
            assert truth * (1 - 2.0**-46) <= h <= truth
            k = 3 + (rounds - 1).bit_length()
            size = mpmath.log(k / mpmath.mpf(delta))
            r = mpmath.ceil(8 * (2 + 2 * mpmath.sqrt(size) + 2 * size / 3))
            wanted = (1 + (k - 2) * r) * e, (1 + 2 * (k - 2) * r) * mpmath.mpf(delta) - mpmath.log1p(-delta / truth)
            for value, exact in zip(module.closed_form(epsilon, delta, rounds), wanted, strict=True):
                assert exact <= value <= exact * (1 + 2.0**-46)
    with pytest.raises(ValueError, match="delta must be below min"):
        module.closed_form(0.1, 0.0951, 10)
    with pytest.raises(ValueError, match=r"delta must be below min\(1/2, .* got 0.5"):
        module.closed_form(5.0, 0.5, 10)


@pytest.mark.parametrize(("epsilon", "count"), [(0.3, 1), (0.3, 20), (0.01, 300), (2.0, 7), (1.0, 0)])
def test_hockey_sticks_of_repeated_responses_are_binomial_sums(epsilon, count):
    with mpmath.workdps(40):
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
        for order in (0.0, 0.25, 1.0):
            exact = sum(
                mpmath.binomial(count, j)
                * p**j
                * (1 - p) ** (count - j)
                * -mpmath.expm1(order - (2 * j - count) * epsilon)
                for j in range(count + 1)
                if (2 * j - count) * epsilon > order
            )
            assert module._response_power(epsilon, count, order) == pytest.approx(float(exact), rel=1e-11, abs=1e-300)


def test_the_tail_is_above_every_binomials_and_at_most_both_of_its_bounds():
    for budget in (0.3, 1.0, 2.5, 7.0):
        for count in (1, 2, 4, 9, 20):
            found = module._tail(budget, count)
            with mpmath.workdps(30):
                power = mpmath.mpf(budget) ** count / mpmath.factorial(count)
                chernoff = mpmath.exp(-(count * mpmath.log(count / budget) - count + budget)) if count > budget else 1
                best = min(power, chernoff, 1)
            assert best <= found <= best * (1 + 3e-9)
            for trials in (30, 300):
                p = budget / trials
                exact = sum(math.comb(trials, j) * p**j * (1 - p) ** (trials - j) for j in range(count, trials + 1))
                assert exact <= found


@pytest.mark.parametrize("rounds", [1, 5, 64])
def test_the_ladder_has_the_bands_of_the_theorem(rounds):
    epsilon, delta = 0.5, 1e-3
    bands = module.ladder(epsilon, delta, rounds)
    k = 3 + (rounds - 1).bit_length()
    assert bands.epsilons.tolist() == [epsilon * 2.0 ** (i - k + 2) for i in range(1, k)] + [np.inf]
    assert bands.budgets[0] == rounds == bands.answers[0]
    assert bands.budgets.size == k
    assert bands.answers.size == k - 1
    h = module._check(epsilon, delta, rounds)
    assert -math.log1p(-delta / h) <= bands.budgets[-1] <= -math.log1p(-delta / h) * (1 + 1e-14)
    failure = bands.budgets[-1]
    for band in range(1, k - 1):
        sticks = [module._response_power(bands.epsilons[band - 1], n, epsilon) for n in range(rounds + 1)]
        most = max(n for n, stick in enumerate(sticks) if stick <= 2 * delta)
        assert bands.budgets[band] == min(most + 1, rounds)
        n = int(bands.answers[band])
        assert bands.budgets[band] <= n <= rounds
        last = module._tail(bands.budgets[band], n + 1)
        assert n == rounds or last <= delta / (k - 2)
        assert n == bands.budgets[band] or module._tail(bands.budgets[band], n) > delta / (k - 2)
        failure += last if n < rounds else 0.0
    assert failure <= bands.failure <= failure * (1 + 1e-11)


def test_a_count_that_rounding_could_have_turned_down_is_taken():
    first = module.ladder(0.5, 1e-3, 64).epsilons
    stick = module._response_power(first[6], 5, 0.5)
    budgets = [module.ladder(0.5, stick / 2 * (1 - part), 64).budgets[7] for part in (5e-10, 2e-9)]
    assert budgets[0] == 6 > budgets[1]


def test_a_product_of_responses_is_the_convolution_and_its_error_covers_rounding():
    bands = Ladder(np.array([0.25, 0.5, 1.0, np.inf]), np.zeros(4), np.array([3, 4, 2]), 0.0)
    losses, masses, error = module.product_law(bands)
    assert np.allclose(losses, 0.25 * np.arange(-19, 20))
    exact = {0: mpmath.mpf(1)}
    with mpmath.workdps(40):
        for stride, epsilon, count in ((1, 0.25, 3), (2, 0.5, 4), (4, 1.0, 2)):
            p = 1 / (1 + mpmath.exp(-mpmath.mpf(epsilon)))
            for _ in range(count):
                old, exact = exact, {}
                for k, m in old.items():
                    for step, chance in ((stride, p), (-stride, 1 - p)):
                        exact[k + step] = exact.get(k + step, 0) + m * chance
        truth = np.array([float(exact.get(k, 0)) for k in range(-19, 20)])
    size, norm = 64, np.linalg.norm(truth)
    assert np.abs(masses - truth).sum() <= error
    assert error == pytest.approx(np.sqrt(size) * norm * (16 * 9 + 64 * 6) * 2.0**-51, rel=1e-6, abs=0)
    assert masses.min() >= 0
    losses, masses, _ = module.product_law(Ladder(np.array([0.25, 0.5, np.inf]), np.zeros(3), np.array([2, 15]), 0.0))
    p, q = (1 / (1 + math.exp(-e)) for e in (0.25, 0.5))
    assert masses.size == 65
    assert (masses[0], masses[-1]) == (
        pytest.approx((1 - p) ** 2 * (1 - q) ** 15, abs=1e-14),
        pytest.approx(p**2 * q**15, rel=1e-10),
    )
    none = module.product_law(Ladder(np.array([0.25, 0.5, np.inf]), np.zeros(3), np.array([2**22, 2**22]), 0.0))
    assert none[0].size == none[1].size == none[2] == 0


def test_a_product_is_made_up_to_the_most_points_and_not_beyond(monkeypatch):
    for answers, size in (([7, 4], 32), ([8, 4], 64), ([0, 1], 8), ([1, 0], 4)):  # more than twice the reach and 1
        bands = Ladder(np.array([0.25, 0.5, np.inf]), np.zeros(3), np.array(answers), 0.0)
        for most in (size - 1, size):
            monkeypatch.setattr(module, "_MOST", most)
            assert (module.product_law(bands)[0].size > 0) == (most >= size)


def test_a_guarantee_is_the_best_of_its_bounds_and_its_epsilon_the_least_that_is_known(monkeypatch):
    empty = np.zeros(0)
    closed = LadderGuarantee((5.0, 1e-5), None, empty, empty, 0.0, "")
    assert closed.is_bound is True
    assert closed.delta(np.array([4.999, 5.0, 6.0])).tolist() == [1.0, 1e-5, 1e-5]
    assert closed.epsilon(np.array([[1e-4, 1e-6]])).tolist() == [[pytest.approx(5.0, rel=1e-12), np.inf]]
    assert float(LadderGuarantee((0.3, 1e-5), None, empty, empty, 0.0, "").epsilon(1e-4)) == pytest.approx(0.3)
    both = LadderGuarantee((5.0, 1e-5), (7.0, 1e-7), empty, empty, 0.0, "")
    assert float(both.epsilon(1e-6)) == pytest.approx(7.0, rel=1e-12)
    assert float(both.epsilon(2e-5)) == pytest.approx(5.0, rel=1e-12)
    assert float(both.epsilon(1e-8)) == np.inf
    losses, masses = np.array([-9.0, 0.0, 9.0]), np.array([0.1, 0.4, 0.5])
    whole = LadderGuarantee((5.0, 0.6), None, losses, masses, 1e-3, "")
    for epsilon in (0.0, 1.0, 8.0, 9.0, 10.0):
        exact = 0.5 * max(-math.expm1(epsilon - 9.0), 0) + 1e-3
        value = float(whole.delta(epsilon))
        assert exact <= value <= exact * (1 + 2e-9)
    assert float(whole.epsilon(0.2)) == pytest.approx(9.0 + math.log1p(-0.199 / 0.5), rel=1e-7)
    assert float(whole.epsilon(1.1e-3)) <= 9.0
    with pytest.raises(ValueError, match="delta must be"):
        whole.epsilon(1.0)
    with pytest.raises(ValueError, match="epsilon must be"):
        whole.delta(-1.0)
    made = []
    monkeypatch.setattr(module, "FromProfile", lambda points, deltas: made.append((points, deltas)))
    monkeypatch.setattr(module.PrivacyProfile, "from_mechanism", lambda mechanism, grid: grid)
    grid = LossGrid(1.0, -1, 3)
    assert whole.profile(grid) is grid
    assert both.profile(grid) is grid
    (points, deltas), (other, _) = made
    assert points.size == 801
    assert (points[0], points[-1]) == (0.0, 9.0)
    assert 5.0 in points
    assert np.array_equal(deltas, whole.delta(points))
    assert (other[-1], 5.0 in other, 7.0 in other) == (7.0, True, True)
    LadderGuarantee((5000.0, 0.6), None, losses, masses, 1e-3, "").profile(grid)
    assert sorted(made[-1][0].tolist())[-2:] == [600.0, 5000.0]


def test_without_one_more_bound_there_is_none_and_with_it_it_is_basic_composition():
    plain = module.guarantee_of(0.5, 1e-3, 5, "words", natural=False)
    assert plain.trivial is None
    assert plain.statement == "words"
    best = module.guarantee_of(0.5, 1e-3, 5, "words", natural=True)
    assert best.trivial == pytest.approx((2.5, 5e-3), rel=1e-15)
    assert best.trivial[0] > 2.5 * (1 - 1e-16)
    bands = module.ladder(0.5, 1e-3, 5)
    assert plain.failure == bands.failure + module.product_law(bands)[2]
