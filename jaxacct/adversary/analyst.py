"""`evaluate`: the privacy of one given analyst, who chooses each query by the losses observed so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.curve_arrays import concrete
from jaxacct._numerics.rounding import EPS
from jaxacct.accounting.batch import Bounds
from jaxacct.games.experiment import Query
from jaxacct.games.lattice_laws import lattice_for
from jaxacct.games.rules import Rule, check_rounds, sequence
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import RELATIONS, directions

_NEAR = 1e-11  # losses this close (relative to 1 + |loss|) to a lattice point count as on it
Choice = Callable[[Hashable, np.ndarray], ArrayLike]


class _Cells(NamedTuple):
    """One query cut at the points of the lattice: the masses of the cell that ends at each point.

    The first cell reaches down to -inf. ``q`` has shape ``(size,)``. ``ends`` are P-masses at the upper and the lower
    end of each cell, of shape ``(size, 2)``: a law that dominates it, of the cell's mass. ``beyond`` are the masses
    above the last point, under P and Q, and ``error`` is the most by which any mass is off.
    """

    q: np.ndarray
    ends: np.ndarray
    beyond: tuple[float, float]
    error: float


class _Reached(NamedTuple):
    """Transcripts in one state, by label; the label is the sum of losses, each rounded up to the lattice.

    ``q`` has shape ``(labels,)``. ``raised`` has shape ``(labels, rounds + 1)``: P-masses of a dominating law, in which
    a loss is its label less 0 to ``rounds`` points; their sum is the label's own P-mass.
    """

    q: np.ndarray
    raised: np.ndarray


def evaluate(
    rule: Rule,
    choice: Choice,
    rounds: int,
    epsilon: ArrayLike,
    *,
    relation: str = "add_or_remove",
    grid: LossGrid | None = None,
) -> Bounds:
    """Bounds of one analyst's own H(e^epsilon), where `worst_case` has those of the worst one.

    The analyst is told the loss of every outcome, rounded up to the next point of the lattice, keeps the sum, and plays
    what ``choice`` says. A query's outcomes in one cell of the lattice are dominated by outcomes at its two ends, and
    dominate one outcome with their masses; so both bounds are of this very analyst, and differ by the squared spacing.

    Args:
        rule: see `Rule`; its queries are mechanisms that run once.
        choice: ``choice(state, losses)`` for a state of the rule and an array of summed losses (lattice points): the
            index of the next query for each of them, -1 to stop. Beyond the lattice the analyst stops.
        rounds: the most queries that are played, >= 1.
        epsilon: finite, any shape.
        relation: under ``"add_or_remove"`` the worse of both directions, each with the losses of its own.
        grid: the lattice; without it about 4,096 points that the queries suggest.

    Raises:
        ValueError: queries of other kinds, a choice that is no index or that the rule refuses.
    """
    _validate.instance(Rule, rule=rule)
    _validate.instance(LossGrid | None, grid=grid)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.function(choice=choice)
    _validate.finite(epsilon=epsilon)
    rounds, queries = check_rounds(rounds), sequence(queries=rule.queries)
    grid = lattice_for(queries, rounds, relation) if grid is None else grid
    each = [_cells(query, grid, relation) for query in queries]
    at = np.asarray(epsilon, np.float64)
    sides = [
        _bounds(rule, choice, rounds, at, grid, [one[min(side, len(one) - 1)] for one in each])
        for side in range(max(map(len, each)))
    ]
    return Bounds(*(np.maximum.reduce(ends)[()] for ends in zip(*sides, strict=True)))


def _cells(query: Query, grid: LossGrid, relation: str) -> list[_Cells]:
    """Cuts a query at the lattice points, once for each direction of the relation."""
    sides = directions(query, relation) if isinstance(query, Mechanism) else []
    if not sides or any(len(parts) != 1 or np.any(np.asarray(parts[0][1]) != 1) for parts in sides):
        raise ValueError(f"queries must be mechanisms that run once, got {type(query).__name__}")
    found = []
    for ((pair, _),) in sides:
        with jax.enable_x64(True):
            scalars = jax.tree.map(lambda x: np.asarray(x, np.float64), pair)
            tails = concrete(scalars.tails(grid.losses + _NEAR * (1.0 + np.abs(grid.losses))))
            if np.asarray(tails.p_above).ndim != 1:
                raise ValueError("queries must have one setting each, got a batch")
        right = grid.losses > 0  # a difference of tails is taken on the side where they are small
        sums = [np.where(right, *x) for x in ((tails.p_above, tails.p_below), (tails.q_above, tails.q_below))]
        p, q = (
            np.maximum(np.where(right, -np.diff(above, prepend=1.0), np.diff(below, prepend=0.0)), 0.0)
            for above, below in ((tails.p_above, tails.p_below), (tails.q_above, tails.q_below))
        )
        error = float(np.max(tails.error)) + 8 * EPS
        # w_low + w_high = p and e^h w_low + w_high = e^x q; less at the lower end dominates still.
        scale = np.exp(grid.losses)
        unsure = 2.0 * error * (sums[0] + scale * sums[1]) + 8 * EPS * (p + scale * q)
        low = np.clip((scale * q - p - unsure) / np.expm1(grid.spacing), 0.0, p)
        low[0] = 0.0
        beyond = float(tails.p_above[-1]), float(tails.q_above[-1])
        found.append(_Cells(q, np.stack([p - low, low], -1), beyond, 2.0 * error))
    return found


def _bounds(
    rule: Rule, choice: Choice, rounds: int, epsilon: np.ndarray, grid: LossGrid, cells: list[_Cells]
) -> tuple[np.ndarray, np.ndarray]:
    """``(lower, upper)`` in one direction, by transcripts from the first round to the last."""
    h, gamma, lags = grid.spacing, np.exp(epsilon), np.arange(rounds + 1)
    lower, upper = np.zeros(epsilon.shape), np.zeros(epsilon.shape)
    reached = {rule.start: _Reached(np.ones(1), np.eye(1, rounds + 1))}
    for played in range(rounds + 1):
        following: dict[Hashable, _Reached] = {}
        labels = played * grid.lowest + np.arange(played * (grid.size - 1) + 1)
        for state, (q, raised) in reached.items():
            over = played == rounds
            chosen = np.broadcast_to(-1 if over else np.asarray(choice(state, h * labels)), labels.shape)
            if not np.issubdtype(chosen.dtype, np.integer) or np.any((chosen < -1) | (chosen >= len(cells))):
                raise ValueError(f"choice must return an index below {len(cells)} or -1, got {chosen!r:.200}")
            for query in np.unique(chosen):
                here = chosen == query
                some = _Reached(np.where(here, q, 0.0), np.where(here[:, None], raised, 0.0))
                p = some.raised.sum(-1)
                if query < 0:
                    losses = h * (labels[:, None] - lags) + 2.0 * rounds * _NEAR * (1.0 + h * np.abs(labels))[:, None]
                    told = -np.expm1(np.minimum(epsilon[..., None, None] - losses, 0.0))
                    lower, upper = lower + _seen(p, some.q, gamma), upper + (some.raised * told).sum((-2, -1))
                    continue
                if not np.any(p):
                    continue
                after = rule.step(state, int(query))
                if after is None:
                    raise ValueError(
                        f"choice must play what the rule allows, got query {query} in state {state!r:.100}"
                    )
                one = cells[query]
                lower = lower + _seen(p * one.beyond[0], some.q * one.beyond[1], gamma)
                upper = upper + p.sum() * one.beyond[0]
                made = _played(some, one)
                following[after] = _Reached(*map(np.add, following[after], made)) if after in following else made
        reached = following
    # Masses are off by `error` each, and sums of non-negative terms by a unit for each term.
    off = rounds * grid.size * (max(one.error for one in cells) + 4 * EPS) * np.maximum(gamma, 1.0)
    perfect = -np.expm1(np.minimum(epsilon, 0.0))
    return np.clip(lower - off, perfect, 1.0), np.clip(upper + off, perfect, 1.0)


def _seen(p: np.ndarray, q: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """What transcripts of which the label alone is told have of H(gamma)."""
    return np.maximum(p - gamma[..., None] * q, 0.0).sum(-1)


def _played(some: _Reached, one: _Cells) -> _Reached:
    """What the next query makes of transcripts that all play it: masses multiply, losses add up."""
    raised = np.zeros((len(some.raised) + len(one.ends) - 1, some.raised.shape[1]))
    for lag in np.flatnonzero(some.raised.any(0)):
        for lower in range(2):
            raised[:, lag + lower] += np.convolve(some.raised[:, lag], one.ends[:, lower])
    return _Reached(np.convolve(some.q, one.q), raised)
