"""jaxacct: differential-privacy accounting in JAX."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxacct._version import __version__

if TYPE_CHECKING:
    from jaxacct import filters, losses, mechanisms, training
    from jaxacct.accounting import Bounds, delta, epsilon
    from jaxacct.losses.grid import LossGrid
    from jaxacct.losses.pld import PLD
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
        ZeroConcentratedDP,
    )

# Names load on first use, so that the command line pays only for what a command needs.
_HOME = {
    "ApproximateDP": "jaxacct.mechanisms.approximate",
    "Bounds": "jaxacct.accounting",
    "Composed": "jaxacct.mechanisms.composed",
    "DiscreteGaussian": "jaxacct.mechanisms.discrete_gaussian",
    "DiscreteLaplace": "jaxacct.mechanisms.discrete_laplace",
    "Exponential": "jaxacct.mechanisms.selection",
    "FromProfile": "jaxacct.mechanisms.profile",
    "FromTables": "jaxacct.mechanisms.tables",
    "GDP": "jaxacct.mechanisms.gdp",
    "Gaussian": "jaxacct.mechanisms.gaussian",
    "Laplace": "jaxacct.mechanisms.laplace",
    "LossGrid": "jaxacct.losses.grid",
    "MixtureOfGaussians": "jaxacct.mechanisms.mixture",
    "PLD": "jaxacct.losses.pld",
    "PermuteAndFlip": "jaxacct.mechanisms.selection",
    "PoissonSampled": "jaxacct.mechanisms.sampling",
    "PureDP": "jaxacct.mechanisms.approximate",
    "RandomizedResponse": "jaxacct.mechanisms.randomized_response",
    "RenyiDP": "jaxacct.mechanisms.concentrated",
    "SampledWithoutReplacement": "jaxacct.mechanisms.without_replacement",
    "ZeroConcentratedDP": "jaxacct.mechanisms.concentrated",
    "delta": "jaxacct.accounting",
    "epsilon": "jaxacct.accounting",
}
_ROOMS = ("filters", "losses", "mechanisms", "training")

__all__ = [
    "GDP",
    "PLD",
    "ApproximateDP",
    "Bounds",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "FromProfile",
    "FromTables",
    "Gaussian",
    "Laplace",
    "LossGrid",
    "MixtureOfGaussians",
    "PermuteAndFlip",
    "PoissonSampled",
    "PureDP",
    "RandomizedResponse",
    "RenyiDP",
    "SampledWithoutReplacement",
    "ZeroConcentratedDP",
    "__version__",
    "delta",
    "epsilon",
    "filters",
    "losses",
    "mechanisms",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"jaxacct.{name}")
    else:
        raise AttributeError(f"module 'jaxacct' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
