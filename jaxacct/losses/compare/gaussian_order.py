"""`mu_of`: the two Gaussians between which a curve lies."""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

import jax
import numpy as np
import scipy.special
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, array_module, iterated, repeated, xp
from jaxacct._numerics.curve_arrays import as_arrays, beside, compiled, float64, quiet_float64, rows
from jaxacct._numerics.least import first_greatest
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct._printing import plainly
from jaxacct.losses.compare import enclose as families
from jaxacct.losses.compare.enclose import Curve, Member
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff, arrays, padded
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_delta

__all__ = ["MuRange", "gaussian_trade_off", "mu_of"]

_CUTS = 40  # rounds of cutting planes; 3 to 6 do
# JAX's and SciPy's ndtri were measured at 4.4e-16 (1 + |z|) against 40 digits; ndtr at 2.4e-16 (1 + z^2).
_QUANTILE = 1e-14


class MuRange(NamedTuple):
    """``dominated <= dominating``: G_dominated <= curve <= G_dominating in the Blackwell order.

    Attributes:
        dominated: the largest mu found whose G_mu the curve dominates, rounded down.
        dominating: the smallest mu found whose G_mu dominates the curve, rounded up; inf if there is none.
    """

    dominated: Array
    dominating: Array

    def __repr__(self) -> str:
        return plainly(self, self._fields)


def gaussian_trade_off(mu: ArrayLike, alpha: ArrayLike, bound: str = "lower") -> Array:
    """G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu), rounded to the side of ``bound``.

    Dong, Roth, Su 2022, Definition 2.6.

    Args:
        mu: at least 0, any shape.
        alpha: in [0, 1], broadcasts with ``mu``.
        bound: ``"lower"`` or ``"upper"``.

    Raises:
        ValueError: a as_arrays value out of range, or an unknown bound. Traced ones give 0 (lower) or 1 - alpha.
    """
    _validate.nonnegative(mu=mu)
    _validate.rate(alpha=alpha)
    _validate.one_of(("lower", "upper"), bound=bound)
    with quiet_float64():
        return as_arrays(_gaussian(float64(mu), float64(alpha), bound))


def _normal(x: Array) -> ModuleType:
    """Where ``ndtr`` and ``ndtri`` of ``x`` live."""
    return scipy.special if array_module(x) is np else jax.scipy.special


@compiled("bound")
def _gaussian(mu: Array, alpha: Array, bound: str) -> Array:
    sign = -1.0 if bound == "lower" else 1.0
    mu, alpha = xp.broadcast_arrays(mu, alpha)
    good = (mu >= 0) & (mu < np.inf) & (alpha >= 0) & (alpha <= 1)
    z = xp.where(good, alpha, 0.5)
    z = -_normal(z).ndtri(z)
    z = z + sign * _QUANTILE * (1.0 + xp.abs(z) + mu) - mu
    value = inflated(_normal(z).ndtr(z), sign * 4.0 * EPS * (2.0 + xp.where(xp.isfinite(z), z * z, 0.0)))
    value = value + (1e-307 if bound == "upper" else -1e-307)
    # At the ends f is 1 and 0 whatever mu is.
    value = xp.where(alpha == 0, 1.0, xp.where(alpha == 1, 0.0, value))
    return xp.where(good, xp.clip(value, 0.0, 1.0 - alpha), 0.0 if bound == "lower" else 1.0 - alpha)


def mu_of(
    curve: Member, *, delta: float = 0.0, relation: str = "add_or_remove", grid: LossGrid | None = None
) -> MuRange:
    """The Gaussians between which a curve lies: the largest mu it dominates and the smallest that dominates it.

    *From above.* f - G_mu is concave on each segment of f, so L <= G_mu is decided at the vertices (alpha, beta) of f:
    mu >= max Phi^-1(1 - alpha) - Phi^-1(beta), with both tails as sums of their own. *From below.* H - H_mu is concave
    between the nodes of H, so it is decided at the nodes.

    A curve on a grid has an atom at infinity, if only of 1e-17, which no G_mu dominates, and from below it has none,
    so that it dominates no G_mu. ``delta`` compares with and without an atom of that size: G_mu with (0, delta) added
    dominates the curve (H <= delta + (1 - delta) H_mu: (mu, delta)-approximate GDP), and the curve with (0, delta)
    added dominates G_mu. With 0, the default, the answer is for mu-GDP itself.

    Args:
        curve: a curve or a mechanism. A curve is taken at its word. Gaussians are answered exactly.
        delta: the mass that is set aside, >= 0, below 1.
        relation: for mechanisms.
        grid: for mechanisms.

    Raises:
        ValueError: a delta outside [0, 1), a grid or relation that does not fit.
    """
    _validate.rate(delta=delta)
    if not delta < 1:
        raise ValueError(f"delta must be below 1, got {delta:g}")
    with quiet_float64():
        if not isinstance(curve, Curve):
            exact = _exactly(curve, relation)
            if exact is not None:
                return as_arrays(beside(exact, curve))
        if isinstance(curve, TradeOff):
            widths, drops = padded(curve)
            both = (widths > 0) & (drops > 0)
            losses = xp.where(both, xp.log(xp.where(both, widths / xp.where(both, drops, 1.0), 1.0)), 0.0)
            if losses.ndim > 1:
                raise ValueError(f"a TradeOff must have no batch axes here, got shape {losses.shape}")
            low, _ = families.excess_of_segments(widths, drops, losses)
            leaky = unchecked(TradeOff, widths=widths, drops=drops, bound="lower")
        else:
            common = families.common_grid([curve], relation, grid)
            enclosed = families.enclose(curve, common, relation)
            losses, low = common.losses, enclosed.line
            upper = unchecked(PrivacyProfile, excess=enclosed.upper, grid=common, bound="upper")
            leaky = TradeOff.from_profile(upper)
        above = dominating_mu(*arrays(leaky), float64(delta))
        below = rows(lambda row: _dominated(losses, row, float64(delta)), low)
        return as_arrays(MuRange(below, above))


def _exactly(mechanism: Mechanism, relation: str) -> MuRange | None:
    """mu of a mechanism that is one Gaussian."""
    sides = directions(mechanism, relation)
    if len(sides) != 1 or len(sides[0]) != 1 or not isinstance(sides[0][0][0], GaussianPair):
        return None
    pair, count = sides[0][0]
    if _validate.is_traced((pair, count)) or not (np.all(np.asarray(count) == 1) and np.all(pair.rate == 1)):
        return None
    mu = 1.0 / np.asarray(pair.noise)
    return MuRange(deflated(mu, 2.0**-50), inflated(mu, 2.0**-50))


@compiled()
def dominating_mu(widths: Array, drops: Array, delta: Real, error: Real = 0.0, side: Real = 1.0) -> Array:
    """The least mu whose curve, with ``delta`` aside, dominates a trade-off curve; rounded up, or down with side -1.

    Widths and drops are off by a relative ``error`` at most.
    """
    n = widths.shape[-1]
    off = side * (error + 4.0 * n * EPS)
    up, down = 1.0 + off, 1.0 - off
    # Vertices between segments; those among the steep ones from the left, the others from the right.
    steep = drops > widths
    kept = 1.0 - delta

    def quantile(x: Array, side: Real) -> Array:
        z = _normal(x).ndtri(xp.clip(x, 0.0, 1.0))
        return z + side * _QUANTILE * (1.0 + xp.abs(z))

    def need(small: Array, other: Array) -> Array:
        """mu that a vertex asks for; `small` is 1 - beta and `other` alpha, or 1 - alpha and beta."""
        left = (small * up - delta) / kept
        mu = quantile(left, side) - quantile(other * down / kept, -side)
        # Nothing left after delta: the vertex is the approximate curve's own atom.
        return xp.where((small * up <= delta) | (other * down >= kept), -np.inf, mu)

    both = xp.stack([widths, drops])
    p, q, p_rest, q_rest = xp.cumsum(xp.concatenate([both, xp.flip(both, -1)]), -1)
    p_rest, q_rest = xp.flip(p_rest, -1), xp.flip(q_rest, -1)
    sums = xp.where(steep, q, p_rest), xp.where(steep, p, q_rest)
    found = need(*(sums if array_module(widths, drops, delta) is np else jax.lax.optimization_barrier(sums)))
    return xp.maximum(xp.max(xp.where(steep | (widths + drops > 0), found, -np.inf), -1), 0.0)


@compiled()
def _dominated(losses: Array, low: Array, delta: Array) -> Array:
    # As H at |loss| of the pair or of the reversed one: G_mu is symmetric.
    gamma = xp.exp(xp.minimum(losses, 0.0))
    height = deflated(delta + deflated((1.0 - delta) * low / gamma, 8.0 * EPS * (1.0 + xp.abs(losses))), 4.0 * EPS)
    at = xp.abs(losses)
    highest = 2.0 * _normal(height).ndtri(0.5 + 0.5 * xp.minimum(height.min(), 1.0 - 1e-16)) + 60.0
    if array_module(losses, low, delta) is np and np.isnan(highest):
        return np.zeros(())

    def certain(mu: Array) -> Array:
        return gdp_delta(mu, at) / height

    # Cutting planes: solve at the worst node alone, look at all of them, go on with the new worst one.
    def cut(state: tuple[Array, Array]) -> tuple[Array, Array]:
        mu, ratios = state
        worst = first_greatest(ratios)
        there, most = at[worst], height[worst]

        def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            below, above = bracket
            middle = 0.5 * (below + above)
            good = gdp_delta(middle, there) <= most
            return xp.where(good, middle, below), xp.where(good, above, middle)

        mu, _ = repeated(halve, (xp.zeros_like(mu), mu), 54)
        return mu, certain(mu)

    mu, ratios = iterated(cut, (highest, certain(highest)), lambda state: ~(xp.max(state[1]) > 1.0), _CUTS)
    # NaN compares as not certain.
    return xp.where(xp.max(ratios) <= 1.0, mu, 0.0)
