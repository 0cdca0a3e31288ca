"""`many_runs`: bounds of epsilon from how often an attack was wrong over many runs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from scipy.special import betainc, betaincinv

from jaxacct import _validate
from jaxacct._numerics.binomial import binomial_split
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct._printing import rounded_down, rounded_up
from jaxacct.audit import p_values
from jaxacct.audit.findings import Finding, claim
from jaxacct.mechanisms.base import Mechanism

# The integral over the posterior: a Gauss-Legendre rule on (0, 1), finer towards both ends.
_NODES, _OF_NODES = np.polynomial.legendre.leggauss(128)
_AT = 0.5 - 0.5 * np.cos(0.5 * np.pi * (_NODES + 1.0))
_WEIGHTS = 0.25 * np.pi * np.sin(0.5 * np.pi * (_NODES + 1.0)) * _OF_NODES


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManyRuns(Finding):
    """What the errors of an attack over many runs show; it prints as sentences.

    Attributes:
        false_positives: runs without the canary of which the attack said that it was there.
        absent: runs without it.
        false_negatives: runs with the canary of which the attack said that it was not there.
        present: runs with it.
        credible: (lower, upper), an equal-tailed credible interval, at ``confidence``, of the epsilon of *this attack*,
            under Jeffreys' prior: a degree of belief, and no confidence interval. Computed to about 1e-5.
        epsilon: the implementation is not (epsilon', ``delta``)-DP for any epsilon' below. Rounded down.
        delta, confidence, p_value, certified: as in :class:`OneRun`.
    """

    false_positives: int
    absent: int
    false_negatives: int
    present: int
    credible: tuple[float, float]

    def __str__(self) -> str:
        counted = (
            f"the attack was wrong in {self.false_positives} of {self.absent} runs without the canary and in "
            f"{self.false_negatives} of {self.present} runs with it"
        )
        ends = f"[{rounded_down(self.credible[0], 4)}, {rounded_up(self.credible[1], 4)}]"
        return (
            f"{self.verdict(counted)} The {100.0 * self.confidence:.6g} % credible interval of this attack's epsilon "
            f"under Jeffreys' prior is {ends}, which is a degree of belief and no confidence interval."
        )


def many_runs(
    false_positives: int,
    absent: int,
    false_negatives: int,
    present: int,
    *,
    delta: float,
    confidence: float = 0.95,
    mechanism: Mechanism | None = None,
    steps: int = 1,
    relation: str = "add_or_remove",
) -> ManyRuns:
    """Bounds of epsilon from an attack that said of many independent runs whether a canary was in the data.

    The attack, its threshold included, is fixed before the runs that are counted.

    Args:
        false_positives, absent: of ``absent`` runs without the canary, in how many the attack said it was there.
        false_negatives, present: of ``present`` runs with it, in how many the attack said it was not there.
        delta, confidence, mechanism, steps, relation: as in :func:`one_run`.

    Returns:
        A :class:`ManyRuns`. ``epsilon`` and ``p_value`` are exact (Clopper-Pearson, half of the error for each rate,
        rounded to the safe side); ``credible`` is Bayesian.

    Raises:
        ValueError: a bad number (named), or a relation that the mechanism has no analysis for.

    Source: Clopper and Pearson 1934; Nasr, Song, Thakurta, Papernot, Carlini 2021 for the bound;
    Zanella-Béguelin et al. 2023 for the credible interval.
    """
    _validate.integer(1, 2**31, absent=absent, present=present)
    _validate.integer(0, absent, false_positives=false_positives)
    _validate.integer(0, present, false_negatives=false_negatives)
    _validate.scalar(_validate.probability, delta=delta, confidence=confidence)
    delta, confidence = float(delta), float(confidence)
    counts = (int(false_positives), int(absent)), (int(false_negatives), int(present))
    wrong, missed = (_largest_rate(*count, 0.5 * (1.0 - confidence)) for count in counts)
    least, certified = claim(mechanism, delta, steps, relation)
    tail = 0.5 * (1.0 - confidence)
    return ManyRuns(
        false_positives=counts[0][0],
        absent=counts[0][1],
        false_negatives=counts[1][0],
        present=counts[1][1],
        delta=delta,
        confidence=confidence,
        epsilon=max(_epsilon(wrong, missed, delta), _epsilon(missed, wrong, delta)),
        credible=(_quantile(tail, *counts, delta), _quantile(1.0 - tail, *counts, delta)),
        p_value=None if least is None else _p_value(least, *counts),
        certified=certified,
    )


def _largest_rate(errors: int, runs: int, significance: float) -> float:
    """The upper Clopper-Pearson bound of a rate, rounded up: P[Bin(runs, rate) <= errors] <= significance there."""
    if errors == runs:
        return 1.0
    rate, share = float(betaincinv(errors + 1.0, float(runs - errors), 1.0 - significance)), 2.0**-44
    while rate < 1.0:  # SciPy's inverse starts; the tail with its own error bound decides
        rate = min(inflated(rate, share), 1.0)
        split = binomial_split(np.float64(runs), np.float64(rate), np.float64(errors + 1))
        if float(inflated(split.below, split.doubt)) <= significance:
            return rate
        share *= 2.0
    return 1.0


def _epsilon(wrong: float, missed: float, delta: float) -> float:
    """log((1 - missed - delta) / wrong), rounded down, of two rates that are upper bounds; 0 where it is less."""
    ratio = (1.0 - missed - delta) / wrong * (1.0 - 4.0 * EPS) - 4.0 * EPS / wrong
    return max(math.log(ratio) * (1.0 - 4.0 * EPS) - 4.0 * EPS, 0.0) if ratio > 1.0 else 0.0


def _p_value(least: p_values.Least, first: tuple[int, int], second: tuple[int, int]) -> float:
    """The smallest significance found at which the rates' bounds lie below the curve; 1 if there is none."""

    def refuted(significance: float) -> bool:
        wrong, missed = (_largest_rate(*count, 0.5 * significance) for count in (first, second))
        hit, other = (1.0 - rate - 2.0 * EPS for rate in (missed, wrong))
        return wrong < least(hit) or missed < least(other)

    return p_values.smallest(refuted)


def _quantile(share: float, first: tuple[int, int], second: tuple[int, int], delta: float) -> float:
    """The epsilon up to which the posterior has ``share`` of its mass; 0 if it has more there, at most some 500."""
    (x, y), (p, q) = ((0.5 + errors, 0.5 + runs - errors) for errors, runs in (first, second))

    def mass(epsilon: float) -> float:
        """Of the pairs of error rates that some (epsilon, delta)-DP mechanism has."""
        return 1.0 - _outside((x, y), (p, q), epsilon, delta) - _outside((y, x), (q, p), epsilon, delta)

    return p_values.largest(lambda epsilon: mass(epsilon) < share)


def _outside(first: tuple[float, float], second: tuple[float, float], epsilon: float, delta: float) -> float:
    """P[x + e^epsilon y < 1 - delta or y + e^epsilon x < 1 - delta], x and y independent and Beta distributed.

    The two lines meet at x = y = c. What is below one of them is the square below c, and on either side of it what is
    below the flatter line; the integrals there are smooth.
    """
    ratio = math.exp(epsilon)
    corner = (1.0 - delta) / (1.0 + ratio)
    below = [float(betainc(*shape, corner)) for shape in (first, second)]
    total = below[0] * below[1]
    for along, across, start in ((first, second, below[0]), (second, first, below[1])):
        at, weights = start + (1.0 - start) * _AT, (1.0 - start) * _WEIGHTS
        line = np.maximum(1.0 - delta - betaincinv(*along, at), 0.0) / ratio
        total += float(weights @ betainc(*across, line))
    return total
