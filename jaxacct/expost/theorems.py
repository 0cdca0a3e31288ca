"""The theorems of ex-post privacy as operations on results.

Each holds for the definitions that its docstring names; sums are rounded up. Results come back with concrete
float64 epsilons where everything was concrete, and in the program's float type, rounded up, inside a trace.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct._types import PyTree
from jaxacct.expost import all_orders
from jaxacct.expost.conversions import approximate_epsilon
from jaxacct.expost.definitions import (
    ApproximateExPost,
    Definition,
    ExPostResult,
    GDPExPost,
    ProbabilisticExPost,
    PureExPost,
    RenyiExPost,
    ZCDPExPost,
)
from jaxacct.expost.parameters import check_budgets, in_caller_dtype, rounded_up
from jaxacct.mechanisms import GDP, ApproximateDP, PureDP, RenyiDP, ZeroConcentratedDP

_ALL_ORDERS = GDPExPost | ZCDPExPost  # the definitions whose number is rho
_LEAKY = ApproximateExPost | ProbabilisticExPost  # the definitions with a delta


def compose(*results: ExPostResult) -> ExPostResult:
    """Adaptive composition: all outputs, and the sum of the epsilons.

    Each mechanism may have been chosen by looking at all earlier outputs and epsilons, if it satisfied its
    definition for whatever they were. Rényi: Section 4, one order for all. Pure: losses add. Probabilistic and
    approximate: the deltas add too (a union bound; and min(p, e^epsilon q) multiplied over the steps). `ZCDPExPost` and
    `GDPExPost`: rho adds up.

    Args:
        results: one definition for all, up to delta. `convert` first where they differ; a `PureExPost` result
            among Rényi ones counts as Rényi, among those with a rho as `ZCDPExPost` with rho = epsilon (nothing less
            is implied), and as nothing where its epsilon is 0.

    Raises:
        ValueError: no results, or definitions that do not compose.
    """
    if not results:
        raise ValueError("results must hold at least one ExPostResult, got none")
    for result in results:
        _validate.instance(ExPostResult, results=result)
    kind = _common([r for r in results if not _free(r)] or list(results[:1]), "results")
    total = math.fsum(result.delta for result in results)  # rounded once
    definition = kind if isinstance(kind, Definition) else kind(min(inflated(total, 2.0**-50), 1.0))
    return ExPostResult(tuple(r.output for r in results), _sum(*(r.epsilon for r in results)), definition)


def stopped_by(released: ExPostResult, check: ExPostResult) -> ExPostResult:
    """Algorithm 1: releases that a private check on *disjoint* data stopped; epsilon is the larger one, not the sum.

    Neighbours differ in one record, which is in one of the two parts: the other part's likelihood ratios cancel.
    So the parts must be made record by record (by a coin or a hash for each), not by positions that one record
    more would shift. The check's epsilon covers all its answers, whether or not they were all asked. Rényi (Section
    4, Algorithm 1), zCDP, GDP and pure, by the same argument.

    Args:
        released: everything released from the training part, with the epsilon of all of it up to the stop.
        check: the answers of the stopping rule, from the other part; of no definition with a delta.

    Raises:
        ValueError: definitions that the theorem does not cover, or of different orders.
    """
    _validate.instance(ExPostResult, released=released, check=check)
    if isinstance(released.definition, _LEAKY) or isinstance(check.definition, _LEAKY):
        raise ValueError(
            f"released and check must be ex-post Rényi, zCDP, GDP or pure, got {released.definition} and "
            f"{check.definition}"
        )
    kind = _common([r for r in (released, check) if not _free(r)] or [released], "released and check")
    output = (released.output, check.output)
    return ExPostResult(output, _largest(released.epsilon, check.epsilon), kind)


def convert(
    result: ExPostResult,
    to: Definition,
    *,
    tight: bool = True,
    order: float | None = None,
    budgets: ArrayLike | None = None,
) -> ExPostResult:
    """The same output with the epsilon that its definition implies in another one.

    At the same epsilon, pure implies all but `GDPExPost`, Rényi implies Rényi at a smaller order (Jensen's inequality),
    probabilistic implies approximate, and a delta implies every larger one. Rényi implies probabilistic and
    approximate ones with log(1/delta) / (order - 1) more (`approximate_epsilon`, Table 3); for approximate ones
    ``tight`` takes less. `GDPExPost` implies `ZCDPExPost` at the same rho, and that implies `RenyiExPost` at every
    order, with order times rho; what they imply at a delta depends on what was fixed before the run.

    Args:
        result: with its definition.
        to: the definition that is wanted.
        tight: for an `ApproximateExPost`, whether epsilon may be less than for a `ProbabilisticExPost`.
        order: of results with a rho: the Rényi order that was fixed in advance for the conversion. With budgets no
            epsilon is larger than this order's.
        budgets: of results with a rho: the public list that rho may be on, rising; rho in between counts as the next.
            Each budget has its own epsilon, for a share of delta. With neither, a mixture of orders holds for any rho.

    Raises:
        ValueError: a definition that is not implied; an order or budgets for other results.
    """
    _validate.instance(ExPostResult, result=result)
    _validate.instance(
        PureExPost | RenyiExPost | ApproximateExPost | ProbabilisticExPost | ZCDPExPost | GDPExPost, to=to
    )
    have = result.definition
    rho = isinstance(have, _ALL_ORDERS)
    if not (order is None and budgets is None) and not (rho and isinstance(to, _LEAKY)):
        raise ValueError(f"order and budgets must be None from {have} to {to}, got {order!r} and {budgets!r}")
    implied = (
        have == to
        or (isinstance(have, PureExPost) and not isinstance(to, GDPExPost))
        or (isinstance(have, GDPExPost) and isinstance(to, ZCDPExPost))
        or (isinstance(have, RenyiExPost) and isinstance(to, RenyiExPost) and to.order <= have.order)
        or (isinstance(have, _LEAKY) and isinstance(to, ApproximateExPost | type(have)) and have.delta <= to.delta)
    )
    if implied:
        return ExPostResult(result.output, result.epsilon, to)
    if rho and isinstance(to, RenyiExPost):
        return ExPostResult(result.output, _times(result.epsilon, to.order), to)
    if not (isinstance(have, RenyiExPost | GDPExPost | ZCDPExPost) and isinstance(to, _LEAKY) and 0 < to.delta < 1):
        raise ValueError(f"to must be implied by {have}, got {to}")
    best = tight and isinstance(to, ApproximateExPost)
    at = have.order if isinstance(have, RenyiExPost) else order
    at = None if at is None else RenyiExPost(at).order
    if budgets is not None:
        check_budgets(budgets, "budgets")
        if _validate.is_traced(budgets):
            raise ValueError(f"budgets must be fixed in advance, not traced, got {budgets!r:.200}")
        listed = all_orders.listed(budgets)
        gaussian = best and isinstance(have, GDPExPost)
        row = all_orders.table(listed, to.delta, gaussian=gaussian, tight=best, order=at)
        epsilon = all_orders.by_budget(result.epsilon, listed, row)
    elif at is None:
        epsilon = all_orders.by_mixture(result.epsilon, to.delta, best)
    else:
        start = _times(result.epsilon, at) if rho else result.epsilon
        epsilon = approximate_epsilon(start, order=at, delta=to.delta, tight=best)
    return ExPostResult(result.output, in_caller_dtype(epsilon, up=True), to)


def ex_ante(definition: Definition, cap: ArrayLike) -> RenyiDP | PureDP | ApproximateDP | ZeroConcentratedDP | GDP:
    """The ordinary guarantee of a mechanism that can never return an epsilon above ``cap``, on any data set.

    Rényi (Section 4): (order, cap)-Rényi. Pure: cap-DP. Approximate and probabilistic: (cap, delta)-DP. Of a rho:
    cap-zCDP, or sqrt(2 cap)-GDP. Each follows by replacing the returned epsilon with the cap inside the definition
    (GDP: by letting the motion run on). The cap must be a property of the mechanism (the last entry of a public list of
    budgets, a filter's budget), not the epsilon that came back.

    Returns:
        A mechanism of `jaxacct.mechanisms` (`RenyiDP`, `PureDP`, `ApproximateDP`, `ZeroConcentratedDP` or `GDP`), ready
        for `jaxacct.epsilon` and for the filters.

    Raises:
        ValueError: something that is no definition, or a concrete cap that is negative or not finite.
    """
    _validate.instance(Definition, definition=definition)
    _validate.nonnegative(cap=cap)
    if isinstance(definition, RenyiExPost):
        return RenyiDP(definition.order, cap)
    if isinstance(definition, PureExPost):
        return PureDP(cap)
    if isinstance(definition, ZCDPExPost):
        return ZeroConcentratedDP(cap)
    if isinstance(definition, GDPExPost):
        return GDP(_root(cap))
    return ApproximateDP(cap, getattr(definition, "delta", 0.0))


def _free(result: ExPostResult) -> bool:
    """Whether a result costs nothing, and says so: its definition then composes with every other."""
    known = not _validate.is_traced(result.epsilon)
    return isinstance(result.definition, PureExPost) and known and not np.any(np.asarray(result.epsilon))


def _common(results: Sequence[ExPostResult], name: str) -> PyTree:
    """The definition that all results have or imply; of those with a delta its type."""
    definitions = [result.definition for result in results]
    rest = {type(d) if isinstance(d, _LEAKY) else d for d in definitions}
    concentrated = {GDPExPost(), ZCDPExPost()}
    if rest & concentrated and rest <= {*concentrated, PureExPost()} and len(rest) > 1:
        return ZCDPExPost()
    rest = rest - {PureExPost()} or rest
    if len(rest) > 1:
        names = ", ".join(sorted({str(d) for d in definitions}))
        raise ValueError(f"{name} must share one definition and order, got {names}")
    return rest.pop()


@rounded_up
def _times(rho: ArrayLike, order: float) -> Array:
    rho = jnp.asarray(rho, jnp.float64)
    return jnp.where(rho >= 0, inflated(rho * order, EPS), jnp.inf)  # a traced NaN promises nothing


@rounded_up
def _root(cap: ArrayLike) -> Array:
    return inflated(jnp.sqrt(2.0 * jnp.asarray(cap, jnp.float64)), 4.0 * EPS)


@rounded_up
def _sum(*epsilons: ArrayLike) -> Array:
    return functools.reduce(lambda total, term: inflated(total + term, 2.0**-52), _promised(epsilons))


@rounded_up
def _largest(*epsilons: ArrayLike) -> Array:
    return functools.reduce(jnp.maximum, _promised(epsilons))


def _promised(epsilons: Sequence[ArrayLike]) -> list[Array]:
    terms = [jnp.asarray(epsilon, jnp.float64) for epsilon in epsilons]
    return [jnp.where(term >= 0, term, jnp.inf) for term in terms]  # a traced NaN or negative number promises nothing
