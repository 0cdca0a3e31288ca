"""Lists the types that a ledger can write down and read back. A file names types; it never names modules."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from jaxacct import mechanisms

_MODULES = {
    "jaxacct.mechanisms": " ".join(mechanisms.__all__),
    "jaxacct.filters.additive.approximate_gdp": "ApproximateGDPFilter",
    "jaxacct.filters.additive.gdp": "GDPFilter",
    "jaxacct.filters.additive.pure_dp": "PureDPFilter",
    "jaxacct.filters.additive.renyi": "RenyiFilter",
    "jaxacct.filters.additive.renyi_any": "AnyOrderFilter",
    "jaxacct.filters.additive.zcdp": "ApproximateZCDPFilter ZCDPFilter",
    "jaxacct.filters.odometer": "Odometer",
    "jaxacct.filters.prices.closed_form_filter": "ClosedFormFilter",
    "jaxacct.filters.prices.table": "TableFilter",
    "jaxacct.filters.residues.gdp_residue": "GDPResidueFilter",
    "jaxacct.filters.residues.natural": "NaturalFilter _Declared",
    "jaxacct.filters.residues.prepare": "Prepared",
    "jaxacct.filters.residues.undeclared": "UndeclaredNaturalFilter",
    "jaxacct.adversary.filters.additive_profile": "AdditiveProfileFilter",
    "jaxacct.adversary.filters.natural_approximate_dp": "NaturalApproximateDPFilter",
    "jaxacct.losses.grids.grid": "LossGrid",
    "jaxacct.losses.curves.pld": "PLD",
    "jaxacct.losses.curves.profile": "PrivacyProfile",
    "jaxacct.losses.curves.trade_off": "TradeOff",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}
_REGISTERED: dict[str, type] = {}


def register(cls: type) -> type:
    """Lets ledgers hold a dataclass of your own, a filter or a mechanism, under its bare name; a decorator.

    Every process that opens such a ledger has to register the same class first. Its fields must be numbers, arrays,
    strings, None, sequences of those, or registered dataclasses.

    Raises:
        ValueError: no dataclass, or a name that is taken.
    """
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise ValueError(f"cls must be a dataclass, got {cls!r}")
    name = cls.__name__
    if name in _HOME or _REGISTERED.get(name, cls) is not cls:
        raise ValueError(f"cls must have a name that is not taken, got {name}")
    _REGISTERED[name] = cls
    return cls


def class_of(name: str) -> type | None:
    """The type that a ledger means by ``name``; None for a name that is not registered."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    return _REGISTERED.get(name)


def name_of(cls: type) -> str | None:
    """The name that a ledger has for ``cls`` itself; None for a type (a subclass, say) that is not registered."""
    name = cls.__name__
    return name if class_of(name) is cls else None


def fields_of(value: Any) -> dict[str, object]:
    """The fields of a registered dataclass, shallow, in the order of their declaration.

    A field with the metadata ``written=False`` is left out, and has its default in what is read back.
    """
    kept = [field.name for field in dataclasses.fields(value) if field.init and field.metadata.get("written", True)]
    return {name: getattr(value, name) for name in kept}
