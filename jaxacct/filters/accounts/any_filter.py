"""An account for each example over any filter; an example drops out when its budget is spent.

In each step everybody is asked and charged, sampled or not, for the query with noise multiplier sigma / min(norm, clip
norm), and contributes at most that norm, or nothing if refused. Then the whole run has the filter's guarantee for
every data set with and without each example, in both directions (docs/proofs/filters.md, 6, has the proof; Feldman,
Zrnic 2021 for Rényi divergence, Theorem 4.4 of the f-DP filters paper for its Algorithm 3).

docs/how-to/per-example-budgets.md says what that asks of the program around: above all that accounts, and whatever is
computed from them, are never published.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import deflated
from jaxacct._types import PyTree
from jaxacct.filters import amounts
from jaxacct.filters.accounts.examples import INFINITY, Common, ExamplesState, PerExampleFilter, as_bits, settle_norms
from jaxacct.filters.base import LastStepFilter
from jaxacct.filters.marks import mark_of, put_for
from jaxacct.filters.queries import for_norms, sensitivity_of
from jaxacct.filters.states import filter_class


@filter_class(ExamplesState, "per_example", "filter", "examples")
class AnyPerExampleFilter(PerExampleFilter[Common]):
    """Any filter, once for each example; see `per_example`.

    A filter with an ``update_clipped`` shortens the last step of each example to what is left. The rate of a query may
    be one for each example.

    Attributes:
        filter: everybody's filter.
        examples: how many there are, static.
    """

    filter: Common
    examples: int = dataclasses.field(metadata={"static": True})

    def _fresh(self, sharding: jax.sharding.Sharding | None = None) -> ExamplesState:
        one = put_for(self.filter, self.filter.init(), None)
        each = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], self.examples, axis=0), one)
        return ExamplesState(jax.device_put((each, jnp.zeros(self.examples, jnp.float32)), sharding))

    # In float64: a query's Python floats would otherwise be rounded to the nearest float32, to less noise or to more.
    def _charged(self, query: PyTree, norms: ArrayLike, words: PyTree) -> PyTree:
        norms = settle_norms(norms, self.examples)
        clip = amounts.outward(jnp.asarray(sensitivity_of(query), jnp.float64), "float32", up=True)
        clipped = jnp.where(norms > clip, clip, norms)
        good = (as_bits(norms) > 0) & (as_bits(norms) < INFINITY) & (clip > 0) & (clip < jnp.inf)
        asked = for_norms(query, jnp.where(good, clipped, 1.0))
        asked = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, norms.shape), asked)
        own = mark_of(self.filter)

        def one(query: object, norm: Array, good: Array, bare: PyTree) -> tuple[PyTree, Array]:
            state = put_for(self.filter, bare, own)
            if isinstance(self.filter, LastStepFilter):
                admitted, after, scale = self.filter.update_clipped(query, state)
                scale = amounts.outward(jnp.asarray(scale, jnp.float64), "float32", up=False)
            else:
                (admitted, after), scale = self.filter.update(query, state), jnp.float32(1.0)
            # A factor of 1 is exact; below it the product is rounded down by two units.
            less = jnp.where(scale > 0, deflated(norm * scale, 2.0**-22), 0.0)
            allowed = jnp.where(admitted & good, jnp.where(scale >= 1, norm, less), 0.0)
            after = put_for(self.filter, after, None)
            return jax.tree.map(lambda new, old: jnp.where(allowed > 0, new, old), after, bare), allowed

        return jax.vmap(one)(asked, clipped, good, words[0])

    def _taking(self, words: PyTree) -> Array:
        return words[1] > 0

    def _allowed(self, query: PyTree, norms: ArrayLike, words: PyTree) -> Array:
        return words[1]

    def _spent(self, state: ExamplesState) -> PyTree:
        return self._of_all("spent", state)

    def _remaining(self, state: ExamplesState) -> PyTree:
        return self._of_all("remaining", state)

    def _fraction(self, state: ExamplesState) -> Array:
        return self._of_all("fraction", state)

    def _of_all(self, which: str, state: ExamplesState) -> Array:
        """A reading of everybody's state, whose marks are one."""
        own, read = mark_of(self.filter), getattr(self.filter, which)
        return jax.vmap(lambda one: read(put_for(self.filter, one, own)))(state.words[0])
