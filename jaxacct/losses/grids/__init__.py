"""Privacy losses on a fixed grid: discretisation, tails and hockey sticks, FFT powers, convex envelopes.

Imports pairs and numerics.
"""
