"""What filters guarantee: a parameter of a known curve, or a whole privacy profile."""

from jaxacct.filters.guarantees.of_parameters import (
    ParameterGuarantee,
    of_any_order,
    of_gdp,
    of_pure_dp,
    of_renyi,
    of_zcdp,
)
from jaxacct.filters.guarantees.of_profiles import ProfileGuarantee, certified, raised

__all__ = [
    "ParameterGuarantee",
    "ProfileGuarantee",
    "certified",
    "of_any_order",
    "of_gdp",
    "of_pure_dp",
    "of_renyi",
    "of_zcdp",
    "raised",
]
