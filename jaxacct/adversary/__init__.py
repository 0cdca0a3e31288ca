"""Worst cases of adaptive analysts, the true cost of filters, and counterexamples.

Filters of theoretical interest are here too: `natural_approximate_dp` and `additive_profile` keep the protocol of
:mod:`jaxacct.filters`, and guarantee an epsilon far above their budget (40.3 and 55.3 at delta 5e-6 for epsilon 1,
delta 1e-6 and 100 rounds).
"""

from jaxacct.adversary.analyst import evaluate
from jaxacct.adversary.counterexample import adaptive_choice, counterexample
from jaxacct.adversary.filters.additive_profile import additive_profile
from jaxacct.adversary.filters.natural_approximate_dp import natural_approximate_dp
from jaxacct.adversary.generalized_response import GeneralizedResponse
from jaxacct.adversary.residue import natural_residue, renyi_residue, residue_condition
from jaxacct.adversary.true_cost import true_cost
from jaxacct.games.adaptivity import cost_of_adaptivity
from jaxacct.games.freeness import is_free, totally_ordered_closure
from jaxacct.games.natural_cost import natural_filter_cost
from jaxacct.games.rules import Rule
from jaxacct.games.worst_case import worst_case

__all__ = [
    "GeneralizedResponse",
    "Rule",
    "adaptive_choice",
    "additive_profile",
    "cost_of_adaptivity",
    "counterexample",
    "evaluate",
    "is_free",
    "natural_approximate_dp",
    "natural_filter_cost",
    "natural_residue",
    "renyi_residue",
    "residue_condition",
    "totally_ordered_closure",
    "true_cost",
    "worst_case",
]
