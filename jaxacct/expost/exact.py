"""Exact checks of every definition for mechanisms with finitely many outcomes, given as tables.

An outcome is a pair (output, epsilon); ``p`` and ``q`` are its probabilities on two neighbouring data sets, and
``epsilons`` the epsilon that comes with it. All functions take any leading batch axes, broadcast, jit and vmap. They
return `Bounds(lower, upper)`: the number itself, enclosed with its rounding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float64 import in_float64, settled
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.accounting.batch import Bounds
from jaxacct.expost.definitions import (
    ApproximateExPost,
    Definition,
    ProbabilisticExPost,
    PureExPost,
    RenyiExPost,
    ZCDPExPost,
)
from jaxacct.expost.parameters import in_caller_dtype

__all__ = ["excess", "excess_of_pair", "post_processed_table"]

_SLOPES = 2.0 ** np.linspace(-6.0, 10.0, 257)
"""Orders less 1 between which those of `ZCDPExPost` are enclosed; the cells are 4.4 % wide."""

Rule = Callable[[Array, Array, Array, Array], tuple[Array, Array]]


def excess_of_pair(definition: Definition, p: ArrayLike, q: ArrayLike, epsilons: ArrayLike) -> Bounds:
    """How far P against Q exceeds what ``definition`` allows: at most 0 where it holds for this ordered pair.

    * `PureExPost`: the largest log(p / q) - epsilon where p > 0.
    * `ProbabilisticExPost`: P(p > e^epsilon q) - delta.
    * `ApproximateExPost`: the sum of (p - e^epsilon q)_+, minus delta; no set S has more.
    * `RenyiExPost`: log E_P[e^((1 - order) epsilon) (p / q)^(order - 1)], which is also the excess growth of Bayes
      factors (Appendix B, equation 22).
    * `ZCDPExPost`: the largest of 1 / (a - 1) times that at orders a > 1 and epsilons a rho.
    * `GDPExPost` is of all stopping rules at once; no finite test is known here.

    Args:
        definition: with its delta or order.
        p, q: shape (..., outcomes), probabilities.
        epsilons: shape (..., outcomes), >= 0; infinity is allowed and covers everything.

    Returns:
        `Bounds` of shape (...), float64 (inside a trace the program's float type, rounded outwards). It holds for
        certain where ``upper <= 0``, and fails for certain where ``lower > 0``; in a case of equality rounding
        decides neither. A table with NaN or negative entries has upper bound infinity.

    Raises:
        ValueError: concrete tables that are not probabilities (sums are checked to 1e-9), or of bad shapes.
    """
    _validate.numbers(p=p, q=q, epsilons=epsilons)
    if len({np.shape(x)[-1:] for x in (p, q, epsilons)}) > 1 or not np.ndim(p):
        shapes = f"{np.shape(p)}, {np.shape(q)} and {np.shape(epsilons)}"
        raise ValueError(f"p, q and epsilons must have the same outcomes on the last axis, got shapes {shapes}")
    _check_values(epsilons, p=p, q=q)
    rule = next((rule for kind, rule in _RULES.items() if isinstance(definition, kind)), None)
    if rule is not None:
        parameter = float(getattr(definition, "order", getattr(definition, "delta", 0.0)))
        lower, upper = _enclosed(rule, p, q, epsilons, parameter)
    elif isinstance(definition, ZCDPExPost):
        lower, upper = _concentrated(p, q, epsilons)
    else:
        raise ValueError(f"definition must be one of jaxacct.expost's that a table decides, got {definition!r}")
    return Bounds(in_caller_dtype(lower, up=False), in_caller_dtype(upper, up=True))


def excess(definition: Definition, tables: ArrayLike, epsilons: ArrayLike) -> Bounds:
    """The largest `excess_of_pair` over all ordered pairs of data sets, every two of which are neighbours.

    Args:
        definition: with its delta or order.
        tables: shape (..., datasets, outcomes).
        epsilons: shape (..., outcomes).

    Returns:
        `Bounds` of shape (...). Arguments are judged as by `excess_of_pair`.

    Raises:
        ValueError: fewer than two data sets, or as `excess_of_pair`.
    """
    _validate.numbers(tables=tables, epsilons=epsilons)
    if not np.ndim(epsilons):
        raise ValueError("epsilons must have shape (..., outcomes), got ()")
    count = np.shape(tables)[-2] if np.ndim(tables) >= 2 else 0
    if count < 2:
        raise ValueError(f"tables must have shape (..., datasets >= 2, outcomes), got {np.shape(tables)}")
    first, second = np.nonzero(~np.eye(count, dtype=bool))
    laws, budgets = (x if _validate.is_traced(x) else np.asarray(x, np.float64) for x in settled(tables, epsilons))
    found = excess_of_pair(definition, laws[..., first, :], laws[..., second, :], budgets[..., None, :])
    return Bounds(*(side.max(-1) for side in found))


def post_processed_table(table: ArrayLike, epsilons: ArrayLike, kernel: ArrayLike) -> tuple[Array, Array]:
    """The table of f(mechanism) with epsilon kept: outcomes merge only where their epsilons are equal.

    Args:
        table: shape (..., outcomes), probabilities.
        epsilons: shape (outcomes,).
        kernel: shape (outcomes, outputs): the law of f(output, epsilon) for each outcome.

    Returns:
        ``(table, epsilons)`` of shapes (..., outcomes * outputs) and (outcomes * outputs,), float64. Entry
        (i, o) is output o with epsilon i, where of equal epsilons the first one holds all probability.

    Raises:
        ValueError: concrete tables that are not probabilities, or shapes that do not fit.
    """
    _validate.numbers(table=table, epsilons=epsilons, kernel=kernel)
    outcomes = {np.shape(table)[-1:], np.shape(epsilons), np.shape(kernel)[:1]}
    if len(outcomes) > 1 or (0,) in outcomes or np.ndim(kernel) != 2:
        shapes = f"{np.shape(table)}, {np.shape(epsilons)} and {np.shape(kernel)}"
        raise ValueError(f"table, epsilons and kernel must have the same outcomes, got shapes {shapes}")
    _check_values(epsilons, table=table, kernel=kernel)
    return _merged(table, epsilons, kernel)


@in_float64
@jax.jit
def _merged(table: ArrayLike, epsilons: ArrayLike, kernel: ArrayLike) -> tuple[Array, Array]:
    table, epsilons, kernel = (jnp.asarray(v, jnp.float64) for v in (table, epsilons, kernel))
    same = epsilons[:, None] == epsilons[None]
    leader = jax.lax.argmax(same, 0, jnp.int32)  # the first outcome with this outcome's epsilon
    gather = jax.nn.one_hot(leader, epsilons.shape[0], axis=0, dtype=jnp.float64)
    merged = jnp.einsum("ri,...i,io->...ro", gather, table, kernel)
    outputs = kernel.shape[-1]
    return merged.reshape(*table.shape[:-1], -1), jnp.repeat(epsilons, outputs)


def _check_values(epsilons: ArrayLike, **tables: ArrayLike) -> None:
    for name, table in tables.items():
        _validate.rate(**{name: table})
        if not _validate.is_traced(table) and np.any(np.abs(np.asarray(table).sum(-1) - 1) > 1e-9):
            raise ValueError(f"{name} must sum to 1 over outcomes, got {np.asarray(table).sum(-1)}")
    _validate.epsilon(epsilons=epsilons)


# A rule takes probabilities p, `over` = log(p / q) - epsilon (minus infinity where nothing can exceed), half the width
# of its enclosure, and the definition's parameter.


def _pure(p: Array, over: Array, room: Array, _: Array) -> tuple[Array, Array]:
    return (over - room).max(-1), (over + room).max(-1)


def _probabilistic(p: Array, over: Array, room: Array, delta: Array) -> tuple[Array, Array]:
    rounding = (p.shape[-1] + 1) * EPS
    surely, maybe = ((p * (over + sign * room > 0)).sum(-1) for sign in (-1, 1))
    return deflated(surely, rounding) - delta, inflated(maybe, rounding) - delta


def _approximate(p: Array, over: Array, room: Array, delta: Array) -> tuple[Array, Array]:
    rounding = (p.shape[-1] + 8) * EPS
    # p - e^epsilon q = p (1 - e^-over): nearly equal terms do not cancel.
    low, high = ((p * -jnp.expm1(-jnp.maximum(over + sign * room, 0.0))).sum(-1) for sign in (-1, 1))
    return deflated(low, rounding) - delta, inflated(high, rounding) - delta


def _renyi(p: Array, over: Array, room: Array, order: Array) -> tuple[Array, Array]:
    low, high = (jax.nn.logsumexp((order - 1) * (over + sign * room), b=p, axis=-1) for sign in (-1, 1))
    # Relative errors: of the sum, of the exponentials, and of the products they are taken of.
    largest = jnp.max((order - 1) * jnp.where(jnp.isfinite(over), jnp.abs(over), 0.0), axis=-1)
    rounding = (p.shape[-1] + 16 + 4 * largest) * EPS
    return low - rounding, high + rounding


_RULES: dict[type[Definition], Rule] = {
    PureExPost: _pure,
    ProbabilisticExPost: _probabilistic,
    ApproximateExPost: _approximate,
    RenyiExPost: _renyi,
}


@in_float64
@jax.jit
def _concentrated(p: ArrayLike, q: ArrayLike, rho: ArrayLike) -> tuple[Array, Array]:
    """Between slopes s < t, (1/r) log E_P[e^(r (l - (1 + r) rho))] is at most (1/t) log E_P[e^(t (l - (1 + s) rho))].

    For (1/r) log E[e^(r x)] rises with r, and the exponent falls where (1 + r) does.
    """
    p, q, rho = (jnp.asarray(x, jnp.float64)[..., None, :] for x in (p, q, rho))
    slopes = jnp.asarray(_SLOPES)[:, None]
    before = jnp.concatenate([jnp.zeros((1, 1)), slopes[:-1]])
    at, _ = _enclosed(_renyi, p, q, (1.0 + slopes) * rho, 1.0 + slopes)
    _, over = _enclosed(_renyi, p, q, (1.0 + before) * rho, 1.0 + slopes)
    # Towards order 1 the mean, and beyond the last slope the largest loss that is left.
    _, last = _enclosed(_pure, p, q, (1.0 + slopes[-1:]) * rho, jnp.zeros(()))
    scale = jnp.asarray(_SLOPES)
    return (at / scale).max(-1), jnp.maximum((over / scale).max(-1), last.max(-1))


@in_float64
@functools.partial(jax.jit, static_argnums=0)
def _enclosed(rule: Rule, p: ArrayLike, q: ArrayLike, epsilons: ArrayLike, parameter: ArrayLike) -> tuple[Array, Array]:
    p, q, epsilons, parameter = (jnp.asarray(v, jnp.float64) for v in (p, q, epsilons, parameter))
    p, q, epsilons = jnp.broadcast_arrays(p, q, epsilons)
    sane = ((p >= 0) & (p <= 1) & (q >= 0) & (q <= 1) & (epsilons >= 0)).all(-1)
    log_p, log_q = (jnp.log(jnp.where(x > 0, x, 1.0)) for x in (p, q))
    covered = (p <= 0) | (epsilons == jnp.inf)
    finite = jnp.where(covered, 0.0, epsilons)
    over = jnp.where(covered, -jnp.inf, jnp.where(q > 0, log_p - log_q - finite, jnp.inf))
    # Equal probabilities have a loss of exactly 0, whatever their logarithms were rounded to.
    room = jnp.where(p == q, 0.0, 4 * EPS * (jnp.abs(log_p) + jnp.abs(log_q) + finite))
    lower, upper = rule(p, over, room, parameter)
    return jnp.where(sane, lower, -jnp.inf), jnp.where(sane & ~jnp.isnan(upper), upper, jnp.inf)
