"""Checks of concrete arguments: a ValueError that names the argument and its value.

Every check takes keyword arguments, ``positive(sigma=sigma)``, and raises ``ValueError`` naming the argument
and the first value that is wrong. Traced values pass: their code path fails closed instead (delta 1, epsilon
inf, a refused query), because a compiled program cannot raise.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import GeneratorType
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

Numbers = ArrayLike | Sequence[Any]


def is_traced(value: object) -> bool:
    """Whether any leaf of ``value`` is a tracer, so that nothing can be said about its value now."""
    if isinstance(value, GeneratorType):  # JAX warns of those
        return False
    return any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))


_unchecked = contextvars.ContextVar("unchecked", default=False)


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Turns checks of numbers off in the block: inside a compiled program's callback they fail closed instead."""
    token = _unchecked.set(True)
    try:
        yield
    finally:
        _unchecked.reset(token)


def passing() -> bool:
    """Whether checks of numbers are off; see :func:`unchecked`."""
    return _unchecked.get()


def _check(accept: Callable[[np.ndarray], np.ndarray], requirement: str, named: Mapping[str, Numbers]) -> None:
    if passing():
        return
    for name, value in named.items():
        if is_traced(value):
            continue
        try:
            if any(isinstance(leaf, np.ma.MaskedArray) for leaf in jax.tree.leaves(value)):
                raise TypeError  # what a mask hides is no number
            array = np.asarray(value)
            # NumPy would make numbers of texts, times and complex ones, and NaN of None.
            if array.dtype.kind in "cmMSTU" or (array.dtype == object and any(part is None for part in array.flat)):
                raise TypeError
            with np.errstate(over="ignore"):  # longer floats than float64
                array = np.asarray(array, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{name} must be {requirement}, got {shown(value)}") from None
        with np.errstate(invalid="ignore"):
            good = accept(array)
        if not np.all(good):
            wrong = array[~good].flat[0] if array.ndim else array[()]
            raise ValueError(f"{name} must be {requirement}, got {wrong:g}")


def is_key(value: object) -> bool:
    """Whether a value is a typed scalar PRNG key."""
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key) and not value.ndim


def shown(value: object) -> str:
    """``value`` as an error may show it: no more than 200 characters, and no random key; a tracer by its shape."""
    try:
        leaves = jax.tree.leaves(value)
    except (ValueError, TypeError, RecursionError, SystemError):
        leaves = []
    if any(isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves):
        return f"a {type(value).__name__} that holds random keys"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 64:
        return f"a whole number of {value.bit_length()} bits"
    if isinstance(value, Tracer):
        return f"a traced {jax.typeof(value)}"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def numbers(**named: Numbers) -> None:
    """Every value holds real numbers."""
    _check(lambda a: np.full(a.shape, True), "a number", named)


def number(*checks: Callable[..., None], **named: Numbers) -> None:
    """Every value is one real number, traced or not, that passes ``checks``, functions of this module."""
    numbers(**named)
    for name, value in named.items():
        if np.shape(value):
            raise ValueError(f"{name} must be one number, got an array of shape {np.shape(value)}")
    for check in checks:
        check(**named)


def scalar(*checks: Callable[..., None], **named: Numbers) -> None:
    """Every value is one concrete real number that passes ``checks``."""
    for name, value in named.items():
        if is_traced(value):
            raise ValueError(f"{name} must be a concrete number, got a traced one")
    number(*checks, **named)


def whole(**named: Numbers) -> None:
    """Every value is one concrete whole number of at least 1."""
    scalar(count, **named)


def shapes(tree: object) -> tuple[object, list[tuple[int, ...]]]:
    """The structure of a tree of arrays, and the shapes of its leaves."""
    return jax.tree.structure(tree), [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def instance(kind: Any, **named: object) -> None:
    """Every value is of a type, or of one of a union of types."""
    for name, value in named.items():
        if not isinstance(value, kind):
            wanted = " or ".join("None" if one is type(None) else one.__name__ for one in get_args(kind) or (kind,))
            raise ValueError(f"{name} must be a {wanted}, got {shown(value)}")


def finite(**named: Numbers) -> None:
    """Every value is a finite number."""
    _check(np.isfinite, "a finite number", named)


def positive(**named: Numbers) -> None:
    """Every value is finite and above 0."""
    _check(lambda a: np.isfinite(a) & (a > 0), "a finite number above 0", named)


def nonnegative(**named: Numbers) -> None:
    """Every value is finite and at least 0."""
    _check(lambda a: np.isfinite(a) & (a >= 0), "a finite number of at least 0", named)


def epsilon(**named: Numbers) -> None:
    """Every value is at least 0; infinity, which promises nothing, is allowed."""
    _check(lambda a: a >= 0, "at least 0", named)


def probability(**named: Numbers) -> None:
    """Every value lies strictly between 0 and 1 (a delta, a confidence)."""
    _check(lambda a: (a > 0) & (a < 1), "strictly between 0 and 1", named)


def rate(**named: Numbers) -> None:
    """Every value lies in [0, 1] (a sampling rate)."""
    _check(lambda a: (a >= 0) & (a <= 1), "between 0 and 1", named)


def at_least(bound: float, **named: Numbers) -> None:
    """Every value is finite and at least ``bound``."""
    _check(lambda a: np.isfinite(a) & (a >= bound), f"a finite number of at least {bound:g}", named)


def at_most(bound: float, **named: Numbers) -> None:
    """Every value is a number of at most ``bound``."""
    _check(lambda a: a <= bound, f"a number of at most {bound:g}", named)


def greater(bound: float, **named: Numbers) -> None:
    """Every value is finite and above ``bound``."""
    _check(lambda a: np.isfinite(a) & (a > bound), f"a finite number above {bound:g}", named)


def count(least: int = 1, **named: Numbers) -> None:
    """Every value is a whole number of at least ``least``, and small enough (2**53) to be exact as a float."""
    _check(
        lambda a: np.isfinite(a) & (a >= least) & (a == np.floor(a)) & (a <= 2.0**53),
        f"a whole number from {least} to 2**53 = {2**53}",
        named,
    )


def ordered(**named: Numbers) -> None:
    """The first of two values is at most the second, elementwise."""
    (name, value), (other, limit) = named.items()
    if is_traced((value, limit)) or passing():
        return
    if np.any(np.asarray(value, np.float64) > np.asarray(limit, np.float64)):
        raise ValueError(f"{name} must be at most {other}, got {value} of {limit}")


def function(**named: object) -> None:
    """Every value can be called."""
    for name, value in named.items():
        if not callable(value):
            raise ValueError(f"{name} must be a function, got {shown(value)}")


def integer(low: int, high: int, **named: object) -> None:
    """Every value is a concrete whole number from ``low`` to ``high``; no truth value."""
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
            raise ValueError(f"{name} must be a whole number from {low} to {high}, got {shown(value)}")


def truth(**named: object) -> None:
    """Every value is true or false, as Python takes it."""
    for name, value in named.items():
        try:
            bool(value)
        except Exception:  # of whatever kind: arrays, keys and tracers have each their own
            raise ValueError(f"{name} must be True or False, got {shown(value)}") from None


def methods(*wanted: str, **named: object) -> None:
    """Every value has these methods."""
    for name, value in named.items():
        missing = [one for one in wanted if not callable(getattr(value, one, None))]
        if missing or isinstance(value, type):
            raise ValueError(f"{name} must have the methods {', '.join(wanted)}, got {shown(value)}")


def plain(**named: object) -> None:
    """Refuses values that are not plain numbers: masked arrays, other subclasses of arrays, truth values, times, texts.

    Anything that is no array, and no truth value, passes.
    """
    for name, value in named.items():
        for leaf in [] if isinstance(value, GeneratorType) else jax.tree.leaves(value):
            held = isinstance(leaf, np.ndarray | np.generic | jax.Array)
            if isinstance(leaf, bool) or (held and not _is_plain(leaf)):
                raise ValueError(
                    f"{name} must be a mechanism or a curve of plain real numbers, or such numbers, got {shown(leaf)} "
                    f"of {type(leaf).__name__}"
                )


def _is_plain(array: np.ndarray | np.generic | jax.Array) -> bool:
    """Whether an array is NumPy's or JAX's own, of real numbers that JAX can hold."""
    if isinstance(array, np.ndarray) and type(array) is not np.ndarray:
        return False
    real = jnp.issubdtype(array.dtype, jnp.floating) or getattr(array.dtype, "kind", "key") in "iu"
    return real and array.dtype.itemsize <= 8


def arrays(**named: object) -> None:
    """Every value is a tree of arrays (keys among them) or numbers: nothing else hides in it."""
    _tree(named, "arrays", None)


def real_arrays(**named: object) -> None:
    """Every value is a tree of arrays of real numbers, traced or not."""
    _tree(named, "real arrays", (jnp.floating, jnp.integer, jnp.bool_))


def _tree(named: Mapping[str, object], what: str, kinds: tuple[type, ...] | None) -> None:
    for name, value in named.items():
        try:
            found = jax.tree.leaves(value)
        except (ValueError, TypeError):
            raise ValueError(f"{name} must be a tree of {what}, got {shown(value)}") from None
        for leaf in found:
            held = _is_array(leaf)
            if held and kinds is not None:
                held = any(jnp.issubdtype(jnp.result_type(leaf), kind) for kind in kinds)
            if not held:
                raise ValueError(f"{name} must be a tree of {what}, got {shown(leaf)} in it")


def _is_array(leaf: object) -> bool:
    if isinstance(leaf, np.ndarray | np.generic):
        plain = leaf.dtype.kind != "m" and any(jnp.issubdtype(leaf.dtype, kind) for kind in (jnp.number, jnp.bool_))
        return plain and leaf.dtype.itemsize <= 16 - 8 * (leaf.dtype.kind == "f")
    if isinstance(leaf, int):
        return leaf.bit_length() < 32
    return isinstance(leaf, jax.Array | float | complex)


def one_of(options: tuple[str, ...], **named: object) -> None:
    """Every value is one of ``options``."""
    for name, value in named.items():
        if not isinstance(value, str) or value not in options:
            raise ValueError(f"{name} must be one of {', '.join(options)}, got {value!r}")


def tables(**named: Numbers) -> None:
    """All have one shape, with at least one entry on the last axis."""
    try:
        shapes = {name: np.shape(value) for name, value in named.items()}
    except (ValueError, TypeError):
        what = "a ragged one, or a list of something else than numbers"
        raise ValueError(f"{' and '.join(named)} must be tables of one shape, got {what}") from None
    first = next(iter(shapes.values()))
    # NumPy's types have an attribute `shape` that is a descriptor and no tuple.
    if not isinstance(first, tuple) or not first or not first[-1] or any(shape != first for shape in shapes.values()):
        got = " and ".join(str(shape) for shape in shapes.values())
        raise ValueError(
            f"{' and '.join(shapes)} must be tables of one shape, with entries on the last axis, got {got}"
        )
