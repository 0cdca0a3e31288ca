"""`Shuffled`: batches cut from shuffled data, which most data loaders draw and of which little is proven."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct._numerics.arrays import Array, Real, xp
from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import checked, mechanism, unchecked
from jaxacct.mechanisms.base import Mechanism, as_mechanism, of_witness
from jaxacct.mechanisms.known_attack import KnownAttack
from jaxacct.mechanisms.pairs.allocation import BATCHES, allocation_pair, better
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.shuffled import shuffled_pair
from jaxacct.mechanisms.parameters import EVERY_RECORD, whole_number, whole_steps
from jaxacct.mechanisms.random_allocation import renyi_of_one_run


@mechanism
class Shuffled(Mechanism):
    """One epoch of ``batches`` runs of ``mechanism`` on the batches of equal size into which shuffled data are cut.

    One run of this mechanism is one epoch: ``steps`` counts epochs, each with a shuffle of its own. The number of
    places is public: `add` and `remove` are a place that is filled or left empty, like `replace_special`. (If a loader
    cuts anew when a record leaves, neighbours differ in many batches, and nothing here holds.) `replace` has the
    parameters of a record that comes or goes, as in ``PoissonSampled``.

    *The two bounds.* The **upper** bound is that of one run of ``mechanism`` on data that are not shuffled: the record
    is in one batch, and an adversary who is told which knows no less. It is proven, for every pair, and has no gain
    from the shuffle itself. The **lower** bound is that of an attack. For Gaussians it is that of Chua et al. 2024,
    "How private are DP-SGD implementations?": all other records pull the other way, so that the batch of the record
    moves by 2 with it and by 1 without it, and the attack looks at the largest batch sum. For other mechanisms, and
    where that is the better attack, all other records are 0, which makes it random allocation. The truth lies between,
    and may lie anywhere. Proofs are in docs/proofs/shuffled.md.

    Attributes:
        mechanism: what runs on each batch: anything with one pair a run.
        batches: a whole number >= 1 and at most 2^20; any shape.

    Raises:
        ValueError: a concrete number of batches that is not whole, or too large.
    """

    mechanism: Mechanism = checked(as_mechanism)
    batches: ArrayLike = checked(*BATCHES)

    @property
    def _symmetric(self) -> bool:
        return self.mechanism._symmetric

    def _runs(self, relation: str, steps: ArrayLike) -> Runs:
        runs, t = whole_steps(steps), whole_number(self.batches)
        runs = xp.where(t >= 1.0, runs, np.nan)
        if relation == "replace":
            return [(self.mechanism._replaced(EVERY_RECORD), runs)]
        return self.mechanism._runs(relation, runs)

    def _dominating(self, relation: str) -> Runs:
        return self._runs(relation, 1.0)

    def _witness(self, relation: str) -> Mechanism:
        return unchecked(KnownAttack, mechanism=of_witness(self, relation))

    def _attained(self, direction: str, replaced: bool) -> Runs:
        inner, t, one = self.mechanism, whole_number(self.batches), np.ones(())
        noise = inner._gaussian_noise()
        if noise is None:
            pair = inner._one_pair("remove", "Shuffled")
            return [(allocation_pair(pair, t, one, direction, False), 1.0)]
        # A replaced record turns round: it moves its batch by 2, or not at all.
        largest = shuffled_pair(noise, t, 0.0 if replaced else 1.0, direction)
        moved = GaussianPair(noise / (2.0 if replaced else 1.0), one, np.zeros(()))
        return [(better(largest, allocation_pair(moved, t, one, direction, False)), 1.0)]

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        found = renyi_of_one_run(self.mechanism, order, self._as_renyi(relation))
        xp, batches = floats(whole_number(self.batches))
        return xp.where(batches >= 1.0, found, np.inf)

    def _rarely_sampled(self, steps: ArrayLike) -> tuple[Array, Real]:
        return self.mechanism._rarely_sampled(steps)
