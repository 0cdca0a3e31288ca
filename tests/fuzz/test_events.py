"""Nested events of dp_accounting with hostile numbers are read as mechanisms, or named."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import jaxacct
from tests.fuzz.cases_bridges import GAUSSIAN, dp, proves
from tests.fuzz.common import at_most, hostile, many

pytest.importorskip("dp_accounting")
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
        proves(found, {})


@pytest.mark.slow
def test_nested_events_are_read_or_named():
    many(given(events())(fuzz_event))()
    deep = GAUSSIAN.make()
    for _ in range(2000):
        deep = dp("SelfComposed")(deep, 1)
    fuzz_event(deep)
    many_times = GAUSSIAN.make()
    for _ in range(60):
        many_times = dp("Composed")([many_times, many_times])
    fuzz_event(many_times)  # 2^60 of them, in 60 objects


OVERFLOWS = {
    "sum": lambda: dp("Composed")([dp("ZC")(1.7e308, 0.0)] * 2),
    "conversion": lambda: dp("ZC")(1.7e308, 1.7e308),
    "selection": lambda: dp("RepeatAndSelect")(dp("ZC")(1e307, 1.0), 3.0, 1.0),
    "selection of a Gaussian": lambda: dp("RepeatAndSelect")(dp("Gaussian")(1e-200), 3.0, 1.0),
}


@pytest.mark.filterwarnings("ignore:.*are wide:RuntimeWarning")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "sum" else pytest.mark.slow) for name in OVERFLOWS]
)
def test_events_whose_numbers_overflow_prove_nothing(name):
    found = jaxacct.interop.from_dp_event(OVERFLOWS[name]())
    assert float(jaxacct.delta(found, 5.0).upper) == 1.0
