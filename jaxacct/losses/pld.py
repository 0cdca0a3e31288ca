"""A privacy loss distribution on a lattice: masses under P, and a mass at infinity."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.losses.discretize import CEILING, step_masses
from jaxacct.losses.fourier import powers
from jaxacct.losses.grid import LossGrid
from jaxacct.mechanisms._dominating import directions

__all__ = ["PLD"]

_SIZE = 2**13
_MOST = 2**24  # points of a composed law: an FFT of a few hundred MiB
_LEAST = 4  # points of a grid that a mechanism is put on


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=["masses", "infinity_mass"], meta_fields=["grid", "bound"]
)
@dataclasses.dataclass(frozen=True, eq=False)
class PLD:
    """Law of the privacy loss log dP/dQ under P, on a fixed grid: a bound from one side on some true law.

    The one to use where the distribution itself is wanted (pictures, suprema, filters). For a number,
    :func:`jaxacct.epsilon` is tighter: it chooses its own lattices and tilts them, while a PLD is what it is,
    and its FFTs cannot see hockey sticks below about 1e-15.

    Attributes:
        masses: probability of each loss of the grid, shape ``(..., grid.size)``, float64; a NumPy array outside a
            trace.
        infinity_mass: probability of an infinite loss, shape ``(...)``.
        grid: the lattice, static.
        bound: ``"upper"`` (every operation rounds so that the result still dominates) or ``"lower"``, static.
    """

    masses: Array
    infinity_mass: Array
    grid: LossGrid
    bound: str = "upper"

    @classmethod
    def from_mechanism(
        cls,
        mechanism: Any,
        bound: str = "upper",
        *,
        relation: str = "remove",
        grid: LossGrid | None = None,
    ) -> PLD:
        """The loss of one run of ``mechanism``, from above or from below.

        Args:
            mechanism: a mechanism with scalar parameters. A ``Composed`` is composed on the grid.
            bound: ``"upper"`` or ``"lower"``.
            relation: ``"remove"``, ``"add"`` or ``"replace"``: one direction at a time (their supremum is looser
                than composing each and taking the worse at the end).
            grid: lattice; without it, one that holds all but about 1e-15 of the loss on 8,192 points, which
                needs concrete parameters.

        Raises:
            ValueError: an unknown bound or relation, or no analysis for the relation.
        """
        _validate.one_of(("upper", "lower"), bound=bound)
        if relation == "add_or_remove":
            raise ValueError("relation must be one direction ('remove', 'add' or 'replace'), got 'add_or_remove'")
        with jax.enable_x64(True):
            (parts,) = directions(mechanism, relation)
            pairs = [pair for pair, _ in parts]
            counts = [np.asarray(count, np.float64) for _, count in parts]
            if grid is None:
                grid = _grid_for(pairs, counts)
            if grid.size < _LEAST:
                raise ValueError(f"grid must have at least {_LEAST} points, got {grid.size}")
            singles = [_single(pair, grid, bound) for pair in pairs]
            made = [single.self_compose(int(count)) for single, count in zip(singles, counts, strict=True)]
            return _concrete(functools.reduce(PLD.compose, made))

    def hockey_stick(self, epsilon: ArrayLike) -> Array:
        """delta(epsilon) of this law: E[(1 - exp(epsilon - L))_+], rounded to the side of ``bound``.

        Args:
            epsilon: any shape; broadcasts after the batch axes of the PLD.

        Returns:
            float64, shape ``batch + epsilon.shape``, in [0, 1].
        """
        _validate.finite(epsilon=epsilon)
        with jax.enable_x64(True):
            return _concrete(_hockey_stick(self, jnp.asarray(epsilon, jnp.float64)))

    def compose(self, other: PLD) -> PLD:
        """The law of the sum of two losses: both mechanisms run. Grids must have one spacing; sizes may differ.

        Raises:
            ValueError: different spacings or bounds.
        """
        if self.grid.spacing != other.grid.spacing:
            raise ValueError(f"spacings must agree, got {self.grid.spacing} and {other.grid.spacing}")
        if self.bound != other.bound:
            raise ValueError(f"bounds must agree, got {self.bound!r} and {other.bound!r}")
        with jax.enable_x64(True):
            return _concrete(_combine(self, other, 1))

    def self_compose(self, steps: int) -> PLD:
        """The law of ``steps`` independent losses added up; ``steps`` is a static whole number >= 1."""
        _validate.count(steps=steps)
        with jax.enable_x64(True):
            return self if steps == 1 else _concrete(_combine(self, None, int(steps)))


def _concrete(tree: Any) -> Any:
    """Arrays as NumPy's outside a trace: float64 survives there whatever precision JAX is set to."""
    return tree if _validate.is_traced(tree) else jax.tree.map(np.asarray, tree)


def _grid_for(pairs: list[Any], counts: list[np.ndarray]) -> LossGrid:
    """8,192 points over the composed loss's mean and ten standard deviations, and one step's reach."""
    if _validate.is_traced(pairs):
        raise ValueError("grid must be given where the mechanism's parameters are traced, got None")
    low = high = variance = 0.0
    for pair, count in zip(pairs, counts, strict=True):
        survey = jax.tree.map(np.asarray, pair.survey())
        weights = np.exp(survey.log_masses)
        seen = weights > 1e-18
        mean = float((weights * survey.losses).sum())
        variance += float(count * (weights * (survey.losses - mean) ** 2).sum())
        low += float(count) * mean
        high = max(high, float(np.max(np.abs(survey.losses[seen] - mean))))
    reach = min(10.0 * variance**0.5 + high, CEILING)
    spacing = 2.0 * reach / (_SIZE - 2)
    return LossGrid(spacing, int(np.floor((low - reach) / spacing)), _SIZE)


def _single(pair: Any, grid: LossGrid, bound: str) -> PLD:
    zero = jnp.zeros(())
    scalars = jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), pair)
    step = _step_masses(scalars, zero, zero, jnp.asarray(grid.spacing), jnp.asarray(float(grid.lowest)), grid.size)
    if bound == "upper":
        return PLD(step.above, jnp.minimum(step.infinite_above + step.lost, 1.0), grid, bound)
    # Mass without a right to be there may sit anywhere; taking as much from the top lowers every hockey stick.
    above = jnp.cumsum(step.below[::-1])[::-1]
    kept = jnp.clip(above - step.spurious, 0.0, step.below)
    return PLD(jnp.where(step.spurious > 0, kept, step.below), step.infinite_below, grid, bound)


_step_masses = functools.partial(
    jax.jit(step_masses, static_argnames=("size", "centre", "near", "lift")), centre=_SIZE // 2, near=2**20, lift=True
)


@jax.jit
def _hockey_stick(pld: PLD, epsilon: Array) -> Array:
    spacing, n = pld.grid.spacing, pld.grid.size
    sign = 1.0 if pld.bound == "upper" else -1.0
    # With A_k the mass above l_k: H(l_k) = (1 - e^-h) A_k + e^-h H(l_k+1), a recurrence of positive terms.
    above = jnp.flip(jnp.cumsum(jnp.flip(pld.masses, -1), -1), -1)
    above = jnp.concatenate([above[..., 1:], jnp.zeros_like(above[..., :1])], -1)
    factor = jnp.full(n, jnp.exp(-spacing))
    terms = -jnp.expm1(-spacing) * above

    def link(later, earlier):
        return earlier[0] * later[0], earlier[0] * later[1] + earlier[1]

    _, flipped = jax.lax.associative_scan(link, (jnp.broadcast_to(factor, terms.shape), jnp.flip(terms, -1)), axis=-1)
    curve = jnp.flip(flipped, -1)
    shift = epsilon / spacing - pld.grid.lowest
    cell = jnp.clip(jnp.floor(shift), -1, n - 1).astype(jnp.int64)
    next_loss = (pld.grid.lowest + cell + 1) * spacing
    part = -jnp.expm1(jnp.minimum(epsilon - next_loss, 0.0))
    total = pld.masses.sum(-1)
    at = lambda array: jnp.take(array, jnp.clip(cell, 0, n - 1), axis=-1)  # noqa: E731
    index = jnp.clip(cell + 1, 0, n - 1)
    mass = jnp.where(cell < 0, total[(...,) + (None,) * epsilon.ndim], at(above))
    beyond = jnp.take(curve, index, axis=-1)
    value = jnp.where(cell >= n - 1, 0.0, mass * part + (1.0 - part) * beyond)
    value = value + pld.infinity_mass[(...,) + (None,) * epsilon.ndim]
    # n positive terms, each good to a few units, and the loss itself to a unit of its size.
    error = 2.0**-52 * (4.0 * n + 16.0) * value + 2.0**-51 * jnp.abs(epsilon) * (mass + value)
    floor = -jnp.expm1(jnp.minimum(epsilon, 0.0)) * (1.0 if sign > 0 else 1.0 - 2.0**-50)
    bounded = jnp.clip(value + sign * error, floor, 1.0)
    return jnp.where(jnp.isnan(bounded), 1.0 if sign > 0 else floor, bounded)


@functools.partial(jax.jit, static_argnums=2)
def _combine(pld: PLD, other: PLD | None, steps: int) -> PLD:
    """pld^steps * other: FFT, with its rounding error on every entry, on a grid that holds every sum."""
    grid = pld.grid
    upper = pld.bound == "upper"
    if steps * grid.size > _MOST:
        raise ValueError(
            f"steps must keep the composed law below {_MOST} points, got {steps} steps of {grid.size} points; "
            "jaxacct.delta and jaxacct.epsilon compose any number of steps"
        )
    spread = steps * (grid.size - 1) + (other.grid.size - 1 if other is not None else 0)
    lowest = steps * grid.lowest + (other.grid.lowest if other is not None else 0)
    size = 1 << spread.bit_length()
    fit = lambda x: jnp.concatenate([x, jnp.zeros((*x.shape[:-1], size - x.shape[-1]))], -1)  # noqa: E731
    point = jnp.zeros(1).at[0].set(1.0)
    first = fit(pld.masses)
    rest = fit(other.masses if other is not None else point)
    batch = jnp.broadcast_shapes(first.shape[:-1], rest.shape[:-1])
    first = jnp.broadcast_to(first, (*batch, size)).reshape(-1, size)
    rest = jnp.broadcast_to(rest, (*batch, size)).reshape(-1, size)
    zero, count = jnp.zeros(1), jnp.full(1, float(steps))
    _, _, sums, error = jax.vmap(lambda d, r: powers(d[None], r, zero, count))(first, rest)
    sums, error = sums.reshape(*batch, size), error.reshape(*batch, 1)
    # In logarithms: masses of 1e-30 are lost in 1 - (1 - a)(1 - b).
    finite = steps * jnp.log1p(-pld.infinity_mass) + (jnp.log1p(-other.infinity_mass) if other is not None else 0.0)
    infinite = jnp.clip(-jnp.expm1(finite) * (1.0 + (1e-12 if upper else -1e-12)), 0.0, 1.0)
    used = jnp.arange(size) <= spread
    # An entry that is exactly 0 (beyond the longest sum) stays 0; every other one takes its rounding error.
    masses = jnp.where(used, jnp.maximum(jnp.maximum(sums, 0.0) + (error if upper else -error), 0.0), 0.0)
    return PLD(masses, infinite, LossGrid(grid.spacing, lowest, size), pld.bound)
