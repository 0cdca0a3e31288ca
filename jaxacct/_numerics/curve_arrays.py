"""Array operations for curves of privacy losses: in NumPy for NumPy's arrays, as compiled programs for JAX's.

The formulas of this room are written once, over arrays. The array in decides the array out: NumPy's arrays and Python's
numbers are answered in NumPy, which compiles nothing; where one number is JAX's, traced or not, the answer is JAX's, on
its device, by one compiled program a formula. Both are float64.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator
from types import EllipsisType
from typing import TypeAlias, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, array_module, xp
from jaxacct._numerics.float64 import own_rules
from jaxacct._types import PyTree

Index: TypeAlias = Array | int | tuple[EllipsisType | int, ...]
"""What `put` and `added` take for a place."""


def concrete(tree: object) -> PyTree:
    """Arrays as NumPy's outside a trace: float64 survives there whatever precision JAX is set to."""
    return tree if _validate.is_traced(tree) else jax.tree.map(np.asarray, tree)


def as_arrays(tree: object) -> PyTree:
    """``tree`` with NumPy's and Python's numbers as NumPy's arrays; JAX's stay."""
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else np.asarray(leaf), tree)


def float64(value: ArrayLike) -> Array:
    """``value`` as a float64 array: JAX's if one of its numbers is, else NumPy's."""
    return xp.asarray(value, np.float64)


def beside(tree: object, source: object) -> PyTree:
    """``tree``, whose leaves are NumPy's, with JAX's arrays on the devices of ``source`` if that holds any at hand."""
    held = [x for x in jax.tree.leaves(source) if isinstance(x, jax.Array)]
    if not held or _validate.is_traced((tree, held)):
        return tree

    def put(leaf: Array) -> Array:
        if isinstance(leaf, jax.Array):
            return leaf
        like = next((x for x in held if x.shape == np.shape(leaf)), held[0])
        if not getattr(like, "committed", True):
            return jnp.asarray(leaf)
        if like.shape == np.shape(leaf) or len(like.sharding.device_set) == 1:
            return jax.device_put(leaf, like.sharding)
        return jnp.asarray(leaf)  # uncommitted: a program puts it beside the others

    return jax.tree.map(put, tree)


@contextlib.contextmanager
def quiet_float64() -> Iterator[None]:
    """Float64 by our `own_rules`, and NumPy as silent as JAX: overflow and NaN are results that formulas handle."""
    with own_rules(), np.errstate(all="ignore"):
        yield


_inside = contextvars.ContextVar("inside", default=False)


def compiled(*static: str) -> Callable[[Callable[..., PyTree]], Callable[..., PyTree]]:
    """A decorator of formulas in float64: as they are over NumPy's arrays, one compiled program where one is JAX's.

    A formula inside another one becomes a part of its program. Arguments that are named ``static`` are no arrays.
    Programs have no derivatives, and say so: see `_refusing`.
    """

    def wrap(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
        signature = inspect.signature(function)

        def alone(*args: object, **kwargs: object) -> PyTree:
            token = _inside.set(True)
            try:
                return function(*args, **kwargs)
            finally:
                _inside.reset(token)

        program = jax.jit(alone, static_argnames=static)

        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> PyTree:
            if _inside.get():
                return function(*args, **kwargs)
            with quiet_float64():
                if array_module(args, kwargs) is np:
                    return as_arrays(alone(*args, **kwargs))
                given = signature.bind(*args, **kwargs).arguments
                fixed = {name: given.pop(name) for name in static if name in given}
                if _validate.is_traced(given):
                    return _refusing(lambda given: program(**given, **fixed), given)
                return program(**given, **fixed)

        return call

    return wrap


def _refusing(function: Callable[[PyTree], PyTree], given: PyTree) -> PyTree:
    """``function(given)``; raises where a derivative of it is asked for.

    What is computed is a bound on a grid: where cells and events are chosen anew it has kinks, and JAX's rules would
    make NaN of them.
    """
    leaves, structure = jax.tree.flatten(given)
    run = jax.custom_jvp(lambda *leaves: function(jax.tree.unflatten(structure, leaves)))

    def rule(primals: PyTree, tangents: PyTree) -> tuple[PyTree, PyTree]:
        if not all(isinstance(tangent, jax.custom_derivatives.SymbolicZero) for tangent in tangents):
            raise NotImplementedError(
                "PLDs, privacy profiles and trade-off curves have no derivatives: they are bounds on a grid; "
                "jaxacct.delta and jaxacct.epsilon have, or take finite differences, or jax.lax.stop_gradient first"
            )
        found = run(*primals)
        return found, jax.tree.map(jax.custom_derivatives.zero_from_primal, found)

    run.defjvp(rule, symbolic_zeros=True)
    return run(*leaves)


def put(array: Array, index: Index, value: Real) -> Array:
    """A copy of ``array`` with ``value`` at ``index``."""
    if array_module(array, value) is not np:
        return jnp.asarray(array).at[index].set(value)
    array = np.array(array)
    array[index] = value
    return array


def added(array: Array, index: Index, value: Real) -> Array:
    """A copy of ``array`` with ``value`` added at ``index``; where an index occurs twice, so is it added."""
    if array_module(array, value) is not np:
        return jnp.asarray(array).at[index].add(value)
    array = np.array(array)
    np.add.at(array, cast(tuple[int, ...], index), value)
    return array


def mapped(function: Callable[[PyTree], PyTree], xs: object, batch: int) -> PyTree:
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


def rows(function: Callable[..., PyTree], *arrays: Array) -> PyTree:
    """Maps ``function`` of rows over the broadcast leading axes of ``arrays``."""
    shape = np.broadcast_shapes(*(x.shape[:-1] for x in arrays))
    flat = [xp.broadcast_to(x, (*shape, x.shape[-1])).reshape(-1, x.shape[-1]) for x in arrays]
    if array_module(*arrays) is np:
        count = flat[0].shape[0]
        # Where there are no rows, one of zeros says what shape a row's results have.
        given = zip(*flat, strict=True) if count else [[np.zeros(x.shape[-1]) for x in flat]]
        found = jax.tree.map(lambda *x: np.stack(x)[:count], *(function(*row) for row in given))
    else:
        found = jax.vmap(function)(*flat)
    return jax.tree.map(lambda x: x.reshape((*shape, *x.shape[1:])), found)
