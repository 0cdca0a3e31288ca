"""Accuracy-first privacy: release with a growing budget until the result is accurate, and account for what it cost."""

from jaxacct.expost.checks import AboveThreshold, Check, PlainGaussian, PublicScore, SparseVector
from jaxacct.expost.conversions import approximate_epsilon, bayes_factor
from jaxacct.expost.definitions import (
    ApproximateExPost,
    Definition,
    ImmunityWarning,
    ProbabilisticExPost,
    PureExPost,
    RenyiExPost,
    Result,
    post_process,
)
from jaxacct.expost.exact_checks import excess, excess_of_pair, post_processed_table
from jaxacct.expost.odometer import RenyiOdometer, RenyiOdometerState
from jaxacct.expost.reduction import brownian, brownian_step, laplace_reduction, precision_weighted
from jaxacct.expost.release import Released, compose_until, release_until
from jaxacct.expost.scales import plain_gaussian_scale, sparse_vector_scales
from jaxacct.expost.sources import Brownian, Doubling, LaplaceReduction, PrecisionWeighted, Source
from jaxacct.expost.theorems import compose, convert, ex_ante, from_odometer, stopped_by

__all__ = [
    "AboveThreshold",
    "ApproximateExPost",
    "Brownian",
    "Check",
    "Definition",
    "Doubling",
    "ImmunityWarning",
    "LaplaceReduction",
    "PlainGaussian",
    "PrecisionWeighted",
    "ProbabilisticExPost",
    "PublicScore",
    "PureExPost",
    "Released",
    "RenyiExPost",
    "RenyiOdometer",
    "RenyiOdometerState",
    "Result",
    "Source",
    "SparseVector",
    "approximate_epsilon",
    "bayes_factor",
    "brownian",
    "brownian_step",
    "compose",
    "compose_until",
    "convert",
    "ex_ante",
    "excess",
    "excess_of_pair",
    "from_odometer",
    "laplace_reduction",
    "plain_gaussian_scale",
    "post_process",
    "post_processed_table",
    "precision_weighted",
    "release_until",
    "sparse_vector_scales",
    "stopped_by",
]
