"""`Statement`: what a run or a ledger guarantees, in paragraphs to sign and as a file that `verify` takes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from typing import Any

from jaxacct._types import Fields

VERSION = 1
UNKNOWN = "unknown"
_NUMBER = {"type": ["number", "null"]}
_TEXT = {"type": ["string", "null"]}
_OBJECT = {"type": ["object", "null"]}
FIELDS: dict[str, tuple[Fields, str]] = {
    "statement": ({"const": VERSION}, "version of this format"),
    "unit": ({"type": "string"}, "the unit of privacy"),
    "relation": ({"type": "string"}, "what neighbouring data sets differ in"),
    "sampler": (_TEXT, "how batches must have been drawn; null without sampling"),
    "theorem": ({"type": "string"}, "why the numbers hold, with assumptions"),
    "adaptive": ({"type": "boolean"}, "whether it holds however the queries reacted to results"),
    "is_bound": ({"type": "boolean"}, "true for a proven bound"),
    "epsilon": (_NUMBER, "an upper bound at delta; null where none is proven"),
    "delta": ({"type": "number"}, "the failure probability"),
    "mu": (_NUMBER, "the whole is mu-GDP up to a delta of 1e-10, as `gdp_summary` says; null where no mu is"),
    "steps": ({"type": ["integer", "null"]}, "steps or admitted requests"),
    "records": ({"type": ["integer", "null"]}, "number of records, public"),
    "noise": ({"type": ["array", "null"]}, "least and largest noise multiplier"),
    "rate": ({"type": ["array", "null"]}, "least and largest sampling rate"),
    "clip": (_NUMBER, "norm to which each record's gradient was clipped, at first if it moved"),
    "others": ({"type": "object"}, "epsilons at delta under other assumptions, which the text names"),
    "public": ({"type": "array"}, "what was treated as public"),
    "made": ({"type": "object"}, "date, commit, versions, processor"),
    "source": ({"type": "object"}, "kind of what it is about; its arguments, its journal's seal or its ledger's head"),
    "certificate": (_OBJECT, "of epsilon in ball arithmetic, as `jaxacct certify` writes it"),
    "text": ({"type": "string"}, "the paragraphs"),
    "seal": ({"type": "string"}, "SHA-256 of everything else, which finds accidents and edits"),
}
"""Name: (its JSON schema, what it is)."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statement:
    """A guarantee in words and numbers; ``print`` it. The attributes are those of the file, `Statement.schema`."""

    unit: str
    relation: str
    sampler: str | None
    theorem: str
    adaptive: bool
    is_bound: bool
    epsilon: float | None
    delta: float
    mu: float | None = None
    steps: int | None = None
    records: int | None = None
    noise: list[float] | None = None
    rate: list[float] | None = None
    clip: float | None = None
    others: dict[str, float]
    public: list[str]
    made: dict[str, Any]
    source: Fields
    certificate: Fields | None = None
    text: str = ""

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> str:
        """The statement as a file, sealed, for `read_statement`."""
        held = {"statement": VERSION, **dataclasses.asdict(self)}
        return json.dumps(held | {"seal": seal_of(held)}, indent=1, allow_nan=False)

    @staticmethod
    def schema() -> Fields:
        """The JSON schema (2020-12) of the file."""
        properties = {name: {**kind, "description": words} for name, (kind, words) in FIELDS.items()}
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "jaxacct statement",
            "type": "object",
            "properties": properties,
            "required": list(FIELDS),
            "additionalProperties": False,
        }

    def registry(self) -> dict[str, Fields]:
        """What a public registry asks for, "unknown" where only its curator can tell.

        The fields are those of the registry of deployments (its three tiers of transparency; Nanayakkara, Ghazi, Vadhan
        2025, arXiv 2509.13509) and the levels of the pyramid of NIST SP 800-226.
        """
        versions = [self.made.get(name, UNKNOWN) for name in ("jaxacct", "jax")]
        parameters = {"epsilon": self.epsilon, "delta": self.delta, "mu": self.mu}
        flavor = "approximate differential privacy" if self.delta else "pure differential privacy"
        if not self.is_bound:
            flavor += ", asymptotic: no proven bound"
        composition = (
            "fully adaptive, by a privacy filter" if self.adaptive else "non-adaptive: fixed before any data were used"
        )
        mechanisms = f"Gaussian, noise multiplier {spread(self.noise)}" if self.noise else UNKNOWN
        return {
            "registry of deployments": {
                "tier 1": {
                    name: UNKNOWN
                    for name in ("name", "data curator", "intended use", "data product", "data product region")
                }
                | {"publication date": UNKNOWN},
                "tier 2": {
                    "flavor of differential privacy": flavor,
                    "neighbouring data sets": self.relation,
                    "privacy unit": self.unit,
                    "privacy loss parameters": parameters,
                    "deployment model": "central: the curator holds the records",
                },
                "tier 3": {
                    "data domain": UNKNOWN,
                    "unprotected quantities": self.public,
                    "description of the privacy unit": f"{self.unit}; whether a person has several is {UNKNOWN}",
                    "composition": composition,
                    "post-processing": UNKNOWN,
                    "mechanisms": mechanisms,
                    "sampling": self.sampler or "none",
                    "implementation": f"jaxacct {versions[0]}, JAX {versions[1]}",
                    "source code": self.made.get("commit") or UNKNOWN,
                    "justification of the parameters": UNKNOWN,
                    "security and access control": UNKNOWN,
                },
            },
            "NIST SP 800-226": {
                "privacy parameters": parameters,
                "unit of privacy": self.unit,
                "variant": flavor,
                "neighbouring relation": self.relation,
                "algorithm": mechanisms,
                "composition": composition,
                "trust model": "central",
                "query model": "interactive" if self.adaptive else "fixed in advance",
                "utility": UNKNOWN,
                "bias": UNKNOWN,
                "mechanism implementation": "certified accounting; noise in floating point from JAX's generator",
                "side channels": UNKNOWN,
                "data security and access control": UNKNOWN,
                "data collection exposure": UNKNOWN,
            },
        }


def read_statement(text: str) -> Statement:
    """The statement in a file that `Statement.to_json` wrote.

    Raises:
        ValueError: no statement, fields of other types, or a seal that does not fit.
    """
    try:
        held = json.loads(text)
        if not isinstance(held, dict) or held.get("statement") != VERSION:
            raise ValueError(f"its version must be {VERSION}")
        for name, (kind, _) in FIELDS.items():
            if name not in held:
                raise ValueError(f"it lacks {name!r}")
            if "type" in kind and not _is(held[name], kind["type"]):
                raise ValueError(f"{name} must be of type {kind['type']}, got {held[name]!r:.80}")
        if set(held) - set(FIELDS):
            raise ValueError(f"it holds {sorted(set(held) - set(FIELDS))[0]!r}, which no statement has")
        if held["seal"] != seal_of(held):
            raise ValueError("its seal does not fit: it was edited or damaged")
    except (ValueError, RecursionError) as problem:
        raise ValueError(f"statement must be what Statement.to_json wrote: {problem!s:.200}") from None
    return Statement(**{name: held[name] for name in held if name not in ("statement", "seal")})


def seal_of(tree: Fields) -> str:
    """SHA-256 of everything but the seal itself: it finds accidents and edits, not somebody who seals anew."""
    text = json.dumps({key: value for key, value in tree.items() if key != "seal"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def spread(ends: list[float]) -> str:
    """A range of numbers in words."""
    low, high = ends
    return f"{low:.6g}" if low == high else f"{low:.6g} to {high:.6g}"


def least_mu(mechanism: Any, steps: int = 1) -> float | None:
    """The least mu found for a mechanism or a guarantee, as `FIELDS` says; None where there is none."""
    from jaxacct.summaries.gdp import gdp_summary

    found = float(gdp_summary(mechanism, steps=steps).mu.upper)
    return found if math.isfinite(found) else None


_TYPES = {"string": str, "number": (int, float), "integer": int, "boolean": bool, "object": dict, "array": list}


def _is(value: object, wanted: str | list[str]) -> bool:
    names = [wanted] if isinstance(wanted, str) else wanted
    if value is None:
        return "null" in names
    if isinstance(value, bool):
        return "boolean" in names
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return any(isinstance(value, _TYPES[name]) for name in names if name != "null")
