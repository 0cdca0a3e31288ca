"""`PrivateSelection`: runs a mechanism a random number of times and releases the best output."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import mechanism
from jaxacct._types import Array
from jaxacct.mechanisms.base import Mechanism, Symmetric
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.profile import FromProfile
from jaxacct.mechanisms.tables import FromTables
from jaxacct.selection.bound import OUTCOMES, WorstOrder
from jaxacct.selection.counts import Table, of_mean
from jaxacct.summaries.curve import BOTH, FARTHEST, Curve, curve_of

_POINTS = 400  # of one run's curve, from epsilon 0 to where its delta is one of these
_LAST = (1e-16, 1e-13, 1e-10, 1e-7, 1e-4, 1e-2)


_ASKED = 80  # equal steps of the best run's epsilon
_FALLS = 0.999  # a share of delta at half of an epsilon below which it falls
_NEAR = 16  # more where its delta is `at_delta`
_known: dict[tuple, tuple[FromProfile, FromTables]] = {}  # the newest curves: one query asks several times
_KEPT = 32
_ENOUGH = 0.5  # share of a delta with which an attack at the bound's epsilon is near enough
_HALVINGS = 7


@mechanism
class PrivateSelection(Symmetric):
    """Runs ``mechanism`` K times, K random, and releases the output with the best score, and nothing else.

    The score may be any function of one run's output: also a candidate that the run itself picked at random, and its
    private validation score. K is drawn as said here, from randomness that depends on no data and stays secret; the
    other outputs, K itself and the order of the runs stay secret as well. K may be 0: then nothing is released.

    The curve is that of the worst score, bounded by docs/theorems/private-selection.md from the whole curve of one run.
    Upper bounds hold for every score; lower ones are those of an order of the outputs that is bad near ``at_delta``,
    where outputs of one loss may differ in a random number that they carry. Both directions have one curve, the larger
    of the two.

    Attributes:
        mechanism: what one run is: a mechanism, a ``Composed``, or the guarantee of a filter, if each run has a filter
            of its own; parameters must be concrete.
        mean: the mean number of runs, 1 or at least 1 + 1e-6, or above 0 for Poisson's distribution; any shape.
        shape: 0 for the logarithmic distribution, 1 for the geometric one, up to 1e4 for the truncated negative
            binomial one (Papernot, Steinke 2022), inf for Poisson's; any shape.
        probabilities: instead of ``mean`` and ``shape``: the probabilities of K = 0, 1, 2, ..., shape ``(most + 1,)``.
        at_delta: the delta near which lower bounds are close and upper ones have most points.

    Raises:
        ValueError: numbers that are traced or no such parameters, or both ways to say how many runs there are.
    """

    mechanism: Mechanism
    mean: ArrayLike | None = None
    shape: ArrayLike | None = None
    probabilities: ArrayLike | None = None
    at_delta: float = dataclasses.field(default=1e-5, metadata={"static": True})

    def __post_init__(self) -> None:
        if _validate.is_traced((self.mechanism, self.mean, self.shape, self.probabilities)):
            raise ValueError("mechanism, mean and shape must be concrete numbers, got traced ones")
        if not isinstance(self.mechanism, Mechanism) and not hasattr(self.mechanism, "delta"):
            raise ValueError(
                f"mechanism must be a mechanism or the guarantee of a filter, got {type(self.mechanism).__name__}"
            )
        if self.probabilities is not None:
            if self.mean is not None or self.shape is not None:
                raise ValueError("probabilities say how many runs there are: leave mean and shape out")
            table = np.asarray(self.probabilities, float)
            if table.ndim != 1 or not np.all(table >= 0) or not abs(table.sum() - 1.0) <= 1e-9:
                raise ValueError(f"probabilities must be those of 0, 1, 2, ... runs and sum up to 1, got {table}")
            if not np.any(table[1:]):
                raise ValueError(f"probabilities must be above 0 for some number of runs above 0, got {table}")
            return
        if self.mean is None or self.shape is None:
            raise ValueError("mean and shape say how many runs there are; give both, or probabilities")
        mean, shape = np.asarray(self.mean, float), np.asarray(self.shape, float)
        if not np.all((shape >= 0) & ((shape <= 1e4) | np.isinf(shape))):
            raise ValueError(f"shape must be from 0 to 1e4, or inf for Poisson's distribution, got {self.shape}")
        if not np.all(np.isfinite(mean) & (mean >= np.where(np.isinf(shape), 1e-9, 1.0)) & (mean <= 1e6)):
            raise ValueError(f"mean must be at least 1 (above 0 for shape inf) and at most 1e6, got {self.mean}")
        if np.any((mean > 1.0) & (mean < 1.0 + 1e-6) & np.isfinite(shape)):
            raise ValueError(f"mean must be 1 or at least 1 + 1e-6, got {self.mean}")

    def counts(self) -> np.ndarray:
        """The distributions of the number of runs, an array of the broadcast shape of ``mean`` and ``shape``.

        Each has ``generating``, its generating function, and ``draw(generator)``.
        """
        if self.probabilities is not None:
            found = np.empty((), object)
            table = np.asarray(self.probabilities, float)
            found[()] = Table(tuple((table / table.sum()).tolist()))
            return found
        return np.vectorize(lambda mean, shape: of_mean(float(mean), float(shape)), otypes=[object])(
            self.mean, self.shape
        )

    def _curve(self, relation: str) -> tuple[FromProfile, FromTables]:
        """The bound of the best run as a mechanism, and an attack on it; found once for each relation."""
        leaves, tree = jax.tree.flatten(self)
        relation = BOTH.get(relation, relation)
        arrays = [np.asarray(leaf) for leaf in leaves]
        # An object that is no number is a key itself: the bytes of its address may be another's later.
        key = (relation, tree, *(x.item() if x.dtype == object else (x.shape, x.tobytes()) for x in arrays))
        if key not in _known:
            while len(_known) >= _KEPT:
                del _known[next(iter(_known))]
            _known[key] = _best(self.counts(), curve_of(self.mechanism, relation, _POINTS, _LAST), self.at_delta)
        return _known[key]

    def _as(self, side: str) -> str:
        """The mechanism that runs says for itself."""
        return side

    def _dominating(self, relation: str) -> Runs:
        return self._curve(relation)[0]._dominating(relation)

    def _witness(self, relation: str) -> Mechanism:
        return self._curve(relation)[1]


@mechanism
class _Attack(FromTables):
    """Tables that may be those of a replaced record as well, which goes either way."""

    def _sides(self, relation: str) -> list[str]:
        return super()._sides("add_or_remove" if relation == "replace" else relation)


def _best(counts: np.ndarray, curve: Curve, at_delta: float) -> tuple[FromProfile, FromTables]:
    """The best of ``counts`` runs, setting by setting."""
    settings = curve.losses.shape[1:]
    shape = np.broadcast_shapes(counts.shape, settings)
    counts = np.broadcast_to(counts, shape)
    epsilons, deltas = np.zeros((2, *shape, _ASKED + _NEAR + 2))
    tables = np.zeros((2, *shape, OUTCOMES))
    for i in np.ndindex(shape):
        count: Any = counts[i]
        one = curve.setting(i)
        losses, upper = one.losses, one.upper
        orders = [WorstOrder(count, losses, *side) for side in zip(one.lower, upper, strict=True)]
        # As far as the bound falls, which may be farther than one run's.
        lost = 1.001 * float(count.derivative(np.ones(()))) * upper[:, -1].max() + _LAST[0]
        end, last = losses[-1:], np.inf
        while lost < (left := max(order.bound(end)[0] for order in orders)) < _FALLS * last and end[0] < FARTHEST:
            end, last = np.minimum(2.0 * end, FARTHEST), left
        at = np.linspace(0.0, end[0], _ASKED + 1)
        found = [order.bound(at) for order in orders]
        place = int(np.sum(np.max(found, axis=0) > at_delta))
        near = np.linspace(at[max(place - 1, 0)], at[min(place, _ASKED)], _NEAR + 1)
        at = np.append(at, near)
        found = [np.append(side, order.bound(near)) for side, order in zip(found, orders, strict=True)]
        epsilons[i], deltas[i] = at, np.minimum(np.max(found, axis=0), 1.0)
        asked = max(at_delta, 1.001 * deltas[i].min())  # infinite losses may be more
        target = np.argmin(np.where(deltas[i] <= asked, at, np.inf))
        worst = int(np.argmax([side[target] for side in found]))
        p, q = _attack_near(orders[worst], float(at[target]), asked)
        # The pair of `remove` comes first.
        tables[(slice(None), *i)] = (q, p) if worst else (p, q)
    return FromProfile(epsilons, deltas), _Attack(tables[0], tables[1])


def _attack_near(order: WorstOrder, target: float, asked: float) -> tuple[Array, Array]:
    """The tables of an attack that has delta ``asked`` at an epsilon, at most ``target``, that is about the largest."""
    reaches = lambda p, q, near: np.sum(np.maximum(p - np.exp(near) * q, 0.0))  # noqa: E731
    found = order.attained(target)
    if reaches(*found, target) >= _ENOUGH * asked:
        return found
    low, high, best = 0.0, target, None
    for _ in range(_HALVINGS):
        near = 0.5 * (low + high)
        found = order.attained(near)
        if reaches(*found, near) >= asked:
            low, best = near, found
        else:
            high = near
    return order.attained(0.0) if best is None else best
