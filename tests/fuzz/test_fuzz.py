"""Hostile arguments of everything public are named, or answered with what is sound, and in time.

Tables of what is called are in cases_*.py: `CASES`, those of the default suite in `QUICK`, and in `DEAR` those whose
answers take long.
"""

from __future__ import annotations

import contextlib
import warnings

import jax
import numpy as np
import pytest
from hypothesis import given

import jaxacct
from tests.fuzz import (
    cases_bridges,
    cases_curves,
    cases_filters,
    cases_games,
    cases_mechanisms,
    cases_rooms,
    cases_training,
)
from tests.fuzz.common import MORE_VALUES, VALUES, at_length, called, few, fuzz, fuzz_functions, hostile, many, some

TABLES = (cases_bridges, cases_curves, cases_filters, cases_games, cases_mechanisms, cases_rooms, cases_training)
CASES = {name: make for table in TABLES for name, make in table.CASES.items()}
QUICK, DEAR = ({name for table in TABLES for name in getattr(table, which)} for which in ("QUICK", "DEAR"))
NEEDS = {"interop": "dp_accounting", "plotting": "matplotlib", "reports": "optax"}


def case_of(name):
    pytest.importorskip(NEEDS.get(name.split(".")[0], "jaxacct"))
    return CASES[name](name)


@pytest.mark.parametrize("name", sorted(QUICK))
def test_what_is_wrong_is_named(name):
    case = case_of(name)
    fuzz(case, case.tried)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named_at_length(name):
    # Steps and curves that make sense compile for long; lattices of 10^16 runs take minutes, and are not drawn.
    drawing = name.startswith("plotting.")
    values = [one for one in VALUES if not drawing or type(one) is not int or not 10**4 < one <= 2**62]
    case = case_of(name)
    fuzz(case, values if drawing else [*VALUES, *MORE_VALUES, *case.tried], 240)
    if name != "training.fit":  # a number of steps is a loop
        at_length(case, few if name in DEAR else many if name.startswith("mechanisms.") else some, 240)


# What the caller hands over, in the order of the time that it takes.
FUNCTIONS = (
    "expost.compose_until", "expost.ExPostResult.from_odometer", "expost.post_process", "expost.release_until",
    "training.per_example_gradients", "training.accuracy",
)  # fmt: skip
LONG = (
    "adversary.Rule.of_counts", "filters.halting_scan", "filters.residue", "training.clipped_gradient_sum",
    "training.fit", "training.gradient_norms", "training.noisy_gradient",
)  # fmt: skip


@pytest.mark.parametrize("name", [*FUNCTIONS, *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)])
def test_the_callers_functions_may_raise_and_are_named_where_they_return_nonsense(name):
    fuzz_functions(CASES[name](name))


@pytest.mark.slow  # bounds for every placeholder compile
@pytest.mark.parametrize("name", cases_mechanisms.NAMES)
def test_a_mechanism_of_placeholders_proves_nothing(name):
    """As trees have them while they are built: delta is 1, or an error."""
    case = case_of(f"mechanisms.{name}")
    relation = "replace" if name == "SampledWithoutReplacement" else "add_or_remove"
    for argument in case.arguments.keys() - {"mechanism"}:
        made = called(case, argument, None)
        if made is not None:
            with warnings.catch_warnings(), contextlib.suppress(ValueError, TypeError):
                warnings.filterwarnings("ignore", ".*are wide")
                assert np.all(np.asarray(jaxacct.delta(made, 1.0, relation=relation).upper) == 1.0)


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
    if isinstance(value, int | float | np.floating) and not (0 <= value < np.inf or -2.3e-308 < value < 0):
        assert not answer.any()
    if not answer.any():
        for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
            np.testing.assert_array_equal(old, new)


QUICKLY = ("gdp", "pure-dp", "zcdp")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICKLY else pytest.mark.slow) for name in cases_filters.KINDS]
)
def test_queries_are_refused_charged_or_named(name):
    budget = cases_filters.made(name)
    state = budget.init()
    for value in VALUES:
        fuzz_update(budget, state, value)
    if name not in QUICKLY:
        some(given(hostile)(lambda value: fuzz_update(budget, state, value)))()
