"""`SampledWithoutReplacement`: a mechanism on a sample of fixed size."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import checked, mechanism, unchecked
from jaxacct.mechanisms.base import Mechanism, as_mechanism, of_witness
from jaxacct.mechanisms.known_attack import KnownAttack
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.halves import HalvesPair
from jaxacct.mechanisms.parameters import Rate, subset_rate
from jaxacct.mechanisms.samples.subsample import Subsample


@mechanism
class SampledWithoutReplacement(Subsample):
    """Runs ``mechanism`` on ``sample_size`` of ``dataset_size`` records, every such subset being equally likely.

    The inner mechanism's parameters are those for *replaced* records, for every relation: whatever is drawn takes the
    place of something else (a clipped sum moves by up to twice the clip norm). Let (P, Q) be its symmetric pair for
    them, H their curve, and q = sample_size / dataset_size.

    * `remove` has ((1 - q) Q + q P, Q), `add` has (P, (1 - q) P + q Q): a record of the larger data set is drawn with
      probability q, and then takes the place of one of the others (``docs/proofs/samples-of-fixed-size.md``). Where
      (P, Q) is attained by a record and others that pull in opposite directions, both bounds are bounds of the worst
      case.
    * `replace` is at most q H(1 + (gamma - 1) / q) at gamma >= 1 (Balle, Barthe, Gaboardi 2018, Theorem 9), and at
      gamma < 1 what exchanging the neighbours makes of it, gamma H'(1 / gamma) + 1 - gamma. These are the curves of the
      two pairs above (Zhu, Dong, Wang 2022): together the curve of one symmetric pair, which composes. The *upper*
      bound is its composition, which is proven. No data sets are known that attain it for several steps (Lebeda,
      Regehr, Kamath, Steinke 2024); the *lower* bound is that of the best attack known, one of the two pairs in every
      step. For one step both are the same.

    Attributes:
        mechanism: a mechanism with a symmetric pair: Gaussian, Laplace, exponential and their like.
        sample_size: whole number >= 1 of records in a sample; any shape.
        dataset_size: whole number >= ``sample_size``, the number of records of the larger data set; public.

    Raises:
        ValueError: concrete sizes that are not whole, or a sample that is larger than the dataset or smaller
            than 1e-14 of it.
    """

    mechanism: Mechanism = checked(as_mechanism)
    sample_size: ArrayLike = checked(_validate.count)
    dataset_size: ArrayLike = checked(_validate.count)
    _instead = ", which depends on how many records there are; use it on the inner mechanism alone"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _validate.is_traced((self.sample_size, self.dataset_size)) and np.isnan(self._rate().value).any():
            raise ValueError(
                "sample_size must be at most dataset_size and at least 1e-14 of it, "
                f"got {self.sample_size} of {self.dataset_size}"
            )

    def _rate(self) -> Rate:
        return subset_rate(self.sample_size, self.dataset_size)

    def _dominating(self, relation: str) -> Runs:
        inner = self.mechanism
        self._refuse_special(relation)
        if not inner._symmetric:
            raise ValueError(
                f"SampledWithoutReplacement has no analysis for {inner._name}, whose pair is not symmetric; a "
                "Gaussian, Laplace or exponential mechanism has one"
            )
        rate = self._rate()
        if relation != "replace":
            return [(inner._sampled(rate, relation), 1.0)]
        return [(HalvesPair(inner._sampled(rate, "remove"), inner._sampled(rate, "add"), np.zeros(())), 1.0)]

    def _witness(self, relation: str) -> Mechanism:
        found = of_witness(self, "replace")
        return unchecked(KnownAttack, mechanism=found) if relation == "replace" else found
