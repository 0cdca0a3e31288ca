"""`lower_budget`: a run goes on under a smaller budget, with all that was spent charged to it.

What it takes is a proof that the new filter would have admitted the very same queries from the beginning, whatever they
were (docs/proofs/filters.md, 7). Where a state does not hold enough of its history for that, the answer is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.host import at_hand, on_device, on_host
from jaxacct._numerics.rounding import inflated
from jaxacct._types import PyTree
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.additive.renyi_any import AnyOrderFilter
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.around import AroundFilter
from jaxacct.filters.described import described
from jaxacct.filters.marks import belongs, check_state, mark_of, put, static_of
from jaxacct.filters.prices.closed_form_filter import ClosedFormFilter

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter


def lower_budget(filter: Filter, state: PyTree, lower: PyTree) -> PyTree:
    """The state with which a run under ``filter`` goes on under ``lower``, a filter of a smaller budget.

    All that was spent is charged to ``lower``, as if it had been the filter from the beginning. The guarantee of
    ``filter`` goes on to hold. That of ``lower`` holds for the whole run as well, from its beginning, if when and to
    what the budget is lowered, and that it is (not that what was spent was too much), did not depend on outputs. If it
    did, it holds on the outcomes where the budget was lowered to this ``lower``, fixed in advance: P(S) <= exp(epsilon)
    Q(S) + delta for every event S among them, which is an ex-post statement (docs/proofs/filters.md, 7).

    Sums of costs are taken over. There is no rule for the other filters: what a query costs a residue, a menu or a box
    belongs to that budget, and who has spent too much of individual accounts is private. A budget is not raised: that
    takes a promise back. Where a larger budget was fixed in advance, run under it from the beginning.

    Args:
        filter: the one that made ``state``: `pure_dp`, `zcdp`, `approximate_zcdp`, `gdp`, `renyi`, `renyi_any` or
            `approximate_gdp`.
        state: from its `init` or `update`; traced or not.
        lower: a filter of the same kind, order, regime and so on, of no larger budget.

    Returns:
        A state of ``lower``. In a program, where an error cannot be raised, one that no filter goes on with.

    Raises:
        ValueError: filters of different kinds or of a kind without a rule, a larger budget, a state of another filter,
            or a budget that does not cover what was spent.
    """
    while isinstance(filter, AroundFilter) and type(filter) is type(lower):
        filter, lower = filter.filter, lower.filter
    if type(filter) is not type(lower):
        raise ValueError(f"lower must be a filter of the kind of filter, {filter!r:.100}, got {lower!r:.100}")
    if not isinstance(filter, AdditiveFilter) or isinstance(filter, ClosedFormFilter):
        raise ValueError(
            f"filter must be one whose states say what ran, got {filter!r:.100}: there is no proof that a smaller "
            "budget would have admitted it. Go on under it, or begin a run of its own under the smaller budget"
        )
    if described(static_of(filter)) != described(static_of(lower)):
        raise ValueError(f"lower must differ from filter in its budget only, got {lower!r:.100} after {filter!r:.100}")
    if np.shape(mark_of(filter)) != np.shape(mark_of(lower)):
        raise ValueError("lower must have as many budgets as filter, one for each account")
    check_state(filter, state)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        covered, made = _taken_over(filter, put(state, None), lower)
        fits = on_host(covered) & on_host(belongs(filter, state))
        if at_hand(fits) and not np.all(fits):
            raise ValueError(
                f"lower must have a budget between what was spent and filter's, got {lower!r:.100} after "
                f"{filter!r:.100} with {state!r:.100}"
            )
        xp = array_module(fits)
        mark = xp.where(fits, mark_of(lower), np.uint32(0)).astype(np.uint32)
        return put(made, on_device(xp.broadcast_to(mark, np.shape(fits))))


def _taken_over(filter: AdditiveFilter, state: PyTree, lower: PyTree) -> tuple[Array, PyTree]:
    """Whether ``lower`` covers what was spent, charged as one query, and its state then, both without marks."""
    most = 128 if isinstance(filter, AnyOrderFilter) else np.inf  # what an order that is out has spent is not counted

    def spent(pieces: Array, account: SpentState) -> Array:
        budget, used = amounts.join(pieces), amounts.used(account)
        budget = budget * budget if filter.squares else budget
        return array_module(used).where(used > most, np.inf, inflated(budget * used, 2.0**-50))

    costs = jax.tree.map(spent, filter.pieces, state)
    fits, made = lower._charged(costs, jax.tree.map(amounts.empty, lower.pieces))
    pairs = zip(jax.tree.leaves(filter.pieces), jax.tree.leaves(lower.pieces), strict=True)
    for old, new in pairs:
        less = amounts.join(new) <= amounts.join(old)
        fits = fits & (less.all(-1) if isinstance(filter, AnyOrderFilter) else less)
    # An account that spent nothing is a fresh one.
    return fits, jax.tree.map(lambda new, old: jnp.where(jnp.all(old == 0, -1, keepdims=True), old, new), made, state)
