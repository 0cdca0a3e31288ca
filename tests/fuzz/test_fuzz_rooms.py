"""Hostile arguments of `adversary`, `expost`, `training` and `calibrate`: named, or answered in time."""

from __future__ import annotations

import contextlib
import math
import signal

import jax
import numpy as np
import pytest
from hypothesis import given

from jaxacct import Gaussian, RandomizedResponse, adversary, calibrate, expost, training
from jaxacct.training import schedules
from tests.test_fuzz import ARRAYS, WORDS, called, hostile, many

KEY = jax.random.key(0)
FAMILY = [RandomizedResponse(0.5), RandomizedResponse(1.0)]
VALUES = [*WORDS, *ARRAYS, math.nan, math.inf, -math.inf, -1.0, 0.0, 0, -3, 2**70, 5e-324, 1e308, np.float32(-1)]

# Each with arguments that make sense; one at a time is replaced.
ROOMS = {
    "expost.approximate_epsilon": (expost.approximate_epsilon, {"epsilon": 1.0, "order": 8.0, "delta": 1e-5}),
    "expost.bayes_factor": (expost.bayes_factor, {"epsilon": 1.0, "order": 8.0, "confidence": 0.9}),
    "expost.plain_gaussian_scale": (
        expost.plain_gaussian_scale,
        {"epsilon": 1.0, "order": 8.0, "sensitivity": 1.0, "checks": 3},
    ),
    "expost.sparse_vector_scales": (
        expost.sparse_vector_scales,
        {"epsilon": 1.0, "order": 8.0, "sensitivity": 1.0},
    ),
    "expost.RenyiExPost": (expost.RenyiExPost, {"order": 8.0}),
    "expost.ApproximateExPost": (expost.ApproximateExPost, {"delta": 1e-5}),
    "expost.ProbabilisticExPost": (expost.ProbabilisticExPost, {"delta": 1e-5}),
    "adversary.rounded": (adversary.rounded, {"query": Gaussian(1.0), "epsilons": [0.5, 1.0], "relation": "remove"}),
    "adversary.units": (adversary.units, {"queries": FAMILY, "costs": [1, 2], "budget": 3}),
    "adversary.any_order": (adversary.any_order, {"queries": FAMILY}),
    "adversary.residue": (adversary.residue, {"budget": FAMILY[1], "query": 0, "family": FAMILY, "rounds": 2}),
    "training.constant": (schedules.constant, {"sigma": 1.0, "rate": 0.1, "steps": 10}),
    "training.warmup_decay": (schedules.warmup_decay, {"sigma": 1.0, "rate": 0.1, "steps": 10}),
    "training.adaptive": (schedules.adaptive, {"sigma": 1.0, "rate": 0.1, "steps": 10}),
    "training.poisson_sample": (training.poisson_sample, {"key": KEY, "size": 10, "rate": 0.1}),
    "training.seeded_keys": (training.seeded_keys, {"seed": 1}),
    "training.plan_budget": (
        training.plan_budget,
        {"filter": "gdp", "schedule": "constant", "epsilon": 1.0, "delta": 1e-5, "steps": 10, "rate": 0.1},
    ),
    "calibrate": (
        calibrate,
        {
            "make": Gaussian,
            "epsilon": 1.0,
            "delta": 1e-5,
            "steps": 1,
            "relation": "remove",
            "seek": "smallest",
            "whole": False,
            "bracket": (0.1, 100.0),
            "tolerance": 1e-2,
            "unreachable": "nan",
        },
    ),
}


@contextlib.contextmanager
def at_most(seconds):
    def over(*_):
        raise AssertionError(f"no answer within {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def fuzz(name, value):
    function, arguments = ROOMS[name]
    for argument in arguments:
        if argument in ("make", "steps") and callable(value):
            continue  # what a function of the caller's own raises is the caller's
        with at_most(60):
            called(function, arguments, argument, value)


@pytest.mark.parametrize("name", ROOMS)
def test_rooms_name_what_is_wrong(name):
    for value in VALUES:
        fuzz(name, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROOMS)
def test_rooms_name_what_is_wrong_at_length(name):
    many(given(hostile)(lambda value: fuzz(name, value)))()
