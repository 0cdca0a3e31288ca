"""What fuzz tests share: hostile values, a case, the judge of what came of it, and a count of the calls."""

from __future__ import annotations

import collections
import contextlib
import datetime
import decimal
import fractions
import inspect
import math
import operator
import pathlib
import re
import signal
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxacct
from jaxacct import Gaussian

CALLS: collections.Counter[str] = collections.Counter()  # of functions with a hostile argument, by outcome


class Liar:
    """Says that it is an array, and is none."""

    shape, ndim, dtype = (), 0, np.dtype(np.float64)

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("no array")


WORDS = [None, True, "x", "", b"x", 1j, {}, {"a": 1}, (), [], [[1.0], [2.0, 3.0]], object, len, 10**400, -(10**400)]
MORE_WORDS = [
    "1.0", b"1", bytearray(b"1"), np.str_("x"), np.bytes_(b"1"), np.bool_(True), ..., NotImplemented, range(3), {1.0},
    np.datetime64("2026-01-01"), datetime.timedelta(1), decimal.Decimal("NaN"),
    pathlib.Path("x"),
    fractions.Fraction(1, 3), slice(None), Liar(), Liar, [None], [object()], ["x"], float, np.float64, math, st,
    lambda *_: None, (x for x in (1.0,)), memoryview(b"12"), [[[[[[[[1.0]]]]]]]], [1.0] * 100, type("Odd", (), {})(),
]  # fmt: skip
ARRAYS = [
    np.array([1.0, math.nan]), np.zeros((0,)), np.array("x"), np.array([None, 1.0], object), np.ones((2, 3, 4)),
    np.array([2, -1]), np.array(1 + 1j),
]  # fmt: skip
MORE_ARRAYS = [
    np.array(True), np.array(["1.0"]), np.array([10**400], object), np.array(["2026-01-01"], "M8[D]"),
    np.zeros((0, 3)), np.full((1,) * 12, -1.0), np.array([[]]), np.array(-1, np.int8), np.array(math.nan, np.float16),
    np.array(-math.inf, np.longdouble), jnp.array(math.nan), jnp.array([1, 2]), jnp.array(True),
    jnp.array(-1, jnp.bfloat16), jnp.zeros((0,)), jax.random.key(0), jax.ShapeDtypeStruct((), np.float32),
]  # fmt: skip
NUMBERS = [math.nan, math.inf, -math.inf, -1.0, -0.0, 0, -3, 2**70, 2**53 + 1, 5e-324, -5e-324, 1e-310, 1e308, 0.5]
SCALARS = [np.float32(-1), np.float16(0.1), np.longdouble("1e4000"), np.int64(3), np.uint8(255), np.float64(math.nan)]
VALUES = [*WORDS, *ARRAYS, *NUMBERS, *SCALARS]
MORE_VALUES = [*MORE_WORDS, *MORE_ARRAYS]

_atoms = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True),
    st.integers(-(2**70), 2**70),
    st.sampled_from([*WORDS, *MORE_WORDS]),
    st.sampled_from([*ARRAYS, *MORE_ARRAYS, *SCALARS]),
    st.text(max_size=5),
    st.builds(np.float32, st.floats(width=32)),
    st.just(Gaussian(1.0)),
)
hostile = _atoms | st.lists(_atoms, max_size=3) | st.tuples(_atoms) | st.dictionaries(st.text(max_size=3), _atoms)
few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
some = settings(many, max_examples=60)  # where one call takes long


class Case(NamedTuple):
    """Something public, with arguments that make sense; one at a time is replaced.

    Attributes:
        function: what is called with keywords.
        arguments: by name.
        sound: takes what came back when it was no error, and the arguments; raises where that may not be.
        spared: arguments that are left as they are.
        functions: arguments that are the caller's own functions: what those raise is the caller's.
        words: what a message may name instead: the thing that the argument is a part of.
        tried: what replaces each of them in the default suite.
    """

    function: Callable[..., Any]
    arguments: dict[str, Any]
    sound: Callable[[Any, dict[str, Any]], None] | None = None
    spared: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    tried: Iterable[Any] = VALUES


class Later(NamedTuple):
    """An argument that is made when its case is asked for: it takes long, or an optional package."""

    make: Callable[[], Any]


def case(function: Any = None, /, *spared: str, sound: Any = None, **given: Any) -> Callable[[str], Case]:
    """What makes a case of its name in a table, with arguments by name and the attributes that have other names.

    Without ``function`` that is called which has the name in `jaxacct`.
    """
    about = {name: given.pop(name) for name in ("words", "functions", "tried") if name in given}

    def make(name: str) -> Case:
        arguments = {name: value.make() if isinstance(value, Later) else value for name, value in given.items()}
        target = function or operator.attrgetter(name)(jaxacct)
        inspect.signature(target).bind(**arguments)  # a name that is no argument's would be refused, whatever its value
        return Case(target, arguments, sound, spared, **about)

    return make


class TooSlow(BaseException):
    """No answer in time; not an Exception, so that nothing under test catches it."""


@contextlib.contextmanager
def at_most(seconds: int):
    """Ends what takes more processor time, or waits for twenty times as long, with an error; others may be busy."""

    def over(*_):
        raise TooSlow(f"no answer within {seconds} s")

    clocks = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, 20 * seconds)}
    before = {number: signal.signal(number, over) for number in clocks}
    for clock, limit in clocks.values():
        signal.setitimer(clock, limit)
    try:
        yield
    finally:
        for number, (clock, _) in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])


def shown(value: Any) -> str:
    """For messages."""
    return f"{type(value).__name__} {value!r}"[:200]


def called(case: Case, name: str, value: Any, seconds: int = 60) -> Any:
    """What comes back; None where it raised as it should: ValueError or TypeError with the argument's name."""
    arguments = {**case.arguments, name: value}
    try:
        with at_most(seconds), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of JAX about generators, of bounds that are wide
            result = case.function(**arguments)
    except (ValueError, TypeError) as problem:
        CALLS["named"] += 1
        said = str(problem)
        words = (name, *case.arguments, *case.words)
        assert any(re.search(rf"\b{word}\b", said) for word in words if len(word) > 1 or word == name), (
            f"{name}={shown(value)}: {said}"
        )
        return None
    except Exception as problem:
        raise AssertionError(f"{name}={shown(value)}: {type(problem).__name__}: {problem}") from problem
    CALLS["answered"] += 1
    if case.sound is not None:
        case.sound(result, arguments)
    return result


def fuzz(case: Case, values: Iterable[Any], seconds: int = 60) -> None:
    """Every value in the place of every argument."""
    for value in values:
        for name in case.arguments:
            if name not in case.spared and not (name in case.functions and callable(value)):
                called(case, name, value, seconds)


class Mine(Exception):
    """What the caller's own function raises."""


def raising(*_: Any, **__: Any) -> Any:
    raise Mine("of the caller")


RESULTS = [None, "x", object(), [1.0, "x"], (1, 2)]
NONSENSE = [lambda: None, *((lambda *_, result=result: result) for result in RESULTS)]


def fuzz_functions(case: Case, seconds: int = 60) -> None:
    """The caller's functions raise what they raise; where they return nonsense, or take nothing, that is said."""
    for name in case.functions:
        with at_most(seconds), pytest.raises(Mine, match="of the caller"):
            case.function(**{**case.arguments, name: raising})
        for value in NONSENSE:
            called(case._replace(words=(*case.words, "lambda")), name, value, seconds)


def at_length(case: Case, how: settings, seconds: int = 60) -> None:
    """As `fuzz`, with what hypothesis draws."""
    how(given(hostile)(lambda value: fuzz(case, [value], seconds)))()
