"""`TruncatedPoisson`: a Gaussian mechanism on Poisson samples that are cut to a largest size."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.binomial import binomial_split
from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import checked, mechanism, unchecked
from jaxacct._numerics.rounding import UNIT, deflated
from jaxacct.mechanisms.base import Mechanism, as_mechanism
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.halves import HalvesPair
from jaxacct.mechanisms.pairs.replaced.displaced import DisplacedGaussianPair
from jaxacct.mechanisms.pairs.replaced.gaussian import AntipodalGaussianPair
from jaxacct.mechanisms.pairs.revealed import RescaledPair, RevealedPair
from jaxacct.mechanisms.parameters import whole_steps
from jaxacct.mechanisms.samples.cut_cells import cells_of, share_moved
from jaxacct.mechanisms.samples.poisson import PoissonSampled
from jaxacct.mechanisms.samples.subsample import Subsample


@mechanism
class TruncatedPoisson(Subsample):
    """Runs a Gaussian ``mechanism`` on a Poisson sample of ``rate``, cut to ``largest`` records at random if need be.

    This gives the static shapes that accelerators need. When a full sample takes in a record x, that record may take
    the place of another one, which moves a sum by up to twice the sensitivity. But a full sample with x is distributed
    as x beside ``largest - 1`` of the others, and so is what a sample with that many others holds without x: next to
    those it is one record that moves. With K the number of *other* records with heads, a share s of the cut samples
    with x is counted to those of K = ``largest - 1``, and an adversary is told which of three cells a sample is in:

    ====================  =====================  =====================  ===============================================
    relation              K < largest - 1        K = largest - 1 and    all other cut samples
                                                 the share s
    ====================  =====================  =====================  ===============================================
    `remove`, `add`       (1-q) N(0) + q N(1)    (1-a) N(0) + a N(1)    (1-p) N(0) + p N(2) against N(0)
                          against N(0)           against N(0)
    `replace_special`     the same               the same               at orders >= 1 (1-p) N(0) + p N(2) against
                                                                        (1-p) N(0) + p N(1), below as a Poisson sample
    `replace`             (1-q) N(0) + q N(1)    (1-a) N(0) + a N(1)    a sample of fixed size of rate p and
                          against                against                sensitivity 2 (`SampledWithoutReplacement`)
                          (1-q) N(0) + q N(-1)   (1-a) N(0) + a N(-1)
    ====================  =====================  =====================  ===============================================

    in units of the sensitivity and with N(m) of the mechanism's noise. Under `remove` and `add` the last two cells have
    other probabilities with the record than without it. Any s gives a bound; the one taken is near the best. Under
    `replace_special` the record's place is filled by one of value 0; under `add` and `remove` there is one place less
    to be drawn for.

    *The two bounds.* The upper bound is that of these pairs, which is proven (``docs/proofs/truncated-poisson.md``).
    The lower bound is that of the best attack known: all other records have the value 0, and the record is in the
    sample with its exact probability, `PoissonSampled` of that rate. They differ by what cutting costs: little where
    samples are seldom cut.

    Attributes:
        mechanism: a Gaussian, `GDP`, or a composition of such, with parameters for a record that is in the sample or
            not (the clip norm), for every relation.
        rate: probability that a record is drawn, in [0, 1]; any shape.
        largest: records in a sample at most, a whole number >= 1 and <= ``records``.
        records: number of records in the larger of the two data sets; public, a whole number >= 1.

    Raises:
        ValueError: a concrete ``rate`` outside [0, 1], sizes that are not whole, or ``largest`` above ``records``.

    Source: Ganesh, "Tighter Privacy Analysis for Truncated Poisson Sampling" (arXiv 2508.15089), on conditioning on
    whether the sample is cut. The cells and their pairs are derived here.
    """

    mechanism: Mechanism = checked(as_mechanism)
    rate: ArrayLike = checked(_validate.rate)
    largest: ArrayLike = checked(_validate.count)
    records: ArrayLike = checked(_validate.count)
    _instead = (
        ", whose cut depends on how many records there are; give TruncatedPoisson the product of the rates if the "
        "sample is cut once"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.ordered(largest=self.largest, records=self.records)

    def _parts(self) -> tuple[Array, Array, Array]:
        """Rate, largest and records in float64, NaN where they are invalid."""
        xp, rate, largest, records = floats(self.rate, whole_steps(self.largest), whole_steps(self.records))
        return (
            xp.where((rate >= 0) & (rate <= 1), rate, np.nan),
            xp.where(largest <= records, largest, np.nan),
            records,
        )

    def _dominating(self, relation: str) -> Runs:
        noise, (rate, largest, records) = self._noise_of_bounds(), self._parts()
        split = binomial_split(records - 1.0, rate, largest)
        share = share_moved(noise, rate, split)
        cells = cells_of(rate, split, share)
        back = np.full((), float(relation in ("add", "fill_in")))
        masses = cells.with_record
        if relation == "replace":
            usual, near = (AntipodalGaussianPair(noise, q) for q in (cells.usual, cells.near))
            above, below = (GaussianPair(0.5 * noise, cells.full, np.full((), side)) for side in (0.0, 1.0))
            full = HalvesPair(above, below, np.zeros(()))
        else:
            usual, near = (GaussianPair(noise, q, back) for q in (cells.usual, cells.near))
            # Of a special record nothing is left in the third cell where all of it has moved.
            moved = relation in ("remove", "add") or (not _validate.is_traced(share) and bool(np.all(share == 1.0)))
            full = GaussianPair(0.5 * noise, cells.full, back)
            if not moved:
                below = GaussianPair(noise, cells.full, np.ones(()))
                full = HalvesPair(DisplacedGaussianPair(noise, cells.full), below, back)
        if relation in ("remove", "add"):
            sign, masses = (-1.0, cells.without) if relation == "add" else (1.0, masses)
            near, full = (
                RescaledPair(pair, sign * gain, cells.doubt)
                for pair, gain in zip((near, full), cells.gains, strict=True)
            )
        later = RevealedPair(near, full, masses[1], masses[0], cells.doubt)
        return [(RevealedPair(usual, later, cells.later, cells.earlier, cells.doubt), 1.0)]

    def _witness(self, relation: str) -> Mechanism:
        rate, largest, records = self._parts()
        split = binomial_split(records - 1.0, rate, largest)
        held = rate * (split.below + split.above * split.share)
        return unchecked(PoissonSampled, mechanism=self.mechanism, rate=deflated(held, split.doubt + 8.0 * UNIT))
