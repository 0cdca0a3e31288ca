"""Band-limited functions above and below the payoff of a hockey stick.

With x = L - epsilon, e^(theta epsilon) times a hockey stick is the mean of e^(theta L) f(x) for the payoff
f(x) = e^(-theta x) - e^(-(theta + 1) x) at x > 0, and 0 elsewhere. There are functions m <= f <= M whose Fourier
transforms vanish outside [-W, W]. Their means under the tilted law are finite sums over the frequencies below W and
enclose that of f: an inversion with them needs no decay of the transform and cuts nothing off. The integral of M - m is
about (2 pi / W)^2 / 8. Formulas and proof: docs/proofs/transforms.md, section 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import UNIT


class OneSided(NamedTuple):
    """Fourier transforms of m and M, complex, and a bound on the rounding error of either; shape ``(B, nodes)``."""

    below: Array
    above: Array
    error: Array


def one_sided(theta: Array, spacing: Array, limit: Array, nodes: int) -> OneSided:
    """The transforms at ``nodes`` multiples of ``spacing``, with W = ``limit * spacing``; units: transforms.md, 1.

    ``theta``, ``spacing`` and ``limit``, whole numbers up to ``nodes``, are positive and have shape ``(B,)``.
    """
    step = 2.0 * np.pi / (spacing * limit)  # d
    low, high = step * theta, step * (theta + 1.0)
    p_low, p_high = -low / xp.expm1(-low), -high / xp.expm1(-high)
    shift = log1p(1.0 / theta) - log1p(xp.exp(-low) * xp.expm1(-step) / xp.expm1(-low))
    shift = shift / step
    shift_error = 40.0 * UNIT * (log1p(1.0 / theta) / step + 1.0)

    # With t = index / limit, 1 - exp(-v - 2 pi i t) is a sum of positive numbers, and a product. At limits t is 1.
    limit = limit[:, None]
    index = xp.minimum(np.arange(nodes), limit)
    half = np.pi * xp.minimum(index, limit - index) / limit
    sin, cos = xp.sin(half), xp.where(2 * index > limit, -xp.cos(half), xp.cos(half))
    rest, turn = (limit - index) / limit, 2.0 * np.pi * index / limit

    # (1 - t + i v / 2 pi) exp(-a (v + 2 pi i t)) / (1 - exp(-v - 2 pi i t)), with v and a of each of four terms.
    zero = xp.zeros_like(theta)
    v, a = xp.stack([low, high, low, high])[..., None], xp.stack([zero, zero, shift, shift])[..., None]
    less = xp.exp(-v)
    gap = -xp.expm1(-v) + less * (2.0 * sin * sin) + 1j * (less * (2.0 * sin * cos))
    parts = (rest + 1j * v / (2.0 * np.pi)) * xp.exp(-a * v - 1j * a * turn) / gap
    (m_low, m_high, low_part, high_part), sizes = parts, xp.abs(parts)
    slope = ((p_high - p_low) / (2.0 * np.pi))[:, None]
    below = m_low - m_high + 1j * slope
    error = 96.0 * UNIT * (sizes[0] + sizes[1]) + 8.0 * UNIT * p_high[:, None]
    above = low_part - high_part
    # The transform moves with the shift by -v_0 times itself, and by d times its second part.
    moved = xp.hypot(low[:, None], turn) * xp.abs(above) + step[:, None] * sizes[3]
    phase = 96.0 * UNIT * (1.0 + xp.abs(shift[:, None]) * (high[:, None] + turn))
    error_above = phase * (sizes[2] + sizes[3]) + 1.01 * shift_error[:, None] * moved
    step = step[:, None]
    return OneSided(step * below, step * above, step * xp.maximum(error, error_above))
