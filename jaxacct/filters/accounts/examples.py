"""What individual filters share: checked norms, and one 32-bit counter for each example.

A word holds what an example has spent and, in its sign bit, whether it takes part in the step at hand. So a step reads
the norms and the words and writes the words, in place, and who takes part is read off them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import at_hand
from jaxacct.filters import amounts
from jaxacct.filters.marks import belongs, mark_of, row_of
from jaxacct.filters.reasons import PerExampleReasons
from jaxacct.filters.states import by_itself
from jaxacct.mechanisms import Gaussian, PoissonSampled

FLAG = np.int32(-(2**31))  # the sign bit
INFINITY = np.int32(0x7F800000)  # bits of the float32 infinity: what lies above are NaNs


class ExamplesState(NamedTuple):
    """What a run carries: one int32 word for each example, and one mark. As private as the data; see `per_example`."""

    words: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"ExamplesState(private accounts, shape {np.shape(self.words)})"


def looked_up(table: Array, row: Array) -> Array:
    """``table[row]`` for rows within the table, spread as ``row`` is."""
    sharding = jax.typeof(row).sharding
    spread = not sharding.mesh.empty and sharding.mesh.are_all_axes_explicit
    return jnp.asarray(table).at[row].get(mode="promise_in_bounds", out_sharding=sharding if spread else None)


def check_examples(examples: int) -> int:
    """``examples`` as a number of accounts."""
    _validate.whole(examples=examples)
    return int(examples)


def given_norms(norms: ArrayLike, examples: int) -> Array | np.ndarray:
    """Norms as an array, traced or not, before a compiled program sees them."""
    if not isinstance(norms, Array):  # JAX's are numbers, and may lie on devices of other processes
        _validate.numbers(norms=norms)
    found = norms if isinstance(norms, Array) else np.asarray(norms)
    if found.shape != (examples,) or not jnp.issubdtype(found.dtype, jnp.floating):
        raise ValueError(f"norms must be {examples} floats, one for each example, got {found.dtype}{found.shape}")
    return found


def settle_norms(norms: ArrayLike, examples: int) -> Array:
    """Norms as float32, none smaller than given (inside ``enable_x64``)."""
    found = jnp.asarray(given_norms(norms, examples))
    return amounts.outward(found, "float32", up=True) if found.dtype == "float64" else found.astype(jnp.float32)


def as_bits(value: Array) -> Array:
    """A float32 as int32: in the order of the numbers where both are at least 0; -0.0 and below are negative.

    Comparing bits is exact where a processor that flushes subnormal numbers to zero would call a norm nothing.
    """
    return jax.lax.bitcast_convert_type(value, jnp.int32)


def check_query(query: object, examples: int) -> None:
    """Raises ValueError unless ``query`` is one Gaussian for all, sampled or not, at one rate or one for each."""
    if isinstance(query, PoissonSampled):
        if np.shape(query.rate) not in ((), (examples,)):
            raise ValueError(f"rate must be one number or {examples}, got an array of shape {np.shape(query.rate)}")
        return check_query(query.mechanism, examples)
    if not isinstance(query, Gaussian):
        raise ValueError(f"query must be a Gaussian or a PoissonSampled one, got {type(query).__name__}")
    for name, value in (("sigma", query.sigma), ("sensitivity", query.sensitivity)):
        if np.shape(value):
            raise ValueError(f"{name} must be one number for everybody, got an array of shape {np.shape(value)}")


class PerExampleFilter(PerExampleReasons):
    """One budget for each example, one int32 word each.

    A subclass says what a word means: `_charged` and `_allowed` run inside one compiled program.
    """

    common: Any
    examples: int

    @property
    def _common(self) -> Any:
        return self.common

    def _identity(self) -> list[Array]:
        return [row_of(mark_of(self.common))]

    def init(self, sharding: jax.sharding.Sharding | None = None) -> ExamplesState:
        """The state in which nobody has spent anything.

        Args:
            sharding: a `jax.sharding.Sharding` of an array of shape ``(examples,)``: over which devices, or processes,
                the accounts are spread; each device then keeps its own part, and an update sends nothing around. It
                must divide the examples evenly: add examples of norm 0, which spend nothing.
        """
        return ExamplesState(jnp.zeros((self.examples,), jnp.int32, device=sharding))

    @by_itself
    def update(
        self, query: object, norms: ArrayLike, state: ExamplesState, *, donate: bool = False
    ) -> tuple[Array, ExamplesState]:
        """Who may take part (bool, shape ``(examples,)``) and the state after the step. Both are private.

        Every example is charged for its own clipped norm, whether it will be sampled or not; the class says how much.
        Norm 0 costs nothing.

        Args:
            query: what the class takes; ``sensitivity`` is the clip norm, in the unit of ``norms``.
            norms: of everybody's gradient at the current parameters, before or after clipping, shape ``(examples,)``;
                float64 is rounded up to float32. An example whose norm is NaN, infinite or negative takes no part.
            state: from `init` or `update`, with whatever sharding; the norms should have the same.
            donate: whether to write into the buffers of ``state``, which is then gone. (Inside a jitted function of
                the caller's nothing is donated but by that function.)

        Raises:
            ValueError: another type of query, or a query that the class does not take; norms or a state that are not
                one number for each example.
        """
        run = _update_in_place if donate else _update
        query, norms, own = self._asked(query), given_norms(norms, self.examples), belongs(self, state)
        if at_hand(own) and not own:
            return jnp.zeros((self.examples,), bool), state
        takes_part, words = run(self, query, norms, state.words, own)
        return takes_part, ExamplesState(words, state.mark)

    @by_itself
    def bounds(self, query: object, norms: ArrayLike, state: ExamplesState) -> Array:
        """The norm up to which each example may contribute to the step that ``state`` is *after*; 0 for nothing.

        Args:
            query: the query of that step.
            norms: the norms that were charged.
            state: from the `update` of that step.

        Returns:
            float32, shape ``(examples,)``: min(norm, sensitivity) for who takes part, or less in a last step that is
            shortened. Clip to it again, whatever else has been done: then nobody contributes more than was charged,
            however the norms were computed.
        """
        query, norms, own = self._asked(query), given_norms(norms, self.examples), belongs(self, state)
        if at_hand(own) and not own:
            return jnp.zeros((self.examples,), jnp.float32)
        return _bounds(self, query, norms, state.words, own)

    def _asked(self, query: object) -> Any:
        """The arguments of the compiled program. Raises ValueError for a query that the filter does not take."""
        check_query(query, self.examples)
        return query

    def _charged(self, query: Any, norms: ArrayLike, words: Array) -> Array:
        """The words after a step; the sign bit says who takes part."""
        raise NotImplementedError

    def _allowed(self, query: Any, norms: ArrayLike, words: Array) -> Array:
        """`bounds` of checked arguments."""
        raise NotImplementedError


def _step(filter: PerExampleFilter, query: object, norms: ArrayLike, words: Array, own: Array) -> tuple[Array, Array]:
    # Words of another filter stay as they are: one pass over them, whoever made them.
    after = jnp.where(own, filter._charged(query, norms, words), words)
    # Who takes part is read off the words: the barrier keeps compilers from computing them a second time.
    return (jax.lax.optimization_barrier(after) < 0) & own, after


_update = in_float64(jax.jit(_step))
_update_in_place = in_float64(jax.jit(_step, donate_argnums=3))


@in_float64
@jax.jit
def _bounds(filter: PerExampleFilter, query: object, norms: ArrayLike, words: Array, own: Array) -> Array:
    return jnp.where(own, filter._allowed(query, norms, words), 0.0)
