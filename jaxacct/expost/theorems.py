"""The theorems of ex-post privacy as operations on results.

Each holds for the definitions that its docstring names; sums are rounded up. Results come back with concrete
float64 epsilons where everything was concrete, and in the program's float type, rounded up, inside a trace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import settled
from jaxacct._numerics.rounding import inflated
from jaxacct.expost.conversions import approximate_epsilon
from jaxacct.expost.definitions import (
    ApproximateExPost,
    Definition,
    ExPostResult,
    ProbabilisticExPost,
    PureExPost,
    RenyiExPost,
)
from jaxacct.expost.parameters import in_caller_dtype
from jaxacct.mechanisms import ApproximateDP, PureDP, RenyiDP

_LEAKY = ApproximateExPost | ProbabilisticExPost  # the definitions with a delta


def compose(*results: ExPostResult) -> ExPostResult:
    """Adaptive composition: all outputs, and the sum of the epsilons.

    Each mechanism may have been chosen by looking at all earlier outputs and epsilons, if it satisfied its
    definition for whatever they were. Rényi: Section 4, one order for all. Pure: losses add. Probabilistic and
    approximate: the deltas add too (a union bound; and min(p, e^epsilon q) multiplied over the steps).

    Args:
        results: one definition for all, up to delta. `convert` first where they differ; a `PureExPost` result
            among Rényi ones counts as Rényi.

    Raises:
        ValueError: no results, or definitions that do not compose.
    """
    if not results:
        raise ValueError("results must hold at least one ExPostResult, got none")
    for result in results:
        _validate.instance(ExPostResult, results=result)
    definitions = [result.definition for result in results]
    rest = {type(d) if isinstance(d, _LEAKY) else d for d in definitions}
    rest = rest - {PureExPost()} or rest
    if len(rest) > 1:
        names = ", ".join(sorted({str(d) for d in definitions}))
        raise ValueError(f"results must share one definition and order, got {names}")
    kind = rest.pop()
    total = math.fsum(result.delta for result in results)  # rounded once
    definition = kind if isinstance(kind, Definition) else kind(min(inflated(total, 2.0**-50), 1.0))
    return ExPostResult(tuple(r.output for r in results), _total([r.epsilon for r in results]), definition)


def stopped_by(released: ExPostResult, check: ExPostResult) -> ExPostResult:
    """Algorithm 1: releases that a private check on *disjoint* data stopped; epsilon is the larger one, not the sum.

    Neighbours differ in one record, which is in one of the two parts: the other part's likelihood ratios cancel.
    So the parts must be made record by record (by a coin or a hash for each), not by positions that one record
    more would shift. The check's epsilon covers all its answers, whether or not they were all asked. Rényi (Section
    4, Algorithm 1) and pure, by the same argument.

    Args:
        released: everything released from the training part, with the epsilon of all of it up to the stop.
        check: the answers of the stopping rule, from the other part; Rényi or pure.

    Raises:
        ValueError: definitions that the theorem does not cover, or of different orders.
    """
    _validate.instance(ExPostResult, released=released, check=check)
    definitions = {released.definition, check.definition}
    if any(not isinstance(d, PureExPost | RenyiExPost) for d in definitions):
        raise ValueError("released and check must be ex-post Rényi or pure, got " + " and ".join(map(str, definitions)))
    definitions = definitions - {PureExPost()} or definitions
    if len(definitions) > 1:
        raise ValueError(f"released and check must have one order, got {released.order} and {check.order}")
    output = (released.output, check.output)
    return ExPostResult(output, _total([released.epsilon, check.epsilon], largest=True), definitions.pop())


def convert(result: ExPostResult, to: Definition, *, tight: bool = True) -> ExPostResult:
    """The same output with the epsilon that its definition implies in another one.

    At the same epsilon, pure implies every other, Rényi implies Rényi at a smaller order (Jensen's inequality),
    probabilistic implies approximate, and a delta implies every larger one. Rényi implies probabilistic and
    approximate ones with log(1/delta) / (order - 1) more (`approximate_epsilon`, Table 3); for approximate ones
    ``tight`` takes less.

    Raises:
        ValueError: a definition that is not implied.
    """
    _validate.instance(ExPostResult, result=result)
    _validate.instance(PureExPost | RenyiExPost | ApproximateExPost | ProbabilisticExPost, to=to)
    have = result.definition
    implied = (
        isinstance(have, PureExPost)
        or (isinstance(have, RenyiExPost) and isinstance(to, RenyiExPost) and to.order <= have.order)
        or (isinstance(have, _LEAKY) and isinstance(to, ApproximateExPost | type(have)) and have.delta <= to.delta)
    )
    if implied:
        return ExPostResult(result.output, result.epsilon, to)
    if not (isinstance(have, RenyiExPost) and isinstance(to, _LEAKY) and 0 < to.delta < 1):
        raise ValueError(f"to must be implied by {have}, got {to}")
    best = tight and isinstance(to, ApproximateExPost)
    epsilon = approximate_epsilon(result.epsilon, order=have.order, delta=to.delta, tight=best)
    return ExPostResult(result.output, in_caller_dtype(epsilon, up=True), to)


def ex_ante(definition: Definition, cap: ArrayLike) -> RenyiDP | PureDP | ApproximateDP:
    """The ordinary guarantee of a mechanism that can never return an epsilon above ``cap``, on any data set.

    Rényi (Section 4): (order, cap)-Rényi. Pure: cap-DP. Approximate and probabilistic: (cap, delta)-DP. Each follows
    by replacing the returned epsilon with the cap inside the definition. The cap must be a property of the
    mechanism (the last entry of a public list of budgets, a filter's budget), not the epsilon that came back.

    Returns:
        A mechanism of `jaxacct.mechanisms` (`RenyiDP`, `PureDP` or `ApproximateDP`), ready for
        `jaxacct.epsilon` and for the filters.

    Raises:
        ValueError: something that is no definition, or a concrete cap that is negative or not finite.
    """
    _validate.instance(Definition, definition=definition)
    _validate.nonnegative(cap=cap)
    if isinstance(definition, RenyiExPost):
        return RenyiDP(definition.order, cap)
    if isinstance(definition, PureExPost):
        return PureDP(cap)
    return ApproximateDP(cap, getattr(definition, "delta", 0.0))


def _total(epsilons: Sequence[ArrayLike], *, largest: bool = False) -> Array:
    epsilons = settled(*epsilons)
    with jax.enable_x64(True):
        total = jnp.zeros(())
        for epsilon in epsilons:
            term = jnp.asarray(epsilon, jnp.float64)
            term = jnp.where(term >= 0, term, jnp.inf)  # a traced NaN or negative number promises nothing
            total = jnp.maximum(total, term) if largest else inflated(total + term, 2.0**-52)
    return in_caller_dtype(total, up=True)
