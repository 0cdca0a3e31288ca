"""Poisson sampling as a wrapper around a mechanism."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import mechanism, unchecked
from jaxacct._numerics.rounding import inflated
from jaxacct._numerics.rows import flattened, settings_shapes
from jaxacct.mechanisms.base import Mechanism, as_mechanism
from jaxacct.mechanisms.parameters import array_module, whole_steps

__all__ = ["PoissonSampled"]

_LEAST_RATE = 1e-14  # stands for smaller rates: dominates them, and its loss is still a normal number


@mechanism
class PoissonSampled(Mechanism):
    """Runs ``mechanism`` on a sample that holds each record independently with probability ``rate``.

    For neighbours that differ in one record x, the pair of `remove` (the dataset with x is the numerator) is the
    mixture (1 - rate) Q + rate P against Q, where (P, Q) is the inner mechanism's pair for `remove`; that of `add`
    is P against (1 - rate) P + rate Q with its pair for `add` (Zhu, Dong, Wang 2022, on Poisson sampling). These are
    different curves; `add_or_remove` is the worse of the two for the *whole* composition. Sampling a sample multiplies
    the rates.

    `replace` (a record x becomes x') is a third relation. With P and P' the outputs on a sample that holds x or x', and
    U on one that holds neither, the pair is (1 - rate) U + rate P against (1 - rate) U + rate P' for P and P' that
    pull in opposite directions. For a Gaussian of sensitivity D that is (1 - rate) N(0) + rate N(D) against
    (1 - rate) N(0) + rate N(-D). It dominates (proof: ``docs/proofs/replaced-records.md``), and records at opposite
    ends attain it, so both bounds are bounds of the worst case. Parameters of ``mechanism`` are those of a record that
    is in the sample or not, *for every relation*: the clip norm, not twice the clip norm.

    `replace_special` (a record becomes one that counts as nothing, as a zero in a sum does) has the pairs of `add` and
    `remove`.

    The accounting holds for true Poisson sampling only: one independent coin per record and step. Shuffled
    batches of fixed size have no such guarantee.

    Attributes:
        mechanism: the mechanism that runs on the sample.
        rate: probability that a record is in the sample, in [0, 1]; any shape, broadcasts with the parameters.

    Raises:
        ValueError: a concrete ``rate`` outside [0, 1].
    """

    mechanism: Any
    rate: ArrayLike

    def __post_init__(self) -> None:
        _validate.rate(rate=self.rate)

    def _dominating(self, relation: str) -> list[tuple[Any, Any]]:
        if relation == "replace":
            return [(self._replaced(np.ones(())), 1.0)]
        return [(as_mechanism(self.mechanism)._sampled(self._rate(), relation), 1.0)]

    def _sampled(self, rate: Any, relation: str) -> Any:
        rate = self._rate() * rate
        least = array_module(rate).maximum(rate, _LEAST_RATE)
        return as_mechanism(self.mechanism)._sampled(least, relation)

    def _replaced(self, rate: Any) -> Any:
        rate = self._rate() * rate
        least = array_module(rate).maximum(rate, _LEAST_RATE)
        return as_mechanism(self.mechanism)._replaced(least)

    def _witness(self, relation: str) -> Mechanism:
        inner = as_mechanism(self.mechanism)._witness(relation)
        return self if inner is self.mechanism else unchecked(PoissonSampled, mechanism=inner, rate=self.rate)

    def _rate(self) -> Any:
        """The rate in float64, at least 1e-14, NaN where it is none."""
        xp = array_module(self.rate)
        rate = xp.asarray(self.rate, np.float64)
        return xp.where((rate >= 0) & (rate <= 1), xp.maximum(rate, _LEAST_RATE), np.nan)

    def _rarely_sampled(self, steps: Any) -> tuple[Any, Any]:
        xp = array_module(self, steps)
        # A sample of a sample is one at the product of the rates, which the pair has as well.
        rate, inner = xp.asarray(self.rate, np.float64), as_mechanism(self.mechanism)
        while isinstance(inner, PoissonSampled):
            rate, inner = rate * xp.asarray(inner.rate, np.float64), as_mechanism(inner.mechanism)
        inner_rare, inner_total = inner._rarely_sampled(steps)
        rare = rate < _LEAST_RATE
        if xp is np and not rare.any():
            return inner_rare, inner_total
        # NaN parameters or rates have no guarantee at all.
        pairs = self._dominating("remove")
        shape = np.broadcast_shapes(*settings_shapes(pairs))
        leaves = jax.tree.leaves(flattened(pairs, shape, xp))
        bad = xp.stack([xp.isnan(leaf).reshape(int(np.prod(shape)), -1).any(-1) for leaf in leaves]).any(0)
        valid = ~(bad.reshape(shape) | xp.isnan(whole_steps(steps)))
        total = xp.where(rare & valid, inflated(whole_steps(steps) * rate, 2.0**-48), np.inf)
        return rare | inner_rare, xp.minimum(total, inner_total)
