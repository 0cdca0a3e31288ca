"""Accuracy-first privacy: release with a growing budget until the result is accurate, and account for what it cost.

`release_until` is the loop: a source (`Brownian` and its like) releases a private value with growing budgets, a check
(`SparseVector` and its like) says when to stop, and what comes back is an `ExPostResult`: the output, its epsilon, and
the definition of ex-post privacy under which that epsilon counts. :mod:`.reduction` and :mod:`.scales` have the noise
by itself; :mod:`.exact` decides the definitions exactly on finite tables.
"""

from jaxacct.expost import exact as exact  # a namespace, as `reduction` and `scales` are
from jaxacct.expost.checks import AboveThreshold, PlainGaussian, PublicScore, SparseVector
from jaxacct.expost.conversions import approximate_epsilon, bayes_factor
from jaxacct.expost.definitions import (
    ApproximateExPost,
    ExPostResult,
    GDPExPost,
    ProbabilisticExPost,
    PureExPost,
    RenyiExPost,
    ZCDPExPost,
    post_process,
)
from jaxacct.expost.odometer import RenyiOdometer
from jaxacct.expost.release import compose_until, release_until
from jaxacct.expost.sources import Brownian, Doubling, GumbelReduction, LaplaceReduction, PrecisionWeighted
from jaxacct.expost.theorems import compose, convert, ex_ante, stopped_by

__all__ = [
    "AboveThreshold",
    "ApproximateExPost",
    "Brownian",
    "Doubling",
    "ExPostResult",
    "GDPExPost",
    "GumbelReduction",
    "LaplaceReduction",
    "PlainGaussian",
    "PrecisionWeighted",
    "ProbabilisticExPost",
    "PublicScore",
    "PureExPost",
    "RenyiExPost",
    "RenyiOdometer",
    "SparseVector",
    "ZCDPExPost",
    "approximate_epsilon",
    "bayes_factor",
    "compose",
    "compose_until",
    "convert",
    "ex_ante",
    "post_process",
    "release_until",
    "stopped_by",
]
