"""The least noise with which an attack stays below a target."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxacct import _validate
from jaxacct.accounting import Bounds
from jaxacct.accounting.bracketing import Brackets


class AttackCalibration(NamedTuple):
    """What :func:`calibrate` found.

    Attributes:
        parameter: meets the target.
        refuted: does not: the least that does lies between the two, or is within the bounds' width of them.
        value: the attack's upper bound at ``parameter``.
    """

    parameter: float
    refuted: float
    value: float


def calibrate(
    make: Callable[[float], object],
    attack: Callable[..., Bounds],
    target: float,
    *arguments: object,
    least: float = 1e-2,
    most: float = 1e4,
    tolerance: float = 1e-4,
    **keywords: object,
) -> AttackCalibration:
    """The least parameter, to a relative ``tolerance``, with which an attack surely succeeds no more than ``target``.

    ``attacks.calibrate(lambda sigma: Gaussian(sigma), attacks.power, 0.1, 0.01)`` is the noise with which the
    true-positive rate is at most 0.1 at a false-positive rate of 0.01.

    Args:
        make: from the parameter to a mechanism of which more is more private.
        attack: `power`, `advantage`, `reconstruction` or `predictive_value`, or another function with an
            upper bound, such as ``lambda run: jaxacct.gdp_summary(run).mu``.
        target: the most that its upper bound may be, above 0.
        arguments, keywords: of ``attack``, after the mechanism.
        least, most: between which the parameter is searched.
        tolerance: relative.

    Raises:
        ValueError: a target that is not above 0, that ``least`` meets already, or not even ``most``.
    """
    _validate.positive(target=target, least=least, most=most, tolerance=tolerance)
    value = lambda parameter: float(attack(make(parameter), *arguments, **keywords).upper)  # noqa: E731
    ends, middle = (np.array([least]), np.array([most])), np.sqrt([least * most])
    brackets = Brackets(*ends, more_is_private=True, whole=False, tolerance=tolerance, start=middle, slope=1.0)
    found = best = np.inf
    while not brackets.settled.all():
        parameter = brackets.propose()
        found = value(float(parameter[0]))
        with np.errstate(divide="ignore"):
            moved = brackets.observe(parameter, np.array([found <= target]), np.log([found / target]))
        best = found if moved.any() else best
    refuted, meeting = map(float, brackets.ends[:, 0])
    if brackets.impossible.any():
        raise ValueError(f"target must be at least {found:.3g}, which is what parameter {most:g} has, got {target:g}")
    if refuted == meeting:
        raise ValueError(f"target must be below what parameter {least:g} has, got {target:g}: lower least")
    return AttackCalibration(meeting, refuted, best)
