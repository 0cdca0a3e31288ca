"""Uncertified cumulants of the tilted loss of a (Poisson-sampled) Gaussian: they only choose where the contour lies."""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, shared
from jaxacct.losses.engines.contour.points import edges_of, exponent_at
from jaxacct.losses.engines.contour.taper import HALF_LOG_2PI
from jaxacct.mechanisms.pairs.gaussian import GaussianPair

_CELLS = (32, 8)  # equal ones, and others that are wider from one to the next


def rough_log_moment(pair: GaussianPair, theta: Array, cut: Array) -> Array:
    """K of the loss at tilt theta, certified by nothing: to choose by. inf where the cells are too wide."""
    return _rough_law(pair, theta, cut)[0]


def rough_cumulants(pair: GaussianPair, theta: Array, cut: Array) -> tuple[Array, Array, Array]:
    """K, K' and K'', as :func:`rough_log_moment`."""
    xp = array_module(theta)
    log_total, weights, loss, lost = _rough_law(pair, theta, cut)
    mean = (weights * loss).sum(-1)
    variance = (weights * (loss - mean[..., None]) ** 2).sum(-1)
    return log_total, xp.where(lost, np.inf, mean), variance


@shared
def _rough_law(pair: GaussianPair, theta: Array, cut: Array) -> tuple[Array, Array, Array, Array]:
    """K, the tilted law's weights and losses, and where the cells are too wide."""
    xp = array_module(theta)
    beta = exponent_at(pair.reverse, theta)
    t, u, taper = edges_of(pair, beta, cut, xp.full_like(beta, 32.0), _CELLS)
    q = pair.rate[..., None]
    small = q * (xp.exp(xp.minimum(u, 40.0)) - 1.0)  # expm1 and log1p would take most of the time
    series = small * (1.0 - small * (0.5 - small / 3.0))
    psi = xp.where(u > 40.0, xp.log(q) + u, xp.where(xp.abs(small) < 1e-3, series, xp.log(1.0 + small)))
    log_weight = -0.5 * t**2 + taper + beta[..., None] * psi
    top = log_weight.max(-1)
    widths = t[..., 1:] - t[..., :-1]
    none = xp.zeros_like(widths[..., :1])
    spans = 0.5 * (xp.concatenate([widths, none], -1) + xp.concatenate([none, widths], -1))
    weights = xp.exp(log_weight - top[..., None]) * spans
    total = weights.sum(-1)
    lost = weights[..., _CELLS[0] + 1 :].sum(-1) > 1e-3 * total
    log_total = xp.where(lost, np.inf, top + xp.log(total) - HALF_LOG_2PI)
    loss = xp.where(pair.reverse[..., None] > 0.5, -psi, psi)
    return log_total, weights / total[..., None], loss, lost
