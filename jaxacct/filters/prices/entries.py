"""`gaussian_menu`: menus of sampled Gaussians, and how a query is matched to an entry."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.filters import amounts
from jaxacct.filters.prices.arguments import check_ranges
from jaxacct.filters.queries import as_sampled_gaussian
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.mechanisms.base import Mechanism

_HAIR = 2.0**-22  # four roundings to float32: a noise, a sensitivity, their quotient, a rate of a rate
_MARGIN = 2.0**-45
_MOST = 100_000  # noise multipliers, or rates


def gaussian_menu(
    sigma: ArrayLike | tuple[float, float], rate: ArrayLike | tuple[float, float], *, sigmas: int = 64, rates: int = 1
) -> list[PoissonSampled]:
    """A menu of Poisson-sampled Gaussians whose noise multipliers and rates are evenly spaced in logarithm.

    A query with noise multiplier s and rate q is charged as the cheapest entry with sigma <= s and rate >= q. So the
    menu covers all noise from ``sigma[0]`` up, and rates up to the largest. A finer menu loses less to that rounding:
    the price goes about as sigma^-2 rate^2. Entries are float32 numbers next to the given ones on the safe side.

    Args:
        sigma: the noise multiplier (noise over sensitivity), or the smallest and the largest; > 0.
        rate: the sampling rate, or the smallest and the largest; in (0, 1].
        sigmas: how many noise multipliers; 1 takes the smallest.
        rates: how many rates, where ``rate`` is a range; a single one takes the largest.

    Raises:
        ValueError: values out of range or of the wrong order.
    """
    (low, high), (least, most) = check_ranges(sigma, rate)
    _validate.whole(sigmas=sigmas, rates=rates)
    _validate.at_most(_MOST, sigmas=sigmas, rates=rates)
    noise = np.geomspace(low, high, int(sigmas))  # a single one is the smallest
    shares = np.geomspace(least, most, int(rates)) if rates > 1 else np.array([most])
    noise = narrow(np.clip(noise, low, high), up=False)
    shares = narrow(np.clip(shares, least, most), up=True)
    return [PoissonSampled(Gaussian(float(s)), float(q)) for q in np.unique(shares) for s in np.unique(noise)]


def narrow(value: ArrayLike, *, up: bool) -> np.ndarray:
    """The nearest float32 numbers above or below, as float64."""
    near = np.asarray(value, np.float64).astype(np.float32)
    off = near < value if up else near > value
    toward = np.float32(np.inf if up else 0.0)
    return np.where(off, np.nextafter(near, toward), near).astype(np.float64)


def covered(noise: ArrayLike, rate: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The least noise and the largest rate that count as an entry's ``noise`` and ``rate``, float64.

    A float32 program rounds the Python floats of an entry, and may round them to less noise and a larger rate. Such a
    query has less noise, or a larger rate, than the entry by 2^-22 at most, and is what the entry is accounted as.
    """
    noise, rate = np.asarray(noise, np.float64), np.asarray(rate, np.float64)
    return deflated(noise, _HAIR), np.minimum(inflated(rate, _HAIR), 1.0)


def edges_of(mechanisms: Sequence[Mechanism]) -> tuple[np.ndarray, np.ndarray]:
    """`covered` of each sampled Gaussian, in float32 pieces; NaN for a mechanism that is none."""
    with jax.enable_x64(True):
        found = [as_sampled_gaussian(one) or (np.nan, np.nan) for one in mechanisms]
        ends = covered(*(np.array([float(pair[i]) for pair in found]) for i in range(2)))
        noise, rate = (np.asarray(amounts.split(end)) for end in ends)
    return noise, rate


def shrunk(query: Mechanism) -> Mechanism:
    """What a menu's entry is accounted as: for sampled Gaussians, the dearest query that counts as the entry.

    A margin of 2^-45 covers the roundings of quotients and products by which a query is compared with the entry.
    """
    with jax.enable_x64(True):
        found = as_sampled_gaussian(query)
        if found is None:
            return query
        noise, rate = (float(x) for x in covered(*found))
    return PoissonSampled(Gaussian(deflated(noise, _MARGIN)), min(inflated(rate, _MARGIN), 1.0))
