"""Plans a run on the batches of a sampler: its filter, and the least noise that meets (epsilon, delta)."""

from __future__ import annotations

import math
import warnings

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.accounting.calibration import calibrate
from jaxacct.filters.prices.table import TableFilter
from jaxacct.mechanisms.base import Mechanism
from jaxacct.training.samplers import Sampler, sampler
from jaxacct.training.samplings import SAMPLINGS, batches_of_run
from jaxacct.training.schedules import least_float32

_WIDTH = 0.03  # of noise above the calibrated, in which the filter's own least noise is sought
_HALVINGS = 4
_MOST_RAISED = 2.0  # at which the search is given up


def plan_batches(
    sampling: str, target: tuple[float, float, int, float], size: int | None, largest: int | None, piece: int
) -> tuple[Sampler, TableFilter, int]:
    """A sampler of the least noise, the filter that is asked with its mechanism, and the steps in whole runs of it.

    ``target`` is (epsilon, delta, steps, rate), which :func:`jaxacct.training.plan_budget` has checked, as it takes the
    other arguments.

    Raises:
        ValueError: no ``size``, bad values (named), or a target that no noise meets.
    """
    epsilon, delta, steps, rate = target
    if size is None:
        raise ValueError("size must be given for the filter 'menu', got None")
    _validate.whole(size=size, physical_batch=piece)
    _validate.at_most(100.0, epsilon=epsilon)
    if largest is not None:
        _validate.whole(largest=largest)
        if sampling != "truncated":
            raise ValueError(f"largest is for sampling 'truncated', got {largest} with {sampling!r}")
    records, batches = int(size), batches_of_run(sampling, rate)
    if batches > records:
        raise ValueError(f"rate must be at least 1 / size, {1 / records:g}, for sampling {sampling!r}, got {rate:g}")
    runs = -(-steps // batches)

    def make(noise: ArrayLike) -> Mechanism:
        return SAMPLINGS[sampling].make(noise, rate, records, largest)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a gap between proof and attack: the proof is what counts here
        least = float(calibrate(make, epsilon, delta, steps=runs).parameter)

    def planned(noise: float) -> tuple[Sampler, TableFilter] | None:
        found = sampler(make(least_float32(noise)), records, piece=min(int(piece), records))
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
    return *best, runs * batches
