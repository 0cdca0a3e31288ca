"""Hostile parameters of mechanisms, and hostile questions about good ones."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from jaxacct import Gaussian, mechanisms
from tests.contract import mechanism_cases
from tests.fuzz.common import MORE_VALUES, VALUES, WORDS, case

NAMES = sorted(mechanisms.__all__)
ALIASES = ("mechanism", "mechanisms", "sensitivities and weights", "p and q", "epsilons and deltas", "parameters")


def enclosed(found, arguments):
    """Bounds that are bounds."""
    lower, upper = np.asarray(found.lower), np.asarray(found.upper)
    assert np.all((lower >= 0) & (lower <= upper))


def is_calibrated(found, arguments):
    """What is certified meets the target; NaN where nothing is."""
    parameter, upper = np.asarray(found.parameter), np.asarray(found.delta.upper)
    assert np.all(np.isnan(parameter) | (upper <= np.asarray(arguments["delta"], np.float64)))


def mechanism(name):
    """The class, with what one of it holds."""
    made = mechanism_cases.CASES[name].make(0.8)
    good = {field.name: getattr(made, field.name) for field in dataclasses.fields(made)}
    return case(getattr(mechanisms, name), words=ALIASES, tried=[*VALUES, *MORE_VALUES], **good)


ASKED = {
    "mechanism": Gaussian(1.0), "steps": 2, "relation": "remove", "progress": None, "functions": ("progress",),
    "sound": enclosed, "tried": [*WORDS, np.array("x"), math.nan, math.inf, -math.inf, -1.0],
}  # fmt: skip
CASES = {f"mechanisms.{name}": mechanism(name) for name in NAMES} | {
    "delta": case(epsilon=1.0, **ASKED),
    "epsilon": case(delta=1e-5, **ASKED),
    "calibrate": case(
        make=Gaussian, epsilon=1.0, delta=1e-5, steps=1, relation="remove", seek="smallest", whole=False, bracket=(0.1,
        100.0), tolerance=1e-2, unreachable="nan", progress=None, sound=is_calibrated, functions=("make", "steps",
        "progress"), tried=ASKED["tried"],
    ),
    "plan_noise": case(
        None, "rounds", make=Gaussian, utility=lambda s: -(s**2).sum(), epsilon=1.0, delta=1e-5, steps=[2, 2],
        relation="remove", rounds=1, iterations=1, tolerance=1e-2, functions=("make", "utility"),
    ),
}  # fmt: skip
DEAR = {"calibrate", "delta", "epsilon", "plan_noise"}
QUICK = CASES.keys() - {"plan_noise"}
