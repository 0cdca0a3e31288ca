"""`SampledWithoutReplacement`: a mechanism on a sample of fixed size."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import mechanism, unchecked
from jaxacct._numerics.rounding import inflated
from jaxacct.mechanisms.base import Mechanism, as_mechanism
from jaxacct.mechanisms.pairs.without_replacement import WithoutReplacementPair
from jaxacct.mechanisms.parameters import Rate, subset_rate
from jaxacct.mechanisms.renyi.from_pair import doubled, from_pair, sampled_moment
from jaxacct.mechanisms.renyi.gaussian import mu_of_noise, sampled_gaussian_divergence

__all__ = ["SampledWithoutReplacement"]

_LEAST_RATE = 1e-14  # below, a loss is no normal number any more


@mechanism
class SampledWithoutReplacement(Mechanism):
    """Runs ``mechanism`` on ``sample_size`` of ``dataset_size`` records, every such subset being equally likely.

    For `replace` only, with the inner mechanism's parameters for `replace` (a clipped sum moves by up to twice the
    clip norm). With q = sample_size / dataset_size and an inner curve H(gamma) for `replace`, the sampled one is at
    most q H(1 + (gamma - 1) / q) at gamma >= 1 (Balle, Barthe, Gaboardi 2018, Theorem 9), and at gamma < 1 what
    exchanging the neighbours makes of it, gamma H'(1 / gamma) + 1 - gamma. For a symmetric inner pair (P, Q)
    these are the curves of ((1 - q) Q + q P, Q) and of (P, (1 - q) P + q Q) (Zhu, Dong, Wang 2022): together
    the curve of one symmetric pair, in which one step is exact and which composes.

    Under `add` and `remove` the size of the dataset changes, and with it the probability of every sample.

    Attributes:
        mechanism: a mechanism with a symmetric pair: Gaussian, Laplace, exponential and their like.
        sample_size: whole number >= 1 of records in a sample; any shape.
        dataset_size: whole number >= ``sample_size``; public.

    Raises:
        ValueError: concrete sizes that are not whole, or a sample that is larger than the dataset or smaller
            than 1e-14 of it.
    """

    mechanism: Any
    sample_size: ArrayLike
    dataset_size: ArrayLike

    def __post_init__(self) -> None:
        _validate.count(sample_size=self.sample_size, dataset_size=self.dataset_size)
        if not _validate.is_traced((self.sample_size, self.dataset_size)) and np.isnan(self._rate().value).any():
            raise ValueError(
                "sample_size must be at most dataset_size and at least 1e-14 of it, "
                f"got {self.sample_size} of {self.dataset_size}"
            )

    def _rate(self) -> Rate:
        return subset_rate(self.sample_size, self.dataset_size, _LEAST_RATE)

    @property
    def _symmetric(self) -> bool:
        return True

    def _dominating(self, relation: str) -> list[tuple[Any, Any]]:
        inner = as_mechanism(self.mechanism)
        if relation != "replace":
            raise ValueError(
                f"relation {relation!r} has no analysis for SampledWithoutReplacement, whose dataset has a fixed size; "
                "relation 'replace' has one, with the inner sensitivity for replaced records"
            )
        if not inner._symmetric:
            raise ValueError(
                f"SampledWithoutReplacement has no analysis for {type(inner).__name__}, whose pair is not symmetric; a "
                "Gaussian, Laplace or exponential mechanism has one"
            )
        rate = self._rate()
        return [(WithoutReplacementPair(inner._sampled(rate, "remove"), inner._sampled(rate, "add")), 1.0)]

    def _renyi(self, order: Any, relation: str) -> Any:
        # Rényi divergences keep the order of hockey sticks. The pair's excess is at most that of both Poisson-sampled
        # halves together.
        ((pair, _),) = self._dominating(relation)
        inner, (_, rate) = as_mechanism(self.mechanism), floats(self._rate().value)
        noise = inner._gaussian_noise()
        if noise is None:
            whole = functools.partial(inner._renyi, relation="replace")
            return from_pair(pair, order, functools.partial(sampled_moment, whole, 2.0 * rate))
        mu = inflated(mu_of_noise(noise), 2.0**-48)

        def log_moment(at: Any) -> Any:
            return doubled((at - 1.0) * sampled_gaussian_divergence(mu, rate, at, "remove"))

        return from_pair(pair, order, log_moment)

    def _witness(self) -> Mechanism:
        inner = as_mechanism(self.mechanism)._witness()
        same = inner is self.mechanism
        sizes = {"sample_size": self.sample_size, "dataset_size": self.dataset_size}
        return self if same else unchecked(SampledWithoutReplacement, mechanism=inner, **sizes)

    def _sampled(self, rate: Rate, relation: str) -> Any:
        raise ValueError(
            "PoissonSampled has no analysis for SampledWithoutReplacement, which has no 'add' or 'remove'; "
            "use SampledWithoutReplacement of the inner mechanism alone"
        )
