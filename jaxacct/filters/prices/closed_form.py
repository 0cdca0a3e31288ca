"""Certifies a closed-form price for all sampled Gaussians of a range: `certified_closed_form`.

A filter that charges c(sigma, rate), whatever is left, keeps the promise V of a family of curves if V(a + f c) is above
V(a) composed with the query, for every query of the range and every a from a reserve on: f is the largest certified
price over c (docs/theorems/closed-form.md). The family is that of the worst case at these very prices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxacct._numerics.rounding import inflated
from jaxacct.filters.prices.family import Family
from jaxacct.filters.prices.grid_table import corner_prices, grid_of
from jaxacct.filters.prices.kernels import gaussian_atoms, sampled
from jaxacct.filters.prices.lines import kernel_next_to, price_lines
from jaxacct.filters.prices.references import Fineness, family_of_costs
from jaxacct.losses.grids.grid import LossGrid

_ONE_RATE = Fineness(50.0, 0.0014, 0.02, 0.08, 0.003)
_WIDE = Fineness(30.0, 0.0018, 0.05, 0.08, 0.005)
_AHEAD = 1.3
_TRIES = 6
_LARGER = 1.05
_HAIR = 2.0**-45
_MARGIN = 2.0**-30  # relative, for the rounding of costs, factors and accounts
Range = tuple[float, float]


def price_of(noise: np.ndarray, rate: np.ndarray) -> np.ndarray:
    """Algorithm 2's price: the limit of the mean privacy loss for small rates."""
    return rate**2 * np.expm1(noise**-2.0) / 2


def _slope(noise: np.ndarray) -> np.ndarray:
    """The derivative of the price over rate^2 in the total variation distance 2 Phi(1 / (2 noise)) - 1."""
    return math.sqrt(2.0 * math.pi) * np.exp(1.125 * noise**-2.0) / noise


class ClosedForm(NamedTuple):
    """A family, and for every node the factor that is enough while at least so much of its budget is left."""

    family: Family
    reserves: np.ndarray  # budgets of the family, shape ``(n,)``
    factors: np.ndarray  # not rising, shape ``(n,)``
    last: float  # the largest budget of the family that counts

    def budget(self) -> float:
        """The largest sum of prices that keeps the family's target, rounded down; not positive where there is none."""
        inside = self.reserves < 1.0
        return float(((1.0 - self.reserves[inside]) / self.factors[inside]).max()) * (1.0 - _MARGIN)

    def share(self, budget: float) -> float:
        """The family's budget that covers prices of sum ``budget``, rounded up; inf beyond the family."""
        least = float((self.reserves + self.factors * budget).min()) * (1.0 + _MARGIN)
        return least if least <= self.last else math.inf

    def excess(self, share: float = 1.0) -> np.ndarray:
        """The certified excess over (1 - gamma)_+ at the points of the family's lattice, for `remove`."""
        family = self.family
        return inflated(family.curve(share, family.width) * np.exp(0.5 * family.grid.losses), 2.0**-40)


def certified_closed_form(
    sigma: Range,
    rate: Range,
    epsilon: float,
    delta: float,
    report: Callable[[int, int], object] = lambda done, total: None,
) -> ClosedForm:
    """The family of (epsilon, delta) at `price_of`, and the factors that certify it for all queries of a range."""
    fine = _ONE_RATE if rate[0] == rate[1] or sigma[0] == sigma[1] else _WIDE
    corners = sorted(set(itertools.product(sigma, rate)))
    noises, shares = np.array(corners).T
    family = family_of_costs(corners, price_of(noises, shares), epsilon, delta, fine)
    sigmas, rates = grid_of(sigma, fine.sigma), grid_of(rate, fine.rate)
    total = sigmas.size * rates.size
    prices = corner_prices(family, sigmas, rates, family.nodes.size - 1, lambda done: report(done, total)).max(0)
    costs = price_of(sigmas[:, None], rates)
    worst = (prices / costs[..., None]).max((0, 1)) * _chords(sigmas, rates)
    return _closed_form(family, worst, prices.max((0, 1)))


def certified_queries(
    queries: list[tuple[float, float]], costs: np.ndarray, budget: float, epsilon: float, delta: float
) -> tuple[np.ndarray, LossGrid] | None:
    """The certified curve of an analyst who spends ``costs`` of a budget on (noise, rate) ``queries``, with its grid.

    The family is that of (epsilon, delta), about what the dearest query alone reaches, or of a larger epsilon where
    that is not enough; None where none is. Its references are the loudest queries and the quietest ones.
    """
    noises, rates = np.array(queries).T
    ends = {int(x) for x in (costs.argmax(), costs.argmin(), noises.argmin(), rates.argmax())}
    references = sorted(ends)
    for _ in range(_TRIES):
        family = family_of_costs([queries[i] for i in references], costs[references], epsilon, delta, _ONE_RATE)
        lines = []
        for noise, rate in queries:
            atoms = sampled(gaussian_atoms(inflated(1.0 / noise, _HAIR)), min(inflated(rate, _HAIR), 1.0))
            lines.append(np.maximum(*price_lines(kernel_next_to(atoms, family), family)[:2]))
        prices = np.stack(lines)
        found = _closed_form(family, (prices / costs[:, None]).max(0) * (1.0 + _MARGIN), prices.max(0))
        share = found.share(budget)
        if share < math.inf:
            return found.excess(share), family.grid
        epsilon *= _LARGER
    return None


def _closed_form(family: Family, worst: np.ndarray, dearest: np.ndarray) -> ClosedForm:
    """From the largest price over cost, and the largest price, of every interval of budgets left after a query."""
    # Next to the end of the family's budgets there are no curves above, and prices are dearer than they need be.
    far = family.nodes[1:] + _AHEAD * dearest > family.nodes[-1]
    count = max(int(far.argmax()), 1)
    factors = np.maximum.accumulate(worst[:count][::-1])[::-1]
    return ClosedForm(family, family.nodes[:count], factors, float(family.nodes[count]))


def _chords(sigmas: np.ndarray, rates: np.ndarray) -> float:
    """What the mean price of a cell's corners, with the cell's weights, is at most over that of a query inside."""
    found = 1.0 + _MARGIN
    if rates.size > 1:
        ratio = float((rates[1:] / rates[:-1]).max())
        found *= (1.0 + ratio) ** 2 / (4.0 * ratio)
    if sigmas.size > 1:
        # A convex function is below its chord by at most a quarter of the length times the difference of slopes.
        own, slopes = price_of(sigmas, np.ones(1)), _slope(sigmas)
        far = np.array([math.erf(x) for x in 8.0**-0.5 / sigmas])
        found *= 1.0 + float((np.diff(slopes) * np.diff(far) / (4.0 * own[1:])).max())
    return found
