"""`in_float64` runs a function in float64 in any program, and converts its arguments as this needs."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import TypeVar, cast

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._types import PyTree

_Function = TypeVar("_Function", bound=Callable[..., object])


@contextlib.contextmanager
def own_rules() -> Iterator[None]:
    """Float64, whatever a user's program is set to: also where types must agree, or where NaN are looked for.

    Formulas add whole numbers to others, and handle NaN.
    """
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"), jax.debug_nans(False):
        yield


def settled(*values: PyTree, buffers: bool = True) -> list[PyTree]:
    """``values`` with numbers of types that JAX has, and with traced leaves in buffers of the types they claim to have.

    ``jax.vmap`` over a NumPy float64 array in a float32 program hands out tracers that say float32 over float64
    buffers; the first operation outside ``enable_x64`` converts them, the first one inside would fail. What says
    float64 came from inside and stays as it is. Without ``buffers``, traced leaves stay as they are.
    """

    def settle(leaf: PyTree) -> PyTree:
        if _validate.is_traced(leaf):
            number = buffers and leaf.dtype != "float64" and jax.numpy.issubdtype(leaf.dtype, np.number)
            return leaf * 1 if number else leaf
        # JAX has no whole numbers beyond 64 bits, and no floats.
        if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind == "f" and leaf.dtype.itemsize > 8:
            with np.errstate(over="ignore"):
                return leaf.astype(np.float64)
        return float(leaf) if isinstance(leaf, int) and 2**63 <= abs(leaf) < 2**1023 else leaf

    def whole(value: PyTree) -> PyTree:
        leaves, structure = jax.tree.flatten(value)
        made = [settle(leaf) for leaf in leaves]
        # An object that needs nothing stays the one it is, with what it has computed and kept.
        same = all(old is new for old, new in zip(leaves, made, strict=True))
        return value if same else jax.tree.unflatten(structure, made)

    return [whole(value) for value in values]


_settled = contextvars.ContextVar("settled", default=False)


def in_float64(function: _Function) -> _Function:
    """``function`` in float64, its arguments `settled` where it is not called by another function of this kind.

    ``jax.enable_x64`` as a decorator leaves the flag set in JAX 0.8 where calls nest.
    """

    @functools.wraps(function)
    def inner(*args: object, **kwargs: object) -> PyTree:
        if _settled.get():
            with own_rules():
                return function(*args, **kwargs)
        *given, named = settled(*args, kwargs)
        token = _settled.set(True)
        try:
            with own_rules():
                return function(*given, **named)
        finally:
            _settled.reset(token)

    return cast(_Function, inner)
