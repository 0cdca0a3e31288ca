"""Moments of the privacy loss under P and Q, by sums or quadrature, and Theorem 4.1's approximations.

For sampled Gaussians, with x = P / Q - 1, the means are integrals of functions that are never negative, so that a rate
of 1e-8 costs no digits:

    E_P[L] = E_Q[(1 + x) log(1 + x) - x],        -E_Q[L] = E_Q[x - log(1 + x)].

Neither the quadrature nor the approximations are bounds. The quadrature agrees with 30-digit integration to about
1e-11; the approximations are as good as Theorem 4.1's regime, which :func:`approximate_moments` says beside them.

Of other mechanisms the outcomes are summed where they are finitely many. Else the dominating pair's own quadrature of
the loss under P (what the engine plans its grids with) is used, and that of the reversed pair for Q: checked against
closed forms and integrals in the tests, certified for none.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, array_module
from jaxacct._numerics.curve_arrays import compiled, concrete, float64, mapped, quiet_float64
from jaxacct._numerics.log1p import log1p
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import ONE_SIDED, REVERSED, directions
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.table import Tabulated

__all__ = ["Approximation", "Moments", "approximate_moments", "loss_moments"]

_PANELS = 48
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_REACH = 12.0  # standard deviations: what lies beyond is below 1e-30 of any moment
_LARGEST = 600.0  # exponents up to which exp is a number
_LEAST_NOISE = 0.02


class Moments(NamedTuple):
    """Of L = log dP/dQ for one run: mean, variance and third absolute central moment, under P and under Q."""

    mean_p: Array
    mean_q: Array
    variance_p: Array
    variance_q: Array
    third_p: Real
    third_q: Real


class Approximation(NamedTuple):
    """``moments`` as a theorem approximates them, and ``relative_error`` = approximation / quadrature - 1 of each."""

    moments: Moments
    relative_error: Moments


def loss_moments(mechanism: Mechanism, *, relation: str = "remove") -> Moments:
    """Privacy-loss moments of one run of a mechanism.

    Args:
        mechanism: a Gaussian, Poisson-sampled or not, with parameters of any shape and noise multipliers of at least
            0.02 (Gauss-Legendre quadrature); or any other mechanism with scalar parameters, whose dominating pair it
            is then that the moments are of.
        relation: ``"remove"``, ``"add"``, ``"replace"``, ``"zero_out"`` or ``"fill_in"``.

    Returns:
        :class:`Moments` of the broadcast shape, float64, no bounds; NaN for bad traced values. Where the loss is
        infinite with positive probability its moments are infinite.

    Raises:
        ValueError: a composition of several runs, ``"add_or_remove"``, a Gaussian with a rate of 0 or a noise below
            0.02, another mechanism with a batch of parameters.
    """
    _validate.one_of(ONE_SIDED, relation=relation)
    with quiet_float64():
        pair = _one_pair(mechanism, relation)
        if not isinstance(pair, GaussianPair):
            # Pairs of neighbours that are replaced go either way.
            return concrete(_by_atoms(pair, _one_pair(mechanism, REVERSED.get(relation, relation))))
        if not _validate.is_traced(pair):
            _validate.at_least(_LEAST_NOISE, noise_multiplier=pair.noise)
        shape = np.broadcast_shapes(*(np.shape(leaf) for leaf in jax.tree.leaves(pair)))
        xp = array_module(pair)
        flat = jax.tree.map(lambda x: xp.broadcast_to(float64(x), shape).reshape(-1), pair)
        found = _moments(flat.noise, flat.rate, flat.reverse)
        return concrete(jax.tree.map(lambda x: x.reshape(shape), found))


def approximate_moments(mechanism: Mechanism, regime: str) -> Approximation:
    """Theorem 4.1 of the paper on f-DP filters: moments to leading order, and how far off each of them is.

    With mu = 1 / noise and q the rate: ``"small"`` rates have mean q^2 (e^(mu^2) - 1) / 2, ``"large"`` ones
    q^2 mu^2 / 2; variances are twice that. Third moments are Theorem F.1's and F.2's leading bounds,
    q^3 (e^(3 mu^2) + 3 e^(mu^2) + 4) and (2 - q^3) sqrt(8 / pi) mu^3. (F.1 prints + 1; the proof's own
    E[(e^y + 1)^3] has + 4.) They say how large rho in Theorem 4.2 may be and are no approximations.

    Args:
        mechanism: see :func:`loss_moments`; relation `remove`, as in the theorem.
        regime: ``"small"`` or ``"large"``.

    Raises:
        ValueError: an unknown regime, or see :func:`loss_moments`.
    """
    _validate.one_of(("small", "large"), regime=regime)
    exact = loss_moments(mechanism)
    with quiet_float64():
        pair = _one_pair(mechanism, "remove")
        if not isinstance(pair, GaussianPair):
            raise ValueError(f"mechanism must be one run of a Gaussian, sampled or not, got {type(mechanism).__name__}")
        mu, q = 1.0 / float64(pair.noise), float64(pair.rate)
        xp = array_module(mu, q)
        if regime == "small":
            second = q**2 * xp.expm1(mu**2)
            third = q**3 * (xp.exp(3.0 * mu**2) + 3.0 * xp.exp(mu**2) + 4.0)
        else:
            second = q**2 * mu**2
            third = (2.0 - q**3) * (8.0 / np.pi) ** 0.5 * mu**3
        second, third = (xp.broadcast_to(x, np.shape(exact.mean_p)) for x in (second, third))
        values = Moments(second / 2, -second / 2, second, second, third, third)
        return concrete(Approximation(values, jax.tree.map(lambda a, b: a / b - 1.0, values, exact)))


def _one_pair(mechanism: Mechanism, relation: str) -> Pair:
    (parts,) = directions(mechanism, relation)
    if len(parts) != 1:
        raise ValueError(f"mechanism must be one run, got {len(parts)} different ones; means and variances add up")
    pair, count = parts[0]
    if not _validate.is_traced(count) and np.any(np.asarray(count) != 1):
        raise ValueError(f"mechanism must be one run, got {np.max(np.asarray(count)):g} steps; moments of runs add up")
    return pair


def _by_atoms(pair: Pair, reverse: Pair) -> Moments:
    """Moments of a pair from its atoms, and under Q those of the reversed pair's with the loss's sign turned."""
    if any(np.ndim(one.infinity()) for one in (pair, reverse)):
        raise ValueError("mechanism must have scalar parameters, but for Gaussians, got a batch of them")
    (mean_p, variance_p, third_p), (mean_q, variance_q, third_q) = (_of_atoms(one) for one in (pair, reverse))
    return Moments(mean_p, -mean_q, variance_p, variance_q, third_p, third_q)


def _of_atoms(pair: Pair) -> tuple[Array, Array, Array]:
    xp = array_module(pair)
    pair = jax.tree.map(float64, pair)
    if isinstance(pair, Tabulated):
        atoms = pair.atoms()
        losses, masses = xp.asarray(atoms.losses), xp.asarray(atoms.p)
    else:
        losses, masses = (xp.asarray(x) for x in pair.survey())
        masses = xp.exp(masses)
    seen = (masses > 0) & xp.isfinite(losses)
    losses, masses = xp.where(seen, losses, 0.0), xp.where(seen, masses, 0.0)
    masses = masses / masses.sum()
    mean = xp.sum(masses * losses)
    away = xp.abs(losses - mean)
    found = mean, xp.sum(masses * away**2), xp.sum(masses * away**3)
    never = xp.asarray(pair.infinity()) > 0
    return tuple(xp.where(never, np.inf, x) for x in found)  # pyright: ignore[reportReturnType]


@compiled()
def _moments(noise: Array, rate: Array, reverse: Array) -> Moments:
    found = mapped(lambda each: _some(*each), (noise, rate), 64)
    # The reverse pair exchanges P and Q and turns the loss's sign.
    swapped = Moments(-found.mean_q, -found.mean_p, found.variance_q, found.variance_p, found.third_q, found.third_p)
    xp = array_module(noise, rate, reverse)
    return jax.tree.map(lambda a, b: xp.where(reverse > 0.5, b, a), found, swapped)


def _some(noise: Array, rate: Array) -> Moments:
    """Of some settings, shape ``(k,)``; nodes of the quadrature are the second axis."""
    xp = array_module(noise, rate)
    mu, rate = 1.0 / noise[:, None], rate[:, None]
    # Under Q the outcome is z ~ N(0, 1); moments of P / Q - 1 reach out to 3 mu before the logarithm tames them.
    start, end = -_REACH, _REACH + 3.0 * mu
    panels = np.arange(_PANELS) / _PANELS

    def nodes(split: Array) -> tuple[Array, Array]:
        """Gauss-Legendre nodes and weights on panels on both sides of ``split``, where an integrand has a kink."""
        middle = xp.clip(split, start, end)
        edges = xp.concatenate([start + (middle - start) * panels, middle + (end - middle) * _EDGES], -1)
        half = 0.5 * xp.diff(edges, axis=-1)[..., None]
        z = edges[:, :-1, None] + half * (1.0 + _NODES)
        return z.reshape(z.shape[0], -1), (half * _WEIGHTS).reshape(z.shape[0], -1)

    def densities(z: Array) -> tuple[Array, Array, Array, Array]:
        q_density = xp.exp(-0.5 * z**2) / (2.0 * np.pi) ** 0.5
        p_density = (1.0 - rate) * q_density + rate * xp.exp(-0.5 * (z - mu) ** 2) / (2.0 * np.pi) ** 0.5
        y = z * mu - 0.5 * mu**2
        x = rate * xp.expm1(xp.minimum(y, _LARGEST))
        far = xp.logaddexp(log1p(-rate), xp.log(rate) + y)
        # log1p keeps small losses, the sum of exponentials those where 1 + x has lost its digits.
        lost = (y > 30.0) | (x < -0.5)
        return p_density, q_density, x, xp.where(lost, far, log1p(xp.where(lost, 0.0, x)))

    z, weights = nodes(0.5 * mu)
    p, q, x, loss = densities(z)
    near = xp.abs(x) < 0.02
    small = xp.where(near, x, 0.0)
    series_p = small**2 * sum((-small) ** k / ((k + 1) * (k + 2)) for k in range(8))
    series_q = small**2 * sum((-small) ** k / (k + 2) for k in range(8))
    mean_p = xp.sum(weights * xp.where(near, q * series_p, p * loss - (p - q)), -1)
    mean_q = -xp.sum(weights * xp.where(near, q * series_q, (p - q) - q * loss), -1)

    def central(mean: Array, under_p: bool) -> tuple[Array, Array]:
        mean = mean[:, None]
        # Where the loss is its mean; near its floor log(1 - rate) from e^mean - (1 - rate) itself.
        ratio = xp.expm1(mean) / rate
        deep = xp.log(xp.maximum(xp.exp(mean) - (1.0 - rate), 1e-300)) - xp.log(rate)
        kink = xp.where(ratio > -0.5, log1p(xp.maximum(ratio, -0.5)), deep)
        z, weights = nodes((kink + 0.5 * mu**2) / mu)
        p, q, _, loss = densities(z)
        density, away = weights * (p if under_p else q), xp.abs(loss - mean)
        return xp.sum(density * away**2, -1), xp.sum(density * away**3, -1)

    variance_p, third_p = central(mean_p, True)
    variance_q, third_q = central(mean_q, False)
    return Moments(mean_p, mean_q, variance_p, variance_q, third_p, third_q)


_EDGES = np.arange(_PANELS + 1) / _PANELS
