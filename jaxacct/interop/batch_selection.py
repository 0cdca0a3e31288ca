"""jax_privacy's batch selection strategies as mechanisms of this library; reads attributes, imports nothing of it."""

from __future__ import annotations

import math
from typing import Any

from jaxacct import _validate
from jaxacct.mechanisms import Composed, PoissonSampled, RandomAllocation, SampledWithoutReplacement

__all__ = ["mechanism_of_selection"]


def mechanism_of_selection(strategy: Any, mechanism: Any, *, records: int | None = None) -> Any:
    """All of a run: ``mechanism`` on every batch that a strategy of ``jax_privacy.batch_selection`` selects.

    For noise that is independent from step to step (DP-SGD); correlated noise (matrix factorisation) is not this.

    ========================== ========================================================================================
    strategy                   here
    ========================== ========================================================================================
    CyclicPoissonSampling      `PoissonSampled`, for the steps of one group: ``iterations / cycle_length``, rounded up
    RandomAllocationSampling   `RandomAllocation` of one epoch
    FixedBatchSampling         `SampledWithoutReplacement`, relation ``replace``; needs ``records``
    ========================== ========================================================================================

    Args:
        strategy: one of these.
        mechanism: what runs on a batch; for ``PoissonSampled`` and `RandomAllocation` with the sensitivity of a record
            that is there or not (the clip norm), for a fixed batch with that of a replaced one (twice it).
        records: number of records.

    Returns:
        A mechanism for :func:`jaxacct.epsilon`, and so on. For a filter, ask for its parts one by one.

    Raises:
        ValueError: another strategy, one with truncated batches or with replacement, a missing ``records``.
    """
    name = type(strategy).__name__
    if name == "CyclicPoissonSampling":
        if strategy.truncated_batch_size is not None:
            raise ValueError(
                "strategy must not truncate its batches here, got truncated_batch_size: see TruncatedPoisson"
            )
        runs = math.ceil(strategy.iterations / strategy.cycle_length)
        return Composed([PoissonSampled(mechanism, float(strategy.sampling_prob))], [max(runs, 1)])
    if name == "RandomAllocationSampling":
        return RandomAllocation(mechanism, int(strategy.iterations), int(strategy.total_participations))
    if name == "FixedBatchSampling":
        if strategy.replace:
            raise ValueError("strategy must draw without replacement, got replace=True")
        if records is None:
            raise ValueError("records must be given for batches of a fixed size, got None")
        _validate.integer(1, 2**53, records=records)
        sampled = SampledWithoutReplacement(mechanism, int(strategy.batch_size), int(records))
        return Composed([sampled], [int(strategy.iterations)])
    raise ValueError(f"strategy must be one that is accounted for here, got {name}")
