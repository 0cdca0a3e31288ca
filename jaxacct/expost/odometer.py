"""An odometer: the cost so far of a fully adaptive interaction, at one Rényi order or at all of them.

Composition with fully adaptive bounds (Section 4): every step's epsilon may be chosen from all earlier outputs, and
the plain sum is the epsilon of an ex-post Rényi result, at whatever step one stops (docs/theorems/odometers.md), and a
sum of rho that of an ex-post zCDP result. Odometers made of many filters
round the sum up to the next filter's budget (Feldman, Zrnic 2021; Lécuyer 2021); this one does not.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import array_module
from jaxacct._numerics.float64 import in_float64, settled
from jaxacct._numerics.host import at_hand, not_negative, on_host
from jaxacct._numerics.pieces import join, split_exact
from jaxacct._numerics.rounding import inflated
from jaxacct.expost.definitions import ExPostResult, RenyiExPost, ZCDPExPost
from jaxacct.filters.additive.costs import concentrated_cost
from jaxacct.filters.amounts import rounded
from jaxacct.filters.base import is_scalar_query
from jaxacct.filters.described import word_of
from jaxacct.filters.printing import number
from jaxacct.losses.renyi import renyi as _curve
from jaxacct.mechanisms.base import Mechanism

_LEAST, _MOST = 2.0**-60, 2.0**90


class RenyiOdometerState(NamedTuple):
    """What a scan carries: the sum of divergences as three float32 numbers whose exact sum it is, float32[..., 3].

    ``mark`` is of the odometer's order (:mod:`jaxacct.filters.marks`).
    """

    pieces: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"RenyiOdometerState(divergence {number(join(self.pieces)) if at_hand(self.pieces) else self.pieces})"


@dataclasses.dataclass(frozen=True)
class RenyiOdometer:
    """Sums the Rényi divergences of queries at one order, fixed before the first one; pure, for any JAX program.

    Without an order it sums rho, for all orders at once, and its results are `ZCDPExPost`.

    The filters' protocol without refusals: ``update(query, state)`` returns the next state. A cost that is NaN or
    negative makes the sum infinite. The sum is rounded up by at most 2^-51 of itself a step, and is at least 2^-60
    once anything was spent.

    Attributes:
        order: above 1, concrete, or None.
    """

    order: float | None

    def __post_init__(self) -> None:
        if self.order is not None:
            object.__setattr__(self, "order", RenyiExPost(self.order).order)

    @property
    def definition(self) -> RenyiExPost | ZCDPExPost:
        """Ex-post Rényi at this order, or ex-post zCDP."""
        return ZCDPExPost() if self.order is None else RenyiExPost(self.order)

    def init(self) -> RenyiOdometerState:
        """The state with nothing spent."""
        return RenyiOdometerState(jnp.zeros(3, jnp.float32), jnp.uint32(self._mark()))

    def _mark(self) -> np.uint32:
        return np.uint32(word_of((type(self).__name__, self.order)))

    def _own(self, state: RenyiOdometerState) -> Array | np.ndarray:
        """Whether a state is of this order and its pieces are as `init` made them: others have lost some of the sum."""
        kept = getattr(state.pieces, "dtype", None) == np.float32
        return np.asarray(False) if state.mark is None or not kept else on_host(state.mark) == self._mark()

    def update(self, query: Mechanism | ArrayLike, state: RenyiOdometerState) -> RenyiOdometerState:
        """The state after ``query``: a mechanism with a Rényi curve, or its divergence at this order as a number.

        Without an order: what `jaxacct.filters.zcdp` takes, or its rho. Mechanisms count for add-or-remove neighbours,
        as in `jaxacct.filters.renyi`.

        Returns:
            The state; of an odometer of another order, and of damaged words, one with an infinite sum.

        Raises:
            ValueError: a query of another type, or one that holds no plain numbers (a mask, a truth value, a text).
        """
        _validate.plain(query=query)
        if is_scalar_query(query):
            cost = not_negative(query)
        else:
            cost = concentrated_cost(query) if self.order is None else _curve(cast(Mechanism, query), self.order)
        (cost,) = settled(cost)
        return RenyiOdometerState(_update(cost, state.pieces, self._own(state)), state.mark)

    @rounded(up=True)
    def spent(self, state: RenyiOdometerState) -> Array:
        """The sum so far, rounded up, in the caller's float type.

        Raises:
            ValueError: a concrete state of another order, or not in float32. In a program its sum is infinite.
        """
        own = self._own(state)
        if at_hand(own) and not np.all(own):
            raise ValueError(
                f"state must be one of this odometer, of order {self.order}, with float32 pieces, got {state!r:.200}"
            )
        total = _sum(state.pieces)
        return array_module(own, total).where(own, total, np.inf)

    def result(self, output: object, state: RenyiOdometerState) -> ExPostResult:
        """``output`` with the sum so far as the number of an ex-post result of this odometer's definition."""
        return ExPostResult(output, self.spent(state), self.definition)


def _sum(pieces: Array) -> Array:
    """The sum that pieces hold; infinite where it is no sum of divergences."""
    total = join(pieces)
    return array_module(total).where(total >= 0, total, np.inf)


@in_float64
@jax.jit
def _update(cost: ArrayLike, pieces: Array, own: Array) -> Array:
    cost = jnp.where(own, jnp.asarray(cost, jnp.float64), jnp.inf)
    total = inflated(_sum(pieces) + jnp.where(cost >= 0, cost, jnp.inf), 2.0**-52)
    total = jnp.where((total > 0) | (cost > 0), jnp.maximum(total, _LEAST), total)
    # Three float32 numbers hold 72 bits of any number between the limits.
    held = split_exact(jnp.where(total <= _MOST, total, 0.0))
    return jnp.where((total <= _MOST)[..., None], held, jnp.float32(jnp.inf))
