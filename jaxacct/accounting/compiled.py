"""Bounds and their derivatives as compiled code, for accelerators and exported programs; see `accounting.on_host`."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, stopped
from jaxacct._numerics.least import first_least
from jaxacct._numerics.manual_axes import alike
from jaxacct._numerics.pytree import unchecked
from jaxacct._types import PyTree
from jaxacct.accounting.at_once import askable, known_at_once
from jaxacct.accounting.batch import Batch, with_rare_sampling
from jaxacct.accounting.on_host import DIGITS, implicit
from jaxacct.accounting.question import Question
from jaxacct.losses.engines import choose as engine
from jaxacct.losses.engines.derivatives import SIZES, Place, placed, value
from jaxacct.losses.engines.inversion.inversion_bounds import has_lines
from jaxacct.losses.engines.one_run import single_value
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.composed import Composed
from jaxacct.mechanisms.directions import rarely_sampled
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.random_allocation import RandomAllocation

_SIZE = SIZES[2]


def compiled_answer(
    question: Question, constants: tuple[Array, ...], numbers: Sequence[Array], wanted: tuple[bool, ...] = ()
) -> list[Array]:
    """``[lower, upper, *slopes]`` in float64, in one size of each engine; see `accounting.on_host.host_answer`."""
    mechanism, given, runs = question.asked(constants, numbers)
    target, steps = askable(question.kind, given, runs)
    mechanism = _without_tables(mechanism, not question.attained and not any(wanted))
    batch = Batch.of(mechanism, target, steps, question.relation)
    low, high = engine.bounds(question.kind, *batch.query, batch.most, smooth=any(wanted))
    rare = rarely_sampled(mechanism, steps)
    lower, upper = with_rare_sampling(question.kind, batch.worst(low, high), target, rare, batch)
    if question.kind == "epsilon":  # a subnormal delta is read as 0
        target = jnp.asarray(target)
        lower = jnp.where(target < jnp.finfo(jnp.result_type(target, jnp.float32)).tiny, 0.0, lower)
    lower, upper = known_at_once(question.kind, lower, upper, given, runs, batch)
    if not any(wanted):
        return [lower, upper]
    return [lower, upper, *_compiled_slopes(question, constants, numbers, wanted, batch, high, upper)]


def _without_tables(mechanism: Mechanism, above: bool) -> Mechanism:
    """``mechanism`` with runs whose batches are known for every `RandomAllocation` of traced numbers, which dominate.

    An epoch's law is a table that no program makes. Of what is not asked from ``above`` nothing is said.
    """

    def is_allocation(part: object) -> bool:
        return isinstance(part, RandomAllocation)

    def known(part: PyTree) -> PyTree:
        if not (is_allocation(part) and _validate.is_traced(part)):
            return part
        warnings.warn(
            "upper bounds of RandomAllocation in this program are those of known batches, and lower bounds are 0: a "
            "compiled program makes no tables of a noise, batches or participations that are traced; pass them as "
            "numbers that are known while tracing, or ask outside the program",
            RuntimeWarning,
            stacklevel=2,
        )
        plain = not _validate.is_traced((part.batches, part.participations)) and np.all(part.participations == 1)
        return (
            part.mechanism if plain else unchecked(Composed, mechanisms=(part.mechanism,), steps=(part._numbers()[1],))
        )

    found = jax.tree.map(known, mechanism, is_leaf=is_allocation)
    return found if above else mechanism


def _compiled_slopes(
    question: Question,
    constants: tuple[Array, ...],
    numbers: Sequence[Array],
    wanted: tuple[bool, ...],
    batch: Batch,
    high: Array,
    upper: Array,
) -> list[Array]:
    shape = batch.shape
    high = high.reshape(batch.sides, -1)
    at = high.max(0) if question.kind == "epsilon" else batch.query[2].reshape(high.shape)[0]
    inside = jnp.isfinite(at) & ((at > 0) | (question.kind == "delta"))
    at = jnp.tile(jnp.where(inside, at, 1.0), batch.sides)
    worst = (jnp.arange(batch.sides)[:, None] == first_least(-high.T)).ravel()

    def parts(*numbers: Array) -> tuple[list[Pair], list[Array]]:
        return alike(Batch.of(*question.asked(constants, numbers), question.relation).query[:2], numbers)

    # In `shard_map`, what is the same on all devices has a derivative on each of them here.
    spread, at = alike(([jnp.broadcast_to(jnp.asarray(x, jnp.float64), shape) for x in numbers], at), numbers)
    (pairs, counts), pull = jax.vjp(parts, *spread)
    if batch.most == 1.0 and len(pairs) == 1:
        (pair,) = pairs
        per_epsilon, in_pair = jax.grad(lambda at, pair: single_value(pair, at).sum(), (0, 1))(at, pair)
        in_parts = [in_pair], [jnp.zeros_like(count) for count in counts]
    else:
        per_epsilon, in_parts = _compiled_by_transforms(pairs, counts, at)
    known = jnp.stack([jnp.isfinite(x) for x in jax.tree.leaves(in_parts)]).all(0) & jnp.isfinite(per_epsilon)
    taken = lambda x: jnp.where(worst & known, x, 0.0)  # noqa: E731
    slopes = pull(jax.tree.map(taken, in_parts))
    total = lambda x: jnp.where(worst, x, 0.0).reshape(batch.sides, -1).sum(0).reshape(shape)  # noqa: E731
    per_epsilon, known = total(taken(per_epsilon)), (total(~known) == 0) & inside.reshape(shape)
    found = []
    for leaf, slope, is_wanted in zip(np.flatnonzero(question.traced), slopes, wanted, strict=True):
        if is_wanted:
            value = implicit(question.kind, slope, per_epsilon, leaf == question.target)
            value = jnp.where(known & jnp.isfinite(value), value, jnp.nan)
            found.append(jnp.where(upper == 0.0, 0.0, value))
    return found


def _compiled_by_transforms(pairs: list[Pair], counts: list[Array], at: Array) -> tuple[Array, PyTree]:
    """The derivatives of delta in epsilon, and in all numbers of the parts; NaN where two windows differ."""
    parts = pairs, counts
    groups, many = engine.grouped(*parts)
    if not has_lines(groups):
        return jnp.full_like(at, jnp.nan), jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), parts)
    place = placed(_SIZE, groups, many, at)
    contour = Place(place.size, *stopped((place.plan, place.spacing)))

    def curve(parts: tuple[list[Pair], list[Array]]) -> tuple[Array, Array]:
        found = value(contour, *engine.grouped(*parts))
        return found.delta, found.slope

    _, pull, slope = jax.vjp(curve, parts, has_aux=True)
    (both,) = jax.vmap(pull)(alike(jnp.broadcast_to(jnp.eye(2)[..., None], (2, 2, at.size)), at))
    fine, rough = (jax.tree.map(lambda x: x[window], both) for window in (0, 1))  # noqa: B023
    trusted = lambda a, b: jnp.where(jnp.abs(a - b) <= DIGITS * jnp.abs(a), a, jnp.nan)  # noqa: E731
    return trusted(*slope), jax.tree.map(trusted, fine, rough)
