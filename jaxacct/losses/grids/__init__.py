"""Privacy losses on a fixed grid: discretisation, tails and hockey sticks, convex envelopes.

Imports pairs and numerics.
"""
