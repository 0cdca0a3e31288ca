"""Checkpoints of a pytree with Orbax, atomic and with a digest."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import TypeAlias

import jax
import numpy as np

from jaxacct._files import refuse_special_in
from jaxacct._types import Fields
from jaxacct.training.checks import Tree

Leaves: TypeAlias = dict[str, np.ndarray]

_KEPT = 2


class Checkpoints:
    """The last few checkpoints in a folder, numbered by step.

    Args:
        folder: made if missing.
    """

    def __init__(self, folder: Path):
        if importlib.util.find_spec("orbax") is None:
            raise ValueError("checkpoints need orbax-checkpoint: pip install 'jaxacct[train]'")
        refuse_special_in(folder, "checkpoints")
        import orbax.checkpoint as ocp

        self._ocp = ocp
        # Of several processes one alone keeps checkpoints, and waits for no other.
        here = jax.process_index()
        alone = ocp.options.MultiprocessingOptions(
            primary_host=here, active_processes={here}, barrier_sync_key_prefix="jaxacct"
        )
        options = ocp.CheckpointManagerOptions(
            max_to_keep=_KEPT,
            enable_async_checkpointing=False,
            cleanup_tmp_directories=True,
            **({"multiprocessing_options": alone, "create": False} if jax.process_count() > 1 else {}),
        )
        if jax.process_count() > 1:
            folder.mkdir(exist_ok=True)
        self._manager = ocp.CheckpointManager(folder.resolve(), options=options)
        self.folder = folder

    @property
    def latest(self) -> int | None:
        """The step of the newest checkpoint, or None."""
        return self._manager.latest_step()

    def save(self, step: int, tree: object, notes: dict[str, object]) -> None:
        """Writes ``tree``, NumPy arrays, and ``notes``, JSON, as checkpoint ``step``: it counts once it is whole."""
        leaves = _named(tree)
        notes = notes | {"digest": _digest(leaves), "shapes": _shapes(leaves)}
        args = self._ocp.args
        self._manager.save(
            step, args=args.Composite(tree=args.StandardSave(_held(leaves)), notes=args.JsonSave(notes)), force=True
        )
        self._manager.wait_until_finished()

    def restore(self, step: int, like: Tree) -> tuple[Tree, Fields]:
        """The tree of checkpoint ``step``, of the shapes of ``like``, NumPy arrays both, and its notes."""
        leaves = _named(like)
        args = self._ocp.args
        where = f"checkpoint {step} in {self.folder}"
        help = (
            "nothing was changed; move its folder away to go on from the one before (the journal keeps what was spent)"
        )
        try:
            notes = self._manager.restore(step, args=args.Composite(notes=args.JsonRestore()))["notes"]
            found, digest = dict(notes["shapes"]), notes["digest"]
        except Exception as problem:  # whatever damage makes Orbax and its storage raise
            raise ValueError(f"{where} cannot be read ({type(problem).__name__}): {help}") from problem
        wanted = _shapes(leaves)
        if found != wanted:
            name = next(name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name))
            raise ValueError(
                f"{where} is of another network, optimizer or schedule: {name} is {found.get(name, 'missing')} there "
                f"and {wanted.get(name, 'missing')} here"
            )
        try:
            template = jax.tree.map(self._ocp.utils.to_shape_dtype_struct, _held(leaves))
            found = self._manager.restore(step, args=args.Composite(tree=args.StandardRestore(template)))["tree"]
        except Exception as problem:  # as above
            raise ValueError(f"{where} cannot be read ({type(problem).__name__}): {help}") from problem
        restored = leaves | found
        if _digest(restored) != digest:
            raise ValueError(f"{where} is damaged, its digest does not agree: {help}")
        return jax.tree.unflatten(jax.tree.structure(like), [restored[name] for name in leaves]), notes

    def close(self) -> None:
        """Ends Orbax's threads."""
        self._manager.close()


def digest_of(folder: Path) -> str:
    """SHA-256 of all files of a checkpoint, with their names."""
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        found.update(f"|{path.relative_to(folder)}|{path.stat().st_size}|".encode() + path.read_bytes())
    return found.hexdigest()


def _named(tree: object) -> Leaves:
    """Leaves by their number and path: any pytree is then a plain dictionary, in order."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {f"{i:05d}{jax.tree_util.keystr(path)}".replace("/", "|"): leaf for i, (path, leaf) in enumerate(found)}


def _held(leaves: Leaves) -> Leaves:
    """The leaves that hold anything: Orbax keeps no empty ones."""
    return {name: leaf for name, leaf in leaves.items() if leaf.size}


def _shapes(leaves: Leaves) -> dict[str, str]:
    return {name: f"{leaf.dtype.name}{list(leaf.shape)}" for name, leaf in leaves.items()}


def _digest(leaves: Leaves) -> str:
    found = hashlib.sha256()
    for name, array in sorted(leaves.items()):
        found.update(f"|{name}|{array.dtype.str}{array.shape}|".encode() + array.tobytes())
    return found.hexdigest()
