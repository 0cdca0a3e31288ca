"""The front desk: delta and epsilon of a mechanism, as certified bounds, over arrays of anything.

This room checks arguments, turns a mechanism and a relation into dominating pairs, lays everything out as one flat
batch, and hands it to :mod:`jaxacct.losses.engine`.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.losses import engine
from jaxacct.mechanisms._dominating import directions, rarely_sampled, witness
from jaxacct.mechanisms._row import flattened, settings_shapes

__all__ = ["Bounds", "delta", "epsilon"]


class Bounds(NamedTuple):
    """A rigorous enclosure: ``lower <= truth <= upper``. ``upper`` is the guarantee, ``lower`` says how tight."""

    lower: Any
    upper: Any


_WIDE = 1.1  # upper over lower


def delta(mechanism: Any, epsilon: ArrayLike, *, steps: ArrayLike = 1, relation: str = "add_or_remove") -> Bounds:
    """Smallest delta for which ``steps`` runs of ``mechanism`` are (epsilon, delta)-DP, enclosed.

    Args:
        mechanism: see :mod:`jaxacct.mechanisms`; parameters of any shape.
        epsilon: any real number, any shape.
        steps: whole number >= 1 of runs, fixed in advance, any shape. All shapes broadcast.
        relation: ``"add_or_remove"`` (the worse of the two directions, composed first), ``"add"``,
            ``"remove"`` or ``"replace"``.

    Returns:
        ``Bounds(lower, upper)`` of the broadcast shape: float64 NumPy arrays or scalars; inside a ``jit``, JAX
        arrays of the surrounding program's precision, rounded outwards.

    Raises:
        ValueError: a bad concrete value (named), or a relation that the mechanism has no analysis for. Bad
            traced values give ``upper`` 1.
    """
    _validate.finite(epsilon=epsilon)
    return _answer("delta", mechanism, epsilon, steps, relation)


def epsilon(mechanism: Any, delta: ArrayLike, *, steps: ArrayLike = 1, relation: str = "add_or_remove") -> Bounds:
    """Smallest epsilon >= 0 for which ``steps`` runs of ``mechanism`` are (epsilon, delta)-DP, enclosed.

    Args:
        mechanism: see :mod:`jaxacct.mechanisms`; parameters of any shape.
        delta: strictly between 0 and 1, any shape.
        steps: whole number >= 1 of runs, fixed in advance, any shape. All shapes broadcast.
        relation: see :func:`delta`.

    Returns:
        ``Bounds(lower, upper)``, see :func:`delta`; ``upper`` is inf where no finite epsilon is certified.

    Raises:
        ValueError: a bad concrete value (named), or a relation that the mechanism has no analysis for. Bad
            traced values give ``upper`` inf.
    """
    _validate.probability(delta=delta)
    return _answer("epsilon", mechanism, delta, steps, relation)


def _answer(kind: str, mechanism: Any, target: ArrayLike, steps: ArrayLike, relation: str) -> Bounds:
    _validate.count(steps=steps)
    attained = witness(mechanism)
    if attained is mechanism:
        return _enclosure(kind, mechanism, target, steps, relation)
    # The mechanism's own pair is more than its worst case; the witness is a case, so its lower bound is one.
    upper = _enclosure(kind, mechanism, target, steps, relation, warn=False).upper
    lower = _enclosure(kind, attained, target, steps, relation).lower
    return Bounds((jnp if _validate.is_traced((lower, upper)) else np).minimum(lower, upper), upper)


def _enclosure(
    kind: str, mechanism: Any, target: ArrayLike, steps: ArrayLike, relation: str, warn: bool = True
) -> Bounds:
    traced = _validate.is_traced((mechanism, target, steps))
    wide = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
    with jax.enable_x64(True):
        xp = jnp if traced else np
        sides = directions(mechanism, relation, steps)
        goal = xp.asarray(target, np.float64)
        # Every leaf of every part, the steps and the target broadcast to one flat batch; the directions follow
        # one another in it, so that they share compiled programs.
        shape = np.broadcast_shapes(*settings_shapes((sides, goal)))
        batch = jax.tree.map(lambda *x: xp.concatenate(x), *flattened(sides, shape, xp))
        pairs, counts = [pair for pair, _ in batch], [count for _, count in batch]
        # The largest number of steps, where it is known while tracing.
        numbers = [count for parts in sides for _, count in parts]
        most = None if _validate.is_traced(numbers) else max(float(np.max(np.asarray(count))) for count in numbers)
        lower, upper = engine.bounds(kind, pairs, counts, xp.tile(flattened(goal, shape, xp), len(sides)), most, xp)
        lower, upper = (x.reshape(len(sides), *shape).max(0) for x in (lower, upper))
        lower, upper = _with_rare_sampling(kind, lower, upper, goal, mechanism, steps, xp)
        if not traced:
            if warn:
                _warn_if_wide(kind, np.asarray(lower), np.asarray(upper))
            return Bounds(np.asarray(lower)[()], np.asarray(upper)[()])
        if wide:
            return Bounds(lower, upper)
        return Bounds(*_outwards(lower, upper))


def _warn_if_wide(kind: str, lower: np.ndarray, upper: np.ndarray) -> None:
    """Says so where a bound is too wide to be of use, unless it is next to nothing anyway."""
    wide = (upper > _WIDE * lower) & (upper > (1e-6 if kind == "epsilon" else 1e-50))
    if wide.any():
        first = int(np.argmax(wide))
        warnings.warn(
            f"{int(wide.sum())} of {wide.size} bounds of {kind} are wide (the first: {lower.flat[first]:.3g} to "
            f"{upper.flat[first]:.3g}); they are sound. Larger sigma or rate, fewer steps or larger delta narrow them.",
            RuntimeWarning,
            stacklevel=5,
        )


def _with_rare_sampling(kind: str, lower: Any, upper: Any, target: Any, mechanism: Any, steps: Any, xp: Any):
    """Corrects bounds of mechanisms whose rates are too small for a lattice; see ``rarely_sampled``."""
    rare, total = rarely_sampled(mechanism, steps)
    if kind == "epsilon":
        return xp.where(rare, 0.0, lower), xp.where(total <= target, 0.0, upper)
    floor = -xp.expm1(xp.minimum(target, 0.0))
    return xp.where(rare, floor * (1.0 - 2.0**-50), lower), xp.minimum(upper, floor + total)


def _outwards(lower: jax.Array, upper: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float64 bounds as float32 ones that still enclose."""
    low, high = lower.astype(jnp.float32), upper.astype(jnp.float32)
    low = jnp.where(low.astype(jnp.float64) > lower, jnp.nextafter(low, jnp.float32(-jnp.inf)), low)
    high = jnp.where(high.astype(jnp.float64) < upper, jnp.nextafter(high, jnp.float32(jnp.inf)), high)
    return low, high
