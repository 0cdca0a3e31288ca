"""Mechanisms and exact numbers as JSON and back."""

from __future__ import annotations

import dataclasses
import decimal
import json
from fractions import Fraction
from typing import Any

import numpy as np

from jaxacct import mechanisms
from jaxacct._types import Fields
from jaxacct.certificates.balls import arb
from jaxacct.mechanisms.base import Mechanism


def written_mechanism(mechanism: object) -> object:
    """``mechanism`` as JSON's types; floats are written so that they come back as they were."""
    if isinstance(mechanism, Mechanism):
        fields = {f.name: written_mechanism(getattr(mechanism, f.name)) for f in dataclasses.fields(mechanism)}  # pyright: ignore[reportArgumentType]
        return {
            "mechanism": type(mechanism).__name__,
            **{"of" if k == "mechanism" else k: v for k, v in fields.items()},
        }
    if isinstance(mechanism, tuple | list):
        return [written_mechanism(part) for part in mechanism]
    array = np.asarray(mechanism)
    return array.astype(np.float64).tolist() if array.dtype.kind == "f" else array.tolist()


def read_mechanism(written: object) -> Any:
    """The mechanism that was written."""
    if isinstance(written, list):
        return tuple(read_mechanism(part) for part in written)
    if not isinstance(written, dict):
        return written
    name = written.get("mechanism")
    kind = getattr(mechanisms, name, None) if isinstance(name, str) and name in mechanisms.__all__ else None
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"certificate holds {name!r:.100}, which is no mechanism")
    fields = {("mechanism" if k == "of" else k): read_mechanism(v) for k, v in written.items() if k != "mechanism"}
    try:
        return kind(**fields)
    except TypeError as problem:
        raise ValueError(f"certificate holds a {name} of other parameters: {problem}") from None


def _unique_names(pairs: list[tuple[str, object]]) -> Fields:
    """The object of a JSON text; raises ValueError where a name occurs twice, of which readers take the last one."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("it holds a name twice in one object")
    return found


def same_json(text: str) -> object:
    """A value that two JSON texts share if they state the same, in exact numbers; no number equals a truth value.

    Raises:
        ValueError: a text that is no JSON, or holds a name twice.
    """

    def number(text: str) -> tuple[str, object]:
        return "number", decimal.Decimal(text)

    return json.loads(
        text, object_pairs_hook=_unique_names, parse_float=number, parse_int=number, parse_constant=lambda text: (text,)
    )


def fraction_of(value: str | float | Fraction | arb) -> Fraction:
    """The exact number of a decimal text, a float or an exact ball."""
    if isinstance(value, str | int | float | Fraction):
        return Fraction(value)
    mantissa, exponent = value.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def decimal_text(value: float | Fraction | arb, digits: int, *, up: bool) -> str:
    """A decimal number of so many digits, not below (or not above) the exact one."""
    exact = fraction_of(value)
    rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
    context = decimal.Context(prec=digits, rounding=rounding, Emin=-(10**9), Emax=10**9)
    return str(context.divide(decimal.Decimal(exact.numerator), decimal.Decimal(exact.denominator)))
