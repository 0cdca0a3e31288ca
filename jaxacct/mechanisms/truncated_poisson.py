"""`TruncatedPoisson`: a Gaussian mechanism on Poisson samples that are cut to a largest size."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import array_module
from jaxacct._numerics.binomial import binomial_split
from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import mechanism, unchecked
from jaxacct._numerics.rounding import UNIT, deflated, inflated
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.antipodal_gaussian import AntipodalGaussianPair
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.displaced_gaussian import DisplacedGaussianPair
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.revealed import RevealedPair
from jaxacct.mechanisms.pairs.without_replacement import WithoutReplacementPair
from jaxacct.mechanisms.parameters import LEAST_RATE, whole_steps
from jaxacct.mechanisms.sampling import PoissonSampled
from jaxacct.mechanisms.subsample import Subsample

__all__ = ["TruncatedPoisson"]


@mechanism
class TruncatedPoisson(Subsample):
    """Runs a Gaussian ``mechanism`` on a Poisson sample of ``rate``, cut to ``largest`` records at random if need be.

    The static shapes that accelerators want. When a full sample takes in a record x, that record may take the place of
    another one, which moves a sum by up to twice the sensitivity. With K the number of *other* records with heads,
    t = P[K >= largest], and p the probability that x is in the sample given that, an adversary who is told whether
    K >= largest sees, in units of the sensitivity and with N(m) of the mechanism's noise,

    ====================  ========================================  ===================================================
    relation              otherwise (probability 1 - t)             K >= largest (probability t)
    ====================  ========================================  ===================================================
    `remove`, `add`       (1-q) N(0) + q N(1) against N(0)          (1-p) N(0) + p N(2) against N(0)
    `replace_special`     the same                                  at orders >= 1 (1-p) N(0) + p N(2) against
                                                                    (1-p) N(0) + p N(1), below as a Poisson sample
    `replace`             (1-q) N(0) + q N(1) against               a sample of fixed size (`SampledWithoutReplacement`)
                          (1-q) N(0) + q N(-1)                      of rate p and sensitivity 2
    ====================  ========================================  ===================================================

    Under `replace_special` the record's place is filled by one of value 0; under `add` and `remove` there is one place
    less to be drawn for.

    *What is which.* The upper bound is that of these pairs, which is proven (``docs/proofs/truncated-poisson.md``). The
    lower bound is that of the best attack known: all other records have the value 0, and the record is in the sample
    with its exact probability, `PoissonSampled` of that rate. They differ by what cutting costs: little where samples
    are seldom cut.

    Attributes:
        mechanism: a Gaussian, `GDP`, or a composition of such, with parameters for a record that is in the sample or
            not (the clip norm), for every relation.
        rate: probability that a record is drawn, in [0, 1]; any shape.
        largest: records in a sample at most, a whole number >= 1 and <= ``records``.
        records: number of records in the larger of the two data sets; public, a whole number >= 1.

    Raises:
        ValueError: a concrete ``rate`` outside [0, 1], sizes that are not whole, or ``largest`` above ``records``.

    Source: Ganesh, "Tighter Privacy Analysis for Truncated Poisson Sampling" (arXiv 2508.15089), on conditioning on
    whether the sample is cut. The pairs under ``K >= largest`` are derived here.
    """

    mechanism: Any
    rate: ArrayLike
    largest: ArrayLike
    records: ArrayLike
    _instead = (
        ", whose cut depends on how many records there are; give TruncatedPoisson the product of the rates if the "
        "sample is cut once"
    )

    def __post_init__(self) -> None:
        _validate.rate(rate=self.rate)
        _validate.count(largest=self.largest, records=self.records)
        _validate.ordered(largest=self.largest, records=self.records)

    def _parts(self) -> tuple[Any, Any, Any]:
        """Rate, largest and records in float64, NaN where they are invalid."""
        xp, rate, largest, records = floats(self.rate, whole_steps(self.largest), whole_steps(self.records))
        return (
            xp.where((rate >= 0) & (rate <= 1), rate, np.nan),
            xp.where(largest <= records, largest, np.nan),
            records,
        )

    def _dominating(self, relation: str) -> Runs:
        noise, (rate, largest, records) = self._noise(), self._parts()
        split = binomial_split(records - 1.0, rate, largest)
        xp = array_module(rate, split.share)
        # A larger rate dominates a smaller one, in either case.
        often = xp.maximum(rate, LEAST_RATE)
        cut = xp.minimum(xp.maximum(inflated(rate * split.share, split.doubt + 4.0 * UNIT), LEAST_RATE), often)
        back = np.full((), float(relation in ("add", "fill_in")))
        if relation == "replace":
            first = AntipodalGaussianPair(noise, often)
            halves = [GaussianPair(0.5 * noise, cut, np.full((), side)) for side in (0.0, 1.0)]
            second = WithoutReplacementPair(*halves)
        else:
            first = GaussianPair(noise, often, back)
            displaced = relation in ("zero_out", "fill_in")
            second = DisplacedGaussianPair(noise, cut, back) if displaced else GaussianPair(0.5 * noise, cut, back)
        return [(RevealedPair(first, second, split.above, split.below, split.doubt), 1.0)]

    def _witness(self, relation: str) -> Mechanism:
        rate, largest, records = self._parts()
        split = binomial_split(records - 1.0, rate, largest)
        held = rate * (split.below + split.above * split.share)
        return unchecked(PoissonSampled, mechanism=self.mechanism, rate=deflated(held, split.doubt + 8.0 * UNIT))
