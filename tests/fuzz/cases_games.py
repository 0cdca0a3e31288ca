"""Hostile arguments of what plays games: the adversary's functions, loops until a refusal, ex-post composition."""

from __future__ import annotations

import functools

import jax
import numpy as np

from jaxacct import Gaussian, PoissonSampled, RandomizedResponse, RenyiDP, adversary, expost, filters
from tests.contract import filter_cases as cases
from tests.fuzz import common
from tests.fuzz.common import VALUES, Later

KEY = jax.random.key(0)
FAMILY = [RandomizedResponse(0.5), RandomizedResponse(1.0)]
RESULT = expost.ExPostResult(1.0, 1.0, expost.RenyiExPost(8.0))
SOURCE, CHECK = expost.Brownian(1.0, 1.0, 8.0), expost.SparseVector(0.0, 1.0, 1.0, 8.0)
BUDGETS = np.array([0.5, 1.0])
LOOP = {"check": CHECK, "key": KEY, "disjoint": True, "progress": print}
FINITE = {"relation": "remove", "grid": None}
NAMED = {"words": ("mechanism", "members")}
ANY, GDP = adversary.Rule.unrestricted(FAMILY), filters.gdp(2.0)
case = functools.partial(common.case, tried=VALUES[:24])


def played(**arguments):
    """A rule is asked when it is played."""
    return adversary.worst_case(adversary.Rule.of_counts(**arguments), 2, relation="remove")


def asked(**arguments):
    """An update is asked for when a query comes."""
    ledger = filters.residue(**arguments)
    return ledger.update(cases.law(0.5), ledger.init())


def stepped(carry, state):
    return 0.25, lambda: jax.tree.map(lambda leaf: leaf, carry)


def admitted_at_most(found, arguments):
    """Four queries of a quarter fill the budget of 1, whatever the rest is."""
    assert int(found.steps) <= 4


def within_one(found, arguments):
    """A claim about a worst case is a probability, enclosed."""
    bounds = found.hockey_stick(0.5)
    assert 0 <= bounds.lower <= bounds.upper <= 1


CASES = {
    "filters.halting_scan": case(
        sound=admitted_at_most, functions=("step",), step=stepped, filter=filters.pure_dp(1.0), carry=0.0,
        state=filters.pure_dp(1.0).init(), length=9,
    ),
    "filters.residue": case(
        asked, "parameter",  # a family may take what it likes
        functions=("family", "update"), family=cases.response, update=cases.honest, parameter=40.0, rounds=10,
        grid=cases.GRID, relation="remove", tolerance=1e-10,
    ),
    "filters.sentence": case(reason=2, filter=GDP, query=Gaussian(1.0)),
    "filters.check_state": case(filter=GDP, state=GDP.init()),
    "filters.lower_budget": case(filter=GDP, state=GDP.init(), lower=filters.gdp(1.0)),
    "filters.check_residue": case(before=cases.law(1.0), after=cases.law(0.5), query=cases.law(0.5), tolerance=1e-9),
    "filters.constant_schedules": case(
        filter=Later(cases.menu), delta=1e-3, words=("mechanism",), mechanisms=[PoissonSampled(Gaussian(sigma), 0.1) for
        sigma in (2.0, 4.0)],
    ),
    "adversary.adaptive_choice": case(
        first=FAMILY[0], one=FAMILY[1:], other=FAMILY[:1], **FINITE, words=("mechanism", "members", "family"),
    ),
    "adversary.cost_of_adaptivity": case(
        sound=within_one, queries=FAMILY, epsilon=1.0, delta=0.1, blocks=3, relation="remove", **NAMED,
    ),
    "adversary.counterexample": case(family=FAMILY, rounds=3, **FINITE, **NAMED),
    "adversary.evaluate": case(
        functions=("choice",), rule=ANY, choice=lambda state, losses: 0, rounds=2, epsilon=0.5, **FINITE, **NAMED,
    ),
    "adversary.is_free": case(budget=FAMILY[1], family=FAMILY, rounds=3, **FINITE, tolerance=1e-12, **NAMED),
    "adversary.renyi_residue": case(budget=RenyiDP(8.0, 1.0), query=FAMILY[0], relation="remove", **NAMED),
    "adversary.Rule.of_counts": case(
        played, sound=within_one, functions=("allowed", "certain"), queries=FAMILY,
        allowed=lambda counts: sum(counts) < 3, certain=lambda counts: True, **NAMED,
    ),
    "adversary.natural_filter_cost": case(
        sound=within_one, budget=FAMILY[1], family=FAMILY, rounds=3, **FINITE, tolerance=1e-12, **NAMED,
    ),
    "adversary.residue_condition": case(budget=FAMILY[1], query=0, family=FAMILY, rounds=3, relation="remove", **NAMED),
    "adversary.totally_ordered_closure": case(family=FAMILY, rounds=3, **FINITE, tolerance=1e-12, **NAMED),
    "adversary.worst_case": case(
        sound=within_one, rule=ANY, rounds=2, **FINITE, **NAMED,
    ),
    "expost.reduction.brownian_step": case(
        key=KEY, value=1.0, previous=1.0, spent=0.5, epsilon=1.0, order=8.0, sensitivity=1.0,
    ),
    "expost.compose": case(lambda results: expost.compose(RESULT, results), results=RESULT),
    "expost.compose_until": case(
        expost.compose_until, "start",  # the caller's, passed on as it is
        functions=("step", "accurate", "progress"), step=lambda key, state, number: (state, 0.5), start=0.0,
        accurate=lambda state: 0.0, order=8.0, most=3, **LOOP,
    ),
    "expost.ExPostResult.from_odometer": case(
        None, "output", words=("epsilon",), functions=("spent",), output=1.0, spent=lambda *parameters: 1.0,
        parameters=[1.0], delta=1e-5,
    ),
    "expost.post_process": case(functions=("f",), released=RESULT, f=lambda output, epsilon: output),
    "expost.exact.post_processed_table": case(table=[[0.5, 0.5], [0.6, 0.4]], epsilons=BUDGETS, kernel=np.eye(2)),
    "expost.release_until": case(
        functions=("accurate", "progress"), accurate=lambda release: 0.0, mechanism=SOURCE, epsilons=BUDGETS, **LOOP,
    ),
}  # fmt: skip
# What compiles anew for many values, or plays for long, is for the slow tests.
DEAR = {
    "expost.compose_until", "filters.constant_schedules", "filters.halting_scan", "filters.residue",
    "expost.reduction.brownian_step", "expost.release_until", "adversary.adaptive_choice",
    "adversary.Rule.of_counts", "adversary.worst_case", "adversary.residue_condition",
}  # fmt: skip
QUICK = CASES.keys() - DEAR
