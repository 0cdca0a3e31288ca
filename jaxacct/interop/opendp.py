"""Charges OpenDP's measurements to a filter or a ledger, in one call; OpenDP itself is not imported.

A measurement's ``map(d_in)`` is its privacy loss under its ``output_measure``. `query_of` reads it as what a filter
takes, `charge` asks with it::

    entry = interop.opendp.charge(jaxacct.Ledger("team.db"), measurement, d_in=1)
    if entry:
        release(measurement(data))
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.ledger import Ledger
from jaxacct.mechanisms import ApproximateDP, PureDP, RenyiDP, ZeroConcentratedDP
from jaxacct.mechanisms.base import Mechanism

__all__ = ["charge", "query_of"]

_APPROXIMATE = ("Approximate<MaxDivergence>", "Approximate(MaxDivergence)", "FixedSmoothedMaxDivergence")


def query_of(measurement: Any, d_in: object, order: float | None = None) -> Mechanism | tuple[float, float]:
    """What a filter is asked for before ``measurement`` runs on data whose neighbours are ``d_in`` apart.

    Args:
        measurement: of OpenDP, or anything with its ``map`` and ``output_measure``.
        d_in: the distance of neighbouring data sets, in the measurement's input metric.
        order: of a Rényi filter, at which a curve is read.

    Returns:
        `PureDP` for ``MaxDivergence``, `ApproximateDP` for approximate differential privacy at a fixed delta,
        `ZeroConcentratedDP` for zCDP, and the pair (rho, delta), which `filters.approximate_zcdp` takes, for
        approximate zCDP; `RenyiDP` at ``order`` for a Rényi divergence.

    Raises:
        ValueError: another measure, or a loss that is none.
    """
    _validate.methods("map", measurement=measurement)
    measure = str(getattr(measurement, "output_measure", "")).replace(" ", "")
    loss = measurement.map(d_in)
    if measure.startswith("MaxDivergence"):
        return PureDP(_number(loss))
    if measure.startswith("ZeroConcentratedDivergence"):
        return ZeroConcentratedDP(_number(loss))
    if measure.startswith(_APPROXIMATE):
        epsilon, delta = _pair(loss)
        return ApproximateDP(epsilon, delta)
    if measure.startswith(("Approximate<ZeroConcentrated", "Approximate(ZeroConcentrated")):
        return _pair(loss)
    if measure.startswith("RenyiDivergence"):
        if order is None:
            raise ValueError("order must be given for a loss that is a Rényi curve: a renyi filter has one")
        return RenyiDP(order, _number(loss(order)))
    raise ValueError(
        f"measurement must have a measure that a filter can add up, got {measure:.80}: make_fix_delta turns a curve of "
        "approximate differential privacy into one number"
    )


def charge(budget: Any, measurement: object, d_in: object, *, state: PyTree = None, label: str = "") -> Any:
    """Asks ``budget`` whether ``measurement`` may run, and charges it if so; run it only then.

    Args:
        budget: a `Ledger`, or a filter of `jaxacct.filters`.
        measurement, d_in: as in `query_of`.
        state: of a filter: from its ``init`` or the last call.
        label: of a ledger's entry.

    Returns:
        Of a ledger the `jaxacct.ledger.Entry`, true if the measurement was admitted; of a filter ``(admitted, state)``.

    Raises:
        ValueError: as `query_of`, or a query that the filter does not take.
    """
    filter = budget.filter if isinstance(budget, Ledger) else budget
    query = query_of(measurement, d_in, getattr(filter, "order", None))
    if isinstance(budget, Ledger):
        return budget.request(query, label)
    _validate.methods("init", "update", budget=budget)
    return budget.update(query, budget.init() if state is None else state)


def _number(loss: ArrayLike) -> float:
    _validate.scalar(_validate.nonnegative, loss=loss)
    return float(np.asarray(loss))


def _pair(loss: object) -> tuple[float, float]:
    if not isinstance(loss, tuple) or len(loss) != 2:
        raise ValueError(f"measurement must map to a pair with delta under its measure, got {loss!r:.80}")
    return _number(loss[0]), _number(loss[1])
