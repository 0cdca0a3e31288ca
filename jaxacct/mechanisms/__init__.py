"""What an analyst runs: one family a file, parameters as pytree leaves."""

from jaxacct.mechanisms.composed import Composed
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.laplace import Laplace
from jaxacct.mechanisms.mixture import MixtureOfGaussians
from jaxacct.mechanisms.sampling import PoissonSampled
from jaxacct.mechanisms.selection import Exponential, PermuteAndFlip
from jaxacct.mechanisms.without_replacement import SampledWithoutReplacement

__all__ = [
    "Composed",
    "Exponential",
    "Gaussian",
    "Laplace",
    "MixtureOfGaussians",
    "PermuteAndFlip",
    "PoissonSampled",
    "SampledWithoutReplacement",
]
