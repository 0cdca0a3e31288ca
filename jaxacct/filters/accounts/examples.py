"""What individual filters share: checked norms, and accounts that compiled programs update, perhaps in place."""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import at_hand
from jaxacct._numerics.pytree import replaced
from jaxacct._types import Int, PyTree
from jaxacct.filters import amounts
from jaxacct.filters.base import Filter, Guarantee
from jaxacct.filters.marks import chosen, mark_of, marked, row_of
from jaxacct.filters.queries import for_norms, sensitivity_of
from jaxacct.filters.reasons import Covering, reason_of
from jaxacct.filters.states import Marked, given
from jaxacct.mechanisms import Gaussian, PoissonSampled

FLAG = np.int32(-(2**31))  # the sign bit
INFINITY = np.int32(0x7F800000)  # bits of the float32 infinity: what lies above are NaNs
_STATEMENT = (
    "For every data set, every example in it, and add and remove alike, if each example was charged in every step, "
    "sampled or not, for the norm up to which it could contribute, contributions and accounts depend on other examples "
    "through releases only, and no account, nor who takes part, was published (individual filters: Feldman, Zrnic "
    "2021; proof: docs/proofs/filters.md, theorem 2): "
)


class ExamplesState(NamedTuple):
    """What a run carries: everybody's account, and one mark. As private as the data; see `per_example`.

    ``words`` is an int32 for each example, which holds what it has spent and, in its sign bit, whether it takes part in
    the step at hand: a step reads the norms and the words and writes the words, in place. Of a filter that is mapped
    over it is the scalar filter's states, and the norm (float32) up to which each example takes part.
    """

    words: PyTree
    mark: Array | None = None

    def __repr__(self) -> str:
        return f"ExamplesState(private accounts, shape {np.shape(jax.tree.leaves(self.words)[-1])})"


def looked_up(table: Array, row: Array) -> Array:
    """``table[row]`` for rows within the table, spread as ``row`` is."""
    sharding = jax.typeof(row).sharding
    spread = not sharding.mesh.empty and sharding.mesh.are_all_axes_explicit
    return jnp.asarray(table).at[row].get(mode="promise_in_bounds", out_sharding=sharding if spread else None)


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


class Common(Filter, Covering, Protocol):
    """Everybody's filter."""


_Common = TypeVar("_Common", bound=Common)


class PerExampleFilter(Marked, Generic[_Common]):
    """One budget for each example, of a filter that is everybody's.

    A subclass says what ``words`` mean: `_charged`, `_taking` and `_allowed` run inside one compiled program.
    """

    filter: _Common
    examples: int

    @property
    def guarantee(self) -> Guarantee:
        """The common filter's guarantee for every example; a bound where that is one. See `per_example`."""
        found = self.filter.guarantee
        return replaced(found, statement=_STATEMENT + found.statement)

    def _identity(self) -> list[Array]:
        mark = mark_of(self.filter)
        return [] if mark is None else [row_of(mark)]

    @in_float64
    def init(self, sharding: jax.sharding.Sharding | None = None) -> ExamplesState:
        """The state in which nobody has spent anything.

        Args:
            sharding: a `jax.sharding.Sharding` of an array of shape ``(examples,)``: over which devices, or processes,
                the accounts are spread; each device then keeps its own part, and an update sends nothing around. It
                must divide the examples evenly: add examples of norm 0, which spend nothing.
        """
        return marked(self, self._fresh(sharding))

    def _fresh(self, sharding: jax.sharding.Sharding | None = None) -> ExamplesState:
        return ExamplesState(jnp.zeros((self.examples,), jnp.int32, device=sharding))

    def update(
        self, query: object, norms: ArrayLike, state: ExamplesState, *, donate: bool = False
    ) -> tuple[Array, ExamplesState]:
        """Who may take part (bool, shape ``(examples,)``) and the state after the step. Both are private.

        Every example is charged for its own clipped norm, whether it will be sampled or not; the class says how much.
        Norm 0 costs nothing.

        Args:
            query: a `Gaussian` or a `PoissonSampled` one that the filter takes; ``sensitivity`` is the clip norm, in
                the unit of ``norms``. The rate may be one for each example where the class says so.
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
        query, norms, own = self._asked(given(query)), given_norms(norms, self.examples), self._owns(state)
        if at_hand(own) and not own:
            return jnp.zeros((self.examples,), bool), state
        takes_part, words = run(self, query, norms, state.words, own)
        return takes_part, ExamplesState(words, state.mark)

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
        query, norms, own = self._asked(given(query)), given_norms(norms, self.examples), self._owns(state)
        if at_hand(own) and not own:
            return jnp.zeros((self.examples,), jnp.float32)
        return _bounds(self, query, norms, state.words, own)

    def reason(
        self, query: object, norms: ArrayLike, state: PyTree, *, admitted: ArrayLike | None = None
    ) -> Int[Array, "*shape"]:
        """Why each example takes part or does not: a `Reason`, int32 of shape ``(examples,)``. Private.

        `Reason.INVALID` is also that of an example whose norm is 0, which has nothing to contribute.

        Args:
            query, norms, state: as for `update`.
            admitted: what `update` said of them, if it was asked already.
        """
        taking = self.update(query, norms, state)[0] if admitted is None else admitted
        return reason_of(self, (query, norms), state, taking)

    def _covers(self, query: PyTree) -> ArrayLike:
        asked, norms = query
        norms, clip = jnp.asarray(norms, jnp.float64), sensitivity_of(asked)
        return self.filter._covers(for_norms(asked, jnp.where((norms > 0) & (norms < clip), norms, clip)))

    def _asked(self, query: object) -> PyTree:
        """The arguments of the compiled program. Raises ValueError for a query that the filter does not take."""
        check_query(query, self.examples)
        return query

    def _charged(self, query: PyTree, norms: ArrayLike, words: PyTree) -> PyTree:
        """The words after a step."""
        raise NotImplementedError

    def _taking(self, words: PyTree) -> Array:
        """Who takes part in the step that ``words`` are after."""
        return words < 0

    def _allowed(self, query: PyTree, norms: ArrayLike, words: PyTree) -> Array:
        """`bounds` of checked arguments."""
        raise NotImplementedError


def _step(filter: PerExampleFilter, query: object, norms: ArrayLike, words: PyTree, own: Array) -> tuple[Array, PyTree]:
    # Words of another filter stay as they are: one pass over them, whoever made them.
    after = chosen(own, filter._charged(query, norms, words), words)
    # Who takes part is read off the words: the barrier keeps compilers from computing them a second time.
    return filter._taking(jax.lax.optimization_barrier(after)) & own, after


_update = in_float64(jax.jit(_step))
_update_in_place = in_float64(jax.jit(_step, donate_argnums=3))


@in_float64
@jax.jit
def _bounds(filter: PerExampleFilter, query: object, norms: ArrayLike, words: PyTree, own: Array) -> Array:
    return jnp.where(own, filter._allowed(query, norms, words), 0.0)
