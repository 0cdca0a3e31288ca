"""Private counts and histograms of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.filters.base import Filter
from jaxacct.ledger.ledger import Ledger
from jaxacct.release.noise import check_people, noise
from jaxacct.release.released import Released, released
from jaxacct.release.rows import as_rows
from jaxacct.release.samplers import Number


def count(
    flags: ArrayLike,
    budget: Ledger | Filter,
    *,
    scale: Number | None = None,
    sigma: Number | None = None,
    relation: str = "add_or_remove",
    max_rows: int = 1,
    state: object = None,
    label: str = "",
) -> Released:
    """How many rows have a True, plus noise: a whole number, which may be negative.

    One person moves it by at most ``max_rows``, under both relations.

    Args:
        flags: (rows,) of True and False, ``np.ones(n, bool)`` for the number of rows itself.
        budget: a `Ledger`, or a filter that a ledger could hold.
        scale: of discrete Laplace noise. Or:
        sigma: of discrete Gaussian noise.
        relation: ``"add_or_remove"``: whether a person's rows are there is secret. ``"replace"``: what is in them is,
            and everyone's number of rows is public.
        max_rows: the most rows of one person. It is a promise: nothing here knows whose a row is.
        state: of a filter: ``budget.init()`` at first, then the ``state`` of the last release.
        label: for the ledger's record.

    Returns:
        A `Released`: whole number, cost and what is left; no value if the budget refused.

    Raises:
        ValueError: bad arguments, before anything is charged. That rows were bad is itself not private.
        LedgerError: do not release.
    """
    check_people(relation, max_rows)
    width, true = noise(scale, sigma), int(np.sum(as_rows("flags", flags, "b")))
    return released(lambda: true + width.draw(1)[0], width.of_number(max_rows), budget, state, label)


def histogram(
    values: ArrayLike,
    budget: Ledger | Filter,
    *,
    bins: Sequence[Hashable],
    scale: Number | None = None,
    sigma: Number | None = None,
    relation: str = "add_or_remove",
    max_rows: int = 1,
    state: object = None,
    label: str = "",
) -> Released:
    """How often each of ``bins`` occurs, each plus noise: ``{bin: whole number}``, also for those that do not occur.

    Under ``"replace"`` a person's rows leave bins and enter others, which costs twice (`Composed`).

    Args:
        values: (rows,) of whole numbers, floats, truth values or texts; those that are none of ``bins`` count nowhere.
        budget: as in `count`.
        bins: the values to count, fixed without a look at the data: which values occur is private.
        scale, sigma: of each number's noise, as in `count`. Gaussian noise with ``max_rows`` over 1 is charged as zCDP.
        relation, max_rows, state, label: as in `count`.

    Returns:
        A `Released`; ``value`` is the dictionary.

    Raises:
        ValueError: bad arguments, before anything is charged.
        LedgerError: do not release.
    """
    check_people(relation, max_rows)
    try:
        names = list(bins)
        good = 0 < len(names) == len(set(names)) and all(name == name for name in names)
    except TypeError:
        names, good = [], False
    if not good:
        raise ValueError(
            f"bins must be one or more different values, and none of them NaN, got {_validate.shown(bins)}"
        )
    width, found = noise(scale, sigma), Counter(as_rows("values", values, "biufUSO").tolist())

    def draw() -> dict[Hashable, int]:
        return {name: found[name] + extra for name, extra in zip(names, width.draw(len(names)), strict=True)}

    return released(draw, width.of_bins(max_rows, relation), budget, state, label)
