"""Hostile budgets, queries and states of filters."""

from __future__ import annotations

import functools
import math

from jaxacct import Gaussian, LossGrid, PoissonSampled, RandomizedResponse, adversary, filters
from tests.contract import filter_cases as cases
from tests.contract.test_per_example_filters import CASES as EACH
from tests.contract.test_per_example_filters import NORMS
from tests.fuzz.common import VALUES, Later, case

MENU = [PoissonSampled(Gaussian(sigma), 0.1) for sigma in (2.0, 4.0)]
TINY = {"mechanisms": MENU, "epsilon": 1.5, "delta": 1e-3, "unit": 16, "points": 256, "cache": True, "progress": None}
TRIED = [*VALUES[:20], math.nan, math.inf, -math.inf, -1.0, 0.0, 5e-324, 1e308]
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
    return case(of(name), words=("mechanism", "order"), functions=("progress",), tried=TRIED, **arguments)


def method(make, which, **arguments):
    """A method of a filter, by a state of it, or of its guarantee."""

    def ask(**arguments):
        owner = make()
        return getattr(owner.guarantee if which in ("delta", "epsilon", "profile") else owner, which)(**arguments)

    if which not in ("delta", "epsilon", "profile"):
        arguments["state"] = Later(lambda: make().init())
    return case(ask, words=("mechanism", "rate"), **arguments)


@functools.cache
def made(name):
    """A filter of every kind: those of the contract, one of each class; with online prices; and an account each."""
    if name == "menu, online":
        return filters.menu(**TINY, online=True)
    return EACH[name].make() if name in EACH else cases.CASES[name].make()


KINDS = (
    "additive-profile", "approximate-gdp-small", "approximate-zcdp", "gdp", "gdp-residue", "menu",
    "natural-approximate-dp", "natural", "natural-undeclared", "odometer-gdp", "pure-dp", "renyi", "renyi-any",
    "residue", "zcdp", "menu, online",
)  # fmt: skip
EACH = {name: EACH[name] for name in ("any, gdp", "approximate gdp", "menu")}
GUARANTEES = ("gdp", "natural", "pure-dp", "renyi", "renyi-any", "zcdp")
CASES = {name: maker(name, arguments) for name, arguments in MAKERS.items()} | {"menu": maker("menu", TINY)}
QUERIES = {name: Later(functools.partial(cases.CASES[name.removesuffix(", online")].small, 1.0)) for name in KINDS}
for name in (*KINDS, *EACH):
    make = functools.partial(made, name)
    CASES |= {f"{name}.{which}": method(make, which) for which in ("spent", "remaining", "fraction")}
    if name in EACH:
        CASES |= {
            f"{name}.{which}": method(make, which, query=EACH[name].step, norms=NORMS) for which in ("update", "bounds")
        }
    else:
        CASES[f"{name}.update"] = method(make, "update", query=QUERIES[name])
for name in GUARANTEES:
    asked = {"delta": {"epsilon": 1.0}, "epsilon": {"delta": 1e-5}, "profile": {"grid": LossGrid(0.1, -40, 81)}}
    CASES |= {f"{name}.{one}": method(functools.partial(made, name), one, **given) for one, given in asked.items()}
CASES = {f"filters.{name}": make for name, make in CASES.items()}
QUICK = {
    f"filters.{name}"
    for name in ("approximate_gdp", "approximate_zcdp", "gdp", "odometer", "natural", "pure_dp", "zcdp")
}
DEAR = set()
