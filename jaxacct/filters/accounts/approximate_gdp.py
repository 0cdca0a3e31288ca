"""The approximate GDP filter for each example: Algorithm 3 of the f-DP filters paper. Asymptotic."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.log1p import log1p
from jaxacct._numerics.pytree import replaced
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct.filters import amounts
from jaxacct.filters.accounts.examples import (
    FLAG,
    INFINITY,
    ExamplesState,
    PerExampleFilter,
    as_bits,
    check_query,
    settle_norms,
)
from jaxacct.filters.additive.approximate_gdp import ApproximateGDPFilter, Parameters, sampled_parameters
from jaxacct.filters.base import Guarantee
from jaxacct.filters.states import filter_class

# A word: sign bit, takes part; bit 30, nothing is left; bits 0 to 29, units of 2^-30 of the budget that were spent
# (before the last step, if bit 30 is set: what the last step could spend is then still known).
_WHOLE = np.int32(2**30)
_BELOW = np.int32(2**30 - 1)
_LEAST = 1e-20  # of sigma and clip norms, and 1 / _LEAST the most: what float32 loses outside of it is nobody's unit


@filter_class(ExamplesState, "per_example", "filter", "examples")
class ApproximateGDPPerExampleFilter(PerExampleFilter[ApproximateGDPFilter]):
    """One budget B of mean privacy loss for each example; see `per_example`.

    An example of norm n is charged rate^2 (exp(mu^2) - 1) / 2, or rate^2 mu^2 / 2 in the "large" regime, with mu =
    min(n, sensitivity) / sigma. Who cannot pay takes part a last time, with a contribution of the norm that spends
    exactly what is left: `bounds` is then at most invBudg of Algorithm 3 with this step's rate, rounded down.

    A query is a `PoissonSampled` `Gaussian` (in the "large" regime also a `Gaussian`). With a sigma outside of
    [1e-20, 1e20], or a clip norm that is below it or infinite, nobody takes part; a concrete rate outside of the regime
    raises. The rate may be one for each example, shape ``(examples,)``, the paper's extension; each must depend on
    that example and earlier outputs only.

    Attributes:
        filter: the `ApproximateGDPFilter` whose budget and regime are everybody's.
        examples: how many accounts there are, static.
    """

    filter: ApproximateGDPFilter
    examples: int = dataclasses.field(metadata={"static": True})

    @property
    def guarantee(self) -> Guarantee:
        """sqrt(2 B)-GDP for every example, in a limit: ``is_bound`` is False, and the statement says why."""
        found = super().guarantee
        return replaced(found, statement=f"Asymptotic, not a bound (Theorem 4.4). {found.statement}")

    def _asked(self, query: object) -> Parameters:
        check_query(query, self.examples)
        return sampled_parameters(query, self.filter.regime)

    def _charged(self, query: Parameters, norms: ArrayLike, words: Array) -> Array:
        clip, sigma, rate, sane = _is_one(query, self.filter.regime)
        norm = settle_norms(norms, self.examples)
        good = (as_bits(norm) > 0) & (as_bits(norm) < INFINITY) & sane
        units = _units(norm, clip, sigma, rate, self)
        spent = _units_spent(words)
        fits = units < (_WHOLE - spent).astype(jnp.float32) * jnp.float32(1 - 2.0**-22)
        paid = spent + units.astype(jnp.int32)
        last = jnp.where((units >= 0) & (spent < _WHOLE), FLAG | _WHOLE | spent, spent)
        return jnp.where(good, jnp.where(fits, paid | FLAG, last), spent)

    def _allowed(self, query: Parameters, norms: ArrayLike, words: Array) -> Array:
        clip, sigma, rate, sane = _is_one(query, self.filter.regime)
        clipped = jnp.minimum(settle_norms(norms, self.examples), amounts.outward(clip, "float32", up=True))
        rest = (_WHOLE - (words & _BELOW)).astype(jnp.float64) * 2.0**-30 * amounts.join(self.filter.pieces)
        q = jnp.where(rate > 0, rate, 1.0)
        small = self.filter.regime == "small"
        # The margin is more than all of these roundings; the root halves those of what is under it.
        most = deflated(sigma * (jnp.sqrt(log1p(2 * rest / (q * q))) if small else jnp.sqrt(2 * rest) / q), 2.0**-48)
        affordable = amounts.outward(most, "float32", up=False)
        allowed = jnp.where(words & _WHOLE != 0, jnp.minimum(clipped, affordable), clipped)
        return jnp.where((words < 0) & sane & (allowed > 0), allowed, 0.0)

    def _spent(self, state: ExamplesState) -> Array:
        return inflated(amounts.join(self.filter.pieces) * self._fraction(state), 2.0**-51)

    def _remaining(self, state: ExamplesState) -> Array:
        return deflated(amounts.join(self.filter.pieces) * (1.0 - self._fraction(state)), 2.0**-51)

    def _fraction(self, state: ExamplesState) -> Array:
        """What each example has spent, exactly: a multiple of 2^-30."""
        return _units_spent(state.words).astype(jnp.float64) * 2.0**-30


def _units_spent(words: Array) -> Array:
    return jnp.where(words & _WHOLE != 0, _WHOLE, words & _BELOW)


def _is_one(parameters: Parameters, regime: str) -> tuple[Array, Array, Array, Array]:
    """Clip norm, sigma and rate in float64, and whether they make a step of this regime."""
    clip, sigma, rate = (jnp.asarray(v, jnp.float64) for v in parameters)
    good = (clip >= _LEAST) & (clip < jnp.inf) & (sigma >= _LEAST) & (sigma <= 1 / _LEAST)
    return clip, sigma, rate, good & ((rate >= 0) & (rate < 0.2) if regime == "small" else (rate > 0.8) & (rate <= 1))


def _units(norm: Array, clip: Array, sigma: Array, rate: Array, filter: ApproximateGDPPerExampleFilter) -> Array:
    """What each example would pay, in units, as a float32 that is a whole number or infinite; never too little.

    In float32, because a step should take no longer than memory does. Each rounding is covered, the constants' too:
    (1 + (4 + mu^2) 2^-20) is 64 units and 16 more for each by which expm1 grows an error in mu^2, some 7 units.
    """
    per_norm = (1.0 / sigma).astype(jnp.float32)
    # Products of subnormal numbers may vanish; a floor under the constant keeps it one.
    root = inflated(rate * jnp.sqrt(2.0**29 / amounts.join(filter.filter.pieces)), 2.0**-40)
    constant = jnp.maximum((root * root).astype(jnp.float32), jnp.float32(1e-36))
    mu = jnp.minimum(norm, clip.astype(jnp.float32)) * per_norm
    square = mu * mu
    gain = jnp.expm1(square) if filter.filter.regime == "small" else square
    return jnp.maximum(jnp.ceil(inflated(constant * gain, (4 + square) * jnp.float32(2.0**-20))), 1.0)
