"""Hostile parameters of mechanisms, and hostile questions about good ones."""

from __future__ import annotations

import contextlib
import math
import warnings

import numpy as np
import pytest
from hypothesis import given

import jaxacct
from jaxacct import Gaussian, calibrate, mechanisms, plan_noise
from tests.fuzz.common import MORE_VALUES, VALUES, WORDS, Case, at_length, called, few, fuzz, hostile, many, some

GOOD = {
    "ApproximateDP": {"epsilon": 1.0, "delta": 1e-5},
    "Composed": {"mechanisms": [Gaussian(1.0)], "steps": 2},
    "DiscreteGaussian": {"sigma": 1.0, "sensitivity": 1},
    "DiscreteLaplace": {"scale": 1.0, "sensitivity": 1},
    "Exponential": {"epsilon": 1.0},
    "FromProfile": {"epsilons": [0.0, 1.0], "deltas": [0.5, 0.1]},
    "FromTables": {"p": [0.5, 0.5], "q": [0.6, 0.4]},
    "GDP": {"mu": 1.0},
    "Gaussian": {"sigma": 1.0, "sensitivity": 1.0},
    "Laplace": {"scale": 1.0, "sensitivity": 1.0},
    "RandomSensitivityGaussian": {"sigma": 1.0, "sensitivities": (0.0, 1.0), "weights": (0.5, 0.5)},
    "PermuteAndFlip": {"epsilon": 1.0},
    "PoissonSampled": {"mechanism": Gaussian(1.0), "rate": 0.1},
    "PureDP": {"epsilon": 1.0},
    "RandomAllocation": {"mechanism": Gaussian(1.0), "batches": 4, "participations": 1},
    "RandomizedResponse": {"epsilon": 1.0, "categories": 2},
    "RenyiDP": {"order": 2.0, "epsilon": 0.5},
    "SampledWithoutReplacement": {"mechanism": Gaussian(1.0), "sample_size": 10, "dataset_size": 100},
    "SampledWithReplacement": {"mechanism": Gaussian(1.0), "batch": 10, "records": 100},
    "TruncatedPoisson": {"mechanism": Gaussian(1.0), "rate": 0.1, "largest": 20, "records": 100},
    "Shuffled": {"mechanism": Gaussian(1.0), "batches": 4},
    "Skellam": {"mu": 1.0, "sensitivity": 1},
    "UserLevel": {"mechanism": Gaussian(1.0), "rate": 0.1, "records": 3},
    "ZeroConcentratedDP": {"rho": 0.5},
}
RELATION = {"SampledWithoutReplacement": "replace"}


def enclosed(found, arguments):
    """Bounds that are bounds."""
    lower, upper = np.asarray(found.lower), np.asarray(found.upper)
    assert np.all((lower >= 0) & (lower <= upper))


def is_calibrated(found, arguments):
    """What is certified meets the target; NaN where nothing is."""
    parameter, upper = np.asarray(found.parameter), np.asarray(found.delta.upper)
    assert np.all(np.isnan(parameter) | (upper <= np.asarray(arguments["delta"], np.float64)))


def mechanism(name):
    words = ("mechanism", "mechanisms", "sensitivities and weights", "p and q", "epsilons and deltas", "parameters")
    return lambda: Case(getattr(mechanisms, name), GOOD[name], words=words)


def question(function, **arguments):
    rest = {"steps": 2, "relation": "remove", "progress": None}
    return lambda: Case(function, {"mechanism": Gaussian(1.0), **arguments, **rest}, enclosed, functions=("progress",))


def calibration():
    good = {"make": Gaussian, "epsilon": 1.0, "delta": 1e-5, "steps": 1, "relation": "remove", "seek": "smallest"}
    more = {"whole": False, "bracket": (0.1, 100.0), "tolerance": 1e-2, "unreachable": "nan", "progress": None}
    return Case(calibrate, {**good, **more}, is_calibrated, functions=("make", "steps", "progress"))


def plan():
    good = {"make": Gaussian, "utility": lambda s: -(s**2).sum(), "epsilon": 1.0, "delta": 1e-5, "steps": [2, 2]}
    more = {"relation": "remove", "rounds": 1, "iterations": 1, "tolerance": 1e-2}
    return Case(plan_noise, {**good, **more}, spared=("rounds",), functions=("make", "utility"))


CASES = {f"mechanisms.{name}": mechanism(name) for name in GOOD} | {
    "delta": question(jaxacct.delta, epsilon=1.0),
    "epsilon": question(jaxacct.epsilon, delta=1e-5),
    "calibrate": calibration,
    "plan_noise": plan,
}


def proves_nothing(name):
    """A mechanism of placeholders, as trees have them while they are built, has delta 1, or none."""
    for argument in GOOD[name]:
        made = called(mechanism(name)(), argument, None)
        if made is not None and argument != "mechanism":
            with warnings.catch_warnings(), contextlib.suppress(ValueError, TypeError):
                warnings.filterwarnings("ignore", ".*are wide")
                found = jaxacct.delta(made, 1.0, relation=RELATION.get(name, "add_or_remove"))
                assert np.all(np.asarray(found.upper) == 1.0)


DEAR = {"calibrate", "delta", "epsilon", "plan_noise"}


@pytest.mark.parametrize("name", sorted(CASES.keys() - DEAR))
def test_mechanisms_name_what_is_wrong(name):
    few(given(hostile.filter(lambda value: value is not None))(lambda value: fuzz(CASES[name](), [value])))()
    fuzz(CASES[name](), [*VALUES[1:], *MORE_VALUES])


@pytest.mark.parametrize("name", ["calibrate", "delta", "epsilon"])
def test_questions_name_what_is_wrong(name):
    fuzz(CASES[name](), [*WORDS, np.array("x"), math.nan, math.inf, -math.inf, -1.0])


@pytest.mark.slow  # bounds for every placeholder compile
@pytest.mark.parametrize("name", GOOD)
def test_placeholders_prove_nothing(name):
    proves_nothing(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_mechanisms_name_what_is_wrong_at_length(name):
    at_length(CASES[name](), some if name in DEAR else many)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DEAR))
def test_questions_name_what_is_wrong_at_length(name):
    fuzz(CASES[name](), [*VALUES, *MORE_VALUES])
