"""`prepare`: a query's privacy loss in a few atoms, from which residues are computed quickly.

A curve's pair (P, Q) has the masses of its segments; the law of the loss under P and, reversed, under Q are needed.
Atoms between two kept losses are moved to them with their P- and Q-mass (connecting the dots), which dominates. Where
the kept losses are chosen by the mass's cube root, the least error a mean square can have, the error is of second order
in how many there are.

Arrays are pairs of float32 whose sum is the number, rounded up, so that a float32 program carries them unharmed.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module, histogram, running_greatest
from jaxacct._numerics.host import barrier, each, floats, hosted, on_device, on_host
from jaxacct._numerics.pieces import join, split_up
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.filters.additive.costs import gaussian_cost, is_gaussian, is_pure, pure_cost
from jaxacct.filters.given_laws import completed
from jaxacct.games.experiment import Experiment, Query, experiments_of, to_trade_off
from jaxacct.losses.compare.gaussian_order import dominating_mu
from jaxacct.losses.curves import conversions
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff, arrays
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import shapes_of_settings
from jaxacct.mechanisms.directions import RELATIONS, first_side

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
        epsilon: float32[..., 2], the largest loss, or inf if it is unknown: what pure DP says of the query. It may be
            finite beside an ``infinity`` that a lattice's rounding made.
        mu: float32[..., 2], a mu whose G_mu with an atom at infinity of the larger ``infinity`` dominates it, or inf.
    """

    losses: Array
    masses: Array
    infinity: Array
    epsilon: Array
    mu: Array


def prepare(
    query: object, *, relation: str = "add_or_remove", grid: LossGrid | None = None, atoms: int = ATOMS
) -> Prepared:
    """The query as a dominating law of at most ``atoms`` atoms a direction, the form that `gdp_residue` computes with.

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
    return on_device(prepared(query, relation=relation, grid=grid, atoms=atoms))


def prepared(
    query: object, *, relation: str = "add_or_remove", grid: LossGrid | None = None, atoms: int = ATOMS
) -> Prepared:
    """`prepare`, as NumPy's arrays where everything is concrete."""
    _validate.whole(atoms=atoms)
    _validate.at_least(8.0, atoms=atoms)
    _validate.at_most(2**20, atoms=atoms)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.instance(LossGrid | None, grid=grid)
    with jax.enable_x64(True):
        if is_gaussian(query):
            return _of_gaussian(gaussian_cost(query), int(atoms))
        curve = query if isinstance(query, PLD | PrivacyProfile | TradeOff) else _trade_off(query, relation, grid)
        made = on_host(of_curve(curve, int(atoms)))
        return dataclasses.replace(made, epsilon=_least_epsilon(made, query)) if is_pure(query, relation) else made


def _least_epsilon(made: Prepared, query: object) -> Array:
    """The mechanism's largest loss, where a lattice has lost it: its curve has a rounding's mass at infinity."""
    xp, found, known = floats(join(made.epsilon), pure_cost(query))
    return split_up(xp.minimum(found, xp.where(known >= 0, known, np.inf)))


@hosted(static=("atoms",))
def of_curve(query: PLD | PrivacyProfile | TradeOff, atoms: int = ATOMS) -> Prepared:
    """`prepare` for a curve (inside ``enable_x64``)."""
    if query.bound != ("lower" if isinstance(query, TradeOff) else "upper"):
        kind = "a lower trade-off curve" if isinstance(query, TradeOff) else "an upper curve"
        raise ValueError(f"query must be {kind} (a guarantee), got bound {query.bound!r}")
    losses = None
    if isinstance(query, PLD):
        lattice = query.grid.losses
        losses = np.concatenate([lattice[:1], lattice, lattice[-1:]])
        query = _of_pld(query)
    curve = TradeOff.from_profile(query) if isinstance(query, PrivacyProfile) else query
    _, widths, drops = floats(*arrays(curve))
    flat = [x.reshape(-1, x.shape[-1]) for x in (widths, drops)]
    made = each(lambda p, q: _one(p, q, losses, atoms), *flat)
    return jax.tree.map(lambda x: x.reshape(*widths.shape[:-1], *x.shape[1:]), made)


def _of_gaussian(square: Array, atoms: int) -> Prepared:
    """No lattice and no atom at infinity: mu says it all, and masses that are none are never computed with."""
    xp = array_module(square)
    unknown = xp.full((*square.shape, 2, atoms), np.nan)
    mu = inflated(xp.sqrt(square), 2.0**-51)
    made = (xp.zeros_like(unknown), unknown, xp.zeros((*square.shape, 2)), xp.full_like(square, np.inf), mu)
    return Prepared(*(split_up(x) for x in made))


def _trade_off(query: Any, relation: str, grid: LossGrid | None) -> TradeOff:
    one = first_side(relation)
    if grid is None:
        if not _validate.is_traced(query) and (exact := _experiments(query, one)) is not None:
            return to_trade_off(exact[0])
        chosen = conversions.grid_for([query], one)
        finer = 2 * _HALF // chosen.size
        grid = LossGrid(chosen.spacing / finer, chosen.lowest * finer, chosen.size * finer)
    return TradeOff.from_profile(PrivacyProfile.from_mechanism(query, "upper", relation=one, grid=grid))


def _of_pld(pld: PLD) -> TradeOff:
    """The pair of an upper law, whose masses are good relative to themselves where its curve is to a unit of 1."""
    law = completed(pld)
    xp, p, infinity = floats(law.masses, law.infinity_mass)
    infinity, losses = infinity[..., None], pld.grid.losses
    q = p * np.exp(-losses)
    units = (8.0 + 2.0 * losses.size) * EPS
    if getattr(pld.masses, "dtype", np.float64) != np.float64:
        # What was rounded to float32: Q may have as much more where P has no loss.
        units += 2.0**-21
    # If the masses sum up to 1 + tau, the curve starts at 1 + tau. The true one starts at 1: below the lowest loss it
    # is under the chord from there, which is steeper by tau over that loss's gamma: mass that only Q has.
    tau = xp.maximum(xp.sum(p, -1, keepdims=True) + infinity - 1.0, 0.0) + units
    lowest = xp.min(xp.where(p > 0, losses, np.inf), -1, keepdims=True)
    total = xp.sum(q, -1, keepdims=True)
    singular = xp.maximum(1.0 - total, 0.0) + units * total + tau * xp.exp(-lowest)
    none = xp.zeros_like(infinity)
    up = 1.0 + 8.0 * EPS * (1.0 + xp.abs(losses))
    widths = xp.concatenate([none, p * up, infinity], -1)
    drops = xp.concatenate([xp.minimum(singular, 1.0), q * up, none], -1)
    return unchecked(TradeOff, widths=widths, drops=drops, bound="lower")


def _experiments(query: Query, relation: str) -> list[Experiment] | None:
    """The few outcomes of a finite mechanism of scalar parameters; None for any other."""
    batched = any(shapes_of_settings(query))
    return None if batched else experiments_of(query, relation)


def _one(p: Array, q: Array, losses: Array | None, atoms: int) -> Prepared:
    """Of one curve; ``losses`` of its segments where they are known exactly."""
    n, xp = p.shape[0], array_module(p, q)
    both = (p > 0) & (q > 0)
    if losses is not None:
        found, sorts = losses, True
    else:
        # Segments are steepest first, so losses rise, but for rounding; where they do not, there is no curve.
        ratio = xp.log(xp.where(both, p, 1.0) / xp.where(both, q, 1.0))
        found = running_greatest(xp.where(both, ratio, -np.inf))
        sorts = xp.all(xp.where(both, found - ratio, 0.0) <= 8.0 * EPS * (1.0 + xp.abs(ratio)))
    lowest, highest = (f(xp.where(both, found, s)) for f, s in ((xp.min, np.inf), (xp.max, -np.inf)))
    widths, drops = p, q
    loss = xp.where(lowest <= highest, xp.clip(found, lowest, highest), 0.0)
    reach = xp.maximum(-loss[0], loss[-1])
    off = 16.0 * EPS * (1.0 + reach)
    # A curve is meant with the excess of its segments on either side of gamma = 1. The sum over all segments, which
    # composition takes, differs from it by the totals' distance from 1: at most a share of TV that scaling makes good.
    distance = deflated(xp.minimum(xp.sum(xp.maximum(p - q, 0.0)), xp.sum(xp.maximum(q - p, 0.0))), 1e-9)
    gap = xp.sum(q) - xp.sum(p)
    share = (xp.maximum(xp.stack([gap, -gap]), 0.0) + 8.0 * n * EPS) / distance
    p, q = inflated(xp.stack([p, q]), share[:, None] + 8.0 * EPS)
    infinite = inflated(xp.stack([xp.sum(xp.where(both, 0.0, x)) for x in (p, q)]), 2.0 * n * EPS)
    infinite = xp.where(sorts, infinite, 1.0)
    kept, p, q = _pooled(loss, xp.where(both, p, 0.0), xp.where(both, q, 0.0), atoms)
    epsilon = xp.where(xp.all(infinite == 0), reach + off, np.inf)
    delta = xp.minimum(xp.max(infinite), 1.0)
    mu = xp.where(delta < 1.0, dominating_mu(widths, drops, delta), np.inf)
    both_losses = xp.stack([kept, xp.flip(-kept)]) + off
    return Prepared(*(split_up(x) for x in (both_losses, xp.stack([p, xp.flip(q)]), infinite, epsilon, mu)))


def _pooled(losses: Array, p: Array, q: Array, atoms: int) -> tuple[Array, Array, Array]:
    """At most ``atoms`` of the given losses, which rise, and masses at them that dominate, for both directions."""
    n, xp = losses.shape[0], array_module(losses, p, q)
    if n <= atoms:
        return losses, p, q
    mass = p + q
    scale = xp.sum(mass * losses * losses) * 0.005 + 1e-300
    step = xp.diff(losses)
    middle = 0.5 * (losses[1:] + losses[:-1])
    # Between neighbours: the density's cube root, for the bulk, and equal ratios of losses, for the tails.
    cube = xp.cbrt(0.5 * (mass[1:] + mass[:-1]) * step * step)
    ratio = step / xp.sqrt(middle * middle + scale)
    cube, ratio = barrier((cube, ratio))
    weight = _SHARE * cube / xp.maximum(cube.sum(), 1e-300) + (1.0 - _SHARE) * ratio / xp.maximum(ratio.sum(), 1e-300)
    # Sums of integers, so that they rise: a cell's losses are between those kept at its ends.
    whole = 2**40
    total = xp.pad(xp.cumsum((weight * whole).astype(np.int64)), (1, 0))
    cell = xp.clip(total * (atoms - 1) // whole, 0, atoms - 2)
    kept = losses[xp.minimum(xp.searchsorted(cell, np.arange(atoms)), n - 1)]
    low, high = barrier((kept[cell], kept[cell + 1]))
    wide = high > low
    over = deflated(xp.where(wide, -xp.expm1(low - high), 1.0), 16.0 * EPS)
    # What goes outwards: up for P, and down for Q, whose losses are the negated ones.
    up, down = (xp.where(wide, xp.clip(-xp.expm1(x) / over, 0.0, 1.0), 1.0) for x in (low - losses, losses - high))
    there, back = p * up, q * down
    # The barrier keeps XLA from computing exponentials one by one, where it adds.
    parts = barrier((p - there, q - back, there, back))
    sums = [histogram(cell, x, atoms) for x in parts]
    p, q = sums[0] + xp.roll(sums[2], 1), xp.roll(sums[1], 1) + sums[3]
    p, q = inflated(p, 3.0 * n * EPS), inflated(q, 3.0 * n * EPS)
    return kept, p, q
