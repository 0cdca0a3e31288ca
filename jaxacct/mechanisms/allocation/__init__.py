"""Accounting for an epoch of random allocation, whose likelihood ratio is a mean of independent ratios.

``ratios`` cuts one ratio into cells, ``plan`` says where to look at their sum, ``sums`` bounds its curve and tests it,
``tables`` makes pairs of that. Imports pairs and numerics.
"""
