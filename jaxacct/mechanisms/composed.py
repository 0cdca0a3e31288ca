"""A sequence of mechanisms fixed in advance, as one mechanism."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.mechanisms._register import mechanism

__all__ = ["Composed"]


@mechanism
class Composed:
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

    mechanisms: Sequence[Any]
    steps: Sequence[ArrayLike] | ArrayLike = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "mechanisms", tuple(self.mechanisms))
        if not self.mechanisms:
            raise ValueError("mechanisms must hold at least one mechanism, got none")
        if isinstance(self.steps, Sequence):
            object.__setattr__(self, "steps", tuple(self.steps))
            if len(self.steps) != len(self.mechanisms):  # pyright: ignore[reportArgumentType]
                raise ValueError(
                    f"steps must hold one number for each of the {len(self.mechanisms)} mechanisms, "
                    f"got {len(self.steps)}"  # pyright: ignore[reportArgumentType]
                )
        _validate.count(steps=self.steps)

    def parts(self) -> list[tuple[Any, Any]]:
        """The (mechanism, steps) pairs."""
        steps = self.steps if isinstance(self.steps, tuple) else (self.steps,) * len(self.mechanisms)
        return list(zip(self.mechanisms, steps, strict=True))
