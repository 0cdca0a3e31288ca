"""`FromTables`: a mechanism given by the probabilities of its outputs."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.table import TablePair
from jaxacct.mechanisms.parameters import SINGLE_SLACK, SUM_SLACK, are_float32, check_law


@mechanism
class FromTables(Mechanism):
    """Has output o with probability ``p[o]`` on a dataset with the record, ``q[o]`` without it.

    (p, q) must dominate every pair of neighbours, or be the only one. It is the pair of `remove`, (q, p) that of `add`;
    each table is divided by its sum, and where float32 numbers miss the sum 1 by more than 1e-9 the bounds hold for
    every law that rounds to them as well. An output that only one side can give has an infinite loss. `replace` is
    another relation; for tables of two replaced records ``"add_or_remove"`` gives the worse of both directions.

    Attributes:
        p: probabilities, shape ``(..., outputs)``; leading axes are settings.
        q: probabilities of the same outputs, same shape.

    Raises:
        ValueError: concrete tables of different shape, with an entry that is no probability of at least 1e-300 or 0,
            or that do not sum up to 1 within 1e-9 (2^-23 for float32 numbers).
    """

    _rows = True
    p: ArrayLike
    q: ArrayLike

    def __post_init__(self) -> None:
        _validate.tables(p=self.p, q=self.q)
        for name, table in (("p", self.p), ("q", self.q)):
            _validate.rate(**{name: table})
            check_law(name, table, single=True)

    def _dominating(self, relation: str) -> Runs:
        if relation == "replace":
            raise ValueError(
                "relation 'replace' has no analysis for FromTables; for tables of a replaced record, relation "
                "'add_or_remove' gives the worse of both directions"
            )
        first, second = (self.p, self.q) if relation == "remove" else (self.q, self.p)
        return [(_pair(first, second), 1.0)]


def _pair(first: ArrayLike, second: ArrayLike) -> TablePair:
    """Outputs sorted by loss. A loss is off by the roundings of two sums and of two logarithms."""
    xp, p, q = floats(first, second)
    good, rounded = True, False
    for table in (p, q):
        missed = abs(table.sum(-1) - 1.0)
        good = good & ((table >= 0) & (table <= 1)).all(-1)
        good = good & ((missed <= SUM_SLACK) | are_float32(table) & (missed <= SINGLE_SLACK))
        rounded = rounded | (missed > SUM_SLACK)
    p, q = (xp.where(good[..., None], table / table.sum(-1, keepdims=True), np.nan) for table in (p, q))
    # Whatever law was rounded to float32 has masses within half of this, next to those that are divided by their sum.
    single = xp.where(rounded, 2.0 * SINGLE_SLACK, 0.0)
    log = lambda table: xp.log(xp.where(table > 0, table, 1.0))  # noqa: E731
    losses = xp.where(p > 0, xp.where(q > 0, log(p) - log(q), np.inf), -np.inf)
    largest = (xp.abs(log(p)) + xp.abs(log(q))).max(-1)
    order = xp.argsort(losses, axis=-1)
    losses, p, q = (xp.take_along_axis(table, order, axis=-1) for table in (losses, p, q))
    outputs = p.shape[-1]
    slack = UNIT * (2.0 * outputs + 16.0 + 4.0 * largest) + 2.0 * single
    return TablePair(Row(losses), Row(p), Row(q), UNIT * (outputs + 8.0) + single, slack)
