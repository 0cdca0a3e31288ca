"""Games whose queries are not finite, or are given as curves: played on lattices, small ones here."""

import math

import numpy as np
import pytest

import jaxacct
from jaxacct import GDP, PLD, ApproximateDP, Laplace, LossGrid, PrivacyProfile, RandomizedResponse, TradeOff
from jaxacct.adversary import counterexample, is_free, natural_filter_cost, totally_ordered_closure
from tests import finite

LOG2 = math.log(2)
GRID = LossGrid(LOG2 / 16, -80, 161)
TENTH = [RandomizedResponse(LOG2), ApproximateDP(0.0, 0.1)]  # costs 23/90 under a budget of (log 2, 2/9)


def curves(kind):
    if kind == "PLD":
        return [PLD.from_mechanism(m, relation="replace", grid=GRID) for m in TENTH]
    if kind == "profile":
        return [PrivacyProfile.from_mechanism(m, relation="replace", grid=GRID) for m in TENTH]
    return [
        TradeOff(*finite.as_arrays(pair)) for pair in (finite.randomized_response(2), finite.failing(finite.F(1, 10)))
    ]


@pytest.mark.parametrize("kind", ["PLD", "profile", "trade-off"])
def test_curves_play_like_what_they_are_curves_of(kind):
    budget = ApproximateDP(LOG2, 2 / 9)
    for given in (budget, PLD.from_mechanism(budget, relation="replace", grid=GRID)):
        cost = natural_filter_cost(given, curves(kind), 2, tolerance=1e-9, grid=None if kind == "PLD" else GRID)
        found = cost.hockey_stick(LOG2)
        assert found.lower - 1e-9 <= 23 / 90 <= found.upper + 1e-9
        assert found.upper - found.lower < (1e-9 if kind == "PLD" else 1e-3)
    assert is_free(budget, curves(kind), 2, tolerance=1e-9, grid=GRID).word == "no"


CONTINUOUS = [Laplace(4.0), RandomizedResponse(0.3)]
LATTICE = LossGrid(0.05, -80, 161)


@pytest.mark.parametrize(
    ("budget", "steps"),
    [
        # The most runs of the louder query that an analyst could always play.
        (ApproximateDP(0.5, 0.05), 2),
        (GDP(3.0), 3),
        (Laplace(1.0), 2),
    ],
    ids=["approximate", "gaussian", "profile"],
)
def test_continuous_queries_under_budgets_of_every_kind(budget, steps):
    if isinstance(budget, Laplace):
        budget = PrivacyProfile.from_mechanism(budget, grid=LATTICE)
    at, rounds = np.array([0.0, 0.5, 1.0]), max(steps, 2)
    cost = natural_filter_cost(budget, CONTINUOUS, rounds, grid=LATTICE)
    bounds = cost.hockey_stick(at)
    louder = jaxacct.delta(CONTINUOUS[1], at, steps=steps)
    assert np.all(bounds.upper >= np.maximum(bounds.lower, louder.lower - 1e-12))
    # Randomized response at 0.3 is all that either can be, so its runs alone are more than any choice.
    every = jaxacct.delta(CONTINUOUS[1], at, steps=rounds)
    assert np.all(bounds.upper <= every.upper + 1e-9)
    assert np.all(cost.profile().hockey_stick(at) >= bounds.upper - 1e-12)
    if rounds == 2:
        assert is_free(budget, CONTINUOUS, 2, grid=LATTICE).word in ("yes", "undecided")


def test_a_finite_budget_may_have_losses_between_lattice_points():
    family = [Laplace(1.0), ApproximateDP(0.0, 0.2)]
    assert is_free(ApproximateDP(0.51, 0.25), family, 2, grid=LATTICE)
    on, between = (is_free(ApproximateDP(epsilon, 0.36), family, 2, grid=LATTICE) for epsilon in (0.6, 0.61))
    assert on.word == between.word == "no"
    assert between.epsilon == pytest.approx(0.61)
    cost = natural_filter_cost(ApproximateDP(0.61, 0.36), family, 2, grid=LATTICE).hockey_stick(0.61)
    assert 0.02 < between.excess <= cost.upper - 0.36 < on.excess


def test_closures_and_counterexamples_of_continuous_queries():
    assert totally_ordered_closure([Laplace(4.0), Laplace(2.0)], 2, grid=LATTICE).word != "no"
    family = [Laplace(1.0), ApproximateDP(0.0, 0.2)]
    crossing = totally_ordered_closure(family, 2, grid=LATTICE)
    assert crossing.word == "no"
    assert set(crossing.pair) == {(1, 0), (0, 1)}
    laplace = jaxacct.delta(Laplace(1.0), np.sort(crossing.epsilon))
    assert laplace.lower[0] > 0.2
    assert laplace.upper[1] < 0.2

    found = counterexample(family, 2, grid=LATTICE)
    assert found is not None
    assert 0 < found.excess <= found.cost.upper - found.allowed.lower + 1e-12
    profile = found.profile([found.epsilon])
    assert profile.lower[0] == pytest.approx(found.cost.lower, abs=1e-9)
    with pytest.raises(ValueError, match="epsilon must be within the lattice"):
        found.profile(100.0)
    with pytest.raises(ValueError, match="family must be finite"):
        found.interaction()
    with pytest.raises(ValueError, match="family must be finite"):
        found.simulate(10)
    assert float(found.budget().hockey_stick(found.epsilon)) >= found.allowed.lower - 1e-12
