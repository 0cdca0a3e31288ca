"""Array operations that NumPy and JAX spell differently.

Formulas that run compiled over many settings, and in NumPy for one setting in a fresh process, are written once, over
arrays with leading axes; these functions look at what they are given.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.manual_axes import fori_loop, scan, while_loop
from jaxacct._types import Array, PyTree, Real

_State = TypeVar("_State", bound=tuple[Array, ...])
_Kind = TypeVar("_Kind", bound=Array)
_Tree = TypeVar("_Tree")

_erf = np.frompyfunc(math.erf, 1, 1)
_erfc = np.frompyfunc(math.erfc, 1, 1)


_PLAIN = frozenset({np.ndarray, np.float64, np.bool_, np.int64, float, int, bool, type, str})  # looked up: most are


def array_module(*trees: object) -> ModuleType:
    """jax.numpy if any leaf of ``trees`` is JAX's array, traced or not, else NumPy."""
    return np if _without_jax(trees) else program


def _without_jax(trees: Sequence[object]) -> bool:
    for tree in trees:
        if type(tree) in _PLAIN:
            continue
        if isinstance(tree, (list, tuple)):
            if not _without_jax(tree):
                return False
        elif any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(tree)):
            return False
    return True


class _Program(ModuleType):
    """jax.numpy with ``where`` and ``clip`` as operations, and not as functions of the program's for every shape."""

    def __getattr__(self, name: str) -> PyTree:
        return getattr(jnp, name)

    @staticmethod
    def where(condition: ArrayLike, one: ArrayLike, other: ArrayLike) -> jax.Array:
        """One of two arrays or numbers, of one type."""
        dtype = jnp.result_type(one, other)
        shape = np.broadcast_shapes(*(np.shape(x) for x in (condition, one, other)))
        values = (jnp.broadcast_to(jnp.asarray(x, dtype), shape) for x in (one, other))
        return jax.lax.select(jnp.broadcast_to(condition, shape), *values)

    @staticmethod
    def clip(value: ArrayLike, least: ArrayLike, most: ArrayLike) -> jax.Array:
        """``value``, or the end that it lies beyond."""
        return jnp.minimum(jnp.maximum(value, least), most)


program: ModuleType = _Program("jax.numpy")
"""The array module of a program."""


class _Either(ModuleType):
    """The functions of :func:`array_module` of what they are given, in lists and tuples as well."""

    def __getattr__(self, name: str) -> Callable[..., PyTree]:
        ours, theirs = getattr(np, name), getattr(program, name)

        def function(*given: object, **named: object) -> PyTree:
            for one in given:
                if type(one) not in _PLAIN and not _without_jax((one,)):
                    return theirs(*given, **named)
            return ours(*given, **named)

        setattr(self, name, function)
        return function


xp: ModuleType = _Either("xp")
"""NumPy's functions for NumPy's arrays and numbers, jax.numpy's where one argument is JAX's."""


def column(value: Real) -> Array:
    """``value`` with one more axis at the end, so that settings broadcast against the losses of each."""
    return xp.asarray(value)[..., None]


def erf(x: Array) -> Array:
    """The error function in float64: the C library's, good to a unit, or XLA's."""
    return np.asarray(_erf(x), np.float64) if array_module(x) is np else jax.scipy.special.erf(x)


def erfc(x: Array) -> Array:
    """The complementary error function in float64.

    The C library's is off by 4.2 units at most (measured; docs/proofs/arithmetic.md says what is assumed). SciPy's is
    ten times faster, and off by 500 in the tail.
    """
    if array_module(x) is not np:
        return jax.scipy.special.erfc(x)
    x = np.asarray(x, np.float64)
    found, some = np.zeros(x.shape), ~(x > 27.3)  # beyond it is less than any number
    found[some] = _erfc(x[some])
    return found


def logsumexp(x: _Kind) -> _Kind:
    """log of the sum of exp(x) over the last axis; -inf where all are."""
    top = stopped(x.max(-1, keepdims=True))
    top = xp.where(xp.isfinite(top), top, 0.0)
    return xp.log(xp.exp(x - top).sum(-1)) + top[..., 0]


def iterated(
    step: Callable[..., _State],
    state: _State,
    done: Callable[[_State], Array],
    most: int,
    given: tuple[Array, ...] = (),
) -> _State:
    """``step`` applied to a tuple of arrays until ``done`` holds for all settings, at most so often.

    ``given`` are more arguments of ``step``. With them all arrays have one leading axis of settings, and NumPy goes on
    with those that are not done.
    """
    if array_module(*state) is not np:
        going = lambda at: (at[0] < most) & ~done(at[1]).all()  # noqa: E731
        return while_loop(going, lambda at: (at[0] + 1, step(at[1], *given)), (0, state))[1]
    found, rows = state, np.arange(len(state[0])) if given else None
    for _ in range(most):
        finished = done(state)
        if finished.all():
            break
        if rows is not None and finished.any():
            found = _with_rows(found, rows, state)
            rows, state, given = rows[~finished], _rows_of(state, ~finished), _rows_of(given, ~finished)
        state = step(state, *given)
    return state if rows is None else _with_rows(found, rows, state)


def _rows_of(whole: _State, rows: Array) -> _State:
    return cast(_State, tuple(x[rows] for x in whole))


def _with_rows(whole: _State, rows: np.ndarray, some: _State) -> _State:
    if len(rows) == len(whole[0]):
        return some
    whole = cast(_State, tuple(np.array(x) for x in whole))
    for one, new in zip(whole, some, strict=True):
        one[rows] = new
    return whole


def repeated(step: Callable[[_State], _State], state: _State, times: int) -> _State:
    """``step`` applied so often to a tuple of arrays; NumPy stops where nothing changes any more."""
    if array_module(*state) is not np:
        return fori_loop(0, times, lambda _, at: step(at), state)
    for _ in range(times):
        before, state = state, step(state)
        if all(old.tobytes() == new.tobytes() for old, new in zip(before, state, strict=True)):  # NaN is NaN
            break
    return state


def collected(step: Callable[..., tuple[PyTree, PyTree]], state: object, given: Sequence[PyTree]) -> tuple[Array, ...]:
    """``step(state, one)`` for each ``one`` of ``given`` in turn, and what it returns next to the state, stacked."""
    if array_module(state, given) is not np:
        return scan(step, state, jax.tree.map(lambda *x: xp.stack(x), *given), length=len(given))[1]
    every = []
    for one in given:
        state, found = step(state, one)
        every.append(found)
    return tuple(np.stack(x) for x in zip(*every, strict=True))


def running_greatest(x: Array, reverse: bool = False) -> Array:
    """The greatest entry so far, along the last axis."""
    if array_module(x) is not np:
        return jax.lax.cummax(jnp.asarray(x), axis=x.ndim - 1, reverse=reverse)
    return np.maximum.accumulate(x[..., ::-1], -1)[..., ::-1] if reverse else np.maximum.accumulate(x, -1)


def running_least(x: Array, reverse: bool = False) -> Array:
    """The least entry so far, along the last axis."""
    return -running_greatest(-x, reverse)


def running_total(x: Array) -> Array:
    """The sum of the entries so far, along the last axis; in a program one sum for each, the least to compile."""
    if array_module(x) is np:
        return np.cumsum(x, -1)
    index = jnp.arange(x.shape[-1])
    return program.where(index <= index[:, None], x[..., None, :], 0.0).sum(-1)


def histogram(places: Array, weights: Array, size: int) -> Array:
    """Weights added up at whole-numbered places from 0 to ``size - 1``, along the last axis."""
    if array_module(weights) is not np:
        shape = jnp.shape(weights)
        flat = jax.vmap(lambda at, values: jnp.zeros(size).at[at].add(values))
        return flat(places.reshape(-1, shape[-1]), weights.reshape(-1, shape[-1])).reshape(*shape[:-1], size)
    rows = weights.reshape(-1, weights.shape[-1])
    if len(rows) == 1:
        return np.bincount(places.ravel(), rows[0], size).reshape(*weights.shape[:-1], size)
    at = places.reshape(rows.shape) + size * np.arange(len(rows))[:, None]
    return np.bincount(at.ravel(), rows.ravel(), size * len(rows)).reshape(*weights.shape[:-1], size)


def pick(values: Array, index: Array) -> Array:
    """``values[..., index]``, an index for every row."""
    if array_module(values) is not np:  # a sum is less to compile than a gather
        return program.where(np.arange(values.shape[-1]) == index[..., None], values, 0).sum(-1)
    rows = values.reshape(-1, values.shape[-1])  # several times faster than NumPy's take_along_axis
    return rows[np.arange(len(rows)), index.ravel()].reshape(index.shape)


def filled_up(values: Array, size: int, fill: Array) -> Array:
    """``values`` with ``fill``, shape ``(..., 1)``, behind them up to ``size`` along the last axis."""
    more = xp.broadcast_to(fill, (*values.shape[:-1], size - values.shape[-1]))
    return xp.concatenate([values, more], -1)


def take(values: Array, index: Array) -> Array:
    """``values[..., index]``, several indices ``(..., n)`` for every row."""
    if values.ndim == 1:
        return (values if array_module(values, index) is np else jnp.asarray(values))[index]
    shape = np.broadcast_shapes(values.shape[:-1], index.shape[:-1])
    if array_module(values, index) is not np:
        rows, at = (jnp.broadcast_to(x, (*shape, x.shape[-1])) for x in (values, index))
        return jnp.take_along_axis(rows, at, -1, mode="clip")  # they are within bounds; this is the least to compile
    rows = np.broadcast_to(values, (*shape, values.shape[-1])).reshape(-1, values.shape[-1])
    at = np.broadcast_to(index, (*shape, index.shape[-1])).reshape(len(rows), -1)
    return rows[np.arange(len(rows))[:, None], at].reshape(*shape, -1)


def by_first(first: Array, second: Array) -> tuple[Array, Array]:
    """Two arrays of one shape, in the order of the first along the last axis."""
    if array_module(first, second) is not np:
        one, other = jax.lax.sort((jnp.asarray(first), jnp.asarray(second)), num_keys=1)
        return one, other
    order = np.argsort(first, -1)
    return np.take_along_axis(first, order, -1), np.take_along_axis(second, order, -1)


def product(one: Array, other: Array) -> Array:
    """The product of matrices in full precision, also on accelerators."""
    return np.matmul(one, other) if array_module(one, other) is np else jnp.matmul(one, other, precision="highest")


def ranks(values: Array, limits: Array) -> Array:
    """How many of ``values``, sorted along the last axis, are at most each of ``limits``, shape ``(..., n)``."""
    if values.ndim == 1:
        return xp.searchsorted(values, limits, side="right")
    size = values.shape[-1]

    def nearer(state: tuple[Array, Array]) -> tuple[Array, Array]:
        found, step = state
        ahead = found + step
        fits = (ahead <= size) & (take(values, xp.minimum(ahead, size) - 1) <= limits)
        return xp.where(fits, ahead, found), step >> 1

    like, bits = array_module(values, limits), size.bit_length()
    found = like.zeros(np.broadcast_shapes((*values.shape[:-1], 1), limits.shape), np.int64)
    return repeated(nearer, (found, like.asarray(1 << bits - 1, np.int64)), bits)[0]


def shared(function: Callable[..., PyTree] | None = None, *, static: tuple[str, ...] = ()) -> Callable[..., PyTree]:
    """``function`` as one of its own in programs, whose body is there once for every shape; NumPy runs it as it is.

    ``static`` are the names of arguments that are no arrays.
    """
    if function is None:
        return functools.partial(shared, static=static)
    compiled = jax.jit(function, static_argnames=static)

    @functools.wraps(function)
    def run(*arguments: object) -> PyTree:
        return (function if array_module(arguments) is np else compiled)(*arguments)

    return run


def stopped(tree: _Tree) -> _Tree:
    """``tree`` with ``stop_gradient`` applied; NumPy arrays are returned unchanged."""
    return tree if array_module(tree) is np else jax.tree.map(jax.lax.stop_gradient, tree)
