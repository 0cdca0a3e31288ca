"""Where a curve stands among Gaussians: G_mu itself, and the two mu between which a curve lies."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr, ndtri
from jax.typing import ArrayLike

from jaxacct import _host, _validate
from jaxacct._host import floats, hosted
from jaxacct._least import first_greatest
from jaxacct._rounding import EPS, deflated, inflated
from jaxacct.losses import conversions, families
from jaxacct.losses.gdp_curve import gdp_delta
from jaxacct.losses.grid import LossGrid
from jaxacct.losses.profile import PrivacyProfile
from jaxacct.losses.tradeoff import TradeOff, arrays, padded
from jaxacct.mechanisms._dominating import directions
from jaxacct.mechanisms._gaussian_pair import GaussianPair

__all__ = ["MuRange", "gaussian_trade_off", "mu_of"]

_CUTS = 40  # rounds of cutting planes; 3 to 6 do
_QUANTILE = 1e-14  # ndtri was measured at 4.4e-16 (1 + |z|) against 40 digits; ndtr at 2.4e-16 (1 + z^2)


class MuRange(NamedTuple):
    """``dominated <= dominating``: G_dominated <= curve <= G_dominating in the Blackwell order.

    Attributes:
        dominated: the largest mu found whose G_mu the curve dominates, rounded down.
        dominating: the smallest mu found whose G_mu dominates the curve, rounded up; inf if there is none.
    """

    dominated: Any
    dominating: Any


@jax.enable_x64(True)
def gaussian_trade_off(mu: ArrayLike, alpha: ArrayLike, bound: str = "lower") -> Array:
    """G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu), rounded to the side of ``bound``.

    Dong, Roth, Su 2022, Definition 2.6.

    Args:
        mu: >= 0, any shape.
        alpha: in [0, 1], broadcasts with ``mu``.
        bound: ``"lower"`` or ``"upper"``.

    Raises:
        ValueError: a concrete value out of range, or an unknown bound. Traced ones give 0 (lower) or 1 - alpha.
    """
    _validate.nonnegative(mu=mu)
    _validate.rate(alpha=alpha)
    _validate.one_of(("lower", "upper"), bound=bound)
    return conversions.concrete(_gaussian(jnp.asarray(mu, jnp.float64), jnp.asarray(alpha, jnp.float64), bound))


@functools.partial(jax.jit, static_argnames="bound")
def _gaussian(mu: Array, alpha: Array, bound: str) -> Array:
    sign = -1.0 if bound == "lower" else 1.0
    mu, alpha = jnp.broadcast_arrays(mu, alpha)
    good = (mu >= 0) & (mu < jnp.inf) & (alpha >= 0) & (alpha <= 1)
    z = -ndtri(jnp.where(good, alpha, 0.5))
    z = z + sign * _QUANTILE * (1.0 + jnp.abs(z) + mu) - mu
    value = inflated(ndtr(z), sign * 4.0 * EPS * (2.0 + jnp.where(jnp.isfinite(z), z * z, 0.0)))
    value = value + (1e-307 if bound == "upper" else -1e-307)
    # At the ends f is 1 and 0 whatever mu is.
    value = jnp.where(alpha == 0, 1.0, jnp.where(alpha == 1, 0.0, value))
    return jnp.where(good, jnp.clip(value, 0.0, 1.0 - alpha), 0.0 if bound == "lower" else 1.0 - alpha)


def mu_of(curve: Any, *, delta: float = 0.0, relation: str = "add_or_remove", grid: LossGrid | None = None) -> MuRange:
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
    with jax.enable_x64(True):
        if not families.is_curve(curve):
            exact = _exactly(curve, relation)
            if exact is not None:
                return exact
        if isinstance(curve, TradeOff):
            widths, drops = padded(curve)
            both = (widths > 0) & (drops > 0)
            losses = jnp.where(both, jnp.log(jnp.where(both, widths / jnp.where(both, drops, 1.0), 1.0)), 0.0)
            if losses.ndim > 1:
                raise ValueError(f"a TradeOff must have no batch axes here, got shape {losses.shape}")
            low, _ = families.excess_of_segments(widths, drops, losses)
            leaky = TradeOff(widths, drops, "lower")
        else:
            common = families.common_grid([curve], relation, grid)
            enclosed = families.enclose(curve, common, relation)
            losses, low = jnp.asarray(common.losses), enclosed.line
            leaky = TradeOff.from_profile(PrivacyProfile(enclosed.upper, common, "upper"))
        above = _dominating(*arrays(leaky), jnp.asarray(delta, jnp.float64))
        below = _dominated(losses, low, jnp.asarray(delta, jnp.float64))
        return conversions.concrete(MuRange(below, above))


def _exactly(mechanism: Any, relation: str) -> MuRange | None:
    """mu of a mechanism that is one Gaussian."""
    sides = directions(mechanism, relation)
    if len(sides) != 1 or len(sides[0]) != 1 or not isinstance(sides[0][0][0], GaussianPair):
        return None
    pair, count = sides[0][0]
    if _validate.is_traced((pair, count)) or not (np.all(np.asarray(count) == 1) and np.all(pair.rate == 1)):
        return None
    mu = 1.0 / np.asarray(pair.noise)
    return MuRange(deflated(mu, 2.0**-50), inflated(mu, 2.0**-50))


@hosted
def _dominating(widths: Array, drops: Array, delta: Array) -> Array:
    xp, widths, drops, delta = floats(widths, drops, delta)
    n = widths.shape[-1]
    up, down = 1.0 + 4.0 * n * EPS, 1.0 - 4.0 * n * EPS
    # Vertices between segments; those among the steep ones from the left, the others from the right.
    steep = drops > widths
    kept = 1.0 - delta

    def quantile(x: Array, side: float) -> Array:
        z = _host.ndtri(xp.clip(x, 0.0, 1.0))
        return z + side * _QUANTILE * (1.0 + xp.abs(z))

    def need(small: Array, other: Array) -> Array:
        """mu that a vertex asks for; `small` is 1 - beta and `other` alpha, or 1 - alpha and beta."""
        left = (small * up - delta) / kept
        mu = quantile(left, 1.0) - quantile(other * down / kept, -1.0)
        # Nothing left after delta: the vertex is the approximate curve's own atom.
        return xp.where((small * up <= delta) | (other * down >= kept), -np.inf, mu)

    both = xp.stack([widths, drops])
    p, q, p_rest, q_rest = xp.cumsum(xp.concatenate([both, xp.flip(both, -1)]), -1)
    p_rest, q_rest = xp.flip(p_rest, -1), xp.flip(q_rest, -1)
    found = need(*_host.barrier((xp.where(steep, q, p_rest), xp.where(steep, p, q_rest))))
    return xp.maximum(xp.where(steep | (widths + drops > 0), found, -np.inf).max(-1), 0.0)


def _dominated(losses: Array, low: Array, delta: Array) -> Array:
    found = jax.lax.map(lambda row: _dominated_one(losses, row, delta), low.reshape(-1, low.shape[-1]))
    return found.reshape(low.shape[:-1])


@jax.jit
def _dominated_one(losses: Array, low: Array, delta: Array) -> Array:
    # As H at |loss| of the pair or of the reversed one: G_mu is symmetric.
    gamma = jnp.exp(jnp.minimum(losses, 0.0))
    height = deflated(delta + deflated((1.0 - delta) * low / gamma, 8.0 * EPS * (1.0 + jnp.abs(losses))), 4.0 * EPS)
    at = jnp.abs(losses)
    highest = 2.0 * ndtri(0.5 + 0.5 * jnp.minimum(height.min(), 1.0 - 1e-16)) + 60.0

    def certain(mu: Array) -> Array:
        return gdp_delta(mu, at) / height

    # Cutting planes: solve at the worst node alone, look at all of them, go on with the new worst one. The result is a
    # mu at which every node was checked with a rounded-up H_mu.
    def cut(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        mu, ratios, rounds = state
        worst = first_greatest(ratios)

        def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
            below, above = bracket
            middle = 0.5 * (below + above)
            good = gdp_delta(middle, at[worst]) <= height[worst]
            return jnp.where(good, middle, below), jnp.where(good, above, middle)

        mu, _ = jax.lax.fori_loop(0, 54, halve, (jnp.zeros_like(mu), mu))
        return mu, certain(mu), rounds + 1

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        _, ratios, rounds = state
        return (jnp.max(ratios) > 1.0) & (rounds < _CUTS)

    start = (highest, certain(highest), jnp.zeros((), jnp.int32))
    mu, ratios, _ = jax.lax.while_loop(unfinished, cut, start)
    # NaN compares as not certain.
    return jnp.where(jnp.max(ratios) <= 1.0, mu, 0.0)
