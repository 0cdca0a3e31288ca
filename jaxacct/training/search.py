"""`best_of`: searches for hyperparameters, and pays once: for the best of a random number of trials."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._files import as_path
from jaxacct._types import PyTree
from jaxacct.selection import PrivateSelection
from jaxacct.training.durable_runs import checkpoints
from jaxacct.training.durable_runs.journal import Journal
from jaxacct.training.keys import RootKeys, fresh_keys


class Best(NamedTuple):
    """What a search releases, all of it under one guarantee.

    Attributes:
        candidate: the winner's hyperparameters; None where the number of trials was drawn as 0.
        score: the winner's score, -inf for NaN.
        output: the winner's output, arrays of NumPy's.
        guarantee: a mechanism, for `jaxacct.epsilon` or a filter.
    """

    candidate: PyTree
    score: float
    output: PyTree
    guarantee: PrivateSelection


def best_of(
    run: Any,
    mean: float,
    shape: float,
    *,
    train: Callable[[PyTree, RootKeys], tuple[ArrayLike, PyTree]],
    candidates: Sequence[object],
    like: PyTree,
    folder: str | Path,
) -> Best:
    """The best of a random number of trials, each of a candidate that is drawn at random.

    The number of trials is drawn from the operating system's entropy, and is secret, as are all losers: who learns them
    (from what ``train`` prints or writes, from the time that the search takes, from ``folder``) learns more than is
    charged. A search that was killed goes on with the trials that were drawn, and repeats the one that was under way,
    with new keys; whether it is killed must not depend on what trials found. A search that has ended returns its winner
    again, and runs nothing.

    Args:
        run: what one trial is, its score included: a mechanism, or the guarantee of a filter of which every trial has a
            fresh state.
        mean, shape: of the number of trials, as `PrivateSelection` takes them; one number each.
        train: ``train(candidate, keys) -> (score, output)``: one trial, of the randomness of ``keys`` alone. The score
            is part of the trial: computed from its release and public data, or private by itself and paid for in
            ``run``. The largest wins.
        candidates: choices of hyperparameters, fixed without a look at the data; by their text a resumed search is
            compared with the one that was begun.
        like: a pytree with the structure and types of ``output``; shapes may be others.
        folder: holds the search, readable by its user alone: one search, and no copy of it is resumed.

    Raises:
        ValueError: no such parameters, or a folder with another search in it, or whose best output is damaged or gone.
        OSError: the folder cannot be read or written.
    """
    _validate.function(train=train)
    selection, candidates = PrivateSelection(run, mean, shape), tuple(candidates)
    if selection.counts().shape or not candidates:
        raise ValueError(f"mean and shape must be one number each, and candidates some, got {mean}, {shape}")
    folder = as_path(folder=folder)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    asked = hashlib.sha256(repr((selection, candidates)).encode()).hexdigest()
    with contextlib.closing(Journal(folder / "journal")) as journal:
        if not (records := list(journal.records)):
            random = np.random.default_rng(int.from_bytes(os.urandom(32), "little"))
            number = selection.counts().item().draw(random)
            choices = random.integers(len(candidates), size=number).tolist()
            records = [{"kind": "search", "asked": asked, "choices": choices}]
            journal.append(records[0])
            journal.sync()
        if records[0].get("asked") != asked:
            raise ValueError(f"folder {folder} holds another search, or no search: choose another folder")
        choices, scores = records[0]["choices"], [float.fromhex(record["score"]) for record in records[1:]]
        for trial in range(len(scores), len(choices)):
            score, output = train(candidates[choices[trial]], fresh_keys())
            _validate.scalar(score=score)
            found = float(np.asarray(score))
            scores.append(-np.inf if np.isnan(found) else found)
            if np.argmax(scores) == trial:  # of equals the first: trials come in random order
                kept = jax.tree.map(lambda leaf, one: np.asarray(one, np.asarray(leaf).dtype), like, output)
                checkpoints.write(folder / f"{trial}.npz", {}, jax.tree.leaves(kept))
            journal.append({"kind": "trial", "score": scores[-1].hex()})
            journal.sync()
    if not choices:
        return Best(None, -np.inf, None, selection)
    best = int(np.argmax(scores))
    for loser in set(folder.glob("*.npz")) - {folder / f"{best}.npz"}:
        loser.unlink()
    output = checkpoints.as_tree(checkpoints.read(folder / f"{best}.npz")[1], like)
    return Best(candidates[choices[best]], scores[best], output, selection)
