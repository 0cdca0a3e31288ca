"""Asymptotic answers that are no bounds, and moments of privacy losses.

Imports mechanisms and numerics.
"""
