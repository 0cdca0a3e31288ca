"""`SampledWithReplacement`: a Gaussian mechanism on records drawn with replacement."""

from __future__ import annotations

import functools

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.binomial import binomial_weights
from jaxacct._numerics.pytree import checked, mechanism, unchecked
from jaxacct._numerics.rounding import UNIT
from jaxacct._numerics.rows import Row
from jaxacct.mechanisms.base import Mechanism, as_mechanism
from jaxacct.mechanisms.known_attack import KnownAttack
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.mixture import MixturePair
from jaxacct.mechanisms.pairs.replaced.with_replacement import WithReplacementPair
from jaxacct.mechanisms.pairs.revealed import RevealedPair
from jaxacct.mechanisms.parameters import whole_number, whole_steps
from jaxacct.mechanisms.samples.subsample import Subsample

_MOST = 32  # draws of one record that are told apart; more is less likely than 1e-35 for a batch as large as the data
_NEGLIGIBLE = 1e-22


@mechanism
class SampledWithReplacement(Subsample):
    """Runs a Gaussian ``mechanism`` on ``batch`` records, each drawn from all ``records`` anew.

    A record is drawn J ~ Bin(batch, 1 / records) times, and each time it takes the place of another one, which moves a
    sum by up to D, the sensitivity for *replaced* records (twice the clip norm). So, with w_j = P[J = j],

    * `remove` has sum_j w_j N(j D) against N(0), `add` the reverse. They dominate, and are attained by a record and
      others that pull in opposite directions: both bounds are bounds of the worst case.
    * `replace` has the pair of ``WithReplacementPair``, which is proven for every step by itself. The *upper* bound is
      that of its composition. The *lower* one is that of the best attack known, the pair of `remove` or of `add` in
      every step; for one step the two differ by less than P[J > 1].

    Proofs: ``docs/proofs/samples-with-replacement.md``. A record that is drawn more than 32 times (fewer, where that
    is less likely than 1e-22) counts as revealed.

    Attributes:
        mechanism: a Gaussian, `GDP`, or a composition of such, with parameters for replaced records.
        batch: draws, a whole number >= 1 and <= ``records``; any shape.
        records: in the larger of the two data sets; public, a whole number >= 2.

    Raises:
        ValueError: concrete sizes that are not whole, or a batch that is larger than the data.
    """

    mechanism: Mechanism = checked(as_mechanism)
    batch: ArrayLike = checked(_validate.count)
    records: ArrayLike = checked(functools.partial(_validate.count, 2))
    _instead = "; use SampledWithReplacement of the inner mechanism alone"

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.ordered(batch=self.batch, records=self.records)

    def _draws(self) -> tuple[list[Array], Array]:
        """Weights of 0, 1, ... draws, and a bound of the weight of more."""
        batch, records = whole_steps(self.batch), whole_number(self.records, 2.0)
        xp = array_module(batch, records)
        batch = xp.where(batch <= records, batch, np.nan)
        weights, tail = binomial_weights(batch, records, _MOST)
        if xp is not np:
            return weights, tail
        for most in range(2, _MOST, 3):
            some, tail_of_some = binomial_weights(batch, records, most)
            if np.all(~(tail_of_some > _NEGLIGIBLE)):
                return some, tail_of_some
        return weights, tail

    def _dominating(self, relation: str) -> Runs:
        noise = self._noise_of_bounds()
        self._refuse_special(relation)
        weights, tail = self._draws()
        doubt = np.full((), UNIT * (64.0 + 16.0 * len(weights)))
        if relation == "replace":
            return [(WithReplacementPair(noise, Row.of(weights), tail, doubt), 1.0)]
        return self._mixture(noise, weights, tail, relation, doubt)

    def _mixture(self, noise: Array, weights: list[Array], tail: Array, relation: str, doubt: Array) -> Runs:
        shifts = Row(np.arange(float(len(weights))))
        mixture = MixturePair(noise, shifts, Row.of(weights), np.full((), float(relation == "add")))
        return [(RevealedPair(mixture, None, tail, 1.0 - tail, doubt), 1.0)]

    def _attained(self, direction: str, replaced: bool) -> Runs:
        """The same without what counts as revealed, which counts as not drawn."""
        noise, (weights, tail) = self._noise(), self._draws()
        doubt = np.full((), UNIT * (64.0 + 16.0 * len(weights)))
        return self._mixture(noise, [weights[0] + tail, *weights[1:]], 0.0 * tail, direction, doubt)

    def _witness(self, relation: str) -> Mechanism:
        return unchecked(KnownAttack, mechanism=self)

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        raise ValueError(
            "mechanism must be one with a Rényi curve of use, got SampledWithReplacement: at most orders a batch that "
            "holds one record only, however unlikely, is all there is of its divergence; its loss is a PLD"
        )
