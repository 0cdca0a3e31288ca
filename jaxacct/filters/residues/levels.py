"""`on_levels`: serves traced noise with a filter that needs concrete queries, by rounding to prepared levels."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._types import Bool, PyTree
from jaxacct.filters import amounts, prepare
from jaxacct.filters.around import AroundFilter
from jaxacct.filters.base import Filter
from jaxacct.filters.prices.arguments import check_mechanisms
from jaxacct.filters.prices.entries import edges_of, shrunk
from jaxacct.filters.printing import printed_as
from jaxacct.filters.queries import as_sampled_gaussian
from jaxacct.filters.residues.prepare import Prepared
from jaxacct.mechanisms.base import Mechanism


@printed_as("on_levels", "filter")
@_register
class LevelsFilter(AroundFilter):
    """``filter``, asked through a list of sampled Gaussians; make it with `on_levels`.

    The inner filter's guarantee holds: what is charged dominates what is asked for.

    Attributes:
        filter: charges prepared queries.
        queries: the prepared levels, stacked.
        noise: the least noise multipliers that count as each, a hair below its own, in exact float32 pieces, in rising
            order of cost.
        rate: the largest sampling rates that do, likewise.
    """

    filter: Filter
    queries: Prepared
    noise: Array
    rate: Array

    def update(self, query: object, state: PyTree) -> tuple[Bool[Array, "*shape"], PyTree]:
        """Whether ``query`` may run and the state after it: charged as the cheapest level that dominates it.

        A sampled Gaussian is dominated by another of no more noise and no smaller rate (data processing, and joint
        convexity of hockey sticks in the pair), so the charge is sound; refused where no level does, and NaN.

        Args:
            query: a `Gaussian` or a `PoissonSampled` one with scalar parameters, traced or not.
            state: from `init` or `update`.

        Raises:
            ValueError: a query of another type.
        """
        place, covered = _cheapest(self.noise, self.rate, query)
        prepared = jax.tree.map(lambda leaf: jnp.asarray(leaf)[place], self.queries)
        admitted, after = self.filter.update(prepared, state)
        admitted = admitted & covered
        return admitted, jax.tree.map(lambda new, old: jnp.where(admitted, new, old), after, state)

    def _covers(self, query: object) -> ArrayLike:
        return _cheapest(self.noise, self.rate, query)[1]

    def _outside(self, query: object) -> str:
        del query
        return ""


@in_float64
@jax.jit
def _cheapest(noise_pieces: Array, rate_pieces: Array, query: object) -> tuple[Array, Array]:
    found = as_sampled_gaussian(query)
    if found is None:
        raise ValueError(f"query must be a Gaussian or a PoissonSampled one, got {type(query).__name__}")
    noise, rate = (jnp.asarray(x, jnp.float64) for x in found)
    covers = (noise >= amounts.join(noise_pieces)) & (rate <= amounts.join(rate_pieces)) & (rate >= 0)
    # Levels are in rising order of cost, so the first that covers is the cheapest. (Whole numbers of 64 bits, which
    # jnp.argmax would take, do not lower inside a float32 program.)
    return jax.lax.argmax(covers, 0, jnp.int32), jnp.any(covers) & (noise < jnp.inf)


def on_levels(filter: Filter, menu: Sequence[Mechanism], *, atoms: int = 128) -> LevelsFilter:
    """``filter`` for a training step whose noise is traced: queries are rounded to ``menu``, prepared once.

    `filters.gdp_residue`, `residue` and the natural filters compute with a query's whole privacy loss, for which its
    parameters must be concrete; a schedule that reacts to releases proposes traced ones. Here each entry of ``menu`` is
    prepared once (:func:`jaxacct.filters.prepare`), and a query is charged as the cheapest entry with no more noise
    and no smaller rate. Include every level that the schedule proposes, and nothing is lost.

    Args:
        filter: one that takes prepared queries.
        menu: (sampled) Gaussians with concrete scalar parameters, as from `filters.gaussian_menu`.
        atoms: as in :func:`jaxacct.filters.prepare`.

    Raises:
        ValueError: an empty menu, or an entry that is no (sampled) Gaussian with scalar, concrete parameters.
    """
    _validate.methods("init", "update", filter=filter)
    _validate.whole(atoms=atoms)
    check_mechanisms(menu=menu)
    edges = edges_of(menu)
    with jax.enable_x64(True):
        noise, rate = (np.asarray(amounts.join(edge)) for edge in edges)
    if not len(menu) or not np.all((noise > 0) & (rate > 0)):
        raise ValueError(f"menu must hold Gaussians or PoissonSampled ones, at least one, got {menu!r:.200}")
    # The small-rate cost of a step puts them in order; the order is a matter of price and not of soundness.
    order = np.argsort(rate**2 * np.expm1(np.minimum(noise**-2, 700.0)), kind="stable")
    prepared = [prepare(shrunk(menu[i]), atoms=atoms) for i in order]
    queries = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *prepared)
    return LevelsFilter(filter, queries, *(edge[order] for edge in edges))
