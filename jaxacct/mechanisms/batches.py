"""Names the ways to draw batches, and makes one run of DP-SGD's Gaussian for each."""

from __future__ import annotations

import math

import numpy as np
from jax.typing import ArrayLike

from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.random_allocation import RandomAllocation
from jaxacct.mechanisms.sampling import PoissonSampled
from jaxacct.mechanisms.shuffled import Shuffled
from jaxacct.mechanisms.truncated_poisson import TruncatedPoisson
from jaxacct.mechanisms.with_replacement import SampledWithReplacement
from jaxacct.mechanisms.without_replacement import SampledWithoutReplacement

SAMPLINGS = ("poisson", "truncated", "fixed", "replacement", "allocation", "shuffled")
_EPOCHS = ("allocation", "shuffled")


def steps_of_a_run(sampling: str, rate: float) -> int:
    """How many training steps one run of the mechanism is: the batches of an epoch, or 1."""
    return max(1, round(1.0 / rate)) if sampling in _EPOCHS else 1


def on_batches(sampling: str, noise: ArrayLike, rate: float, records: int, largest: int | None = None) -> Mechanism:
    """The mechanism of a sum of clipped gradients over batches of ``rate * records`` records, under `add_or_remove`.

    Args:
        sampling: one of `SAMPLINGS`.
        noise: standard deviation in clip norms, any shape. In batches of a fixed size a record takes the place of
            another one, which moves the sum by twice the clip norm.
        rate: expected batch size over ``records``. Batches of a fixed size, and batches of an epoch, are rounded to
            the nearest whole number.
        records: in the data set, public.
        largest: of "truncated" only; None is 6 standard deviations above the expected size.
    """
    batch, batches = max(1, round(rate * records)), max(1, round(1.0 / rate))
    if largest is None:
        largest = min(records, math.ceil(rate * records + 6.0 * math.sqrt(records * rate * (1.0 - rate))))
    return {
        "poisson": lambda: PoissonSampled(Gaussian(noise), rate),
        "truncated": lambda: TruncatedPoisson(Gaussian(noise), rate, largest, records),
        "fixed": lambda: SampledWithoutReplacement(Gaussian(0.5 * np.asarray(noise)), batch, records),
        "replacement": lambda: SampledWithReplacement(Gaussian(0.5 * np.asarray(noise)), batch, records),
        "allocation": lambda: RandomAllocation(Gaussian(noise), batches),
        "shuffled": lambda: Shuffled(Gaussian(noise), batches),
    }[sampling]()
