"""Exact integer counters of a spent budget, identical in float32 and float64 programs.

An account counts in units of 2^-88 of its own budget, in three uint32 words, most significant first. A cost
becomes a whole number of units rounded up, and at least one, so no sum is ever under-counted: 10^9 additions
of 1e-9 arrive, a query too small to tell from zero is charged, and no cost is absorbed by a large sum.
Rounding a cost up loses less than 2^-49 of it plus one unit.

Two rules settle what happens at the very end of a budget.

* `WITH_SLACK` admits up to (1 + 2^-40) times the budget, so that n queries of which each is "a n-th of the
  budget" in floating point fit n times. A filter that uses it must count the slack in the guarantee it
  quotes.
* `EXACT` admits up to the budget and not a unit more; a filter that spends remainders uses it, and forfeits a
  remainder below `DUST` = 2^-40 of the budget: a release with such a remainder would be noise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import at_hand, floats, on_device, on_host
from jaxacct._numerics.pieces import join, split_exact
from jaxacct._numerics.rounding import inflated
from jaxacct.filters.printing import share

P = ParamSpec("P")
T = TypeVar("T")

_WORD = 1 << 32
_UNIT_BITS = 88

SLACK = 2.0**-40
DUST = 2.0**-40
EXACT = 1 << _UNIT_BITS
WITH_SLACK = EXACT + (1 << (_UNIT_BITS - 40))


class SpentState(NamedTuple):
    """What a scan carries: the units spent so far, uint32[..., 3], most significant word first; the filter's mark."""

    words: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"SpentState({share(used(self)) if at_hand(self.words) else self.words})"


# Budgets pass through float32 programs as three float32 pieces whose exact sum they are: a plain Python float
# that enters a float32 jit as an argument would come out rounded, up half of the time.


def check_budget(**named: ArrayLike) -> None:
    """Raises ValueError unless every concrete value is a number that the pieces represent exactly."""
    _validate.positive(**named)
    for name, value in named.items():
        if not _validate.is_traced(value):
            array = np.asarray(value, np.float64)
            if np.any((array < 1e-18) | (array > 1e30)):
                raise ValueError(f"{name} must be between 1e-18 and 1e30, got {value}")


@in_float64
def split(value: ArrayLike) -> Array:
    """``value`` as float32[..., 3] whose exact sum it is; NaN, which no query fits, where it is no budget."""
    return on_device(pieces_of(value))


def pieces_of(value: ArrayLike) -> Array:
    """`split` in the module of ``value`` (inside ``enable_x64``)."""
    xp, number = floats(value)
    return split_exact(xp.where((number >= 1e-18) & (number <= 1e30), number, np.nan))


def exact(field: str) -> property:
    """A property of a filter: the float64 number whose pieces are in ``field``."""
    return property(jax.enable_x64(True)(lambda self: join(getattr(self, field))))


def empty(pieces: Array) -> SpentState:
    """Nothing spent, for a budget (or an array of them) in pieces."""
    return SpentState(on_device(np.zeros(pieces.shape, np.uint32)))


def _units(share: Array) -> tuple[Array, Array, Array]:
    """``share`` of the budget, below 2^40, in units, rounded up: three uint64 words, the last of which may carry."""
    scaled = jnp.maximum(share, 2.0**-_UNIT_BITS) * 2.0 ** (_UNIT_BITS - 64)
    high = jnp.floor(scaled)
    rest = (scaled - high) * _WORD  # exact, as every product with a power of two and every fractional part
    middle = jnp.floor(rest)
    low = jnp.ceil((rest - middle) * _WORD)
    return high.astype(jnp.uint64), middle.astype(jnp.uint64), low.astype(jnp.uint64)


def _top_and_low(words: Array) -> tuple[Array, Array]:
    if getattr(words, "dtype", None) != np.uint32 or words.shape[-1:] != (3,):
        raise ValueError(f"state must hold three uint32 words, as init made them, got {words!r:.200}")
    wide = words.astype(np.uint64)
    return (wide[..., 0] << 32) | wide[..., 1], wide[..., 2]


def check_covered(accounts: tuple[int, ...], query: tuple[int, ...], budget: tuple[int, ...] = ()) -> None:
    """Raises ValueError unless the shapes of a query's cost and of the budget broadcast to that of the accounts."""
    try:
        covered = np.broadcast_shapes(accounts, query, budget) == accounts
    except ValueError:
        covered = False
    if not covered:
        raise ValueError(
            f"query must match the state: its cost has shape {query}, the budget {budget}, and the state holds "
            f"accounts of shape {accounts}; run queries one by one (jax.lax.scan) or map over both (jax.vmap)"
        )


def charge(state: SpentState, cost: Array, budget: Array, limit: int) -> tuple[Array, SpentState]:
    """Whether ``cost`` (in the units of ``budget``) still fits, and the account with it charged regardless.

    Inside ``enable_x64``. A cost or budget that is NaN, negative or infinite does not fit; nothing fits into a state
    that says that more than the limit is spent.
    """
    cost, budget = jnp.asarray(cost, jnp.float64), jnp.asarray(budget, jnp.float64)
    top, low = _top_and_low(state.words)
    shape = state.words.shape[:-1]
    check_covered(shape, cost.shape, budget.shape)
    # The margin covers the roundings of a filter's cost formula and of this quotient.
    share = inflated(cost / budget, 2.0**-49)
    most = jnp.uint64(limit >> 32)  # of either limit the last word is 0
    # No filter spends more than its limit; words that say so were damaged, and a sum with them might wrap. Nor may the
    # sum of a limit and a cost: words hold less than 256 budgets.
    once = max(2, (limit >> _UNIT_BITS) - 1)
    sane = (cost >= 0) & (budget > 0) & (budget < jnp.inf) & (share <= once) & (top <= most)
    high, middle, last = _units(jnp.where(sane, share, 0.0))
    low = low + last
    top = top + (high << 32) + middle + (low >> 32)
    low = low & (_WORD - 1)
    fits = sane & ((top < most) | ((top == most) & (low == 0)))
    words = jnp.stack([top >> 32, top & (_WORD - 1), low], axis=-1).astype(jnp.uint32)
    return fits, SpentState(words)


def _share(top: Array, low: Array, toward: float) -> Array:
    """top * 2^32 + low units as a share of the budget, off the exact value only ``toward`` one side."""
    xp = array_module(top, low)
    share = (top.astype(np.float64) * _WORD + low.astype(np.float64)) * 2.0**-_UNIT_BITS
    exact = (low == 0) & (top.astype(np.float64).astype(top.dtype) == top)
    return xp.where(exact, share, share * toward)


def left(state: SpentState) -> Array:
    """The share of the budget that is left, float64, rounded down, at least 0."""
    top, low = _top_and_low(on_host(state.words))
    xp = array_module(top, low)
    top, low = xp.minimum(top, (EXACT >> 32) + 1).astype(np.int64), low.astype(np.int64)
    return xp.maximum(_share((EXACT >> 32) - top, -low, 1 - 2.0**-51), 0.0)


def used(state: SpentState) -> Array:
    """The share of the budget that is spent, float64, rounded up."""
    return _share(*_top_and_low(on_host(state.words)), 1 + 2.0**-51)


def full(state: SpentState) -> SpentState:
    """The account with its whole budget spent."""
    words = np.array([EXACT >> 64, 0, 0], np.uint32)
    return SpentState(on_device(np.broadcast_to(words, state.words.shape)))


def caller_dtype() -> str:
    """The float type of the surrounding program; call it before entering ``enable_x64``."""
    return str(jnp.result_type(float))


def rounded(*, up: bool) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Runs a function in float64 and rounds what it returns up or down to the float type of the calling program."""

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def inner(*args: P.args, **kwargs: P.kwargs) -> T:
            dtype = caller_dtype()
            with jax.enable_x64(True):
                return jax.tree.map(functools.partial(outward, dtype=dtype, up=up), function(*args, **kwargs))

        return inner

    return wrap


def outward(value: Array, dtype: str, *, up: bool) -> Array:
    """A float64 ``value`` in ``dtype``, rounded up or down, so that a float32 program sees the safe side of it."""
    if dtype == "float64" or value.dtype != np.float64:
        return on_device(value)
    xp = array_module(value)
    narrow = value.astype(np.float32)
    back = narrow.astype(np.float64)
    wrong, towards = (back < value, np.inf) if up else (back > value, -np.inf)
    return on_device(xp.where(wrong, xp.nextafter(narrow, np.float32(towards)), narrow))
