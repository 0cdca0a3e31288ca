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
from jaxacct.mechanisms.sampling import PoissonSampled
from jaxacct.mechanisms.selection import Exponential, PermuteAndFlip
from jaxacct.mechanisms.shuffled import Shuffled
from jaxacct.mechanisms.skellam import Skellam
from jaxacct.mechanisms.tables import FromTables
from jaxacct.mechanisms.truncated_poisson import TruncatedPoisson
from jaxacct.mechanisms.user_level import UserLevel
from jaxacct.mechanisms.with_replacement import SampledWithReplacement
from jaxacct.mechanisms.without_replacement import SampledWithoutReplacement

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
