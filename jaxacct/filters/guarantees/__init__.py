"""What filters guarantee: a parameter of a known curve, or a whole privacy profile."""

from jaxacct.filters.guarantees.of_parameters import (
    OF_GDP,
    OF_PURE_DP,
    OF_ZCDP,
    Curve,
    ParameterGuarantee,
    of_any_order,
    of_renyi,
)
from jaxacct.filters.guarantees.of_profiles import ProfileGuarantee, certified, raised

__all__ = [
    "OF_GDP",
    "OF_PURE_DP",
    "OF_ZCDP",
    "Curve",
    "ParameterGuarantee",
    "ProfileGuarantee",
    "certified",
    "of_any_order",
    "of_renyi",
    "raised",
]
