"""`RandomAllocation`: each record takes part in randomly chosen batches of an epoch ("balls in bins")."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, xp
from jaxacct._numerics.pytree import checked, mechanism, unchecked
from jaxacct._numerics.rounding import UNIT, deflated
from jaxacct.mechanisms.base import Mechanism, as_mechanism, of_witness
from jaxacct.mechanisms.known_attack import KnownAttack
from jaxacct.mechanisms.pairs.allocation import BATCHES, allocation_pair, tables_help, without_zeros
from jaxacct.mechanisms.pairs.base import Pair, Runs
from jaxacct.mechanisms.pairs.replaced.table import AntipodalTablePair
from jaxacct.mechanisms.parameters import EVERY_RECORD, Rate, poisson_rate, whole_number, whole_steps
from jaxacct.mechanisms.samples.poisson import PoissonSampled


@mechanism
class RandomAllocation(Mechanism):
    """One epoch of ``batches`` runs of ``mechanism``; each record is in ``participations`` of them, chosen at random.

    The choice is uniform, afresh for every epoch, and independent of that of other records: with one participation
    every record draws one of t batches, and batches have random sizes ("balls in bins"; Chua et al., "Balls-and-Bins
    Sampling for DP-SGD", 2024; Feldman and Shenfeld, "Privacy amplification by random allocation", 2025). One run of
    this mechanism is one epoch: ``steps`` counts epochs.

    With (P, Q) the pair of ``mechanism`` for `remove`, one participation has the pair of the mixture over i of
    Q x .. x P (at i) x .. x Q and the product Q x .. x Q; for `add` the two are exchanged. Its ratio is the mean of t
    independent ratios of (P, Q). The runs may depend on the results of earlier ones, in the epoch and before, and their
    noise as well, as long as (P, Q) dominates each of them: more noise than declared is sound, at the same epsilon.
    For k participations the upper bound is proven: that of k epochs of one participation and a k-th part of the
    batches each. The lower one is that of an attack, a test on the sum of log(1 + c r) over the ratios r
    of all t batches. `replace` is bounded from above by the antipodal pair of an epoch's pair, and from below by
    records that become one that adds nothing; the two may be far apart. Where noise is so small or so large that no
    table of ratios is of use (for Gaussians below some 0.05 and above 10^4 sensitivities), the upper bound is that of
    k runs whose batches are known, the lower one that of a single batch. Proofs: docs/proofs/random-allocation.md.

    Rényi divergences are those of k runs whose batches are known: filters that compose laws (``filters.menu``)
    see what the allocation hides, those of Rényi type do not.

    Bounds are computed by FFT (``jaxacct.mechanisms.allocation``) when numbers are known, inside `jit` on a CPU by a
    call of the host. A program that cannot call the host has the upper bound of known batches where numbers are traced.

    Attributes:
        mechanism: what runs on each batch: anything with one pair a run whose losses hardly exceed 330.
        batches: t, a whole number >= 1 and at most 2^20; any shape.
        participations: k, a whole number between 1 and ``batches``.

    Raises:
        ValueError: concrete numbers that are not whole, or more participations than batches.
    """

    mechanism: Mechanism = checked(as_mechanism)
    batches: ArrayLike = checked(*BATCHES)
    participations: ArrayLike = checked(_validate.count, default=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _validate.ordered(participations=self.participations, batches=self.batches)

    def _numbers(self) -> tuple[Array, Array]:
        """t and k in float64, NaN where they are invalid."""
        t, k = whole_number(self.batches), whole_number(self.participations)
        return xp.where(k <= t, t, np.nan), xp.where(k <= t, k, np.nan)

    def _dominating(self, relation: str) -> Runs:
        inner, of = self.mechanism, "RandomAllocation"
        pair = inner._one_pair("remove", of)
        side = "remove" if relation == "replace" else relation
        t, k = self._numbers()
        if not (_validate.is_traced((pair, t, k)) or tables_help(pair, relation)):
            # What is told where the record is knows no less.
            known = inner._replaced(EVERY_RECORD) if relation == "replace" else inner._one_pair(relation, of)
            return [(known, k)]
        one = np.ones(())
        parts = [(t, one)]
        if _validate.is_traced(k) or np.any(k != 1.0):
            # A random set of k batches is one of each of k random blocks; what is told of the blocks only helps.
            small = xp.floor(t / k)
            larger = t - k * small
            parts = [(small, k - larger), (small + 1.0, larger)]
            if not _validate.is_traced(larger):
                parts = [part for part in parts if np.any(part[1] != 0)]
        found = [(allocation_pair(pair, size, one, side, True), count) for size, count in parts]
        if relation == "replace":
            return [(AntipodalTablePair(without_zeros(pair), one, np.zeros(())), count) for pair, count in found]
        return found

    def _replaced(self, rate: Rate) -> Pair:
        raise ValueError(
            "relation 'replace' has no analysis for PoissonSampled of RandomAllocation; 'add_or_remove' has one, and "
            "group privacy turns its (epsilon, delta) into (2 epsilon, (1 + exp(epsilon)) delta)"
        )

    def _runs(self, relation: str, steps: ArrayLike) -> Runs:
        return [(pair, count * whole_steps(steps)) for pair, count in self._dominating(self._as(relation))]

    def _witness(self, relation: str) -> Mechanism:
        return unchecked(KnownAttack, mechanism=of_witness(self, relation))

    def _attained(self, direction: str, replaced: bool) -> Runs:
        """What a test makes of an epoch. A replaced record adds nothing."""
        pair = self.mechanism._one_pair("remove", "RandomAllocation")
        t, k = self._numbers()
        known = not _validate.is_traced((pair, t, k))
        if known and not tables_help(pair, direction):
            # Of a single batch of the epoch.
            rate = poisson_rate(deflated(k / t, 2.0 * UNIT))
            return [(self.mechanism._sampled(rate, direction), np.where(k >= 1.0, 1.0, np.nan))]
        if known and np.all(k == t):
            return [(allocation_pair(pair, np.ones(()), np.ones(()), direction, False), k)]
        return [(allocation_pair(pair, t, k, direction, False), 1.0)]

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        """That of ``participations`` runs that are known: a bound, which gains nothing from the allocation."""
        return self._numbers()[1] * renyi_of_one_run(self.mechanism, order, self._as_renyi(relation))

    def _rarely_sampled(self, steps: ArrayLike) -> tuple[Array, Real]:
        return self.mechanism._rarely_sampled(whole_steps(steps) * self._numbers()[1])


def renyi_of_one_run(mechanism: Mechanism, order: ArrayLike, relation: str) -> Array:
    """With parameters of a record that comes or goes, for every relation."""
    if relation == "replace":
        mechanism = unchecked(PoissonSampled, mechanism=mechanism, rate=np.ones(()))
    return mechanism._renyi(order, relation)
