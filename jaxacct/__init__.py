"""jaxacct: differential-privacy accounting in JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand
from jaxacct._version import __version__

if TYPE_CHECKING:
    from jaxacct import (
        adversary,
        audit,
        certificates,
        expost,
        filters,
        interop,
        ledger,
        losses,
        mechanisms,
        plotting,
        reports,
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
    "audit",
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
    "reports",
    "supremum",
    "training",
    "without_callbacks",
]

# Names load on first use, so that the command line pays only for what a command needs.
__getattr__, __dir__ = on_demand(__name__)
