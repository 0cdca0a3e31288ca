"""Uniform laws under the density of a tilted loss, which bound the decay of its transform.

A law that contains uniform laws of masses m_k on intervals of lengths l_k has |phi(w)| <= 1 - sum_k m_k s(w l_k / 2),
with an increasing s(x) <= 1 - |sin x / x|. They are the layers under a step function below the loss's density. The
proof, with every constant: docs/proofs/quadrature.md. Arrays have any leading axes; NumPy's or JAX's.
"""

from __future__ import annotations

import numpy as np

from jaxacct._numerics.arrays import Array, array_module, collected, histogram, product, running_least, xp
from jaxacct._numerics.least import first_least
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import deflated

_LADDER = 48
_RUNG = 0.35  # log ratio of neighbouring layers
_TINY_LAYER = 1e-6  # the mass of one that the decay may do without


def layers_of(density: Array, lengths: Array) -> tuple[Array, Array]:
    """Uniform pieces, masses and lengths, under a step function: log ``density`` on neighbouring ``lengths``."""
    density = xp.where(lengths > 1e-280, density, -np.inf)

    def peeled(density: Array, _: tuple[()]) -> tuple[Array, tuple[Array, Array]]:
        hill = _hill(density)
        rest = density + log1p(-xp.exp(hill - density))
        return xp.where(xp.isfinite(density) & (rest > -700.0), rest, -np.inf), _cake(hill, lengths)

    # A tilted law often has two modes; what the hill around the higher one leaves is a second hill.
    return tuple(xp.concatenate(list(x), -1) for x in collected(peeled, density, [(), ()]))


def _hill(density: Array) -> Array:
    """The largest unimodal step function below ``density`` with its peak where that one has it, in logarithms."""
    index = np.arange(density.shape[-1], dtype=np.int32)
    at = first_least(-density)[..., None]
    if array_module(density) is not np:  # one minimum for each step is more work, and a fraction of the time to compile
        first, last = xp.minimum(index, at)[..., None], xp.maximum(index, at)[..., None]
        return xp.where((first <= index) & (index <= last), density[..., None, :], np.inf).min(-1)
    left = running_least(xp.where(index <= at, density, np.inf), reverse=True)
    right = running_least(xp.where(index >= at, density, np.inf))
    return xp.where(index <= at, left, right)


def _cake(hill: Array, lengths: Array) -> tuple[Array, Array]:
    """Layers of a unimodal step function: masses and lengths."""
    peak = hill.max(-1, keepdims=True)
    peak = xp.where(xp.isfinite(peak), peak, -np.inf)
    rungs = peak - _RUNG * np.arange(_LADDER) - 1e-9  # which makes good for the rounding of `drop`
    drop = xp.where(xp.isfinite(hill), (peak - hill) / _RUNG, _LADDER)
    if array_module(hill) is np:  # the first rung that a step reaches; what is too low goes to a place that is dropped
        first = np.ceil(np.clip(drop, 0.0, _LADDER)).astype(np.int32)
        inside = np.cumsum(histogram(first, lengths, _LADDER + 1)[..., :-1], -1)
    else:
        inside = xp.where(drop[..., None, :] <= np.arange(_LADDER)[:, None], lengths[..., None, :], 0.0).sum(-1)
    inside = deflated(inside, 1e-9)
    masses = deflated(xp.exp(rungs) * (1.0 - np.exp(-_RUNG)) * inside, 1e-9)
    return masses, inside


def decay(masses: Array, lengths: Array, frequency: Array) -> Array:
    """A lower bound of 1 - |phi(w)| for all |w| >= ``frequency`` (quadrature.md, lemma 7); frequencies on an axis."""
    masses = xp.where(masses <= _TINY_LAYER, 0.0, masses)  # a second hill mostly has no others
    if array_module(masses) is np:
        some = np.flatnonzero(~(masses == 0.0).all(tuple(range(masses.ndim - 1))))
        masses, lengths = masses[..., some], lengths[..., some]
    # With x = w l / 2: x^2 / 8 and 0.7 where that is less, or 1 - 1 / x.
    squares = (frequency * frequency)[..., None] * (lengths * lengths / 32.0)[..., None, :]
    inverses = (2.0 / frequency)[..., None] * (1.0 / lengths)[..., None, :]
    share = xp.maximum(xp.minimum(squares, 0.7), 1.0 - inverses)
    return deflated(product(share, masses[..., None])[..., 0], 1e-9)
