"""Individual accounts in whole units: what the menu and the box have in common."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct._numerics.float64 import reentrant_x64
from jaxacct.filters import amounts
from jaxacct.filters.accounts.any_filter import for_each_example
from jaxacct.filters.accounts.examples import (
    FLAG,
    INFINITY,
    ExamplesState,
    PerExampleFilter,
    as_bits,
    settle_norms,
)
from jaxacct.filters.guarantees import ProfileGuarantee
from jaxacct.filters.prices.units import fraction_of
from jaxacct.filters.queries import sensitivity_of

_BITS = 7  # of a norm's mantissa that its price depends on: norms are rounded up by at most 1 / 128
_SHIFT = 23 - _BITS
_SPENT = np.int32(2**31 - 1)


class UnitsPerExampleFilter(PerExampleFilter):
    """Accounts that hold the units spent in the lower 31 bits of a word; a subclass has the prices."""

    common: Any
    rows: int

    @property
    def guarantee(self) -> ProfileGuarantee:
        """The common filter's certified profile for every example, a proven bound; see `per_example`."""
        return for_each_example(self.common.guarantee)

    def spent(self, state: ExamplesState) -> Array:
        """The units that each example has spent, int32. Private."""
        return _spent(state)

    def remaining(self, state: ExamplesState) -> Array:
        """The units that each example has left, int32. Private."""
        return jnp.asarray(self.common.budget, jnp.int32) - _spent(state)

    def fraction(self, state: ExamplesState) -> Array:
        """The share of the budget that each example has spent, rounded up, in the caller's float type. Private."""
        return fraction_of(self.common.budget, _spent(state))

    def _prices(self, query: object, clip: Array, bits: Array, left: Array) -> Array:
        """Units that each example would pay, by the bits of its clipped norm and the units it has left."""
        raise NotImplementedError

    def _charged(self, query: object, norms: ArrayLike, words: Array) -> Array:
        clip, bits, good = clipped(query, norms, self.examples)
        spent = words & _SPENT
        left = jnp.asarray(self.common.budget, jnp.int32) - spent
        price = self._prices(query, clip, bits, left)
        fits = good & (bits > 0) & (price <= left)
        return jnp.where(fits, (spent + price) | FLAG, spent)

    def _allowed(self, query: object, norms: ArrayLike, words: Array) -> Array:
        _, bits, good = clipped(query, norms, self.examples)
        return jax.lax.bitcast_convert_type(jnp.where((words < 0) & good & (bits > 0), bits, 0), jnp.float32)


def _spent(state: ExamplesState) -> Array:
    return state.words & _SPENT


def clipped(query: object, norms: ArrayLike, examples: int) -> tuple[Array, Array, Array]:
    """The clip norm (float32, rounded up), the bits of min(norm, clip norm), and whether a norm is one."""
    clip = amounts.outward(jnp.asarray(sensitivity_of(query), jnp.float64), "float32", up=True)
    bits = as_bits(settle_norms(norms, examples))
    good = (bits >= 0) & (bits < INFINITY) & (clip > 0) & (clip < jnp.inf)
    return clip, jnp.minimum(bits, as_bits(clip)), good


def rows_of(clip: Array, bits: Array, rows: int) -> tuple[Array, Array]:
    """The upper ends of the intervals of norms that have one price each, and the interval that each norm is in.

    Intervals (low, high] rise to the clip norm, 2^_BITS of them an octave; the first is for all that are smaller still.
    """
    last = (as_bits(clip) - 1) >> _SHIFT
    highs = jnp.maximum((last + 2 - rows + jnp.arange(rows)) << _SHIFT, 1).astype(jnp.int32)
    highs = jnp.minimum(jax.lax.bitcast_convert_type(highs, jnp.float32), clip)
    return highs, jnp.clip(((bits - 1) >> _SHIFT) - last + rows - 1, 0, rows - 1)


@reentrant_x64
def rows_for(noise: Array) -> int:
    """Enough for noise multipliers in pieces, NaN for none: norms below all pay the least price."""
    found = np.asarray(amounts.join(noise))
    found = found[~np.isnan(found)]
    span = found.max() / found.min() if found.size else 1.0
    return (min(math.ceil(math.log2(span)), 24) + 1) << _BITS
