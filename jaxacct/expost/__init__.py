"""Accuracy-first privacy: release with more and more budget until a result is good enough, and know what it cost."""

from jaxacct.expost.conversions import approximate_epsilon, bayes_factor
from jaxacct.expost.reduction import brownian, laplace_reduction, precision_weighted
from jaxacct.expost.scales import plain_gaussian_scale, sparse_vector_scales

__all__ = [
    "approximate_epsilon",
    "bayes_factor",
    "brownian",
    "laplace_reduction",
    "plain_gaussian_scale",
    "precision_weighted",
    "sparse_vector_scales",
]
