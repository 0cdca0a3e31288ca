"""Budgets for adaptive analysts, one filter a file, behind ``init() -> state`` and ``update(query, state)``.

================= =================================== =========================== ===============
filter            accepts                             theorem                     guarantee
================= =================================== =========================== ===============
`gdp`             Gaussians, any mu-GDP query         Koskela et al. 2023         bound, lossless
`renyi`           (sampled) Gaussians, any divergence Feldman, Zrnic 2021         bound
`approximate_gdp` sampled Gaussians, rate <0.2, >0.8  f-DP filter paper, Thm 4.3  asymptotic only
`priced_menu`     what a menu's entries dominate      residue paper, Lemma 1      bound, exact worst case
================= =================================== =========================== ===============

A filter's guarantee is for an analyst who obeys it: a query runs only if ``admitted`` came back True for it.
"""

from jaxacct.filters._guarantees import GDPGuarantee, MenuGuarantee, RenyiGuarantee
from jaxacct.filters._ledger import LedgerState
from jaxacct.filters._menus import gaussian_menu
from jaxacct.filters._protocol import Filter, Guarantee
from jaxacct.filters.approximate_gdp import ApproximateGDPFilter, approximate_gdp
from jaxacct.filters.gdp import GDPFilter, gdp
from jaxacct.filters.plan import ORDERS, plan_epsilon, plan_order
from jaxacct.filters.priced_menu import (
    MenuState,
    PricedMenuFilter,
    constant_schedules,
    priced_menu,
)
from jaxacct.filters.renyi import RenyiFilter, renyi

__all__ = [
    "ORDERS",
    "ApproximateGDPFilter",
    "Filter",
    "GDPFilter",
    "GDPGuarantee",
    "Guarantee",
    "LedgerState",
    "MenuGuarantee",
    "MenuState",
    "PricedMenuFilter",
    "RenyiFilter",
    "RenyiGuarantee",
    "approximate_gdp",
    "constant_schedules",
    "gaussian_menu",
    "gdp",
    "plan_epsilon",
    "plan_order",
    "priced_menu",
    "renyi",
]
