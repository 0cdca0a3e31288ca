"""Worst cases: rules, the analyst that does most under them, what filters really cost, and counterexamples."""

from jaxacct.adversary.rules import Rule, any_order, multisets, units
from jaxacct.adversary.strategy import Strategy
from jaxacct.adversary.worst_case import WorstCase, worst_case

__all__ = ["Rule", "Strategy", "WorstCase", "any_order", "multisets", "units", "worst_case"]
