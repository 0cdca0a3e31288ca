"""Odometers: what has been spent so far, and what that number proves although it depends on outputs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.filters import amounts
from jaxacct.filters.additive.gdp import GDPFilter
from jaxacct.filters.additive.pure_dp import PureDPFilter
from jaxacct.filters.additive.renyi import RenyiFilter
from jaxacct.filters.additive.zcdp import ZCDPFilter
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.around import AroundFilter
from jaxacct.filters.expost_readings import approximate_reading, probable_reading
from jaxacct.filters.states import filter_class

_FAMILIES = (PureDPFilter, ZCDPFilter, RenyiFilter, GDPFilter)
_MOST_LEVELS = 32
_ORDERS = tuple(1 + 2.0**k for k in range(-1, 10))
_EX_POST = (
    "Ex-post, not ex-ante: the number depends on the outputs, so it is no (epsilon, delta)-DP of the interaction (an "
    "interaction that publishes everything half of the time and nothing otherwise reads 0 half of the time; paper on "
    "accuracy-first Rényi privacy, Appendix A). "
)
_CLAIM = (
    "For a delta fixed before the first query and any stopping rule, P(S) <= E_Q[exp(epsilon) on S] + delta for "
    "every event S, with epsilon the reading when the analyst stops (approximate ex-post privacy: Ghazi et al. 2025)"
)
_STATEMENTS = {
    "pure": _EX_POST + "The privacy loss is at most the reading, on every path and at all times: pure ex-post privacy "
    "(Ligett et al. 2017) without any delta, because basic composition bounds the loss path by path (Rogers, Roth, "
    "Ullman, Vadhan 2016).",
    "one order": _EX_POST + "The running sum at the one order fixed in advance is ex-post Rényi privacy, without "
    "discretisation (paper on accuracy-first Rényi privacy, Section 4: composition with adaptive bounds). "
    + _CLAIM
    + ", by the conversion of Canonne, Kamath, Steinke 2020 applied to it. loss_bound is the weaker conversion by "
    "Markov's inequality, which holds at all times at once (Ville).",
    "mixture": _EX_POST + "At each of the orders fixed in advance the running sum is ex-post Rényi privacy (paper on "
    "accuracy-first Rényi privacy, Section 4), and so is the equal mixture of the orders' supermartingales, which is "
    "read here (the method of mixtures, as in the odometers of Whitehouse, Ramdas, Rogers, Wu 2023, over a finite set "
    "of orders). " + _CLAIM + ". The sum converted as if it had been fixed in advance would be smaller, and is not "
    "proven at a stopping time: it can be exceeded.",
    "levels": _EX_POST + "A family of n filters whose budgets double, each at delta / n; the reading is the guarantee "
    "of the smallest that still stands (Feldman, Zrnic 2021; Lécuyer 2021, Algorithm 2; Koskela, Tobaben, Honkela 2023 "
    "for GDP). " + _CLAIM + ": on the outcomes at which filter i is the smallest, the interaction is its own. "
    "Lécuyer's Theorem 2 as an ex-ante claim for the interaction is not proven, and not made here.",
}


@filter_class(SpentState, "odometer", "filter")
class Odometer(AroundFilter):
    """The running cost of a `pure_dp`, `zcdp`, `renyi` or `gdp` interaction; see `odometer`.

    It is a filter too: `init`, `update`, `spent`, `remaining`, `fraction` and `guarantee` are those of ``filter``,
    the largest amount that it counts to; its ex-ante guarantee holds however little has been spent. A query for which
    `update` says False was not counted and must not run. `epsilon` and `loss_bound` read it.

    Attributes:
        filter: the filter of the largest budget.
        orders: orders of the mixture, static; empty where ``filter`` has an order of its own or none.
        levels: how many filters the discretised family has, static; 0 for none.
    """

    filter: PureDPFilter | ZCDPFilter | RenyiFilter | GDPFilter
    orders: tuple[float, ...] = dataclasses.field(metadata={"static": True})
    levels: int = dataclasses.field(metadata={"static": True})

    @property
    def statement(self) -> str:
        """What a reading means, by which theorem, and what it does not mean."""
        if self.levels:
            return _STATEMENTS["levels"]
        if isinstance(self.filter, PureDPFilter):
            return _STATEMENTS["pure"]
        return _STATEMENTS["one order" if isinstance(self.filter, RenyiFilter) else "mixture"]

    def epsilon(self, state: SpentState, delta: ArrayLike) -> Array:
        """The ex-post epsilon at ``delta``, rounded up, in the caller's float type; `statement` says what it means.

        Args:
            state: after the last query.
            delta: strictly between 0 and 1 (a `pure_dp` odometer ignores it), fixed before the first query;
                broadcasts with the state's shape.

        Raises:
            ValueError: a concrete ``delta`` outside (0, 1).
        """
        return self._reading(state, delta, "levels" if self.levels else "approximate")

    def loss_bound(self, state: SpentState, delta: ArrayLike) -> Array:
        """A bound that the loss exceeds *at any time* with probability at most ``delta`` (Rogers et al. 2016).

        Probabilistic ex-post privacy, uniform in time, by Ville's inequality; rounded up, in the caller's float type.
        It is larger than `epsilon`, and unlike ex-post Rényi privacy not immune to post-processing.

        Raises:
            ValueError: a concrete ``delta`` outside (0, 1), or an odometer of discrete levels.
        """
        if self.levels:
            raise ValueError(f"levels must be None for loss_bound, got {self.levels}")
        return self._reading(state, delta, "probable")

    def _reading(self, state: SpentState, delta: ArrayLike, how: str) -> Array:
        _validate.probability(delta=delta)
        if isinstance(self.filter, PureDPFilter):
            return self.spent(state)
        return self._read(lambda state: _reading(self, state, delta, how), state, up=True)


def _sums(counter: Odometer, state: SpentState) -> tuple[Array, Array]:
    """The orders, shape (k,), and the running divergences at them, rounded up, shape (..., k)."""
    budget = amounts.join(counter.filter.pieces)
    share = amounts.used(state)
    if isinstance(counter.filter, RenyiFilter):
        return jnp.asarray([counter.filter.order]), inflated(budget * share, 2.0**-50)[..., None]
    rho = budget * share if isinstance(counter.filter, ZCDPFilter) else budget * budget * share / 2
    orders = jnp.asarray(counter.orders)
    return orders, orders * inflated(rho, 2.0**-50)[..., None]


@in_float64
@functools.partial(jax.jit, static_argnames="how")
def _reading(counter: Odometer, state: SpentState, delta: ArrayLike, how: str) -> Array:
    delta = jnp.asarray(delta, jnp.float64)
    if how == "levels":
        return _of_levels(counter, state, delta)
    orders, sums = _sums(counter, state)
    shape = np.broadcast_shapes(sums.shape[:-1], delta.shape)
    read = approximate_reading if how == "approximate" else probable_reading
    value = read(orders, jnp.broadcast_to(sums, (*shape, sums.shape[-1])), jnp.broadcast_to(delta, shape))
    # Nothing spent is nothing released.
    return jnp.where(jnp.all(state.words == 0, axis=-1), 0.0, value)


def _of_levels(counter: Odometer, state: SpentState, delta: Array) -> Array:
    """The guarantee at delta / n of the smallest filter whose budget, 2^-i of the largest, is not overdrawn."""
    shares = 2.0 ** -np.arange(counter.levels, dtype=np.float64)
    scales = inflated(np.sqrt(shares), 2.0**-50) if isinstance(counter.filter, GDPFilter) else shares
    budgets = amounts.join(counter.filter.pieces)[..., None] * scales
    family = dataclasses.replace(counter.filter, pieces=amounts.split(budgets))
    each = family.guarantee.epsilon(deflated(delta / counter.levels, 2.0**-51)[..., None])
    # The largest filter stands as long as the account does, its slack included.
    standing = (amounts.used(state)[..., None] <= shares) | (shares == 1)
    return jnp.min(jnp.where(standing, each, jnp.inf), axis=-1)


def odometer(
    filter: PureDPFilter | ZCDPFilter | RenyiFilter | GDPFilter,
    *,
    levels: int | None = None,
    orders: Sequence[float] | None = None,
) -> Odometer:
    """An odometer for the queries of ``filter``, whose budget is the largest amount that it counts to.

    The reading and its theorem depend on the kind of ``filter`` (P, Q: outputs on either of two neighbours):

    - `pure_dp`: the sum of epsilons. The loss never exceeds it: exact, no delta.
    - `renyi`: the running divergence R at its one order, which is ex-post Rényi privacy as it stands. `epsilon`
      converts it as if R had been fixed; no discretisation, no union bound.
    - `zcdp`, `gdp`: the running rho or mu. Read as if it had been fixed in advance it proves nothing: an analyst who
      stops when the loss is high spends delta at every possible stopping point anew. `epsilon` mixes Rényi divergences
      of ``orders``; that costs at most log(number of orders) on top of log(1 / delta).
    - any but `pure_dp` with ``levels``: the classical odometer, n filters of budgets B, B/2, B/4, ... (in divergence,
      rho or mu^2) at delta / n. It reads high by up to a factor 2 in the cost, but keeps the tight curve of GDP.

    None of these numbers is a DP guarantee of the interaction: that is `guarantee`, of the largest budget.

    Args:
        filter: from `pure_dp`, `zcdp`, `renyi` or `gdp`; a batch of budgets counts a batch of interactions.
        levels: a concrete number from 1 to 32, for the discretised family.
        orders: concrete numbers above 1, fixed in advance, for `zcdp` and `gdp`; by default 1 + 2^k, k from -1 to 9.

    Raises:
        ValueError: another filter; levels or orders that the filter does not take.
    """
    if not isinstance(filter, _FAMILIES):
        raise ValueError(f"filter must be a pure_dp, zcdp, renyi or gdp filter, got {type(filter).__name__}")
    mixes = isinstance(filter, ZCDPFilter | GDPFilter) and levels is None
    if orders is not None and not mixes:
        raise ValueError("orders must be None but for zcdp and gdp without levels, got a sequence")
    if levels is not None:
        _validate.whole(levels=levels)
        if levels > _MOST_LEVELS:
            raise ValueError(f"levels must be at most {_MOST_LEVELS}, got {levels}")
        if isinstance(filter, PureDPFilter):
            raise ValueError(f"levels must be None for pure_dp, which reads exactly without them, got {levels}")
    if orders is not None:
        _validate.greater(1.0, orders=orders)
        if _validate.is_traced(orders) or np.ndim(orders) != 1 or not len(orders):
            raise ValueError(f"orders must be a sequence of one or more concrete numbers, got {orders!r:.200}")
    chosen = tuple(float(order) for order in (_ORDERS if orders is None else orders)) if mixes else ()
    return Odometer(filter, chosen, int(levels or 0))
