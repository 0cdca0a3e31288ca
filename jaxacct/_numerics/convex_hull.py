"""The largest hockey-stick curve below given points, in exact arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np

from jaxacct._numerics.rounding import inflated

LARGEST = 600.0
"""Largest epsilon of a point that is used: exp of it and of its negative, times a probability, are normal numbers."""


def hull_atoms(epsilons: np.ndarray, deltas: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Atoms of the pair whose curve is the largest that is at most ``deltas[i]`` at ``epsilons[i]``, both ways.

    That is the lower convex hull of (0, 1), the points in gamma = e^eps and their reflections, as ``FromProfile`` says,
    up to the lowest of them, and constant from there on. The atom at a knot has the change of slope for Q-mass, gamma
    times that for P-mass; the last value is the mass of an infinite loss, and 1 + the first slope is Q's mass where P
    has none.

    Powers of e are rounded up to doubles, which keeps the claim; from there on all numbers are rational and each result
    is rounded once.

    Returns:
        ``(losses, p, q)``, sorted by loss, 2 n + 2 atoms for n points; those that are no knots have no mass.
    """
    one = Fraction(1)
    used = np.abs(epsilons) <= LARGEST
    points: dict[Fraction, tuple[Fraction, float]] = {Fraction(0): (one, -np.inf)}

    def claim(gamma: Fraction, height: Fraction, loss: float) -> None:
        if gamma not in points or height < points[gamma][0]:
            points[gamma] = (height, loss)

    for epsilon, delta in zip(epsilons[used].tolist(), deltas[used].tolist(), strict=True):
        # exp is off by less than 2 units; exp(0) is 1.
        gamma = one if epsilon == 0.0 else Fraction(inflated(float(np.exp(epsilon)), 2.0**-50))
        height = Fraction(delta)
        least = one - gamma
        if height < least:
            if float(least - height) > 1e-9 * float(least):
                raise ValueError(
                    f"deltas must be at least 1 - exp(epsilon), got {delta} at epsilon {epsilon}, which is impossible"
                )
            height = least
        claim(gamma, height, epsilon)
        claim(1 / gamma, one - (one - height) / gamma, -epsilon)

    hull: list[tuple[Fraction, Fraction, float]] = []
    for gamma in sorted(points):
        height, loss = points[gamma]
        if hull and height >= hull[-1][1]:
            continue  # from the lowest point on the curve is constant
        while len(hull) > 1 and _above(hull[-2], hull[-1], (gamma, height)):
            hull.pop()
        hull.append((gamma, height, loss))
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(hull)] + [Fraction(0)]
    atoms = [(-np.inf, 0.0, float(one + slopes[0]))]
    for (gamma, _, loss), before, after in zip(hull[1:], slopes, slopes[1:], strict=False):
        atoms.append((loss, float(gamma * (after - before)), float(after - before)))
    atoms.append((np.inf, float(hull[-1][1]), 0.0))
    spare = 2 * epsilons.size + 2 - len(atoms)
    table = np.array([(-np.inf, 0.0, 0.0)] * spare + atoms)
    return table[:, 0], table[:, 1], table[:, 2]


def _above(a: tuple, b: tuple, c: tuple) -> bool:
    """Whether b is on or above the chord from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
