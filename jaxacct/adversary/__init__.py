"""Worst cases of adaptive analysts, the true cost of natural filters, and counterexamples."""

from jaxacct.adversary.generalized_response import GeneralizedResponse, rounded
from jaxacct.adversary.naturals.cost import NaturalFilterCost, natural_filter_cost
from jaxacct.adversary.naturals.counterexample import Counterexample, Simulation, adaptive_choice, counterexample
from jaxacct.adversary.naturals.freeness import Closure, Freeness, is_free, totally_ordered_closure
from jaxacct.adversary.residue import residue, residue_condition
from jaxacct.adversary.rules import Rule, any_order, multisets, units
from jaxacct.adversary.strategy import Strategy
from jaxacct.adversary.worst_case import WorstCase, worst_case

__all__ = [
    "Closure",
    "Counterexample",
    "Freeness",
    "GeneralizedResponse",
    "NaturalFilterCost",
    "Rule",
    "Simulation",
    "Strategy",
    "WorstCase",
    "adaptive_choice",
    "any_order",
    "counterexample",
    "is_free",
    "multisets",
    "natural_filter_cost",
    "residue",
    "residue_condition",
    "rounded",
    "totally_ordered_closure",
    "units",
    "worst_case",
]
