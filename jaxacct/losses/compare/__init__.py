"""Comparing curves: Blackwell order, suprema, distances, and the attack that a curve allows.

Imports curves, grids, mechanisms and numerics.
"""
