"""What an analyst runs: one family a file, parameters as pytree leaves."""

from jaxacct.mechanisms.composed import Composed
from jaxacct.mechanisms.gaussian import Gaussian
from jaxacct.mechanisms.sampling import PoissonSampled

__all__ = ["Composed", "Gaussian", "PoissonSampled"]
