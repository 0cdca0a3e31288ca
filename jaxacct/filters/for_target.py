"""`for_target`: the filter of a name whose guarantee is (epsilon, delta)-DP, with the largest budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxacct import _validate
from jaxacct.filters.additive.approximate_gdp import approximate_gdp
from jaxacct.filters.additive.gdp import gdp
from jaxacct.filters.additive.plan_order import ORDERS
from jaxacct.filters.additive.pure_dp import pure_dp
from jaxacct.filters.additive.renyi import renyi
from jaxacct.filters.additive.renyi_any import renyi_any
from jaxacct.filters.additive.zcdp import approximate_dp, zcdp
from jaxacct.filters.base import Filter
from jaxacct.filters.names import canonical
from jaxacct.filters.prices.closed_form_filter import closed_form
from jaxacct.filters.prices.menu import menu
from jaxacct.filters.prices.sampled_gaussian import sampled_gaussian
from jaxacct.filters.residues.gdp_residue import gdp_residue
from jaxacct.losses.renyi import renyi_from_epsilon

_LEAST, _MOST = 1e-17, 1e29  # of a budget; filters take 1e-18 to 1e30
_HALVINGS = 70  # of 46 decades: to 1e-20 of a factor
_SLACK = 0.1  # of delta: what `gdp_residue` may spend on the tails of its queries
# `renyi_any` gets the best order for Gaussians and two others, as multiples of (order - 1). Lower ones have little.
_AROUND = (0.7, 1.0, 2.0)


def for_target(name: str, epsilon: float, delta: float, **others: object) -> Any:
    """The filter ``name`` with the largest budget whose guarantee is (epsilon, delta)-DP.

    The filter satisfies ``filter.guarantee.epsilon(delta) <= epsilon``: that very inequality was evaluated, with
    the guarantee's own rounding.

        for_target("zcdp", 1.0, 1e-6)           # rho = 0.0243...
        for_target("gdp_residue", 1.0, 1e-6)    # mu, and a tenth of delta as slack

    Args:
        name: ``"pure_dp"``, ``"zcdp"``, ``"approximate_zcdp"`` and ``"approximate_dp"`` (which are the same here),
            ``"gdp"``, ``"gdp_residue"``, ``"renyi"``, ``"renyi_any"``, ``"sampled_gaussian"``, ``"closed_form"``,
            ``"menu"`` or ``"approximate_gdp"``, whose guarantee is asymptotic, not a bound. ``-`` may stand for ``_``.
        epsilon: target, > 0, a single number.
        delta: target, strictly between 0 and 1, a single number.
        others: further arguments of that filter: ``share`` of delta (`approximate_dp`), ``order`` (`renyi`; without it
            the order at which most Gaussians without sampling fit. For Poisson samples take `plan_order`'s: at rate
            0.005 and noise 1.1 it admits seven times as many steps), ``orders`` (`renyi_any`), ``regime``
            (`approximate_gdp`), ``slack`` (a part of delta), ``steps`` and ``relation`` (`gdp_residue`), ``sigma`` and
            ``rate`` (`sampled_gaussian`, `closed_form`), ``mechanisms`` (`menu`), and whatever else those take.

    Raises:
        ValueError: another name, a bad target, or one that leaves no budget.
        TypeError: an argument that the filter does not take.
    """
    name = canonical(name)
    _validate.one_of(tuple(FOR_TARGET), name=name)
    _validate.scalar(_validate.positive, epsilon=epsilon)
    _validate.scalar(_validate.probability, delta=delta)
    return FOR_TARGET[name](float(epsilon), float(delta), **others)


def _largest(make: Callable[[float], Filter], epsilon: float, delta: float) -> Filter:
    """The filter of the largest budget found whose guarantee meets the target."""

    def fits(budget: float) -> bool:
        return float(np.asarray(make(budget).guarantee.epsilon(delta))) <= epsilon

    low, high = math.log(_LEAST), math.log(_MOST)
    if not fits(_LEAST):
        raise ValueError(f"epsilon must be larger to leave any budget at delta {delta:g}, got {epsilon:g}")
    if fits(_MOST):
        return make(_MOST)
    best = _LEAST
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if fits(budget := math.exp(middle)):
            low, best = middle, budget
        else:
            high = middle
    return make(best)


def _gdp_residue(epsilon: float, delta: float, *, slack: float | None = None, **others: Any) -> Filter:
    spare = _SLACK * delta if slack is None else slack
    if not 0 <= spare < delta:
        raise ValueError(f"slack must be at least 0 and below delta, {delta:g}, got {spare:g}")
    return _largest(lambda mu: gdp_residue(mu, spare, **others), epsilon, delta)


def _best_order(epsilon: float, delta: float) -> float:
    """The order at which a Gaussian query takes the least share of the budget: divergences of Gaussians are linear."""
    orders = np.asarray([*ORDERS, *(2.0**k for k in range(10, 21))])
    with np.errstate(all="ignore"):
        share = np.asarray(renyi_from_epsilon(epsilon, delta, orders)) / orders
    return float(orders[int(np.argmax(np.nan_to_num(share, nan=-np.inf)))])


def _renyi(epsilon: float, delta: float, *, order: float | None = None) -> Filter:
    return renyi(epsilon, delta, order=_best_order(epsilon, delta) if order is None else order)


def _renyi_any(epsilon: float, delta: float, *, orders: Sequence[float] | None = None) -> Filter:
    if orders is None:
        best = _best_order(epsilon, delta / len(_AROUND))
        orders = [round(1.0 + factor * (best - 1.0), 0 if best > 10 else 1) for factor in _AROUND]
    return renyi_any(epsilon, delta, orders)


FOR_TARGET: dict[str, Callable[..., Filter]] = {
    "approximate_dp": approximate_dp,
    "approximate_gdp": lambda e, d, **others: _largest(lambda b: approximate_gdp(b, **others), e, d),
    "approximate_zcdp": approximate_dp,
    "closed_form": lambda e, d, **others: closed_form(epsilon=e, delta=d, **others),
    "gdp": lambda e, d: _largest(gdp, e, d),
    "gdp_residue": _gdp_residue,
    "menu": lambda e, d, *, mechanisms, **others: menu(mechanisms, epsilon=e, delta=d, **others),
    "pure_dp": lambda e, d: _largest(pure_dp, e, d),
    "renyi": _renyi,
    "renyi_any": _renyi_any,
    "sampled_gaussian": lambda e, d, **others: sampled_gaussian(epsilon=e, delta=d, **others),
    "zcdp": lambda e, d: _largest(zcdp, e, d),
}
