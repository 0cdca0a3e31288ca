"""`Statement`: what a run or a ledger guarantees, in paragraphs to sign and as a file that `verify` takes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from dataclasses import field
from typing import Any

from jaxacct._types import Fields
from jaxacct.training.durable_runs.records import made

VERSION = 1
UNKNOWN = "unknown"


def _is(words: str) -> dict[str, str]:
    """What a field is, for the schema."""
    return {"description": words}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statement:
    """A guarantee in words and numbers; ``print`` it. The attributes are those of the file, `Statement.schema`."""

    unit: str = field(metadata=_is("the unit of privacy"))
    relation: str = field(metadata=_is("what neighbouring data sets differ in"))
    sampler: str | None = field(metadata=_is("how batches must have been drawn; null without sampling"))
    theorem: str = field(metadata=_is("why the numbers hold, with assumptions"))
    adaptive: bool = field(metadata=_is("whether it holds however the queries reacted to results"))
    is_bound: bool = field(metadata=_is("true for a proven bound"))
    epsilon: float | None = field(metadata=_is("an upper bound at delta; null where none is proven"))
    delta: float = field(metadata=_is("the failure probability"))
    mu: float | None = field(metadata=_is("the whole is mu-GDP up to a delta of 1e-10; null where no mu is"))
    steps: int | None = field(metadata=_is("steps or admitted requests"))
    records: int | None = field(default=None, metadata=_is("number of records, public"))
    noise: list[float] | None = field(default=None, metadata=_is("least and largest noise multiplier"))
    rate: list[float] | None = field(default=None, metadata=_is("least and largest sampling rate"))
    clip: float | None = field(default=None, metadata=_is("norm to which gradients were clipped, at first if it moved"))
    others: dict[str, float] = field(
        default_factory=dict, metadata=_is("epsilons under other assumptions, which the text names")
    )
    public: list[str] = field(metadata=_is("what was treated as public"))
    made: Fields = field(default_factory=made, metadata=_is("date, commit, versions, processor"))
    source: Fields = field(metadata=_is("its kind; its arguments, its journal's seal or its ledger's head"))
    certificate: Fields | None = field(default=None, metadata=_is("of epsilon, as `jaxacct certify` writes it"))
    text: str = field(default="", metadata=_is("the paragraphs"))

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> str:
        """The statement as a file, sealed, for `read_statement`."""
        held = {"statement": VERSION, **dataclasses.asdict(self)}
        return json.dumps(held | {"seal": seal_of(held)}, indent=1, allow_nan=False)

    @staticmethod
    def schema() -> Fields:
        """The JSON schema (2020-12) of the file."""
        properties: Fields = {"statement": {"const": VERSION, **_is("version of this format")}}
        for one in dataclasses.fields(Statement):
            types = [_JSON.get(part.partition("[")[0], "object") for part in str(one.type).split(" | ")]
            properties[one.name] = {"type": types if types[1:] else types[0], **one.metadata}
        properties["seal"] = {"type": "string", **_is("SHA-256 of everything else, which finds accidents and edits")}
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "jaxacct statement",
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }

    def registry(self) -> dict[str, Fields]:
        """What a public registry asks for, "unknown" where only its curator can tell.

        The fields are those of the registry of deployments (its three tiers of transparency; Nanayakkara, Ghazi, Vadhan
        2025, arXiv 2509.13509) and the levels of the pyramid of NIST SP 800-226.
        """
        parameters = {"epsilon": self.epsilon, "delta": self.delta, "mu": self.mu}
        flavor = "approximate differential privacy" if self.delta else "pure differential privacy"
        if not self.is_bound:
            flavor += ", asymptotic: no proven bound"
        composition = (
            "fully adaptive, by a privacy filter" if self.adaptive else "non-adaptive: fixed before any data were used"
        )
        mechanisms = f"Gaussian, noise multiplier {spread(self.noise)}" if self.noise else UNKNOWN
        software = [self.made.get(name, UNKNOWN) for name in ("jaxacct", "jax")]
        known = {
            "flavor of differential privacy": flavor,
            "neighbouring data sets": self.relation,
            "privacy unit": self.unit,
            "privacy loss parameters": parameters,
            "deployment model": "central: the curator holds the records",
            "unprotected quantities": self.public,
            "description of the privacy unit": f"{self.unit}; whether a person has several is {UNKNOWN}",
            "composition": composition,
            "mechanisms": mechanisms,
            "sampling": self.sampler or "none",
            "implementation": f"jaxacct {software[0]}, JAX {software[1]}",
            "source code": self.made.get("commit") or UNKNOWN,
            "privacy parameters": parameters,
            "unit of privacy": self.unit,
            "variant": flavor,
            "neighbouring relation": self.relation,
            "algorithm": mechanisms,
            "trust model": "central",
            "query model": "interactive" if self.adaptive else "fixed in advance",
            "mechanism implementation": "certified accounting; noise in floating point from JAX's generator",
        }
        filled = {place: {name: known.get(name, UNKNOWN) for name in names} for place, names in _REGISTRIES.items()}
        nist = filled.pop("NIST SP 800-226")
        return {"registry of deployments": filled, "NIST SP 800-226": nist}


# What registries ask for, by their tiers.
_REGISTRIES = {
    "tier 1": (
        "name", "data curator", "intended use", "data product", "data product region", "publication date",
    ),
    "tier 2": (
        "flavor of differential privacy", "neighbouring data sets", "privacy unit", "privacy loss parameters",
        "deployment model",
    ),
    "tier 3": (
        "data domain", "unprotected quantities", "description of the privacy unit", "composition", "post-processing",
        "mechanisms", "sampling", "implementation", "source code", "justification of the parameters",
        "security and access control",
    ),
    "NIST SP 800-226": (
        "privacy parameters", "unit of privacy", "variant", "neighbouring relation", "algorithm", "composition",
        "trust model", "query model", "utility", "bias", "mechanism implementation", "side channels",
        "data security and access control", "data collection exposure",
    ),
}  # fmt: skip
_JSON = {"str": "string", "float": "number", "int": "integer", "bool": "boolean", "list": "array", "None": "null"}
_TYPES = {"string": str, "number": (int, float), "integer": int, "boolean": bool, "object": dict, "array": list}


def read_statement(text: str) -> Statement:
    """The statement in a file that `Statement.to_json` wrote.

    Raises:
        ValueError: no statement, fields of other types, or a seal that does not fit.
    """
    try:
        held = json.loads(text)
        if not isinstance(held, dict) or held.get("statement") != VERSION:
            raise ValueError(f"its version must be {VERSION}")
        fields = Statement.schema()["properties"]
        if wrong := sorted(set(held) ^ set(fields)):
            raise ValueError(f"it {'holds' if wrong[0] in held else 'lacks'} {wrong[0]!r}")
        for name, kind in fields.items():
            if "type" in kind and not _fits(held[name], kind["type"]):
                raise ValueError(f"{name} must be of type {kind['type']}, got {held[name]!r:.80}")
        if held["seal"] != seal_of(held):
            raise ValueError("its seal does not fit: it was edited or damaged")
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"statement must be what Statement.to_json wrote: {problem!s:.200}") from None
    return Statement(**{name: held[name] for name in held if name not in ("statement", "seal")})


def seal_of(tree: Fields) -> str:
    """SHA-256 of everything but the seal itself: it finds accidents and edits, not somebody who seals anew."""
    text = json.dumps({key: value for key, value in tree.items() if key != "seal"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def spread(ends: list[float] | None) -> str:
    """A range of numbers in words."""
    if ends is None:
        return UNKNOWN
    low, high = ends
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def least_mu(mechanism: Any, steps: int = 1) -> float | None:
    """The least mu found for a mechanism or a guarantee, up to a delta of 1e-10; None where there is none."""
    from jaxacct.summaries.gdp import gdp_summary

    found = float(gdp_summary(mechanism, steps=steps).mu.upper)
    return found if math.isfinite(found) else None


def _fits(value: object, wanted: str | list[str]) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    if value is None:
        return "null" in names
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return any(isinstance(value, _TYPES[name]) for name in names if name != "null")
