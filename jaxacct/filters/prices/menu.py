"""`menu`: a budget for queries from a menu, chosen with full adaptivity, at the menu's worst case."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate, accounting
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.host import at_hand, hosted, on_device
from jaxacct.accounting.batch import Bounds
from jaxacct.filters import amounts
from jaxacct.filters.guarantees import certified
from jaxacct.filters.marks import row_of
from jaxacct.filters.prices.entries import covered
from jaxacct.filters.prices.menu_prices import MOST_UNITS, kept_table
from jaxacct.filters.prices.online import MenuCurves
from jaxacct.filters.prices.units import MenuState, UnitFilter
from jaxacct.filters.queries import as_sampled_gaussian, parts_of, position_of
from jaxacct.filters.states import filter_class
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism, as_mechanism

TOO_DEAR = 2**31 - 1  # the price of what no entry covers: above every budget

_STATEMENT = (
    "The whole interaction satisfies this privacy profile, for add-or-remove neighbours and at every epsilon at once, "
    "if each query is dominated, given all earlier outputs, by the menu entry it was charged as, and every refusal was "
    "obeyed. The profile bounds the exact worst case of all adaptive analysts who spend prices on this menu within the "
    "budget (Lemma 1 of the residue paper on filters: the least curve that dominates every one of them), from above, "
    "with discretisation, truncation and rounding counted."
)
_ONLINE = (
    " Queries off the menu count as well if each was charged a price for which its composition with the certified "
    "worst case of what was left after it stayed below that of what was left before (docs/proofs/filters.md, 5)."
)


@filter_class(MenuState, "menu", "prices", "budget")
class MenuFilter(UnitFilter):
    """A budget of whole units for queries from a menu; make it with `menu`.

    Attributes:
        prices: units per query, int32, shape ``(..., entries)``.
        budget: units, int32, shape ``(...)``.
        noise: the least noise multiplier that counts as each entry, a hair of 2^-22 below its own, in float32 pieces;
            NaN for what is no sampled Gaussian.
        rate: the largest sampling rates that do, likewise.
        excess: the certified worst case at the grid's points.
        grid: of the profile, static.
        curves: what online prices are certified against, static; None without ``online=True``, and in a menu that was
            read from a `jaxacct.Ledger`, which has no online prices.
    """

    prices: Array
    budget: Array
    noise: Array
    rate: Array
    excess: Array
    grid: LossGrid = dataclasses.field(metadata={"static": True})
    curves: MenuCurves | None = dataclasses.field(default=None, metadata={"static": True, "written": False})

    @property
    def _statement(self) -> str:
        return _STATEMENT if self.curves is None else _STATEMENT + _ONLINE

    @property
    def _edges(self) -> tuple[Array, Array]:
        return amounts.join(self.noise), amounts.join(self.rate)

    @property
    def _entries(self) -> int:
        return np.shape(self.prices)[-1]

    def _identity(self) -> list[Array]:
        accounts = np.ndim(self.budget)
        budget, prices = (row_of(x, accounts) for x in (self.budget, self.prices))
        # Of a menu with online prices, whose promise is another, units do not say what ran.
        online = np.array([self.curves is not None])
        return [budget, prices, row_of(self.noise), row_of(self.rate), online]

    def price(self, query: object, state: MenuState | None = None) -> Array:
        """The units that ``query`` would be charged in ``state`` (with nothing spent where it is None); int32.

        Those of the cheapest entry that dominates it, whatever is left. With ``online=True``, a concrete scalar query
        pays less where less is certified for what is left in ``state``: milliseconds to some tenths of a second.
        2**31 - 1, which no budget holds, for what has no price and for parameters that make no sense.

        Raises:
            ValueError: see :meth:`update`.
        """
        with jax.enable_x64(True):
            return on_device(_asked(self, query, self._left(self._start() if state is None else state)))

    def update(self, query: object, state: MenuState) -> tuple[Array, MenuState]:
        """Whether ``query`` may run (a bool array) and the state after it.

        A sampled Gaussian is dominated by another of no more noise and no smaller rate (data processing, and joint
        convexity: the smaller rate's pair is a mixture of the larger rate's with perfect privacy), at all orders
        gamma >= 0, so for both directions.

        Args:
            query: a `Gaussian` or a `PoissonSampled` one, charged as the cheapest entry that dominates it (prices are
                those of entries with a hair less noise and more rate, so that the entry's own numbers, rounded to
                float32, find it); an integer, the position of an entry of the menu; or a `Composed` of Gaussians (all
                or nothing). With ``online=True`` and outside of compiled code also mechanisms with scalar parameters.
            state: from `init` or `update`. Its shape covers the query's.

        Returns:
            ``(admitted, state)``. What no entry dominates, NaN and positions off the menu are refused; a refused query
            leaves the state as it was.

        Raises:
            ValueError: a query of another type, or of a shape that the state does not cover.
        """
        return self._after(query, state)

    def _left_after(self, query: object, left: Array) -> Array:
        with jax.enable_x64(True):
            return _left(_asked(self, query, left), left)


@jax.jit
def _left(price: Array, left: Array) -> Array:
    return jnp.where(price <= left, left - price, -1)


def _asked(menu: MenuFilter, query: object, left: Array) -> Array:
    """The price of a query with so much left, int32; inside ``enable_x64``."""
    alone = at_hand(query, left) and not any(map(np.ndim, jax.tree.leaves((query, left))))
    place = position_of(query)
    if menu.curves is None or not alone:
        return _price(menu, _parameters(query))
    if place is not None:
        most = _price(menu, [place])
        if int(most) == TOO_DEAR:
            return most
        query = menu.curves.entries[int(place)]
    else:
        query = as_mechanism(query)
        covered = all(as_sampled_gaussian(part) is not None for part, _ in parts_of(query))
        most = _price(menu, _parameters(query)) if covered else TOO_DEAR
    return np.int32(menu.curves.least_price(query, int(left), int(most)))  # pyright: ignore[reportReturnType]


def _parameters(query: object) -> list[Array | tuple[Array, Array, Array]]:
    """Each part's (noise, rate, runs), or its position on the menu."""
    if (place := position_of(query)) is not None:
        return [place]
    found = []
    for part, runs in parts_of(query):
        with jax.enable_x64(True):
            gaussian = as_sampled_gaussian(part)
        if gaussian is None:
            raise ValueError(
                "query must be a Gaussian, a PoissonSampled one, a Composed of them or the integer position of a menu "
                f"entry, got {type(part).__name__} (others have a price with online=True, outside of jit)"
            )
        found.append((*gaussian, runs))
    return found


@hosted
def _price(menu: MenuFilter, parameters: list[Array | tuple[Array, Array, Array]]) -> Array:
    xp = array_module(menu, parameters)
    prices = xp.asarray(menu.prices, np.int64)
    total = xp.zeros((), np.float64)
    for one in parameters:
        if not isinstance(one, tuple):
            place = xp.asarray(one, np.int64)
            on_menu = (place >= 0) & (place < prices.shape[-1])
            total = xp.where(on_menu, xp.take(prices, xp.where(on_menu, place, 0), axis=-1), TOO_DEAR)
            continue
        noise, rate, runs = (xp.asarray(x, np.float64) for x in one)
        covers = (noise[..., None] >= amounts.join(menu.noise)) & (rate[..., None] <= amounts.join(menu.rate))
        covers &= ((rate >= 0) & (noise < np.inf) & (runs >= 1) & (runs == xp.floor(runs)))[..., None]
        total = total + runs * xp.where(covers, prices, TOO_DEAR).min(-1)
    good = (total >= 0) & (total < TOO_DEAR)
    return xp.where(good, total, TOO_DEAR).astype(np.int32)


def menu(
    mechanisms: Sequence[Mechanism],
    *,
    epsilon: float,
    delta: float,
    unit: int = 288,
    points: int | None = None,
    online: bool = False,
    cache: bool = True,
    progress: Callable[[int, int], object] | None = None,
) -> MenuFilter:
    """A filter that keeps a fully adaptive interaction (epsilon, delta)-DP by the exact worst case of a menu.

    Entry m costs c_m units, in inverse proportion to how often it alone may run within the target. The analyst may
    ask for anything on the menu at any time as long as the units last. The worst case of all such analysts, W_B, is
    computed with certified upper bounds (docs/proofs/filters.md), and the budget B is the largest
    whose certified curve meets the target, in both directions: a table of `remove` is enough, because domination at
    all orders gamma >= 0 carries over to the reversed pair by H_rev(gamma) = 1 - gamma + gamma H(1 / gamma).

    By Lemma 1 of the residue paper this is the exact worst case of an adaptive analyst under a rule. It uses no
    central limit theorem and no Rényi conversion. The table is computed once for a menu and a target, and kept on disk
    (see :func:`jaxacct.filters.prices.kept.directory`; ``JAXACCT_CACHE_DIR`` moves it). The time grows with the number
    of runs of the cheapest entry, the entries, and the points.

    Args:
        mechanisms: with scalar, concrete parameters, for instance from `gaussian_menu`; entries that are no
            (sampled) Gaussians are asked for by their position. A release of validation accuracy is an entry of its
            own, for instance `Gaussian(50.0)`.
        epsilon: target, > 0 and at most 100.
        delta: target, strictly between 0 and 1. Rounding adds some 1e-13 exp(epsilon) a run
            to the bound (soundly), so a delta below that has no useful table.
        unit: units of the cheapest entry: the resolution of prices; at least 16.
        points: the lattice's points, from 256; without it a power of 2, by the number of runs.
        online: whether concrete queries outside of compiled code pay the least price that is certified for what is
            left when they are asked. A query between two entries then costs between their prices (a menu of a few
            entries is enough). A query with less noise than all of them, or of another kind (a `Laplace` in between),
            has a price too, and the last units, too few for any entry, can still be spent. This uses a hundredth of
            delta, and the table's curves are kept: 8 bytes a node and point, 11 MB for 700 nodes of 2,048 points, some
            hundred MB for thousands of steps. Domination is asked at all epsilons, so a query with a far heavier tail
            than the entries can be dear, or have no price.
        cache: whether to look for the table on disk, and to leave it there.
        progress: called as ``progress(done, total)`` while the table grows; the total is an estimate.

    Raises:
        ValueError: a bad argument (named), an empty menu, an entry that misses the target at once, or entries whose
            prices are so far apart that the table does not fit into memory.
    """
    kept = kept_table(mechanisms, epsilon, delta, unit, points, cache, progress, online)
    return filter_of(mechanisms, kept, float(epsilon), float(delta))


def filter_of(mechanisms: Sequence[Mechanism], kept: dict[str, np.ndarray], epsilon: float, delta: float) -> MenuFilter:
    """The filter of a table."""
    grid = LossGrid(float(kept["spacing"]), int(kept["lowest"]), kept["excess"].size)
    profile = certified(kept["excess"], grid, epsilon, delta)
    with jax.enable_x64(True):
        found = [as_sampled_gaussian(one) or (np.nan, np.nan) for one in mechanisms]
        least, most = covered(*(np.array([float(pair[i]) for pair in found]) for i in range(2)))
        noise, rate = np.asarray(amounts.split(least)), np.asarray(amounts.split(most))
    if max(kept["prices"].max(), kept["budget"]) > MOST_UNITS:
        raise ArithmeticError(f"prices must fit int32, got {kept['prices'].tolist()} and budget {kept['budget']}")
    prices, budget = kept["prices"].astype(np.int32), np.int32(kept["budget"])
    curves = None
    if "curves" in kept:
        node, slack, reach = int(kept["node"]), float(kept["slack"]), int(kept["reach"])
        curves = MenuCurves(kept["curves"], node, int(budget), slack, reach, grid, tuple(mechanisms))
    return MenuFilter(prices, budget, noise, rate, np.asarray(profile.excess), profile.grid, curves)


def constant_schedules(filter: MenuFilter, mechanisms: Sequence[Mechanism], delta: ArrayLike) -> Bounds:
    """Bounds on epsilon of each entry run alone for the whole budget, fixed in advance: adaptivity's baseline.

    The filter admits every one of them, so the largest ``lower`` is a lower bound for the filter's
    guarantee. The ratio of the two bounds the overhead of adaptivity, all of the table's slack included.

    Args:
        filter: from `menu`.
        mechanisms: those it was made from.
        delta: a number strictly between 0 and 1.

    Returns:
        Bounds of shape ``(entries,)``; 0 for an entry of which not one fits.
    """
    _validate.instance(MenuFilter, filter=filter)
    _validate.scalar(_validate.probability, delta=delta)
    runs = np.asarray(filter.budget) // np.asarray(filter.prices)
    if not isinstance(mechanisms, Sequence) or len(mechanisms) != runs.size:
        raise ValueError(f"mechanisms must be the {runs.size} that filter was made from, got {mechanisms!r:.200}")
    found = [
        accounting.epsilon(one, delta, steps=int(n)) if n else Bounds(0.0, 0.0)
        for one, n in zip(mechanisms, runs, strict=True)
    ]
    return Bounds(*(np.array([getattr(x, side) for x in found]) for side in ("lower", "upper")))
