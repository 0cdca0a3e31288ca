"""`ParameterGuarantee`: a parameter of a known curve (pure, GDP, zCDP, Rényi at one order or at several)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module, repeated
from jaxacct._numerics.curve_arrays import concrete
from jaxacct._numerics.float64 import in_float64
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
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_delta, gdp_epsilon


class Curve(NamedTuple):
    """A family of curves with one parameter (of several orders, one for each in its last axis)."""

    parameter: str
    epsilon: Callable[[Array, ArrayLike], Array]  # of the parameter and delta, rounded up; inside ``enable_x64``
    delta: Callable[[Array, ArrayLike], ArrayLike]  # of the parameter and epsilon, likewise
    mechanism: Callable[[Array], Mechanism]  # that has the curve
    from_zero: bool = False  # whether there is an epsilon at delta 0


@dataclasses.dataclass(frozen=True, eq=False)
class ParameterGuarantee:
    """A member of a family of curves for the whole interaction, next to a (0, ``fails``)-DP step.

    The parameter has the name that it has in the family, too: ``mu`` (GDP), ``rho`` (zCDP, and the divergence in nats
    at a Rényi filter's order or orders), ``pure``.

    Attributes:
        curve: the family.
        parameter: float64, the budget's shape (of several orders, with one more axis).
        statement: the theorem, its assumptions, and what the number is not.
        is_bound: whether ``epsilon`` and ``delta`` are proven upper bounds; False for an approximation.
        fails: the delta beside the curve, float64, the budget's shape; 0 for the curve alone.
    """

    curve: Curve
    parameter: Array
    statement: str
    is_bound: bool = True
    fails: ArrayLike = 0.0

    def __getattr__(self, name: str) -> Array:
        if "curve" in vars(self) and name == self.curve.parameter:
            return self.parameter
        raise AttributeError(f"{type(self).__name__} has no {name!r}")

    @in_float64
    def epsilon(self, delta: ArrayLike) -> Array:
        """The epsilon at ``delta`` in (0, 1), rounded up; float64. Infinite where ``delta`` is at most ``fails``.

        Of pure privacy also at delta 0.
        """
        _validate.numbers(delta=delta)
        zero = self.curve.from_zero and not _validate.is_traced(delta) and np.asarray(delta, np.float64) == 0
        _validate.probability(delta=np.where(zero, 0.5, delta) if np.any(zero) else delta)
        # The curve's at what is left of delta.
        xp, fails, at = floats(self.fails, delta)
        less = deflated(xp.maximum(deflated(at, EPS) - fails, 0.0) / (1 - fails), 4 * EPS)
        rest = xp.where(fails == 0, at, less)
        good = ((rest > 0) | self.curve.from_zero) & (fails >= 0)
        _, value = floats(self.curve.epsilon(self.parameter, xp.where(good, rest, 0.5)))
        return on_device(array_module(value, good).where(good, value, np.inf))

    @in_float64
    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0, fails + (1 - fails) times that of the curve, rounded up; float64."""
        _validate.nonnegative(epsilon=epsilon)
        xp, fails, value = floats(self.fails, self.curve.delta(self.parameter, epsilon))
        value = xp.where(fails == 0, value, xp.fmin(inflated(fails + (1 - fails) * value, 4 * EPS), 1.0))
        return on_device(xp.where(fails >= 0, value, 1.0))

    @in_float64
    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The curve from above, one for each budget; a bound of the interaction's only if ``is_bound``.

        Next to a step that fails, a mixture's hockey stick is at most the mixture of hockey sticks, and of anything it
        is at most 1.

        Args:
            grid: as in :meth:`jaxacct.PrivacyProfile.from_mechanism`; needed where the budget is traced.

        Raises:
            ValueError: a traced budget of several orders, or without a grid.
        """
        curve = PrivacyProfile.from_mechanism(self.curve.mechanism(self.parameter), grid=grid)
        if not _validate.is_traced(self.fails) and np.all(np.asarray(self.fails) == 0):
            return curve
        _, failing, excess = floats(self.fails, curve.excess)
        failing, all_of_it = failing[..., None], np.minimum(np.exp(np.minimum(curve.grid.losses, 1.0)), 1.0)
        excess = inflated((1 - failing) * excess + failing * all_of_it, 8 * EPS)
        return unchecked(PrivacyProfile, excess=concrete(excess), grid=curve.grid, bound="upper")


def _pure_epsilon(pure: Array, delta: ArrayLike) -> Array:
    """The inverse of `_pure_delta`: pure + log(1 - delta (1 + e^-pure)); ``pure`` itself at delta 0."""
    xp, *given = floats(pure, delta)
    pure, at = xp.broadcast_arrays(*given)
    part = xp.minimum(deflated(at, 4 * EPS) * (1 + xp.exp(-pure)), 1 - EPS)
    # Where this is above 0 the logarithm is at most pure in size, and so is what rounding it can lose.
    value = xp.clip(pure + log1p(-part) + 8 * EPS * pure, 0.0, pure)
    value = xp.where(at >= 1, 0.0, xp.where(at > 0, value, pure))
    return xp.where(pure >= 0, value, np.inf)


def _pure_delta(pure: Array, epsilon: ArrayLike) -> Array:
    """(e^pure - e^epsilon) / (1 + e^pure), the exact worst case: randomized response dominates (Kairouz, Oh,
    Viswanath 2015); 0 from ``pure`` on.
    """
    xp, pure, at = floats(pure, epsilon)
    gap = at - pure
    value = inflated(-xp.expm1(xp.minimum(gap, 0.0)) / (1 + xp.exp(-pure)), 16 * EPS) + 4 * EPS * pure
    value = xp.where(gap >= 0, 0.0, xp.minimum(value, 1.0))
    return xp.where((at >= 0) & (pure >= 0) & (pure < np.inf), value, 1.0)


OF_GDP = Curve("mu", gdp_epsilon, gdp_delta, GDP)
OF_PURE_DP = Curve("pure", _pure_epsilon, _pure_delta, PureDP, True)
OF_ZCDP = Curve("rho", zcdp_epsilon, zcdp_delta, ZeroConcentratedDP)


def of_renyi(order: float) -> Curve:
    """Of a Rényi divergence at one order, by the tight conversion."""
    return Curve(
        "rho",
        lambda rho, delta: epsilon_from_renyi(rho, order, delta),
        lambda rho, epsilon: delta_from_renyi(rho, order, epsilon),
        lambda rho: RenyiDP(order, rho),
    )


def of_any_order(orders: tuple[float, ...]) -> Curve:
    """Of divergences at several orders, shape (budgets..., orders), spent so that their mixture still holds.

    delta(epsilon) = sum_j c_j exp((a_j - 1)(rho_j - epsilon)); see `renyi_any`.
    """

    def mechanism(rho: Array) -> Mechanism:
        """The largest curve through 800 points of delta(epsilon), at deltas from 1 to 1e-20."""
        targets = np.exp(-np.linspace(1e-3, 46.0, 800)).reshape(-1, *np.ones(rho.ndim - 1, int))
        epsilons = _any_epsilon(rho, targets, orders=orders)
        points = epsilons, _any_delta(rho, epsilons, orders=orders)
        return FromProfile(*(np.moveaxis(np.asarray(v), 0, -1) for v in points))

    return Curve(
        "rho",
        lambda rho, delta: _any_epsilon(rho, delta, orders=orders),
        lambda rho, epsilon: _any_delta(rho, epsilon, orders=orders),
        mechanism,
    )


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
