"""`per_example`: an account for each example, charged for its own gradient norm."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from jaxacct import _validate
from jaxacct.filters.accounts.any_filter import AnyPerExampleFilter
from jaxacct.filters.accounts.approximate_gdp import ApproximateGDPPerExampleFilter
from jaxacct.filters.accounts.table import of_table
from jaxacct.filters.additive.approximate_gdp import ApproximateGDPFilter
from jaxacct.filters.base import ExamplesFilter, Filter
from jaxacct.filters.prices.table import TableFilter

_FAST = {ApproximateGDPFilter: ApproximateGDPPerExampleFilter, TableFilter: of_table}
_METHODS = ("init", "update", "spent", "remaining", "fraction")


def per_example(filter: Filter, *, examples: int) -> Any:
    """A filter that keeps one account of ``filter`` for each example: nobody's spending stops the others.

    With a common budget everybody pays for the clip norm, and the run ends when it is spent. Here each example pays for
    its own gradient, and drops out when its own budget is spent; the run goes on with the examples whose gradients are
    short. The guarantee is that of ``filter``, for every example and for add and remove alike (proof:
    docs/proofs/filters.md). docs/how-to/per-example-budgets.md lists what it requires of the surrounding program, above
    all that accounts, and who takes part, are never published.

    `sampled_gaussian`, `menu` and `approximate_gdp` keep one 32-bit word for each example, and are fast for millions;
    other filters are mapped over by ``vmap``.

    - `sampled_gaussian`, `menu`: the box or menu should reach far up in noise, from the noise multiplier of a step to
      some multiple of it: norms below clip norm times smallest noise over largest pay the lowest price. (A menu that
      reaches up r times has a table of some r^2 times the steps of its dearest entry; a ``unit`` of 32 is fine enough
      there.) A box with two tables gets a table of its own, which may take minutes once.
    - `approximate_gdp`: Algorithm 3 of the f-DP filters paper, asymptotic. Every example pays the mean privacy loss of
      its clipped gradient in every step, sampled or not; its last step is clipped to what is left. An account counts in
      units of 2^-30 of the budget, rounded up, and at least one a step.

    Args:
        filter: a filter of :mod:`jaxacct.filters` with a single budget, the same for everybody.
        examples: how many; a static part of the program.

    Returns:
        A filter whose ``update(query, norms, state)`` returns who takes part, and whose ``bounds(query, norms, state)``
        returns the norm up to which each example may contribute.

    Raises:
        ValueError: no filter, a filter for each example already, an array of budgets, or examples that are no whole
            number above 0.
    """
    _validate.whole(examples=examples)
    known = not isinstance(filter, type) and all(callable(getattr(filter, name, None)) for name in _METHODS)
    if not known or isinstance(filter, ExamplesFilter):
        raise ValueError(f"filter must be one of jaxacct.filters with one account, got {filter!r:.200}")
    if jnp.ndim(filter.guarantee.delta(1.0)):
        raise ValueError("filter must have a single budget, the same for everybody, got an array of budgets")
    return _FAST.get(type(filter), AnyPerExampleFilter)(filter, int(examples))
