"""`LossGrid`: the grid of equally spaced losses on which discrete curves live."""

from __future__ import annotations

import dataclasses
import math
import operator

import numpy as np

__all__ = ["LossGrid"]

CEILING = 650.0
"""Largest loss on the grid of a curve: exp(CEILING) times a Q-mass stays a normal number."""


@dataclasses.dataclass(frozen=True)
class LossGrid:
    """``size`` equally spaced losses; loss ``i`` is ``(lowest + i) * spacing``.

    ``lowest`` is an integer, so grids of equal spacing align exactly and loss 0 is a lattice point. Hashable,
    and static under ``jax.jit``.

    Attributes:
        spacing: distance of neighbouring losses, in nats; > 0.
        lowest: index of the lowest loss.
        size: number of points; >= 1.

    Raises:
        ValueError: a spacing that is not a finite number above 0, a size below 1, or an index that is no integer.
    """

    spacing: float
    lowest: int
    size: int

    def __post_init__(self) -> None:
        # Plain Python numbers: a NumPy scalar hashes alike but compares as an array and would retrace.
        try:
            object.__setattr__(self, "spacing", float(self.spacing))
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"spacing must be a finite number above 0, got {self.spacing!r:.200}") from None
        for name in ("lowest", "size"):
            value = getattr(self, name)
            try:
                object.__setattr__(self, name, operator.index(value))
            except TypeError:
                raise ValueError(f"{name} must be an integer, got {value!r}") from None
        if not (math.isfinite(self.spacing) and self.spacing > 0):
            raise ValueError(f"spacing must be a finite number above 0, got {self.spacing!r}")
        if self.size < 1:
            raise ValueError(f"size must be at least 1, got {self.size}")

    @property
    def losses(self) -> np.ndarray:
        """The losses, float64, shape ``(size,)``."""
        return (self.lowest + np.arange(self.size)) * self.spacing

    @property
    def highest(self) -> int:
        """Index of the highest loss."""
        return self.lowest + self.size - 1
