"""`GDP`: a mechanism of which only mu-Gaussian differential privacy is known."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.pytree import mechanism
from jaxacct.mechanisms.gaussian import OneGaussian
from jaxacct.mechanisms.parameters import positive
from jaxacct.mechanisms.renyi.gaussian import gaussian_divergence, mu_of_noise


@mechanism
class GDP(OneGaussian):
    """Any ``mu``-GDP mechanism, for the relation that is asked about (Dong, Roth, Su 2022, Definition 2.4).

    By definition N(mu, 1) against N(0, 1) dominates all of them: the Gaussian mechanism with sigma / sensitivity = 1 /
    mu, which is one of them, so that bounds enclose the exact worst case.

    Attributes:
        mu: above 0; any shape.

    Raises:
        ValueError: a concrete ``mu`` that is not a finite number above 0.
    """

    mu: ArrayLike

    def __post_init__(self) -> None:
        _validate.positive(mu=self.mu)

    def _gaussian_runs(self) -> list[tuple[Array, Array]]:
        """One of 1 / mu, NaN where it is invalid."""
        return [(1.0 / positive(self.mu), 1.0)]

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        # Rényi divergences keep the order of trade-off curves.
        return gaussian_divergence(mu_of_noise(1.0, self.mu), order)

    def _rho(self) -> Array:
        return positive(self.mu) ** 2 / 2
