"""jaxacct: differential-privacy accounting in JAX."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxacct._version import __version__

if TYPE_CHECKING:
    from jaxacct import adversary, expost, filters, interop, ledger, losses, mechanisms, plotting, training
    from jaxacct._traced import without_callbacks
    from jaxacct.accounting import Bounds, delta, epsilon
    from jaxacct.calibration import Calibration, calibrate
    from jaxacct.ledger import Ledger
    from jaxacct.losses.extremes import supremum
    from jaxacct.losses.grid import LossGrid
    from jaxacct.losses.order import dominates, is_chain
    from jaxacct.losses.pld import PLD
    from jaxacct.losses.profile import PrivacyProfile
    from jaxacct.losses.tradeoff import TradeOff
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
        RandomAllocation,
        RandomizedResponse,
        RenyiDP,
        SampledWithoutReplacement,
        Skellam,
        ZeroConcentratedDP,
    )
    from jaxacct.planning import NoisePlan, plan_noise

# Names load on first use, so that the command line pays only for what a command needs.
_HOME = {
    "ApproximateDP": "jaxacct.mechanisms.approximate",
    "Bounds": "jaxacct.accounting",
    "Calibration": "jaxacct.calibration",
    "Composed": "jaxacct.mechanisms.composed",
    "DiscreteGaussian": "jaxacct.mechanisms.discrete_gaussian",
    "DiscreteLaplace": "jaxacct.mechanisms.discrete_laplace",
    "Exponential": "jaxacct.mechanisms.selection",
    "FromProfile": "jaxacct.mechanisms.profile",
    "FromTables": "jaxacct.mechanisms.tables",
    "GDP": "jaxacct.mechanisms.gdp",
    "Gaussian": "jaxacct.mechanisms.gaussian",
    "Laplace": "jaxacct.mechanisms.laplace",
    "Ledger": "jaxacct.ledger",
    "LossGrid": "jaxacct.losses.grid",
    "MixtureOfGaussians": "jaxacct.mechanisms.mixture",
    "NoisePlan": "jaxacct.planning",
    "PLD": "jaxacct.losses.pld",
    "PermuteAndFlip": "jaxacct.mechanisms.selection",
    "PoissonSampled": "jaxacct.mechanisms.sampling",
    "PrivacyProfile": "jaxacct.losses.profile",
    "PureDP": "jaxacct.mechanisms.approximate",
    "RandomAllocation": "jaxacct.mechanisms.random_allocation",
    "RandomizedResponse": "jaxacct.mechanisms.randomized_response",
    "RenyiDP": "jaxacct.mechanisms.concentrated",
    "SampledWithoutReplacement": "jaxacct.mechanisms.without_replacement",
    "Skellam": "jaxacct.mechanisms.skellam",
    "TradeOff": "jaxacct.losses.tradeoff",
    "ZeroConcentratedDP": "jaxacct.mechanisms.concentrated",
    "calibrate": "jaxacct.calibration",
    "delta": "jaxacct.accounting",
    "dominates": "jaxacct.losses.order",
    "epsilon": "jaxacct.accounting",
    "is_chain": "jaxacct.losses.order",
    "plan_noise": "jaxacct.planning",
    "supremum": "jaxacct.losses.extremes",
    "without_callbacks": "jaxacct._traced",
}
_ROOMS = ("adversary", "expost", "filters", "interop", "ledger", "losses", "mechanisms", "plotting", "training")

__all__ = [
    "GDP",
    "PLD",
    "ApproximateDP",
    "Bounds",
    "Calibration",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "FromProfile",
    "FromTables",
    "Gaussian",
    "Laplace",
    "Ledger",
    "LossGrid",
    "MixtureOfGaussians",
    "NoisePlan",
    "PermuteAndFlip",
    "PoissonSampled",
    "PrivacyProfile",
    "PureDP",
    "RandomAllocation",
    "RandomizedResponse",
    "RenyiDP",
    "SampledWithoutReplacement",
    "Skellam",
    "TradeOff",
    "ZeroConcentratedDP",
    "__version__",
    "adversary",
    "calibrate",
    "delta",
    "dominates",
    "epsilon",
    "expost",
    "filters",
    "interop",
    "is_chain",
    "ledger",
    "losses",
    "mechanisms",
    "plan_noise",
    "plotting",
    "supremum",
    "training",
    "without_callbacks",
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
