"""`individual`: a ledger for each example over any filter; an example drops out when its budget is spent.

Proof, and what it asks of a program bit by bit: docs/proofs/filters.md, theorem 2.

*The program.* In step t, from what was released so far (y_1 .. y_(t-1), "the past"), the analyst picks a function g_t,
a noise sigma_t, a rate q_t and a clip norm C_t. For each example X_i of the data set S a filter is asked whether the
query of noise multiplier sigma_t / min(||g_t(X_i)||, C_t) and rate q_t still fits into *that example's* ledger, and it
bounds the norm a_i of the example's contribution h_i: min(||g_t(X_i)||, C_t), or 0 if the filter refuses. Everybody is
asked and charged in every step. Then come the coins, and

    y_t = sum of h_i over the sampled i  +  N(0, sigma_t^2 I),        ||h_i|| <= a_i.

*Theorem.* (Feldman, Zrnic 2021 for Rényi divergence; Theorem 4.4 of the f-DP filters paper for Algorithm 3.) Let a
filter's guarantee hold for all interactions in which each query, given the past, is dominated by what it was charged
as, and is replaced by nothing where it was refused. Then the whole run has that guarantee for S against S without X_j
and for S without X_j against S, for every S and every X_j in it: it is add-or-remove DP with the scalar filter's
parameters.

*Proof.* Fix S, j and the analyst (its own coins are part of it). Write S' for S without X_j.

1. The ledger of i in step t, and h_i, are functions of X_i and of the past: the filter and the norm know nothing else.
   So for i other than j they are the same functions on S and on S'. Only j's own is missing from S'.
2. Given the past and the others' coins, y_t on S' is N(v, sigma_t^2 I) with v the sum of the others' sampled h_i; on S
   it is the mixture (1 - q) N(v, .) + q N(v + h_j, .), because j's coin is independent of everything else. Turned and
   moved, the pair is that of a sampled Gaussian with multiplier sigma_t / ||h_j|| in one coordinate, and equal in all
   others; v does not matter. The others' coins have the same law on S and on S', so the pair given the past alone is
   a mixture of pairs with this one curve, and mixing lowers hockey sticks (they are jointly convex). Hence, given the
   past, step t is dominated, for all orders gamma >= 0 and so in both directions, by what j's ledger was charged; and
   if j was refused or h_j = 0, the pair is perfectly private.
3. What j's ledger was charged is a function of the past, for this fixed S and j. So from the side of j the run is an
   adaptive sequence of pairs, chosen given the past, each dominated by its charge, under the scalar filter: the
   hypothesis of its theorem, with (S, j, analyst) as its adversary. []

For `priced_menu` the last step reads, in full: let V_(t,b) be the supremum of the hockey-stick curves of all plays with
t steps to go and b units left, and W_b the menu's worst case (Lemma 1 of the residue paper, `_budget_table`). Then
V_(t,b) <= W_b by induction on t. V_(0,b) is perfect privacy. If the first step's charge is entry m, conditioning on its
output gives curves below W_(b-c_m), and composition is monotone, so the play is below L_m * W_(b-c_m) <= W_b, by the
recursion that defines W. If it charges nothing, its output has the same law on both sides, and the play's curve is an
average of curves that are each below W_b. The number of steps that cost nothing has no limit.

*What it needs of the program.*

- Everybody is charged in every step, sampled or not, for the norm at the current parameters. A ledger that charged
  only the sampled would be a function of secret coins, step 1 would fail, and an example that is sampled rarely would
  be charged too little for being in the lottery.
- Nothing but the past and X_i goes into the ledger and the contribution of i. Other examples may drop out, and whether
  they do may depend on releases (step 1), but never on j's data except through releases: no batch normalisation over
  examples, no ranking of norms, no clip norm from their quantile, no division by the number of who is left. The
  number of examples by which sums are divided is a public constant.
- What an example contributes may depend on its own ledger: instead of dropping out, everybody may be clipped to an
  equal share of what they have left over the steps to come (``bench/individual_budgets.py``).
- The run ends after a number of steps, or by a rule, that depends on releases only: "until everybody is spent" is
  not one.
- *Ledgers are private.* What an example has spent, who takes part, how many are left, the largest or the mean budget:
  each is computed from gradients without noise. Publishing any of them breaks the guarantee. A number of participants
  can be had by asking for it as a query: contributions of norm 1, Gaussian noise, charged like a gradient.
- All ledgers start full, or hold budgets that depend on X_i alone (each example then has its own guarantee).

The guarantee is the same for everybody: nobody is promised less than with a common budget. What is gained is that the
run goes on.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._numerics.rounding import deflated
from jaxacct.filters import amounts
from jaxacct.filters.per_example.examples import (
    INFINITY,
    as_bits,
    check_examples,
    check_query,
    for_norms,
    given_norms,
    sensitivity_of,
    settle_norms,
)
from jaxacct.filters.printing import printed_as
from jaxacct.filters.states import keeps

__all__ = ["IndividualFilter", "IndividualState", "for_each_example", "individual"]

_STATEMENT = (
    "For every data set, every example in it, and add and remove alike, if each example was charged in every step, "
    "sampled or not, for the norm up to which it could contribute, contributions and ledgers depend on other examples "
    "through releases only, and no ledger, nor who takes part, was published (individual filters: Feldman, Zrnic 2021; "
    "proof: docs/proofs/filters.md, theorem 2): "
)


def for_each_example(guarantee: Any) -> Any:
    """A scalar filter's guarantee, with what makes it everybody's."""
    return dataclasses.replace(guarantee, statement=_STATEMENT + guarantee.statement)


class IndividualState(NamedTuple):
    """What a run carries, all of it as private as the data.

    Attributes:
        each: the scalar filter's state with a leading axis of examples.
        allowed: float32, shape ``(examples,)``: the norm up to which each takes part in the last step.
    """

    each: Any
    allowed: Array


@printed_as("individual", "filter", "examples")
@keeps(IndividualState)
@_register
class IndividualFilter:
    """Any filter, once for each example; see `individual`.

    Attributes:
        filter: everybody's filter.
        examples: how many there are, static.
    """

    filter: Any
    examples: int = dataclasses.field(metadata={"static": True})

    @property
    def guarantee(self) -> Any:
        """The scalar filter's guarantee for every example; a bound where that is one. See the module."""
        return for_each_example(self.filter.guarantee)

    def init(self) -> IndividualState:
        """The state in which nobody has spent anything."""
        each = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.examples, axis=0), self.filter.init())
        return IndividualState(each, jnp.zeros(self.examples, jnp.float32))

    def update(self, query: Any, norms: ArrayLike, state: IndividualState) -> tuple[Array, IndividualState]:
        """Who may take part (bool, shape ``(examples,)``) and the state after the step. Both are private.

        Args:
            query: a `Gaussian` or a `PoissonSampled` one that the filter takes; ``sensitivity`` is the clip norm, in
                the unit of ``norms``. The rate may be one for each example.
            norms: of everybody's gradient, shape ``(examples,)``. An example of norm 0 pays nothing; one whose norm is
                NaN, infinite or negative takes no part.
            state: from `init` or `update`.

        Raises:
            ValueError: another type of query, or norms that are not one float for each example.
        """
        check_query(query, self.examples)
        return _update(self.filter, query, given_norms(norms, self.examples), state)

    def bounds(self, query: Any, norms: ArrayLike, state: IndividualState) -> Array:
        """The norm up to which each example may contribute to the step that ``state`` is *after*; 0 for nothing.

        float32, shape ``(examples,)``. A filter with a ``clip_scale`` shortens the last step of each example to what is
        left. Clip to it again, whatever else has been done: then nobody contributes more than was charged.
        """
        del query, norms
        return state.allowed

    def spent(self, state: IndividualState) -> Array:
        """What each example has spent, in the filter's parameter. Private."""
        return jax.vmap(self.filter.spent)(state.each)

    def remaining(self, state: IndividualState) -> Array:
        """What each example has left, in the filter's parameter. Private."""
        return jax.vmap(self.filter.remaining)(state.each)

    def fraction(self, state: IndividualState) -> Array:
        """The share of its budget that each example has spent. Private."""
        return jax.vmap(self.filter.fraction)(state.each)


# In float64: a query's Python floats would otherwise be rounded to the nearest float32, to less noise or to more.
@jax.enable_x64(True)
@jax.jit
def _update(filter: Any, query: Any, norms: Array, state: IndividualState) -> tuple[Array, IndividualState]:
    norms = settle_norms(norms, norms.shape[0])
    clip = amounts.outward(jnp.asarray(sensitivity_of(query), jnp.float64), "float32", up=True)
    clipped = jnp.where(norms > clip, clip, norms)
    good = (as_bits(norms) > 0) & (as_bits(norms) < INFINITY) & (clip > 0) & (clip < jnp.inf)
    asked = for_norms(query, jnp.where(good, clipped, 1.0))
    asked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, norms.shape), asked)

    def one(query: Any, norm: Array, good: Array, each: Any) -> tuple[Array, Any]:
        admitted, after = filter.update(query, each)
        allowed = jnp.where(admitted & good, norm, 0.0)
        if hasattr(filter, "clip_scale"):
            scale = filter.clip_scale(query, each)
            scale = amounts.outward(jnp.asarray(scale, jnp.float64), "float32", up=False)
            # A factor of 1 is exact; below it the product is rounded down by two units.
            allowed = jnp.where(scale >= 1, allowed, jnp.where(scale > 0, deflated(allowed * scale, 2.0**-22), 0.0))
        return allowed, jax.tree.map(lambda new, old: jnp.where(allowed > 0, new, old), after, each)

    allowed, each = jax.vmap(one)(asked, clipped, good, state.each)
    return allowed > 0, IndividualState(each, allowed)


def individual(filter: Any, *, examples: int) -> IndividualFilter:
    """A filter that keeps one ledger of ``filter`` for each example; the theorem is at the head of this module.

    Rényi, GDP, zCDP, residue filters and menus alike: what the scalar filter guarantees of an analyst, the individual
    one guarantees to each example. It is ``vmap`` of the scalar filter, so a step takes as long as that many updates;
    `individual_priced_menu` and `individual_approximate_gdp` are the fast ones, for millions.

    Args:
        filter: a filter of :mod:`jaxacct.filters` with a single budget, whose update can be mapped over.
        examples: how many; a static part of the program.

    Raises:
        ValueError: an array of budgets, or examples that are no whole number above 0.
    """
    examples = check_examples(examples)
    methods = ("init", "update", "spent", "remaining", "fraction")
    if isinstance(filter, type) or not all(callable(getattr(filter, name, None)) for name in methods):
        raise ValueError(f"filter must be one of jaxacct.filters, got {filter!r:.200}")
    if jnp.ndim(filter.guarantee.delta(1.0)):
        raise ValueError("filter must have a single budget, the same for everybody, got an array of budgets")
    return IndividualFilter(filter, examples)
