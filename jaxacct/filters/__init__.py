"""Budgets for adaptive analysts, one filter a file, behind ``init() -> state`` and ``update(query, state)``.

================= =================================== =========================== ===============
filter            accepts                             theorem                     guarantee
================= =================================== =========================== ===============
`gdp`             Gaussians, any mu-GDP query         Koskela et al. 2023         bound, lossless
`renyi`           (sampled) Gaussians, any divergence Feldman, Zrnic 2021         bound
`gdp_residue`     anything                            residue filters, Theorem 5  bound
`residue`         anything                            residue filters, Theorem 1  bound
`additive_profile` symmetric losses                   residue filters, Theorem 15 bound
`natural_approximate_dp` anything, made symmetric     residue filters, Theorem 9  bound
`natural`         a declared family                   residue filters, Theorem 6  bound, or none
`approximate_gdp` sampled Gaussians, rate <0.2, >0.8  f-DP filter paper, Thm 4.3  asymptotic only
================= =================================== =========================== ===============

A filter's guarantee is for an analyst who obeys it: a query runs only if ``admitted`` came back True for it.
"""

from jaxacct.filters._guarantees import GDPGuarantee, RenyiGuarantee
from jaxacct.filters._ledger import LedgerState
from jaxacct.filters._prepared import Prepared, prepare
from jaxacct.filters._protocol import Filter, Guarantee
from jaxacct.filters.additive_profile import AdditiveProfileFilter, additive_profile
from jaxacct.filters.approximate_gdp import ApproximateGDPFilter, approximate_gdp
from jaxacct.filters.gdp import GDPFilter, gdp
from jaxacct.filters.gdp_residue import ApproximateGDPGuarantee, GDPResidueFilter, ResidueState, gdp_residue
from jaxacct.filters.natural import NaturalFilter, UndeclaredNaturalFilter, natural
from jaxacct.filters.natural_approximate_dp import NaturalApproximateDPFilter, natural_approximate_dp
from jaxacct.filters.plan import ORDERS, plan_epsilon, plan_order
from jaxacct.filters.renyi import RenyiFilter, renyi
from jaxacct.filters.residue import ResidueFilter, check_residue, residue

__all__ = [
    "ORDERS",
    "AdditiveProfileFilter",
    "ApproximateGDPFilter",
    "ApproximateGDPGuarantee",
    "Filter",
    "GDPFilter",
    "GDPGuarantee",
    "GDPResidueFilter",
    "Guarantee",
    "LedgerState",
    "NaturalApproximateDPFilter",
    "NaturalFilter",
    "Prepared",
    "RenyiFilter",
    "RenyiGuarantee",
    "ResidueFilter",
    "ResidueState",
    "UndeclaredNaturalFilter",
    "additive_profile",
    "approximate_gdp",
    "check_residue",
    "gdp",
    "gdp_residue",
    "natural",
    "natural_approximate_dp",
    "plan_epsilon",
    "plan_order",
    "prepare",
    "renyi",
    "residue",
]
