"""`renyi`: the Rényi divergence of any mechanism, that of its pair or by a formula of its own."""

from __future__ import annotations

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import on_device, on_host
from jaxacct.mechanisms.base import Mechanism, as_mechanism
from jaxacct.mechanisms.directions import RELATIONS


@in_float64
def renyi(mechanism: Mechanism, order: ArrayLike, *, relation: str = "add_or_remove") -> Array:
    """An upper bound of the Rényi divergence of one run of ``mechanism`` at ``order``, in nats.

    A Gaussian has order * mu^2 / 2. A Poisson-sampled Gaussian has log(A) / (order - 1) with A = E_Q[((1 -
    rate) + rate P/Q)^order] (Mironov, Talwar, Zhang 2019): a finite sum for whole concrete orders (up to
    4096), a trapezoid rule with a certified step for all others. Where that step would have to be finer than
    the 1024 nodes (4096 for `add`) allow, at fractional orders and noise multipliers below about 0.2, the
    sound but loose log(1 - rate + rate exp(order (order - 1) mu^2 / 2)) / (order - 1) takes its place. All
    are rounded up, by about 1e-12 relative at common parameters. Laplace noise, the exponential mechanism and stated
    guarantees have closed formulas, finitely many outcomes a sum, mixtures of Gaussians a trapezoid rule with its error
    added, discrete Gaussian noise the Gaussian's curve, and anything else a bound from the tails of their pair, about
    1e-5 above the truth. A `Composed` has the sum over its parts.

    Args:
        mechanism: see :mod:`jaxacct.mechanisms`; parameters of any shape, traced or not.
        order: above 1; broadcasts with the parameters.
        relation: as in :func:`jaxacct.delta`; `add_or_remove` is the larger of both directions.

    Returns:
        A float64 array of the broadcast shape. Invalid traced values give infinity.

    Raises:
        ValueError: an unknown mechanism or relation, a relation without an analysis, a concrete order that is not
            a finite number above 1.
    """
    return on_device(divergence(mechanism, order, relation=relation))


def divergence(mechanism: Mechanism, order: ArrayLike, *, relation: str = "add_or_remove") -> Array:
    """`renyi`, as NumPy's array where everything is concrete (inside ``enable_x64``)."""
    mechanism, order = on_host((as_mechanism(mechanism), order))
    _validate.one_of(RELATIONS, relation=relation)
    _validate.greater(1.0, order=order)
    return mechanism._renyi(order, mechanism._as_renyi(relation))
