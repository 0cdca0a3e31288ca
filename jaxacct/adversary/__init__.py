"""Worst cases of adaptive analysts, the true cost of natural filters, and counterexamples.

Filters of theoretical interest are here too: `natural_approximate_dp` and `additive_profile` keep the protocol of
:mod:`jaxacct.filters`, and guarantee an epsilon far above their budget (55.6 for epsilon 1, delta 1e-6, 100 rounds).
"""

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand
from jaxacct.adversary.analyst import evaluate
from jaxacct.adversary.generalized_response import GeneralizedResponse
from jaxacct.adversary.naturals.cost import natural_filter_cost
from jaxacct.adversary.naturals.counterexample import adaptive_choice, counterexample
from jaxacct.adversary.naturals.freeness import is_free, totally_ordered_closure
from jaxacct.adversary.residue import natural_residue, renyi_residue, residue_condition
from jaxacct.adversary.rules import Rule
from jaxacct.adversary.worst_case import worst_case

if TYPE_CHECKING:
    from jaxacct.adversary.filters.additive_profile import additive_profile
    from jaxacct.adversary.filters.natural_approximate_dp import natural_approximate_dp

__all__ = [
    "GeneralizedResponse",
    "Rule",
    "adaptive_choice",
    "additive_profile",
    "counterexample",
    "evaluate",
    "is_free",
    "natural_approximate_dp",
    "natural_filter_cost",
    "natural_residue",
    "renyi_residue",
    "residue_condition",
    "totally_ordered_closure",
    "worst_case",
]

# `jaxacct.filters` imports this room, so its filters load on first use.
__getattr__, __dir__ = on_demand(__name__)
