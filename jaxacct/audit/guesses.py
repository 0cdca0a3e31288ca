"""`one_run`: a lower confidence bound of epsilon from guesses about the canaries of one run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxacct import _validate
from jaxacct._printing import rounded_down
from jaxacct.accounting.queries import epsilon as epsilons
from jaxacct.audit import p_values
from jaxacct.audit.findings import Finding, claim
from jaxacct.mechanisms import GDP
from jaxacct.mechanisms.base import Mechanism


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneRun(Finding):
    """What guesses about the canaries of one run show; it prints as sentences.

    Attributes:
        correct: right guesses, those of the best score.
        guesses: guesses that were made, a number fixed beforehand.
        canaries: canaries, each in the data by a fair coin of its own.
        scores: scores that were tried, which share the error 1 - ``confidence``.
        epsilon: the implementation is not (epsilon', ``delta``)-DP for any epsilon' below, whatever it computes.
            Rounded down.
        gaussian_epsilon: it is not mu-GDP for any mu whose epsilon at ``delta`` is below. A lower bound of epsilon for
            implementations whose curve is a Gaussian's; for others it is none. Rounded down.
        delta: the delta that the epsilons are at.
        confidence: with at least this probability, what is said here is true of the implementation.
        p_value: of the mechanism that was accounted for, rounded up; None where none was given.
        certified: the upper bound of epsilon at ``delta`` that was accounted for; None where no mechanism was given.
    """

    correct: int
    guesses: int
    canaries: int
    scores: int
    gaussian_epsilon: float

    def __str__(self) -> str:
        of = f" by the best of {self.scores} scores" if self.scores > 1 else ""
        counted = f"{self.correct} of {self.guesses} guesses about {self.canaries} canaries were right{of}"
        gaussian = f"GDP with an epsilon below {rounded_down(self.gaussian_epsilon, 5)}"
        if self.gaussian_epsilon == 0.0:
            return self.verdict(counted)
        return self.verdict(counted, f", nor {gaussian}" if self.epsilon > 0.0 else f", but {gaussian} is")


def one_run(
    correct: int | Sequence[int],
    guesses: int,
    canaries: int,
    *,
    delta: float,
    confidence: float = 0.95,
    mechanism: Mechanism | None = None,
    steps: int = 1,
    relation: str = "add_or_remove",
) -> OneRun:
    """A lower confidence bound of epsilon from one run with many canaries, and whether a mechanism is refuted.

    Each canary is in the data by a fair coin of its own. From all that the run released, in whatever way, ``guesses``
    canaries are said to be in or out; the others are left open. How many guesses are made, and ``delta``,
    ``confidence`` and ``mechanism``, are fixed before anybody looks at scores. A mechanism that is private gets few
    of the guesses right.

    Args:
        correct: how many guesses were right; or such numbers for several scores of the same canaries, of which each is
            tested at its share of the error and the best counts.
        guesses: how many canaries were guessed, at least 1, at most ``canaries``.
        canaries: how many canaries there were.
        delta: in (0, 1), for which epsilon is bounded.
        confidence: in (0, 1): the least probability that the statements are true.
        mechanism: what was accounted for; see :mod:`jaxacct.mechanisms`.
        steps: how often it ran, fixed in advance.
        relation: what a canary that is in differs in from one that is out: ``"add_or_remove"``, ``"replace"`` or
            ``"replace_special"``, see :func:`jaxacct.delta`.

    Returns:
        A :class:`OneRun`. Its bounds count all rounding, so that less is refuted rather than more.

    Raises:
        ValueError: a bad number (named), or a relation that the mechanism has no analysis for.

    Source: Steinke, Nasr, Jagielski 2023 for ``epsilon``; Mahloujifar, Melis, Chaudhuri 2024 for
    ``gaussian_epsilon`` and ``p_value``. Hypotheses and proofs: docs/proofs/audits.md.
    """
    _validate.integer(1, 2**20, canaries=canaries)
    _validate.integer(1, canaries, guesses=guesses)
    counts: list[Any] = list(correct) if isinstance(correct, tuple | list) else [correct]
    if not counts:
        raise ValueError(f"correct must hold the right guesses of at least one score, got {correct!r}")
    for count in counts:
        _validate.integer(0, guesses, correct=count)
    _validate.scalar(_validate.probability, delta=delta, confidence=confidence)
    delta, confidence = float(delta), float(confidence)
    best, tests = max(int(count) for count in counts), len(counts)
    counted, significance = (int(canaries), int(guesses), best), (1.0 - confidence) / tests
    mu = p_values.largest(lambda mu: p_values.is_refuted(p_values.gaussian(mu), *counted, significance))
    least, certified = claim(mechanism, delta, steps, relation)
    p_value = None
    if least is not None:
        alone = p_values.smallest(lambda share: p_values.is_refuted(least, *counted, share))
        p_value = min(tests * alone * (1.0 + 2.0**-50), 1.0)
    return OneRun(
        correct=best,
        guesses=int(guesses),
        canaries=int(canaries),
        delta=delta,
        confidence=confidence,
        scores=tests,
        epsilon=p_values.largest(lambda at: p_values.approximate_dp(*counted, at, delta) <= significance),
        gaussian_epsilon=float(epsilons(GDP(mu), delta).lower) if mu else 0.0,
        p_value=p_value,
        certified=certified,
    )
