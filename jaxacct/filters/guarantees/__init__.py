"""What filters guarantee: a parameter of a known curve, or a whole privacy profile."""

from jaxacct.filters.guarantees.of_parameters import (
    AnyOrderGuarantee,
    GDPGuarantee,
    PureDPGuarantee,
    RenyiGuarantee,
    ZCDPGuarantee,
)
from jaxacct.filters.guarantees.of_profiles import ProfileGuarantee, certified, raised

__all__ = [
    "AnyOrderGuarantee",
    "GDPGuarantee",
    "ProfileGuarantee",
    "PureDPGuarantee",
    "RenyiGuarantee",
    "ZCDPGuarantee",
    "certified",
    "raised",
]
