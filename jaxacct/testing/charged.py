"""What a mechanism says about a training step: how much noise, who takes part, and how far a record may move."""

from __future__ import annotations

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
    kind = type(mechanism)
    noise = as_mechanism(getattr(mechanism, "mechanism", mechanism))._gaussian_noise()
    if noise is None or np.ndim(noise):
        raise ValueError(f"mechanism must be a Gaussian or sample one, got {mechanism!r:.200}")
    # A sampled mechanism's sensitivity is that of a record in the sample or not: a replaced record goes and comes.
    both = 2.0 if relation == "replace" else 1.0
    rate, moves, size, most = 1.0, 1.0, "one", count
    if kind is PoissonSampled:
        rate, moves, size = float(mechanism.rate), both, "independent"
    elif kind is RandomAllocation:
        rate, moves, size = int(mechanism.participations) / int(mechanism.batches), both, "independent"
    elif kind is Shuffled:
        rate, moves, size, most = 1 / int(mechanism.batches), both, "fixed", -(-count // int(mechanism.batches))
    elif kind is SampledWithoutReplacement:
        size, most = "fixed", int(mechanism.sample_size)
        rate = most / int(mechanism.dataset_size)
    elif kind is SampledWithReplacement:
        size, most = "repeated", int(mechanism.batch)
        law = stats.binom(most, 1 / int(mechanism.records))
        rate, moves = float(law.sf(0)), float(law.isf(1e-6))
    elif kind is TruncatedPoisson:
        # A record that comes may push another one out.
        rate, moves, size, most = float(mechanism.rate), 2.0, "truncated", int(mechanism.largest)
    elif hasattr(mechanism, "mechanism"):
        raise ValueError(f"mechanism must be a Gaussian or sample one, got {mechanism!r:.200}")
    return Charged(float(noise), rate, moves, size, most)


def wrong_sampler(drawn: np.ndarray, records: int, wanted: Charged) -> str | None:
    """A sentence about ``drawn``, (draws, rows) bool, that says why it is not what was charged, or None.

    ``records`` is the number of all rows; of how large samples are something is said if ``drawn`` has them all.
    """
    draws, rows = drawn.shape
    seen = drawn.any(0)  # a record whose gradient is as another's is never seen, which says nothing
    sizes, each = drawn.sum(1), drawn.sum(0)
    if wanted.size == "one":
        return None

    def too_many(found: int, trials: int) -> bool:
        return stats.binom(trials, wanted.rate).sf(found - 1) < _RARE

    if too_many(int(drawn.sum()), draws * rows):
        return f"{drawn.mean():.3g} of all draws took a record in, and {wanted.rate:.3g} were charged"
    odd = [row for row in range(rows) if too_many(int(each[row]), draws)]
    if odd:
        return f"the record in row {odd[0]} is in {each[odd[0]]} of {draws} samples, charged at rate {wanted.rate:.3g}"
    if rows < records:
        return None
    if sizes.max() > wanted.most:
        return f"a sample had {sizes.max()} records, and {wanted.most} are the most that was charged"
    mean = seen.sum() * wanted.rate
    if wanted.size == "independent" and 0 < wanted.rate < 1 and seen.sum() > rows / 2:
        found = float(((sizes - mean) ** 2).sum() / (mean * (1 - wanted.rate)))
        if stats.chi2.cdf(found, draws) < _RARE or (stats.chi2.sf(found, draws) < _RARE and found > 4 * draws):
            return (
                f"samples had {sizes.min()} to {sizes.max()} records, which independent coins (charged at rate "
                f"{wanted.rate:.3g}) do not give: a shuffle or a sample of fixed size costs another epsilon"
            )
    return None
