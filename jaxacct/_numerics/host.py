"""Runs a formula in NumPy for concrete numbers, and as one compiled program inside a trace.

A first answer in a fresh process must not wait for a compiler, and a query whose parameters are known while a user's
program is traced becomes a constant of it. So a formula takes its arrays and their module from `floats`, and is
decorated with `hosted`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.manual_axes import while_loop
from jaxacct._types import PyTree

_Tree = TypeVar("_Tree")

MOST = 2**20
"""Numbers in an array of intermediate results above which compiling pays for itself."""


def at_hand(*trees: object) -> bool:
    """Whether all numbers of ``trees`` are known now, to this process."""
    for leaf in jax.tree.leaves(trees):
        if isinstance(leaf, jax.Array) and (isinstance(leaf, Tracer) or not leaf.is_fully_addressable):
            return False
    return True


def floats(*values: ArrayLike) -> tuple[ModuleType, *tuple[Array, ...]]:
    """NumPy, or jax.numpy inside a trace, and ``values`` as its float64 arrays (inside ``enable_x64``)."""
    xp = np if at_hand(values) else jnp
    return (xp, *(xp.asarray(value, np.float64) for value in values))


def not_negative(value: ArrayLike) -> ArrayLike:
    """``value``, NaN where it is below 0; compiled code reads subnormal numbers as 0, and so loses their sign.

    Zero with a sign is zero: ``-log(1)`` is such a number.
    """
    if at_hand(value):
        known = np.asarray(value, np.float64)
        return np.where(known < 0, np.nan, known)
    dtype = np.dtype(value.dtype)  # pyright: ignore[reportAttributeAccessIssue]
    if not jnp.issubdtype(dtype, jnp.floating):
        return jnp.where(value < 0, jnp.nan, value)  # pyright: ignore[reportOperatorIssue]
    kind = np.dtype(f"uint{8 * dtype.itemsize}").type
    bits = jax.lax.bitcast_convert_type(value, kind)
    return jnp.where(bits > kind(1 << (8 * dtype.itemsize - 1)), jnp.nan, value)


def on_host(tree: object) -> PyTree:
    """``tree`` with JAX's arrays, if their numbers are known now, as NumPy's."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) and at_hand(leaf) else leaf, tree)


def on_device(tree: object) -> PyTree:
    """``tree`` with NumPy's arrays as JAX's. In contrast to ``jnp.asarray`` it compiles nothing."""
    return jax.tree.map(lambda leaf: jax.device_put(leaf) if isinstance(leaf, np.ndarray | np.generic) else leaf, tree)


def hosted(
    function: Callable[..., PyTree] | None = None,
    *,
    static: tuple[str, ...] = (),
    work: Callable[..., int] | None = None,
) -> Callable[..., PyTree]:
    """``function``, in NumPy where its arguments are concrete, else compiled.

    Args:
        function: takes its array module from `floats` or `array_module`, of the arguments that matter.
        static: names of arguments that are no arrays.
        work: of the arguments: how many numbers its largest arrays hold. With more than `MOST` it is compiled.
    """
    if function is None:
        return functools.partial(hosted, static=static, work=work)
    compiled = jax.jit(function, static_argnames=static)

    @functools.wraps(function)
    def inner(*args: object, **kwargs: object) -> PyTree:
        if not at_hand(args, kwargs):
            return compiled(*args, **kwargs)
        if work is not None and work(*args, **kwargs) > MOST:
            return on_host(compiled(*args, **kwargs))
        with np.errstate(all="ignore"):  # as silent as JAX
            return function(*on_host(args), **on_host(kwargs))

    return inner


def barrier(tree: _Tree) -> _Tree:
    """``tree``, computed once and apart from what uses it: XLA repeats what it fuses."""
    return tree if array_module(tree) is np else jax.lax.optimization_barrier(tree)


def loop(going: Callable[[PyTree], Array], step: Callable[[PyTree], PyTree], state: object) -> PyTree:
    """``step`` applied to a tuple of arrays as long as it is ``going``; ``while_loop`` of JAX inside a trace."""
    if array_module(state) is not np:
        return while_loop(going, step, state)
    while going(state):
        state = step(state)
    return state


def each(function: Callable[..., PyTree], *stacked: object) -> PyTree:
    """``function`` of every row of the leaves' first axis, its results stacked; ``jax.vmap`` inside a trace."""
    if array_module(stacked) is not np:
        return jax.vmap(function)(*stacked)
    count = len(jax.tree.leaves(stacked)[0])
    found = [function(*jax.tree.map(lambda leaf: leaf[row], stacked)) for row in range(count)]  # noqa: B023
    return jax.tree.map(lambda *leaves: np.stack(leaves), *found)


def settings(*trees: object) -> int:
    """How many settings the leaves of ``trees`` broadcast to."""
    return math.prod(np.broadcast_shapes(*(np.shape(leaf) for leaf in jax.tree.leaves(trees))))
