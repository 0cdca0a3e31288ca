"""`Released`: what a query gave, what it cost and what is left; and how a budget is asked before noise is drawn."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.filters.base import Filter
from jaxacct.filters.marks import check_state
from jaxacct.ledger.ledger import Ledger
from jaxacct.ledger.policy import Policy, State
from jaxacct.ledger.reading import Amount, Reading, read
from jaxacct.mechanisms.base import Mechanism


@dataclass(frozen=True)
class Released:
    """The answer to one query; ``print`` it.

    Attributes:
        value: the noisy answer, which may be published; None if the request was refused.
        admitted: whether the request was charged.
        mechanism: what was asked for: the noise that was drawn, with the sensitivity that was worked out.
        state: of a filter, its state after the request, for the next one; None for a ledger, which keeps its own.
    """

    value: Any
    admitted: bool
    mechanism: Mechanism
    state: PyTree
    _reading: Callable[[], Reading] = field(repr=False, compare=False)

    @property
    def reading(self) -> Reading:
        """The budget after the request: its cost, or why it was refused and what would have fitted."""
        return self._reading()

    @property
    def cost(self) -> Amount | None:
        """What the request costs; None where a refused one's is not known."""
        return self.reading.cost

    @property
    def left(self) -> Amount:
        """What is left of the budget."""
        return self.reading.left

    def __str__(self) -> str:
        return "\n".join([f"value   {self.value}" if self.admitted else "REFUSED", *self.reading.lines()])


def released(
    draw: Callable[[], Any], mechanism: Mechanism, budget: Ledger | Filter, state: object, label: str
) -> Released:
    """Charges ``mechanism`` and, if it is admitted, draws: a process that dies in between has paid for nothing."""
    if isinstance(budget, Ledger):
        if state is not None:
            raise ValueError("state must be left out with a ledger, which keeps its own")
        entry = budget.request(mechanism, label)
        reading = entry.reading
        assert reading is not None
        value = draw() if entry.admitted else None
        if entry.admitted:
            budget.released(entry.id)
        return Released(value, entry.admitted, mechanism, None, reading)
    _validate.methods("init", "update", "spent", "remaining", "fraction", budget=budget)
    if state is None:
        raise ValueError("state must be given with a filter: budget.init() at first, then that of the last release")
    policy, before = Policy.of(budget), State(state, "", "")
    check_state(budget, state)
    admitted, after = policy.decide(mechanism, before)
    reading = functools.cache(lambda: read(policy, None, after, mechanism, before, admitted))
    return Released(draw() if admitted else None, admitted, mechanism, after.value, reading)
