"""From a mechanism and a neighbouring relation to the dominating pairs that the engine composes."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxacct import _validate
from jaxacct.mechanisms._gaussian_pair import GaussianPair
from jaxacct.mechanisms._protocol import as_mechanism
from jaxacct.mechanisms._values import composed_noise, whole_steps

__all__ = ["RELATIONS", "directions", "rarely_sampled", "witness"]

RELATIONS = ("add_or_remove", "add", "remove", "replace")


def directions(mechanism: Any, relation: str, steps: Any = 1.0) -> list[list[tuple[Any, Any]]]:
    """The directions whose worst is the answer for ``relation``; each a list of (pair, steps of it).

    Leaves of a pair are float64 arrays that broadcast against each other. Invalid traced parameters become NaN,
    which the engine turns into delta 1 and epsilon inf. Gaussians that make up a whole direction are merged
    into one run of one Gaussian, exactly. Steps that are known while tracing stay NumPy numbers.

    Raises:
        ValueError: an unknown relation, or one for which the mechanism has no analysis.
    """
    _validate.one_of(RELATIONS, relation=relation)
    mechanism = as_mechanism(mechanism)
    runs = mechanism._gaussian_runs()
    if runs is not None:
        noise = composed_noise(runs, whole_steps(steps))
        return [[(GaussianPair(noise, np.ones(()), np.zeros(())), 1.0)]]
    names = [relation]
    if relation == "add_or_remove":
        names = ["remove"] if mechanism._symmetric else ["remove", "add"]
    return [mechanism._runs(name, steps) for name in names]


def rarely_sampled(mechanism: Any, steps: Any = 1.0) -> tuple[Any, Any]:
    """``(any, total)``: whether some rate is too small for any grid, and what the mechanism costs if all are.

    A smaller rate than 1e-14 is replaced by that, so that lower bounds do not hold. Where there is nothing else,
    each step is (0, rate)-DP and the whole (0, ``total``)-DP; otherwise ``total`` is inf.
    """
    return as_mechanism(mechanism)._rarely_sampled(steps)


def witness(mechanism: Any) -> Any:
    """``mechanism`` itself, or the one whose exact curve is a lower bound for its class; see ``Mechanism``."""
    return as_mechanism(mechanism)._witness()
