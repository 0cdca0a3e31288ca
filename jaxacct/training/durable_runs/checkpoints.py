"""Checkpoints: trees of NumPy arrays, each an archive of NumPy's that has its name only when it is whole."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import jax
import numpy as np

from jaxacct._files import sync_folder, to_disk
from jaxacct._types import Fields
from jaxacct.training.checks import Tree

_KEPT = 2
_HELP = "nothing was changed; move its file away to go on from the one before (the journal keeps what was spent)"


def write(path: Path, notes: Fields, leaves: Sequence[np.ndarray]) -> None:
    """Writes ``notes``, JSON, and arrays as one file, which its user alone may read; on return it is on the disk."""
    part = path.with_suffix(".part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        np.savez(file, np.frombuffer(json.dumps(notes).encode(), np.uint8), *leaves)
        file.flush()
        to_disk(file.fileno())
    part.replace(path)
    sync_folder(path.parent)


def read(path: Path) -> tuple[Fields, list[np.ndarray]]:
    """The notes and arrays that `write` wrote; a type that NumPy does not have comes back as bytes, to be viewed.

    Raises:
        ValueError: a file that is not there, that is damaged, or that would grow while it is read.
    """
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as kept:
            if any(one.file_size != one.compress_size for one in kept.zip.infolist()):
                raise ValueError("it was compressed")
            notes, *leaves = (kept[f"arr_{i}"] for i in range(len(kept.files)))
        return json.loads(notes.tobytes()), leaves
    except Exception as problem:  # whatever a damaged archive makes zipfile and NumPy raise
        raise ValueError(f"{path} cannot be read ({type(problem).__name__}): {problem!s:.200}") from problem


def as_tree(leaves: Sequence[np.ndarray], like: Tree) -> Tree:
    """Leaves that `read` returned as a tree of the structure and types of ``like``."""
    kinds, structure = jax.tree.flatten(jax.tree.map(np.asarray, like))
    return jax.tree.unflatten(structure, [one.view(kind.dtype) for one, kind in zip(leaves, kinds, strict=True)])


def steps_in(folder: Path) -> list[int]:
    """The steps of the checkpoints in a folder, rising."""
    return sorted(int(path.stem) for path in folder.glob("*.npz") if path.stem.isdecimal())


def place_of(folder: Path, step: int) -> Path:
    """The file of a checkpoint."""
    return folder / f"{step}.npz"


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save(folder: Path, step: int, tree: object, seal: str) -> str:
    """Writes ``tree`` and the ``seal`` of the journal then, and returns the digest; of older ones one stays."""
    path = place_of(folder, step)
    write(path, {"step": step, "seal": seal, "shapes": _shapes(tree)}, jax.tree.leaves(tree))
    for old in [*map(partial(place_of, folder), steps_in(folder)[:-_KEPT]), *folder.glob("*.part")]:
        old.unlink()  # and what a kill left half written
    return digest_of(path)


def opened(folder: Path, step: int) -> tuple[str, dict[str, str], list[np.ndarray]]:
    """The seal of a checkpoint, the shapes that it says its arrays have, and the arrays.

    Raises:
        ValueError: a file that cannot be read, or that is the checkpoint of another step.
    """
    where = f"checkpoint {step} in {folder}"
    try:
        notes, leaves = read(place_of(folder, step))
        found, seal, shapes = notes["step"], str(notes["seal"]), dict(notes["shapes"])
    except (ValueError, KeyError, TypeError) as problem:
        raise ValueError(f"{where} cannot be read: {_HELP}") from problem
    if found != step:
        raise ValueError(f"{where} is that of step {found!s:.20} under another name: {_HELP}")
    return seal, shapes, leaves


def restore(folder: Path, step: int, like: Tree, digest: str | None) -> tuple[Tree, str]:
    """The tree of a checkpoint, of the shapes of ``like``, NumPy arrays both, and its seal.

    Raises:
        ValueError: a file that cannot be read, that is not of the ``digest`` in the journal, where there is one, or
            that holds another tree.
    """
    where = f"checkpoint {step} in {folder}"
    if digest not in (None, digest_of(place_of(folder, step))):
        raise ValueError(f"{where} is damaged, its digest is not the journal's: {_HELP}")
    seal, found, leaves = opened(folder, step)
    wanted = _shapes(like)
    if found != wanted:
        name = next(name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name))
        raise ValueError(
            f"{where} is of another network, optimizer or schedule: {name} is {found.get(name, 'missing')} there and "
            f"{wanted.get(name, 'missing')} here"
        )
    damaged = ValueError(f"{where} is damaged, its arrays are not of the shapes that it says: {_HELP}")
    try:
        tree = as_tree(leaves, like)
    except (ValueError, TypeError):  # of another number, or of another size
        raise damaged from None
    if _shapes(tree) != wanted:
        raise damaged
    return tree, seal


def _shapes(tree: object) -> dict[str, str]:
    """Types and shapes of the leaves by their number and path."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {
        f"{i:05d}{jax.tree_util.keystr(path)}": f"{leaf.dtype.name}{list(leaf.shape)}"
        for i, (path, leaf) in enumerate(found)
    }
