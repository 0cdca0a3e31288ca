"""Hostile budgets, queries and states of filters."""

from __future__ import annotations

import functools
import math

import jax
import numpy as np
import pytest
from hypothesis import given

from jaxacct import Gaussian, LossGrid, PoissonSampled, RandomizedResponse, adversary, filters
from tests.contract import filter_cases as cases
from tests.fuzz.common import ARRAYS, MORE_VALUES, VALUES, WORDS, Case, at_length, fuzz, hostile, some

MENU = [PoissonSampled(Gaussian(sigma), 0.1) for sigma in (2.0, 4.0)]
TINY = {"mechanisms": MENU, "epsilon": 1.5, "delta": 1e-3, "unit": 16, "points": 256, "cache": True, "progress": None}
NORMS = np.array([0.5, 1.0], np.float32)
SAMPLED = PoissonSampled(Gaussian(5.0), 0.1)
MAKERS = {
    "additive_profile": {"epsilon": 1.0, "delta": 1e-5, "rounds": 20},
    "approximate_dp": {"epsilon": 1.0, "delta": 1e-5, "share": 0.5},
    "approximate_gdp": {"budget": 1.0, "regime": "small"},
    "approximate_zcdp": {"rho": 1.0, "delta": 1e-5},
    "gaussian_menu": {"sigma": (1.0, 2.0), "rate": 0.1, "sigmas": 2, "rates": 1},
    "gdp": {"mu": 1.0},
    "gdp_residue": {"mu": 1.0, "delta": 1e-6, "steps": 10, "relation": "remove"},
    "per_example": {"filter": filters.gdp(1.0), "examples": 2},
    "natural": {"budget": Gaussian(1.0), "family": [Gaussian(10.0)], "rounds": 2, "relation": "remove", "grid": None},
    "natural_approximate_dp": {
        "epsilon": 1.0, "delta": 1e-4, "rounds": 10, "grid": cases.SYMMETRIC, "relation": "remove"
    },
    "for_target": {"name": "zcdp", "epsilon": 1.0, "delta": 1e-5},
    "odometer": {"filter": filters.gdp(1.0), "levels": 2, "orders": None},
    "plan_epsilon": {"plan": Gaussian(10.0), "delta": 1e-5, "order": 8.0, "steps": 2, "orders": [2.0, 8.0]},
    "plan_order": {"plan": Gaussian(10.0), "delta": 1e-5, "epsilon": 1.0, "steps": 2, "orders": [2.0, 8.0]},
    "prepare": {"query": RandomizedResponse(0.1), "relation": "remove", "grid": cases.GRID, "atoms": 8},
    "pure_dp": {"epsilon": 1.0},
    "renyi": {"epsilon": 3.0, "delta": 1e-5, "order": 8.0},
    "renyi_any": {"epsilon": 3.0, "delta": 1e-5, "orders": (8.0, 12.5)},
    "zcdp": {"rho": 1.0},
}  # fmt: skip


def of(name):
    return getattr(adversary if name in ("additive_profile", "natural_approximate_dp") else filters, name)


def maker(name, arguments):
    return lambda: Case(of(name), arguments, words=("mechanism", "order"), functions=("progress",))


@functools.cache
def made(name):
    """A filter of every kind."""
    if name in ("menu", "online_menu"):
        return filters.menu(**TINY, online=name == "online_menu")
    if name.startswith("each of "):
        return filters.per_example(made(name.removeprefix("each of ")), examples=2)
    if name == "residue":
        return filters.residue(cases.response, cases.honest, 40.0, rounds=10, grid=cases.GRID)
    if name == "undeclared":
        return filters.natural(cases.law(32 * cases.STEP), grid=cases.GRID, relation="replace")
    return of(name)(**MAKERS[name])


def method(name, which, **arguments):
    """A method of a filter, or of its guarantee."""

    def case():
        owner = made(name)
        if which.startswith("guarantee."):
            return Case(getattr(owner.guarantee, which[10:]), arguments)
        given = {key: value() if callable(value) else value for key, value in arguments.items()}
        return Case(getattr(owner, which), {**given, "state": owner.init()}, words=("mechanism", "rate"))

    return case


# A filter of every class, and a query that it takes.
FILTERS = {
    "AdditiveProfileFilter": ("additive_profile", RandomizedResponse(0.02)),
    "AnyOrderFilter": ("renyi_any", Gaussian(12.0)),
    "ApproximateGDPFilter": ("approximate_gdp", SAMPLED),
    "ApproximateZCDPFilter": ("approximate_zcdp", Gaussian(25.0)),
    "GDPFilter": ("gdp", Gaussian(10.0)),
    "GDPResidueFilter": ("gdp_residue", Gaussian(10.0)),
    "NaturalApproximateDPFilter": ("natural_approximate_dp", RandomizedResponse(0.1)),
    "NaturalFilter": ("natural", 0),
    "Odometer": ("odometer", Gaussian(10.0)),
    "TableFilter, online": ("online_menu", SAMPLED),
    "TableFilter": ("menu", SAMPLED),
    "PureDPFilter": ("pure_dp", RandomizedResponse(0.1)),
    "RenyiFilter": ("renyi", SAMPLED),
    "ResidueFilter": ("residue", RandomizedResponse(cases.STEP)),
    "UndeclaredNaturalFilter": ("undeclared", RandomizedResponse(cases.STEP)),
    "ZCDPFilter": ("zcdp", Gaussian(10.0)),
}
EACH = {
    "ApproximateGDPPerExampleFilter": ("each of approximate_gdp", SAMPLED),
    "AnyPerExampleFilter": ("each of gdp", Gaussian(10.0)),
    "TablePerExampleFilter": ("each of menu", SAMPLED),
}
GUARANTEES = {
    "ParameterGuarantee of several orders": "renyi_any",
    "ParameterGuarantee of gdp": "gdp",
    "ProfileGuarantee": "natural",
    "ParameterGuarantee of pure_dp": "pure_dp",
    "ParameterGuarantee of renyi": "renyi",
    "ParameterGuarantee of zcdp": "zcdp",
}
CASES = {name: maker(name, arguments) for name, arguments in MAKERS.items()}
CASES["menu"] = maker("menu", TINY)
for _class, (_name, _query) in FILTERS.items():
    CASES[f"{_class}.update"] = method(_name, "update", query=_query)
    CASES |= {f"{_class}.{which}": method(_name, which) for which in ("spent", "remaining", "fraction")}
for _class, (_name, _query) in EACH.items():
    CASES |= {f"{_class}.{w}": method(_name, w, query=_query, norms=lambda: NORMS) for w in ("update", "bounds")}
    CASES |= {f"{_class}.{which}": method(_name, which) for which in ("spent", "remaining", "fraction")}
for _class, _name in GUARANTEES.items():
    CASES[f"{_class}.delta"] = method(_name, "guarantee.delta", epsilon=1.0)
    CASES[f"{_class}.epsilon"] = method(_name, "guarantee.epsilon", delta=1e-5)
    CASES[f"{_class}.profile"] = method(_name, "guarantee.profile", grid=LossGrid(0.1, -40, 81))

CASES = {f"filters.{name}": make for name, make in CASES.items()}
QUICK = ("approximate_gdp", "approximate_zcdp", "gdp", "odometer", "natural", "pure_dp", "zcdp")


@pytest.mark.parametrize("name", QUICK)
def test_filters_name_what_is_wrong(name):
    fuzz(CASES[f"filters.{name}"](), [*VALUES[:20], math.nan, math.inf, -math.inf, -1.0, 0.0, 5e-324, 1e308])


def fuzz_update(budget, state, value):
    """A hostile query raises, is refused, or is charged; NaN, negative and infinite numbers are refused."""
    try:
        admitted, after = budget.update(value, state)
    except (ValueError, TypeError) as problem:
        said = str(problem)
        assert any(word in said for word in ("query", "mechanism", "rate")), f"{value!r}: {said}"
        return
    answer = np.asarray(admitted)
    # What is nearer to 0 than any normal number is 0 to a compiled program.
    if isinstance(value, int | float | np.floating) and not (0 <= value < math.inf or -2.3e-308 < value < 0):
        assert not answer.any()
    if not answer.any():
        for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
            np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("make", [lambda: filters.gdp(1.0), lambda: filters.pure_dp(1.0), lambda: filters.zcdp(1.0)])
def test_queries_are_refused_charged_or_named(make):
    budget = make()
    state = budget.init()
    for value in (*WORDS, *ARRAYS, math.nan, math.inf, -1.0, 5e-324, 1e308, np.float32(-1), np.int64(3)):
        fuzz_update(budget, state, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILTERS)
def test_queries_are_refused_charged_or_named_at_length(name):
    budget = made(FILTERS[name][0])
    state = budget.init()
    some(given(hostile)(lambda value: fuzz_update(budget, state, value)))()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_filters_name_what_is_wrong_at_length(name):
    fuzz(CASES[name](), [*VALUES, *MORE_VALUES])
    at_length(CASES[name](), some)
