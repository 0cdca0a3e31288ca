"""jaxacct: differential-privacy accounting in JAX.

The rooms (`jaxacct.filters`, `jaxacct.training` and so on) are attributes too, which load on first use. A star import
brings the names of this page only, so that it never needs what an extra installs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand
from jaxacct._version import __version__ as __version__

if TYPE_CHECKING:
    from jaxacct import adversary as adversary
    from jaxacct import attacks as attacks
    from jaxacct import audit as audit
    from jaxacct import certificates as certificates
    from jaxacct import expost as expost
    from jaxacct import filters as filters
    from jaxacct import interop as interop
    from jaxacct import ledger as ledger
    from jaxacct import losses as losses
    from jaxacct import mechanisms as mechanisms
    from jaxacct import papers as papers
    from jaxacct import plotting as plotting
    from jaxacct import release as release
    from jaxacct import reports as reports
    from jaxacct import testing as testing
    from jaxacct import training as training
    from jaxacct.accounting import Bounds, delta, epsilon
    from jaxacct.accounting.calibration import calibrate
    from jaxacct.accounting.noise_planning import plan_noise
    from jaxacct.accounting.traced import without_callbacks
    from jaxacct.certificates import certify
    from jaxacct.ledger import Ledger
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
        PermuteAndFlip,
        PoissonSampled,
        PureDP,
        RandomAllocation,
        RandomizedResponse,
        RandomSensitivityGaussian,
        RenyiDP,
        SampledWithoutReplacement,
        SampledWithReplacement,
        Shuffled,
        Skellam,
        TruncatedPoisson,
        UserLevel,
        ZeroConcentratedDP,
    )
    from jaxacct.selection import PrivateSelection
    from jaxacct.summaries.gdp import gdp_summary
    from jaxacct.summaries.group import group_of

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
    "Ledger",
    "LossGrid",
    "PermuteAndFlip",
    "PoissonSampled",
    "PrivacyProfile",
    "PrivateSelection",
    "PureDP",
    "RandomAllocation",
    "RandomSensitivityGaussian",
    "RandomizedResponse",
    "RenyiDP",
    "SampledWithReplacement",
    "SampledWithoutReplacement",
    "Shuffled",
    "Skellam",
    "TradeOff",
    "TruncatedPoisson",
    "UserLevel",
    "ZeroConcentratedDP",
    "calibrate",
    "certify",
    "delta",
    "dominates",
    "epsilon",
    "gdp_summary",
    "group_of",
    "plan_noise",
    "supremum",
    "without_callbacks",
]

# Names load on first use, so that the command line pays only for what a command needs.
__getattr__, __dir__ = on_demand(__name__)
