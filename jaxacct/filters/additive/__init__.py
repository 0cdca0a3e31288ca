"""Filters that add a cost for each query and compare the sum with a budget.

Imports ``filters``' base, spent amounts and guarantees; losses and mechanisms.
"""
