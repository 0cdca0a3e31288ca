"""A query's privacy loss in the few atoms on which a residue is computed: ``prepare``, once per query.

A curve's pair (P, Q) has the masses of its segments; the law of the loss under P and, reversed, under Q are needed.
Atoms between two kept losses are moved to them with their P- and Q-mass (connecting the dots), which dominates. Where
the kept losses are chosen by the mass's cube root, the least error a mean square can have, the error is of second order
in how many there are.

Arrays are pairs of float32 whose sum is the number, rounded up, so that a float32 program carries them unharmed.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct import _validate
from jaxacct._rounding import EPS, deflated, inflated
from jaxacct.adversary.experiment import Experiment, experiments_of, to_trade_off
from jaxacct.filters._gaussian_parts import gaussian_cost, gaussian_parts, is_gaussian
from jaxacct.losses import conversions
from jaxacct.losses.gaussian_order import _dominating
from jaxacct.losses.grid import LossGrid
from jaxacct.losses.pld import PLD
from jaxacct.losses.profile import PrivacyProfile
from jaxacct.losses.tradeoff import TradeOff, arrays
from jaxacct.mechanisms._dominating import RELATIONS
from jaxacct.mechanisms._register import mechanism as _register

__all__ = ["Prepared", "prepare"]

ATOMS = 128
_HALF = 2**14  # points of a mechanism's lattice, either side of 0
_SHARE = 0.6  # of the atoms that follow the mass; the others follow the losses


@_register
class Prepared:
    """A query made ready by `prepare`; pass it through ``jit``, stack it, map over it and index it as any pytree.

    Two directions each: the loss of P against Q, and of Q against P.

    Attributes:
        losses: float32[..., 2, atoms, 2], in two pieces.
        masses: float32[..., 2, atoms, 2].
        infinity: float32[..., 2, 2], the mass at an infinite loss.
        epsilon: float32[..., 2], the largest loss where none is infinite, else inf: what pure DP says of the query.
        mu: float32[..., 2], a mu whose G_mu with an atom at infinity of the larger ``infinity`` dominates it, or inf.
    """

    losses: Any
    masses: Any
    infinity: Any
    epsilon: Any
    mu: Any


def pieces_up(value: Array) -> Array:
    """Two float32 on a new last axis whose sum is ``value`` >= 0 or a loss, rounded up by 2^-46 of it at most."""
    # Denormal float32 may be flushed to 0, so none is made; 4e-38 stands for what is smaller.
    high = jnp.where(jnp.abs(value) < 4e-38, 0.0, value).astype(jnp.float32)
    rest = jnp.where(jnp.isfinite(value), value - high.astype(jnp.float64), 0.0)
    low = rest.astype(jnp.float32)
    low = jnp.where(low.astype(jnp.float64) < rest, jnp.nextafter(low, jnp.float32(jnp.inf)), low)
    low = jnp.where(jnp.abs(rest) < 4e-38, jnp.where(rest > 0, jnp.float32(4e-38), jnp.float32(0.0)), low)
    return jnp.stack([high, low], axis=-1)


def joined(pieces: Array) -> Array:
    """The float64 numbers in ``pieces`` (inside ``enable_x64``)."""
    return jnp.asarray(pieces[..., 0], jnp.float64) + jnp.asarray(pieces[..., 1], jnp.float64)


def prepare(
    query: Any, *, relation: str = "add_or_remove", grid: LossGrid | None = None, atoms: int = ATOMS
) -> Prepared:
    """The query in at most ``atoms`` atoms a direction, dominating it: what `gdp_residue` computes with.

    A filter's ``update`` does this by itself; for a query that is asked again and again, do it once.

    Args:
        query: a mechanism (array parameters make a batch of queries; Gaussians are exact), or an upper `PLD`,
            `PrivacyProfile` or lower `TradeOff`, of one direction: the reversed one follows from it (Lemma 16).
        relation: for mechanisms; ``"remove"`` and ``"add"`` are one another's reversals, so any of them covers both.
        grid: lattice for a mechanism; without it one of 32,768 points that holds all but 1e-16 of the loss, for which
            the mechanism's parameters must be concrete.
        atoms: more are tighter and slower.

    Raises:
        ValueError: a curve that is a bound from the other side, or a relation or grid that does not fit.
    """
    _validate.scalar(atoms=atoms)
    _validate.at_least(8.0, atoms=atoms)
    _validate.at_most(2**20, atoms=atoms)
    _validate.count(atoms=atoms)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.instance(LossGrid | None, grid=grid)
    with jax.enable_x64(True):
        if is_gaussian(query):
            return _of_gaussian(gaussian_cost(gaussian_parts(query)), int(atoms))
        curve = query if isinstance(query, PLD | PrivacyProfile | TradeOff) else _trade_off(query, relation, grid)
        return of_curve(curve, int(atoms))


@functools.partial(jax.jit, static_argnums=1)
def of_curve(query: PLD | PrivacyProfile | TradeOff, atoms: int = ATOMS) -> Prepared:
    """`prepare` for a curve (inside ``enable_x64``)."""
    if query.bound != ("lower" if isinstance(query, TradeOff) else "upper"):
        kind = "a lower trade-off curve" if isinstance(query, TradeOff) else "an upper curve"
        raise ValueError(f"query must be {kind} (a guarantee), got bound {query.bound!r}")
    losses = None
    if isinstance(query, PLD):
        lattice = jnp.asarray(query.grid.losses)
        losses = jnp.concatenate([lattice[:1], lattice, lattice[-1:]])
        query = _of_pld(query)
    curve = TradeOff.from_profile(query) if isinstance(query, PrivacyProfile) else query
    widths, drops = (jnp.asarray(x, jnp.float64) for x in arrays(curve))
    flat = [x.reshape(-1, x.shape[-1]) for x in (widths, drops)]
    made = jax.vmap(lambda p, q: _one(p, q, losses, atoms))(*flat)
    return jax.tree.map(lambda x: x.reshape(*widths.shape[:-1], *x.shape[1:]), made)


def _of_gaussian(square: Array, atoms: int) -> Prepared:
    """No lattice and no atom at infinity: mu says it all, and masses that are none are never computed with."""
    unknown = jnp.full((*square.shape, 2, atoms), jnp.nan)
    mu = inflated(jnp.sqrt(square), 2.0**-51)
    made = (jnp.zeros_like(unknown), unknown, jnp.zeros((*square.shape, 2)), jnp.full_like(square, jnp.inf), mu)
    return Prepared(*(pieces_up(x) for x in made))


def _trade_off(query: Any, relation: str, grid: LossGrid | None) -> TradeOff:
    one = "remove" if relation == "add_or_remove" else relation
    if grid is None:
        if not _validate.is_traced(query) and (exact := _experiments(query, one)) is not None:
            return to_trade_off(exact[0])
        chosen = conversions.grid_for([query], one)
        finer = 2 * _HALF // chosen.size
        grid = LossGrid(chosen.spacing / finer, chosen.lowest * finer, chosen.size * finer)
    return TradeOff.from_profile(PrivacyProfile.from_mechanism(query, "upper", relation=one, grid=grid))


def _of_pld(pld: PLD) -> TradeOff:
    """The pair of an upper law, whose masses are good relative to themselves where its curve is to a unit of 1."""
    law = pld.float64()
    p, infinity, losses = law.masses, law.infinity_mass[..., None], jnp.asarray(pld.grid.losses)
    q = p * jnp.exp(-losses)
    units = (8.0 + 2.0 * losses.size) * EPS
    if jnp.asarray(pld.masses).dtype != jnp.float64:
        # What was rounded to float32: Q may have as much more where P has no loss.
        units += 2.0**-21
    # If the masses sum up to 1 + tau, the curve starts at 1 + tau. The true one starts at 1: below the lowest loss it
    # is under the chord from there, which is steeper by tau over that loss's gamma: mass that only Q has.
    tau = jnp.maximum(jnp.sum(p, -1, keepdims=True) + infinity - 1.0, 0.0) + units
    lowest = jnp.min(jnp.where(p > 0, losses, jnp.inf), -1, keepdims=True)
    total = jnp.sum(q, -1, keepdims=True)
    singular = jnp.maximum(1.0 - total, 0.0) + units * total + tau * jnp.exp(-lowest)
    none = jnp.zeros_like(infinity)
    up = 1.0 + 8.0 * EPS * (1.0 + jnp.abs(losses))
    widths = jnp.concatenate([none, p * up, infinity], -1)
    return TradeOff(widths, jnp.concatenate([jnp.minimum(singular, 1.0), q * up, none], -1), "lower")


def _experiments(query: Any, relation: str) -> list[Experiment] | None:
    """The few outcomes of a finite mechanism of scalar parameters; None for any other."""
    batched = any(np.ndim(leaf) for leaf in jax.tree.leaves(query))
    return None if batched else experiments_of(query, relation)


def _one(p: Array, q: Array, losses: Array | None, atoms: int) -> Prepared:
    """Of one curve; ``losses`` of its segments where they are known exactly."""
    n = p.shape[0]
    both = (p > 0) & (q > 0)
    if losses is not None:
        found, sorts = losses, jnp.asarray(True)
    else:
        # Segments are steepest first, so losses rise, but for rounding; where they do not, there is no curve.
        ratio = jnp.log(jnp.where(both, p, 1.0) / jnp.where(both, q, 1.0))
        found = jax.lax.cummax(jnp.where(both, ratio, -jnp.inf))
        sorts = jnp.all(jnp.where(both, found - ratio, 0.0) <= 8.0 * EPS * (1.0 + jnp.abs(ratio)))
    lowest, highest = (f(jnp.where(both, found, s)) for f, s in ((jnp.min, jnp.inf), (jnp.max, -jnp.inf)))
    widths, drops = p, q
    loss = jnp.where(lowest <= highest, jnp.clip(found, lowest, highest), 0.0)
    reach = jnp.maximum(-loss[0], loss[-1])
    off = 16.0 * EPS * (1.0 + reach)
    # A curve is meant with the excess of its segments on either side of order 1. The sum over all segments, which
    # composition takes, differs from it by the totals' distance from 1: at most a share of TV that scaling makes good.
    distance = deflated(jnp.minimum(jnp.sum(jnp.maximum(p - q, 0.0)), jnp.sum(jnp.maximum(q - p, 0.0))), 1e-9)
    gap = jnp.sum(q) - jnp.sum(p)
    share = (jnp.maximum(jnp.stack([gap, -gap]), 0.0) + 8.0 * n * EPS) / distance
    p, q = inflated(jnp.stack([p, q]), share[:, None] + 8.0 * EPS)
    infinite = inflated(jnp.stack([jnp.sum(jnp.where(both, 0.0, x)) for x in (p, q)]), 2.0 * n * EPS)
    infinite = jnp.where(sorts, infinite, 1.0)
    kept, p, q = _pooled(loss, jnp.where(both, p, 0.0), jnp.where(both, q, 0.0), atoms)
    epsilon = jnp.where(jnp.all(infinite == 0), reach + off, jnp.inf)
    delta = jnp.minimum(jnp.max(infinite), 1.0)
    mu = jnp.where(delta < 1.0, _dominating(widths, drops, delta), jnp.inf)
    both_losses = jnp.stack([kept, jnp.flip(-kept)]) + off
    return Prepared(*(pieces_up(x) for x in (both_losses, jnp.stack([p, jnp.flip(q)]), infinite, epsilon, mu)))


def _pooled(losses: Array, p: Array, q: Array, atoms: int) -> tuple[Array, Array, Array]:
    """At most ``atoms`` of the given losses, which rise, and masses at them that dominate, for both directions."""
    n = losses.shape[0]
    if n <= atoms:
        return losses, p, q
    mass = p + q
    scale = jnp.sum(mass * losses * losses) * 0.005 + 1e-300
    step = jnp.diff(losses)
    middle = 0.5 * (losses[1:] + losses[:-1])
    # Between neighbours: the density's cube root, for the bulk, and equal ratios of losses, for the tails.
    cube = jnp.cbrt(0.5 * (mass[1:] + mass[:-1]) * step * step)
    ratio = step * jax.lax.rsqrt(middle * middle + scale)
    cube, ratio = jax.lax.optimization_barrier((cube, ratio))
    weight = _SHARE * cube / jnp.maximum(cube.sum(), 1e-300) + (1.0 - _SHARE) * ratio / jnp.maximum(ratio.sum(), 1e-300)
    # Sums of integers, so that they rise: a cell's losses are between those kept at its ends.
    whole = 2**40
    total = jnp.pad(jnp.cumsum((weight * whole).astype(jnp.int64)), (1, 0))
    cell = jnp.clip(total * (atoms - 1) // whole, 0, atoms - 2)
    kept = losses[jnp.minimum(jnp.searchsorted(cell, np.arange(atoms)), n - 1)]
    low, high = jax.lax.optimization_barrier((kept[cell], kept[cell + 1]))
    wide = high > low
    over = deflated(jnp.where(wide, -jnp.expm1(low - high), 1.0), 16.0 * EPS)
    # What goes outwards: up for P, and down for Q, whose losses are the negated ones.
    up, down = (jnp.where(wide, jnp.clip(-jnp.expm1(x) / over, 0.0, 1.0), 1.0) for x in (low - losses, losses - high))
    there, back = p * up, q * down
    # The barrier keeps XLA from computing exponentials one by one, where it adds.
    parts = jax.lax.optimization_barrier((p - there, q - back, there, back))
    sums = [jnp.zeros(atoms).at[cell].add(x, indices_are_sorted=True) for x in parts]
    p, q = sums[0] + jnp.roll(sums[2], 1), jnp.roll(sums[1], 1) + sums[3]
    p, q = inflated(p, 3.0 * n * EPS), inflated(q, 3.0 * n * EPS)
    return kept, p, q
