"""Adds up what is known about composed events: mechanisms and their counts, and zCDP."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable

import numpy as np

from jaxacct.losses.renyi.zcdp import zcdp_delta, zcdp_epsilon
from jaxacct.mechanisms import ApproximateDP, Composed, FromProfile, Gaussian, PureDP, ZeroConcentratedDP
from jaxacct.mechanisms.base import Mechanism

MOST = 2**53  # a count that is still exact as a float
_UP = 1.0 + 2.0**-48
_LEVELS = np.exp(-np.linspace(1e-3, 70.0, 350))  # the deltas through which a curve is drawn
_LARGEST = 600.0  # epsilon that `FromProfile` uses


@dataclasses.dataclass(frozen=True)
class Part:
    """A mechanism with scalar parameters of which there is an analysis, and how often it runs.

    With ``is_sum`` it adds noise to a sum over records: a record of value zero and an absent one are the same to it.
    """

    mechanism: Mechanism
    count: int
    is_sum: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """A composition, by kinds of knowledge. All kinds add up over compositions; the defaults are nothing run.

    Attributes:
        parts: by a key that equal mechanisms share.
        rho: of all parts that are (xi, rho)-zCDP, added up.
        xi: of the same; only where rho is above 0.
        private: False if some part releases its data as they are.
    """

    parts: dict[Hashable, Part] = dataclasses.field(default_factory=dict)
    rho: float = 0.0
    xi: float = 0.0
    private: bool = True

    def __add__(self, other: Reading) -> Reading:
        parts = dict(self.parts)
        for key, part in other.parts.items():
            count = part.count + (parts[key].count if key in parts else 0)
            parts[key] = dataclasses.replace(part, count=count)
        return Reading(parts, _sum(self.rho, other.rho), _sum(self.xi, other.xi), self.private and other.private)

    def __mul__(self, count: int) -> Reading:
        """``count`` such runs, at least one."""
        if count == 1:
            return self
        parts = {key: dataclasses.replace(part, count=part.count * count) for key, part in self.parts.items()}
        return Reading(parts, self.rho * (count * _UP), self.xi * (count * _UP), self.private)

    @property
    def is_nothing(self) -> bool:
        """Whether the reading reveals nothing, so that it costs nothing."""
        return self.private and not self.parts and self.rho == 0

    @property
    def is_single(self) -> bool:
        """Whether it is one run of one mechanism, or Gaussians (which together are one)."""
        parts = list(self.parts.values())
        if self.rho > 0 or not (self.private and parts):
            return self.private and self.rho > 0 and not parts
        return all(type(one.mechanism) is Gaussian for one in parts) or (len(parts) == 1 and parts[0].count == 1)

    def mechanism(self) -> Mechanism:
        """All of it as one mechanism."""
        if not self.private:
            return ApproximateDP(0.0, 1.0)
        parts = [(part.mechanism, part.count) for part in self.parts.values()]
        if self.rho > 0:
            parts.append((self._zcdp(), 1))
        if not parts:
            return PureDP(0.0)
        if len(parts) == 1 and parts[0][1] == 1:
            return parts[0][0]
        return Composed([mechanism for mechanism, _ in parts], [count for _, count in parts])

    def _zcdp(self) -> Mechanism:
        """The largest privacy curve of (xi, rho)-zCDP.

        It is a Rényi divergence of at most xi + rho order at every order (Bun, Steinke 2016, Definition 1.1). So its
        conversion at each order is that of rho-zCDP at an epsilon smaller by xi.
        Every point of the resulting curve is a claim, and `FromProfile` dominates whatever keeps all of them.
        """
        if not (math.isfinite(self.rho) and math.isfinite(self.xi)):
            return ApproximateDP(0.0, 1.0)
        if self.xi == 0.0:
            return ZeroConcentratedDP(self.rho)
        with np.errstate(over="ignore"):
            above = np.asarray(zcdp_epsilon(self.rho, _LEVELS))
            epsilons = (self.xi + above) * _UP
        known = epsilons <= _LARGEST
        deltas = np.asarray(zcdp_delta(self.rho, above[known]))
        return FromProfile(epsilons[known], deltas) if known.any() else ApproximateDP(0.0, 1.0)


def _sum(first: float, second: float) -> float:
    """Rounded up; with 0 it is exact."""
    return (first + second) * _UP if first and second else first + second
