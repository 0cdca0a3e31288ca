"""Hostile events of dp_accounting, and hostile curves and numbers to draw."""

from __future__ import annotations

import functools
import importlib

import numpy as np

import jaxacct
from jaxacct import Gaussian, RandomizedResponse, audit, filters, mechanisms, plotting
from tests.fuzz.common import Later, case

TABLE = np.array([[1.0, 2.0], [3.0, 4.0]])
RESPONSE = RandomizedResponse(1.0)


def dp(name):
    """The class of events of that name."""
    return getattr(importlib.import_module("dp_accounting.dp_event"), f"{name}DpEvent")


GAUSSIAN = Later(lambda: dp("Gaussian")(1.0))


def proves(found, arguments):
    """What is read is a mechanism."""
    assert isinstance(found, mechanisms.base.Mechanism)


def event(name, relation="add_or_remove", **arguments):
    """An event is read; what it holds may be called by the event's own name."""

    def read(**arguments):
        return jaxacct.interop.from_dp_event(dp(name)(**arguments), relation)

    return case(read, sound=proves, words=("event", f"{name}DpEvent"), **arguments)


def accountant(method, **arguments):
    """An accountant that holds a Gaussian is asked."""

    def ask(**arguments):
        from dp_accounting import UnsupportedEventError

        try:
            return getattr(jaxacct.interop.Accountant().compose(GAUSSIAN.make()), method)(**arguments)
        except UnsupportedEventError as problem:
            raise ValueError(str(problem)) from None  # a typed error of dp_accounting, with the event

    return case(ask, words=("counts",), **arguments)


@functools.cache
def axes():
    """One for all: nothing is shown, and no figure stays open."""
    return importlib.import_module("matplotlib.figure").Figure().subplots()


def drawn(name, **arguments):
    return case(getattr(plotting, name), ax=Later(axes), words=("mechanism",), **arguments)


INTEROP = {
    "from_dp_event": case(event=GAUSSIAN, relation="add_or_remove", sound=proves),
    "from_dp_event.composed": event("Composed", events=Later(lambda: [GAUSSIAN.make()] * 2)),
    "from_dp_event.discrete_laplace": event("DiscreteLaplace", noise_parameter=1.0, sensitivity=1),
    "from_dp_event.gaussian": event("Gaussian", noise_multiplier=1.0),
    "from_dp_event.laplace": event("Laplace", noise_multiplier=1.0),
    "from_dp_event.mixture": event(
        "MixtureOfGaussians", standard_deviation=1.0, sensitivities=[0.0, 1.0], sampling_probs=[0.5, 0.5]
    ),
    "from_dp_event.poisson": event("PoissonSampled", sampling_probability=0.1, event=GAUSSIAN),
    "from_dp_event.repeat": event("RepeatAndSelect", event=GAUSSIAN, mean=3.0, shape=1.0),
    "from_dp_event.response": event("RandomizedResponse", "replace", noise_parameter=0.5, num_buckets=3),
    "from_dp_event.self_composed": event("SelfComposed", event=GAUSSIAN, count=3),
    "from_dp_event.tree": event(
        "SingleEpochTreeAggregation", "replace_special", noise_multiplier=1.0, step_counts=[3, 4]
    ),
    "from_dp_event.truncated": event(
        "TruncatedSubsampledGaussian", dataset_size=1000, sampling_probability=0.01, truncated_batch_size=50,
        noise_multiplier=1.0,
    ),
    "from_dp_event.without_replacement": event(
        "SampledWithoutReplacement", "replace", source_dataset_size=100, sample_size=10, event=GAUSSIAN
    ),
    "from_dp_event.zcdp": event("ZC", rho=0.5, xi=0.1),
    "to_dp_event": case(mechanism=Gaussian(1.0), steps=2, relation="add_or_remove"),
    "Accountant": case(
        lambda **arguments: jaxacct.interop.Accountant(**arguments),
        neighboring_relation=Later(lambda: importlib.import_module("dp_accounting").NeighboringRelation(1)),
    ),
    "Accountant.bounds": accountant("bounds", target_delta=1e-5),
    "Accountant.compose": accountant("compose", event=GAUSSIAN, count=2),
    "Accountant.get_delta": accountant("get_delta", target_epsilon=1.0),
    "Accountant.get_epsilon": accountant("get_epsilon", target_delta=1e-5),
}  # fmt: skip
AUDITED = audit.many_runs(2, 10, 1, 10, delta=1e-5, mechanism=RESPONSE)
PLOTTING = {
    "audits": drawn("audits", found=[AUDITED, AUDITED], at=[1.0, 2.0]),
    "budget": drawn("budget", fraction=[0.1, 0.5], steps=[1, 2], admitted=[True, False]),
    "filter_comparison": drawn(
        "filter_comparison", filters={"a": filters.gdp(1.0)}, schedule=Gaussian(np.array([5.0, 5.0]))
    ),
    "pld": drawn("pld", law=RESPONSE, steps=2, relation="remove", log=False),
    "privacy_profile": drawn(
        "privacy_profile", curve=RESPONSE, epsilons=np.linspace(0.0, 2.0, 160), steps=2, relation="remove"
    ),
    "sweep": drawn("sweep", values=TABLE, x=[1.0, 2.0], y=[1.0, 2.0]),
    "trade_off": drawn("trade_off", curve=RESPONSE, steps=2, relation="remove", log=True, smallest=1e-6),
}
RUN = {"records": 1000, "batch": 100, "epochs": 2.0, "noise_multiplier": 1.0, "delta": 1e-4}
CASES = {f"interop.{name}": make for name, make in INTEROP.items()}
CASES |= {f"plotting.{name}": make for name, make in PLOTTING.items()}
CASES["reports.dp_sgd_statement"] = case(jaxacct.reports.dp_sgd_statement, **RUN)
CASES["reports.dp_sgd_statement.of_users"] = case(jaxacct.reports.dp_sgd_statement, records_per_user=2, **RUN)
DEAR = {f"plotting.{name}" for name in ("pld", "privacy_profile", "trade_off", "filter_comparison", "sweep")}
QUICK = CASES.keys() - DEAR - {
    "reports.dp_sgd_statement",  # half a second for each argument that makes sense
    "reports.dp_sgd_statement.of_users", "interop.from_dp_event.zcdp", "interop.from_dp_event.repeat",
    "interop.Accountant.get_epsilon", "interop.Accountant.bounds",
}  # fmt: skip
