"""The Rényi divergence of a pair with finitely many outcomes."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, array_module, logsumexp
from jaxacct._numerics.host import floats, hosted
from jaxacct._numerics.rounding import inflated
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct.mechanisms.pairs.table import Tabulated
from jaxacct.mechanisms.renyi.closed import ROUNDING
from jaxacct.mechanisms.renyi.tails import log_power_excess


def table_divergence(pair: Tabulated, order: ArrayLike) -> Array:
    """log(sum p^a q^(1-a)) / (a - 1), from non-negative terms; inf if a loss may be."""
    shape, xp = np.broadcast_shapes(*settings_shapes((pair, order))), array_module(pair, order)
    return _of_table(*flattened((pair, order), shape, xp)).reshape(shape)


@hosted
def _of_table(pair: Tabulated, order: Array) -> Array:
    xp, order = floats(order)
    a, atoms = order[..., None], pair.atoms()
    finite = xp.isfinite(atoms.losses)
    away = inflated(xp.where(finite, xp.abs(atoms.losses) + atoms.loss_error, 0.0), 2.0**-50)
    # The excess is E_Q[f(P/Q)] with f(x) = x^a - 1 - a (x - 1) >= 0, and f(0) = a - 1.
    value = log_power_excess(xp.where(atoms.losses < 0, -away, away), a)
    value = xp.where(atoms.losses == -np.inf, xp.log(a - 1.0), value)
    has_q = atoms.q > 0
    terms = xp.where(has_q, xp.log(xp.where(has_q, atoms.q, 1.0)) + value, -np.inf)
    margin = (ROUNDING + atoms.error + 2.0**-48 * a * away.max(-1, keepdims=True)).max(-1)
    total = inflated(xp.logaddexp(0.0, logsumexp(terms) + margin) / (order - 1.0), ROUNDING)
    infinite = xp.where(atoms.losses == np.inf, atoms.p, 0.0).sum(-1) > 0
    good = (order > 1) & (order < np.inf) & ~infinite & ~xp.isnan(total + atoms.p.sum(-1) + atoms.q.sum(-1))
    good &= ~xp.isnan(atoms.losses).any(-1)  # what has no size is not finite
    return xp.where(good, total, np.inf)
