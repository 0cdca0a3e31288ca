"""`Certificate`: a question, the enclosure of its answer, and what is needed to compute it again."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from fractions import Fraction

from jaxacct import _validate
from jaxacct.certificates.enclosures import Enclosure, delta_enclosure, infinite_mass
from jaxacct.certificates.laws.base import Step, is_symmetric
from jaxacct.certificates.reading import RELATIONS, certified, laws_of
from jaxacct.certificates.search import epsilon_enclosure
from jaxacct.certificates.written import decimal_text, fraction_of, read_mechanism, same_json, written_mechanism
from jaxacct.mechanisms.base import Mechanism

_VERSION = 1
_DECIMAL = re.compile(r"[0-9]{1,220}(\.[0-9]{0,1000})?(E[+-]?[0-9]{1,5})?")
_FEW = 4.0  # digits that tell the two directions apart in most cases


@dataclasses.dataclass(frozen=True)
class Certificate:
    """An enclosure of one number, in ball arithmetic; `certify` makes it.

    Attributes:
        mechanism: what runs.
        steps: how often, fixed in advance.
        relation: what changes, as in `jaxacct.epsilon`.
        given: ``"epsilon"`` or ``"delta"``, what was asked at.
        at: its value, an exact float.
        lower: the lower bound of the answer, a decimal number.
        upper: the upper bound of the answer, a decimal number or ``"inf"``.
        method: how `certify` found the enclosure; empty in a certificate that was read, which states the question and
            the answer and nothing else.
        bits: its working precision; 0 in a certificate that was read.
        altered: what is wrong with the text that the certificate was read from, if it holds something beside question
            and answer; such a certificate is never confirmed.
    """

    mechanism: Mechanism
    steps: int
    relation: str
    given: str
    at: float
    lower: str
    upper: str
    method: str = dataclasses.field(default="", compare=False)
    bits: int = dataclasses.field(default=0, compare=False)
    altered: str = ""

    @property
    def certifies(self) -> str:
        """What the number bounds: the worst case, or an upper bound of it that no data are known to attain."""
        return certified(self.mechanism, self.relation)

    @property
    def digits(self) -> float:
        """The number of significant digits to which the answer is known."""
        low, high = _or_infinite(self.lower), _or_infinite(self.upper)
        if isinstance(low, float) or isinstance(high, float) or low >= high:
            return math.inf if low == high else 0.0
        return max(0.0, _log10(high) - _log10(high - low))

    def encloses(self, lower: float, upper: float) -> bool:
        """Whether bounds of the same number, from a program or elsewhere, do not contradict the certificate.

        Where `certifies` is an upper bound of the worst case, a lower bound that is meant for the worst case has to lie
        below it just as well.
        """
        return lower <= upper and _or_infinite(self.lower) <= upper and lower <= _or_infinite(self.upper)

    def check(self) -> bool:
        """Whether a computation with more bits, and along another contour if there is one, confirms the enclosure.

        It confirms what the certificate states and not where it came from: a wider enclosure is confirmed as well. What
        was read from a text that holds something else too is not.
        """
        if self.altered or _or_infinite(self.lower) > _or_infinite(self.upper):
            return False
        # At least as many as let every method do its best.
        digits = max(8.0, min(60.0, self.digits) + 2.0 if math.isfinite(self.digits) else 6.0)
        laws = laws_of(self.mechanism, self.steps, self.relation)
        if self.given == "epsilon":
            found = _delta(laws, Fraction(self.at), self.relation, digits, other=True)
            lower, upper = _or_infinite(self.lower), _or_infinite(self.upper)
            return fraction_of(found.lower) >= lower and fraction_of(found.upper) <= upper
        target = Fraction(self.at)

        def at(epsilon: str) -> Enclosure:
            return _delta(laws, Fraction(epsilon), self.relation, digits + 3.0, other=True)

        if self.lower == "inf":
            return any(fraction_of(infinite_mass(laws, way)) > target for way in _ways(laws, self.relation))
        below = Fraction(self.lower) == 0 or fraction_of(at(self.lower).lower) > target
        return below and (self.upper == "inf" or fraction_of(at(self.upper).upper) <= target)

    def to_json(self) -> str:
        """The certificate as one JSON object, for `read_certificate`."""
        answer = "delta" if self.given == "epsilon" else "epsilon"
        return json.dumps(
            {
                "certificate": _VERSION,
                "question": {
                    "answer": answer,
                    self.given: self.at,
                    "mechanism": written_mechanism(self.mechanism),
                    "steps": self.steps,
                    "relation": self.relation,
                },
                "answer": {"lower": self.lower, "upper": self.upper},
                "certifies": self.certifies,
            }
        )


def certify(
    mechanism: Mechanism,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    steps: int = 1,
    relation: str = "add_or_remove",
    digits: float = 15,
) -> Certificate:
    """An enclosure of delta (given epsilon) or epsilon (given delta), in ball arithmetic, as a certificate.

    It shares no code with `jaxacct.epsilon` and `jaxacct.delta`: parameters are taken as the exact rational numbers
    that the floats are, and every operation is one of Arb's balls (python-flint, the extra ``certify``). It uses closed
    forms, exact sums and residues where they exist, else a contour integral whose errors are bounded (docs/proofs). It
    takes milliseconds to seconds. Where the digits are out of reach (few runs of rare samples, tables of many outputs
    and steps) the enclosure is wider; `Certificate.digits` says how wide. Where only a dominating pair is known, and
    not the worst case, that pair is certified; `Certificate.certifies` says so.

    Args:
        mechanism: Gaussians, mixtures of them, Laplace noise, randomized response, discrete Gaussian, discrete Laplace
            and Skellam noise, tables, `PureDP`, `ApproximateDP` and `GDP`; Poisson samples of these, cut or not,
            samples of a fixed size, shuffled batches, one epoch of `RandomAllocation`; compositions; scalar, concrete
            parameters.
        epsilon: the epsilon at which delta is enclosed, >= 0.
        delta: the delta at which epsilon is enclosed, in (0, 1); exactly one of the two is given.
        steps: how often the mechanism runs, fixed in advance.
        relation: ``"add_or_remove"``, ``"add"``, ``"remove"``, ``"replace"``, ``"replace_special"``, ``"zero_out"`` or
            ``"fill_in"``, as in `jaxacct.epsilon`.
        digits: significant digits of the answer, 1 to 200.

    Raises:
        ValueError: a bad argument, a mechanism without such a transform, no enclosure within the limits of work.
        ImportError: python-flint is not installed.
    """
    if epsilon is not None and delta is None:
        given, value = "epsilon", epsilon
    elif delta is not None and epsilon is None:
        given, value = "delta", delta
    else:
        raise ValueError(f"epsilon or delta must be given, one of both, got {epsilon!r} and {delta!r}")
    _validate.whole(steps=steps)
    _validate.scalar(digits=digits)
    _validate.at_least(1, digits=digits)
    _validate.at_most(200, digits=digits)
    _validate.one_of(tuple(RELATIONS), relation=relation)
    _validate.scalar(_validate.nonnegative, **{given: value})
    if given == "delta":
        _validate.probability(delta=value)
    laws = laws_of(mechanism, int(steps), relation)
    places = math.ceil(digits) + 3
    if given == "epsilon":
        found = _delta(laws, Fraction(float(value)), relation, digits)
        lower, upper = decimal_text(found.lower, places, up=False), decimal_text(found.upper, places, up=True)
        method, bits = found.method, found.bits
    else:
        lower, upper, method, bits = _epsilon(laws, Fraction(float(value)), relation, digits)
    return Certificate(mechanism, int(steps), relation, given, float(value), lower, upper, method, bits)


def read_certificate(text: str) -> Certificate:
    """The certificate that `Certificate.to_json` wrote.

    Whatever the text holds is part of the certificate: read and written again it must be the same, but for the order of
    names, white space and how a number is spelled. Where it is not (a name twice or one too many, a number that no
    float is), `Certificate.altered` says so, and `Certificate.check` is False.

    Raises:
        ValueError: a text from which no certificate can be read.
    """
    try:
        held = json.loads(text)
        if held["certificate"] != _VERSION:
            raise ValueError(f"version must be {_VERSION}, got {held['certificate']!r:.20}")
        question, answer = held["question"], held["answer"]
        given = "epsilon" if question["answer"] == "delta" else "delta"
        _validate.integer(1, 2**63 - 1, steps=question["steps"])
        found = Certificate(
            read_mechanism(question["mechanism"]), question["steps"], question["relation"], given,
            float(question[given]), _decimal(answer["lower"]), _decimal(answer["upper"]),
        )  # fmt: skip
        _validate.one_of(tuple(RELATIONS), relation=found.relation)
        _validate.nonnegative(**{given: found.at})
        if held["certifies"] != found.certifies:
            raise ValueError(f"what it certifies must be {found.certifies!r}, got {held['certifies']!r:.80}")
        altered = _altered(text, found)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise ValueError(f"certificate must be what Certificate.to_json wrote, got {text!r:.80}: {problem}") from None
    return dataclasses.replace(found, altered=altered)


def _altered(text: str, read: Certificate) -> str:
    """What the text states beside the certificate that was read from it; empty if nothing."""
    try:
        same = same_json(text) == same_json(read.to_json())
    except ValueError as problem:
        return str(problem)
    return "" if same else "it holds more, less or something else than question and answer"


def _decimal(text: object) -> str:
    """A decimal number from 0 on that is not too long to be read."""
    if not isinstance(text, str) or not (text == "inf" or _DECIMAL.fullmatch(text)):
        raise ValueError(f"an answer must be a decimal number, got {text!r:.40}")
    return text


def _delta(laws: list[Step], epsilon: Fraction, relation: str, digits: float, other: bool = False) -> Enclosure:
    """The larger one of the relation's directions."""
    ways = _ways(laws, relation)
    if len(ways) > 1 and digits > 2 * _FEW:
        # The smaller direction needs few digits.
        rough = {way: delta_enclosure(laws, epsilon, way, _FEW, other) for way in ways}
        least = max(fraction_of(one.lower) for one in rough.values())
        ways = tuple(way for way in ways if fraction_of(rough[way].upper) >= least)
    found = [delta_enclosure(laws, epsilon, reverse, digits, other) for reverse in ways]
    upper = max(found, key=lambda one: fraction_of(one.upper))
    lower = max(found, key=lambda one: fraction_of(one.lower))
    return Enclosure(lower.lower, upper.upper, upper.method, upper.bits)


def _epsilon(laws: list[Step], target: Fraction, relation: str, digits: float) -> tuple[str, str, str, int]:
    """The larger one of the relation's directions; the other is searched only if it may be larger."""
    found = ("0", "0", "", 64)
    for reverse in _ways(laws, relation):
        at = lambda e, d, reverse=reverse: delta_enclosure(laws, e, reverse, d)  # noqa: E731
        if found[1] != "inf" and found[2] and fraction_of(at(Fraction(found[0]), _FEW).upper) <= target:
            continue
        other = epsilon_enclosure(at, target, digits, infinite_mass(laws, reverse))
        lower, upper = (max(pair, key=_or_infinite) for pair in zip(found[:2], other[:2], strict=True))
        found = (lower, upper, other[2], max(found[3], other[3]))
    return found


def _ways(laws: list[Step], relation: str) -> tuple[bool, ...]:
    """Whether to reverse the pair, for each direction of the relation that differs."""
    return (False,) if is_symmetric(laws) else RELATIONS[relation][1]


def _or_infinite(text: str) -> Fraction | float:
    return math.inf if text == "inf" else Fraction(text)


def _log10(value: Fraction | int) -> float:
    return math.log10(value.numerator) - math.log10(value.denominator)
