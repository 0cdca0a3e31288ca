"""Certificates: answers of the accountant, found again in ball arithmetic by a path that shares no code with it.

`certify` encloses delta or epsilon with Arb's balls, from the exact rational numbers that parameters are; a
`Certificate` says how, is written as JSON, and checks itself. It needs python-flint (the extra ``certify``). This room
reads the parameters of :mod:`jaxacct.mechanisms` and imports nothing else that computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxacct._on_demand import on_demand

if TYPE_CHECKING:
    from jaxacct.certificates.certificate import Certificate, certify, read_certificate
    from jaxacct.certificates.limits import NoCertificateError

__all__ = ["Certificate", "NoCertificateError", "certify", "read_certificate"]

__getattr__, __dir__ = on_demand(__name__, {"flint": "needs python-flint: pip install 'jaxacct[certify]'"})
