"""Certificates: answers of the accountant, found again in ball arithmetic by a path that shares no code with it.

`certify` encloses delta or epsilon with Arb's balls, from the exact rational numbers that parameters are; a
`Certificate` says how, is written as JSON, and checks itself. It needs python-flint (the extra ``certify``). This room
reads the parameters of :mod:`jaxacct.mechanisms` and imports nothing else that computes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxacct.certificates.certificate import Certificate, certify, read_certificate
    from jaxacct.certificates.limits import NoCertificateError

_HOME = {
    "Certificate": "certificate",
    "NoCertificateError": "limits",
    "certify": "certificate",
    "read_certificate": "certificate",
}

__all__ = ["Certificate", "NoCertificateError", "certify", "read_certificate"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jaxacct.certificates' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"jaxacct.certificates.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
