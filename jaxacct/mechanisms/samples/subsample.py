"""`Subsample`: base of samples whose law depends on how many records there are."""

from __future__ import annotations

from typing import ClassVar

from jaxacct._numerics.arrays import Array, xp
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.parameters import Rate

_FAINTEST = 1e100


class Subsample(Mechanism):
    """A mechanism on a sample that is not a Poisson sample: sampling it once more is another mechanism.

    Attributes:
        mechanism: what runs on the sample.
    """

    mechanism: Mechanism
    _instead: ClassVar[str]  # of a Poisson sample: whose ..., use ...

    def _as(self, side: str) -> str:
        """A special record takes a place, which a missing one does not."""
        return side if side in ("zero_out", "fill_in") else super()._as(side)

    def _noise(self) -> Array:
        """The noise multiplier of a Gaussian ``mechanism``."""
        noise = self.mechanism._gaussian_noise()
        if noise is None:
            raise ValueError(
                f"{type(self).__name__} has no analysis for {self.mechanism._name}; it has one for Gaussian, "
                "GDP and compositions of them"
            )
        return noise

    def _noise_of_bounds(self) -> Array:
        """At most the noise multiplier, which dominates it, and so that its powers do not overflow."""
        noise = self._noise()
        return xp.minimum(noise, _FAINTEST)

    def _refuse_special(self, relation: str) -> None:
        if relation not in ("remove", "add", "replace"):
            raise ValueError(
                f"relation 'replace_special' has no analysis for {type(self).__name__}; 'replace' is an upper bound of "
                "it if a special record counts as one of value 0"
            )

    def _sampled(self, rate: Rate, relation: str) -> Pair:
        raise ValueError(f"PoissonSampled has no analysis for {type(self).__name__}{self._instead}")

    def _replaced(self, rate: Rate) -> Pair:
        return self._sampled(rate, "replace")
