"""Plans a run on the batches of a sampler: its filter, and the least noise that meets (epsilon, delta)."""

from __future__ import annotations

import math
import warnings

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.accounting.calibration import calibrate
from jaxacct.filters.prices.menu import MenuFilter
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.batches import SAMPLINGS, on_batches, steps_of_a_run
from jaxacct.training.budget import Budget
from jaxacct.training.samplers import Sampler, sampler
from jaxacct.training.schedules import constant, least_float32

_WIDTH = 0.03  # of noise above the calibrated, in which the filter's own least noise is sought
_HALVINGS = 4
_MOST_RAISED = 2.0  # at which the search is given up


def plan_sampled_budget(
    sampling: str,
    *,
    size: int,
    epsilon: float,
    delta: float,
    steps: int,
    rate: float,
    largest: int | None = None,
    piece: int = 256,
) -> Budget:
    """A sampler, the filter that is asked with its mechanism, and the least noise with which the planned steps fit.

    ==============  ==================================================================================================
    ``sampling``    a batch is
    ==============  ==================================================================================================
    "poisson"       a coin for each example: `PoissonSampled`
    "truncated"     the same, cut at random to ``largest`` examples: `TruncatedPoisson`
    "fixed"         rate * size examples, rounded, every step anew: `SampledWithoutReplacement`
    "replacement"   so many draws from all examples: `SampledWithReplacement`
    "allocation"    those examples that drew it among 1 / rate batches, rounded, of an epoch: `RandomAllocation`
    "shuffled"      a part of the shuffled examples, 1 / rate parts an epoch: `Shuffled`, for which nothing better is
                    proven than for examples in an order that everyone knows
    ==============  ==================================================================================================

    Args:
        sampling: one of the above.
        size: number of examples, public.
        epsilon, delta: the target, for `add_or_remove`.
        steps: planned training steps; rounded up to whole epochs where a run of the mechanism is an epoch.
        rate: expected batch size over ``size``, in (0, 1].
        largest: of "truncated" only; without it 6 standard deviations above the expected size.
        piece: examples of a batch in memory at once.

    Returns:
        A :class:`jaxacct.training.Budget` with a ``sampler``. Its schedule has the sampler's noise in clip norms.

    Raises:
        ValueError: bad values (named), or a target that no noise meets.
    """
    _validate.one_of(SAMPLINGS, sampling=sampling)
    _validate.scalar(_validate.positive, epsilon=epsilon, rate=rate)
    _validate.scalar(_validate.probability, delta=delta)
    _validate.whole(size=size, steps=steps, piece=piece)
    _validate.at_most(100.0, epsilon=epsilon)
    _validate.rate(rate=rate)
    if largest is not None:
        _validate.whole(largest=largest)
        if sampling != "truncated":
            raise ValueError(f"largest is for sampling 'truncated', got {largest} with {sampling!r}")
    size, steps, rate = int(size), int(steps), float(rate)
    batches = steps_of_a_run(sampling, rate)
    if batches > size:
        raise ValueError(f"rate must be at least 1 / size, {1 / size:g}, for sampling {sampling!r}, got {rate:g}")
    runs = -(-steps // batches)

    def make(noise: ArrayLike) -> Mechanism:
        return on_batches(sampling, noise, rate, size, largest)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a gap between proof and attack: the proof is what counts here
        least = float(calibrate(make, epsilon, delta, steps=runs).parameter)

    def planned(noise: float) -> tuple[Sampler, MenuFilter] | None:
        found = sampler(make(least_float32(noise)), size, piece=min(int(piece), size))
        try:
            filter = found.filter(epsilon, delta)
        except ValueError:  # not one run fits
            return None
        fits = int(filter.prices[0]) * runs <= int(filter.budget)
        return (found, filter) if fits else None

    low, high, best = least, least, planned(least)
    while best is None:
        if high > _MOST_RAISED * least:
            raise ValueError(f"epsilon must be larger for this many steps, got {epsilon:g}: no filter's table meets it")
        low, high = high, high * (1.0 + _WIDTH)
        best = planned(high)
    for _ in range(_HALVINGS if high > low else 0):
        middle = math.sqrt(low * high)
        tried = planned(middle)
        low, high, best = (middle, high, best) if tried is None else (low, middle, tried)
    drawn, filter = best
    schedule = constant(drawn.noise_multiplier, min(drawn.expected / size, 1.0), runs * batches)
    return Budget(filter, schedule, "units", drawn)
