"""Nested events of dp_accounting are read as mechanisms, or named. verification/fuzzing draws hostile ones."""

from __future__ import annotations

import pytest

import jaxacct
from tests.fuzz.cases_bridges import GAUSSIAN, dp, proves
from tests.fuzz.common import at_most

pytest.importorskip("dp_accounting")


@pytest.mark.slow
def test_events_nested_deeply_or_very_often_are_read_or_named():
    deep, often = GAUSSIAN.make(), GAUSSIAN.make()
    for _ in range(2000):
        deep = dp("SelfComposed")(deep, 1)
    for _ in range(60):
        often = dp("Composed")([often, often])  # 2^60 of them, in 60 objects
    for one in (deep, often):
        for relation in ("add_or_remove", "replace", "replace_special"):
            try:
                with at_most(60):
                    proves(jaxacct.interop.from_dp_event(one, relation), {})
            except ValueError as problem:
                assert "vent" in str(problem)  # noqa: PT017


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
