"""The protocol of a dominating pair (P, Q): tails of its privacy loss, largest loss, and a rough survey.

The loss is L = log dP/dQ. Everything the engine certifies rests on :class:`Tails`; the survey only steers the
choice of grids and tilts, so an inaccurate survey costs tightness and never soundness.

A pair's leaves are arrays whose axes are settings. Everything it says has these axes first, and then one for losses,
points or atoms where there are several. A pair whose leaves are NumPy's answers in NumPy and compiles nothing.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.rounding import UNIT

__all__ = ["Pair", "Survey", "Tails", "loss_room"]


class Tails(NamedTuple):
    """P- and Q-probabilities on both sides of each loss; float64, shape ``(..., edges)``.

    ``p_above`` is P(L > loss), where an infinite loss counts, and ``p_below`` is P(L <= loss); likewise for Q. Each
    number is accurate to a relative ``error`` (an array of the same shape), so a difference of tails is taken on the
    side where they are small.
    """

    p_above: Array
    p_below: Array
    q_above: Array
    q_below: Array
    error: Array


class Survey(NamedTuple):
    """A quadrature of the loss under P: atoms ``losses`` with ``log_masses``, shape ``(..., points)``.

    Spectrally accurate in practice, certified never.
    """

    losses: Array
    log_masses: Array


class Pair(Protocol):
    """A dominating pair, as a pytree of float64 arrays of shape ``(...)``, one entry a setting."""

    def tails(self, losses: Array) -> Tails:
        """Tail probabilities at ``losses`` (increasing, finite), of shape ``(edges,)`` or ``(..., edges)``."""
        ...

    def survey(self) -> Survey:
        """Atoms for planning."""
        ...

    def max_loss(self) -> Array:
        """A bound on every loss of one run, shape ``(...)``; inf where there is none, or a loss can be infinite."""
        ...

    def infinity(self) -> Array:
        """P(L = inf), exact or rounded down, shape ``(...)``, 0 for most. ``p_above`` counts it as well."""
        ...

    def loss_error(self) -> Array:
        """How far from a loss its tails may have been evaluated, but for 8 units of the loss, shape ``(...)``.

        :func:`loss_room` is both.
        """
        ...

    def anchor(self) -> Array:
        """The loss of the heaviest atom, where a cell of losses should end; any loss where there is none. ``(...)``.

        It only steers: ignoring it costs nothing but tightness.
        """
        ...


def loss_room(error: Array, losses: Array) -> Array:
    """How far from ``losses``, shape ``(..., edges)``, the tails that a pair gives for them may have been evaluated.

    ``error`` is the pair's :meth:`Pair.loss_error`, shape ``(...)``. Whoever reads tails allows for that, whatever lies
    between: they are those at the loss in question, or at any other within this distance, and an atom there may have
    been counted or not (docs/proofs/one-run.md).
    """
    # A unit more than pairs claim, for the subtraction of the room itself.
    return (error[..., None] + 9.0 * UNIT * array_module(losses).abs(losses)) * (1.0 + 2.0**-40)
