"""Dominating pairs of guarantees that are only curves: zero-concentrated and Rényi differential privacy.

A bound B(gamma) on the hockey sticks of both directions of every pair of neighbours bounds them by the largest
convex curve U <= B that equals its own reflection 1 - gamma + gamma U(1 / gamma). U is the hockey stick of a pair (Zhu,
Dong, Wang 2022: which curves have pairs), which dominates the mechanism and may be composed with others (shown
there), and sampled, like any pair.

For both guarantees B has closed tails for losses l >= 0: with P(L > l) = e^-y, Q(L > l) is e^-g(y) and B = e^-y -
e^(l - g). Near gamma = 1 the curve B and its reflection need not meet in a convex way, and the total variation tau of
the guarantee may be less than B there. So U has B's tails for y >= y0 only, no mass at losses between 0 and that of y0,
and an atom at 0 with the rest; y0 is the smallest y whose tangent is at most tau at gamma = 1 and leaves a
non-negative rest:  e^-y - e^-g(y) <= tau,  e^-y + e^-g(y) <= 1,  l >= 0.  Losses below 0 mirror those above.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct import _validate
from jaxacct._log1p import log1p
from jaxacct._rounding import UNIT
from jaxacct.mechanisms._pair import Survey, Tails
from jaxacct.mechanisms._register import mechanism

__all__ = ["ConcentratedPair", "RenyiPair", "merged_curves"]

_FAR = 690.0  # -log of the smallest probability of interest
_HALVINGS = 80
_POINTS = 192  # survey atoms a side
_NEWTON = 24


class CurvePair:
    """A symmetric pair of the module's docstring; subclasses know their tails for losses >= 0."""

    def _at(self, y: Array) -> tuple[Array, Array]:
        """The loss at which P's tail is e^-y, and -log of Q's tail there."""
        raise NotImplementedError

    def _locate(self, losses: Array, start: Array) -> Array:
        """The y at ``losses`` >= 0, where it is at least ``start``; anything below ``start`` elsewhere."""
        raise NotImplementedError

    def _divergence(self) -> Array:
        """A bound on the Kullback-Leibler divergence."""
        raise NotImplementedError

    def _parameters(self) -> Array:
        """Any function of all parameters that is NaN if one of them is."""
        raise NotImplementedError

    def _start(self) -> Array:
        """y0, to a few units."""
        divergence = self._divergence()
        # Pinsker; Bretagnolle and Huber 1979.
        variation = jnp.minimum(jnp.sqrt(0.5 * divergence), jnp.sqrt(-jnp.expm1(-divergence)))

        def halve(bracket: tuple[Array, Array], _: None):
            low, high = bracket
            y = jnp.sqrt(low) * jnp.sqrt(high)
            loss, g = self._at(y)
            level = jnp.exp(-y) * -jnp.expm1(y - g)
            good = (level <= variation) & (jnp.exp(-g) <= -jnp.expm1(-y)) & (loss >= 0)
            return (jnp.where(good, low, y), jnp.where(good, y, high)), None

        ends = (jnp.full_like(divergence, 1e-300), jnp.full_like(divergence, _FAR))
        (_, y), _ = jax.lax.scan(halve, ends, None, length=_HALVINGS)
        return y

    def tails(self, losses: Array) -> Tails:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        start = self._start()
        y = jnp.maximum(self._locate(jnp.abs(losses), start), start)
        _, g = self._at(y)
        p, q, not_p, not_q = jnp.exp(-y), jnp.exp(-g), -jnp.expm1(-y), -jnp.expm1(-g)
        # Below 0, P(L <= l) = Q(L >= -l).
        mirrored = losses < 0
        poison = 0.0 * self._parameters()
        choose = lambda left, right: jnp.where(mirrored, left, right) + poison  # noqa: E731
        error = UNIT * (256.0 + 16.0 * jnp.minimum(g, 750.0)) + self._exponent_error(jnp.abs(losses))
        return Tails(choose(not_q, p), choose(q, not_p), choose(not_p, q), choose(p, not_q), error)

    def _exponent_error(self, losses: Array) -> Array:
        """Relative error of the tails beyond what is proportional to their logarithm."""
        return 0.0 * losses

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        start = self._start()
        y = start + _FAR * jnp.asarray((np.arange(_POINTS + 1) / _POINTS) ** 3)
        _, g = self._at(y)
        loss, _ = self._at(0.5 * (y[1:] + y[:-1]))
        cell = lambda x: jnp.log(-jnp.expm1(x[:-1] - x[1:])) - x[:-1]  # noqa: E731
        rest = jnp.maximum(-jnp.expm1(-start) - jnp.exp(-g[0]), 0.0)
        losses = jnp.concatenate([-loss, jnp.zeros(1), loss])
        return Survey(losses, jnp.concatenate([cell(g), jnp.log(rest)[None], cell(y)]))

    def max_loss(self) -> Array:
        """None."""
        return jnp.full_like(self._parameters(), jnp.inf)

    def infinity(self) -> Array:
        """None: the curve falls to 0."""
        return jnp.zeros_like(self._parameters())

    def anchors(self) -> tuple[Array, Array]:
        """The atom at 0."""
        zero = jnp.zeros_like(self._parameters())
        return zero, zero


@mechanism
class ConcentratedPair(CurvePair):
    """The pair of rho-zCDP: B is the infimum over orders of the conversion from Rényi divergence.

    At order a, D_a <= a rho implies delta <= exp((a - 1) (a rho - eps + log(1 - 1/a))) / a (Canonne, Kamath, Steinke
    2020, Proposition 12). The infimum over a is at eps = rho (2 a - 1) + log(1 - 1/a), where delta = exp(-rho (a -
    1)^2) / a; its slope in gamma makes Q(L > eps) = exp(-rho a^2) and P(L > eps) = exp(-rho (a - 1)^2), which fall
    in a: this infimum is convex already. (N(0, 1)'s tails in place of the exponentials would be the Gaussian's.)

    Attributes:
        rho: > 0; scalar float64.
    """

    rho: Any

    def _at(self, y: Array) -> tuple[Array, Array]:
        """With a - 1 = b = sqrt(y / rho)."""
        rho = jnp.asarray(self.rho)
        b = jnp.sqrt(y / rho)
        return rho * (1.0 + 2.0 * b) - log1p(1.0 / b), rho * (1.0 + b) ** 2

    def _locate(self, losses: Array, start: Array) -> Array:
        """Newton's method from the left on rho (1 + 2 b) - log(1 + 1 / b), which is increasing and concave in b."""
        rho = jnp.asarray(self.rho)
        floor = jnp.sqrt(start / rho)

        def residual(b: Array) -> Array:
            return rho * (1.0 + 2.0 * b) - log1p(1.0 / b) - losses

        def newton(b: Array, _: None):
            slope = 2.0 * rho + 1.0 / (b * (1.0 + b))
            return jnp.maximum(b - residual(b) / slope, floor), None

        # Left of the root, and within a factor of 2 of it where losses < rho: b e^(2 rho b) > e^(losses - rho), and
        # Lambert's W(x) >= log1p(x) / 2.
        near = log1p(2.0 * rho * jnp.exp(jnp.minimum(losses - rho, 0.0))) / (4.0 * rho)
        first = jnp.maximum(jnp.maximum((losses - rho) / (2.0 * rho), near), floor)
        b, _ = jax.lax.scan(newton, first, None, length=_NEWTON)
        size = rho * (1.0 + 2.0 * b) + log1p(1.0 / b)
        solved = (jnp.abs(residual(b)) <= 32.0 * UNIT * (size + losses)) | (b <= floor)
        return jnp.where(solved, rho * b**2, jnp.nan)

    def _divergence(self) -> Array:
        return jnp.asarray(self.rho)

    def _parameters(self) -> Array:
        return jnp.asarray(self.rho)

    def loss_error(self) -> Array:
        """The residual that Newton's method may leave, at losses whose tails are float64 numbers."""
        rho = jnp.asarray(self.rho)
        reach = rho + 2.0 * jnp.sqrt(_FAR * rho)
        return UNIT * 64.0 * (2.0 * reach + 1.0)


@mechanism
class RenyiPair(CurvePair):
    """The pair of a Rényi divergence of at most ``divergence`` at ``order``.

    delta <= exp((a - 1) (divergence - eps + log(1 - 1/a))) / a (Canonne, Kamath, Steinke 2020, Proposition 12) is a
    power of gamma, convex, with P(L > eps) = a delta and Q(L > eps) = (a - 1) delta e^-eps.

    Attributes:
        order: a > 1; scalar float64.
        divergence: >= 0, in nats; scalar float64.
    """

    order: Any
    divergence: Any

    def _at(self, y: Array) -> tuple[Array, Array]:
        a, shift = jnp.asarray(self.order), log1p(-1.0 / jnp.asarray(self.order))
        loss = jnp.asarray(self.divergence) + shift + y / (a - 1.0)
        return loss, y + loss - shift

    def _locate(self, losses: Array, start: Array) -> Array:
        a = jnp.asarray(self.order)
        return (a - 1.0) * (losses - jnp.asarray(self.divergence) - log1p(-1.0 / a))

    def _divergence(self) -> Array:
        return jnp.asarray(self.divergence) + 0.0 * self._parameters()

    def _parameters(self) -> Array:
        return jnp.asarray(self.order) + jnp.asarray(self.divergence)

    def _exponent_error(self, losses: Array) -> Array:
        a = jnp.asarray(self.order)
        size = losses + jnp.asarray(self.divergence) - log1p(-1.0 / a)
        return 8.0 * UNIT * a * size

    def loss_error(self) -> Array:
        """None: the tails are evaluated at the loss itself."""
        return 0.0 * self._parameters()


def merged_curves(parts: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """The (pair, count) list with all zCDP parts as one, and all Rényi parts of one order as one.

    Such parts stand for all of their runs (count 1). What happens between the runs of a part does not matter: the part
    is one mechanism that interacts with the analyst, keeps its guarantee against every interaction, and is composed
    concurrently with the rest (Vadhan, Zhang 2023, on concurrent composition).
    """
    found: list[tuple[Any, Any]] = []
    for pair, count in parts:
        for i, (other, _) in enumerate(found):
            if isinstance(pair, ConcentratedPair) and isinstance(other, ConcentratedPair):
                found[i] = (ConcentratedPair(other.rho + pair.rho), count)
                break
            if isinstance(pair, RenyiPair) and isinstance(other, RenyiPair) and _same(pair.order, other.order):
                found[i] = (RenyiPair(pair.order, other.divergence + pair.divergence), count)
                break
        else:
            found.append((pair, count))
    return found


def _same(first: Any, second: Any) -> bool:
    """Whether two orders are known to be equal."""
    if first is second:
        return True
    return not _validate.is_traced((first, second)) and np.array_equal(first, second)
