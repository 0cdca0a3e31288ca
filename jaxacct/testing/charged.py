"""What a mechanism says about a training step: how much noise, who takes part, and how far a record may move."""

from __future__ import annotations

from collections.abc import Callable
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
        coins: whether each record's part is independent of the others'.
        most: no sample has more records.
    """

    sigma: float
    rate: float
    moves: float
    coins: bool
    most: int


def _replacement(mechanism: Any) -> tuple[float, float, bool, int]:
    law = stats.binom(int(mechanism.batch), 1 / int(mechanism.records))
    return float(law.sf(0)), float(law.isf(1e-6)), False, int(mechanism.batch)


# (rate, moves, coins, most) of a mechanism for a number of records; moves None: 2 of a replaced record, else 1.
_SAMPLED: dict[type, Callable[[Any, int], tuple[Any, float | None, bool, Any]]] = {
    PoissonSampled: lambda m, count: (m.rate, None, True, count),
    RandomAllocation: lambda m, count: (m.participations / m.batches, None, True, count),
    Shuffled: lambda m, count: (1 / m.batches, None, False, -(-count // m.batches)),
    SampledWithoutReplacement: lambda m, count: (m.sample_size / m.dataset_size, 1.0, False, m.sample_size),
    SampledWithReplacement: lambda m, count: _replacement(m),
    TruncatedPoisson: lambda m, count: (m.rate, 2.0, False, m.largest),  # who comes may push another one out
}


def charged(mechanism: Any, relation: str, count: int) -> Charged:
    """What ``mechanism`` says for ``count`` records under ``relation``.

    Raises:
        ValueError: no (sampled) Gaussian with concrete parameters.
    """
    mechanism = as_mechanism(mechanism)
    sampled = _SAMPLED.get(type(mechanism))
    noise = as_mechanism(mechanism.mechanism if sampled else mechanism)._gaussian_noise()
    if noise is None or np.ndim(noise) or (hasattr(mechanism, "mechanism") and not sampled):
        raise ValueError(f"mechanism must be a Gaussian or sample one, got {mechanism!r:.200}")
    rate, moves, coins, most = sampled(mechanism, count) if sampled else (1.0, 1.0, False, count)
    # A sampled mechanism's sensitivity is that of a record in the sample or not: a replaced record goes and comes.
    moves = moves or (2.0 if relation == "replace" else 1.0)
    return Charged(float(noise), float(rate), moves, coins, int(most))


def wrong_sampler(drawn: np.ndarray, records: int, wanted: Charged) -> str | None:
    """A sentence about ``drawn``, (draws, rows) bool, that says why it is not what was charged, or None.

    ``records`` is the number of all rows; of how large samples are something is said if ``drawn`` has them all.
    """
    draws, rows = drawn.shape
    sizes, each = drawn.sum(1), drawn.sum(0)
    took = {"all records": (int(drawn.sum()), draws * rows)}
    took |= {f"the record in row {row}": (int(found), draws) for row, found in enumerate(each)}
    for who, (found, trials) in took.items():
        if stats.binom(trials, wanted.rate).sf(found - 1) < _RARE:
            return f"of {who}, {found} of {trials} draws took one in, charged at rate {wanted.rate:.3g}"
    if wanted.coins and wanted.rate < 1 and (says := _together(drawn, wanted.rate)):
        return says
    if rows < records:
        return None
    if sizes.max() > wanted.most:
        return f"a sample had {sizes.max()} records, and {wanted.most} are the most that was charged"
    seen = np.sum(each > 0)  # a record whose gradient is as another's is never seen, which says nothing
    if wanted.coins and wanted.rate < 1 and seen > rows / 2:
        found = float(np.sum((sizes - seen * wanted.rate) ** 2) / (seen * wanted.rate * (1 - wanted.rate)))
        if stats.chi2.cdf(found, draws) < _RARE or (stats.chi2.sf(found, draws) < _RARE and found > 4 * draws):
            return (
                f"samples had {sizes.min()} to {sizes.max()} records, which independent coins (charged at rate "
                f"{wanted.rate:.3g}) do not give: a shuffle or a sample of fixed size costs another epsilon"
            )
    return None


def _together(drawn: np.ndarray, rate: float) -> str | None:
    """A sentence about two rows that come together, or never do, more often than with coins of their own."""
    draws, rows = drawn.shape
    alike = np.array([np.sum(drawn == drawn[:, [row]], axis=0) for row in range(rows)])
    law = stats.binom(draws, rate**2 + (1 - rate) ** 2)
    rare = np.where(np.eye(rows), 1.0, np.minimum(law.sf(alike - 1), law.cdf(alike)))
    one, other = np.unravel_index(np.argmin(rare), rare.shape)
    if not drawn[:, one].any() or not drawn[:, other].any() or rare[one, other] > _RARE / rows**2:
        return None
    return (
        f"rows {one} and {other} had the same part in {alike[one, other]} of {draws} draws, which independent coins "
        f"(charged at rate {rate:.3g}) do not give"
    )
