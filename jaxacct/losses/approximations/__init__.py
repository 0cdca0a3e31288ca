"""Asymptotic answers that are not bounds, and moments of privacy losses.

Imports mechanisms and numerics.
"""
