"""Guarantees that are a parameter of a known curve: pure, GDP, zCDP and Rényi."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module, repeated
from jaxacct._numerics.curve_arrays import concrete
from jaxacct._numerics.float64 import reentrant_x64
from jaxacct._numerics.host import floats, hosted, on_device
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import unchecked
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.filters.mixture_of_orders import logs_of
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.losses.renyi import delta_from_renyi, epsilon_from_renyi
from jaxacct.losses.renyi.zcdp import zcdp_delta, zcdp_epsilon
from jaxacct.mechanisms import GDP, FromProfile, PureDP, RenyiDP, ZeroConcentratedDP
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_delta, gdp_epsilon


@dataclasses.dataclass(frozen=True, eq=False)
class GDPGuarantee:
    """mu-GDP of the whole interaction next to a (0, ``fails``)-DP step, or an approximation where not ``is_bound``.

    Attributes:
        mu: the GDP parameter, float64, the budget's shape.
        statement: the theorem, its assumptions, and what the number is not.
        is_bound: whether ``epsilon`` and ``delta`` are proven upper bounds.
        fails: the delta beside it, float64, the budget's shape; 0 for plain GDP.
    """

    mu: Array
    statement: str
    is_bound: bool = True
    fails: ArrayLike = 0.0

    def epsilon(self, delta: ArrayLike) -> Array:
        """The epsilon at ``delta`` in (0, 1), rounded up; float64. Infinite where ``delta`` is at most ``fails``."""
        return _epsilon_beside(gdp_epsilon, self.mu, self.fails, delta)

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0, fails + (1 - fails) times that of mu-GDP, rounded up; float64."""
        return _delta_beside(gdp_delta, self.mu, self.fails, epsilon)

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The curve from above, one for each budget; a bound of the interaction's only if ``is_bound``.

        Args:
            grid: as in :meth:`jaxacct.PrivacyProfile.from_mechanism`; needed where the budget is traced.
        """
        return _with_atom(PrivacyProfile.from_mechanism(GDP(self.mu), grid=grid), self.fails)


@dataclasses.dataclass(frozen=True, eq=False)
class RenyiGuarantee:
    """A Rényi divergence of at most ``rho`` at one order, for the whole interaction.

    Attributes:
        rho: the divergence in nats, float64, the budget's shape.
        order: the order, fixed before the first query.
        statement: the theorem and its assumptions.
        is_bound: always True.
    """

    rho: Array
    order: float
    statement: str
    is_bound: bool = True

    def epsilon(self, delta: ArrayLike) -> Array:
        """The epsilon at ``delta`` in (0, 1) by the tight conversion at this order, rounded up; float64."""
        return epsilon_from_renyi(self.rho, self.order, delta)

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0 by the tight conversion at this order, rounded up; float64."""
        return delta_from_renyi(self.rho, self.order, epsilon)

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The curve that the divergence implies, from above; one for each budget. ``grid`` as in `GDPGuarantee`."""
        return PrivacyProfile.from_mechanism(RenyiDP(self.order, self.rho), grid=grid)


@dataclasses.dataclass(frozen=True, eq=False)
class PureDPGuarantee:
    """epsilon-DP of the whole interaction; ``pure`` is that epsilon.

    Attributes:
        pure: float64, the budget's shape.
        statement: the theorem and its assumptions.
        is_bound: always True.
    """

    pure: Array
    statement: str
    is_bound: bool = True

    @reentrant_x64
    def epsilon(self, delta: ArrayLike) -> Array:
        """The epsilon at ``delta`` in [0, 1), rounded up; float64. At delta 0 it is ``pure`` itself."""
        _validate.numbers(delta=delta)
        if not _validate.is_traced(delta) and np.any(np.asarray(delta, np.float64) != 0):
            _validate.probability(delta=np.where(np.asarray(delta) == 0, 0.5, delta))
        xp, *given = floats(self.pure, delta)
        pure, at = xp.broadcast_arrays(*given)
        # The inverse of `delta`: pure + log(1 - delta (1 + e^-pure)).
        part = xp.minimum(deflated(at, 4 * EPS) * (1 + xp.exp(-pure)), 1 - EPS)
        # Where this is above 0 the logarithm is at most pure in size, and so is what rounding it can lose.
        value = xp.clip(pure + log1p(-part) + 8 * EPS * pure, 0.0, pure)
        value = xp.where(at >= 1, 0.0, xp.where(at > 0, value, pure))
        return on_device(xp.where(pure >= 0, value, np.inf))

    @reentrant_x64
    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0, rounded up; float64. 0 from ``pure`` on.

        (e^pure - e^epsilon) / (1 + e^pure), the exact worst case: randomized response dominates (Kairouz, Oh,
        Viswanath 2015).
        """
        _validate.nonnegative(epsilon=epsilon)
        xp, pure, at = floats(self.pure, epsilon)
        gap = at - pure
        value = inflated(-xp.expm1(xp.minimum(gap, 0.0)) / (1 + xp.exp(-pure)), 16 * EPS) + 4 * EPS * pure
        value = xp.where(gap >= 0, 0.0, xp.minimum(value, 1.0))
        return on_device(xp.where((at >= 0) & (pure >= 0) & (pure < np.inf), value, 1.0))

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The worst curve of pure privacy, from above; one for each budget. ``grid`` as in `GDPGuarantee`."""
        return PrivacyProfile.from_mechanism(PureDP(self.pure), grid=grid)


@dataclasses.dataclass(frozen=True, eq=False)
class ZCDPGuarantee:
    """rho-zCDP of the whole interaction, but for a probability ``fails`` (``fails``-approximate rho-zCDP).

    Attributes:
        rho: float64, the budget's shape.
        statement: the theorem and its assumptions.
        fails: the delta of approximate zCDP, float64, the budget's shape; 0 for plain zCDP.
        is_bound: always True.
    """

    rho: Array
    statement: str
    fails: ArrayLike = 0.0
    is_bound: bool = True

    def epsilon(self, delta: ArrayLike) -> Array:
        """The epsilon at ``delta`` in (0, 1), rounded up; float64. Infinite where ``delta`` is at most ``fails``."""
        return _epsilon_beside(zcdp_epsilon, self.rho, self.fails, delta)

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0, fails + (1 - fails) times that of rho-zCDP, rounded up; float64."""
        return _delta_beside(zcdp_delta, self.rho, self.fails, epsilon)

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The curve that the guarantee implies, from above; one for each budget. ``grid`` as in `GDPGuarantee`."""
        return _with_atom(PrivacyProfile.from_mechanism(ZeroConcentratedDP(self.rho), grid=grid), self.fails)


@dataclasses.dataclass(frozen=True, eq=False)
class AnyOrderGuarantee:
    """Divergence budgets at several orders, spent so that their mixture still holds; see `renyi_any`.

    Attributes:
        rho: divergences in nats, shape (budgets..., orders), float64.
        orders: the orders, all fixed before the first query.
        statement: the theorem and its assumptions.
        is_bound: always True.
    """

    rho: Array
    orders: tuple[float, ...]
    statement: str
    is_bound: bool = True

    @reentrant_x64
    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0: sum_j c_j exp((a_j - 1)(rho_j - epsilon)), rounded up; float64."""
        _validate.nonnegative(epsilon=epsilon)
        return on_device(_any_delta(self.rho, epsilon, orders=self.orders))

    @reentrant_x64
    def epsilon(self, delta: ArrayLike) -> Array:
        """The least epsilon at which `delta` is at most ``delta`` in (0, 1), rounded up; float64."""
        _validate.probability(delta=delta)
        return on_device(_any_epsilon(self.rho, delta, orders=self.orders))

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The largest curve through 800 points of delta(epsilon), at deltas from 1 to 1e-20; one for each budget.

        Raises:
            ValueError: a traced budget.
        """
        targets = np.exp(-np.linspace(1e-3, 46.0, 800)).reshape(-1, *np.ones(self.rho.ndim - 1, int))
        epsilons = self.epsilon(targets)
        points, deltas = (np.moveaxis(np.asarray(v), 0, -1) for v in (epsilons, self.delta(epsilons)))
        return PrivacyProfile.from_mechanism(FromProfile(points, deltas), grid=grid)


@reentrant_x64
def _epsilon_beside(curve: Callable[..., Array], parameter: Array, fails: Array, delta: Array) -> Array:
    """The epsilon at ``delta`` of a curve next to a (0, ``fails``)-DP step: the curve's at what is left of delta."""
    _validate.probability(delta=delta)
    xp, fails, delta = floats(fails, delta)
    less = deflated(xp.maximum(deflated(delta, EPS) - fails, 0.0) / (1 - fails), 4 * EPS)
    rest = xp.where(fails == 0, delta, less)
    good = (rest > 0) & (fails >= 0)
    _, value = floats(curve(parameter, xp.where(good, rest, 0.5)))
    return on_device(array_module(value, good).where(good, value, np.inf))


@reentrant_x64
def _delta_beside(curve: Callable[..., Array], parameter: Array, fails: Array, epsilon: Array) -> Array:
    """fails + (1 - fails) times the curve's delta at ``epsilon``."""
    xp, fails, value = floats(fails, curve(parameter, epsilon))
    value = xp.where(fails == 0, value, xp.fmin(inflated(fails + (1 - fails) * value, 4 * EPS), 1.0))
    return on_device(xp.where(fails >= 0, value, 1.0))


@reentrant_x64
def _with_atom(curve: PrivacyProfile, fails: ArrayLike) -> PrivacyProfile:
    """An upper curve next to a (0, ``fails``)-DP step, one for each budget.

    A mixture's hockey stick is at most the mixture of hockey sticks, and of anything it is at most 1.
    """
    if not _validate.is_traced(fails) and np.all(np.asarray(fails) == 0):
        return curve
    _, failing, excess = floats(fails, curve.excess)
    failing, all_of_it = failing[..., None], np.minimum(np.exp(np.minimum(curve.grid.losses, 1.0)), 1.0)
    excess = inflated((1 - failing) * excess + failing * all_of_it, 8 * EPS)
    return unchecked(PrivacyProfile, excess=concrete(excess), grid=curve.grid, bound="upper")


def _any_logs(rho: Array, epsilon: Array, orders: tuple[float, ...]) -> Array:
    """Logarithms of the orders' shares of delta, rounded up; NaN for no budgets."""
    logs, slopes = logs_of(orders), np.asarray(orders) - 1.0
    gap = rho - epsilon[..., None]
    exponents = logs + slopes * gap + 16 * EPS * (np.abs(logs) + slopes * (abs(rho) + abs(epsilon[..., None])))
    xp = array_module(rho, epsilon)
    return xp.where((rho >= 0) & (rho < np.inf) & (epsilon[..., None] >= 0), exponents, np.nan)


@hosted(static=("orders",))
def _any_delta(rho: Array, epsilon: Array, *, orders: tuple[float, ...]) -> Array:
    xp, rho, epsilon = floats(rho, epsilon)
    value = inflated(xp.exp(xp.minimum(_any_logs(rho, epsilon, orders), 50.0)).sum(-1), (8 + len(orders)) * EPS)
    return xp.where(value <= 1.0, value, 1.0)


@hosted(static=("orders",))
def _any_epsilon(rho: Array, delta: Array, *, orders: tuple[float, ...]) -> Array:
    xp, rho, delta = floats(rho, delta)
    good = (delta > 0) & (delta < 1) & xp.all((rho >= 0) & (rho < np.inf), axis=-1)
    within = xp.where(good, delta, 0.5)
    shares = xp.log(within / len(orders))[..., None]
    # Enough for each order's share is enough for the sum: the safe end of a bracket.
    each = _any_logs(xp.where(good[..., None], rho, 1.0), xp.zeros(within.shape), orders) - shares
    start = inflated(xp.maximum((each / (np.asarray(orders) - 1.0)).max(-1), 0.0), 2.0**-40)

    def halve(ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, top = ends
        middle = (low + top) / 2
        enough = _any_delta(rho, middle, orders=orders) <= delta
        return xp.where(enough, low, middle), xp.where(enough, middle, top)

    _, value = repeated(halve, (xp.zeros_like(start), start), 60)
    value = xp.where(_any_delta(rho, xp.zeros_like(start), orders=orders) <= delta, 0.0, value)
    return xp.where(good, value, xp.where(delta >= 1, 0.0, np.inf))
