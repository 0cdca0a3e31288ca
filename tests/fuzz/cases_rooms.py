"""Hostile arguments of `adversary`, `audit`, `expost`, `release` and `training`: named, or in time."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from jaxacct import Gaussian, RandomizedResponse, expost, filters, training
from tests.contract.test_expost import CHECKS, DEFINITIONS, SOURCES
from tests.fuzz.common import case

KEY = jax.random.key(0)
FAMILY = [RandomizedResponse(0.5), RandomizedResponse(1.0)]
EPSILONS = np.array([0.5, 1.0])
RESULT = expost.ExPostResult(1.0, 1.0, expost.RenyiExPost(8.0))
PLAN = {"sigma": 1.0, "rate": 0.1, "steps": 10}
TABLES = np.array([[0.5, 0.5], [0.6, 0.4]])


def like(one):
    """The class of a source, check or definition, with what one of it holds; any value may be released."""
    good = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
    return case(type(one), *(good.keys() & {"value"}), **good)


EXPOST = {name: like(one) for name, one in (SOURCES | CHECKS | DEFINITIONS).items() if dataclasses.fields(one)} | {
    "ExPostResult": case(None, "output", output=1.0, epsilon=1.0, definition=expost.RenyiExPost(8.0)),
    "RenyiOdometer": case(order=8.0),
    "approximate_epsilon": case(epsilon=1.0, order=8.0, delta=1e-5),
    "bayes_factor": case(epsilon=1.0, order=8.0, confidence=0.9),
    "convert": case(result=RESULT, to=expost.ApproximateExPost(1e-5)),
    "convert with budgets": case(
        expost.convert, result=expost.ExPostResult(1.0, 1.0, expost.GDPExPost()), to=expost.ApproximateExPost(1e-5),
        order=8.0, budgets=EPSILONS,
    ),
    "ex_ante": case(definition=expost.RenyiExPost(8.0), cap=1.0),
    "exact.excess": case(definition=expost.PureExPost(), tables=TABLES, epsilons=EPSILONS),
    "exact.excess_of_pair": case(definition=expost.PureExPost(), p=TABLES[0], q=TABLES[1], epsilons=EPSILONS),
    "reduction.gumbel_path": case(
        None, "key", key=KEY, scores=np.array([0.5, 0.1]), epsilons=EPSILONS, sensitivity=1.0,
    ),
    "scales.plain_gaussian_scale": case(epsilon=1.0, order=8.0, sensitivity=1.0, checks=3),
    "scales.sparse_vector_scales": case(epsilon=1.0, order=8.0, sensitivity=1.0),
    "stopped_by": case(released=RESULT, check=RESULT),
}  # fmt: skip
ADVERSARY = {
    "Rule.unrestricted": case(queries=FAMILY),
    "natural_residue": case(budget=FAMILY[1], query=0, family=FAMILY, rounds=2, words=("mechanism",)),
    "GeneralizedResponse.enclosing": case(
        query=Gaussian(1.0), epsilons=[0.5, 1.0], relation="remove", words=("mechanism",),
    ),
    "Rule.additive": case(queries=FAMILY, costs=[1, 2], budget=3),
}  # fmt: skip
CLAIM = {"delta": 1e-5, "confidence": 0.9, "mechanism": None, "steps": 1, "relation": "add_or_remove"}
AUDIT = {
    "canaries": case(
        loss=lambda params, row: params @ row, params=TABLES[0], data=TABLES, key=KEY, number=3, gradient_norm=1.0,
        examples=None, words=("canaries",), functions=("loss",),
    ),
    "many_runs": case(false_positives=1, absent=10, false_negatives=2, present=10, **CLAIM),
    "one_run": case(correct=5, guesses=10, canaries=20, **CLAIM),
}  # fmt: skip
TRAINING = {
    "adaptive": case(training.schedules.adaptive, **PLAN),
    "constant": case(training.schedules.constant, **PLAN),
    "largest_sigma": case(size=10),
    "plan_budget": case(filter="gdp", schedule="constant", epsilon=1.0, delta=1e-5, steps=10, rate=0.1),
    "plan_rounds": case(budgets=[0.5, 1.0], order=8.0, rate=0.1, steps=10),
    "poisson_sample": case(key=KEY, size=10, rate=0.1),
    "seeded_keys": case(seed=1),
    "warmup_decay": case(training.schedules.warmup_decay, **PLAN),
}
BUDGET = filters.pure_dp(1.0)
PEOPLE = {"budget": BUDGET, "scale": 50, "relation": "add_or_remove", "max_rows": 1, "state": BUDGET.init()}
BOUNDS = {"lower": 0, "upper": 5, "grid": 1}
RELEASE = {
    "bounded_sum": case(values=[1, 2], **PEOPLE | BOUNDS),
    "count": case(flags=[True, False], **PEOPLE),
    "discrete_gaussian": case(None, "size", sigma=1, size=2),
    "discrete_laplace": case(None, "size", scale=1, size=2),
    "histogram": case(values=["a"], bins=["a", "b"], **PEOPLE),
    "mean": case(values=[1, 2], **PEOPLE | BOUNDS | {"scale": (50, 50)}),
}
CASES = {f"expost.{name}": make for name, make in EXPOST.items()}
CASES |= {f"adversary.{name}": make for name, make in ADVERSARY.items()}
CASES |= {f"audit.{name}": make for name, make in AUDIT.items()}
CASES |= {f"release.{name}": make for name, make in RELEASE.items()}
CASES |= {f"training.{name}": make for name, make in TRAINING.items()}
DEAR = {"adversary.natural_residue"}

QUICK = CASES.keys() - DEAR
