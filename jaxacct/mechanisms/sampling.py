"""Poisson sampling as a wrapper around a mechanism."""

from __future__ import annotations

from typing import Any

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.mechanisms._register import mechanism

__all__ = ["PoissonSampled"]


@mechanism
class PoissonSampled:
    """Runs ``mechanism`` on a sample that holds each record independently with probability ``rate``.

    For neighbours that differ in one record x, the pair is the mixture (1 - rate) Q + rate P against Q, where
    (P, Q) is the inner mechanism's pair. `remove` (the dataset with x is the numerator) and `add` (its reverse)
    are different curves; `add_or_remove` is the worse of the two for the *whole* composition (Zhu, Dong, Wang
    2022, Theorem 11). `replace` is a third relation: neither of these pairs answers for it.

    The accounting holds for true Poisson sampling only: one independent coin per record and step. Shuffled
    batches of fixed size have no such guarantee.

    Attributes:
        mechanism: the mechanism that runs on the sample.
        rate: probability that a record is in the sample, in [0, 1]; any shape, broadcasts with the parameters.

    Raises:
        ValueError: a concrete ``rate`` outside [0, 1].
    """

    mechanism: Any
    rate: ArrayLike

    def __post_init__(self) -> None:
        _validate.rate(rate=self.rate)
