"""Checks of a step's randomness: how large its noise is, that it is Gaussian, and that nothing is drawn twice."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct.testing.findings import Leak
from jaxacct.testing.replay import Program, Seen

_SIGMAS = 6.0  # how far from its expectation an estimate may be
_DRAWS = 64  # runs where a variance has to be estimated
_MOST = 100_000  # entries that are compared with one another


def noise_variances(program: Program, data: Any, keys: list[Any]) -> tuple[list[np.ndarray], float]:
    """The variance of the noise in every entry of every release, and by what factor it may be too small.

    Draws are turned on one by one and replaced by their signs. Where each entry is made of one entry of a draw (or of
    one a block of a draw), the square of what comes is its share of the variance exactly, whatever the key.
    """
    found = program.found
    if not found.cuts:
        return [], 1.0

    def squares(key: Any, released: list[Any], silent: Seen, source: int, block: int, width: int) -> list[np.ndarray]:
        gains = np.eye(len(found.sources))[source]
        loud = program.run(data, key, gains, signs=True, block=(block, width), released=released)
        return [np.square(_float(a) - _float(b)) for a, b in zip(loud.inputs, silent.inputs, strict=True)]

    runs = []
    for number, key in enumerate(keys[:_DRAWS]):
        total, released = [np.zeros(cut.aval.shape) for cut in found.cuts], program.run(data, key).inputs
        silent = program.run(data, key, 0.0, released=released)
        for part in _parts(found):
            total = [sum_ + more for sum_, more in zip(total, squares(key, released, silent, *part), strict=True)]
        runs.append(total)
        same = number == 1 and all(np.allclose(a, b, rtol=1e-3) for a, b in zip(*runs, strict=True))
        if same:
            return total, 1.0
    pooled = [np.mean(rows, axis=0) for rows in zip(*runs, strict=True)]
    smallest = min(cut.aval.size for cut in found.cuts)
    # Where entries have about one variance, take it from them all: one entry's own is too uncertain.
    pooled = [np.where(each > 0, np.mean(each), 0.0) if np.all(each > 0) else each for each in pooled]
    return pooled, 1 + _SIGMAS / np.sqrt(len(runs) * max(smallest, 1))


def _parts(found: Any) -> list[tuple[int, int, int]]:
    """What is looked at together: (source, block, width)."""
    widths = [_width(found, source) for source in range(len(found.sources))]
    sizes = [source.aval.size for source in found.sources]
    return [
        (source, block, width)
        for source, (width, size) in enumerate(zip(widths, sizes, strict=True))
        for block in range(-(-size // width))
    ]


def _width(found: Any, source: int) -> int:
    """How many entries of a draw can be looked at together: as many as a release has that is made of it."""
    size = found.sources[source].aval.size
    fed = [cut.aval.size for cut, sources in zip(found.cuts, found.fed, strict=True) if source in sources]
    return (
        fed[0] if len(fed) == 1 and 0 < fed[0] < size and size % fed[0] == 0 and size // fed[0] <= 16 else max(size, 1)
    )


def noise_leaks(program: Program, data: Any, keys: list[Any], variances: list[np.ndarray]) -> list[Leak]:
    """What is wrong with the draws of a step, seen at a few keys."""
    runs = [program.run(data, key) for key in keys[:4]]
    silent = [program.run(data, key, 0.0, released=run.inputs) for key, run in zip(keys[:4], runs, strict=True)]
    double = program.run(data, keys[0], 2.0, released=runs[0].inputs)
    leaks = [*_key_leaks(runs), *_law_leaks(runs)]
    noise = [
        [_float(a) - _float(b) for a, b in zip(run.inputs, quiet.inputs, strict=True)]
        for run, quiet in zip(runs, silent, strict=True)
    ]
    for number, variance in enumerate(variances):
        where, scale = program.place(number), np.sqrt(np.max(variance, initial=0.0))
        rows = np.stack([run[number] for run in noise])
        if scale and np.all(rows == rows[0]):
            leaks.append(Leak("randomness", where, f"the noise in {where} is the same for all keys"))
        twice = _float(double.inputs[number]) - _float(silent[0].inputs[number])
        if scale and not np.allclose(twice, 2 * rows[0], rtol=1e-2, atol=1e-2 * scale):
            leaks.append(Leak("noise", where, f"the noise in {where} is not Gaussian: it is no sum of normal draws"))
    parts = _parts(program.found) if variances else []
    repeated = sum(_repeated(program, data, keys[:4], runs, silent, part, variances) for part in parts)
    if repeated:
        says = f"{repeated} entries of the noise repeat others, in whole or in part: their difference has less noise"
        leaks.append(Leak("key", "", says))
    return leaks


def _repeated(
    program: Program, data: Any, keys: list[Any], runs: list[Seen], silent: list[Seen], part: Any, variances: Any
) -> int:
    """How many entries of the releases get the same numbers of one draw as others."""
    source, block, width = part
    gains, rows = np.eye(len(program.found.sources))[source], []
    for key, run, quiet in zip(keys, runs, silent, strict=True):
        loud = program.run(data, key, gains, block=(block, width), released=run.inputs)
        rows.append(
            np.concatenate(
                [
                    ((_float(a) - _float(b)) / np.sqrt(np.where(variance > 0, variance, np.inf))).ravel()
                    for a, b, variance in zip(loud.inputs, quiet.inputs, variances, strict=True)
                ]
            )
        )
    table = np.stack(rows, 1)[:_MOST]
    table = table[np.abs(table).max(1, initial=0.0) > 1e-4]
    # Up to a factor: the first number becomes 1.
    ratios = np.round(table / np.where(table[:, :1] == 0, np.inf, table[:, :1]), 3)
    return len(ratios) - len(np.unique(ratios, axis=0))


def _key_leaks(runs: list[Seen]) -> list[Leak]:
    words = [tuple(row) for array in runs[0].keys for row in np.asarray(array).tolist()]
    twice = len(words) - len(set(words))
    if not twice:
        return []
    return [
        Leak(
            "key", "", f"a key is used for more than one draw of random bits ({twice} too many): they are the same bits"
        )
    ]


def _law_leaks(runs: list[Seen]) -> list[Leak]:
    drawn = np.concatenate([_float(array).ravel() for run in runs for array in run.normal] or [np.zeros(0)])
    drawn = drawn[np.isfinite(drawn)]
    if len(drawn) < 2:
        return []
    mean, square, fourth = drawn.mean(), np.mean(drawn**2), np.mean(drawn**4)
    root = np.sqrt(len(drawn))
    if (
        abs(mean) * root > _SIGMAS
        or abs(square - 1) * root > _SIGMAS * 2**0.5
        or abs(fourth - 3) * root > _SIGMAS * 96**0.5
    ):
        says = f"draws of noise have mean {mean:.3g}, variance {square:.3g}, fourth moment {fourth:.3g}, not 0, 1, 3"
        return [Leak("noise", "", says)]
    return []


def _float(value: Any) -> np.ndarray:
    return np.asarray(value).astype(np.float64)
