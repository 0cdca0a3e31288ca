"""`Composed`: a sequence of mechanisms, fixed in advance, as one mechanism."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real
from jaxacct._numerics.host import floats
from jaxacct._numerics.pytree import mechanism, unchecked
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.mechanisms.base import Mechanism, as_mechanism
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.curve import merged_curves
from jaxacct.mechanisms.parameters import times, whole_steps


@mechanism
class Composed(Mechanism):
    """Runs ``mechanisms[i]`` ``steps[i]`` times, for every i, in an order fixed in advance.

    "Fixed in advance" is part of the claim: parameters may depend on anything but the outputs. The composition
    of a path that was *realised* by an adaptive analyst is no guarantee for the interaction (use a filter).
    Within that limit each mechanism may be chosen with knowledge of earlier outputs as long as its dominating
    pair is the one that was fixed (Dong, Roth, Su 2022, Theorem 3.2).

    Attributes:
        mechanisms: a sequence of mechanisms, at least one.
        steps: how often each runs: whole numbers >= 1, one per mechanism, or one for all of them.

    Raises:
        ValueError: no mechanism, a different number of steps and mechanisms, or steps that are not whole.
    """

    mechanisms: Sequence[Mechanism]
    steps: Sequence[ArrayLike] | ArrayLike = 1

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "mechanisms", tuple(self.mechanisms))
        except TypeError:
            raise ValueError(f"mechanisms must be a sequence of them, got {type(self.mechanisms).__name__}") from None
        for part in self.mechanisms:
            as_mechanism(part)
        if not self.mechanisms:
            raise ValueError("mechanisms must hold at least one mechanism, got none")
        steps, size = self.steps, len(self.mechanisms)
        if isinstance(steps, Sequence):
            object.__setattr__(self, "steps", tuple(steps))
            if len(steps) != size:
                raise ValueError(f"steps must hold one number for each of the {size} mechanisms, got {len(steps)}")
        _validate.count(steps=self.steps)

    def parts(self) -> list[tuple[Mechanism, ArrayLike]]:
        """The mechanisms, each with the number of its runs."""
        steps = self.steps if isinstance(self.steps, Sequence) else (self.steps,) * len(self.mechanisms)
        return list(zip(self.mechanisms, steps, strict=True))

    @property
    def _symmetric(self) -> bool:
        return all(part._symmetric for part in self.mechanisms)

    def _sides(self, relation: str) -> list[str]:
        """As many as the part with the most has."""
        return max((part._sides(relation) for part in self.mechanisms), key=len)

    def _as(self, side: str) -> str:
        """Each part says for itself."""
        return side

    def _gaussian_runs(self) -> list[tuple[Array, Real]] | None:
        """Those of all parts, if all have some."""
        found = []
        for part, steps in self.parts():
            runs = part._gaussian_runs()
            if runs is None:
                return None
            found += [(noise, times(count, steps)) for noise, count in runs]
        return found

    def _dominating(self, relation: str) -> Runs:
        if self._gaussian_runs() is not None:
            return super()._dominating(relation)
        found = []
        for part, steps in self.parts():
            found += [(pair, times(count, steps)) for pair, count in part._dominating(part._as(relation))]
        return found

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        """The sum over the parts; each says itself what a relation is to it."""
        parts = self.parts()
        total = np.zeros(())
        for part, steps in parts:
            xp, runs = floats(whole_steps(steps))
            total = total + xp.where(runs >= 1, runs, np.inf) * part._renyi(order, part._as_renyi(relation))
        return inflated(total, EPS * (2 + len(parts)))

    def _runs(self, relation: str, steps: ArrayLike) -> Runs:
        found = []
        for part, count in self.parts():
            found += part._runs(relation, times(count, steps))
        return merged_curves(found)

    def _witness(self, relation: str) -> Mechanism:
        found = [part._witness(relation) for part in self.mechanisms]
        same = all(one is part for one, part in zip(found, self.mechanisms, strict=True))
        return self if same else unchecked(Composed, mechanisms=tuple(found), steps=self.steps)

    def _rarely_sampled(self, steps: ArrayLike) -> tuple[Array, Real]:
        found = [part._rarely_sampled(times(count, steps)) for part, count in self.parts()]
        return functools.reduce(operator.or_, [one for one, _ in found]), sum(total for _, total in found)
