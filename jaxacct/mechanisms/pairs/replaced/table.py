"""The pair of replaced records in a Poisson sample, for a mechanism with finitely many outcomes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, column, ranks, running_least, take, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT
from jaxacct.mechanisms.pairs.base import Edges, PerSetting, Tails, mirrored
from jaxacct.mechanisms.pairs.sampled_loss import COMPLEMENT, Rated, mixed_loss
from jaxacct.mechanisms.pairs.table import Atoms, Listed, Tabulated
from jaxacct.mechanisms.parameters import RATE_UNITS


class _Cells(NamedTuple):
    """Cells of the half line of ranks [0, 1/2], losses falling; the other half is its mirror image.

    Attributes:
        losses: of each cell, >= 0, shape ``(..., cells)``.
        p, q: masses of each under P and Q.
        ends: the rank at which each cell ends.
        share: relative error of ranks, and of masses that are added up from rank 0.
    """

    losses: Array
    p: Array
    q: Array
    ends: Array
    share: Array


@mechanism
class AntipodalTablePair(Rated, Listed):
    """((1 - rate) U + rate V, (1 - rate) U + rate V') on ranks in [0, 1], for the pair (V, U) ``inner``.

    The outcomes of ``inner`` are laid out by falling loss, each as long as its probability under the base U, which
    becomes the uniform law; V' is the mirror image of V (see ``docs/proofs/replaced-records.md``). The loss falls with
    the rank and is odd about 1/2.

    A rank is a sum of probabilities from its own end, good to a few units of itself. So is what P has up to a rank,
    as its density falls. The density of Q rises, but is at most 2 up to the rank 1/2, so that what Q has up to a rank r
    is off by 2 rate r of such units; ``tails`` counts that.

    Attributes:
        inner: the pair of the mechanism for `remove`, which lists its outcomes.
        rate: in (0, 1]; float64.
        rest: 1 - rate, see ``GaussianPair``.
    """

    inner: Tabulated
    rate: Array
    rest: Array = COMPLEMENT

    def _cells(self) -> _Cells:
        atoms = self.inner.atoms()
        rate, rest = column(self.rate), column(self.rest)
        shape = np.broadcast_shapes(atoms.p.shape[:-1], rate.shape[:-1])
        size = atoms.p.shape[-1]
        losses, p, q = (xp.broadcast_to(x, (*shape, size)) for x in (atoms.losses, atoms.p, atoms.q))
        nothing = xp.zeros_like(p[..., :1])
        # Upwards from rank 0 along falling losses, and downwards from rank 1, which the mirror image sees as 0.
        tables = [xp.flip(x, -1) for x in (losses, p, q)], [losses, p, q]
        rank = [xp.minimum(xp.cumsum(table[2], -1), 0.5) for table in tables]
        ends = xp.sort(xp.concatenate([*rank, nothing + 0.5], -1), -1)
        starts = xp.concatenate([nothing, ends[..., :-1]], -1)
        width = ends - starts
        outer, density = [], []
        for (loss, one, other), known in zip(tables, rank, strict=True):
            at = xp.minimum(ranks(known, starts), size - 1)
            held = take(other, at)
            ratio = xp.where(held > 0, take(one, at) / xp.where(held > 0, held, 1.0), 0.0)
            density.append(rest + rate * ratio)
            outer.append(mixed_loss(take(loss, at), rate, rest))
        # What never happens under U happens at rank 0; under V' it does so at rank 1.
        atom = rate * xp.where(losses == np.inf, p, 0.0).sum(-1, keepdims=True)
        above = outer[0] - outer[1]
        above = running_least(xp.where(xp.isnan(above), 0.0, xp.maximum(above, 0.0)))
        error = xp.broadcast_to(atoms.error, (*shape, size)).max(-1, keepdims=True)
        return _Cells(
            xp.concatenate([nothing + np.inf, above], -1),
            xp.concatenate([atom, density[0] * width], -1),
            xp.concatenate([nothing, density[1] * width], -1),
            xp.concatenate([nothing, ends], -1),
            4.0 * error + UNIT * (16.0 + 2.0 * RATE_UNITS + 8.0 * size),
        )

    def tails(self, losses: Edges) -> Tails:
        cells = self._cells()
        negative, at = losses < 0.0, xp.abs(losses)
        p, q = cells.p, cells.q
        # Losses above ``at``, or from ``at`` on, where they are looked at from the other side.
        count = xp.where(negative, _before(cells.losses, at, True), _before(cells.losses, at, False))
        none = xp.zeros_like(p[..., :1])
        first = lambda x: take(xp.concatenate([none, xp.cumsum(x, -1)], -1), count)  # noqa: E731
        rest = lambda x: take(xp.concatenate([xp.flip(xp.cumsum(xp.flip(x, -1), -1), -1), none], -1), count)  # noqa: E731
        half_p, half_q = p.sum(-1, keepdims=True), q.sum(-1, keepdims=True)
        p_above, q_above = first(p), first(q)
        p_below, q_below = rest(p) + half_q, rest(q) + half_p
        off = 2.0 * take(xp.concatenate([none, cells.ends], -1), count) * column(self.rate)
        ratio = lambda extra, tail: xp.where(extra > 0, extra / xp.maximum(tail, 1e-300), 0.0)  # noqa: E731
        doubt = 1.0 + ratio(off, q_above) + ratio(p_above, p_below) + ratio(q_above + off, q_below)
        error = xp.minimum(cells.share * doubt, 1.0) + 0.0 * losses
        return mirrored(Tails(p_above, p_below, q_above, q_below, error), negative)

    def _listed(self) -> Atoms:
        cells = self._cells()
        losses = xp.concatenate([cells.losses, -cells.losses], -1)
        p, q = xp.concatenate([cells.p, cells.q], -1), xp.concatenate([cells.q, cells.p], -1)
        return Atoms(losses, p, q, 4.0 * cells.share, 0.0)

    def loss_error(self) -> PerSetting:
        """Twice that of the inner losses, and the roundings of ``mixed_loss``."""
        atoms = self.inner.atoms()
        size = xp.where(xp.isfinite(atoms.losses), xp.abs(atoms.losses), 0.0).max(-1)
        off = xp.broadcast_to(atoms.loss_error, atoms.losses.shape).max(-1)
        return 2.0 * off + UNIT * (64.0 + 32.0 * size - 16.0 * xp.log(self.rate))


def _before(falling: Array, at: Array, included: bool) -> Array:
    """How many of ``falling`` losses are above each of ``at``, or from there on where ``included``."""
    rising = xp.flip(falling, -1)
    return falling.shape[-1] - ranks(rising, xp.nextafter(at, -np.inf) if included else at)
