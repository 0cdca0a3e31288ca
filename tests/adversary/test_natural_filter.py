"""The natural filter's exact cost, freeness and counterexamples: certificates of the two filter papers."""

import itertools
import math
from fractions import Fraction as F

import numpy as np
import pytest
from scipy.stats import norm

import jaxacct
from jaxacct import GDP, ApproximateDP, Gaussian, LossGrid, PoissonSampled, RandomizedResponse
from jaxacct.adversary import (
    adaptive_choice,
    counterexample,
    is_free,
    natural_filter_cost,
    natural_residue,
    residue_condition,
    totally_ordered_closure,
)
from tests import finite

LOG2 = math.log(2)


def response(ratio):
    return RandomizedResponse(math.log(ratio))


def zero(delta):
    return ApproximateDP(0.0, delta)


def laddered(a, steps, delta, pieces=4):
    return [RandomizedResponse(a * j) for j in steps] + [zero(delta / pieces)]


CERTIFICATES = [
    ("corollary 1 and 3", ApproximateDP(LOG2, 2 / 9), [response(2), zero(2 / 9)], 2, LOG2, 8 / 27),
    ("with a tenth", ApproximateDP(LOG2, 2 / 9), [response(2), zero(0.1)], 2, LOG2, 23 / 90),
    ("corollary 2", ApproximateDP(math.log(1.5), 3 / 8), [response(2), response(3)], 3, math.log(1.5), 89 / 216),
    ("two rounds", ApproximateDP(math.log(1.5), 3 / 8), [response(2), response(3)], 2, math.log(1.5), 3 / 8),
    (
        "four rounds",
        ApproximateDP(2 * math.log(1.2), 0.06),
        [response(1.2), response(1.44), zero(0.02)],
        4,
        2 * math.log(1.2),
        0.090200358,
    ),
    ("20 rounds", ApproximateDP(1.0, 1e-2), laddered(0.1, [1], 1e-2), 20, 1.0, 1.161915e-2),
    ("12 rounds", ApproximateDP(1.0, 1e-3), laddered(0.1, [1, 2, 4], 1e-3), 12, 1.0, 2.231665e-3),
    ("worst of 4 rounds", ApproximateDP(1.0, 1e-3), laddered(1 / 6, [1, 2, 4], 1e-3, 1), 4, 1.0, 1e-3),
    ("worst of 8 rounds", ApproximateDP(1.0, 1e-3), laddered(1 / 7, [1, 2, 3], 1e-3, 1), 8, 1.0, 1.889589e-3),
    ("worst of 16 rounds", ApproximateDP(1.0, 1e-3), laddered(1 / 13, [1, 2, 8], 1e-3), 16, 1.0, 2.811185e-3),
    ("half epsilon", ApproximateDP(0.5, 1e-3), laddered(0.05, [1, 2, 4], 1e-3), 15, 0.5, 2.578476e-3),
]


@pytest.mark.parametrize(
    ("budget", "family", "rounds", "epsilon", "truth"), [c[1:] for c in CERTIFICATES], ids=[c[0] for c in CERTIFICATES]
)
def test_costs_are_those_of_the_certificates(budget, family, rounds, epsilon, truth):
    found = natural_filter_cost(budget, family, rounds).hockey_stick(epsilon)
    assert found.upper - found.lower < 1e-12
    assert found.lower == pytest.approx(truth, rel=5e-7)
    exact = [8 / 27, 23 / 90, 89 / 216, 3 / 8]
    if truth in exact:
        assert found.lower <= truth <= found.upper


def test_random_games_agree_with_brute_force():
    rng = np.random.default_rng(5)
    for _ in range(8):
        ratios = [F(int(rng.integers(11, 40)), 10) for _ in range(2)]
        pairs = [finite.randomized_response(r) for r in ratios]
        pairs.append(finite.failing(F(int(rng.integers(1, 20)), 100)))
        order, delta = F(int(rng.integers(11, 30)), 10), F(int(rng.integers(10, 60)), 100)
        budget = finite.compose(finite.randomized_response(order), finite.failing(delta))
        gamma = F(int(rng.integers(5, 30)), 10)

        def allowed(played, _, pairs=pairs, budget=budget):
            after = [finite.compose(played, pair) for pair in pairs]
            return [(i, one) for i, one in enumerate(after) if finite.at_most(one, budget)]

        truth = float(finite.worst(pairs, allowed, [(F(1), F(1))], gamma, 3))
        family = [response(r) for r in ratios] + [zero(float(pairs[2][0][1]))]
        found = natural_filter_cost(ApproximateDP(math.log(order), float(delta)), family, 3)
        bounds = found.hockey_stick(math.log(gamma))
        assert bounds.lower - 1e-15 <= truth <= bounds.upper + 1e-15
        assert bounds.upper - bounds.lower < 1e-12
        assert found.undecided == 0


def test_the_cost_is_at_most_the_sum_of_the_largest_plans():
    """Sequences with the same largest counts are one composition, so they share one delta; in rational arithmetic."""
    rng = np.random.default_rng(8)
    several = 0
    for _ in range(6):
        ratios = [F(int(rng.integers(11, 30)), 10) for _ in range(2)]
        pairs = [*map(finite.randomized_response, ratios), finite.failing(F(int(rng.integers(1, 9)), 100))]
        budget = finite.compose(finite.randomized_response(F(2)), finite.failing(F(int(rng.integers(5, 30)), 100)))

        def plan(counts, pairs=pairs):
            return finite.compose(*[pair for pair, n in zip(pairs, counts, strict=True) for _ in range(n)])

        every = [n for n in itertools.product(range(4), repeat=3) if sum(n) <= 3]
        legal = {n for n in every if finite.at_most(plan(n), budget)}
        larger = {n: [tuple(c + (i == j) for j, c in enumerate(n)) for i in range(3)] for n in legal}
        largest = [n for n in legal if not legal & set(larger[n])]
        several += len(largest) > 1
        family = [response(r) for r in ratios] + [zero(float(pairs[2][0][1]))]
        last = next(p for p, q in budget if q == 0)
        found = natural_filter_cost(ApproximateDP(LOG2, float(last)), family, 3)
        for gamma in (F(1, 2), F(1), F(3, 2), F(2), F(7, 2)):
            total = sum(finite.hockey_stick(plan(n), gamma) for n in largest)
            assert found.hockey_stick(math.log(gamma)).lower <= float(total) + 1e-14
        assert float(found.hockey_stick(LOG2).lower) <= len(largest) * float(finite.hockey_stick(budget, 2)) + 1e-14
    assert several >= 3


@pytest.mark.parametrize(
    ("budget", "family", "rounds", "delta", "mu"),
    [
        (GDP(1.1132672423), [response(1.5), response(2), response(2.4)], 3, 0.0, 1.155779389),
        pytest.param(
            jaxacct.Composed([GDP(0.5103141485), zero(0.05)]),
            [response(1.5), zero(0.05)],
            2,
            0.05,
            0.567988537,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["D4", "D5"],
)
def test_the_whole_game_costs_the_certified_mu(budget, family, rounds, delta, mu):
    """The least Gaussian (with the atom) above the exact cost; the budget's printed mu is rounded down, here up."""
    epsilon = np.linspace(0, 3, 3001)
    cost = natural_filter_cost(budget, family, rounds, tolerance=1e-9).hockey_stick(epsilon)
    gaussian = lambda m: norm.sf(epsilon / m - m / 2) - np.exp(epsilon) * norm.sf(epsilon / m + m / 2)  # noqa: E731
    assert np.all(cost.upper <= delta + (1 - delta) * gaussian(mu + 1e-8) + 1e-9)
    assert np.any(cost.lower > delta + (1 - delta) * gaussian(mu - 2e-6))


def test_free_families():
    assert is_free(ApproximateDP(1.0, 0.01), [GDP(0.5), Gaussian(3.0), GDP(0.1)], 50)
    assert is_free(response(2), [zero(0.1), zero(0.03)], 9)
    assert is_free(GDP(1.0), [response(2)], 4)
    two = is_free(ApproximateDP(math.log(1.5), 3 / 8), [response(2), response(3)], 2)
    three = is_free(ApproximateDP(math.log(1.5), 3 / 8), [response(2), response(3)], 3)
    assert two
    assert not three
    assert three.word == "no"
    assert three.excess == pytest.approx(89 / 216 - 3 / 8, abs=1e-12)
    assert not is_free(ApproximateDP(LOG2, 2 / 9), [response(2), zero(2 / 9)], 2)
    # A budget that no plan of three queries fits, but not a chain: the cost itself decides.
    assert is_free(ApproximateDP(math.log(3), 0.01), [response(2), response(3)], 3)


def test_closures():
    assert totally_ordered_closure([response(2), response(3)], 2)
    no = totally_ordered_closure([response(2), response(3)], 3)
    assert no.word == "no"
    assert set(no.pair) == {(2, 0), (0, 1)}
    a, b = (finite.compose(*[finite.randomized_response(2)] * 2), finite.randomized_response(3))
    signs = {finite.hockey_stick(a, F(math.exp(x))) > finite.hockey_stick(b, F(math.exp(x))) for x in no.epsilon}
    assert signs == {True, False}
    assert not totally_ordered_closure([response(2), zero(0.1)], 2)


def test_counterexamples_are_found_evaluated_and_simulated():
    assert counterexample([response(2), response(3)], 2) is None
    assert counterexample([GDP(1.0), GDP(0.5)], 4) is None
    for family, rounds, cost, allowed in (
        ([response(2), zero(0.1)], 2, 23 / 90, 2 / 9),
        ([response(2), response(3)], 3, 89 / 216, 3 / 8),
    ):
        found = counterexample(family, rounds)
        assert found.rounds == rounds
        assert found.cost.lower <= cost <= found.cost.upper
        assert found.allowed.lower <= allowed <= found.allowed.upper
        assert found.excess == pytest.approx(cost - allowed, abs=1e-12)
        simulated = found.simulate(100_000, seed=3)
        assert abs(simulated.estimate - cost) < 5 * simulated.error
        assert simulated.estimate - allowed > 5 * simulated.error
        # The filter with this very budget is fooled by at least as much.
        fooled = is_free(found.budget(), family, rounds)
        assert fooled.word == "no"
        assert fooled.excess >= found.excess - 1e-9


def test_residues():
    family = [response(2), response(3)]
    budget = ApproximateDP(math.log(1.5), 3 / 8)
    broken = residue_condition(budget, 0, family, 3)
    assert broken.verdict == -1
    assert broken.excess == pytest.approx(89 / 216 - 3 / 8, abs=1e-12)
    assert residue_condition(budget, 0, family, 2)
    left = natural_residue(budget, 0, family, 3)
    # sup{R_2 * R_2, R_3}: at alpha = 0.1 the smaller of the two trade-off curves, or the hull below both.
    both = [finite.compose(*[finite.randomized_response(2)] * 2), finite.randomized_response(3)]
    assert float(left.trade_off(0.1)) <= float(min(finite.trade_off(x, F(1, 10)) for x in both)) + 1e-12
    assert natural_residue(response(1.1), 0, family, 3) is None


def test_sampled_gaussians_break_the_filter_as_in_example_3_3():
    member = lambda mu: PoissonSampled(Gaussian(1 / mu), 0.5)  # noqa: E731
    grid = LossGrid(LOG2 / 160, -2700, 5401)
    found = adaptive_choice(member(1.3), [member(2.25)] * 2, [member(0.1), member(10.0)], relation="remove", grid=grid)
    assert math.exp(found.epsilon) == pytest.approx(1.36333, abs=0.02)
    assert found.cost.lower <= 0.560630 + 1e-5
    assert 0.559 < found.cost.lower <= found.cost.upper < 0.562
    assert 0.022 < found.excess <= 0.02327
    # The corrected branches: (2.25, 2.25) after a first output above 0.65, whose loss is above 0.
    assert found.choice(1.0) == 0
    assert found.choice(-0.5) == 1


def test_a_gaussian_budget_is_broken_by_randomized_response():
    family = [response(1.5), response(2), response(2.4)]
    free = is_free(GDP(1.1132672423), family, 3)
    assert free.word == "no"
    assert free.excess == pytest.approx(0.0165, abs=1e-4)
    assert math.exp(free.epsilon) == pytest.approx(1.464, abs=2e-3)
    # Without the three-round plan in the budget it is refused, and with more than the cost it is free.
    assert is_free(GDP(1.16), family, 3).word == "yes"
