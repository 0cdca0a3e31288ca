"""The approximate GDP filter, Algorithm 2 of the f-DP filter paper: asymptotic, for sampled Gaussians."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct._types import Bool, Float
from jaxacct.filters import amounts
from jaxacct.filters.additive.base import AdditiveFilter
from jaxacct.filters.amounts import SpentState
from jaxacct.filters.guarantees import OF_GDP, ParameterGuarantee
from jaxacct.filters.states import filter_class, given
from jaxacct.mechanisms import Gaussian, PoissonSampled
from jaxacct.papers.central_limit import CLT, clt_of_budget

_REGIMES = ("small", "large")
_LIMITS = {
    "small": "sampling rates q -> 0 with T q^2 of order 1",
    "large": "noise sigma -> infinity with T / sigma^2 of order 1 and 1 - q at most of order 1 / sigma^2",
}
Parameters = tuple[ArrayLike, ArrayLike, ArrayLike]
"""Sensitivity, sigma and rate of a query."""

_STATEMENT = (
    "Asymptotic, not a bound: in the limit of {limit}, and only there, the interaction tends to sqrt(2 B)-GDP (Tran, "
    "Koskela, Räisä, Honkela, f-Differential Privacy Filters, Theorem 4.3). At finite parameters the theorem's error "
    "Delta carries a universal constant that nobody has given, so no epsilon or delta printed from it is guaranteed; "
    "on the paper's own showcase (q = 0.01, 3650 steps) the epsilon at delta 1e-5 is about 2 % below the true one of "
    "the fixed schedule. Use filters.renyi where a bound is needed."
)


@filter_class(SpentState, "approximate_gdp", "budget", "regime")
class ApproximateGDPFilter(AdditiveFilter):
    """A budget B on the sum of mean privacy losses, the unit of `spent`, `remaining`; see `approximate_gdp`.

    A query is a `PoissonSampled` `Gaussian`; in the "large" regime also a `Gaussian` (rate 1). One that costs more than
    what is left is refused: `update_clipped` is for loops that can run it shortened. A remainder below 2^-40 of the
    budget is forfeited, and a rate outside the regime raises, or is refused where it is traced.

    Attributes:
        pieces: the budget B in exact float32 pieces.
        regime: "small" or "large" sampling rates, static.
    """

    to_the_unit = True
    pieces: Array
    regime: str = dataclasses.field(metadata={"static": True})

    budget = amounts.exact("pieces")
    """B, as it was given (float64)."""

    @property
    @in_float64
    def guarantee(self) -> ParameterGuarantee:
        """sqrt(2 B)-GDP in a limit: ``is_bound`` is False, and the statement says why."""
        budget = amounts.join(self.pieces)
        mu = array_module(budget).sqrt(2 * budget)
        return ParameterGuarantee(OF_GDP, mu, _STATEMENT.format(limit=_LIMITS[self.regime]), is_bound=False)

    def _after(self, query: object, state: SpentState) -> tuple[Array, SpentState]:
        """Refused is what costs more than what is left, to the unit; a remainder below `amounts.DUST` is forfeited."""
        return self._asked(query, state, False)[:2]

    def update_clipped(
        self, query: object, state: SpentState
    ) -> tuple[Bool[Array, "*shape"], SpentState, Float[Array, "*shape"]]:
        """Whether ``query`` may run with its contributions clipped, the state after it, and the factor of the clip.

        A query that costs more than what is left is *admitted* if its contributions are clipped at the factor times its
        clip norm, and its noise is kept: it spends exactly what is left and is the last. A loop that asks this must
        apply the factor; it is 1 while the budget lasts, and `clip_scale` of the state before.

        Arguments and errors as in `update`; a concrete rate outside the regime raises ValueError.

        Returns:
            ``(admitted, state, scale)``, the factor in [0, 1] in the caller's float type.
        """
        return self._updated(functools.partial(self._asked, partly=True), query, state, amounts.caller_dtype())

    def clip_scale(self, query: object, state: SpentState) -> Array:
        """The factor in [0, 1] on ``query``'s clip norm at which `update_clipped` admits it in ``state``.

        With it ``query`` spends at most what is left; its noise keeps its scale. It is invBudg of Algorithm 2 with
        this step's rate (docs/errata.md, 2), divided by the query's own sensitivity, at most 1: sigma sqrt(log(1 + 2 B
        / q^2)) in the "small" regime, sigma sqrt(2 B) / q in the "large" one. 0 where `update_clipped` refuses.
        Rounded down, in the caller's float type.

        Raises:
            ValueError: as `update`.
        """
        return self._read(lambda state: self._asked(given(query), state, True)[2], state, up=False)

    def _asked(self, query: object, state: SpentState, partly: bool) -> tuple[Array, SpentState, Array]:
        """`update_clipped`; if not ``partly``, a query that costs more than what is left is refused."""
        parameters = sampled_parameters(query, self.regime)
        return _update(self.pieces, parameters, state, self.regime, partly, amounts.caller_dtype())

    def clt(self, sigma: tuple[float, float], rate: tuple[float, float]) -> CLT:
        """Theorem 4.3: where the limit is once the budget is spent, for parameters that an analyst picks in a box.

        Args:
            sigma: smallest and largest noise multiplier.
            rate: smallest and largest sampling rate, inside the regime.

        Returns:
            `jaxacct.papers.central_limit.CLT`: ``mu`` and ``phi``, by which it may be off; ``holds``, whether the
            theorem's conditions do; ``delta_over_constant``, its error over a constant that nobody has given.

        Raises:
            ValueError: several budgets, or ends that are out of order or outside of the regime.
        """
        for end in rate:
            sampled_parameters(PoissonSampled(Gaussian(1.0), end), self.regime)
        return clt_of_budget(self.budget, self.regime, sigma, rate)

    @in_float64
    def _cost(self, query: object) -> Array:
        return _mean_loss(sampled_parameters(query, self.regime), self.regime)[0]


def sampled_parameters(query: object, regime: str) -> Parameters:
    """(sensitivity, sigma, rate) of ``query``, after the checks that need no values or concrete ones."""
    rate: ArrayLike = 1.0
    inner = query
    if isinstance(query, PoissonSampled):
        rate, inner = query.rate, query.mechanism
    if not isinstance(inner, Gaussian):
        raise ValueError(f"query must be a PoissonSampled Gaussian, got {type(query).__name__}")
    if not _validate.is_traced(rate):
        rates = np.asarray(rate, np.float64)
        if not np.all((rates < 0.2) if regime == "small" else (rates > 0.8)):
            bound = "below 0.2" if regime == "small" else "above 0.8"
            raise ValueError(f"rate must be {bound} in the regime {regime!r} of approximate_gdp, got {rate}")
    return inner.sensitivity, inner.sigma, rate


def _mean_loss(parameters: Parameters, regime: str) -> tuple[Array, Array, Array]:
    """getApprox: a step's mean privacy loss, with its mu and rate; NaN for what must be refused."""
    sensitivity, sigma, rate = (jnp.asarray(v, jnp.float64) for v in parameters)
    mu = sensitivity / sigma
    good = (sensitivity >= 0) & (sigma > 0) & (sigma < jnp.inf) & (mu < jnp.inf)
    good &= ((rate >= 0) & (rate < 0.2)) if regime == "small" else ((rate > 0.8) & (rate <= 1))
    gain = jnp.expm1(mu * mu) if regime == "small" else mu * mu
    # A step with so little noise that its cost overflows is still clipped to what is left, hence a huge number and no
    # infinity.
    cost = jnp.minimum(inflated(rate * rate * gain / 2, 2.0**-50 * (1 + mu * mu)), 1e200)
    return jnp.where(good, jnp.where(mu * rate == 0, 0.0, cost), jnp.nan), mu, rate


@in_float64
@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def _update(
    pieces: Array, parameters: Parameters, state: SpentState, regime: str, partly: bool, dtype: str
) -> tuple[Array, SpentState, Array]:
    cost, mu, rate = _mean_loss(parameters, regime)
    budget = amounts.join(pieces)
    # The budget, rounded up as every charge is, never fits; it keeps the dearest step inside the account's range.
    asked = jnp.minimum(cost, budget)
    fits, charged = amounts.charge(state, asked, budget, amounts.EXACT)
    open_ = (asked >= 0) & (amounts.left(state) > amounts.DUST)  # NaN if either is
    rest = amounts.left(state) * budget
    q, m = jnp.where(rate > 0, rate, 1.0), jnp.where(mu > 0, mu, 1.0)
    affordable = jnp.sqrt(log1p(2 * rest / (q * q))) if regime == "small" else jnp.sqrt(2 * rest) / q
    # The margin is more than all of these roundings: the root halves those of what is under it.
    clipped = jnp.minimum(deflated(affordable / m, 2.0**-50), 1.0)
    scale = jnp.where(open_, jnp.where(fits, 1.0, clipped), 0.0)
    admitted = open_ if partly else open_ & fits
    after = jnp.where(fits[..., None], charged.words, amounts.full(state).words)
    words = jnp.where(admitted[..., None], after, state.words)
    return admitted, SpentState(words), amounts.outward(scale, dtype, up=False)


def approximate_gdp(budget: ArrayLike, regime: str = "small") -> ApproximateGDPFilter:
    """The approximate GDP filter of Algorithm 2, for Poisson-sampled Gaussians. Asymptotic, not a bound.

    Each step costs its mean privacy loss in the regime's limit, rate^2 (exp(mu^2) - 1) / 2 ("small") or
    rate^2 mu^2 / 2 ("large"), with mu = sensitivity / sigma; while the sum stays below the budget B, the
    interaction tends to sqrt(2 B)-GDP. The step that would overdraw B is refused by `update`; a loop that asks
    `update_clipped` instead may run it clipped to spend exactly what is left, as the last one (the paper's algorithm).
    `guarantee.is_bound` is False, and its statement says what is missing.

    Args:
        budget: B, between 1e-18 and 1e30; an array makes one account for each entry.
        regime: "small" for rates below 0.2, "large" for rates above 0.8; there is none between.

    Raises:
        ValueError: a concrete ``budget`` out of range, an unknown regime.
    """
    amounts.check_budget(budget=budget)
    _validate.one_of(_REGIMES, regime=regime)
    return ApproximateGDPFilter(amounts.split(budget), regime)
