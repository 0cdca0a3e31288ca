"""delta and epsilon inside somebody's trace: bounds rounded to the caller's precision, with exact derivatives.

Bounds are not differentiated: the derivatives of their errors mean nothing. Both carry the derivative of the value
that they enclose; epsilon(delta) is implicit, d epsilon = (d delta - d_parameters delta) / (d delta / d epsilon).

All of it runs in float64, also in a float32 program. The derivative's coefficients are computed in full while going
forward and only multiplied with tangents outside, because the transposition of a float64 computation would run
where float64 is off.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct import _validate
from jaxacct._batch import Batch, Bounds, with_rare_sampling
from jaxacct._least import first_least
from jaxacct.losses import engine
from jaxacct.mechanisms._dominating import rarely_sampled, witness

__all__ = ["traced_answer"]


class _Question(NamedTuple):
    """What a compiled program depends on: everything but numbers. Hashable.

    Attributes:
        kind, relation: see the front desk.
        tree: structure of (mechanism, target, steps).
        traced: which leaves are traced.
        target: which leaf is the target.
        known: leaves that are plain numbers, None for the others: one step is seen to be one step.
        wide: whether the caller computes in float64.
        attained: whether it is about the mechanism's witness, whose parameters are float64 then too.
    """

    kind: str
    relation: str
    tree: Any
    traced: tuple[bool, ...]
    target: int
    known: tuple[float | None, ...]
    wide: bool
    attained: bool

    def leaves(self, constants: tuple[Any, ...], traced: tuple[Any, ...]) -> list[Any]:
        """Mechanism parameters, target and steps, in order."""
        arrays, tracers = iter(constants), iter(traced)
        found = []
        for is_traced, number in zip(self.traced, self.known, strict=True):
            value = next(tracers) if is_traced else next(arrays)
            found.append(value if number is None else np.float64(number))
        return found

    def asked(self, leaves: list[Any]) -> tuple[Any, Any, Any]:
        """Mechanism, target and steps."""
        mechanism, target, steps = jax.tree.unflatten(self.tree, leaves)
        return witness(mechanism) if self.attained else mechanism, target, steps


def traced_answer(kind: str, mechanism: Any, target: Any, steps: Any, relation: str, attained: bool = False) -> Bounds:
    """See :func:`jaxacct.delta`; at least one number is traced. ``attained`` asks about the mechanism's witness."""
    leaves, tree = jax.tree.flatten((mechanism, target, steps))
    traced = tuple(_validate.is_traced(leaf) for leaf in leaves)
    known = tuple(
        float(leaf) if not is_traced and np.ndim(leaf) == 0 else None
        for leaf, is_traced in zip(leaves, traced, strict=True)
    )
    wide = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
    question = _Question(kind, relation, tree, traced, len(jax.tree.leaves(mechanism)), known, wide, attained)
    # NumPy keeps float64 where JAX would not.
    constants = tuple(np.asarray(leaf, np.float64) for leaf, free in zip(leaves, traced, strict=True) if not free)

    @jax.custom_jvp
    def answer(*numbers: Any) -> Bounds:
        with jax.enable_x64(True):
            return _bounds(question, constants, numbers)

    @answer.defjvp
    def _(numbers: Any, moved: Any) -> tuple[Bounds, Bounds]:
        with jax.enable_x64(True):
            bounds, slopes = _bounds_and_slopes(question, constants, numbers)
        change = jnp.zeros_like(bounds.upper)
        for slope, tangent in zip(slopes, moved, strict=True):
            if tangent.dtype != jax.dtypes.float0:
                change = change + slope.astype(change.dtype) * tangent.astype(change.dtype)
        return bounds, Bounds(change, change)

    return answer(*(leaf for leaf, free in zip(leaves, traced, strict=True) if free))


def _enclosed(question: _Question, leaves: list[Any]) -> tuple[Any, Any, Array, Array]:
    mechanism, target, steps = question.asked(leaves)
    batch = Batch.of(mechanism, target, steps, question.relation, jnp)
    low, high = engine.bounds(question.kind, *batch.query, batch.most, jnp)
    rare = rarely_sampled(mechanism, steps)
    return batch, high, *with_rare_sampling(question.kind, *batch.worst(low, high), target, rare, jnp)


@functools.partial(jax.jit, static_argnums=0)
def _bounds(question: _Question, constants: tuple[Any, ...], numbers: tuple[Any, ...]) -> Bounds:
    _, _, lower, upper = _enclosed(question, question.leaves(constants, numbers))
    return Bounds(lower, upper) if question.wide else Bounds(*_outwards(lower, upper))


@functools.partial(jax.jit, static_argnums=0)
def _bounds_and_slopes(question: _Question, constants: tuple[Any, ...], numbers: tuple[Any, ...]):
    """Bounds, and the derivative of the value in each traced number, broadcast to the shape of the bounds.

    0 where the answer is exactly 0, NaN where no derivative is known.
    """
    batch, high, lower, upper = _enclosed(question, question.leaves(constants, numbers))
    high = high.reshape(batch.sides, -1)
    at = high.max(0)
    # The derivative is that of the worse direction, at the epsilon in question; 1.0 stands in where there is none.
    if question.kind == "delta":
        at = batch.query[2].reshape(batch.sides, -1)[0]
    inside = jnp.isfinite(at) & ((at > 0) | (question.kind == "delta"))
    at = jnp.where(inside, at, 1.0)
    worst = jnp.arange(batch.sides)[:, None] == jax.vmap(first_least, 1)(-high)

    def total(numbers: tuple[Any, ...], at: Array) -> tuple[Array, Array]:
        mechanism, target, steps = question.asked(question.leaves(constants, numbers))
        inner = Batch.of(mechanism, target, steps, question.relation, jnp)
        pairs, counts, _ = inner.query
        values, trusted = engine.smooth_deltas(pairs, counts, jnp.tile(at, inner.sides), inner.most)
        trusted = jnp.where(worst, trusted.reshape(worst.shape), True).all(0)
        return jnp.where(worst, values.reshape(worst.shape), 0.0).sum(), trusted

    for number in numbers:
        if np.broadcast_shapes(np.shape(number), batch.shape) != batch.shape:
            raise NotImplementedError(
                "derivatives in the entries of a table do not exist; in single parameters they do"
            )
    spread = tuple(jnp.broadcast_to(jnp.asarray(x, jnp.float64), batch.shape) for x in numbers)
    (slopes, per_epsilon), trusted = jax.grad(total, (0, 1), has_aux=True)(spread, at)
    per_epsilon, trusted = per_epsilon.reshape(batch.shape), trusted.reshape(batch.shape)
    inside = inside.reshape(batch.shape)
    places = np.flatnonzero(question.traced)
    found = []
    for place, slope in zip(places, slopes, strict=True):
        if question.kind == "delta":
            value = slope + per_epsilon if place == question.target else slope
        else:
            per = jnp.where(per_epsilon < 0, per_epsilon, jnp.nan)
            value = ((1.0 if place == question.target else 0.0) - slope) / per
        value = jnp.where(inside & trusted & jnp.isfinite(value), value, jnp.nan)
        found.append(jnp.where(upper == 0.0, 0.0, value))
    bounds = Bounds(lower, upper) if question.wide else Bounds(*_outwards(lower, upper))
    return bounds, found


def _outwards(lower: Array, upper: Array) -> tuple[Array, Array]:
    """float64 bounds as float32 ones that still enclose."""
    low, high = lower.astype(jnp.float32), upper.astype(jnp.float32)
    low = jnp.where(low.astype(jnp.float64) > lower, jnp.nextafter(low, jnp.float32(-jnp.inf)), low)
    high = jnp.where(high.astype(jnp.float64) < upper, jnp.nextafter(high, jnp.float32(jnp.inf)), high)
    return low, high
