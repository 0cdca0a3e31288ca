"""jax_privacy's batch selection strategies as mechanisms of this library; it does not import jax_privacy."""

from __future__ import annotations

import math
from typing import Any

from jaxacct import _validate
from jaxacct._numerics.rounding import deflated
from jaxacct.mechanisms import (
    Composed,
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    SampledWithReplacement,
    TruncatedPoisson,
)
from jaxacct.mechanisms.base import Mechanism


def mechanism_of_selection(strategy: Any, mechanism: Mechanism, *, records: int | None = None) -> Mechanism:
    """The whole run: ``mechanism`` on every batch that a strategy of ``jax_privacy.batch_selection`` selects.

    A strategy with groups of equal size (``EQUAL_SPLIT``) is for ``replace_special`` and ``replace`` only.

    Valid for noise that is independent from step to step (DP-SGD), not for correlated noise (matrix factorisation).

    ========================== ========================================================================================
    strategy                   here
    ========================== ========================================================================================
    CyclicPoissonSampling      `PoissonSampled`, for the steps of one group: ``iterations / cycle_length``, rounded up;
                               `TruncatedPoisson` where batches are cut, which needs ``records``
    RandomAllocationSampling   `RandomAllocation` of one epoch
    BallsInBinsSampling        `RandomAllocation` of one epoch, with the noise divided by the square root of the number
                               of epochs: a record keeps its bin (docs/proofs/random-allocation.md); Gaussians only
    BMinSepSampling            `PoissonSampled` in every iteration, which separation only helps (the same page); at
                               ``sampling_prob`` 1 balls in bins after a warm start, and known batches without one
    UserSelectionStrategy      its base strategy, with users for records: a user's batch is clipped as a whole
    FixedBatchSampling         `SampledWithoutReplacement` or `SampledWithReplacement`; needs ``records``
    ========================== ========================================================================================

    Args:
        strategy: one of these.
        mechanism: what runs on a batch; for ``PoissonSampled`` and `RandomAllocation` with the sensitivity of a record
            that is there or not (the clip norm), for a fixed batch with that of a replaced one (twice it).
        records: number of records.

    Returns:
        A mechanism for `jaxacct.epsilon`, and so on. For a filter, ask for its parts one by one.

    Raises:
        ValueError: another strategy, a missing ``records``.
    """
    name = type(strategy).__name__
    if name == "CyclicPoissonSampling":
        runs = max(math.ceil(strategy.iterations / strategy.cycle_length), 1)
        rate = float(strategy.sampling_prob)
        if strategy.truncated_batch_size is None:
            return Composed([PoissonSampled(mechanism, rate)], [runs])
        # Of more records, more may be cut, and a group that records choose by themselves may hold all of them.
        count = _count(records)
        independent = getattr(getattr(strategy, "partition_type", None), "name", "") == "INDEPENDENT"
        group = count if independent else math.ceil(count / strategy.cycle_length)
        largest = int(strategy.truncated_batch_size)
        cut = TruncatedPoisson(mechanism, rate, largest, group)
        return Composed([PoissonSampled(mechanism, rate) if largest >= group else cut], [runs])
    if name == "RandomAllocationSampling":
        return RandomAllocation(mechanism, int(strategy.iterations), int(strategy.total_participations))
    if name == "BallsInBinsSampling":
        epochs = math.ceil(strategy.iterations / strategy.cycle_length)
        if epochs > 1:
            mechanism = _kept_bin(mechanism, epochs)
        return RandomAllocation(mechanism, int(strategy.cycle_length), 1)
    if name == "BMinSepSampling":
        return _separated(strategy, mechanism)
    if name == "UserSelectionStrategy":
        return mechanism_of_selection(strategy.base_strategy, mechanism, records=records)
    if name == "FixedBatchSampling":
        kind = SampledWithReplacement if strategy.replace else SampledWithoutReplacement
        return Composed([kind(mechanism, int(strategy.batch_size), _count(records))], [int(strategy.iterations)])
    raise ValueError(f"strategy must be one that is accounted for here, got {name}")


def _separated(strategy: Any, mechanism: Mechanism) -> Mechanism:
    """A record that takes part with some probability, but not within ``min_sep - 1`` iterations of the last time."""
    if strategy.truncated_batch_size is not None:
        raise ValueError("strategy must not cut batches of BMinSepSampling: whom it cuts has no analysis here")
    rate, apart, runs = float(strategy.sampling_prob), int(strategy.min_sep), max(int(strategy.iterations), 1)
    if rate < 1.0:
        return Composed([PoissonSampled(mechanism, rate)], [runs])
    epochs = math.ceil(runs / apart)
    if not strategy.warm_start:
        return Composed([mechanism], [epochs])
    return RandomAllocation(_kept_bin(mechanism, epochs) if epochs > 1 else mechanism, apart, 1)


def _kept_bin(mechanism: Mechanism, epochs: int) -> Gaussian:
    """What a record that is in the same bin of every epoch does to its bin: as one step of less noise."""
    noise = mechanism._gaussian_noise()
    if noise is None:
        raise ValueError(
            f"mechanism must be a Gaussian for {epochs} epochs of balls in bins, because a record keeps its bin; "
            f"{mechanism._name} has a bound for one epoch"
        )
    return Gaussian(deflated(noise / math.sqrt(epochs), 2.0**-48))


def _count(records: int | None) -> int:
    if records is None:
        raise ValueError("records must be given for batches of a fixed or largest size, got None")
    _validate.integer(1, 2**53, records=records)
    return int(records)
