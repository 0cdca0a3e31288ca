"""Loops, branches and result types for code that users put into `jax.shard_map`.

Inside it JAX tracks over which axes of the mesh a value varies, and asks that what a loop carries, and what branches
return, varies alike from the start. A fresh array of zeros varies over none. So states are declared to vary as what a
step makes of them, and no more than that: what is the same on every device still is the same afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.typing import DTypeLike

from jaxacct._types import Array, PyTree

_ROUNDS = 8  # steps through which variation spreads from one entry of a state to the others


def result_type(shape: tuple[int, ...], dtype: DTypeLike, *operands: PyTree) -> ShapedArray:
    """The type of an array computed from operands of these types: it varies over the mesh as all of them together."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return ShapedArray(shape, dtype)

    def made(*numbers: jax.Array) -> jax.Array:
        return sum((jnp.ravel(x)[:1].astype(dtype).sum() for x in numbers), jnp.zeros(shape, dtype))

    return jax.make_jaxpr(made)(*operands).out_avals[0]


def alike(tree: PyTree, *others: PyTree) -> PyTree:
    """``tree`` with every leaf declared to vary over the mesh as all leaves of all trees together."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return tree
    axes = frozenset().union(*_varying(lambda: (tree, others)))
    return _cast(tree, [axes] * len(jax.tree.leaves(tree)))


def in_auto_mode(function: Callable[..., PyTree], shape: tuple[int, ...], *operands: object) -> PyTree:
    """``function(*operands)``; where types say how operands lie on a mesh, XLA decides that for what is inside.

    Results lie as the first operand of their ``shape`` does, or are on every device.
    """
    shardings = [kind.sharding for kind in map(jax.typeof, operands) if _is_explicit(kind.sharding.mesh)]
    if not shardings:
        return function(*operands)
    like = next((x.sharding for x in map(jax.typeof, operands) if x.shape == shape), None)
    everywhere = jax.sharding.NamedSharding(shardings[0].mesh, jax.sharding.PartitionSpec())
    return jax.sharding.auto_axes(function, out_sharding=like if like in shardings else everywhere)(*operands)


def _is_explicit(mesh: jax.sharding.AbstractMesh | jax.sharding.Mesh) -> bool:
    return jax.sharding.AxisType.Explicit in mesh.axis_types


def while_loop(going: Callable[[PyTree], PyTree], step: Callable[[PyTree], PyTree], state: PyTree) -> PyTree:
    """`jax.lax.while_loop` with a carry that varies over manual mesh axes."""
    return jax.lax.while_loop(going, step, _settled(step, state))


def fori_loop(start: int, end: int, step: Callable[[PyTree, PyTree], PyTree], state: object) -> PyTree:
    """`jax.lax.fori_loop` with a carry that varies over manual mesh axes."""
    return jax.lax.fori_loop(start, end, step, _settled(lambda at: step(start, at), state))


def scan(
    step: Callable[[PyTree, PyTree], tuple[PyTree, PyTree]], state: PyTree, *given: PyTree, **options: object
) -> tuple[PyTree, PyTree]:
    """`jax.lax.scan` with a carry that varies over manual mesh axes."""
    one = jax.tree.map(lambda x: x[0], given[0]) if given else None
    return jax.lax.scan(step, _settled(lambda at: step(at, one)[0], state), *given, **options)


def cond(condition: Array, one: Callable[..., PyTree], other: Callable[..., PyTree], *given: PyTree) -> PyTree:
    """`jax.lax.cond` with operands that vary over manual mesh axes."""
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return jax.lax.cond(condition, one, other, *given)
    types = [_varying(branch, *given) for branch in (one, other)]
    both = [frozenset.union(*axes) for axes in zip(*types, strict=True)]
    alike = lambda branch: lambda *given: _cast(branch(*given), both)  # noqa: E731
    return jax.lax.cond(condition, alike(one), alike(other), *given)


def _settled(step: Callable[[PyTree], PyTree], state: object) -> PyTree:
    if not jax.sharding.get_abstract_mesh().manual_axes:
        return state
    for _ in range(_ROUNDS):
        before, after = _varying(lambda at: at, state), _varying(step, state)
        if before == (both := [a | b for a, b in zip(before, after, strict=True)]):
            break
        state = _cast(state, both)
    return state


def _varying(function: Callable[..., PyTree], *given: object) -> list[frozenset[str]]:
    """The axes over which each leaf that ``function`` returns varies."""
    found = jax.make_jaxpr(function)(*given).out_avals
    return [x.manual_axis_type.varying if hasattr(x, "manual_axis_type") else x.vma for x in found]


def _cast(tree: object, axes: list[frozenset[str]]) -> PyTree:
    leaves, structure = jax.tree.flatten(tree)
    moved = []
    for leaf, wanted in zip(leaves, axes, strict=True):
        (known,) = _varying(lambda x: x, leaf)
        missing = tuple(sorted(wanted - known))
        moved.append(jax.lax.pcast(jnp.asarray(leaf), missing, to="varying") if missing else leaf)
    return jax.tree.unflatten(structure, moved)
