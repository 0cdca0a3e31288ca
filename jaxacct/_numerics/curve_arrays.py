"""Array operations for curves of privacy losses: in NumPy if concrete, as one compiled program if traced.

The formulas of this room are written once, over arrays. Concrete arguments are NumPy arrays, which compile nothing;
what a caller traces stays traced, and each formula that is worth a program of its own becomes one.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module


def concrete(tree: object) -> Any:
    """Arrays as NumPy's outside a trace: float64 survives there whatever precision JAX is set to."""
    return tree if _validate.is_traced(tree) else jax.tree.map(np.asarray, tree)


def float64(value: ArrayLike) -> Array:
    """``value`` as a float64 array: NumPy's unless it is traced."""
    return jnp.asarray(value, jnp.float64) if _validate.is_traced(value) else np.asarray(value, np.float64)


@contextlib.contextmanager
def quiet_float64() -> Iterator[None]:
    """Float64 in JAX, and NumPy as silent as JAX: overflow and NaN are results that formulas handle."""
    with jax.enable_x64(True), np.errstate(all="ignore"):
        yield


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``jax.jit(function, **options)`` where an argument holds a JAX array; ``function`` itself in NumPy."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        program = jax.jit(function, **options)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if array_module(args, kwargs) is np:
                with np.errstate(all="ignore"):
                    return function(*args, **kwargs)
            return program(*args, **kwargs)

        return call

    return wrap


def put(array: Array, index: Array, value: Array) -> Array:
    """A copy of ``array`` with ``value`` at ``index``."""
    if array_module(array, value) is not np:
        return jnp.asarray(array).at[index].set(value)
    array = np.array(array)
    array[index] = value
    return array


def added(array: Array, index: Array, value: Array) -> Array:
    """A copy of ``array`` with ``value`` added at ``index``; where an index occurs twice, so is it added."""
    if array_module(array, value) is not np:
        return jnp.asarray(array).at[index].add(value)
    array = np.array(array)
    np.add.at(array, index, value)
    return array


def mapped(function: Callable[[Any], Any], xs: Any, batch: int) -> Any:
    """``function``, which takes rows of the first axis, over ``batch`` rows at a time; bounds memory.

    ``function`` gets arrays of shape ``(rows, ...)`` and returns arrays whose first axis is the rows.
    """
    size = jax.tree.leaves(xs)[0].shape[0]
    if size <= batch:
        return function(xs)
    if array_module(xs) is not np:
        whole = size - size % batch
        split = jax.tree.map(lambda x: x[:whole].reshape(-1, batch, *x.shape[1:]), xs)
        found = jax.tree.map(lambda x: x.reshape(whole, *x.shape[2:]), jax.lax.map(function, split))
        if whole == size:
            return found
        rest = function(jax.tree.map(lambda x: x[whole:], xs))
        return jax.tree.map(lambda a, b: jnp.concatenate([a, b]), found, rest)
    found = [function(jax.tree.map(lambda x, i=i: x[i : i + batch], xs)) for i in range(0, size, batch)]
    return jax.tree.map(lambda *x: np.concatenate(x), *found)


def rows(function: Callable[..., Any], *arrays: Any) -> Any:
    """Maps ``function`` of rows over the broadcast leading axes of ``arrays``."""
    xp = array_module(*arrays)
    shape = np.broadcast_shapes(*(x.shape[:-1] for x in arrays))
    flat = [xp.broadcast_to(x, (*shape, x.shape[-1])).reshape(-1, x.shape[-1]) for x in arrays]
    if xp is np:
        count = flat[0].shape[0]
        # Where there are no rows, one of zeros says what shape a row's results have.
        given = zip(*flat, strict=True) if count else [[np.zeros(x.shape[-1]) for x in flat]]
        found = jax.tree.map(lambda *x: np.stack(x)[:count], *(function(*row) for row in given))
    else:
        found = jax.vmap(function)(*flat)
    return jax.tree.map(lambda x: x.reshape((*shape, *x.shape[1:])), found)
