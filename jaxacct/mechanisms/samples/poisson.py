"""`PoissonSampled`: a mechanism on a Poisson sample."""

from __future__ import annotations

import functools
import operator

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, xp
from jaxacct._numerics.host import at_hand
from jaxacct._numerics.pytree import checked, mechanism
from jaxacct._numerics.rounding import inflated
from jaxacct.mechanisms.base import Mechanism, as_mechanism, of_witness
from jaxacct.mechanisms.pairs.base import Pair, Runs
from jaxacct.mechanisms.parameters import LEAST_RATE, MOST_NESTED, Rate, nested, nonnegative, poisson_rate
from jaxacct.mechanisms.randomized_response import ApproximateDP
from jaxacct.mechanisms.renyi.concentrated import amplified, rho_of_pure


@mechanism
class PoissonSampled(Mechanism):
    """Runs ``mechanism`` on a sample that holds each record independently with probability ``rate``.

    For neighbours that differ in one record x, the pair of `remove` (the dataset with x is the numerator) is the
    mixture (1 - rate) Q + rate P against Q, where (P, Q) is the inner mechanism's pair for `remove`; that of `add`
    is P against (1 - rate) P + rate Q with its pair for `add` (Zhu, Dong, Wang 2022, on Poisson sampling). These are
    different curves; `add_or_remove` is the worse of the two for the *whole* composition. Sampling a sample multiplies
    the rates, up to six times.

    `replace` (a record x becomes x') is a third relation. With P and P' the outputs on a sample that holds x or x', and
    U on one that holds neither, the pair is (1 - rate) U + rate P against (1 - rate) U + rate P' for P and P' that
    pull in opposite directions. For a Gaussian of sensitivity D that is (1 - rate) N(0) + rate N(D) against
    (1 - rate) N(0) + rate N(-D). It dominates (proof: ``docs/proofs/replaced-records.md``), and records at opposite
    ends attain it, so both bounds are bounds of the worst case. Parameters of ``mechanism`` are those of a record that
    is in the sample or not, *for every relation*: the clip norm, not twice the clip norm.

    `replace_special` (a record becomes one that counts as nothing, as a zero in a sum does) has the pairs of `add` and
    `remove`.

    The accounting holds for true Poisson sampling only: one independent coin per record and step. Shuffled
    batches of fixed size have no such guarantee.

    Attributes:
        mechanism: the mechanism that runs on the sample.
        rate: probability that a record is in the sample, in [0, 1]; any shape, broadcasts with the parameters.

    Raises:
        ValueError: a concrete ``rate`` outside [0, 1], or more than six samples of samples.
    """

    mechanism: Mechanism = checked(as_mechanism)
    rate: ArrayLike = checked(_validate.rate)

    def __post_init__(self) -> None:
        super().__post_init__()
        depth = len(self._nesting()[0])
        if depth > MOST_NESTED:
            raise ValueError(f"mechanism must not be a sample of more than {MOST_NESTED - 1} samples, got {depth - 1}")

    def _nesting(self) -> tuple[list[ArrayLike], Mechanism]:
        """The rates of this sample and of those it is a sample of, and what runs on the innermost one."""
        rates, inner = [self.rate], self.mechanism
        while isinstance(inner, PoissonSampled):
            rates, inner = [*rates, inner.rate], inner.mechanism
        return rates, inner

    def _dominating(self, relation: str) -> Runs:
        rate, inner = poisson_rate(self.rate), self.mechanism
        return [(inner._replaced(rate) if relation == "replace" else inner._sampled(rate, relation), 1.0)]

    def _sampled(self, rate: Rate, relation: str) -> Pair:
        return self.mechanism._sampled(nested(rate, poisson_rate(self.rate)), relation)

    def _replaced(self, rate: Rate) -> Pair:
        return self.mechanism._replaced(nested(rate, poisson_rate(self.rate)))

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        found = super()._renyi(order, relation)
        never = functools.reduce(operator.or_, [xp.asarray(rate) == 0 for rate in self._nesting()[0]])
        return xp.where(never & (found < np.inf), 0.0, found)

    def _pure(self) -> Array | None:
        pure = self.mechanism._pure()
        return None if pure is None else amplified(pure, nonnegative(self.rate, 1.0))

    def _rho(self) -> Array | None:
        if at_hand(self.rate) and np.all(np.asarray(self.rate) == 1):
            return self.mechanism._rho()
        return super()._rho()

    def _approximate_rho(self) -> tuple[Array, Array] | None:
        inner, rate = self.mechanism, nonnegative(self.rate, 1.0)
        if not isinstance(inner, ApproximateDP):
            return super()._approximate_rho()
        # (log(1 + q (e^eps - 1)), q delta)-DP: Li, Qardaji, Su 2012; Balle, Barthe, Gaboardi 2018.
        epsilon = amplified(nonnegative(inner.epsilon), rate)
        return rho_of_pure(epsilon), inflated(nonnegative(inner.delta, 1.0) * rate, 2.0**-51)

    def _witness(self, relation: str) -> Mechanism:
        return of_witness(self, relation)

    def _rarely_sampled(self, steps: ArrayLike) -> tuple[Array, Real]:
        # A sample of a sample is one at the product of the rates, which the pair has as well.
        rates, inner = self._nesting()
        inner_rare, inner_total = inner._rarely_sampled(steps)
        xp = np if at_hand(rates) else jnp
        rate = functools.reduce(operator.mul, [xp.asarray(one, np.float64) for one in rates])
        rare = rate < LEAST_RATE
        if xp is np and not rare.any():
            return inner_rare, inner_total
        xp = np if at_hand(rates, steps) else jnp
        total = xp.where(rare, inflated(xp.asarray(steps, np.float64) * rate, 2.0**-48), np.inf)
        return rare | inner_rare, xp.minimum(total, inner_total)
