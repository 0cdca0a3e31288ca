"""Worst cases of adaptive analysts, the true cost of natural filters, and counterexamples.

Filters of theoretical interest are here too: `natural_approximate_dp` and `additive_profile` keep the protocol of
:mod:`jaxacct.filters`, and guarantee an epsilon far above their budget (55.6 for epsilon 1, delta 1e-6, 100 rounds).
"""

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand
from jaxacct.adversary.generalized_response import GeneralizedResponse, rounded
from jaxacct.adversary.naturals.cost import NaturalFilterCost, natural_filter_cost
from jaxacct.adversary.naturals.counterexample import Counterexample, Simulation, adaptive_choice, counterexample
from jaxacct.adversary.naturals.freeness import Closure, Freeness, is_free, totally_ordered_closure
from jaxacct.adversary.residue import residue, residue_condition
from jaxacct.adversary.rules import Rule, any_order, multisets, units
from jaxacct.adversary.strategy import Strategy
from jaxacct.adversary.worst_case import WorstCase, worst_case

if TYPE_CHECKING:
    from jaxacct.adversary.filters.additive_profile import AdditiveProfileFilter, additive_profile
    from jaxacct.adversary.filters.natural_approximate_dp import NaturalApproximateDPFilter, natural_approximate_dp

__all__ = [
    "AdditiveProfileFilter",
    "Closure",
    "Counterexample",
    "Freeness",
    "GeneralizedResponse",
    "NaturalApproximateDPFilter",
    "NaturalFilterCost",
    "Rule",
    "Simulation",
    "Strategy",
    "WorstCase",
    "adaptive_choice",
    "additive_profile",
    "any_order",
    "counterexample",
    "is_free",
    "multisets",
    "natural_approximate_dp",
    "natural_filter_cost",
    "residue",
    "residue_condition",
    "rounded",
    "totally_ordered_closure",
    "units",
    "worst_case",
]

# `jaxacct.filters` imports this room, so its filters load on first use.
__getattr__, __dir__ = on_demand(__name__)
