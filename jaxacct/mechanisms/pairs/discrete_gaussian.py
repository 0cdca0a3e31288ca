"""The pair of the discrete Gaussian mechanism."""

from __future__ import annotations

import math

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, collected, column, logsumexp, xp
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Survey, Tails, two_sides
from jaxacct.mechanisms.pairs.gaussian import REACH, normal_tails
from jaxacct.mechanisms.pairs.table import MOST_LISTED, Atoms, Window

_POINTS = 256  # survey atoms a side
_TERMS = np.arange(97.0)  # of the direct sum
_ROWS = 512
_NARROW = 10.0  # sigma up to which the direct sum is used everywhere
_STEEP = 0.8  # decay per outcome from which on it is used
_FARTHEST = 2.0**52
# B_2m / (2m)!, m = 1..9, of the Euler-Maclaurin formula.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
_COEFFICIENTS = [(np.float64(m), np.float64(b / math.factorial(2 * m))) for m, b in enumerate(_BERNOULLI, 1)]


@mechanism
class DiscreteGaussianPair(Pair):
    """P = D + X against Q = X on the integers, Pr[X = x] proportional to f(x) = exp(-x^2 / (2 sigma^2)).

    The loss (x - D/2) D / sigma^2 is increasing in x. Tails are sums f(a) + f(a + 1) + ... with a >= 1. Where f falls
    by e^-0.8 or more a step, or sigma <= 10, 97 terms are the sum to the last digit. Elsewhere the Euler-Maclaurin
    formula is, to 2 units (docs/proofs/families.md, theorem 7), with z = a / sigma and Hermite polynomials He,

        sigma sqrt(2 pi) Pr[N(0, 1) > z] + f(a) (1/2 + sum_{m <= 9} B_2m / (2m)! He_{2m-1}(z) sigma^(1 - 2m)).

    Attributes:
        sigma: above 0; float64.
        sensitivity: D, a whole number >= 1; float64.
    """

    sigma: Array
    sensitivity: Array

    def _sum_from(self, a: Array) -> Array:
        """f(a) + f(a + 1) + ... for whole a >= 1, shape ``(..., edges)``."""
        sigma = column(self.sigma)
        xp = array_module(sigma, a)
        steep = (a >= _STEEP * sigma**2) | (sigma <= _NARROW)
        z = xp.where(steep, 0.0, a / sigma)
        first, direct, smooth = xp.exp(-0.5 * (a / sigma) ** 2), 0.0, 0.0
        # NumPy skips a case that does not occur.
        if xp is not np or np.any(steep):
            direct = _direct_sum(a, sigma)
        if xp is not np or not np.all(steep):
            wide = xp.maximum(sigma, _NARROW)

            def term(
                state: tuple[Array, Array, Array], given: tuple[Array, Array]
            ) -> tuple[tuple[Array, Array, Array], tuple[Array]]:
                before, hermite, scale = state  # He_{2m-2}, He_{2m-1} and sigma^(1 - 2m)
                m, coefficient = given
                value = coefficient * hermite * scale
                before = z * hermite - (2.0 * m - 1.0) * before
                return (before, z * before - 2.0 * m * hermite, scale / wide**2), (value,)

            (terms,) = collected(term, (xp.ones_like(z), z, xp.broadcast_to(1.0 / wide, z.shape)), _COEFFICIENTS)
            smooth = wide * math.sqrt(2.0 * math.pi) * normal_tails(z)[0] + first * (0.5 + terms.sum(0))
        return xp.where(steep, first * direct, smooth)

    def tails(self, losses: Edges) -> Tails:
        sigma, gap = column(self.sigma), column(self.sensitivity)
        last = xp.floor(losses * (sigma**2 / gap) + 0.5 * gap)
        last = xp.clip(last, -_FARTHEST, _FARTHEST)
        # Pr[X > n] and Pr[X <= n], the smaller one with its relative accuracy; the sum from 1 is that of one side.
        n, edges = xp.concatenate([last - gap, last], -1), last.shape[-1]
        sums = self._sum_from(xp.concatenate([xp.ones_like(n[..., :1]), xp.where(n >= 0, n + 1.0, -n)], -1))
        above, below = two_sides(n >= 0, sums[..., 1:] / (1.0 + 2.0 * sums[..., :1]))
        p_above, p_below, q_above, q_below = (
            side[..., some] for some in (slice(edges), slice(edges, None)) for side in (above, below)
        )
        # As in GaussianPair for the exponents; 1,024 units cover the sums of 97 terms and the formula next to them.
        far = xp.minimum((xp.abs(last) + gap + 1.0) / sigma, REACH + 2.0)
        return Tails(p_above, p_below, q_above, q_below, UNIT * (1024.0 + 8.0 * far**2))

    def window(self, log_share: Array) -> Window:
        """See :class:`jaxacct.mechanisms.pairs.table.Window`; NumPy's, at most exp(``log_share``) left out."""
        sigma, gap = column(self.sigma), column(self.sensitivity)
        reach = np.ceil(self.sigma * np.sqrt(2.0 * np.clip(2.0 - log_share, 1.0, 720.0))) + 1.0
        reach = np.where(np.isfinite(reach), np.minimum(reach, MOST_LISTED), 1.0)
        size = min(np.nanmax(2.0 * reach + self.sensitivity, initial=1.0) + 1.0, MOST_LISTED)
        reach = np.minimum(reach, np.floor(0.5 * (size - 1.0 - self.sensitivity)))  # as far as there is room
        k = np.arange(size)
        last = 2.0 * reach[..., None] + gap
        x = np.minimum(k, last) - reach[..., None]
        total = 1.0 + 2.0 * self._sum_from(np.ones(1))
        mass = lambda y: np.where(k <= last, np.exp(-0.5 * (y / sigma) ** 2), 0.0 * y) / total  # noqa: E731
        far = (np.abs(x) + gap + 1.0) / sigma
        losses = (x - 0.5 * gap) * (gap / sigma**2)
        atoms = Atoms(losses, mass(x - gap), mass(x), UNIT * (1024.0 + 8.0 * far**2), 8.0 * UNIT * np.abs(losses))
        rest = self._sum_from(np.stack([reach + 1.0, reach + self.sensitivity + 1.0], -1)) / total
        rest = inflated(rest.sum(-1), 1e-9) + 1e-300
        return Window(atoms, rest, rest)

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms.pairs.base.Pair`: every integer, or every few of them."""
        sigma, gap = column(self.sigma), column(self.sensitivity)
        away = np.arange(-_POINTS, _POINTS + 1.0) * xp.maximum(xp.ceil(REACH * sigma / _POINTS), 1.0)
        log_weight = -0.5 * (away / sigma) ** 2
        return Survey((away + 0.5 * gap) * gap / sigma**2, log_weight - logsumexp(log_weight)[..., None])

    def log_moment(self, order: PerSetting) -> PerSetting:
        """That of the Gaussian of as much noise (Canonne, Kamath, Steinke 2020); rounded up."""
        return (1.0 + 1e-12) * 0.5 * order * (order - 1.0) * (self.sensitivity / self.sigma) ** 2

    def loss_error(self) -> PerSetting:
        """As in ``GaussianPair``, with the noise multiplier sigma / sensitivity."""
        noise = self.sigma / self.sensitivity
        return UNIT * (16.0 + 8.0 * (REACH * noise + 1.5) / noise**2)

    def anchor(self) -> PerSetting:
        """P's mode."""
        return 0.5 * (self.sensitivity / self.sigma) ** 2


def _direct_sum(a: Array, sigma: Array) -> Array:
    """f(a + k) / f(a) = exp(-k (a + k / 2) / sigma^2), summed over the first k."""
    xp = array_module(a, sigma)
    shape = np.broadcast_shapes(a.shape, sigma.shape)
    if xp is np and math.prod(shape) > _ROWS:  # tables that stay in the cache
        rows = [x.ravel() for x in np.broadcast_arrays(a, sigma)]
        parts = [_direct_sum(*(x[at : at + _ROWS] for x in rows)) for at in range(0, rows[0].size, _ROWS)]
        return np.concatenate(parts).reshape(shape)
    return xp.exp(-_TERMS * (a[..., None] + 0.5 * _TERMS) / sigma[..., None] ** 2).sum(-1)
