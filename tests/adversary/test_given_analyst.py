"""`adversary.evaluate`: one analyst's own privacy, and Example 3.3 of the f-DP paper as printed and as meant."""

import math

import numpy as np
import pytest

from jaxacct import Composed, Gaussian, LossGrid, PoissonSampled, RandomizedResponse, RenyiDP, adversary, delta
from jaxacct.adversary import Rule, evaluate

GAMMA = 1.36333033  # where the two futures of Example 3.3 cross


def sampled(mu):
    return PoissonSampled(Gaussian(1 / mu), 0.5)


FIRST, LEVEL, SMALL, LARGE = QUERIES = [sampled(mu) for mu in (1.3, 2.25, 0.1, 10.0)]
ANY = Rule.of_counts(QUERIES, lambda counts: sum(counts) <= 3)


def analyst(level_below):
    """y_1 is at most 0.65 where the first loss is at most 0; then twice 2.25, or 0.1 and 10, or the other way round."""

    def choice(counts, losses):
        if counts == (0, 0, 0, 0):
            return 0
        if counts == (1, 0, 0, 0):
            return np.where((losses <= 1e-9) == level_below, 1, 2)
        return 1 if counts[1] else 3

    return choice


def test_the_printed_counterexample_has_no_excess_and_the_exchanged_one_has():
    at = math.log(GAMMA)
    plans = [Composed([FIRST, LEVEL], [1, 2]), Composed([FIRST, SMALL, LARGE], [1, 1, 1])]
    budget = [delta(plan, at, relation="remove") for plan in plans]
    grid = LossGrid(0.01, -3000, 6001)
    printed, exchanged = (evaluate(ANY, analyst(below), 3, at, relation="remove", grid=grid) for below in (True, False))
    assert printed.lower <= 0.513995 <= printed.upper
    assert printed.upper < min(one.lower for one in budget)
    assert exchanged.lower <= 0.560630 <= exchanged.upper
    assert exchanged.lower - max(one.upper for one in budget) > 0.022


@pytest.mark.parametrize("relation", ["remove", "add", "add_or_remove"])
def test_an_analyst_who_ignores_what_she_sees_has_the_composition(relation):
    queries = [PoissonSampled(Gaussian(1.0), 0.2), Gaussian(2.0)]
    plan = lambda counts, losses: 0 if counts[0] < 2 else 1  # noqa: E731
    rule = Rule.of_counts(queries, lambda counts: sum(counts) <= 3)
    epsilon = np.array([-0.5, 0.0, 0.3, 1.0, 3.0])
    found = evaluate(rule, plan, 3, epsilon, relation=relation)
    truth = delta(Composed(queries, [2, 1]), epsilon, relation=relation)
    assert np.all(found.lower <= truth.upper)
    assert np.all(truth.lower <= found.upper)
    assert np.all(found.upper - found.lower <= 2e-5)


def test_an_analyst_of_randomized_response_is_exact_and_never_beats_the_worst_case():
    one = math.log(2.0)
    queries = [RandomizedResponse(one), RandomizedResponse(2 * one)]
    rule = Rule.additive(queries, [1, 2], 3)
    play = lambda left, losses: np.where(losses > 0, 1, 0) if left == 3 else np.where(losses > -3 * one, 0, -1)  # noqa: E731
    # Both start with the small one here: the state is 3 and the loss is 0.
    found = evaluate(rule, lambda left, losses: play(left, losses) if left > 1 else -1, 2, np.array([0.0, one]))
    assert np.all(found.upper - found.lower <= 1e-9)
    # Two runs with e^l = 2: P(both) = 4/9 against 1/9, one of each 2/9 against 2/9.
    assert found.upper == pytest.approx([3 / 9, 4 / 9 - 2 / 9], abs=1e-9)
    assert np.all(found.lower <= adversary.worst_case(rule, 2).hockey_stick(np.array([0.0, one])).upper)


def test_a_choice_that_the_rule_refuses_is_named():
    rule = Rule.additive([RandomizedResponse(1.0)], [1], 1)
    with pytest.raises(ValueError, match="choice must play what the rule allows"):
        evaluate(rule, lambda left, losses: 0, 2, 0.5)
    with pytest.raises(ValueError, match="choice must return an index below 1 or -1"):
        evaluate(rule, lambda left, losses: 1, 1, 0.5)


def test_the_renyi_residue_is_what_the_divergence_leaves():
    left = adversary.renyi_residue(RenyiDP(8.0, 1.0), Gaussian(3.0))
    assert left.epsilon == pytest.approx(1 - 8 / 18)
    assert left.epsilon <= 1 - 8 / 18
    assert adversary.renyi_residue(RenyiDP(8.0, 0.4), Gaussian(3.0)) is None
