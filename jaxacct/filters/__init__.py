"""Budgets for adaptive analysts, one filter a file, behind ``init() -> state`` and ``update(query, state)``.

================== ============================================== ============================== ====================
filter             accepts (or the number in brackets)            theorem                        guarantee
================== ============================================== ============================== ====================
`pure_dp`          pure privacy, sampled too (epsilon)            Rogers et al. 2016             bound, lossless
`zcdp`             Gaussians, pure privacy, ZeroConcentratedDP    Whitehouse et al. 2023         bound
                   (rho)
`approximate_zcdp` the same and ApproximateDP (rho, delta)        Whitehouse et al. 2023         bound
`approximate_dp`   the same; its budget is an (epsilon, delta)    Whitehouse et al. 2023         bound
`renyi`            any Rényi curve (divergence at its order)      Feldman, Zrnic 2021            bound
`renyi_any`        any Rényi curve (divergences at its orders)    the same, and a union bound    bound, delta / k each
`gdp`              Gaussians (mu)                                 Koskela et al. 2023            bound, lossless
`approximate_gdp`  sampled Gaussians, rate < 0.2 or > 0.8         f-DP filter paper, Theorem 4.3 asymptotic only
================== ============================================== ============================== ====================

A filter's guarantee is for an analyst who obeys it: a query runs only if ``admitted`` came back True for it.

`odometer` reads a `pure_dp`, `zcdp`, `renyi` or `gdp` ledger while it runs, and says what such a reading proves;
`halting_scan` runs a step until the filter refuses, inside one compiled loop.
"""

from jaxacct.filters._guarantees import (
    AnyOrderGuarantee,
    GDPGuarantee,
    PureDPGuarantee,
    RenyiGuarantee,
    ZCDPGuarantee,
)
from jaxacct.filters._ledger import LedgerState
from jaxacct.filters._protocol import Filter, Guarantee
from jaxacct.filters.approximate_gdp import ApproximateGDPFilter, approximate_gdp
from jaxacct.filters.approximate_zcdp import (
    ApproximateZCDPFilter,
    ApproximateZCDPState,
    approximate_dp,
    approximate_zcdp,
)
from jaxacct.filters.gdp import GDPFilter, gdp
from jaxacct.filters.halting import Halted, halting_scan
from jaxacct.filters.odometer import Odometer, odometer
from jaxacct.filters.plan import ORDERS, plan_epsilon, plan_order
from jaxacct.filters.pure_dp import PureDPFilter, pure_dp
from jaxacct.filters.renyi import RenyiFilter, renyi
from jaxacct.filters.renyi_any import AnyOrderFilter, renyi_any
from jaxacct.filters.zcdp import ZCDPFilter, zcdp

__all__ = [
    "ORDERS",
    "AnyOrderFilter",
    "AnyOrderGuarantee",
    "ApproximateGDPFilter",
    "ApproximateZCDPFilter",
    "ApproximateZCDPState",
    "Filter",
    "GDPFilter",
    "GDPGuarantee",
    "Guarantee",
    "Halted",
    "LedgerState",
    "Odometer",
    "PureDPFilter",
    "PureDPGuarantee",
    "RenyiFilter",
    "RenyiGuarantee",
    "ZCDPFilter",
    "ZCDPGuarantee",
    "approximate_dp",
    "approximate_gdp",
    "approximate_zcdp",
    "gdp",
    "halting_scan",
    "odometer",
    "plan_epsilon",
    "plan_order",
    "pure_dp",
    "renyi",
    "renyi_any",
    "zcdp",
]
