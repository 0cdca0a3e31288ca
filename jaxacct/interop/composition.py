"""Adds up what is known about composed events: mechanisms and their counts, zCDP, and a Rényi curve."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable
from typing import TypeVar

import numpy as np

from jaxacct.filters.additive.plan_order import ORDERS
from jaxacct.losses.renyi import delta_from_renyi, epsilon_from_renyi
from jaxacct.losses.renyi.zcdp import zcdp_delta, zcdp_epsilon
from jaxacct.mechanisms import ApproximateDP, Composed, FromProfile, Gaussian, PureDP, ZeroConcentratedDP
from jaxacct.mechanisms.base import Mechanism

_Sum = TypeVar("_Sum", float, np.ndarray | float)

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
        divergences: Rényi divergences at `ORDERS` of parts of which nothing else is known, shape ``(orders,)`` or 0.
        private: False if some part releases its data as they are.
    """

    parts: dict[Hashable, Part] = dataclasses.field(default_factory=dict)
    rho: float = 0.0
    xi: float = 0.0
    divergences: np.ndarray | float = 0.0
    private: bool = True

    def __add__(self, other: Reading) -> Reading:
        parts = dict(self.parts)
        for key, part in other.parts.items():
            count = part.count + (parts[key].count if key in parts else 0)
            parts[key] = dataclasses.replace(part, count=count)
        curve = _sum(self.divergences, other.divergences)
        rho, xi = _sum(self.rho, other.rho), _sum(self.xi, other.xi)
        return Reading(parts, rho, xi, curve, self.private and other.private)

    def __mul__(self, count: int) -> Reading:
        """``count`` such runs, at least one."""
        if count == 1:
            return self
        parts = {key: dataclasses.replace(part, count=part.count * count) for key, part in self.parts.items()}
        times = count * _UP
        return Reading(parts, self.rho * times, self.xi * times, self.divergences * count * _UP, self.private)

    @property
    def is_curve(self) -> bool:
        """Whether some of it is known by a curve of divergences only."""
        return bool(np.any(self.divergences)) or self.rho > 0 or self.xi > 0

    @property
    def is_nothing(self) -> bool:
        """Whether the reading reveals nothing, so that it costs nothing."""
        return self.private and not (self.parts or self.is_curve)

    @property
    def is_single(self) -> bool:
        """Whether it is one run of one mechanism, or Gaussians (which together are one)."""
        if not self.private:
            return False
        parts = list(self.parts.values())
        if self.is_curve or not parts:
            return self.is_curve and not parts
        return all(type(one.mechanism) is Gaussian for one in parts) or (len(parts) == 1 and parts[0].count == 1)

    def at_orders(self) -> np.ndarray:
        """The Rényi divergences at `ORDERS` of what is known by a curve, rounded up."""
        own = (self.xi + self.rho * np.asarray(ORDERS)) * _UP
        return (own + self.divergences) * _UP if np.any(self.divergences) else own

    def all_parts(self) -> list[tuple[Mechanism, int]]:
        """(mechanism, count) of the parts, and of what the curve comes to."""
        found = [(part.mechanism, part.count) for part in self.parts.values()]
        return [*found, (self._curve(), 1)] if self.is_curve else found

    def mechanism(self) -> Mechanism:
        """All of it as one mechanism."""
        if not self.private:
            return ApproximateDP(0.0, 1.0)
        with np.errstate(over="ignore"):
            parts = self.all_parts()
        if not parts:
            return PureDP(0.0)
        if len(parts) == 1 and parts[0][1] == 1:
            return parts[0][0]
        return Composed([mechanism for mechanism, _ in parts], [count for _, count in parts])

    def _curve(self) -> Mechanism:
        """The largest privacy curve that the divergences allow.

        (xi, rho)-zCDP is a Rényi divergence of at most xi + rho order at every order (Bun, Steinke 2016, Definition
        1.1). So its conversion at each order is that of rho-zCDP at an epsilon smaller by xi.
        Every point of the resulting curve is a claim, and `FromProfile` dominates whatever keeps all of them.
        """
        if not (math.isfinite(self.rho) and math.isfinite(self.xi)):
            return ApproximateDP(0.0, 1.0)
        if not np.any(self.divergences):
            if self.xi == 0.0:
                return ZeroConcentratedDP(self.rho)
            above = np.asarray(zcdp_epsilon(self.rho, _LEVELS))
            held = np.isfinite(above)
            epsilons = np.where(held, (self.xi + above) * _UP, np.inf)
            deltas = np.asarray(zcdp_delta(self.rho, np.where(held, above, 0.0)))
        else:
            curve, orders = self.at_orders()[:, None], np.asarray(ORDERS)[:, None]
            if not np.isfinite(curve).all():  # orders at which sums overflowed say nothing; so may all of them
                orders, curve = orders[np.isfinite(curve)][:, None], curve[np.isfinite(curve)][:, None]
            if not curve.size:
                return ApproximateDP(0.0, 1.0)
            epsilons = np.asarray(epsilon_from_renyi(curve, orders, _LEVELS)).min(0)
            finite = np.where(np.isfinite(epsilons), epsilons, 0.0)
            deltas = np.asarray(delta_from_renyi(curve, orders, finite)).min(0)
        known = epsilons <= _LARGEST
        return FromProfile(epsilons[known], deltas[known]) if known.any() else ApproximateDP(0.0, 1.0)


def _sum(first: _Sum, second: _Sum) -> _Sum:
    """Rounded up; with 0 it is exact."""
    return (first + second) * _UP if np.any(first) and np.any(second) else first + second
