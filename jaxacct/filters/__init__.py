"""Privacy filters: budgets for adaptive analysts, as ``init() -> state`` and ``update(query, state)``.

======================== =========================================== ========================= =======================
filter                   accepts (or the number in brackets)         theorem                   guarantee
======================== =========================================== ========================= =======================
`pure_dp`                pure privacy, sampled too (epsilon)         Rogers et al. 2016        bound, lossless
`zcdp`                   Gaussians, pure privacy, zCDP (rho)         Whitehouse et al. 2023    bound
`approximate_zcdp`       the same and ApproximateDP (rho, delta)     Whitehouse et al. 2023    bound
`approximate_dp`         the same; its budget is an (epsilon, delta) Whitehouse et al. 2023    bound
`renyi`                  any Rényi curve (divergence at its order)   Feldman, Zrnic 2021       bound
`renyi_any`              any Rényi curve (divergences at its orders) a mixture over orders     bound
`gdp`                    Gaussians (mu)                              Koskela et al. 2023       bound, lossless
`gdp_residue`            anything                                    residue filters, Thm 5    bound
`residue`                anything                                    residue filters, Thm 1    bound
`natural`                a declared family                           residue filters, Thm 6    bound, or none
`sampled_gaussian`       sampled Gaussians of a box                  residue filters, Thm 1    bound, near worst case
`closed_form`            sampled Gaussians of a range                residue filters, Thm 1    bound
`menu`                   what an entry of its menu dominates         residue filters, Lemma 1  bound, exact worst case
`approximate_gdp`        sampled Gaussians, rate < 0.2 or > 0.8      f-DP filters, Thm 4.3     asymptotic only
======================== =========================================== ========================= =======================

The scalar filters, `gdp_residue` and those that compose laws take an upper `PLD` as a query too; `pure_dp`, `zcdp`,
`renyi` and `gdp` refuse one with mass at an infinite loss, as a lattice law of a continuous mechanism has it.

`menu(..., online=True)` prices queries off the menu too, outside of compiled code.

A filter's guarantee is for an analyst who obeys it: a query runs only if ``admitted`` came back True for it.

`per_example` keeps one account of any filter above for each example, who pays for their own gradient.

`for_target` makes the filter of a name from an (epsilon, delta) target.

A state carries the mark of its filter, and no other filter goes on with it: `update` refuses it, `check_state` says
why, and `lower_budget` makes a state for a smaller budget.

`odometer` reads a `pure_dp`, `zcdp`, `renyi` or `gdp` filter while it runs, and says what such a reading proves;
`reason` of a filter says why it refuses a query, as a `Reason`, inside programs too; `sentence` says it in words.

`halting_scan` runs a step until the filter refuses, inside one compiled loop.
"""

# `A as A`: the types of states have names here, and no pages.
from jaxacct.filters.accounts.per_example import per_example
from jaxacct.filters.additive.approximate_gdp import approximate_gdp
from jaxacct.filters.additive.gdp import gdp
from jaxacct.filters.additive.plan_order import plan_epsilon, plan_order
from jaxacct.filters.additive.pure_dp import pure_dp
from jaxacct.filters.additive.renyi import renyi
from jaxacct.filters.additive.renyi_any import renyi_any
from jaxacct.filters.additive.zcdp import ApproximateZCDPState as ApproximateZCDPState
from jaxacct.filters.additive.zcdp import approximate_dp, approximate_zcdp, zcdp
from jaxacct.filters.amounts import SpentState as SpentState
from jaxacct.filters.base import Filter, Guarantee
from jaxacct.filters.for_target import for_target
from jaxacct.filters.halting import halting_scan
from jaxacct.filters.lowering import lower_budget
from jaxacct.filters.marks import check_state
from jaxacct.filters.odometer import odometer
from jaxacct.filters.prices.closed_form_filter import closed_form
from jaxacct.filters.prices.entries import gaussian_menu
from jaxacct.filters.prices.menu import constant_schedules, menu
from jaxacct.filters.prices.sampled_gaussian import sampled_gaussian
from jaxacct.filters.prices.table import MenuState as MenuState
from jaxacct.filters.reasons import Reason, sentence
from jaxacct.filters.residues.any_family import check_residue, residue
from jaxacct.filters.residues.gdp_residue import ResidueState as ResidueState
from jaxacct.filters.residues.gdp_residue import gdp_residue
from jaxacct.filters.residues.natural import natural
from jaxacct.filters.residues.prepare import prepare

__all__ = [
    "Filter",
    "Guarantee",
    "Reason",
    "approximate_dp",
    "approximate_gdp",
    "approximate_zcdp",
    "check_residue",
    "check_state",
    "closed_form",
    "constant_schedules",
    "for_target",
    "gaussian_menu",
    "gdp",
    "gdp_residue",
    "halting_scan",
    "lower_budget",
    "menu",
    "natural",
    "odometer",
    "per_example",
    "plan_epsilon",
    "plan_order",
    "prepare",
    "pure_dp",
    "renyi",
    "renyi_any",
    "residue",
    "sampled_gaussian",
    "sentence",
    "zcdp",
]
