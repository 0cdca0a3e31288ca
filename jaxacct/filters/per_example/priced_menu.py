"""The priced menu for each example, charged for its own clipped gradient norm in whole units."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct.filters.menus.priced_menu import PricedMenuFilter, priced_menu
from jaxacct.filters.per_example.examples import ExamplesState, check_examples, for_norms, looked_up
from jaxacct.filters.per_example.units import PricedPerExampleFilter, rows_for, rows_of
from jaxacct.filters.states import filter_class
from jaxacct.mechanisms.base import Mechanism


@filter_class(ExamplesState, "individual_priced_menu", "common", "examples")
class IndividualPricedMenuFilter(PricedPerExampleFilter):
    """One budget of whole units for each example; see `individual_priced_menu`.

    An example of norm n is charged for the query with noise multiplier sigma / min(n, sensitivity), as the cheapest
    entry of the menu that dominates it; norms are first rounded up to 7 bits after the leading one. Who cannot pay
    takes no part and keeps what is left. A query is a `Gaussian` or a `PoissonSampled` one. Its rate may be one for
    each example, shape ``(examples,)``, which takes longer; each must depend on that example and earlier outputs only.

    Attributes:
        common: the `PricedMenuFilter` whose prices and budget are everybody's.
        examples: how many accounts there are, static.
        rows: of the table of prices by norm, static.
    """

    common: PricedMenuFilter
    examples: int = dataclasses.field(metadata={"static": True})
    rows: int = dataclasses.field(metadata={"static": True})

    def _prices(self, query: object, clip: Array, bits: Array, left: Array) -> Array:
        del left
        if any(np.ndim(leaf) for leaf in jax.tree.leaves(query)):  # rates of their own
            return self.common.price(for_norms(query, jax.lax.bitcast_convert_type(bits, jnp.float32)))
        highs, row = rows_of(clip, bits, self.rows)
        # Prices rise already. Sorting keeps the compiler from fusing their computation into everybody's look-up.
        return looked_up(jnp.sort(self.common.price(for_norms(query, highs))), row)


def individual_priced_menu(
    menu: Sequence[Mechanism],
    *,
    examples: int,
    epsilon: float,
    delta: float,
    unit: int = 32,
    points: int | None = None,
    cache: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> IndividualPricedMenuFilter:
    """`priced_menu` for each example by itself: a run that is (epsilon, delta)-DP, in which nobody stops the others.

    With a common budget everybody pays for the clip norm, and the run ends when it is spent. Here each example pays for
    its own gradient, and drops out when its own budget is spent; the run goes on with the examples whose gradients are
    short, which are learned already. The guarantee is the same as that of `priced_menu`, for every example and for
    add and remove alike (proof: docs/proofs/filters.md). docs/how-to/individual-budgets.md lists what it requires of
    the surrounding program, above all that accounts, and who takes part, are never published.

    The menu should reach far up: from the noise multiplier of a step to some multiple of it. Norms below clip norm
    times smallest noise over largest pay the cheapest price. (A menu that reaches up r times has a table of some r^2
    times the steps of its dearest entry; a ``unit`` of 32, not 288 as in `priced_menu`, is fine enough there.)

    Args:
        menu: as in `priced_menu`, for instance ``gaussian_menu((sigma, 8 * sigma), rate)``.
        examples: how many; a static part of the program.
        epsilon, delta, unit, points, cache, progress: as in `priced_menu`.

    Raises:
        ValueError: as in `priced_menu`; examples that are no whole number above 0.
    """
    examples = check_examples(examples)
    common = priced_menu(menu, epsilon=epsilon, delta=delta, unit=unit, points=points, cache=cache, progress=progress)
    return IndividualPricedMenuFilter(common, examples, rows_for(common.noise))
