"""Turns a question into one flat batch of dominating pairs, and the answers back into its shape."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, xp
from jaxacct._numerics.host import at_hand
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct._printing import plainly
from jaxacct._types import Float
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions
from jaxacct.mechanisms.pairs.base import Pair


class Bounds(NamedTuple):
    """A rigorous enclosure: ``lower <= truth <= upper``. ``upper`` is the guarantee, ``lower`` says how tight."""

    lower: Float[Array, "*settings"]
    upper: Float[Array, "*settings"]

    def __repr__(self) -> str:
        return plainly(self, self._fields)


class Batch(NamedTuple):
    """Every leaf of every part, the steps and the target, broadcast and flattened.

    The directions of a relation follow one another, so that they share compiled programs.

    Attributes:
        query: pairs, counts and goal, with leaves of shape ``(sides * size,)``.
        sides: number of directions.
        shape: the broadcast shape, of ``size`` elements.
        most: the largest number of steps, or None where it is not known while tracing.
    """

    query: tuple[list[Pair], list[Array], Array]
    sides: int
    shape: tuple[int, ...]
    most: float | None

    @classmethod
    def of(cls, mechanism: Mechanism, target: ArrayLike, steps: ArrayLike, relation: str) -> Batch:
        """The batch of a query, in float64: in NumPy where all numbers are at hand, else in JAX."""
        xp = np if at_hand(mechanism, target, steps) else jnp
        sides = directions(mechanism, relation, steps)
        goal = xp.asarray(target, np.float64)
        shape = np.broadcast_shapes(*settings_shapes((sides, goal)))
        parts = jax.tree.map(lambda *x: xp.concatenate(x), *flattened(sides, shape, xp))
        numbers = [count for parts in sides for _, count in parts]
        known = not _validate.is_traced(numbers)
        most = max(float(np.max(np.asarray(count), initial=1.0)) for count in numbers) if known else None
        pairs, counts = [pair for pair, _ in parts], [count for _, count in parts]
        return cls((pairs, counts, xp.tile(flattened(goal, shape, xp), len(sides))), len(sides), shape, most)

    def worst(self, lower: Array, upper: Array) -> tuple[Array, Array]:
        """Bounds of the worse direction, of the broadcast shape."""
        lower, upper = (x.reshape(self.sides, *self.shape).max(0) for x in (lower, upper))
        return lower, upper

    def void(self) -> Array:
        """Where a number is NaN, so that nothing is known; of the broadcast shape."""
        nan = [xp.isnan(leaf) for leaf in jax.tree.leaves(self.query)]
        rows = [x if x.ndim == 1 else x.any(tuple(range(1, x.ndim))) for x in nan]
        return functools.reduce(operator.or_, rows).reshape(self.sides, *self.shape).any(0)


def with_rare_sampling(
    kind: str, bounds: tuple[Array, Array], target: ArrayLike, rare: tuple[Array, Real], batch: Batch
) -> tuple[Array, Array]:
    """Corrects bounds of mechanisms whose rates are too small for any grid; ``rare`` is from ``rarely_sampled``."""
    (lower, upper), (some, total) = bounds, rare
    if not _validate.is_traced(some) and not np.any(some):
        return lower, upper
    total = xp.where(batch.void(), np.inf, total)
    target = xp.asarray(target, np.float64)
    if kind == "epsilon":
        return xp.where(some, 0.0, lower), xp.where(total <= target, 0.0, upper)
    floor, slack = 0.0 - xp.expm1(xp.minimum(target, 0.0)), 2.0**-50
    most = xp.minimum(inflated(floor + total, slack), 1.0)
    return xp.where(some, deflated(floor, slack), lower), xp.minimum(upper, most)
