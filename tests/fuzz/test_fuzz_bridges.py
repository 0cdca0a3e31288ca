"""Hostile events of dp_accounting, and hostile curves and numbers to draw."""

from __future__ import annotations

import functools
import importlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxacct
from jaxacct import Gaussian, RandomizedResponse, audit, filters, plotting
from tests.fuzz.common import MORE_VALUES, VALUES, Case, at_length, at_most, few, fuzz, hostile, many, some

EPSILONS = np.linspace(0.0, 2.0, 160)
TABLE = np.array([[1.0, 2.0], [3.0, 4.0]])
RATES = ("mechanism",)


def dp(name):
    """The class of events of that name."""
    return getattr(importlib.import_module("dp_accounting.dp_event"), f"{name}DpEvent")


def event(name, relation="add_or_remove", **arguments):
    """An event is read; what it holds may be called by the event's own name."""

    def read(**arguments):
        return jaxacct.interop.from_dp_event(dp(name)(**arguments), relation)

    def case():
        given = {key: value() if callable(value) else value for key, value in arguments.items()}
        return Case(read, given, proves, words=("event", f"{name}DpEvent"))

    return case


def proves(found, arguments):
    """What is read is a mechanism."""
    assert type(found).__module__.startswith("jaxacct.mechanisms")


def gaussian():
    return dp("Gaussian")(1.0)


def accountant(method, **arguments):
    def case():
        from dp_accounting import UnsupportedEventError

        def ask(**arguments):
            one = jaxacct.interop.Accountant()
            one.compose(gaussian())
            try:
                return getattr(one, method)(**arguments)
            except UnsupportedEventError as problem:
                raise ValueError(str(problem)) from None  # a typed error of dp_accounting, with the event

        given = {key: value() if callable(value) else value for key, value in arguments.items()}
        return Case(ask, given, words=("counts",))

    return case


def made(make):
    def case():
        from dp_accounting import NeighboringRelation

        return Case(make, {"neighboring_relation": NeighboringRelation.ADD_OR_REMOVE_ONE})

    return case


@functools.cache
def axes():
    """One for all: nothing is shown, and no figure stays open."""
    return importlib.import_module("matplotlib.figure").Figure().subplots()


def statement(**more):
    run = {"records": 1000, "batch": 100, "epochs": 2.0, "noise_multiplier": 1.0, "delta": 1e-4}
    return lambda: Case(jaxacct.reports.dp_sgd_statement, run | more)


def drawn(name, *spared, **arguments):
    return lambda: Case(getattr(plotting, name), {**arguments, "ax": axes()}, words=RATES, spared=spared)


INTEROP = {
    "from_dp_event": lambda: Case(jaxacct.interop.from_dp_event, {"event": gaussian(), "relation": "add_or_remove"}),
    "from_dp_event.composed": event("Composed", events=lambda: [gaussian(), gaussian()]),
    "from_dp_event.discrete_laplace": event("DiscreteLaplace", noise_parameter=1.0, sensitivity=1),
    "from_dp_event.gaussian": event("Gaussian", noise_multiplier=1.0),
    "from_dp_event.laplace": event("Laplace", noise_multiplier=1.0),
    "from_dp_event.mixture": event(
        "MixtureOfGaussians", standard_deviation=1.0, sensitivities=[0.0, 1.0], sampling_probs=[0.5, 0.5]
    ),
    "from_dp_event.poisson": event("PoissonSampled", sampling_probability=0.1, event=gaussian),
    "from_dp_event.repeat": event("RepeatAndSelect", event=gaussian, mean=3.0, shape=1.0),
    "from_dp_event.response": event("RandomizedResponse", "replace", noise_parameter=0.5, num_buckets=3),
    "from_dp_event.self_composed": event("SelfComposed", event=gaussian, count=3),
    "from_dp_event.tree": event(
        "SingleEpochTreeAggregation", "replace_special", noise_multiplier=1.0, step_counts=[3, 4]
    ),
    "from_dp_event.truncated": event(
        "TruncatedSubsampledGaussian",
        dataset_size=1000,
        sampling_probability=0.01,
        truncated_batch_size=50,
        noise_multiplier=1.0,
    ),
    "from_dp_event.without_replacement": event(
        "SampledWithoutReplacement", "replace", source_dataset_size=100, sample_size=10, event=gaussian
    ),
    "from_dp_event.zcdp": event("ZC", rho=0.5, xi=0.1),
    "to_dp_event": lambda: Case(
        jaxacct.interop.to_dp_event, {"mechanism": Gaussian(1.0), "steps": 2, "relation": "add_or_remove"}
    ),
    "Accountant": made(lambda **arguments: jaxacct.interop.Accountant(**arguments)),
    "Accountant.bounds": accountant("bounds", target_delta=1e-5),
    "Accountant.compose": accountant("compose", event=gaussian, count=2),
    "Accountant.get_delta": accountant("get_delta", target_epsilon=1.0),
    "Accountant.get_epsilon": accountant("get_epsilon", target_delta=1e-5),
}
AUDITED = audit.many_runs(2, 10, 1, 10, delta=1e-5, mechanism=RandomizedResponse(1.0))
PLOTTING = {
    "audits": drawn("audits", found=[AUDITED, AUDITED], at=[1.0, 2.0]),
    "budget": drawn("budget", fraction=[0.1, 0.5], steps=[1, 2], admitted=[True, False]),
    "filter_comparison": drawn(
        "filter_comparison", filters={"a": filters.gdp(1.0)}, schedule=Gaussian(np.array([5.0, 5.0]))
    ),
    "pld": drawn("pld", law=RandomizedResponse(1.0), steps=2, relation="remove", bins=20, log=False),
    "privacy_profile": drawn(
        "privacy_profile", curve=RandomizedResponse(1.0), epsilons=EPSILONS, steps=2, relation="remove"
    ),
    "sweep": drawn("sweep", values=TABLE, x=[1.0, 2.0], y=[1.0, 2.0], levels=[1.5, 2.5]),
    "trade_off": drawn("trade_off", curve=RandomizedResponse(1.0), steps=2, relation="remove", log=True, smallest=1e-6),
}
CASES = {f"interop.{name}": make for name, make in INTEROP.items()}
CASES |= {"reports.dp_sgd_statement": statement(), "reports.dp_sgd_statement.of_users": statement(records_per_user=2)}
CASES |= {f"plotting.{name}": make for name, make in PLOTTING.items()}
NEEDS = {"interop": "dp_accounting", "plotting": "matplotlib", "reports": "optax"}
DEAR = {f"plotting.{name}" for name in ("pld", "privacy_profile", "trade_off", "filter_comparison", "sweep")}
SLOW = {
    "reports.dp_sgd_statement",  # half a second for each argument that makes sense
    "reports.dp_sgd_statement.of_users",
    "interop.from_dp_event.zcdp",
    "interop.from_dp_event.repeat",
    "interop.Accountant.get_epsilon",
    "interop.Accountant.bounds",
} | DEAR


def case_of(name):
    pytest.importorskip(NEEDS[name.split(".")[0]])
    return CASES[name]()


@pytest.mark.parametrize("name", sorted(CASES.keys() - SLOW))
def test_bridges_name_what_is_wrong(name):
    fuzz(case_of(name), VALUES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_bridges_name_what_is_wrong_at_length(name):
    # Steps and curves that make sense compile for long; lattices of 10^16 runs take minutes, and are not drawn.
    quick = [value for value in VALUES if type(value) is not int or not 10**4 < value <= 2**62]
    fuzz(case_of(name), quick if name in DEAR else [*VALUES, *MORE_VALUES], 240)
    at_length(case_of(name), few if name in DEAR else some, 240)


LEAVES = ("NoOp", "NonPrivate", "Unsupported")


def events():
    """Nested events whose numbers are hostile."""
    number = st.sampled_from([0.0, 0.5, 1.0, 1e-9, 1e9, math.nan, math.inf, -1.0, 3, 2**60, -(2**70), None, "x"])
    number |= st.floats() | st.integers(-3, 50)
    leaf = st.sampled_from([dp(name)() for name in LEAVES])
    for name, arguments in {
        "Gaussian": 1, "Laplace": 1, "ZC": 2, "DiscreteLaplace": 2, "RandomizedResponse": 2,
        "SingleEpochTreeAggregation": 2, "TruncatedSubsampledGaussian": 4,
    }.items():  # fmt: skip
        kind = dp(name)
        leaf |= st.tuples(*[number] * arguments).map(lambda given, kind=kind: kind(*given))

    def more(inner):
        return (
            st.lists(inner, max_size=3).map(dp("Composed"))
            | st.builds(dp("SelfComposed"), inner, number)
            | st.builds(dp("PoissonSampled"), number, inner)
            | st.builds(dp("SampledWithoutReplacement"), number, number, inner)
            | st.builds(dp("RepeatAndSelect"), inner, number, number)
        )

    return st.recursive(leaf | hostile, more, max_leaves=6)


def fuzz_event(one):
    """A mechanism, or an error that names the event."""
    for relation in ("add_or_remove", "replace", "replace_special"):
        try:
            with at_most(60):
                found = jaxacct.interop.from_dp_event(one, relation)
        except (ValueError, TypeError) as problem:
            assert "vent" in str(problem), f"{one!r}: {problem}"  # noqa: PT017
            continue
        assert type(found).__module__.startswith("jaxacct.mechanisms")


@pytest.mark.slow
def test_nested_events_are_read_or_named():
    pytest.importorskip("dp_accounting")
    few(given(events())(fuzz_event))()
    deep = gaussian()
    for _ in range(2000):
        deep = dp("SelfComposed")(deep, 1)
    fuzz_event(deep)
    many_times = gaussian()
    for _ in range(60):
        many_times = dp("Composed")([many_times, many_times])
    fuzz_event(many_times)  # 2^60 of them, in 60 objects


@pytest.mark.slow
def test_nested_events_at_length():
    pytest.importorskip("dp_accounting")
    many(given(events())(fuzz_event))()


def proves_nothing(one):
    found = jaxacct.interop.from_dp_event(one)
    assert isinstance(found, jaxacct.ApproximateDP)
    assert found.delta == 1.0


def test_events_whose_sum_overflows_prove_nothing():
    pytest.importorskip("dp_accounting")
    proves_nothing(dp("Composed")([dp("ZC")(1.7e308, 0.0)] * 2))


@pytest.mark.slow  # conversions compile
def test_events_whose_conversion_overflows_prove_nothing():
    pytest.importorskip("dp_accounting")
    proves_nothing(dp("ZC")(1.7e308, 1.7e308))
    proves_nothing(dp("RepeatAndSelect")(dp("ZC")(1e307, 1.0), 3.0, 1.0))
    proves_nothing(dp("RepeatAndSelect")(dp("Gaussian")(1e-200), 3.0, 1.0))
