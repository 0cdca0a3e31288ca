"""`Pair`, the base of dominating pairs (P, Q): tails of the privacy loss, largest loss, and a rough survey.

The loss is L = log dP/dQ. Everything the engine certifies rests on :class:`Tails`; the survey only steers the
choice of grids and tilts, so an inaccurate survey costs tightness and never soundness.

A pair's leaves are arrays whose axes are settings. Everything it says has these axes first, and then one for losses,
points or atoms where there are several. A pair whose leaves are NumPy's answers in NumPy and compiles nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real, by_first, shared, xp
from jaxacct._numerics.rounding import UNIT
from jaxacct._numerics.rows import Row
from jaxacct._types import Float64

# Methods that engines call again and again: a program holds each once for every shape.
_SHARED = ("tails", "survey", "atoms", "sample", "max_loss", "infinity", "anchor", "loss_error")


Edges: TypeAlias = Float64[Array, "... edges"]
"""Losses at which something is asked, the same for all settings or others for each."""
PerSetting: TypeAlias = Float64[Array, "*shape"]
"""A number for each setting."""


class Tails(NamedTuple):
    """P- and Q-probabilities on both sides of each loss.

    ``p_above`` is P(L > loss), where an infinite loss counts, and ``p_below`` is P(L <= loss); likewise for Q. Each
    number is accurate to a relative ``error`` (an array of the same shape), so a difference of tails is taken on the
    side where they are small.
    """

    p_above: Float64[Array, "*settings edges"]
    p_below: Float64[Array, "*settings edges"]
    q_above: Float64[Array, "*settings edges"]
    q_below: Float64[Array, "*settings edges"]
    error: Float64[Array, "*settings edges"]


class Survey(NamedTuple):
    """A quadrature of the loss under P: atoms ``losses`` with ``log_masses``.

    Spectrally accurate in practice, certified never.
    """

    losses: Float64[Array, "*settings points"]
    log_masses: Float64[Array, "*settings points"]


class Pair:
    """A dominating pair, as a pytree of float64 arrays of shape ``(...)``, one entry a setting.

    Subclasses give ``tails``, ``survey`` and ``loss_error``, and what else differs from the answers here. They may have
    more methods, which engines look for: ``window(log_share)`` lists most of infinitely many outcomes;
    :mod:`jaxacct.losses.engines.one_run` has two more.
    """

    def __init_subclass__(cls) -> None:
        """Silences NumPy in public methods: formulas are evaluated on both sides of a case, and one is thrown away.

        In a program, what engines call again and again is a function of its own.
        """
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                silent = np.errstate(all="ignore")(method)
                setattr(cls, name, shared(silent) if name in _SHARED else silent)

    def tails(self, losses: Edges) -> Tails:
        """Tail probabilities at ``losses`` (increasing, finite), of shape ``(edges,)`` or ``(..., edges)``."""
        raise NotImplementedError

    def survey(self) -> Survey:
        """Atoms for planning."""
        raise NotImplementedError

    def loss_error(self) -> PerSetting:
        """How far from a loss its tails may have been evaluated, but for 8 units of the loss, shape ``(...)``.

        :func:`loss_room` is both.
        """
        raise NotImplementedError

    def max_loss(self) -> PerSetting:
        """A bound on every loss of one run, shape ``(...)``; inf where there is none, or a loss can be infinite."""
        return np.inf + self._zero()

    def log_moment(self, order: PerSetting) -> PerSetting:
        """A bound of log E_Q[(P / Q)^order], order > 1, rounded up: no loss is larger than the largest.

        It serves Rényi divergences where tails are too small for a float64; inf where nothing is known.
        """
        return (1.0 + 1e-12) * (order - 1.0) * self.max_loss()

    def infinity(self) -> PerSetting:
        """P(L = inf), exact or rounded down, shape ``(...)``; ``p_above`` counts it as well."""
        return self._zero()

    def anchor(self) -> PerSetting:
        """The loss of the heaviest atom, where a cell of losses should end; any loss where there is none. ``(...)``.

        It only steers: ignoring it costs nothing but tightness.
        """
        return self._zero()

    def whole(self) -> tuple[Pair, Array | bool]:
        """``(pair, where)``: the pair without sampling, and where the rate is exactly 1, so that both are one."""
        return self, False

    def lists_outcomes(self) -> bool:
        """Whether there are few outcomes, and a method ``atoms()`` that lists them."""
        return False

    def _zero(self) -> Array:
        """0 for every setting, NaN where a parameter is."""
        leaves = jax.tree.leaves(self, is_leaf=lambda leaf: isinstance(leaf, Row))
        return cast(Array, 0.0 * sum(leaf.values.sum(-1) if isinstance(leaf, Row) else leaf for leaf in leaves))


Runs = list[tuple[Any, Real]]
"""Dominating pairs, each with how often it occurs: a :class:`Pair`, or anything else with its methods."""


def is_one_run(runs: Runs) -> bool:
    """Whether ``runs`` are known to be one of one pair; a traced number of runs is not known."""
    return len(runs) == 1 and not _validate.is_traced(runs[0][1]) and bool(np.all(np.asarray(runs[0][1]) == 1))


def mirrored(tails: Tails, where: Array) -> Tails:
    """``tails`` where the condition is false; elsewhere those of the reflected loss.

    Exchanging P and Q turns a loss round, {L > l} into {L < -l}. So these are the tails of (Q, P) at a loss l from
    those of (P, Q) at -l, and of a pair that is its own reflection at l < 0 from those at -l. At an atom the two
    differ by it.
    """
    p_above, p_below, q_above, q_below, error = tails
    return Tails(
        xp.where(where, q_below, p_above),
        xp.where(where, q_above, p_below),
        xp.where(where, p_below, q_above),
        xp.where(where, p_above, q_below),
        error,
    )


def two_sides(right: Array, small: Array) -> tuple[Array, Array]:
    """The probabilities above and below, from the smaller of the two, which is that above where ``right``."""
    large = 1.0 - small
    return xp.where(right, small, large), xp.where(right, large, small)


def beyond_ends(tails: Tails, under: Array, over: Array) -> Tails:
    """``tails``, but where every loss is above (``under``), or none is (``over``), 0 and 1."""
    settled = lambda side, low: xp.where(under, low, xp.where(over, 1.0 - low, side))  # noqa: E731
    p_above, p_below, q_above, q_below, error = tails
    return Tails(settled(p_above, 1.0), settled(p_below, 0.0), settled(q_above, 1.0), settled(q_below, 0.0), error)


@shared
def sorted_survey(pair: Pair) -> Survey:
    """The pair's survey, sorted by loss. Points without mass say nothing of where mass is, and lie at the last one."""
    losses, log_masses = pair.survey()
    massive = log_masses > -np.inf
    largest = xp.where(massive, losses, -np.inf).max(-1, keepdims=True)
    losses = xp.where(massive, losses, xp.where(xp.isfinite(largest), largest, 1.0))
    return Survey(*by_first(losses, log_masses))


def rest_at_zero(losses: Array, log_masses: Array) -> Survey:
    """A survey whose masses do not sum up to 1: what is missing lies at the loss 0."""
    rest = xp.log(xp.maximum(1.0 - xp.exp(log_masses).sum(-1, keepdims=True), 0.0))
    return Survey(xp.concatenate([losses, xp.zeros_like(rest)], -1), xp.concatenate([log_masses, rest], -1))


@functools.cache
def legendre_rule(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of a Gauss-Legendre rule on [-1, 1], good enough for a survey: not to the last digit."""
    return np.polynomial.legendre.leggauss(count)


def quadrature(
    pieces: Sequence[tuple[Array, Array]], rule: tuple[Array, Array], log_density: Callable[[Array], Array]
) -> tuple[list[Array], list[Array]]:
    """Nodes and logarithms of masses of a density on intervals (low, high), for a rule's nodes and weights on [-1, 1].

    One array of nodes and one of masses for each interval.
    """
    nodes, logs = [], []
    for low, high in pieces:
        half = 0.5 * (high - low)
        nodes.append(low + half * (1.0 + rule[0]))
        logs.append(log_density(nodes[-1]) + (xp.log(xp.maximum(half, 1e-300)) + np.log(rule[1])))
    return nodes, logs


def loss_room(error: Array, losses: Array) -> Array:
    """How far from ``losses``, shape ``(..., edges)``, the tails that a pair gives for them may have been evaluated.

    ``error`` is the pair's :meth:`Pair.loss_error`, shape ``(...)``. Readers of tails allow for that: they are those at
    the loss in question, or at any other within this distance, and an atom there may have been counted or not
    (docs/proofs/one-run.md).
    """
    # A unit more than pairs claim, for the subtraction of the room itself.
    return (error[..., None] + 9.0 * UNIT * xp.abs(losses)) * (1.0 + 2.0**-40)
