"""Generalised randomised response: symmetric losses rounded up and down (residue paper, Definitions 11 to 14)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.curve_arrays import concrete
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.games.experiment import Query, excess, experiment, masses_of
from jaxacct.losses.compare.enclose import Curve
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.directions import RELATIONS, directions


@dataclasses.dataclass(frozen=True, eq=False)
class GeneralizedResponse:
    """Draws band i with probability ``masses[i]`` and answers by randomized response at ``epsilons[i]``.

    The band is shown. An epsilon of inf shows the bit itself. Symmetric, whatever the masses.

    Attributes:
        epsilons: at least 0, shape ``(bands,)``; inf allowed.
        masses: shape ``(bands,)``.
        bound: ``"upper"`` or ``"lower"``: the side on which masses were rounded (their sum may miss 1 by rounding).

    Source: the residue paper, Definitions 11 to 14.
    """

    epsilons: np.ndarray
    masses: np.ndarray
    bound: str = "upper"

    def __post_init__(self) -> None:
        _validate.one_of(("upper", "lower"), bound=self.bound)
        epsilons, masses = np.asarray(self.epsilons, np.float64), np.asarray(self.masses, np.float64)
        _validate.tables(epsilons=epsilons, masses=masses)
        if epsilons.ndim != 1 or np.any(np.isnan(epsilons) | (epsilons < 0)):
            raise ValueError(f"epsilons must be one row of numbers of at least 0, got {epsilons!r}")
        _validate.nonnegative(masses=masses)
        if abs(masses.sum() - 1.0) > 1e-6:
            raise ValueError(f"masses must sum up to 1, got {masses.sum()!r}")
        object.__setattr__(self, "epsilons", epsilons)
        object.__setattr__(self, "masses", masses)

    def trade_off(self) -> TradeOff:
        """The curve, exact but for rounding to the side of ``bound``."""
        finite = np.isfinite(self.epsilons)
        eps = np.where(finite, self.epsilons, 0.0)
        truth = np.where(finite, self.masses / (1.0 + np.exp(-eps)), self.masses)
        lie = np.where(finite, self.masses / (1.0 + np.exp(eps)), 0.0)
        order = np.argsort(-self.epsilons)
        factor = 1.0 + (8.0 if self.bound == "upper" else -8.0) * EPS
        widths: Array = np.concatenate([lie[order], truth[order][::-1]]) * factor
        drops: Array = np.concatenate([truth[order], lie[order][::-1]]) * factor
        bound = "lower" if self.bound == "upper" else "upper"
        return unchecked(TradeOff, widths=widths, drops=drops, bound=bound)

    def pld(self, grid: LossGrid) -> PLD:
        """The law on ``grid``, rounded to the side of ``bound``."""
        return self.trade_off().profile(grid).to_pld()

    @classmethod
    def enclosing(
        cls, query: Query, epsilons: ArrayLike | Sequence[float], *, relation: str = "add_or_remove"
    ) -> tuple[GeneralizedResponse, GeneralizedResponse]:
        """``(down, up)``: generalised responses with down <= query <= up, for a query with a symmetric loss.

        Band i holds the outcomes with |L| in (eps_(i-1), eps_i]; ``up`` answers at the band's upper end (Theorem 11),
        ``down`` at its lower one (Theorem 12). The last band reaches to infinity.

        Args:
            query: a symmetric mechanism of one run, or a symmetric PLD or curve, taken at its word.
            epsilons: the finite upper ends of the bands, increasing, above 0; 0 and inf are added.
            relation: for mechanisms.

        Raises:
            ValueError: ends that do not increase, or a query whose loss is not symmetric.
        """
        _validate.numbers(epsilons=epsilons)
        _validate.one_of(RELATIONS, relation=relation)
        ends = np.asarray(epsilons, np.float64).reshape(-1)
        if not ends.size:
            raise ValueError("epsilons must hold at least one number, got none")
        _validate.positive(epsilons=ends)
        if np.any(np.diff(ends) <= 0):
            raise ValueError(f"epsilons must increase, got {ends!r}")
        low_tail, high_tail = _tails(query, ends, relation)
        # P(|L| > eps) from both sides, from 1 at 0 (all outcomes) down to 0 beyond infinity.
        low = np.concatenate([[1.0], low_tail, [0.0]])
        high = np.concatenate([[1.0], high_tail, [0.0]])
        upper_ends, lower_ends = np.append(ends, np.inf), np.append(0.0, ends)
        # Larger tails are leakier: the masses of tails from above for `up`, from below for `down`.
        high, low = np.minimum.accumulate(high), np.maximum.accumulate(low[::-1])[::-1]
        up = cls(upper_ends, -np.diff(high), "upper")
        down = cls(lower_ends, -np.diff(low), "lower")
        return down, up


def _tails(query: Query, ends: np.ndarray, relation: str) -> tuple[np.ndarray, np.ndarray]:
    """``(lower, upper)`` of P(|L| > eps) at ``ends``."""
    if isinstance(query, Curve):
        with jax.enable_x64(True):
            one = experiment(*masses_of(query), 4 * EPS)
        mirrored = np.exp(one.finite) * excess(one, -one.finite)
        if np.abs(mirrored - excess(one, one.finite)).max(initial=0.0) > 1e-9:
            raise ValueError("query must have a symmetric loss, got a curve that differs from its reflection")
        losses, p = np.abs(one.losses[one.p > 0]), one.p[one.p > 0]
        tails = np.array([p[losses > e].sum() for e in ends])
        near = np.array([p[np.abs(losses - e) <= 1e-13 * (1.0 + e) + one.loss_error].sum() for e in ends])
        units = (p.size + 8) * EPS
        return deflated(np.maximum(tails - near, 0.0), units), np.minimum(inflated(tails + near, units), 1.0)
    sides = directions(query, relation)
    symmetric = query._symmetric or relation == "replace"
    if len(sides) != 1 or len(sides[0]) != 1 or np.any(np.asarray(sides[0][0][1]) != 1) or not symmetric:
        raise ValueError(f"query must be one run with a symmetric loss, got {type(query).__name__}")
    pair, _ = sides[0][0]
    with jax.enable_x64(True):
        scalars = jax.tree.map(lambda x: np.asarray(x, np.float64), pair)
        off = float(scalars.loss_error()) + 1e-14 * (1.0 + float(ends.max()))
        found = []
        for shift, sign in ((off, -1.0), (-off, 1.0)):
            at = np.concatenate([-(ends + shift)[::-1], ends + shift])
            tails = concrete(scalars.tails(at))
            n = ends.size
            units = 1.0 + sign * (np.max(tails.error) + 8 * EPS)
            found.append((tails.p_above[n:] + tails.p_below[:n][::-1]) * units)
    return np.maximum(found[0], 0.0), np.minimum(found[1], 1.0)
