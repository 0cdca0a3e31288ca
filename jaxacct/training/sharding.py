"""Spreads examples over devices, of one process or of several: a step gives the very sum that one device would give."""

from __future__ import annotations

import dataclasses
import functools
import hashlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.training import checks as _check
from jaxacct.training.checks import Tree
from jaxacct.training.processes import agree, from_all, from_first

AXIS = "examples"


@functools.partial(jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["blocks", "mesh"])
@dataclasses.dataclass(frozen=True, eq=False)
class ShardedExamples:
    """Examples over the devices of a mesh; wherever a step takes its data, it takes this, and then runs on all of them.

    Attributes:
        rows: pytree of arrays (places, ...), split along the first axis. Each block begins with its examples; the rest
            of it are zeros that fill the devices. No coin is thrown for them, so they are never sampled.
        blocks: (examples, places) of each block, static: one for each process that brought rows of its own.
        mesh: one axis, named ``AXIS``, static.
    """

    rows: PyTree
    blocks: tuple[tuple[int, int], ...]
    mesh: Mesh

    @property
    def size(self) -> int:
        """The number of examples."""
        return sum(examples for examples, _ in self.blocks)

    def placed(self, each: jax.Array) -> jax.Array:
        """``each``, (size,), one entry an example, where their rows lie, (places,); zeros elsewhere."""
        parts = jnp.split(each, np.cumsum([examples for examples, _ in self.blocks])[:-1])
        return jnp.concatenate(
            [jnp.pad(part, (0, places - len(part))) for part, (_, places) in zip(parts, self.blocks, strict=True)]
        )


def shard_examples(data: object, *, own: bool = False) -> ShardedExamples:
    """``data``, a pytree of arrays (size, ...), spread over all devices.

    Coins are thrown and lanes drawn for the whole data set from one key, every device clips its own part of the sample,
    and whole numbers are added (:mod:`jaxacct.training.gradients.fixed_point`): the sum, the noise and hence the
    release are those of one device, to the bit, provided that each example's own gradient is (same physical batch, and
    devices of one kind, which the guarantee assumes as well: a record less must not put others on another kind).

    Under ``jax.distributed`` every process calls this. The state goes through :func:`jaxacct.training.replicate`.

    Args:
        data: the whole data set, the same in every process; or, with ``own``, the rows of this process.
        own: each process brings rows of its own, any number above 0, and holds no others. The data set is those of
            process 0, then those of process 1, and so on. How many each holds is public, and no record may be in two.

    Raises:
        ValueError: no arrays, or arrays of different lengths; processes that do not bring the same data or,
            with ``own``, rows of the same shapes and types.
    """
    _validate.truth(own=own)
    devices = sorted(jax.devices(), key=lambda device: device.process_index)  # a process's rows lie on its own
    held = [sum(device.process_index == process for device in devices) for process in range(jax.process_count())]
    try:
        size = _check.rows(data=data)
    except ValueError:
        from_all(bytes(_WORDS))  # no other process waits for this one
        raise
    arrays = jax.tree.map(_as_held, data)
    counts = _agreed(arrays, size, own)
    counts, held = (counts, held) if own else ([size], [len(devices)])
    # Every device has as many places, whoever brings the rows.
    each = max(-(-count // of) for count, of in zip(counts, held, strict=True))
    blocks = tuple((count, each * of) for count, of in zip(counts, held, strict=True))
    mesh = Mesh(np.array(devices), (AXIS,))
    split, places = NamedSharding(mesh, P(AXIS)), blocks[jax.process_index() if own else 0][1]

    def spread(leaf: np.ndarray) -> jax.Array:
        padded = np.pad(leaf, [(0, places - size), *[(0, 0)] * (leaf.ndim - 1)])
        whole = (each * len(devices), *leaf.shape[1:])
        if own:
            return jax.make_array_from_process_local_data(split, padded, whole)
        return jax.make_array_from_callback(whole, split, lambda index: padded[index])

    return ShardedExamples(jax.tree.map(spread, arrays), blocks, mesh)


def replicate(tree: Tree, examples: ShardedExamples) -> Tree:
    """``tree`` on every device that ``examples`` lie on; in every process it is that of process 0, to the bit.

    Keys, parameters and accounts must be the same everywhere, and keys of `fresh_keys` are others in each process: so
    all of them take those of process 0. They pass over the connection of ``jax.distributed``, which is not encrypted.

    Raises:
        ValueError: no examples, or trees of other structures, shapes or types than in process 0.
    """
    _validate.instance(ShardedExamples, examples=examples)
    _validate.arrays(tree=tree)
    return over_mesh(tree, examples.mesh)


def over_mesh(tree: Tree, mesh: Mesh) -> Tree:
    """`replicate`, over the devices of ``mesh``."""
    everywhere = NamedSharding(mesh, P())
    if jax.process_count() == 1:
        return jax.device_put(tree, everywhere)
    leaves, structure = jax.tree.flatten(tree)
    arrays = [_as_held(jax.random.key_data(leaf) if _validate.is_key(leaf) else leaf) for leaf in leaves]
    shapes = f"{structure} {[(array.dtype, array.shape) for array in arrays]}"
    agree(tree=shapes)
    told, found = from_first(b"".join(array.tobytes() for array in arrays)), []
    for leaf, array in zip(leaves, arrays, strict=True):
        here = np.frombuffer(told[: array.nbytes], array.dtype).reshape(array.shape)
        told = told[array.nbytes :]
        placed = jax.make_array_from_callback(here.shape, everywhere, lambda index, here=here: here[index])
        is_key = _validate.is_key(leaf)
        found.append(jax.random.wrap_key_data(placed, impl=jax.random.key_impl(leaf)) if is_key else placed)
    return jax.tree.unflatten(structure, found)


def number_of(data: object) -> int:
    """The number of examples in ``data``, a public constant of the run."""
    return data.size if isinstance(data, ShardedExamples) else _check.rows(data=data)


_WORDS = 4 + 32


def _as_held(leaf: ArrayLike) -> np.ndarray:
    """``leaf`` on the host, of the type that a JAX array of it has."""
    array = np.asarray(leaf)
    return array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)


def _agreed(arrays: object, size: int, own: bool) -> list[int]:
    """How many rows each process has, where all have what goes together; raises ValueError in every one otherwise.

    Rows of the same data in another order would be two records in one place and none in another.
    """
    found = hashlib.sha256()
    for leaf in jax.tree.leaves(arrays) if jax.process_count() > 1 else ():
        found.update(f"|{leaf.dtype.str}{leaf.shape[1:]}|".encode() + (b"" if own else leaf.tobytes()))
    told = from_all(np.int32(size).tobytes() + found.digest())
    counts = [int(np.frombuffer(word[:4], np.int32)[0]) for word in told]
    if not all(counts) or len({word[4:] for word in told}) > 1:
        wanted = "rows of the same shapes and types" if own else "the same rows in the same order (own=True: its own)"
        raise ValueError(f"data must hold, in every process, {wanted}; got {counts} rows of processes 0, 1, ...")
    return counts
