"""Arrays have the shapes and dtypes that annotations name: `Float[Array, "*settings edges"]`, checked call by call.

As a type checker of jaxtyping's import hook, in a process of its own that has not imported jaxacct.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import types
import typing

import pytest

from tests.processes import printed

jaxtyping = pytest.importorskip("jaxtyping", reason="jaxtyping comes with the extra 'test'")
SEEN: set[str] = set()
"""Functions one of whose values had a shape or a dtype to be checked."""


def checked(function):
    """``function``, which raises TypeError where a value has not the shape or the dtype that its annotation names."""
    signature = inspect.signature(function)
    hints = {name: parameter.annotation for name, parameter in signature.parameters.items()}

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            require(value, hints[name], f"{function.__qualname__}: {name}", fresh=True)
        found = function(*args, **kwargs)
        require(found, signature.return_annotation, f"{function.__qualname__}: result", fresh=False)
        return found

    return wrapped


def require(value, hint, where, *, fresh):
    """Raises TypeError if ``value`` does not fit; records have names of axes of their own where ``fresh``."""
    if is_shape(hint):
        SEEN.add(where.split(":")[0])
        if not isinstance(value, hint):
            found = getattr(value, "shape", None), getattr(value, "dtype", type(value))
            raise TypeError(f"{where} must be {hint}, got {found}")
    elif typing.get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(hint) if isinstance(member, type)]
        shapes = [member for member in members if is_shape(member)]
        if shapes and not isinstance(value, tuple(member for member in members if member not in shapes)):
            own = [shape for shape in shapes if isinstance(value, shape.array_type)]
            require(value, (own or shapes)[0], where, fresh=fresh)
    elif typing.get_origin(hint) is tuple and Ellipsis not in typing.get_args(hint):
        for part, inner in zip(value, typing.get_args(hint), strict=True):
            require(part, inner, where, fresh=fresh)
    elif is_record(hint) and isinstance(value, hint):
        with jaxtyping.jaxtyped("context") if fresh else contextlib.nullcontext():
            for name, inner in fields_of(type(value)).items():
                require(getattr(value, name), inner, f"{where}.{name}", fresh=fresh)


def is_shape(hint):
    return isinstance(hint, type) and issubclass(hint, jaxtyping.AbstractArray)


def is_record(hint):
    own = isinstance(hint, type) and hint.__module__.startswith("jaxacct.")
    return own and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"))


@functools.cache
def fields_of(record):
    try:
        hints = typing.get_type_hints(record)
    except NameError:  # a name that only type checkers import
        return {}
    names = [field.name for field in dataclasses.fields(record)] if dataclasses.is_dataclass(record) else record._fields
    return {name: hints[name] for name in names}  # and not what a class has


ROOMS = ("mechanisms.pairs", "losses.engines.lines", "losses.curves", "accounting.queries", "filters")
MECHANISMS = ("Gaussian", "PoissonSampled", "Laplace", "DiscreteGaussian", "FromTables", "Skellam")
FILTERS = ("pure-dp", "zcdp", "gdp", "renyi", "closed-form", "natural")


def run():
    """Calls what has shapes in its annotations; returns the functions checked, and what planted errors raised.

    Raises:
        TypeCheckError: a value whose shape or dtype is not what its annotation says.
    """
    jaxtyping.install_import_hook([f"jaxacct.{room}" for room in ROOMS], f"{__name__}.checked")
    import jax
    import numpy as np

    import jaxacct
    from tests.contract import filter_cases, mechanism_cases

    for name in MECHANISMS:
        mechanism = mechanism_cases.CASES[name].make(np.array([0.8, 1.6]))
        jaxacct.epsilon(mechanism, 1e-5, steps=3)
        jaxacct.delta(mechanism, np.array([[0.5], [1.0]]))
    for name in FILTERS:
        case = filter_cases.CASES[name]
        budget, query = case.make(), case.small(1.0)
        for update in (budget.update, jax.jit(budget.update)):
            _, state = update(query, budget.init())
            _ = budget.spent(state), budget.remaining(state), budget.fraction(state), budget.reason(query, state)
    law = jaxacct.PLD.from_mechanism(jaxacct.Laplace(2.0), grid=jaxacct.LossGrid(0.125, -64, 129))
    read(law)
    jax.jit(read)(law)
    broken = []
    for field, value in (("infinity_mass", np.zeros(3)), ("masses", np.zeros(129, np.int32))):
        wrong = dataclasses.replace(law)
        object.__setattr__(wrong, field, value)
        try:
            read(wrong)
        except jaxtyping.TypeCheckError as error:
            while error.__cause__ is not None:
                error = error.__cause__
            broken.append(str(error))
    return SEEN, broken


def read(law):
    """A law's numbers, and those of the curves that it becomes."""
    import jaxacct

    profile = jaxacct.PrivacyProfile.from_pld(law)
    curve = jaxacct.TradeOff.from_profile(profile)
    return (
        law.compose(law).hockey_stick(1.0),
        law.trade_off(0.5),
        profile.hockey_stick(1.0),
        profile.values(),
        curve.trade_off(0.5),
        curve.points(),
    )


PROGRAM = """
from tests.contract import test_shapes
seen, broken = test_shapes.run()
print(*sorted(seen), sep="\\n")
print("--")
print(*broken, sep="\\n--\\n")
"""
CHECKED = {
    "LaplacePair.tails",
    "LaplacePair.survey",
    "NormalLine.log_moments",
    "NormalLine.quadrature",
    "PLD.hockey_stick",
    "PrivacyProfile.values",
    "TradeOff.points",
    "epsilon",
    "delta",
    "BaseFilter.update",
    "BaseFilter.reason",
    "Marked.fraction",
}


def test_arrays_have_the_shapes_that_annotations_name():
    seen, *broken = printed(PROGRAM).split("\n--\n")
    assert set(seen.split()) >= CHECKED
    assert len(broken) == 2
    assert "infinity_mass must be" in broken[0]
    assert "masses must be" in broken[1]
