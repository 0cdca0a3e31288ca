"""The ladder of loss bands behind the additive filter, and what that filter and the natural one guarantee.

A symmetric loss L falls into band i with probability p_i = P(e_(i-1) < |L| <= e_i) and is dominated by randomized
response at a random e_i, drawn with p (generalised randomised response). The ladder is dyadic, e_i = 2^(i-k+2) epsilon
for i < k and e_k = inf, with k = 3 + ceil(log2 T). A natural (epsilon, delta) filter on T symmetric queries lets
through at most b_i in band i in sum (Theorem 14), so at most n_i answers of band i but for the Chernoff tails of a sum
of adaptively chosen Bernoullis (Theorem 16), and the whole is dominated by prod_i RR(e_i)^n_i next to a failure
(Theorems 9 and 15 of the residue paper; constants derived for this library, as the paper's printed text lost them).
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import on_device
from jaxacct._numerics.roots import last
from jaxacct._numerics.rounding import EPS, deflated, inflated
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
        answers: n of bands 1 to k - 1.
        failure: probability that some band needs more, b_k included.
    """

    epsilons: np.ndarray
    budgets: np.ndarray
    answers: np.ndarray
    failure: float


def _check(epsilon: float, delta: float, rounds: int) -> float:
    """h, the hockey stick at e^epsilon of randomized response at 2 epsilon; raises ValueError for a bad argument."""
    _validate.scalar(epsilon=epsilon, delta=delta, rounds=rounds)
    _validate.positive(epsilon=epsilon)
    _validate.at_most(600.0, epsilon=epsilon)
    _validate.probability(delta=delta)
    _validate.at_least(1e-300, delta=delta)
    _validate.count(rounds=rounds)
    h = deflated(math.expm1(epsilon) / (math.exp(epsilon) + math.exp(-epsilon)), 16.0 * EPS)
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


def ladder(epsilon: float, delta: float, rounds: int) -> Ladder:
    """The ladder with b_i = min(T, M_i + 1), M_i the most runs of RR(e_(i-1)) that are (epsilon, 2 delta)-DP."""
    h = _check(epsilon, delta, rounds)
    _validate.at_most(_MOST_ROUNDS, rounds=rounds)
    k = 3 + math.ceil(math.log2(rounds))
    ends = [epsilon * 2.0 ** (i - k + 2) for i in range(1, k)]
    budgets = [float(rounds)]
    for i in range(2, k):
        # The hockey stick grows with the count; a count that is too high only makes the bound larger.
        end, most = ends[i - 2], inflated(2.0 * delta, 1e-9)
        runs = last(lambda n: _response_power(end, n, epsilon) <= most, 0, int(rounds) + 1)  # noqa: B023
        budgets.append(float(min(runs + 1, rounds)))
    budgets.append(inflated(-math.log1p(-delta / h), 8.0 * EPS))
    answers, failure = [int(rounds)], budgets[-1]
    share = delta / (k - 2)
    for b in budgets[1:-1]:
        n = int(b)
        while n < rounds and _tail(b, n + 1) > share:
            n += 1
        answers.append(min(n, int(rounds)))
        failure += _tail(b, n + 1) if n < rounds else 0.0
    return Ladder(np.array([*ends, np.inf]), np.array(budgets), np.array(answers), inflated(failure, 1e-12))


def closed_form(epsilon: float, delta: float, rounds: int) -> tuple[float, float]:
    """(epsilon', delta') of Theorem 9: ((1 + (k - 2) r) eps, (1 + 2 (k - 2) r) delta - ln(1 - delta / h)).

    r = ceil(8 (2 + 2 sqrt(Lambda) + 2 Lambda / 3)) with Lambda = ln(k / delta).
    """
    h = _check(epsilon, delta, rounds)
    k = 3 + math.ceil(math.log2(rounds))
    size = math.log(k / delta)
    r = math.ceil(inflated(8.0 * (2.0 + 2.0 * math.sqrt(size) + 2.0 / 3.0 * size), 1e-12))
    up = 1.0 + 16.0 * EPS
    return (1 + (k - 2) * r) * epsilon * up, ((1 + 2 * (k - 2) * r) * delta - math.log1p(-delta / h)) * up


@dataclasses.dataclass(frozen=True, eq=False)
class LadderGuarantee:
    """The best of Theorem 9 in closed form, its product of responses on a lattice, and basic composition.

    Attributes:
        closed: (epsilon', delta') of Theorem 9 or 15.
        trivial: (T epsilon, T delta) where every query is within the budget by itself, else None.
        losses: the lattice of the product of responses, rising; empty where it would be too long.
        masses: its law, shape of ``losses``.
        failure: what is added to its hockey stick.
        statement: the theorem and its assumptions.
        is_bound: always True.
    """

    closed: tuple[float, float]
    trivial: tuple[float, float] | None
    losses: np.ndarray
    masses: np.ndarray
    failure: float
    statement: str
    is_bound: bool = True

    def delta(self, epsilon: ArrayLike) -> Array:
        """The delta at ``epsilon`` >= 0, rounded up; float64."""
        _validate.nonnegative(epsilon=epsilon)
        at = np.asarray(epsilon, np.float64)
        found = np.ones(at.shape)
        for point in filter(None, (self.closed, self.trivial)):
            found = np.where(at >= point[0], np.minimum(found, point[1]), found)
        if self.losses.size:
            values = [np.sum(self.masses * -np.expm1(np.minimum(e - self.losses, 0.0))) for e in at.reshape(-1)]
            value = inflated(np.asarray(values).reshape(at.shape), 1e-9) + self.failure
            found = np.minimum(found, value)
        return _float64(np.minimum(found, 1.0))

    def epsilon(self, delta: ArrayLike) -> Array:
        """The least known epsilon at ``delta`` in (0, 1), rounded up; float64, inf where no bound reaches ``delta``."""
        _validate.probability(delta=delta)
        wanted = np.asarray(delta, np.float64)

        def one(value: float) -> float:
            high = max([p[0] for p in (self.closed, self.trivial) if p] + [float(self.losses.max(initial=0.0))])
            if float(self.delta(high)) > value:
                return np.inf
            low = 0.0
            for _ in range(60):
                middle = 0.5 * (low + high)
                low, high = (low, middle) if float(self.delta(middle)) <= value else (middle, high)
            return high

        return _float64(np.array([one(float(v)) for v in wanted.reshape(-1)]).reshape(wanted.shape))

    def profile(self, grid: LossGrid | None = None) -> PrivacyProfile:
        """The largest curve through 800 points of delta(epsilon) and the closed forms; ``grid`` as elsewhere."""
        ends = [point[0] for point in (self.closed, self.trivial) if point]
        most = min(max(float(self.losses.max(initial=0.0)), *ends), 600.0)
        epsilons = np.unique([*np.linspace(0.0, most, 800), *ends])
        return PrivacyProfile.from_mechanism(FromProfile(epsilons, np.asarray(self.delta(epsilons))), grid=grid)


@in_float64
def _float64(value: np.ndarray) -> Array:
    return on_device(np.asarray(value, np.float64))


def product_law(bands: Ladder) -> tuple[np.ndarray, np.ndarray, float]:
    """``(losses, masses, error)`` of prod_(i<k) RR(e_i)^n_i; its hockey sticks are off by at most ``error``.

    By one inverse FFT of the product of (p e^(iw) + (1 - p) e^(-iw))^n, each factor good to 16 n units of itself. So
    the masses are off by that share of their Euclidean norm, and a sum of N of them by sqrt(N) as much. The transform
    itself is off by 8 units a level (docs/proofs/fft.md, lemma 1); 128 are charged.
    """
    finite = bands.epsilons[:-1]
    strides = np.rint(finite / finite[0]).astype(np.int64)
    reach = int(np.sum(strides * bands.answers))
    size = 1 << (2 * reach + 1).bit_length()
    if size > _MOST:
        return np.zeros(0), np.zeros(0), 0.0
    frequency = np.arange(size // 2 + 1)
    log = np.zeros(frequency.size, complex)
    for stride, epsilon, count in zip(strides, finite, bands.answers, strict=True):
        # exp(-i w stride) with w = 2 pi f / size, reduced exactly before the cosine is taken.
        angle = 2.0 * np.pi / size * ((frequency * stride) % size)
        p = 1.0 / (1.0 + np.exp(-epsilon))
        log = log + count * np.log(np.cos(angle) - 1j * (2.0 * p - 1.0) * np.sin(angle) + 0j)
    masses = np.fft.irfft(np.exp(log), size)
    relative = (16.0 * float(np.sum(bands.answers)) + 64.0 * math.log2(size)) * EPS
    error = math.sqrt(size) * float(np.linalg.norm(masses)) * relative * 2.0
    masses = np.concatenate([masses[size - reach :], masses[: reach + 1]])  # losses below 0 stand at the end
    return np.arange(-reach, reach + 1) * finite[0], np.maximum(masses, 0.0), error


def guarantee_of(epsilon: float, delta: float, rounds: int, statement: str, *, natural: bool) -> LadderGuarantee:
    """What the additive filter of these parameters guarantees, or, with one more bound, the natural one."""
    bands = ladder(epsilon, delta, rounds)
    losses, masses, error = product_law(bands)
    trivial = (inflated(rounds * epsilon, EPS), inflated(rounds * delta, EPS)) if natural else None
    made = closed_form(epsilon, delta, rounds)
    return LadderGuarantee(made, trivial, losses, masses, bands.failure + error, statement)
