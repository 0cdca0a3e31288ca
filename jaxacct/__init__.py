"""jaxacct: differential-privacy accounting in JAX."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from jaxacct._version import __version__

if TYPE_CHECKING:
    from jaxacct import (
        adversary,
        certificates,
        expost,
        filters,
        interop,
        ledger,
        losses,
        mechanisms,
        plotting,
        training,
    )
    from jaxacct.accounting import Bounds, delta, epsilon
    from jaxacct.accounting.calibration import Calibration, calibrate
    from jaxacct.accounting.noise_planning import NoisePlan, plan_noise
    from jaxacct.accounting.traced import without_callbacks
    from jaxacct.certificates import Certificate, certify, read_certificate
    from jaxacct.ledger import Ledger
    from jaxacct.losses.compare.chain import is_chain
    from jaxacct.losses.compare.order import dominates
    from jaxacct.losses.compare.suprema import supremum
    from jaxacct.losses.curves.pld import PLD
    from jaxacct.losses.curves.profile import PrivacyProfile
    from jaxacct.losses.curves.trade_off import TradeOff
    from jaxacct.losses.grids.grid import LossGrid
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
        SampledWithReplacement,
        Shuffled,
        Skellam,
        TruncatedPoisson,
        ZeroConcentratedDP,
    )

# Names load on first use, so that the command line pays only for what a command needs.
_HOME = {
    "ApproximateDP": "jaxacct.mechanisms.approximate",
    "Bounds": "jaxacct.accounting",
    "Calibration": "jaxacct.accounting.calibration",
    "Certificate": "jaxacct.certificates.certificate",
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
    "LossGrid": "jaxacct.losses.grids.grid",
    "MixtureOfGaussians": "jaxacct.mechanisms.mixture",
    "NoisePlan": "jaxacct.accounting.noise_planning",
    "PLD": "jaxacct.losses.curves.pld",
    "PermuteAndFlip": "jaxacct.mechanisms.selection",
    "PoissonSampled": "jaxacct.mechanisms.sampling",
    "PrivacyProfile": "jaxacct.losses.curves.profile",
    "PureDP": "jaxacct.mechanisms.approximate",
    "RandomAllocation": "jaxacct.mechanisms.random_allocation",
    "RandomizedResponse": "jaxacct.mechanisms.randomized_response",
    "RenyiDP": "jaxacct.mechanisms.concentrated",
    "Shuffled": "jaxacct.mechanisms.shuffled",
    "SampledWithoutReplacement": "jaxacct.mechanisms.without_replacement",
    "SampledWithReplacement": "jaxacct.mechanisms.with_replacement",
    "Skellam": "jaxacct.mechanisms.skellam",
    "TruncatedPoisson": "jaxacct.mechanisms.truncated_poisson",
    "TradeOff": "jaxacct.losses.curves.trade_off",
    "ZeroConcentratedDP": "jaxacct.mechanisms.concentrated",
    "calibrate": "jaxacct.accounting.calibration",
    "certify": "jaxacct.certificates.certificate",
    "delta": "jaxacct.accounting",
    "dominates": "jaxacct.losses.compare.order",
    "epsilon": "jaxacct.accounting",
    "is_chain": "jaxacct.losses.compare.chain",
    "plan_noise": "jaxacct.accounting.noise_planning",
    "read_certificate": "jaxacct.certificates.certificate",
    "supremum": "jaxacct.losses.compare.suprema",
    "without_callbacks": "jaxacct.accounting.traced",
}
_ROOMS = (
    "adversary", "certificates", "expost", "filters", "interop", "ledger", "losses", "mechanisms", "plotting",
    "training",
)  # fmt: skip

__all__ = [
    "GDP",
    "PLD",
    "ApproximateDP",
    "Bounds",
    "Calibration",
    "Certificate",
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
    "SampledWithReplacement",
    "SampledWithoutReplacement",
    "Shuffled",
    "Skellam",
    "TradeOff",
    "TruncatedPoisson",
    "ZeroConcentratedDP",
    "__version__",
    "adversary",
    "calibrate",
    "certificates",
    "certify",
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
    "read_certificate",
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
