"""A run's filter as a file beside its journal, so that a stranger can ask it again, and the filter's fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxacct._files import is_regular, replace
from jaxacct._types import Fields
from jaxacct.filters.base import ExamplesFilter
from jaxacct.filters.marks import belongs
from jaxacct.ledger import LedgerError, canonical

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter

FILE = "filter.json"
RELATION = "add_or_remove"
_DELTA = 1e-5
_MOST = 2**28  # bytes


def write(filter: Filter, folder: Path) -> None:
    """Writes ``filter`` into ``folder``; nothing where no file can hold it, as `verify` then says."""
    text = _text(filter)
    if text is not None:
        replace(folder / FILE, text.encode("ascii"))


def read(folder: Path) -> Any:
    """The filter in ``folder``; None if there is none.

    Raises:
        ValueError: a file that holds no filter.
    """
    path = folder / FILE
    if not is_regular(path):
        return None
    if path.stat().st_size > _MOST:
        raise ValueError(f"{FILE} has {path.stat().st_size} bytes: no filter has so many")
    try:
        return canonical.decoded(canonical.loads(path.read_text(encoding="ascii")))
    except (LedgerError, ValueError) as problem:
        raise ValueError(f"{FILE} holds no filter: {problem!s:.200}") from None


def promise(filter: Filter, delta: object = None) -> Fields:
    """What a filter promises for a whole run, in words and numbers: for ``settings``, and for people.

    ``delta`` is where epsilon is quoted; without it, the filter's own delta, or 1e-5 for one that has none.
    """
    guarantee = getattr(filter, "guarantee", None)
    if guarantee is None:
        return {"filter": repr(filter)}
    if delta is None:
        own = getattr(filter, "target", (None, getattr(filter, "delta", _DELTA)))[1]
        delta = float(np.asarray(own)) if np.ndim(own) == 0 and 0 < np.asarray(own) < 1 else _DELTA
    found = np.asarray(guarantee.epsilon(delta))
    return {
        "filter": repr(filter),
        "epsilon": float(found.max()),
        "delta": delta,
        "relation": RELATION,
        "is_bound": bool(guarantee.is_bound),
        "theorem": guarantee.statement,
    }


def fingerprint(filter: object) -> str:
    """A digest of the filter's type, its static fields and every number in it."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(filter)]
    if not leaves or any(leaf.dtype.hasobject for leaf in leaves):
        raise ValueError(f"filter must be a pytree of arrays, as those of jaxacct.filters are, got {filter!r}")
    found = hashlib.sha256(repr(_static(filter)).encode())
    for leaf in leaves:
        found.update(f"|{leaf.dtype.str}{leaf.shape}|".encode() + leaf.tobytes())
    return found.hexdigest()


def _static(part: object) -> object:
    if not dataclasses.is_dataclass(part):
        return str(jax.tree.structure(part))  # whose array a leaf is does not matter
    fields = [field for field in dataclasses.fields(part) if field.metadata.get("written", True)]
    static = [(f.name, getattr(part, f.name)) for f in fields if f.metadata.get("static")]
    inner = [(f.name, _static(getattr(part, f.name))) for f in fields if not f.metadata.get("static")]
    return type(part).__name__, static, inner


def _text(filter: Filter) -> str | None:
    """The filter as text; None for one with a budget for each example, or that cannot be read back as it is."""
    if isinstance(filter, ExamplesFilter):
        return None
    try:
        text = canonical.dumps(canonical.encoded(filter, "filter"))
        back = canonical.decoded(canonical.loads(text))
        same = fingerprint(back) == fingerprint(filter) and bool(np.all(belongs(back, filter.init())))
    except (LedgerError, ValueError):
        return None
    return text if same else None
