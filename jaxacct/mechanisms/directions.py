"""Splits a neighbouring relation into directions, and gives the dominating pairs of a mechanism for each."""

from __future__ import annotations

import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real
from jaxacct.mechanisms.base import BOTH_DIRECTIONS, Mechanism, as_mechanism
from jaxacct.mechanisms.pairs.base import Runs
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.parameters import composed_noise, whole_steps

ONE_SIDED = ("remove", "add", "replace", "zero_out", "fill_in")
RELATIONS = ("add_or_remove", "add", "remove", "replace", "replace_special", "zero_out", "fill_in")
"""`add_or_remove` is the worse of `remove` and `add`, `replace_special` that of `zero_out` and `fill_in`."""

REVERSED = {one: other for pair in BOTH_DIRECTIONS.values() for one, other in (pair, pair[::-1])}
"""A direction, and that of the same neighbours with their roles exchanged."""


def directions(mechanism: Mechanism, relation: str, steps: ArrayLike = 1.0) -> list[Runs]:
    """The directions whose worst is the answer for ``relation``; each a list of (pair, steps of it).

    Leaves of a pair are float64 arrays that broadcast against each other. Invalid traced parameters become NaN,
    which the engine turns into delta 1 and epsilon inf. Gaussians that make up a whole direction are merged
    into one run of one Gaussian, exactly. Steps that are known while tracing stay NumPy numbers.
    """
    _validate.one_of(RELATIONS, relation=relation)
    mechanism = as_mechanism(mechanism)
    runs = mechanism._gaussian_runs()
    if runs is not None:
        noise = composed_noise(runs, whole_steps(steps))
        return [[(GaussianPair(noise, np.ones(()), np.zeros(())), 1.0)]]
    return [mechanism._runs(name, steps) for name in mechanism._sides(relation)]


def side_names(mechanism: Mechanism, relation: str) -> list[str]:
    """The directions of ``relation`` that differ for ``mechanism``, each a relation itself."""
    _validate.one_of(RELATIONS, relation=relation)
    return as_mechanism(mechanism)._sides(relation)


def first_side(relation: str) -> str:
    """The first direction of a relation; the other one, if there is one, is its reversal."""
    _validate.one_of(RELATIONS, relation=relation)
    return {"add_or_remove": "remove", "replace_special": "zero_out"}.get(relation, relation)


def rarely_sampled(mechanism: Mechanism, steps: ArrayLike = 1.0) -> tuple[Array, Real]:
    """``(any, total)``: whether some rate is too small for any grid, and what the mechanism costs if all are.

    A smaller rate than 1e-14 is replaced by that, so that lower bounds do not hold. Where there is nothing else,
    each step is (0, rate)-DP and the whole (0, ``total``)-DP; otherwise ``total`` is inf.
    """
    return mechanism._rarely_sampled(steps)


def witness(mechanism: Mechanism, relation: str) -> Mechanism:
    """``mechanism`` itself, or the one whose exact curve is a lower bound for ``relation``; see ``Mechanism``."""
    return as_mechanism(mechanism)._witness(relation)
