"""Mechanisms: frozen dataclasses whose parameters are pytree leaves, one family a file."""

from jaxacct.mechanisms.composed import Composed
from jaxacct.mechanisms.concentrated import RenyiDP, ZeroConcentratedDP
from jaxacct.mechanisms.discrete_gaussian import DiscreteGaussian
from jaxacct.mechanisms.discrete_laplace import DiscreteLaplace
from jaxacct.mechanisms.gaussian import GDP, Gaussian
from jaxacct.mechanisms.laplace import Laplace
from jaxacct.mechanisms.profile import FromProfile
from jaxacct.mechanisms.random_allocation import RandomAllocation
from jaxacct.mechanisms.random_sensitivity import RandomSensitivityGaussian
from jaxacct.mechanisms.randomized_response import ApproximateDP, PureDP, RandomizedResponse
from jaxacct.mechanisms.samples.poisson import PoissonSampled
from jaxacct.mechanisms.samples.shuffled import Shuffled
from jaxacct.mechanisms.samples.truncated_poisson import TruncatedPoisson
from jaxacct.mechanisms.samples.user_level import UserLevel
from jaxacct.mechanisms.samples.with_replacement import SampledWithReplacement
from jaxacct.mechanisms.samples.without_replacement import SampledWithoutReplacement
from jaxacct.mechanisms.selection import Exponential, PermuteAndFlip
from jaxacct.mechanisms.skellam import Skellam
from jaxacct.mechanisms.tables import FromTables

__all__ = [
    "GDP",
    "ApproximateDP",
    "Composed",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "FromProfile",
    "FromTables",
    "Gaussian",
    "Laplace",
    "PermuteAndFlip",
    "PoissonSampled",
    "PureDP",
    "RandomAllocation",
    "RandomSensitivityGaussian",
    "RandomizedResponse",
    "RenyiDP",
    "SampledWithReplacement",
    "SampledWithoutReplacement",
    "Shuffled",
    "Skellam",
    "TruncatedPoisson",
    "UserLevel",
    "ZeroConcentratedDP",
]
