"""`RunFolder`: the journal and the checkpoints of a run, which process 0 keeps for all processes of it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxacct._files import refuse_special_in
from jaxacct._types import PyTree
from jaxacct.training.checks import Tree
from jaxacct.training.durable_runs import checkpoints
from jaxacct.training.durable_runs.journal import Journal, Record
from jaxacct.training.processes import is_first, led
from jaxacct.training.sharding import over_mesh


class RunFolder:
    """A run's folder. All processes call its methods together, but for `append`, and none goes further than it says.

    Args:
        path: of the folder, made if missing; ``journal`` and ``checkpoints`` lie in it.
        mesh: of all processes; None where there is one.

    Attributes:
        records: what the journal held when it was opened.
        latest: the step of the newest checkpoint then, or None.

    Raises:
        ValueError: a damaged journal, or none beside checkpoints.
        OSError: the folder cannot be read or written.
    """

    _journal: Journal  # in process 0 only

    def __init__(self, path: Path, mesh: Mesh | None):
        self.path, self._mesh = path, mesh
        self._checkpoints = path / "checkpoints"
        self._waiting: list[Record] = []
        self.records: list[Record]
        self.latest: int | None
        self.records, self.latest = led(self._open)

    def append(self, record: Record) -> None:
        """Keeps ``record`` for the next `sync`; where there is one process, it is written at once."""
        if self._mesh is None:
            self._journal.append(record)
        else:
            self._waiting.append(record)

    def sync(self) -> None:
        """Returns when all records are on the disk of process 0. Where they are not, no process takes another step."""
        waiting, self._waiting = self._waiting, []
        led(lambda: self._write(waiting))

    def save(self, step: int, tree: object) -> None:
        """Writes ``tree``, the same on every device, as checkpoint ``step``, and into the journal that it did."""
        self.sync()  # a checkpoint must not know of more than the journal on the disk

        def write() -> str:
            return checkpoints.save(self._checkpoints, step, jax.tree.map(np.asarray, tree), self._journal.seal)

        self.append({"kind": "checkpoint", "step": step, "digest": led(write)})
        self.sync()

    def restore(self, like: Tree) -> Tree:
        """The tree of the newest checkpoint, shaped and placed like ``like``.

        Raises:
            ValueError: a damaged checkpoint, or one that knows of charges that the journal lacks.
        """
        trees = [jax.tree.map(np.asarray, like)]

        def read() -> None:
            assert self.latest is not None
            digests = {record["step"]: record["digest"] for record in self.records if record["kind"] == "checkpoint"}
            tree, seal = checkpoints.restore(self._checkpoints, self.latest, trees[0], digests.get(self.latest))
            if not self._journal.held(seal):
                raise ValueError(
                    f"journal {self._journal.path} is behind checkpoint {self.latest}, or belongs to another run: "
                    "charges are missing, so what was spent cannot be told; put back the journal that was beside it"
                )
            trees.append(tree)

        led(read)
        return jax.tree.map(_as_placed, trees[-1], like) if self._mesh is None else over_mesh(trees[-1], self._mesh)

    def placed(self, state: Tree) -> Tree:
        """``state``, as it is in process 0, on the devices of all processes."""
        return state if self._mesh is None else over_mesh(state, self._mesh)

    def close(self) -> None:
        """Gives the journal and its lock back; what was not yet written only tells of releases, and is tried."""
        if is_first():
            with contextlib.closing(self._journal):
                if self._waiting:
                    self._write(self._waiting)

    def _open(self) -> tuple[list[Record], int | None]:
        self.path.mkdir(parents=True, exist_ok=True)
        refuse_special_in(self._checkpoints, "checkpoints")
        steps = checkpoints.steps_in(self._checkpoints)
        lost = ValueError(f"folder {self.path} holds checkpoints and no journal: what was spent cannot be told")
        if self._checkpoints.exists() and not (self.path / "journal").exists():  # the journal is made first
            raise lost
        self._journal = Journal(self.path / "journal")
        try:
            if steps and not self._journal.records:
                raise lost
            self._checkpoints.mkdir(exist_ok=True)
        except BaseException:
            self._journal.close()
            raise
        return self._journal.records, max(steps, default=None)

    def _write(self, records: list[Record]) -> None:
        for record in records:
            self._journal.append(record)
        self._journal.sync()


def mesh_of(state: PyTree) -> Mesh | None:
    """The mesh of all processes on which ``state`` lies, None where there is one process alone.

    Raises:
        ValueError: a state that lies on one of several processes.
    """
    if jax.process_count() == 1:
        return None
    sharding = getattr(state.step, "sharding", None)
    held = {device.process_index for device in getattr(sharding, "device_set", ())}
    mesh = getattr(sharding, "mesh", None)
    if not isinstance(mesh, Mesh) or len(held) < jax.process_count():
        raise ValueError("state must lie on devices of every process: pass training.replicate(state, examples)")
    return mesh


def _as_placed(array: np.ndarray, like: jax.Array) -> jax.Array:
    """One that was free to move stays free, so that no program compiles anew."""
    return jax.device_put(array, like.sharding) if getattr(like, "committed", False) else jnp.asarray(array)
