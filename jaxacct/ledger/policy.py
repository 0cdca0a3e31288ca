"""Runs a ledger's filter: writes it and its state as text, and decides queries, bit for bit the same everywhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.filters.base import ExamplesFilter, Filter
from jaxacct.filters.marks import belongs
from jaxacct.filters.residues.any_family import ResidueFilter
from jaxacct.ledger import canonical
from jaxacct.ledger.errors import LedgerCorrupted


@contextlib.contextmanager
def reproducible() -> Iterator[None]:
    """Float64, compiled, on the CPU: what a program has set for itself changes no bit of what a ledger holds."""
    with contextlib.ExitStack() as settings:
        settings.enter_context(jax.enable_x64(True))
        settings.enter_context(jax.disable_jit(False))
        if jax.default_backend() != "cpu" or getattr(jax.config, "jax_default_device", None) is not None:
            with contextlib.suppress(RuntimeError):  # a JAX that was told of no CPU
                settings.enter_context(jax.default_device(jax.local_devices(backend="cpu")[0]))
        yield


class State(NamedTuple):
    """A filter's state, its text and the text's SHA-256."""

    value: PyTree
    text: str
    digest: str


class Policy:
    """A filter that was written down and read back: the one that every process of a ledger runs, bit for bit."""

    def __init__(self, identity: object) -> None:
        self.identity = identity
        self.digest = canonical.digest(canonical.dumps(identity))
        self.filter: Filter = canonical.decoded(identity)
        with reproducible():
            self.start = self._written(self.filter.init())

    @classmethod
    def of(cls, filter: Filter) -> Policy:
        """The policy of a filter; raises ValueError for one that no ledger can hold."""
        if isinstance(filter, ExamplesFilter):
            raise ValueError(
                f"filter must have one budget, charged without a look at the data, got {type(filter).__name__}, whose "
                "ledgers are one for each example and as private as the data: keep its state in a private checkpoint, "
                "and none of it in a ledger that others read"
            )
        if isinstance(filter, ResidueFilter):
            raise ValueError(
                "filter must be one that a ledger can write down, got ResidueFilter, which holds functions: make the "
                "ledger for filters.gdp_residue (any query), filters.menu (a list) or filters.sampled_gaussian "
                "(sampled Gaussians of a range)"
            )
        identity = canonical.encoded(filter, "filter")
        _validate.methods("init", "update", "spent", "remaining", "fraction", filter=filter)
        found = cls(identity)
        shape = np.shape(found.filter.fraction(found.start.value))
        if shape:
            raise ValueError(f"filter must have one budget, got a batch of shape {shape}: make a ledger for each")
        return found

    def state(self, text: str) -> State:
        """The state that a text holds."""
        leaves, structure = jax.tree.flatten(self.start.value)
        found = canonical.decoded(canonical.loads(text)) if isinstance(text, str) else None
        if not isinstance(found, tuple) or [_kind(leaf) for leaf in found] != [_kind(leaf) for leaf in leaves]:
            raise LedgerCorrupted("the head's state is not a state of this ledger's filter")
        value = jax.tree.unflatten(structure, found)
        if not belongs(self.filter, value):
            raise LedgerCorrupted("the head's state is another filter's: it does not carry the mark of this ledger's")
        return State(value, text, canonical.digest(text))

    def decide(self, query: object, state: State) -> tuple[bool, State]:
        """Whether ``query`` may run, and the state after it.

        Only what runs as it stands is admitted: no query with clipped contributions.
        """
        with reproducible():
            admitted, after = self.filter.update(query, state.value)
            if _validate.is_traced(admitted):
                raise ValueError("query must be asked for outside jit, scan and the like: a ledger is no part of them")
            answer = np.asarray(admitted)
            if answer.shape != () or answer.dtype != bool:
                raise ValueError(f"query must be a single one, got an answer of shape {answer.shape}")
            if not answer:
                return False, state
            return True, self._written(after)

    def _written(self, value: object) -> State:
        leaves, structure = jax.tree.flatten(value)
        arrays = [np.asarray(leaf) for leaf in leaves]
        text = canonical.dumps(canonical.encoded(arrays, "state"))
        return State(jax.tree.unflatten(structure, arrays), text, canonical.digest(text))


def _kind(leaf: ArrayLike) -> tuple[str, tuple[int, ...]]:
    array = np.asarray(leaf)
    return array.dtype.str, array.shape
