"""What the engine needs of a mechanism's transform E_P[exp(z L)] along a vertical line Re z = theta.

Arrays have axes ``(B, K)`` for settings and parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from jaxacct._numerics.arrays import Array, array_module
from jaxacct.losses.engines.contour.quadrature import Quadrature


class Line(Protocol):
    """The law of a finite loss, tilted by theta, from which a probability ``left_out`` may have been removed.

    A loss is removed by a coin that falls with the same probability under P and Q for each outcome.
    """

    def infinite(self) -> tuple[Array, Array]:
        """Bounds of P(L = inf), shape ``(B, K)``."""
        ...

    def left_out(self) -> Array:
        """A bound on the probability under P of all outcomes that are left out, shape ``(B, K)``."""
        ...

    def log_mass(self) -> Array:
        """A lower bound of the logarithm of the P-mass that is neither infinite nor left out, shape ``(B, K)``."""
        ...

    def largest(self) -> Array:
        """No finite loss is above; shape ``(B, K)``."""
        ...

    def log_moments(self, tilts: Array) -> Array:
        """Upper bounds of log E_P[exp(t L)] over what is kept, for ``tilts`` of shape ``(N, B)``: ``(N, B, K)``."""
        ...

    def quadrature(self, spacing: Array, nodes: int) -> Quadrature | Closed:
        """Points and weights, or the transform itself, at ``nodes`` multiples of ``spacing``, shape ``(B,)``."""
        ...


class Closed(NamedTuple):
    """A transform in closed form over its value at 0, of the loss less ``mean``; see :class:`Quadrature`.

    Attributes:
        real, imag: real part minus 1 and imaginary part, within ``error``; shape ``(B, K, nodes)``.
    """

    log_total: Array
    real: Array
    imag: Array
    mean: Array
    error: Array
    layer_masses: Array
    layer_lengths: Array


def no_layers(like: Any) -> tuple[Array, Array]:
    """Layers of a law that has no density; ``like`` has shape ``(B, K, 1)``."""
    none = array_module(like).zeros_like(like)
    return none, none
