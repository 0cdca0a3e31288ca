"""Pairs of `replace`, where neither direction of add and remove dominates."""
