"""The ladder of loss bands behind the additive filter, and what that filter and the natural one guarantee.

A symmetric loss L falls into band i with probability p_i = P(e_(i-1) < |L| <= e_i) and is dominated by randomized
response at a random e_i, drawn with p (generalised randomised response). The finite ends double up to ``top`` epsilon,
and the last band is without end. A natural (epsilon, delta) filter on T symmetric queries lets through at most b_i in
band i in sum (Theorem 14), so at most n_i answers of band i but for the Chernoff tails of a sum of adaptively chosen
Bernoullis (Theorem 16), T answers in all, and the whole is dominated by their product next to a failure (Theorems 9 and
15 of the residue paper; the constants and their proofs are in docs/theorems/additive-filter.md).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import on_device
from jaxacct._numerics.roots import last
from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms.profile import FromProfile

_MOST = 2**23  # points of the lattice law
_MOST_ROUNDS = 2**23  # more would take minutes


class Ladder(NamedTuple):
    """Bands 1 to k of the additive filter.

    Attributes:
        epsilons: upper ends, shape ``(k,)``, the last inf.
        budgets: b, shape ``(k,)``.
        answers: n of bands 1 to k - 1, T at most in all.
        failure: probability that some band needs more, b_k included.
    """

    epsilons: np.ndarray
    budgets: np.ndarray
    answers: np.ndarray
    failure: float


def _above(top: float, epsilon: float) -> float:
    """The hockey stick at e^epsilon of randomized response at ``top``, rounded down."""
    return deflated(-math.expm1(epsilon - top) / (1.0 + math.exp(-top)), 16.0 * EPS)


def _check(epsilon: float, delta: float, rounds: int) -> float:
    """h, the hockey stick at e^epsilon of randomized response at 2 epsilon; raises ValueError for a bad argument."""
    _validate.scalar(epsilon=epsilon, delta=delta, rounds=rounds)
    _validate.positive(epsilon=epsilon)
    _validate.at_most(600.0, epsilon=epsilon)
    _validate.probability(delta=delta)
    _validate.at_least(1e-300, delta=delta)
    _validate.count(rounds=rounds)
    h = _above(2.0 * epsilon, epsilon)
    if not delta < min(0.5, h):
        raise ValueError(f"delta must be below min(1/2, {h:.6g}) for Theorem 9 at this epsilon, got {delta:g}")
    return h


def _response_power(epsilon: float, count: int, at: float) -> float:
    """H at e^at of ``count`` runs of randomized response at ``epsilon``; good to 1e-11 relative."""
    j = np.arange(count + 1)
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    ways = log_factorials[count] - log_factorials - log_factorials[::-1]
    log_p, log_q = -np.log1p(np.exp(-epsilon)), -epsilon - np.log1p(np.exp(-epsilon))
    loss = (2 * j - count) * epsilon
    return float(np.sum(np.exp(ways + j * log_p + (count - j) * log_q) * -np.expm1(np.minimum(at - loss, 0.0))))


def _tail(budget: float, count: int) -> float:
    """P(C >= count) of a number of successes whose chances, chosen adaptively, sum up to ``budget`` at most."""
    a = float(count)
    power = math.exp(min(a * math.log(budget) - math.lgamma(a + 1.0), 0.0))
    chernoff = math.exp(-(a * math.log(a / budget) - a + budget)) if a > budget else 1.0
    return inflated(min(power, chernoff), 1e-9)


def ladder(epsilon: float, delta: float, rounds: int, top: float = 2.0) -> Ladder:
    """The ladder whose last finite end is ``top`` epsilon; its failure is inf where delta is too large for it.

    b_i = min(T, M_i + 1, -ln(1 - delta / h_i)), M_i the most runs of RR(e_(i-1)) that are (epsilon, 2 delta)-DP and h_i
    the hockey stick of one.
    """
    _check(epsilon, delta, rounds)
    _validate.at_most(_MOST_ROUNDS, rounds=rounds)
    finite = 1 + math.ceil(math.log2(top * rounds))
    ends = [top * epsilon * 2.0 ** (i - finite) for i in range(1, finite + 1)]

    def alone(end: float) -> float:
        """-ln(1 - delta / h): how much of it lets a single answer break (epsilon, delta)."""
        h = _above(end, epsilon)
        return inflated(-math.log1p(-delta / h), 8.0 * EPS) if h > delta else math.inf

    budgets = [float(rounds)]
    for end in ends[:-1]:
        # The hockey stick grows with the count; a count that is too high only makes the bound larger.
        most = inflated(2.0 * delta, 1e-9)
        runs = last(lambda n: _response_power(end, n, epsilon) <= most, 0, int(rounds) + 1)  # noqa: B023
        budgets.append(min(float(runs + 1), float(rounds), alone(end)))
    budgets.append(alone(ends[-1]))
    answers, failure = [int(rounds)], budgets[-1]
    share = delta / (len(budgets) - 2)
    for b in budgets[1:-1]:
        n = int(b)
        while n < rounds and _tail(b, n + 1) > share:
            n += 1
        answers.append(min(n, int(rounds)))
        failure += _tail(b, n + 1) if n < rounds else 0.0
    # T answers in all: one of a lower band is a post-processing of one of a higher band.
    counts = np.minimum(answers, np.maximum(rounds - (np.cumsum(answers[::-1])[::-1] - answers), 0))
    return Ladder(np.array([*ends, np.inf]), np.array(budgets), counts, inflated(failure, 1e-12))


def copies(epsilon: float) -> int:
    """The fewest runs of randomized response at ``epsilon`` that dominate one run at twice ``epsilon`` (Lemma 10).

    5 from arcosh 2 = 1.31696 on, else 7.
    """
    return 5 if math.cosh(min(deflated(epsilon, 8.0 * EPS), 700.0)) >= inflated(2.0, 8.0 * EPS) else 7


def closed_form(epsilon: float, delta: float, rounds: int) -> tuple[float, float]:
    """(epsilon', delta') of Theorem 9: ((1 + R) eps, (1 + 2 R) delta - ln(1 - delta / h)), R the sum of r over bands.

    r = ceil(m (2 + 2 sqrt(Lambda) + 2 Lambda / 3)) for each of the bands 2 to k - 1, Lambda = ln(k / delta), with
    m = `copies` of the band's lower end.
    """
    h = _check(epsilon, delta, rounds)
    k = 3 + math.ceil(math.log2(rounds))
    size = math.log(k / delta)
    each = inflated(2.0 + 2.0 * math.sqrt(size) + 2.0 / 3.0 * size, 1e-12)
    r = sum(math.ceil(inflated(copies(epsilon * 2.0 ** (i - k + 1)) * each, 1e-12)) for i in range(2, k))
    up = 1.0 + 16.0 * EPS
    return (1 + r) * epsilon * up, ((1 + 2 * r) * delta - math.log1p(-delta / h)) * up


@dataclasses.dataclass(frozen=True, eq=False)
class LadderGuarantee:
    """The best of Theorem 9 in closed form and of products of responses on lattices.

    Attributes:
        closed: (epsilon', delta') of Theorem 9 or 15.
        laws: of the products, and what is added to their delta. The natural filter has one for each of several ladders,
            and that of T queries of which each is (epsilon, delta)-DP.
        statement: the theorem and its assumptions.
        is_bound: always True.
    """

    closed: tuple[float, float]
    laws: list[tuple[PLD, float]]
    statement: str
    is_bound: bool = True

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0, rounded up; float64."""
        _validate.nonnegative(epsilon=epsilon)
        at = np.asarray(epsilon, np.float64)
        found = np.where(at >= self.closed[0], min(self.closed[1], 1.0), 1.0)
        for law, failure in self.laws:
            found = np.minimum(found, inflated(np.asarray(law.hockey_stick(at)) + failure, EPS))
        return _float64(found)

    def epsilon(self, delta: ArrayLike) -> Array:
        """The least known epsilon at ``delta`` in (0, 1), rounded up; float64, inf where no bound reaches ``delta``."""
        _validate.probability(delta=delta)
        wanted = np.asarray(delta, np.float64)
        high = np.full(wanted.shape, self._highest())
        low = np.zeros(wanted.shape)
        reached = np.asarray(self.delta(high)) <= wanted
        for _ in range(60):
            middle = 0.5 * (low + high)
            fits = np.asarray(self.delta(middle)) <= wanted
            low, high = np.where(fits, low, middle), np.where(fits, middle, high)
        return _float64(np.where(reached, high, np.inf))

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The largest curve through 800 points of delta(epsilon) and the closed forms; ``grid`` as elsewhere."""
        ends = [self.closed[0], *(float(law.grid.losses[-1]) for law, _ in self.laws)]
        epsilons = np.unique([*np.linspace(0.0, min(self._highest(), 600.0), 800), *np.minimum(ends, 600.0)])
        return PrivacyProfile.from_mechanism(FromProfile(epsilons, np.asarray(self.delta(epsilons))), grid=grid)

    def _highest(self) -> float:
        """An epsilon from which on delta no longer falls."""
        return max([self.closed[0], *(float(law.grid.losses[-1]) for law, _ in self.laws)])


@in_float64
def _float64(value: np.ndarray) -> Array:
    return on_device(np.asarray(value, np.float64))


def product_law(bands: Ladder) -> PLD:
    """The law of prod_(i<k) RR(e_i)^n_i on the lattice of its losses; one response at their sum, were it too long."""
    asked = np.flatnonzero(bands.answers)
    ends, answers = bands.epsilons[asked], bands.answers[asked]
    if np.sum(ends * answers) > _MOST * ends[0]:
        ends, answers = np.array([inflated(np.sum(ends * answers), 8.0 * EPS * ends.size)]), np.ones(1, int)
    laws = []
    for end, count in zip(ends, answers, strict=True):
        reach = round(float(end / ends[0]))
        masses = np.zeros(2 * reach + 1)
        masses[[0, -1]] = 1.0 / (1.0 + np.exp([end, -end]))
        laws.append(PLD.from_masses(masses, LossGrid(float(ends[0]), -reach, masses.size)).self_compose(int(count)))
    return functools.reduce(PLD.compose, laws)


_TOPS = (1.25, 1.5, 2.0, 3.0, 6.0)
"""Of the ladders for the natural filter: low ones need a larger delta and fewer answers."""


def guarantee_of(epsilon: float, delta: float, rounds: int, statement: str, *, natural: bool) -> LadderGuarantee:
    """What the additive filter of these parameters guarantees, or what the natural one does, which is not larger.

    The natural filter's queries fit the budgets of every ladder, and each of them is (epsilon, delta)-DP by itself.
    """
    bands = [ladder(epsilon, delta, rounds, top) for top in (_TOPS if natural else (2.0,))]
    if natural:
        revealed = inflated(-math.expm1(rounds * math.log1p(-delta)), 8.0 * EPS)
        bands.append(Ladder(np.array([epsilon, np.inf]), np.array([rounds, delta]), np.array([rounds]), revealed))
    laws = [(product_law(one), one.failure) for one in bands if one.failure < 1.0]
    return LadderGuarantee(closed_form(epsilon, delta, rounds), laws, statement)
