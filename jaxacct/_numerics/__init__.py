"""Array and floating-point utilities: outward rounding, bisection, NumPy or JAX behind one name. No privacy here.

Imports nothing else of the package but :mod:`jaxacct._validate`.
"""
