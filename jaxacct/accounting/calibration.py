"""`calibrate`: the parameter that just meets a privacy target: the smallest noise, the largest rate, the most steps."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate, accounting
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.rounding import inflated
from jaxacct._printing import plainly
from jaxacct.accounting.bracketing import Brackets
from jaxacct.accounting.queries import delta_beside
from jaxacct.mechanisms.base import Mechanism, shapes_of_settings
from jaxacct.mechanisms.directions import RELATIONS

__all__ = ["Calibration", "calibrate"]

_NOISE = (1e-3, 1e6)
_STEPS = (1.0, 2.0**53)
_LEAST_TOLERANCE = 1e-12
_LOOSE = 1e-2  # relative distance of what meets from what provably fails that is worth a warning


class Calibration(NamedTuple):
    """What :func:`calibrate` returns; float64, of the broadcast shape of targets, bracket and mechanism.

    Attributes:
        parameter: a parameter at which the upper bound of delta meets the target; NaN where none was found.
        delta: :class:`jaxacct.Bounds` of delta at that parameter and at the target's epsilon.
        refuted: the nearest parameter tried whose *lower* bound of delta exceeds the target. The best parameter
            there is lies between it and ``parameter``. NaN where none was found, for example because the bracket's
            least private end meets the target.
        evaluations: how many batches of queries it took.
    """

    parameter: Array
    delta: accounting.Bounds
    refuted: Array
    evaluations: int

    def __repr__(self) -> str:
        return plainly(self, self._fields)


def calibrate(
    make: Callable[[np.ndarray], Mechanism],
    epsilon: ArrayLike,
    delta: ArrayLike,
    *,
    steps: ArrayLike | Callable[[np.ndarray], ArrayLike] = 1,
    relation: str = "add_or_remove",
    seek: str = "smallest",
    whole: bool = False,
    bracket: tuple[ArrayLike, ArrayLike] | None = None,
    tolerance: float = 1e-4,
    unreachable: str = "raise",
    progress: Callable[[int, int], object] | None = None,
) -> Calibration:
    """The parameter that just meets (epsilon, delta)-DP, certified, for many targets at once.

    The least noise, the largest rate, the most steps::

        calibrate(lambda sigma: PoissonSampled(Gaussian(sigma), 0.01), 1.0, 1e-5, steps=1000)
        calibrate(lambda rate: PoissonSampled(Gaussian(1.0), rate), 1.0, 1e-5, seek="largest", bracket=(1e-6, 1))
        step = PoissonSampled(Gaussian(1.0), 0.01)
        calibrate(lambda n: step, 1.0, 1e-5, steps=lambda n: n, seek="largest", whole=True)

    Certified means: the upper bound of delta was evaluated at the very float that is returned and is at most the
    target, and so was that of :func:`jaxacct.epsilon`. How near the returned parameter is to the best one rests on
    privacy being monotone in the parameter; soundness does not. All targets advance together, one query of
    :func:`jaxacct.delta` an evaluation. The search interpolates on log mu, where mu is the GDP parameter with the
    same delta at the target's epsilon: for Gaussians without sampling that is a straight line in the logarithm of
    noise and steps, and close to one for others.

    Args:
        make: from an array of parameters (> 0) to a mechanism; arrays inside it broadcast with the targets.
        epsilon: target, >= 0; any shape.
        delta: target, strictly between 0 and 1; any shape.
        steps: how often the mechanism runs: whole numbers, any shape, or a function of the parameter.
        relation: see :func:`jaxacct.delta`.
        seek: ``"smallest"`` where a larger parameter is more private (noise), ``"largest"`` where it is less so.
        whole: whether the parameter is a whole number (steps).
        bracket: ``(low, high)``, > 0, any shapes: the answer is sought in there. Without it, 1e-3 to 1e6 for
            ``"smallest"`` and 1 to 2**53 for whole numbers; anything else needs one.
        tolerance: relative, of the parameter: one at most so far beyond the answer was seen to miss the target.
            Whole numbers may have 0.
        unreachable: ``"raise"`` or ``"nan"``, for targets that the bracket's most private end misses.
        progress: called as ``progress(settled, total)`` after each evaluation.

    Returns:
        A :class:`Calibration`. A ``RuntimeWarning`` is issued where ``refuted`` is more than 1 % away, because the
        bounds of delta are wide there.

    Raises:
        ValueError: a bad value (named), a traced argument, a target that the bracket cannot reach, or shapes
            that do not broadcast.
    """
    if _validate.is_traced((epsilon, delta, bracket, None if callable(steps) else steps)):
        raise ValueError("calibrate needs concrete arguments, got a traced one: call it outside jit, vmap and grad")
    _validate.function(make=make)
    if progress is not None:
        _validate.function(progress=progress)
    _validate.nonnegative(epsilon=epsilon)
    _validate.probability(delta=delta)
    _validate.one_of(("smallest", "largest"), seek=seek)
    _validate.one_of(("raise", "nan"), unreachable=unreachable)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.truth(whole=whole)
    _validate.number(tolerance=tolerance)
    if not callable(steps):
        _validate.numbers(steps=steps)
    _validate.at_least(0.0 if whole else _LEAST_TOLERANCE, tolerance=tolerance)
    low, high = _ends(bracket, seek, whole)
    # Far too private a query takes longest: a wide bracket's middle would be one.
    start = 1024.0 if whole else np.where((low < 1.0) & (high > 1.0), 1.0, np.sqrt(low) * np.sqrt(high))
    first = np.clip(start, low, high)
    if whole:
        first = np.rint(first)
    runs: Callable[[np.ndarray], ArrayLike] = steps if callable(steps) else lambda _: steps
    given = [np.shape(part) for part in (epsilon, delta, first, runs(first))]
    shape = np.broadcast_shapes(*given, *shapes_of_settings(make(first)))
    goal_epsilon, goal_delta, low, high = (
        np.broadcast_to(np.asarray(x, np.float64), shape).reshape(-1) for x in (epsilon, delta, low, high)
    )

    def ask(question: Callable[..., accounting.Bounds], parameter: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Bounds of ``question`` about the mechanisms of ``parameter``, lower and upper ones."""
        shaped = parameter.reshape(shape)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # wide bounds on the way; the result says what is left
            found = question(make(shaped), target.reshape(shape), steps=runs(shaped), relation=relation)
        if np.shape(found.upper) != shape:
            raise ValueError(f"make must return mechanisms of shape {shape}, got {np.shape(found.upper)}")
        return np.reshape(found, (2, -1))

    def query(parameter: np.ndarray, asked: np.ndarray) -> np.ndarray:
        limit = np.where(asked, goal_delta, np.inf).reshape(shape)
        return ask(functools.partial(delta_beside, limit), parameter, goal_epsilon)

    def confirmed(parameter: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """Where `jaxacct.epsilon` says the same; its bounds may be a little wider than those of delta."""
        # A delta of 1 has its answer at once.
        return ask(accounting.epsilon, parameter, np.where(asked, goal_delta, 1.0))[1] <= goal_epsilon

    brackets = Brackets(
        low,
        high,
        more_is_private=seek == "smallest",
        whole=whole,
        tolerance=tolerance,
        start=np.broadcast_to(first, shape).reshape(-1),
        slope=0.5 if whole else 1.0,
    )
    more_private = np.fmax if seek == "smallest" else np.fmin  # of two parameters; NaN stands for none
    goal_mu = _log_mu(goal_epsilon, goal_delta)
    found_lower, found_upper, refuted = np.full((3, goal_delta.size), np.nan)
    evaluations = 0
    doubted = np.zeros(goal_delta.shape, bool)  # where epsilon has to confirm each parameter that meets delta
    unconfirmed = ~doubted
    while unconfirmed.any():
        while not brackets.settled.all():
            parameter = brackets.propose()
            lower, upper = query(parameter, ~brackets.settled)
            nearer = np.where(lower > goal_delta, lower, upper)
            meets = upper <= goal_delta  # a bound that is NaN is a miss
            if (open_ := meets & doubted & ~brackets.settled).any():
                meets &= ~open_ | confirmed(parameter, open_)
            moved = brackets.observe(parameter, meets, _log_mu(goal_epsilon, nearer) - goal_mu)
            found_lower, found_upper = np.where(moved, lower, found_lower), np.where(moved, upper, found_upper)
            refuted = more_private(refuted, np.where(lower > goal_delta, parameter, np.nan))
            evaluations += 1
            if progress is not None:
                progress(int(brackets.settled.sum()), goal_delta.size)
        unconfirmed &= ~doubted & ~brackets.impossible
        if unconfirmed.any():
            unconfirmed &= ~confirmed(brackets.meeting, unconfirmed)
            doubted |= unconfirmed
            brackets.reject(unconfirmed)
    if brackets.impossible.any() and unreachable == "raise":
        raise ValueError(_message(brackets, goal_epsilon, goal_delta, refuted))
    answer = np.where(brackets.impossible, np.nan, brackets.meeting)
    searched = brackets.seen[0] & ~brackets.impossible
    # Where the last miss lies inside the width of the bounds of delta, it proves nothing: one further off may.
    for reach in (4.0 * tolerance, _LOOSE):
        open_ = searched & ~_near(answer, refuted, reach, whole)
        if open_.any():
            parameter = np.where(open_, _less_private(answer, reach, low, high, seek, whole), brackets.meeting)
            lower, _ = query(parameter, open_)
            refuted = more_private(refuted, np.where(open_ & (lower > goal_delta), parameter, np.nan))
            evaluations += 1
    _warn_if_loose(answer, refuted, searched & ~_near(answer, refuted, max(_LOOSE, 4.0 * tolerance), whole))
    shaped = lambda x: x.reshape(shape)[()]  # noqa: E731
    bounds = accounting.Bounds(shaped(found_lower), shaped(found_upper))
    return Calibration(shaped(answer), bounds, shaped(refuted), evaluations)


def _near(answer: np.ndarray, refuted: np.ndarray, reach: float, whole: bool) -> np.ndarray:
    with np.errstate(all="ignore"):
        near = np.abs(np.log(answer / refuted)) <= inflated(reach, 1e-6)
    return near | (np.abs(answer - refuted) <= 1.0) if whole else near


def _less_private(answer: np.ndarray, reach: float, low: np.ndarray, high: np.ndarray, seek: str, whole: bool):
    sign = -1.0 if seek == "smallest" else 1.0
    moved = sign * answer * math.exp(sign * reach)
    if whole:
        moved = np.ceil(np.maximum(moved, sign * answer + 1.0))
    return np.clip(sign * moved, low, high)


def _ends(bracket: tuple[ArrayLike, ArrayLike] | None, seek: str, whole: bool) -> tuple[np.ndarray, np.ndarray]:
    if bracket is None:
        if seek == "largest" and not whole:
            raise ValueError(
                "bracket must be given where the largest parameter is sought, (1e-6, 1) for a rate, got None"
            )
        bracket = _STEPS if whole else _NOISE
    try:
        low, high = bracket
    except (TypeError, ValueError):
        raise ValueError(f"bracket must be a pair (low, high), got {bracket!r}") from None
    for end in (low, high):
        (_validate.count if whole else _validate.positive)(bracket=end)
    low, high = np.broadcast_arrays(np.asarray(low, np.float64), np.asarray(high, np.float64))
    if np.any(low > high):
        at = int(np.argmax(low > high))
        raise ValueError(f"bracket must be increasing, got ({low.flat[at]:g}, {high.flat[at]:g})")
    return low, high


def _message(brackets: Brackets, epsilon: np.ndarray, delta: np.ndarray, refuted: np.ndarray) -> str:
    at = int(np.argmax(brackets.impossible))
    end = brackets.meeting[at]
    how = "provably fails" if refuted[at] == end else "is not certified"
    others = f" ({int(brackets.impossible.sum())} targets of {delta.size} like it)" if delta.size > 1 else ""
    return (
        f"epsilon and delta must be reachable inside the bracket, got epsilon {epsilon[at]:g} and delta {delta[at]:g}, "
        f"for which its most private end, {end:g}, {how}{others}: widen the bracket, or see whether seek fits"
    )


def _warn_if_loose(answer: np.ndarray, refuted: np.ndarray, loose: np.ndarray) -> None:
    if loose.any():
        at = int(np.argmax(loose))
        shown = "no other was shown to fail" if np.isnan(refuted[at]) else f"{refuted[at]:.6g} provably fails"
        warnings.warn(
            f"{int(loose.sum())} of {loose.size} calibrated parameters may be far from the best ones, because bounds "
            f"are wide there (the first: {answer[at]:.6g} meets its target, {shown}); they are sound",
            RuntimeWarning,
            stacklevel=3,
        )


def _log_mu(epsilon: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """log of the mu with delta = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu).

    It only steers, so nothing is rounded to a side.
    """
    from scipy.special import log_ndtr

    with np.errstate(all="ignore"):
        target = np.log(delta)
        low, high = np.full_like(target, math.log(1e-12)), np.full_like(target, math.log(1e12))
        for _ in range(50):
            middle = 0.5 * (low + high)
            mu = np.exp(middle)
            above = log_ndtr(mu / 2 - epsilon / mu)
            below = np.minimum(epsilon + log_ndtr(-mu / 2 - epsilon / mu), above)
            enough = above + np.log(-np.expm1(below - above)) >= target
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.where((delta > 0) & (delta < 1), 0.5 * (low + high), np.where(delta >= 1, np.inf, -np.inf))
