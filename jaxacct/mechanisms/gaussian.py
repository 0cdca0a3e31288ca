"""`Gaussian` and `GDP`: the Gaussian mechanism, and any mechanism that is mu-GDP."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct.mechanisms.base import Symmetric
from jaxacct.mechanisms.parameters import positive
from jaxacct.mechanisms.renyi.gaussian import gaussian_divergence, mu_of_noise


@mechanism
class Gaussian(Symmetric):
    """Adds N(0, sigma^2 I) to a query whose value moves by at most ``sensitivity`` in L2 between neighbours.

    Its dominating pair is N(sensitivity, sigma^2) against N(0, sigma^2), which is mu-GDP with
    mu = sensitivity / sigma, exactly (Dong, Roth, Su 2022, Theorem 2.7). The pair is symmetric, so `add`,
    `remove` and `replace` have the same curve; the sensitivity is the one *for the relation in question*
    (replacing a record moves a clipped sum by up to twice the clip norm, adding one by the clip norm).

    Attributes:
        sigma: standard deviation of the noise, in the units of the query; any shape, > 0.
        sensitivity: L2 sensitivity in the same units, broadcasts with ``sigma``; > 0.

    Raises:
        ValueError: a concrete ``sigma`` or ``sensitivity`` that is not a finite number above 0.
    """

    sigma: ArrayLike = checked(_validate.positive)
    sensitivity: ArrayLike = checked(_validate.positive, default=1.0)

    @property
    def mu(self) -> ArrayLike:
        """The GDP parameter sensitivity / sigma."""
        return self.sensitivity / self.sigma  # pyright: ignore[reportOperatorIssue]

    def _gaussian_runs(self) -> list[tuple[Array, Real]]:
        """One of sigma / sensitivity, NaN where either is invalid."""
        return [(positive(self.sigma) / positive(self.sensitivity), 1.0)]

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        return gaussian_divergence(mu_of_noise(self.sigma, self.sensitivity), order)

    def _rho(self) -> Array:
        return (positive(self.sensitivity) / positive(self.sigma)) ** 2 / 2


@mechanism
class GDP(Symmetric):
    """Any ``mu``-GDP mechanism, for the relation that is asked about (Dong, Roth, Su 2022, Definition 2.4).

    By definition N(mu, 1) against N(0, 1) dominates all of them: the Gaussian mechanism with sigma / sensitivity = 1 /
    mu, which is one of them, so that bounds enclose the exact worst case.

    Attributes:
        mu: above 0; any shape.

    Raises:
        ValueError: a concrete ``mu`` that is not a finite number above 0.
    """

    mu: ArrayLike = checked(_validate.positive)

    def _gaussian_runs(self) -> list[tuple[Array, Real]]:
        """One of 1 / mu, NaN where it is invalid."""
        return [(1.0 / positive(self.mu), 1.0)]

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        # Rényi divergences keep the order of trade-off curves.
        return gaussian_divergence(mu_of_noise(1.0, self.mu), order)

    def _rho(self) -> Array:
        return positive(self.mu) ** 2 / 2
