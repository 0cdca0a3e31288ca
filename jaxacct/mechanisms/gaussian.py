"""The Gaussian mechanism."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.mechanisms._register import mechanism

__all__ = ["Gaussian"]


@mechanism
class Gaussian:
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

    sigma: ArrayLike
    sensitivity: ArrayLike = 1.0

    def __post_init__(self) -> None:
        _validate.positive(sigma=self.sigma, sensitivity=self.sensitivity)

    @property
    def mu(self) -> ArrayLike:
        """The GDP parameter sensitivity / sigma."""
        return self.sensitivity / self.sigma  # pyright: ignore[reportOperatorIssue]
