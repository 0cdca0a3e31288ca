"""The priced menu for each example, charged for its own clipped gradient norm in whole units."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct._numerics.pytree import mechanism as _register
from jaxacct.filters import amounts
from jaxacct.filters.menus.priced_menu import PricedMenuFilter, fraction_of, priced_menu
from jaxacct.filters.per_example.any_filter import for_each_example
from jaxacct.filters.per_example.examples import (
    FLAG,
    INFINITY,
    ExampleLedgers,
    ExamplesState,
    as_bits,
    check_examples,
    check_query,
    flagged,
    for_norms,
    given_norms,
    looked_up,
    sensitivity_of,
    settle_norms,
)
from jaxacct.filters.printing import printed_as
from jaxacct.filters.profile_guarantee import ProfileGuarantee
from jaxacct.filters.states import keeps

__all__ = [
    "BITS",
    "SHIFT",
    "IndividualPricedMenuFilter",
    "bounds_of",
    "clipped",
    "individual_priced_menu",
    "rows_for",
]

BITS = 7  # of a norm's mantissa that its price depends on: norms are rounded up by at most 1 / 128
SHIFT = 23 - BITS
_SPENT = np.int32(2**31 - 1)


@printed_as("individual_priced_menu", "common", "examples")
@keeps(ExamplesState)
@_register
class IndividualPricedMenuFilter(ExampleLedgers):
    """One budget of whole units for each example; see `individual_priced_menu`.

    Attributes:
        common: the `PricedMenuFilter` whose prices and budget are everybody's.
        examples: how many ledgers there are, static.
        rows: of the table of prices by norm, static.
    """

    common: PricedMenuFilter
    examples: int = dataclasses.field(metadata={"static": True})
    rows: int = dataclasses.field(metadata={"static": True})

    @property
    def guarantee(self) -> ProfileGuarantee:
        """The menu's certified profile for every example, a proven bound; see `filters.per_example.any_filter`."""
        return for_each_example(self.common.guarantee)

    def update(
        self, query: Any, norms: ArrayLike, state: ExamplesState, *, donate: bool = False
    ) -> tuple[Array, ExamplesState]:
        """Who may take part (bool, shape ``(examples,)``) and the state after the step. Both are private.

        An example of norm n is charged for the query with noise multiplier sigma / min(n, sensitivity), as the
        cheapest entry of the menu that dominates it, whether it will be sampled or not; norms are first rounded up to
        7 bits after the leading one. Norm 0 costs nothing. Who cannot pay takes no part and keeps what is left.

        Args:
            query: a `Gaussian` or a `PoissonSampled` one; ``sensitivity`` is the clip norm, in the unit of ``norms``.
                The rate may be one for each example, shape ``(examples,)``, which takes longer; each must depend on
                that example and earlier outputs only.
            norms: of everybody's gradient at the current parameters, before or after clipping, shape ``(examples,)``;
                float64 is rounded up to float32. An example whose norm is NaN, infinite or negative takes no part.
            state: from `init` or `update`, with whatever sharding; the norms should have the same.
            donate: whether to write into the buffers of ``state``, which is then gone. (Inside a jitted function of
                the caller's nothing is donated but by that function.)

        Raises:
            ValueError: another type of query; norms or a state that are not one number for each example.
        """
        check_query(query, self.examples)
        run = _update_in_place if donate else _update
        takes_part, words = run(self, query, given_norms(norms, self.examples), self._same(state))
        return takes_part, ExamplesState(words)

    def bounds(self, query: Any, norms: ArrayLike, state: ExamplesState) -> Array:
        """The norm up to which each example may contribute to the step that ``state`` is *after*; 0 for nothing.

        Args:
            query: the query of that step.
            norms: the norms that were charged.
            state: from the `update` of that step.

        Returns:
            float32, shape ``(examples,)``: min(norm, sensitivity) for who takes part. Clip to it again, whatever else
            has been done: then nobody contributes more than was charged, however the norms were computed.
        """
        check_query(query, self.examples)
        return bounds_of(self, query, given_norms(norms, self.examples), self._same(state))

    def spent(self, state: ExamplesState) -> Array:
        """The units that each example has spent, int32. Private: see :mod:`jaxacct.filters.per_example.any_filter`."""
        return self._same(state) & _SPENT

    def remaining(self, state: ExamplesState) -> Array:
        """The units that each example has left, int32. Private."""
        return jnp.asarray(self.common.budget, jnp.int32) - self.spent(state)

    def fraction(self, state: ExamplesState) -> Array:
        """The share of the budget that each example has spent, rounded up, in the caller's float type. Private."""
        return fraction_of(self.common.budget, self.spent(state), amounts.caller_dtype())


def clipped(query: Any, norms: ArrayLike, examples: int) -> tuple[Array, Array, Array]:
    """The clip norm (float32, rounded up), the bits of min(norm, clip norm), and whether a norm is one."""
    clip = amounts.outward(jnp.asarray(sensitivity_of(query), jnp.float64), "float32", up=True)
    bits = as_bits(settle_norms(norms, examples))
    good = (bits >= 0) & (bits < INFINITY) & (clip > 0) & (clip < jnp.inf)
    return clip, jnp.minimum(bits, as_bits(clip)), good


def _update_words(ledger: IndividualPricedMenuFilter, query: Any, norms: ArrayLike, words: Array) -> Any:
    clip, bits, good = clipped(query, norms, ledger.examples)
    if any(np.ndim(leaf) for leaf in jax.tree.leaves(query)):  # rates of their own
        price = ledger.common.price(for_norms(query, jax.lax.bitcast_convert_type(bits, jnp.float32)))
    else:
        # Rows are intervals (low, high] of norms that rise to the clip norm, 2^BITS of them an octave; the first is
        # for all that are smaller still.
        last = (as_bits(clip) - 1) >> SHIFT
        highs = jnp.maximum((last + 2 - ledger.rows + jnp.arange(ledger.rows)) << SHIFT, 1).astype(jnp.int32)
        highs = jnp.minimum(jax.lax.bitcast_convert_type(highs, jnp.float32), clip)
        # Prices rise already. Sorting keeps the compiler from fusing their computation into everybody's look-up.
        prices = jnp.sort(ledger.common.price(for_norms(query, highs)))
        row = jnp.clip(((bits - 1) >> SHIFT) - last + ledger.rows - 1, 0, ledger.rows - 1)
        price = looked_up(prices, row)
    spent = words & _SPENT
    fits = good & (bits > 0) & (price <= jnp.asarray(ledger.common.budget, jnp.int32) - spent)
    after = jnp.where(fits, (spent + price) | FLAG, spent)
    return flagged(after), after


def _bounds_words(ledger: IndividualPricedMenuFilter, query: Any, norms: ArrayLike, words: Array) -> Array:
    _, bits, good = clipped(query, norms, ledger.examples)
    return jax.lax.bitcast_convert_type(jnp.where((words < 0) & good & (bits > 0), bits, 0), jnp.float32)


_update = jax.enable_x64(True)(jax.jit(_update_words))
_update_in_place = jax.enable_x64(True)(jax.jit(_update_words, donate_argnums=3))
bounds_of = jax.enable_x64(True)(jax.jit(_bounds_words))


def individual_priced_menu(
    menu: Sequence[Any],
    *,
    examples: int,
    epsilon: float,
    delta: float,
    unit: int = 32,
    points: int | None = None,
    cache: bool = True,
    progress: Callable[[int, int], Any] | None = None,
) -> IndividualPricedMenuFilter:
    """`priced_menu` for each example by itself: a run that is (epsilon, delta)-DP, in which nobody stops the others.

    With a common budget everybody pays for the clip norm, and the run ends when it is spent. Here each example pays for
    its own gradient, and drops out when its own budget is gone; the run goes on for those who have been learned
    already, whose gradients are short. The guarantee is the same as that of `priced_menu`, for every example and for
    add and remove alike; `filters.per_example.any_filter` holds the theorem, its proof and what it asks of the
    program around: above all that ledgers, and who takes part, are never published.

    The menu should reach far up: from the noise multiplier of a step to some multiple of it. Norms below clip norm
    times smallest noise over largest pay the cheapest price. (A menu that reaches up r times has a table of some r^2
    times the steps of its dearest entry; a ``unit`` of 32, not 288 as in `priced_menu`, is fine enough there.)

    Args:
        menu: as in `priced_menu`, for instance ``gaussian_menu((sigma, 8 * sigma), rate)``.
        examples: how many; a static part of the program.
        epsilon: as in `priced_menu`, as are all others.
        delta: as there.
        unit: as there.
        points: as there.
        cache: as there.
        progress: as there.

    Raises:
        ValueError: as in `priced_menu`; examples that are no whole number above 0.
    """
    examples = check_examples(examples)
    common = priced_menu(menu, epsilon=epsilon, delta=delta, unit=unit, points=points, cache=cache, progress=progress)
    return IndividualPricedMenuFilter(common, examples, _rows(common))


def _rows(common: PricedMenuFilter) -> int:
    with jax.enable_x64(True):
        noise = np.asarray(amounts.join(jnp.asarray(common.noise)))
    noise = noise[~np.isnan(noise)]
    return rows_for(noise.max() / noise.min() if noise.size else 1.0)


def rows_for(span: float) -> int:
    """Enough for a span of noise: norms below it all have the price of the quietest query."""
    return (min(math.ceil(math.log2(span)), 24) + 1) << BITS
