"""Plans a run on the batches of a sampler: its filter, and the least noise that meets (epsilon, delta)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TypeVar

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float32 import no_less
from jaxacct.accounting.calibration import calibrate
from jaxacct.filters.prices.table import TableFilter
from jaxacct.mechanisms.base import Mechanism
from jaxacct.training.samplers import Sampler, sampler
from jaxacct.training.samplings import SAMPLINGS, steps_of_run

# Of noise: above the calibrated one the filter's own least is sought in such steps, as finely, and no further.
_STEP, _PRECISION, _MOST_RAISED = 1.03, 0.002, 2.0

Plan = TypeVar("Plan")


def least_noise(
    fitting: Callable[[float], Plan | None], start: float, step: float, most: float, precision: float
) -> Plan | None:
    """The plan ``fitting(noise)`` of the least noise found from ``start`` on; None where none up to ``most`` fits.

    By steps of a factor until one fits, then by bisection of the logarithm, down to a width of ``precision``.
    """
    low = high = start
    found = fitting(start)
    while found is None and high < most:
        low, high = high, min(high * step, most)
        found = fitting(high)
    while found is not None and math.log(high / low) > precision:
        middle = math.sqrt(low * high)
        tried = fitting(middle)
        low, high, found = (middle, high, found) if tried is None else (low, middle, tried)
    return found


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
    records = int(size)

    def make(noise: ArrayLike) -> Mechanism:
        return SAMPLINGS[sampling].make(noise, rate, records, largest)

    batches = steps_of_run(make(1.0))
    if batches > records:
        raise ValueError(f"rate must be at least 1 / size, {1 / records:g}, for sampling {sampling!r}, got {rate:g}")
    runs = -(-steps // batches)

    def fitting(noise: float) -> tuple[Sampler, TableFilter, int] | None:
        found = sampler(make(float(no_less(noise))), records, piece=min(int(piece), records))
        try:
            filter = found.filter(epsilon, delta)
        except ValueError:  # not one run fits
            return None
        fits = int(filter.prices[0]) * runs <= int(filter.budget)
        return (found, filter, runs * batches) if fits else None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a gap between proof and attack: the proof is what counts here
        least = float(calibrate(make, epsilon, delta, steps=runs).parameter)
    found = least_noise(fitting, least, _STEP, _MOST_RAISED * least, _PRECISION)
    if found is None:
        raise ValueError(f"epsilon must be larger for this many steps, got {epsilon:g}: no filter's table meets it")
    return found
