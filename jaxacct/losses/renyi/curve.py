"""The Rényi curve of any mechanism: which formula is whose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from jaxacct import _validate, mechanisms
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import floats, on_device, on_host
from jaxacct._numerics.rounding import EPS, inflated
from jaxacct.losses.renyi.closed import bounded_range_curve, laplace_curve
from jaxacct.losses.renyi.discrete import (
    approximate_curve,
    concentrated_curve,
    discrete_gaussian_curve,
    discrete_laplace_curve,
    gdp_curve,
    renyi_dp_curve,
    response_curve,
    table_curve,
)
from jaxacct.losses.renyi.gaussian import gaussian_curve
from jaxacct.losses.renyi.mixture import mixture_curve
from jaxacct.losses.renyi.sampled import no_curve, pair_curve, poisson_curve, without_replacement_curve
from jaxacct.mechanisms import (
    GDP,
    ApproximateDP,
    Composed,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    FromProfile,
    FromTables,
    Gaussian,
    Laplace,
    MixtureOfGaussians,
    PermuteAndFlip,
    PoissonSampled,
    PureDP,
    RandomizedResponse,
    RenyiDP,
    SampledWithoutReplacement,
    SampledWithReplacement,
    ZeroConcentratedDP,
)
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import RELATIONS

__all__ = ["divergence", "renyi"]


# One entry a family with a formula; each takes (mechanism, order, relation) and runs in float64. Others have the tails
# of their pair.
_CURVES: dict[type, Callable[[Any, ArrayLike, str], Array]] = {
    Gaussian: gaussian_curve,
    Laplace: laplace_curve,
    MixtureOfGaussians: lambda mechanism, order, relation: (pair_curve if relation == "replace" else mixture_curve)(
        mechanism, order, relation
    ),
    Exponential: bounded_range_curve,
    PermuteAndFlip: response_curve,
    RandomizedResponse: response_curve,
    PureDP: response_curve,
    ApproximateDP: approximate_curve,
    GDP: gdp_curve,
    ZeroConcentratedDP: concentrated_curve,
    RenyiDP: renyi_dp_curve,
    DiscreteGaussian: discrete_gaussian_curve,
    DiscreteLaplace: discrete_laplace_curve,
    FromTables: table_curve,
    FromProfile: table_curve,
    PoissonSampled: lambda mechanism, order, relation: poisson_curve(mechanism, order, relation, divergence),
    SampledWithReplacement: no_curve,
    SampledWithoutReplacement: lambda mechanism, order, relation: without_replacement_curve(
        mechanism, order, relation, divergence
    ),
}


@in_float64
def renyi(mechanism: Any, order: ArrayLike, *, relation: str = "add_or_remove") -> Array:
    """An upper bound of the Rényi divergence of one run of ``mechanism`` at ``order``, in nats.

    A Gaussian has order * mu^2 / 2. A Poisson-sampled Gaussian has log(A) / (order - 1) with A = E_Q[((1 -
    rate) + rate P/Q)^order] (Mironov, Talwar, Zhang 2019): a finite sum for whole concrete orders (up to
    4096), a trapezoid rule with a certified step for all others. Where that step would have to be finer than
    the 1024 nodes (4096 for `add`) allow, at fractional orders and noise multipliers below about 0.2, the
    sound but loose log(1 - rate + rate exp(order (order - 1) mu^2 / 2)) / (order - 1) takes its place. All
    are rounded up, by about 1e-12 relative at common parameters. Laplace, exponential mechanism and permute-and-flip
    have closed formulas (:mod:`.closed`), discrete noise, tables and
    stated guarantees too (:mod:`.discrete`), mixtures of Gaussians a trapezoid rule with its error added
    (:mod:`.mixture`), and anything else a bound from the tails of their pair, about 1e-5 above the truth
    (:mod:`.tails`). A `Composed` has the sum over its parts.

    Args:
        mechanism: see :mod:`jaxacct.mechanisms`; parameters of any shape, traced or not.
        order: > 1; broadcasts with the parameters.
        relation: as in :func:`jaxacct.delta`; `add_or_remove` is the larger of both directions.

    Returns:
        A float64 array of the broadcast shape. Traced values that make no sense give infinity.

    Raises:
        ValueError: an unknown mechanism or relation, a relation without an analysis, a concrete order that is not
            a finite number above 1.
    """
    return on_device(divergence(mechanism, order, relation=relation))


def divergence(mechanism: Any, order: ArrayLike, *, relation: str = "add_or_remove") -> Array:
    """`renyi`, as NumPy's array where everything is concrete (inside ``enable_x64``)."""
    mechanism, order = on_host((mechanism, order))
    _validate.one_of(RELATIONS, relation=relation)
    if not _validate.is_traced(order):
        values = np.asarray(order, np.float64)
        if not np.all(np.isfinite(values) & (values > 1)):
            raise ValueError(f"order must be a finite number above 1, got {order}")
    if isinstance(mechanism, Composed):
        parts = mechanism.parts()
        total = np.zeros(())
        for part, steps in parts:
            xp, steps = floats(steps)
            total = total + xp.where(steps >= 1, steps, np.inf) * divergence(part, order, relation=relation)
        return inflated(total, EPS * (2 + len(parts)))
    curve = _CURVES.get(type(mechanism), pair_curve)
    if not isinstance(mechanism, Mechanism):
        raise ValueError(
            f"mechanism must be a {', '.join(mechanisms.__all__)} for a Rényi curve, got {type(mechanism).__name__}"
        )
    if relation == "replace" and isinstance(mechanism, FromTables):
        mechanism._dominating(relation)  # says why not
    if relation == "replace_special" and mechanism._as("zero_out") == "remove":
        relation = "add_or_remove"
    relation = mechanism._as(relation)
    return curve(mechanism, order, relation)
