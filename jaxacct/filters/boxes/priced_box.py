"""The priced box: a budget for any Poisson-sampled Gaussian whose noise and rate lie in given ranges."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jaxacct import _validate
from jaxacct._numerics.float64 import reentrant_x64
from jaxacct._numerics.host import at_hand
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._printing import rounded_up
from jaxacct.filters import amounts
from jaxacct.filters.boxes.family import UNITS, Family, prepared
from jaxacct.filters.boxes.lines import price_lines
from jaxacct.filters.boxes.look_up import left_by_parts, left_by_runs, once
from jaxacct.filters.boxes.table import DEAR, box_table, kernel_of_query, within
from jaxacct.filters.boxes.words import least_of, unpacked
from jaxacct.filters.guarantees import ProfileGuarantee, decreasing
from jaxacct.filters.menus import cache as _cache
from jaxacct.filters.menus.gaussian_menu import as_sampled_gaussian, narrow, parts_of
from jaxacct.filters.menus.units import MenuState, UnitLedger
from jaxacct.filters.states import keeps
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.base import Mechanism

_VERSION = 8  # of the table format and algorithm: increase it to invalidate cached tables
_STATEMENT = (
    "The whole interaction satisfies this privacy profile, for add-or-remove neighbours and at every epsilon at once, "
    "if each query is dominated, given all earlier outputs, by the sampled Gaussian (or the entry) it was charged as, "
    "and every refusal was obeyed. The profile bounds the worst case of all adaptive analysts, because each price was "
    "certified: the promise for the budget left after the query, composed with the query, stays below the promise for "
    "the budget before it, at every epsilon (docs/theorems/priced-box.md), with discretisation, truncation and "
    "rounding counted."
)


@keeps(MenuState)
@_register
class PricedBoxFilter(UnitLedger):
    """A budget of whole units for sampled Gaussians of a box; make it with `priced_box`.

    Attributes:
        prices: units at both ends of every interval of the budget left after a query, by noise and rate; int32, shape
            ``(2, sigmas, rates, intervals)``.
        extra: likewise for the further entries, shape ``(2, entries, intervals)``.
        nodes: the intervals' ends in units, int32.
        sigmas: noise multipliers of the grid in float32 pieces, rising.
        rates: its rates, likewise.
        excess: the certified worst case at the lattice's points.
        grid: of the profile, static.
        target: (epsilon, delta), static.
        family: what online prices are certified against, static; None for a box that was read from a `jaxacct.Ledger`,
            which has no online prices.
    """

    prices: Any
    extra: Any
    nodes: Any
    sigmas: Any
    rates: Any
    excess: Any
    grid: LossGrid = dataclasses.field(metadata={"static": True})
    target: tuple[float, float] = dataclasses.field(metadata={"static": True})
    family: Family | None = dataclasses.field(default=None, metadata={"static": True, "written": False})

    def __repr__(self) -> str:
        """The box, the target and the number of prices."""
        with jax.enable_x64(True):
            ends = [(float(x[0]), float(x[-1])) for x in (amounts.join(self.sigmas), amounts.join(self.rates))]
        (quiet, loud), (rare, often) = ends
        epsilon, delta = self.target
        entries = np.shape(self.extra)[1]
        return (
            f"PricedBoxFilter(sigma {quiet:.6g} to {loud:.6g}, rate {rare:.6g} to {often:.6g}"
            + (f", {entries} further entries" if entries else "")
            + f"; epsilon {rounded_up(epsilon)} at delta {delta:g}; budget {UNITS:,} units)"
        )

    @property
    def budget(self) -> np.int32:
        """The whole budget in units: 2,000,000,000 for every box."""
        return np.int32(UNITS)

    @property
    def guarantee(self) -> ProfileGuarantee:
        """The certified profile of the whole interaction, a proven bound."""
        return ProfileGuarantee(PrivacyProfile(self.excess, self.grid, "upper"), _STATEMENT)

    def price(self, query: Any, state: MenuState | None = None) -> Array:
        """The units that ``query`` would be charged in ``state`` (with nothing spent where it is None); int32.

        2**31 - 1, which no budget holds, for what does not fit, for what has no price and for parameters that make
        no sense. Concrete scalar queries louder than the box and mechanisms of other kinds are priced online: their
        own least prices are computed, in some tenths of a second.

        Raises:
            ValueError: see :meth:`update`.
        """
        state = self.init() if state is None else state
        admitted, after = self._after(query, state)
        return jnp.where(admitted, after.spent - state.spent, DEAR)

    def update(self, query: Any, state: MenuState) -> tuple[Array, MenuState]:
        """Whether ``query`` may run (a bool array) and the state after it.

        Args:
            query: a `PoissonSampled` `Gaussian` (or a `Gaussian`, which has rate 1); an integer, the position of a
                further entry; or a `Composed` of Gaussians, charged run by run, all or nothing. A query with more
                noise or a smaller rate than the box has is charged as the nearest of the box, which dominates it.
            state: from `init` or `update`. Its shape covers the query's.

        Returns:
            ``(admitted, state)``. What is louder than the box is refused, unless query and state are concrete scalars,
            when it is priced online. A refused query leaves the state as it was.

        Raises:
            ValueError: a query of another type inside a trace, or of a shape that the state does not cover.
        """
        return self._after(query, state)

    def _after(self, query: Any, state: MenuState) -> tuple[Array, MenuState]:
        spent = jnp.asarray(state.spent)
        parts, left = self._lines_of(query, state), UNITS - spent
        with jax.enable_x64(True):
            if all(isinstance(lines, tuple) for lines, _ in parts) and not once(parts):
                left = left_by_parts(self, parts, left)
            else:
                for lines, runs in parts:
                    left = left_by_runs(self, lines, runs, left)
        amounts.check_covered(np.shape(spent), np.shape(left))
        fits = (left >= 0) & (spent >= 0) & (spent <= UNITS)
        return fits, MenuState(jnp.where(fits, UNITS - left, spent).astype(jnp.int32))

    def _lines_of(self, query: Any, state: MenuState) -> list[tuple[Any, Any]]:
        """For each part (noise, rate), or its lines in units, and how often it runs."""
        position = isinstance(query, (int, np.integer)) and not isinstance(query, bool)
        array = isinstance(query, (np.ndarray, jax.Array)) and jnp.issubdtype(query.dtype, jnp.integer)
        if position or array:
            return [(_entry(self.extra, np.int32(np.clip(query, -1, DEAR)) if position else query), 1.0)]
        alone = not any(map(np.ndim, jax.tree.leaves((query, state.spent))))
        concrete = self.family is not None and at_hand(query, state.spent) and alone
        found = []
        for part, runs in parts_of(query):
            with jax.enable_x64(True):
                gaussian = as_sampled_gaussian(part)
            if gaussian is None and not (concrete and isinstance(part, Mechanism)):
                raise ValueError(
                    "query must be a Gaussian, a PoissonSampled one, a Composed of them or the integer position of a "
                    f"further entry, got {type(part).__name__} (others are priced outside of jit, and in a ledger only "
                    "where they are in extra=)"
                )
            if gaussian is None or (concrete and not self._covers(*gaussian)):
                found.append((_online_lines(self.family, _cache.digest(part), _Held(part)), runs))
            else:
                found.append((gaussian, runs))
        return found

    @reentrant_x64
    def _covers(self, noise: Any, rate: Any) -> bool:
        """Whether the box has a query that dominates a sampled Gaussian; True for what is none."""
        noise, rate = float(noise), float(rate)
        if not (noise > 0 and 0 <= rate <= 1):
            return True  # NaN: refused by the table
        return noise >= float(amounts.join(self.sigmas)[0]) and rate <= float(amounts.join(self.rates)[-1])

    def steps_left(self, query: Any, state: MenuState | None = None) -> Array:
        """How often ``query`` may still run, one after the other, until it is refused; int32.

        Found by running the ledger: about a microsecond a step, inside one compiled loop.

        Args:
            query: one query of the box with scalar parameters, or the position of a further entry.
            state: from `init` or `update`; nothing spent where it is None.

        Raises:
            ValueError: as `update`.
        """
        state = self.init() if state is None else state
        with jax.enable_x64(True):  # the program takes the table as it is, whatever was traced before
            return _count(self, query, state)


class _Held:
    """A query as an argument that does not count for the cache."""

    def __init__(self, query: Any) -> None:
        self.query = query

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(64)
def _online_lines(family: Family, _: str, held: _Held) -> np.ndarray:
    with jax.enable_x64(True):
        lines = np.stack(price_lines(kernel_of_query(held.query, family), family)[:2])
    count = int(np.searchsorted(family.nodes, 1.0))
    units = np.ceil(lines[:, :count] * (1.0 + 1e-12) * UNITS)
    return np.where(lines[:, :count] <= 1.0, units, DEAR).astype(np.int32)


def _entry(extra: Any, place: Any) -> Any:
    """The lines of a further entry; those that never fit for a position that is none."""
    xp = jnp if isinstance(place, Tracer) or isinstance(extra, jax.Array) else np
    count = np.shape(extra)[1]
    place = xp.asarray(place)
    if not count:
        return xp.full((2, *place.shape, np.shape(extra)[-1]), DEAR, np.int32)
    good = (place >= 0) & (place < count)
    return xp.where(good[..., None], xp.take(xp.asarray(extra), xp.where(good, place, 0), axis=1), DEAR)


@jax.jit
def _count(box: PricedBoxFilter, query: Any, state: MenuState) -> Array:
    def go(carry: Any) -> Any:
        _, count, state = carry
        admitted, state = box.update(query, state)
        return admitted, count + admitted.astype(jnp.int32), state

    start = (jnp.ones(np.shape(state.spent), bool), jnp.zeros(np.shape(state.spent), jnp.int32), state)
    return jax.lax.while_loop(lambda carry: jnp.any(carry[0]), go, start)[1]


def priced_box(
    *,
    sigma: float | tuple[float, float],
    rate: float | tuple[float, float],
    epsilon: float,
    delta: float,
    extra: Sequence[Any] = (),
    cache: bool = True,
    progress: Callable[[int, int], Any] | None = None,
) -> PricedBoxFilter:
    """A filter that keeps a fully adaptive interaction (epsilon, delta)-DP, for all sampled Gaussians of a box.

    Noise and rate of each step may be chosen freely in the box, by looking at all earlier outputs, inside a compiled
    step. A step pays what its noise and rate cost with so much budget left: the least price for which the promise for
    the budget left, composed with the step, was certified to stay below the promise before it
    (docs/theorems/priced-box.md). No central limit theorem and no Rényi conversion is in it.

    The table is computed once for a box and a target, and kept on disk (``JAXACCT_CACHE_DIR`` moves it). The time goes
    as the logarithms of both ranges: half a minute for one rate and a range of noise, a minute or two for wide boxes.

    Args:
        sigma: the smallest and the largest noise multiplier (noise over sensitivity), > 0; or one number. Steps with
            more noise pay for the largest.
        rate: the smallest and the largest sampling rate in (0, 1]; or one number.
        epsilon: target, > 0 and at most 100.
        delta: target, strictly between 0 and 1.
        extra: further mechanisms with scalar, concrete parameters, asked for by their position: a `Laplace` release of
            an accuracy, a `Gaussian` on all records.
        cache: whether to look for the table on disk, and to leave it there.
        progress: called as ``progress(done, total)`` while the table grows.

    Raises:
        ValueError: a bad argument (named), or a box whose loudest query misses the target at once.
    """
    if _validate.is_traced((sigma, rate, epsilon, delta, extra)):
        raise ValueError("priced_box needs concrete arguments, got a traced one: call it outside jit, vmap and grad")
    _validate.numbers(sigma=sigma, rate=rate)
    _validate.scalar(epsilon=epsilon, delta=delta)
    if np.shape(sigma) not in ((), (2,)) or np.shape(rate) not in ((), (2,)):
        raise ValueError(f"sigma and rate must be one or two numbers, got {sigma!r:.200} and {rate!r:.200}")
    _validate.positive(sigma=sigma, epsilon=epsilon)
    _validate.finite(sigma=sigma)
    _validate.rate(rate=rate)
    _validate.greater(0.0, rate=rate)
    _validate.at_most(100.0, epsilon=epsilon)
    _validate.probability(delta=delta)
    _validate.instance(bool | np.bool_, cache=cache)
    if progress is not None:
        _validate.function(progress=progress)
    if not isinstance(extra, Sequence) or not all(isinstance(one, Mechanism) for one in extra):
        raise ValueError(f"extra must be a sequence of mechanisms, got {extra!r:.200}")
    if any(np.ndim(leaf) for leaf in jax.tree.leaves(list(extra))):
        raise ValueError("extra must hold mechanisms with scalar parameters, got an array of settings")
    noises, rates = (np.broadcast_to(np.asarray(x, np.float64), (2,)) for x in (sigma, rate))
    if noises[0] > noises[1] or rates[0] > rates[1]:
        raise ValueError(f"sigma and rate must rise, got {sigma} and {rate}")
    # A float32 program's queries at the ends of the ranges are inside.
    noises = float(narrow(noises[0], up=False)), float(narrow(noises[1], up=noises[0] < noises[1]))
    rates = float(narrow(rates[0], up=rates[0] == rates[1])), float(min(narrow(rates[1], up=True), 1.0))
    target = float(epsilon), float(delta)
    key = _cache.digest(f"priced box {_VERSION}", noises, rates, *target, list(extra))
    kept = _cache.load(key) if cache else None
    if kept is None:
        kept = box_table(noises, rates, *target, list(extra), progress or (lambda done, total: None))
        if cache:
            _cache.store(key, kept)
    return _filter_of(kept, target)


def _filter_of(kept: dict[str, np.ndarray], target: tuple[float, float]) -> PricedBoxFilter:
    grid = LossGrid(float(kept["spacing"]), int(kept["lowest"]), kept["promised"].size)
    worst: Any = np.minimum(kept["promised"], np.minimum(np.exp(grid.losses) * (1.0 + 2.0**-48), 1.0))
    profile = decreasing(PrivacyProfile(worst, grid, "upper").symmetrise())
    reached = float(profile.hockey_stick(target[0]))
    if not reached <= target[1]:
        raise ArithmeticError(f"the certified curve misses the target: delta {reached:g} at epsilon {target[0]:g}")
    width, slack, far = (float(kept[name]) for name in ("width", "slack", "far"))
    inside = within(kept["support"], grid.size)
    excess = np.zeros(inside.shape)
    excess[inside] = unpacked(kept["excess"], least_of(slack, far))
    family = prepared(grid, kept["nodes"] / UNITS, excess, width, slack, far)
    with jax.enable_x64(True):
        sigmas, rates = (np.asarray(amounts.split(kept[name])) for name in ("sigmas", "rates"))
    nodes = kept["nodes"][: kept["prices"].shape[-1] + 1].astype(np.int32)
    excess = np.asarray(profile.excess)
    return PricedBoxFilter(kept["prices"], kept["extra"], nodes, sigmas, rates, excess, profile.grid, target, family)
