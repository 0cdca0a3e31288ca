"""What a mechanism says about a training step: how much noise, who takes part, and how far a record may move."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from jaxacct.mechanisms import (
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    SampledWithReplacement,
    Shuffled,
    TruncatedPoisson,
)
from jaxacct.mechanisms.base import as_mechanism

_RARE = 1e-9  # probability of a false alarm of one test, about


class Charged(NamedTuple):
    """What a step was charged for.

    Attributes:
        sigma: the noise multiplier, in sensitivities.
        rate: the probability of a record to take part.
        moves: how many sensitivities the inputs of the noise may move by.
        size: "one" (everybody), "fixed", "independent" coins, "truncated" or "repeated" draws.
        most: no sample has more records.
    """

    sigma: float
    rate: float
    moves: float
    size: str
    most: int


def charged(mechanism: Any, relation: str, count: int) -> Charged:
    """What ``mechanism`` says for ``count`` records under ``relation``.

    Raises:
        ValueError: no (sampled) Gaussian with concrete parameters.
    """
    mechanism = as_mechanism(mechanism)
    noise = as_mechanism(getattr(mechanism, "mechanism", mechanism))._gaussian_noise()
    if noise is None or np.ndim(noise):
        raise ValueError(f"mechanism must be a Gaussian or sample one, got {mechanism!r:.200}")
    sigma = float(noise)
    # A sampled mechanism's sensitivity is that of a record in the sample or not: a replaced record goes and comes.
    both = 2.0 if relation == "replace" else 1.0
    match mechanism:
        case PoissonSampled():
            return Charged(sigma, float(mechanism.rate), both, "independent", count)
        case TruncatedPoisson():
            # A record that comes may push another one out.
            size, most = stats.binom(int(mechanism.records), float(mechanism.rate)), int(mechanism.largest)
            drawn = size.expect(lambda many: np.minimum(many, most))
            return Charged(sigma, float(drawn) / int(mechanism.records), 2.0, "truncated", most)
        case SampledWithoutReplacement():
            size = int(mechanism.sample_size)
            return Charged(sigma, size / int(mechanism.dataset_size), 1.0, "fixed", size)
        case SampledWithReplacement():
            size, records = int(mechanism.batch), int(mechanism.records)
            rate = -math.expm1(size * math.log1p(-1 / records)) if records > 1 else 1.0
            return Charged(sigma, rate, float(stats.binom(size, 1 / records).isf(1e-6)), "repeated", size)
        case RandomAllocation():
            return Charged(sigma, int(mechanism.participations) / int(mechanism.batches), both, "independent", count)
        case Shuffled():
            return Charged(sigma, 1 / int(mechanism.batches), both, "fixed", -(-count // int(mechanism.batches)))
    if hasattr(mechanism, "mechanism"):
        raise ValueError(f"mechanism must be a Gaussian or sample one, got {mechanism!r:.200}")
    return Charged(sigma, 1.0, 1.0, "one", count)


def wrong_sampler(drawn: np.ndarray, records: int, wanted: Charged) -> str | None:
    """A sentence about ``drawn``, (draws, rows) bool, that says why it is not what was charged, or None.

    ``records`` is the number of all rows; of how large samples are something is said if ``drawn`` has them all.
    """
    draws, rows = drawn.shape
    whole = rows == records
    sizes, each = drawn.sum(1), drawn.sum(0)
    if wanted.size == "one":
        missing = int((~drawn).sum())
        return f"{missing} of {draws * rows} records did not take part, and all should" if missing else None
    share = f"{drawn.mean():.3g} of all draws took a record in, and {wanted.rate:.3g} were charged"
    if not _plausible(int(drawn.sum()), draws * rows, wanted.rate, _RARE):
        return share
    odd = [row for row in range(rows) if not _plausible(int(each[row]), draws, wanted.rate, _RARE)]
    if odd:
        return f"the record in row {odd[0]} took part in {each[odd[0]]} of {draws} samples, charged at {wanted.rate:.3g}"
    if not whole:
        return None
    if sizes.max() > wanted.most:
        return f"a sample had {sizes.max()} records, and {wanted.most} are the most that was charged"
    if wanted.size == "fixed" and sizes.min() < wanted.most and wanted.most * round(1 / wanted.rate) == records:
        return f"samples had {sizes.min()} to {sizes.max()} records, and all were charged to have {wanted.most}"
    spread = rows * wanted.rate * (1 - wanted.rate)
    if wanted.size == "independent" and spread > 0:
        found = float(((sizes - rows * wanted.rate) ** 2).sum() / spread)
        if stats.chi2.cdf(found, draws) < _RARE or (stats.chi2.sf(found, draws) < _RARE and found > 4 * draws):
            return (
                f"samples had {sizes.min()} to {sizes.max()} records, which independent coins (charged at rate "
                f"{wanted.rate:.3g}) do not give: a shuffle or a sample of fixed size costs another epsilon"
            )
    return None


def _plausible(successes: int, trials: int, rate: float, rare: float) -> bool:
    law = stats.binom(trials, rate)
    return bool(law.cdf(successes) > rare and law.sf(successes - 1) > rare)
