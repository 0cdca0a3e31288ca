"""Spreads a batch over several devices, of one process or of many."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxacct._numerics.arrays import Array


def check_devices(devices: object) -> None:
    """JAX's devices, at least one, or None."""
    if devices is None:
        return
    if not (isinstance(devices, list | tuple) or (isinstance(devices, np.ndarray) and devices.ndim == 1)):
        raise ValueError(f"devices must be a sequence of JAX devices or None, got {devices!r}")
    if not len(devices):
        raise ValueError("devices must hold at least one device, got none")
    for device in devices:
        if not isinstance(device, jax.Device):
            raise ValueError(f"devices must be JAX devices, got {device!r}")


class Spread:
    """Puts the leading axis of arrays on devices in equal shares, and brings results back.

    With the devices of several processes (``jax.distributed``), every process makes the same call with the same
    numbers, holds its own share, and gets all results; XLA moves them.
    """

    def __init__(self, devices: Sequence[object] | None = None) -> None:
        check_devices(devices)
        self.shares = 1 if devices is None else len(devices)
        self._sharding = None
        if devices is not None:
            self._sharding = NamedSharding(Mesh(np.asarray(devices), ("settings",)), PartitionSpec("settings"))

    def padded(self, members: np.ndarray, size: int) -> np.ndarray:
        """``members`` repeated up to ``size``, or the next multiple of the number of devices."""
        return np.resize(members, -(-size // self.shares) * self.shares)

    def place(self, tree: tuple[object, ...]) -> tuple[object, ...]:
        """Arrays of the host on their devices; without any, as they are."""
        sharding = self._sharding
        if sharding is None:
            return tree

        def put(x: Array) -> jax.Array:
            x = np.asarray(x)
            return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])

        return jax.tree.map(put, tree)

    def gather(self, x: Array) -> np.ndarray:
        """All of a result as an array of the host."""
        if isinstance(x, jax.Array) and not x.is_fully_addressable:
            from jax.experimental import multihost_utils

            return np.asarray(multihost_utils.process_allgather(x, tiled=True))
        return np.asarray(x)
