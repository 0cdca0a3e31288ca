"""A journal and checkpoints that process 0 keeps for all processes of a run, which go no further than it says."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from jaxacct._types import Fields, PyTree
from jaxacct.training.checks import Tree
from jaxacct.training.durable_runs.checkpoints import Checkpoints
from jaxacct.training.durable_runs.journal import Journal, Record
from jaxacct.training.processes import led
from jaxacct.training.sharding import over_mesh


class SharedJournal:
    """A `Journal` in process 0, with the same methods in every one. All of them call `sync` and `held` together.

    :meth:`sync` returns in no process before the records have reached the disk of process 0, and raises in all of them
    where they have not: so none takes a step that is not charged. What `append` was given is written by the next one.
    """

    def __init__(self, path: Path):
        self._own: Journal | None = None
        self._kept: list[Record] = []
        self.path = path.absolute()
        self.records: list[Record] = led(self._open)

    @property
    def seal(self) -> str:
        """Of the last record that was written; empty in other processes than 0."""
        return "" if self._own is None else self._own.seal

    def held(self, seal: str | None) -> bool:
        """As `Journal.held`."""
        return led(lambda: self._journal.held(seal))

    def append(self, record: Record) -> None:
        """Keeps ``record`` for the next `sync`."""
        self._kept.append(record)

    def sync(self) -> None:
        """As `Journal.sync`, for every process."""
        kept, self._kept = self._kept, []
        led(lambda: self._write(kept))

    def close(self) -> None:
        """Gives the file and its lock back; what was not yet written only tells of releases, and is tried."""
        if self._own is not None:
            try:
                if self._kept:
                    self._write(self._kept)
            finally:
                self._own.close()

    def _open(self) -> list[Record]:
        self._own = Journal(self.path)
        return self._own.records

    @property
    def _journal(self) -> Journal:
        assert self._own is not None  # in process 0
        return self._own

    def _write(self, records: list[Record]) -> None:
        for record in records:
            self._journal.append(record)
        self._journal.sync()


class SharedCheckpoints:
    """`Checkpoints` in process 0, with the same methods in every one, which all of them call together."""

    def __init__(self, folder: Path, mesh: Mesh):
        self._own: Checkpoints | None = None
        self._mesh, self.folder = mesh, folder
        self.latest: int | None = led(lambda: self._open(folder))

    def save(self, step: int, tree: object, notes: dict[str, object]) -> None:
        """As `Checkpoints.save`; ``tree`` is the same on every device."""
        led(lambda: self._checkpoints.save(step, jax.tree.map(np.asarray, tree), notes))

    def restore(self, step: int, like: Tree) -> tuple[Tree, Fields]:
        """As `Checkpoints.restore`; the tree lies on every device of the mesh."""
        trees = [jax.tree.map(np.asarray, like)]

        def read() -> Fields:
            tree, notes = self._checkpoints.restore(step, trees[0])
            trees.append(tree)
            return notes

        notes = led(read)
        return over_mesh(trees[-1], self._mesh), notes

    def close(self) -> None:
        """Ends Orbax's threads."""
        if self._own is not None:
            self._own.close()

    def _open(self, folder: Path) -> int | None:
        self._own = Checkpoints(folder)
        return self._own.latest

    @property
    def _checkpoints(self) -> Checkpoints:
        assert self._own is not None  # in process 0
        return self._own


def mesh_of(state: PyTree) -> Mesh:
    """The mesh of all processes on which ``state`` lies. Raises ValueError where it lies on one process alone."""
    sharding = getattr(state.step, "sharding", None)
    held = {device.process_index for device in getattr(sharding, "device_set", ())}
    mesh = getattr(sharding, "mesh", None)
    if not isinstance(mesh, Mesh) or len(held) < jax.process_count():
        raise ValueError("state must lie on devices of every process: pass training.replicate(state, examples)")
    return mesh
