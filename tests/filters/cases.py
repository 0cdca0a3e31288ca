"""The filters that keep one protocol: add a line to `CASES` and tests/filters/test_protocol.py runs on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxacct import ApproximateDP, Composed, Gaussian, Laplace, PoissonSampled, filters


@dataclasses.dataclass(frozen=True)
class Case:
    """A filter, a query of which some tens fit, and one that does not fit at all.

    Attributes:
        make: the filter for a budget that grows with its argument, a number, array or tracer; 1 is the usual size.
        small: a query with noise in proportion to its argument, likewise; of ``small(1.0)`` some tens (22 to 249) fit
            ``make(1.0)``. Noise that is 0, negative, NaN or infinite makes a query that must be refused.
        big: a query that ``make(1.0)`` refuses; None if there is none.
        number: the query in the filter's own parameter with this value in all its numbers; None if it takes none.
        offset: what the budget's argument is added to, so that tests of bad budgets hit the bad value.
        batched: whether budgets of any shape and ``vmap`` work.
        is_bound: what the guarantee says of itself.
    """

    make: Callable[..., Any]
    small: Callable[[Any], Any]
    big: Any
    number: Callable[[Any], Any] | None = lambda x: x
    offset: float = 0.0
    batched: bool = True
    is_bound: bool = True


CASES = {
    "pure-dp": Case(lambda scale=1.0: filters.pure_dp(scale), lambda t: Laplace(50.0 * t), Laplace(0.9)),
    "zcdp": Case(
        lambda scale=1.0: filters.zcdp(0.5 * scale),
        lambda t: Composed([Gaussian(10.0 * t), Laplace(20.0 * t)], [1, 2]),
        Gaussian(0.9),
    ),
    "approximate-zcdp": Case(
        lambda scale=1.0: filters.approximate_zcdp(0.5 * scale, 1e-6),
        lambda t: Composed([Gaussian(10.0 * t), ApproximateDP(0.01, 1e-8)]),
        (0.01, 2e-6),
        lambda x: (x, x),
    ),
    "gdp": Case(lambda scale=1.0: filters.gdp(scale), lambda t: Gaussian(10.0 * t), Gaussian(0.9)),
    "renyi": Case(
        lambda scale=1.0: filters.renyi(2.0 + scale, 1e-5, order=8),
        lambda t: PoissonSampled(Gaussian(2.0 * t), 0.1),
        PoissonSampled(Gaussian(0.1), 0.1),
        offset=2.0,
    ),
    "renyi-fractional": Case(
        lambda scale=1.0: filters.renyi(2.0 + scale, 1e-5, order=6.5),
        lambda t: PoissonSampled(Gaussian(2.0 * t), 0.1),
        PoissonSampled(Gaussian(0.1), 0.1),
        offset=2.0,
    ),
    "renyi-any": Case(
        lambda scale=1.0: filters.renyi_any(2.0 + scale, 1e-5, (8, 12.5)),
        lambda t: Gaussian(12.0 * t),
        Gaussian(0.9),
        lambda x: np.full(2, x),
        offset=2.0,
    ),
    "odometer": Case(
        lambda scale=1.0: filters.odometer(filters.gdp(scale)), lambda t: Gaussian(10.0 * t), Gaussian(0.9)
    ),
    "gdp-residue": Case(
        lambda scale=1.0: filters.gdp_residue(scale),
        lambda t: Gaussian(10.0 * t),
        Gaussian(0.9),
        None,
        batched=False,
    ),
    "approximate-gdp-small": Case(
        lambda scale=1.0: filters.approximate_gdp(0.05 * scale),
        lambda t: PoissonSampled(Gaussian(3.0 * t), 0.1),
        None,
        None,
        is_bound=False,
    ),
    "approximate-gdp-large": Case(
        lambda scale=1.0: filters.approximate_gdp(0.5 * scale, regime="large"),
        lambda t: PoissonSampled(Gaussian(10.0 * t), 0.9),
        None,
        None,
        is_bound=False,
    ),
}


def leaves(value: Any) -> np.ndarray:
    """All numbers of a state, or of what `spent` returns, in a row."""
    return np.concatenate([np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(value)])
