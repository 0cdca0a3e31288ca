"""Dominating pairs of guarantees that are only curves: zero-concentrated and Rényi differential privacy.

The hockey stick of the pair is the largest convex curve below the guarantee's bound B, and below the total variation
tau, that is its own reflection: docs/proofs/families.md, theorem 2. With P(L > l) = e^-y and Q(L > l) = e^-g(y) it has
B's tails for y >= y0, an atom at 0 with the rest, and losses below 0 mirror those above; y0 is the smallest y with
e^-y - e^-g(y) <= tau,  e^-y + e^-g(y) <= 1,  l >= 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, column, repeated, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import mechanism
from jaxacct._numerics.rounding import UNIT, total
from jaxacct.mechanisms.pairs.base import Edges, Pair, PerSetting, Runs, Survey, Tails, mirrored

_FAR = 690.0  # -log of the smallest probability of interest
_HALVINGS = 80
_POINTS = 192  # survey atoms a side
_NEWTON = 24


class CurvePair(Pair):
    """A symmetric pair of the module's docstring; subclasses know their tails for losses >= 0."""

    def _at(self, y: Array) -> tuple[Array, Array]:
        """The loss at which P's tail is e^-y, and -log of Q's tail there; y has the shape ``(..., edges)``."""
        raise NotImplementedError

    def _locate(self, losses: Array, start: Array) -> Array:
        """The y at ``losses`` >= 0, where it is at least ``start``; anything below ``start`` elsewhere."""
        raise NotImplementedError

    def _divergence(self) -> Array:
        """A bound on the Kullback-Leibler divergence."""
        raise NotImplementedError

    def _start(self) -> Array:
        """y0, to a few units; shape ``(..., 1)``."""
        divergence = column(self._divergence())
        # Pinsker; Bretagnolle and Huber 1979.
        variation = xp.minimum(xp.sqrt(0.5 * divergence), xp.sqrt(-xp.expm1(-divergence)))

        def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            low, high = bracket
            y = xp.sqrt(low) * xp.sqrt(high)
            loss, g = self._at(y)
            level = xp.exp(-y) * -xp.expm1(y - g)
            good = (level <= variation) & (xp.exp(-g) <= -xp.expm1(-y)) & (loss >= 0)
            return xp.where(good, low, y), xp.where(good, y, high)

        ends = (xp.full_like(divergence, 1e-300), xp.full_like(divergence, _FAR))
        return repeated(halve, ends, _HALVINGS)[1]

    def tails(self, losses: Edges) -> Tails:
        start = self._start()
        y = xp.maximum(self._locate(xp.abs(losses), start), start)
        _, g = self._at(y)
        p, q, not_p, not_q = xp.exp(-y), xp.exp(-g), -xp.expm1(-y), -xp.expm1(-g)
        poison = column(self._zero())
        error = UNIT * (256.0 + 16.0 * xp.minimum(g, 750.0)) + self._exponent_error(xp.abs(losses))
        return mirrored(Tails(p + poison, not_p + poison, q + poison, not_q + poison, error), losses < 0)

    def _exponent_error(self, losses: Array) -> Array:
        """Relative error of the tails beyond what is proportional to their logarithm."""
        return 0.0 * losses

    def survey(self) -> Survey:
        start = self._start()
        y = start + _FAR * (np.arange(_POINTS + 1) / _POINTS) ** 3
        _, g = self._at(y)
        loss, _ = self._at(0.5 * (y[..., 1:] + y[..., :-1]))
        cell = lambda x: xp.log(-xp.expm1(x[..., :-1] - x[..., 1:])) - x[..., :-1]  # noqa: E731
        rest = xp.log(xp.maximum(-xp.expm1(-start) - xp.exp(-g[..., :1]), 0.0))
        losses = xp.concatenate([-loss, xp.zeros_like(start), loss], -1)
        return Survey(losses, xp.concatenate([cell(g), rest, cell(y)], -1))


@mechanism
class ConcentratedPair(CurvePair):
    """The pair of rho-zCDP: B is the infimum over orders of the conversion from Rényi divergence.

    At eps = rho (2 a - 1) + log(1 - 1/a), P(L > eps) = exp(-rho (a - 1)^2) and Q(L > eps) = exp(-rho a^2).

    Attributes:
        rho: above 0; float64.
    """

    rho: Array

    def _at(self, y: Array) -> tuple[Array, Array]:
        """With a - 1 = b = sqrt(y / rho)."""
        rho = column(self.rho)
        b = xp.sqrt(y / rho)
        return rho * (1.0 + 2.0 * b) - log1p(1.0 / b), rho * (1.0 + b) ** 2

    def _locate(self, losses: Array, start: Array) -> Array:
        """Newton's method from the left on rho (1 + 2 b) - log(1 + 1 / b), which is increasing and concave in b."""
        rho = column(self.rho)
        floor = xp.sqrt(start / rho)

        def residual(b: Array) -> Array:
            return rho * (1.0 + 2.0 * b) - log1p(1.0 / b) - losses

        def newton(state: tuple[Array]) -> tuple[Array]:
            (b,) = state
            slope = 2.0 * rho + 1.0 / (b * (1.0 + b))
            return (xp.maximum(b - residual(b) / slope, floor),)

        # Left of the root, and within a factor of 2 of it where losses < rho: b e^(2 rho b) > e^(losses - rho), and
        # Lambert's W(x) >= log1p(x) / 2.
        near = log1p(2.0 * rho * xp.exp(xp.minimum(losses - rho, 0.0))) / (4.0 * rho)
        first = xp.maximum(xp.maximum((losses - rho) / (2.0 * rho), near), floor)
        (b,) = repeated(newton, (first,), _NEWTON)
        size = rho * (1.0 + 2.0 * b) + log1p(1.0 / b)
        solved = (xp.abs(residual(b)) <= 32.0 * UNIT * (size + losses)) | (b <= floor)
        return xp.where(solved, rho * b**2, np.nan)

    def _divergence(self) -> Array:
        return self.rho

    def log_moment(self, order: PerSetting) -> PerSetting:
        """That of every mechanism with the guarantee."""
        return (1.0 + 1e-12) * order * (order - 1.0) * self.rho

    def loss_error(self) -> PerSetting:
        """The residual that Newton's method may leave, at losses whose tails are float64 numbers."""
        reach = self.rho + 2.0 * xp.sqrt(_FAR * self.rho)
        return UNIT * 64.0 * (2.0 * reach + 1.0)


@mechanism
class RenyiPair(CurvePair):
    """The pair of a Rényi divergence of at most ``divergence`` at ``order``.

    P(L > eps) = a delta and Q(L > eps) = (a - 1) delta e^-eps with log(a delta) = (a - 1) (divergence - eps + log(1 -
    1/a)).

    Attributes:
        order: a > 1; float64.
        divergence: at least 0, in nats; float64.
    """

    order: Array
    divergence: Array

    def _at(self, y: Array) -> tuple[Array, Array]:
        a, divergence = column(self.order), column(self.divergence)
        shift = log1p(-1.0 / a)
        loss = divergence + shift + y / (a - 1.0)
        return loss, y + loss - shift

    def _locate(self, losses: Array, start: Array) -> Array:
        a, divergence = column(self.order), column(self.divergence)
        return (a - 1.0) * (losses - divergence - log1p(-1.0 / a))

    def _divergence(self) -> Array:
        return self.divergence + self._zero()

    def log_moment(self, order: PerSetting) -> PerSetting:
        """That of every mechanism with the guarantee, which says nothing of larger orders."""
        return xp.where(order <= self.order, (1.0 + 1e-12) * (order - 1.0) * self.divergence, np.inf)

    def _exponent_error(self, losses: Array) -> Array:
        a, divergence = column(self.order), column(self.divergence)
        return 16.0 * UNIT * a * (losses + divergence - log1p(-1.0 / a))

    def loss_error(self) -> PerSetting:
        """None: the tails are evaluated at the loss itself."""
        return self._zero()


def merged_curves(parts: Runs) -> Runs:
    """The (pair, count) list with all zCDP parts as one, and all Rényi parts of one order as one.

    Such parts stand for all of their runs (count 1). What happens between the runs of a part does not matter: the part
    is one mechanism that interacts with the analyst, keeps its guarantee against every interaction, and is composed
    concurrently with the rest (Vadhan, Zhang 2023, on concurrent composition).
    """
    kinds: dict[object, Runs] = {}
    for pair, count in parts:
        kinds.setdefault(_kind(pair), []).append((pair, count))
    return [(_whole([pair for pair, _ in kind]), kind[0][1]) for kind in kinds.values()]


def _kind(pair: Pair) -> object:
    """Equal for parts that are known to add up."""
    if isinstance(pair, RenyiPair):
        order = pair.order
        return id(order) if _validate.is_traced(order) else (np.shape(order), np.asarray(order).tobytes())
    return ConcentratedPair if isinstance(pair, ConcentratedPair) else id(pair)


def _whole(pairs: list[Any]) -> Pair:
    """One pair for all that add up; docs/proofs/parameters.md, lemma 7, for the rounding."""
    first, *others = pairs
    if not others:
        return first
    if isinstance(first, ConcentratedPair):
        return ConcentratedPair(total([pair.rho for pair in pairs]))
    return RenyiPair(first.order, total([pair.divergence for pair in pairs]))
