"""Decorators that run functions in float64 in any program, and the conversion of arguments that this needs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import jax
import numpy as np

from jaxacct import _validate

_Function = TypeVar("_Function", bound=Callable[..., Any])


@contextlib.contextmanager
def own_rules() -> Iterator[None]:
    """Float64, whatever a user's program is set to: also where types must agree, or where NaN are looked for.

    Formulas add whole numbers to others, and handle NaN.
    """
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"), jax.debug_nans(False):
        yield


def settled(*values: Any, buffers: bool = True) -> list[Any]:
    """``values`` with numbers of types that JAX has, and with traced leaves in buffers of the types they claim to have.

    ``jax.vmap`` over a NumPy float64 array in a float32 program hands out tracers that say float32 over float64
    buffers; the first operation outside ``enable_x64`` converts them, the first one inside would fail. What says
    float64 came from inside and stays as it is. Without ``buffers``, traced leaves stay as they are.
    """

    def settle(leaf: Any) -> Any:
        if _validate.is_traced(leaf):
            return leaf * 1 if buffers and leaf.dtype != "float64" else leaf
        # JAX has no whole numbers beyond 64 bits, and no floats.
        if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind == "f" and leaf.dtype.itemsize > 8:
            with np.errstate(over="ignore"):
                return leaf.astype(np.float64)
        return float(leaf) if isinstance(leaf, int) and 2**63 <= abs(leaf) < 2**1023 else leaf

    return [jax.tree.map(settle, value) for value in values]


def reentrant_x64(function: _Function) -> _Function:
    """``function`` under ``jax.enable_x64``, which as a decorator leaves the flag set in JAX 0.8 where calls nest."""

    @functools.wraps(function)
    def inner(*args: object, **kwargs: object) -> Any:
        with own_rules():
            return function(*args, **kwargs)

    return cast(_Function, inner)


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` under ``jax.enable_x64``, for public functions that somebody may ``vmap`` from outside."""

    @functools.wraps(function)
    def inner(*args: object, **kwargs: object) -> Any:
        *given, named = settled(*args, kwargs)
        with own_rules():
            return function(*given, **named)

    return inner
