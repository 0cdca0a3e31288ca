"""Spreads examples over devices: data-parallel steps give the very sum that one device would give."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.training import checks as _check

AXIS = "examples"


@functools.partial(jax.tree_util.register_dataclass, data_fields=["rows"], meta_fields=["size", "mesh"])
@dataclasses.dataclass(frozen=True, eq=False)
class ShardedExamples:
    """Examples over the devices of a mesh; wherever a step takes its data, it takes this, and then runs on all of them.

    Attributes:
        rows: pytree of arrays (capacity, ...), split along the first axis. Rows from ``size`` on are zeros that fill
            the last device; no coin is thrown for them, so they are never sampled.
        size: the number of examples, static.
        mesh: one axis, named ``AXIS``, static.
    """

    rows: Any
    size: int
    mesh: Mesh

    @property
    def capacity(self) -> int:
        """``size``, rounded up to whole devices."""
        return -(-self.size // self.mesh.size) * self.mesh.size


def shard_examples(data: object, devices: Sequence[Any] | None = None) -> ShardedExamples:
    """``data``, a pytree of arrays (size, ...), spread over ``devices`` (all of them if not given).

    Coins are thrown and lanes drawn for the whole data set from one key, every device clips its own part of the sample,
    and whole numbers are added (:mod:`jaxacct.training.fixed_point`): the sum, the noise and hence the release are
    those of one device, to the bit, provided that each example's own gradient is (same physical batch, and devices of
    one kind, which the guarantee assumes as well: a record less must not put others on another kind of device).

    Raises:
        ValueError: no devices, no arrays, or arrays of different lengths.
    """
    _validate.instance(Sequence | None, devices=devices)
    devices = jax.devices() if devices is None else list(devices)
    if not devices:
        raise ValueError("devices must hold at least one device, got none")
    for device in devices:
        _validate.instance(jax.Device, devices=device)
    size = _check.rows(data=data)
    mesh = Mesh(np.array(devices), (AXIS,))
    found = ShardedExamples(None, size, mesh)

    def spread(leaf: ArrayLike) -> jax.Array:
        leaf = np.asarray(leaf)
        padding = [(0, found.capacity - size), *[(0, 0)] * (leaf.ndim - 1)]
        return jax.device_put(np.pad(leaf, padding), NamedSharding(mesh, P(AXIS)))

    return dataclasses.replace(found, rows=jax.tree.map(spread, data))


def number_of(data: object) -> int:
    """The number of examples in ``data``, a public constant of the run."""
    return data.size if isinstance(data, ShardedExamples) else _check.rows(data=data)
