"""`menu` with an account for each example, charged for its own clipped gradient norm in whole units."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxacct.filters.accounts.examples import ExamplesState, looked_up
from jaxacct.filters.accounts.units import UnitsPerExampleFilter, rows_for, rows_of
from jaxacct.filters.prices.menu import MenuFilter
from jaxacct.filters.queries import for_norms
from jaxacct.filters.states import filter_class


@filter_class(ExamplesState, "per_example", "common", "examples")
class TablePerExampleFilter(UnitsPerExampleFilter):
    """One budget of whole units for each example; see `per_example`.

    An example of norm n is charged for the query with noise multiplier sigma / min(n, sensitivity), as the cheapest
    entry of the menu that dominates it; norms are first rounded up to 7 bits after the leading one. Who cannot pay
    takes no part and keeps what is left. A query is a `Gaussian` or a `PoissonSampled` one. Its rate may be one for
    each example, shape ``(examples,)``, which takes longer; each must depend on that example and earlier outputs only.

    Attributes:
        common: the `MenuFilter` whose prices and budget are everybody's.
        examples: how many accounts there are, static.
        rows: of the table of prices by norm, static.
    """

    common: MenuFilter
    examples: int = dataclasses.field(metadata={"static": True})
    rows: int = dataclasses.field(metadata={"static": True})

    def _prices(self, query: object, clip: Array, bits: Array, left: Array) -> Array:
        del left
        if any(np.ndim(leaf) for leaf in jax.tree.leaves(query)):  # rates of their own
            return self.common.price(for_norms(query, jax.lax.bitcast_convert_type(bits, jnp.float32)))
        highs, row = rows_of(clip, bits, self.rows)
        # Prices rise already. Sorting keeps the compiler from fusing their computation into everybody's look-up.
        return looked_up(jnp.sort(self.common.price(for_norms(query, highs))), row)


def individual_menu(filter: MenuFilter, examples: int) -> TablePerExampleFilter:
    """One account of a menu for each example."""
    return TablePerExampleFilter(filter, examples, rows_for(filter.noise))
