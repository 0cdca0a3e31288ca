"""Outward rounding, bisection, FFT powers, and NumPy or JAX behind one name: array utilities, no privacy.

Imports nothing else of the package but :mod:`jaxacct._validate`.
"""
