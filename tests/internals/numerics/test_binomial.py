"""The relative error that binomial probabilities say of themselves holds."""

import math
from fractions import Fraction

import numpy as np

from jaxacct._numerics.binomial import binomial_probability


def test_probabilities_of_few_trials_are_as_close_as_they_say():
    n, k = (x.astype(float) for x in np.meshgrid(np.arange(2, 46), np.arange(1, 45), indexing="ij"))
    k = np.minimum(k, n - 1.0)
    for rate in (0.5, 0.3, 1e-3, 1.0 - 2.0**-30):
        values, errors = binomial_probability(n, np.full_like(n, rate), k)
        for trials, count, value, error in zip(n.flat, k.flat, values.flat, errors.flat, strict=True):
            m, j, q = int(trials), int(count), Fraction(rate)
            truth = math.comb(m, j) * q**j * (1 - q) ** (m - j)
            lost = Fraction(1e-307)  # where probabilities underflow
            assert abs(Fraction(float(value)) - truth) <= Fraction(float(error)) * truth / 2 + lost
