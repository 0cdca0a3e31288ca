"""Describes what a request costs and what is spent and left of a ledger's budget, also as epsilons."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jaxacct import accounting
from jaxacct._printing import rounded_down, rounded_up
from jaxacct.filters.additive.approximate_gdp import ApproximateGDPFilter
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.additive.pure_dp import PureDPFilter
from jaxacct.filters.additive.renyi_any import AnyOrderFilter
from jaxacct.filters.base import Filter
from jaxacct.filters.guarantees import ParameterGuarantee
from jaxacct.filters.reasons import Reason, sentence
from jaxacct.filters.residues.gdp_residue import GDPResidueFilter
from jaxacct.filters.states import BaseFilter
from jaxacct.ledger.fitting import nearest
from jaxacct.ledger.policy import Policy, State, reproducible

Value = float | list["Value"]


@dataclass(frozen=True)
class Amount:
    """A part of a budget.

    Attributes:
        parameter: in the filter's own parameters, by name: ``{"mu": 0.5}``, ``{"rho": 0.1, "delta": 1e-7}``; a list
            where the filter keeps several budgets.
        epsilon: what the filter's theorem says of a budget of this size, at the ledger's delta: a request that costs
            this much has that epsilon. None for a filter that has no epsilon for a part of its budget. Epsilons of
            parts do not add up to that of the whole.
    """

    parameter: dict[str, Value]
    epsilon: float | None

    def text(self, rounded: Callable[[float], str] = rounded_up) -> str:
        """``mu 0.5 (epsilon 1.99)``, rounded up or down."""
        shown = [f"{name} {_shown(value, rounded)}" for name, value in self.parameter.items() if _counts(value)]
        words = ", ".join(shown) or "nothing"
        return words if self.epsilon is None else f"{words} (epsilon {rounded(self.epsilon)})"


@dataclass(frozen=True)
class Reading:
    """A ledger's budget before or after a request; ``print`` it.

    Attributes:
        delta: the delta at which epsilons are quoted.
        delta_stated: whether the ledger was made with that delta, or it is the default.
        epsilon: of the whole budget: the guarantee for all that was and will be admitted, at ``delta``.
        is_bound: True if ``epsilon`` is a proven bound, False if it is asymptotic.
        spent: the cost of everything that was admitted, rounded up.
        left: the budget that is left, rounded down.
        fraction: the share that is spent, rounded up.
        cost: of the request, or None where there is none, or the filter has no cost of one that it refused.
        alternatives: for a refused request, similar ones that would have been admitted at that moment.
        refusal: why it was refused, in words; None for one that was admitted.
    """

    delta: float
    delta_stated: bool
    epsilon: float
    is_bound: bool
    spent: Amount
    left: Amount
    fraction: float
    cost: Amount | None = None
    alternatives: tuple[object, ...] = ()
    refusal: str | None = None

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The printed text, line by line."""
        lines = [] if self.cost is None else [f"cost    {self.cost.text()}"]
        if self.refusal is not None:
            lines.append(f"why     {self.refusal}")
            lines += [f"fits    {query!r}" for query in self.alternatives]
        lines.append(f"spent   {self.spent.text()}, {rounded_up(100.0 * self.fraction, 4)} % of the budget")
        lines.append(f"left    {self.left.text(rounded_down)}")
        if self.spent.epsilon is None:
            lines.append(
                "        no part of this budget has an epsilon of its own: whatever is spent, the budget's holds"
            )
        kind = "" if self.is_bound else ", ASYMPTOTIC, not a bound"
        stated = "" if self.delta_stated else " (none was stated for this ledger)"
        lines.append(f"budget  epsilon {rounded_up(self.epsilon)} at delta {self.delta:g}{stated}{kind}")
        return lines


def read(
    policy: Policy,
    delta: float | None,
    after: State,
    query: object = None,
    before: State | None = None,
    admitted: bool = True,
) -> Reading:
    """The budget in state ``after``; with the state ``before`` a request, what was said to it, and why.

    ``delta`` is the ledger's; None where none was stated.
    """
    budget = policy.filter
    at = _default_delta(budget) if delta is None else delta
    with reproducible():
        guarantee = budget.guarantee
        whole = float(np.asarray(guarantee.epsilon(at)))
        spent, left = (_amount(budget, _part(budget, after, name), at) for name in ("spent", "remaining"))
        fraction = float(np.asarray(budget.fraction(after.value)))
    found = Reading(at, delta is not None, whole, bool(guarantee.is_bound), spent, left, fraction)
    if before is None:
        return found
    cost = _cost(policy, query, before, after, admitted, at)
    if admitted:
        return replace(found, cost=cost)
    others = tuple(nearest(query, lambda one: _fits(policy, one, before)))
    return replace(found, cost=cost, alternatives=others, refusal=_why(budget, query, before, cost, left))


_DELTA = 1e-5
# What `spent` and `remaining` hold, by filter: the parameter of its guarantee, where it has one, and what may fail.
_NAMES: dict[str, tuple[str, ...]] = {
    "PureDPFilter": ("epsilon",),
    "ZCDPFilter": ("rho",),
    "ApproximateZCDPFilter": ("rho", "delta"),
    "RenyiFilter": ("divergence",),
    "AnyOrderFilter": ("divergences",),
    "GDPFilter": ("mu",),
    "GDPResidueFilter": ("mu",),
    "ApproximateGDPFilter": ("mean loss",),
    "NaturalApproximateDPFilter": ("delta",),
    "AdditiveProfileFilter": ("band masses",),
}


def _default_delta(budget: Filter) -> float:
    """0 for pure privacy; else 1e-5, or twice the delta that the filter itself may spend, if that is more."""
    fails = float(np.asarray(getattr(budget.guarantee, "fails", 0.0)))
    return 0.0 if isinstance(budget, PureDPFilter) else max(_DELTA, min(0.5, 2.0 * fails))


def _part(budget: Filter, state: State, which: str) -> list[Value]:
    """What is ``"spent"`` or ``"remaining"``: floats, or lists of them where the filter keeps several budgets."""
    return [np.asarray(one).tolist() for one in _tuple(getattr(budget, which)(state.value))]


def _amount(budget: Filter, values: list[Value], delta: float) -> Amount:
    names = _NAMES.get(type(budget).__name__, ("units",))
    return Amount(dict(zip(names, values, strict=True)), _epsilon(budget, values, delta))


def _epsilon(budget: Filter, values: list[Value], delta: float) -> float | None:
    """The epsilon of a budget of this size; None where the filter's theorem has none."""
    guarantee = budget.guarantee
    if not isinstance(guarantee, ParameterGuarantee) or isinstance(values[0], list) != isinstance(
        budget, AnyOrderFilter
    ):
        return None
    sizes = [np.asarray(value, np.float64) for value in values]
    if not np.any(sizes[0] > 0) and all(fails <= delta for fails in sizes[1:]):
        return 0.0
    if isinstance(budget, ApproximateGDPFilter):
        sizes = [np.sqrt(2.0 * sizes[0])]
    made = dataclasses.replace(guarantee, parameter=sizes[0], fails=sizes[1] if sizes[1:] else guarantee.fails)
    return float(np.asarray(made.epsilon(delta)))


def _cost(policy: Policy, query: object, before: State, after: State, admitted: bool, delta: float) -> Amount | None:
    """What ``query`` took, where it was admitted; else what a much larger budget would charge, where it says so."""
    budget = policy.filter
    with reproducible():
        if isinstance(budget, AdditiveFilter):
            costs = [np.asarray(cost) for cost in _tuple(budget._cost(query))]
            values = [(np.sqrt(cost) if budget.squares else cost).tolist() for cost in costs]
        elif admitted:
            new, old = (np.asarray(_part(budget, state, "spent")[0], np.float64) for state in (after, before))
            took = np.maximum(new - old, 0.0)
            # mu adds up in squares
            values = [(np.sqrt(took * (new + old)) if isinstance(budget, GDPResidueFilter) else took).tolist()]
        else:
            return None
    if not np.all(np.isfinite(np.asarray(values[0], np.float64))):
        return None
    amount = _amount(budget, values, delta)
    return amount if amount.epsilon is not None else replace(amount, epsilon=_alone(query, delta))


def _alone(query: Any, delta: float) -> float | None:
    """The certified epsilon of a request that is all there is; None where it has none, or no mechanism of its own."""
    try:
        found = float(accounting.epsilon(query, delta).upper)
    except (ValueError, TypeError, NotImplementedError):  # a position on a menu; another relation's mechanism
        return None
    return found if found < np.inf else None


def _tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def _fits(policy: Policy, query: object, state: State) -> bool:
    try:
        return policy.decide(query, state)[0]
    except ValueError:
        return False


def _why(budget: Filter, query: object, state: State, cost: Amount | None, left: Amount) -> str:
    if cost is not None:
        return f"it costs {cost.text()}, and {left.text(rounded_down)} is left"
    with reproducible():
        known = isinstance(budget, BaseFilter)  # one that was registered may not be
        return sentence(budget.reason(query, state.value, admitted=False) if known else Reason.SPENT, budget, query)


def _counts(value: Value) -> bool:
    """Whether a value is more than what rounding up leaves of 0."""
    return bool(np.any(np.asarray(value, np.float64) > 1e-20))


def _shown(value: Value, rounded: Callable[[float], str]) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_shown(part, rounded) for part in value) + "]"
    return rounded(float(value))
