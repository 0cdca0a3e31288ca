"""The residue of a GDP budget after randomized response, where gamma = 1 alone decides the residue condition."""

from __future__ import annotations

import math

import numpy as np

from jaxacct._numerics.arrays import Array, erf, repeated
from jaxacct._numerics.host import floats
from jaxacct._numerics.rounding import EPS


def largest_for_response(mu: Array, epsilon: Array) -> Array:
    """The residue after randomized response, TV(G_m * RR_epsilon) = TV(G_mu), rounded down; -1 where there is none.

    p erf((m / 2 + e / m) / sqrt 2) + (1 - p) erf((m / 2 - e / m) / sqrt 2) = erf(mu / sqrt 8): for this query gamma = 1
    alone decides the residue condition. Any epsilon-DP query has at least this residue.
    """
    xp, mu, epsilon = floats(mu, epsilon)
    good = (mu > 0) & (mu < np.inf) & (epsilon >= 0)
    mu, epsilon = xp.where(good, mu, 1.0), xp.where(good, epsilon, 0.0)
    p = 1.0 / (1.0 + xp.exp(-epsilon))
    root = math.sqrt(0.5)
    target = erf(mu * (0.5 * root))

    def left(m: Array) -> Array:
        safe = xp.maximum(m, 1e-300)
        up, down = (0.5 * safe + epsilon / safe) * root, (0.5 * safe - epsilon / safe) * root
        plus, minus = p * erf(up), (1.0 - p) * erf(down)
        # Each erf is good to 8 units, and so is what it is taken of, which moves it by less than a unit of 1.
        return target - (plus + minus) - 16.0 * EPS * (target + plus + xp.abs(minus))

    def halve(bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        fits = left(middle) >= 0
        return xp.where(fits, middle, low), xp.where(fits, high, middle)

    zero = xp.zeros_like(target)
    low, _ = repeated(halve, (zero, xp.broadcast_to(mu, zero.shape)), 56)
    return xp.where(good & ((low > 0) | (left(zero) >= 0)), low, -1.0)
