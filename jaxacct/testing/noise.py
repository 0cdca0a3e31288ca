"""Checks of a step's randomness: how large its noise is, that it is Gaussian, and that nothing is drawn twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from jaxacct._types import PyTree
from jaxacct.testing.findings import Leak
from jaxacct.testing.replay import Program, Seen

_SIGMAS = 6.0  # how far from its expectation an estimate may be
_DRAWS = 64  # runs where a variance has to be estimated
_MOST = 100_000  # entries that are compared with one another
_MOST_SINGLE = 512  # normal numbers that are turned on one by one


@dataclasses.dataclass(frozen=True)
class Spread:
    """How the noise of all releases is spread.

    Attributes:
        variances: of every entry of every release.
        slack: by what factor deviations may be too small; 1 where they are exact.
        whitening: what makes entries, in deviations of their own, independent; None where they are so.
    """

    variances: list[np.ndarray]
    slack: float = 1.0
    whitening: np.ndarray | None = None

    def size(self, changes: list[np.ndarray]) -> float:
        """How far changes of the releases are, in deviations of the noise."""
        scaled = [
            (change / np.sqrt(np.where(variance > 0, variance, np.inf))).ravel()
            for change, variance in zip(changes, self.variances, strict=True)
        ]
        flat = np.concatenate(scaled) if scaled else np.zeros(0)
        return float(np.linalg.norm(flat if self.whitening is None else self.whitening @ flat))


def _noise(
    program: Program, data: PyTree, key: jax.Array, gains: PyTree = 1.0, *, signs: bool = False
) -> list[np.ndarray]:
    """What draws, each times its gain, add to every release."""
    released = program.run(data, key).inputs
    loud, silent = (program.run(data, key, by, signs=signs, released=released).inputs for by in (gains, 0.0))
    return [_float(a) - _float(b) for a, b in zip(loud, silent, strict=True)]


def _each(program: Program, data: PyTree, key: jax.Array, signs: bool) -> Iterator[list[np.ndarray]]:
    """The noise of one draw after the other."""
    for gains in np.eye(len(program.found.sources)):
        yield _noise(program, data, key, gains, signs=signs)


def _covariance(program: Program, data: PyTree, keys: list[jax.Array]) -> np.ndarray | None:
    """The covariance of all entries, if the normal numbers are few and it is the same for two keys."""
    shapes = [source.aval.shape for source in program.found.sources]
    if max(sum(map(np.prod, shapes)), sum(cut.aval.size for cut in program.found.cuts)) > _MOST_SINGLE:
        return None
    found = []
    for key in keys[:2]:
        rows = []
        for which, shape in enumerate(shapes):
            for entry in np.ndindex(shape):
                gains = [np.zeros(each) for each in shapes]
                gains[which][entry] = 1.0
                rows.append(np.concatenate([x.ravel() for x in _noise(program, data, key, gains, signs=True)]))
        table = np.stack(rows)
        found.append(table.T @ table)
    return found[0] if np.allclose(*found, rtol=1e-3, atol=1e-3 * np.max(np.diag(found[0]))) else None


def _from_covariance(program: Program, covariance: np.ndarray) -> Spread:
    shapes = [cut.aval.shape for cut in program.found.cuts]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    diagonal = np.diag(covariance)
    variances = [part.reshape(shape) for part, shape in zip(np.split(diagonal, ends[:-1]), shapes, strict=True)]
    scales = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(covariance / np.outer(scales, scales))
    # A direction without noise counts as one of a thousandth of it: rounding is less, and a record's part is more.
    return Spread(variances, 1.0, vectors.T / np.sqrt(np.maximum(values, 1e-6))[:, None])


def noise_spread(program: Program, data: PyTree, keys: list[jax.Array]) -> Spread:
    """How the noise of all releases is spread.

    Draws are turned on one by one and replaced by their signs. Where each entry is made of one entry of a draw, the
    square of what comes is its share of the variance exactly, whatever the key. Where not, the single numbers of the
    draws are turned on, if they are few, for the covariance of all entries; else variances are estimated.
    """
    if not program.found.cuts:
        return Spread([])
    runs: list[list[np.ndarray]] = []
    for key in keys[:_DRAWS]:
        runs.append([np.sum(np.square(parts), axis=0) for parts in zip(*_each(program, data, key, True), strict=True)])
        if len(runs) == 2 and all(np.allclose(a, b, rtol=1e-3) for a, b in zip(*runs, strict=True)):
            return Spread(runs[0])
        if len(runs) == 2 and (covariance := _covariance(program, data, keys)) is not None:
            return _from_covariance(program, covariance)
    pooled = [np.mean(rows, axis=0) for rows in zip(*runs, strict=True)]
    # Where entries have about one variance, take it from them all: one entry's own is too uncertain.
    pooled = [np.where(each > 0, np.mean(each), 0.0) if np.all(each > 0) else each for each in pooled]
    return Spread(pooled, 1 + _SIGMAS / np.sqrt(len(runs) * max(min(each.size for each in pooled), 1)))


def noise_leaks(program: Program, data: PyTree, keys: list[jax.Array], variances: list[np.ndarray]) -> list[Leak]:
    """What is wrong with the draws of a step, seen at a few keys."""
    keys = keys[:4]
    runs = [program.run(data, key) for key in keys]
    leaks = [*_key_leaks(runs[0]), *_law_leaks(runs)]
    # A negative factor: sizes and order of draws are no linear functions of them, either.
    noise, turned = [_noise(program, data, key) for key in keys], _noise(program, data, keys[0], -2.0)
    for number, variance in enumerate(variances):
        where, scale = program.place(number), np.sqrt(np.max(variance, initial=0.0))
        first = noise[0][number]
        if scale and all(np.array_equal(first, run[number]) for run in noise):
            leaks.append(Leak("randomness", where, f"the noise in {where} is the same for all keys"))
        if scale and not np.allclose(turned[number], -2 * first, rtol=1e-2, atol=1e-2 * scale):
            leaks.append(Leak("noise", where, f"the noise in {where} is not Gaussian: it is no sum of normal draws"))
    scales = [np.sqrt(np.where(variance > 0, variance, np.inf)) for variance in variances]
    parts = zip(*(_each(program, data, key, False) for key in keys), strict=True) if scales else ()
    if repeated := sum(_repeated(part, scales) for part in parts):
        says = f"{repeated} entries of the noise repeat others, in whole or in part: their difference has less noise"
        leaks.append(Leak("key", "", says))
    return leaks


def _repeated(runs: PyTree, scales: list[np.ndarray]) -> int:
    """How many entries of the releases get the same numbers of one draw as others."""
    rows = [np.concatenate([(a / scale).ravel() for a, scale in zip(run, scales, strict=True)]) for run in runs]
    table = np.stack(rows, 1)[:_MOST]
    table = table[np.abs(table).max(1, initial=0.0) > 1e-4]
    # Up to a factor: the first number becomes 1.
    ratios = np.round(table / np.where(table[:, :1] == 0, np.inf, table[:, :1]), 3)
    return len(ratios) - len(np.unique(ratios, axis=0))


def _key_leaks(run: Seen) -> list[Leak]:
    words, split = (
        [tuple(row) for array in used for row in np.asarray(array).tolist()] for used in (run.keys, run.split)
    )
    twice = len(words) - len(set(words)) + len(set(words) & set(split))  # what it is split to is made of its bits
    says = f"a key is used for more than one draw of random bits ({twice} too many): they are the same bits"
    return [Leak("key", "", says)] if twice else []


def _law_leaks(runs: list[Seen]) -> list[Leak]:
    drawn = np.concatenate([_float(array).ravel() for run in runs for array in run.normal] or [np.zeros(0)])
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) < 2:
        return []
    found = np.array([np.mean(drawn**power) for power in (1, 2, 4)])
    if np.all(np.abs(found - [0, 1, 3]) * np.sqrt(len(drawn)) <= _SIGMAS * np.sqrt([1, 2, 96])):
        return []
    says = "draws of noise have mean {:.3g}, variance {:.3g}, fourth moment {:.3g}, not 0, 1, 3".format(*found)
    return [Leak("noise", "", says)]


def _float(value: Any) -> np.ndarray:
    return np.asarray(value).astype(np.float64)
