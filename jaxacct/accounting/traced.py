"""`epsilon` and `delta` inside `jit`, `vmap` and `grad`: one JAX primitive with a rule for each transformation.

On a CPU a program calls the host, where the answer is computed as for eager calls: nothing is compiled, and bounds are
the same. Elsewhere, in exported programs, and under :func:`without_callbacks`, the formulas are compiled. ``vmap``
makes one batch of it, ``grad`` asks for derivatives at the same time, and what is transformed but not compiled is
answered at once. Results have the precision of the surrounding program, rounded outwards.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, xp
from jaxacct._numerics.float64 import own_rules
from jaxacct._numerics.manual_axes import in_auto_mode, result_type
from jaxacct._types import PyTree
from jaxacct.accounting import worker as _worker
from jaxacct.accounting.batch import Bounds
from jaxacct.accounting.compiled import compiled_answer
from jaxacct.accounting.on_host import host_answer
from jaxacct.accounting.question import Question, outline
from jaxacct.mechanisms.base import Mechanism

_compiled = jax.make_user_context(False)  # a part of the key of every cache of programs


@contextlib.contextmanager
def without_callbacks() -> Iterator[None]:
    """Compiles ``epsilon`` and ``delta`` into programs that are traced here, instead of calling the host from them.

    Inside ``jit`` on a CPU, ``epsilon`` and ``delta`` call back to Python on the host. Under this context manager a
    program holds the formulas themselves: it takes seconds to compile and its bounds may be wider. Programs for
    accelerators and exported ones (``jax.export``) always do.
    """
    with _compiled(True):
        yield


class _Constants(tuple):
    """Arrays that belong to a program; equal to nothing else, because comparing arrays would take time."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__
    __ne__ = object.__ne__


class Asked(NamedTuple):
    """The parameters of the primitive.

    Attributes:
        question, constants: what is asked, but for the numbers.
        shape: of an answer.
        smooth: whether it has derivatives.
        sizes: of axes that vmap put before it.
        mapped: which of them every number has.
        wanted: the numbers in which derivatives are wanted.
        wide: whether the program is in float64.
        compiled: whether the formulas are to be compiled on a CPU as well.
    """

    question: Question
    constants: tuple[np.ndarray, ...]
    shape: tuple[int, ...]
    smooth: bool
    sizes: tuple[int, ...]
    mapped: tuple[tuple[bool, ...], ...]
    wanted: tuple[bool, ...]
    wide: bool
    compiled: bool

    @property
    def axes(self) -> tuple[int, ...]:
        """The shape of what the primitive returns."""
        return *self.sizes, *self.shape

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """The precision of the program."""
        return np.dtype(np.float64 if self.wide else np.float32)


def traced_answer(
    kind: str, mechanism: Mechanism, target: object, steps: object, relation: str, attained: bool = False
) -> Bounds:
    """See :func:`jaxacct.delta`; at least one number is traced. ``attained`` asks about the mechanism's witness."""
    leaves, tree = jax.tree.flatten((mechanism, target, steps))
    traced = tuple(_validate.is_traced(leaf) for leaf in leaves)
    known = tuple(
        float(leaf) if not is_traced and np.ndim(leaf) == 0 else None
        for leaf, is_traced in zip(leaves, traced, strict=True)
    )
    question = Question(kind, relation, tree, traced, len(jax.tree.leaves(mechanism)), known, attained)
    # NumPy keeps float64 where JAX would not.
    constants = _Constants(np.asarray(leaf, np.float64) for leaf, free in zip(leaves, traced, strict=True) if not free)
    numbers = [leaf for leaf, free in zip(leaves, traced, strict=True) if free]
    shape, smooth = outline(question, constants, [np.shape(number) for number in numbers])
    wide = bool(jax.config.jax_enable_x64)  # pyright: ignore[reportAttributeAccessIssue]
    asked = Asked(question, constants, shape, smooth, (), ((),) * len(numbers), (), wide, _compiled.value)
    return Bounds(*in_auto_mode(lambda *numbers: _answer.bind(*numbers, asked=asked), shape, *numbers))


_answer = Primitive("jaxacct")
_answer.multiple_results = True


@_answer.def_abstract_eval
def _(*numbers: object, asked: Asked) -> list[ShapedArray]:
    return [result_type(asked.axes, asked.dtype, *numbers)] * (2 + sum(asked.wanted))


@_answer.def_impl
def _(*numbers: Array, asked: Asked) -> list[jax.Array]:
    """The answer outside of a program: on the host if everything is on the CPU, else compiled."""
    platforms = {device.platform for x in numbers if isinstance(x, jax.Array) for device in x.devices()}
    if asked.compiled or (platforms or {jax.default_backend()}) != {"cpu"}:
        return jax.jit(lambda *x: _answer.bind(*x, asked=asked))(*numbers)
    found = _on_host(numbers, _spread(numbers, asked), asked)
    with jax.enable_x64(True):
        return [jnp.asarray(x) for x in found]


def _batched(
    numbers: Sequence[Array], dims: Sequence[int | None], *, asked: Asked
) -> tuple[list[jax.Array], list[int]]:
    (size,) = {number.shape[dim] for number, dim in zip(numbers, dims, strict=True) if dim is not None}
    numbers = [
        number if dim in (None, 0) else jnp.moveaxis(number, dim, 0) for number, dim in zip(numbers, dims, strict=True)
    ]
    mapped = tuple((dim is not None, *axes) for dim, axes in zip(dims, asked.mapped, strict=True))
    found = _answer.bind(*numbers, asked=asked._replace(sizes=(size, *asked.sizes), mapped=mapped))
    return found, [0] * len(found)


def _differentiated(numbers: Sequence[Array], tangents: Sequence[PyTree], *, asked: Asked) -> tuple[PyTree, PyTree]:
    if asked.wanted:
        raise NotImplementedError("second derivatives are not available; take finite differences of first derivatives")
    if not asked.smooth:
        raise NotImplementedError(
            "compositions have derivatives for Gaussian, Laplace, mixture, discrete Gaussian and Skellam noise, on "
            "Poisson samples too, and together with tables; take finite differences of the bounds, or differentiate "
            "one run"
        )
    wanted = tuple(not isinstance(tangent, ad.Zero) for tangent in tangents)
    moving = [
        tangent.reshape(_aligned(tangent.shape, axes, asked.shape, 0))
        for tangent, axes in zip(tangents, asked.mapped, strict=True)
        if not isinstance(tangent, ad.Zero)
    ]
    lower, upper, *slopes = _answer.bind(*numbers, asked=asked._replace(wanted=wanted))
    change = jnp.zeros_like(upper)
    for slope, tangent in zip(slopes, moving, strict=True):
        change = change + slope * tangent.astype(change.dtype)
    return [lower, upper], [change, change]


batching.primitive_batchers[_answer] = _batched
ad.primitive_jvps[_answer] = _differentiated


def _aligned(shape: tuple[int, ...], mapped: tuple[bool, ...], answer: tuple[int, ...], own: int) -> tuple[int, ...]:
    """A number's shape with an axis for every one of vmap and of the answer; its last ``own`` axes are neither."""
    sizes, rest = iter(shape[: sum(mapped)]), shape[sum(mapped) :]
    settings = rest[: len(rest) - own]
    if own == 0 and np.broadcast_shapes(rest, answer) != answer:
        raise NotImplementedError("derivatives in the entries of a table are not available; those in scalars are")
    axes = [next(sizes) if has else 1 for has in mapped]
    return (*axes, *[1] * (len(answer) - len(settings)), *rest)


def _spread(numbers: Sequence[Array], asked: Asked) -> list[tuple[int, ...]]:
    """Shapes of the numbers in which they broadcast to the answer's axes."""
    if not asked.sizes:
        return [np.shape(x) for x in numbers]
    mapped, shape = asked.mapped, asked.shape
    own = [np.shape(x)[sum(axes) :] for x, axes in zip(numbers, mapped, strict=True)]
    found = []
    for i, (number, axes) in enumerate(zip(numbers, mapped, strict=True)):
        extra = 0
        if own[i]:  # with more axes of settings than the answer has, the rest are the number's own
            probe = [(*[1] * (len(shape) + 1), *part) if i == j else part for j, part in enumerate(own)]
            extra = len(probe[i]) - len(outline(asked.question, asked.constants, probe)[0])
        found.append(_aligned(np.shape(number), axes, shape, extra))
    return found


def _on_host(numbers: Sequence[Array], shapes: list[tuple[int, ...]], asked: Asked) -> list[np.ndarray]:
    """The answer in NumPy, in the precision of the program; calls nothing of JAX's."""
    numbers = [np.asarray(x).reshape(shape) for x, shape in zip(numbers, shapes, strict=True)]
    lower, upper, *slopes = host_answer(asked.question, asked.constants, numbers, asked.wanted)
    with np.errstate(all="ignore"):
        found = [*_outwards(lower, upper, asked.dtype), *(slope.astype(asked.dtype) for slope in slopes)]
    return [np.broadcast_to(x, asked.axes) for x in found]


def _in_program(*numbers: Array, asked: Asked) -> list[jax.Array]:
    """The answer as a part of a program."""
    with own_rules():
        spread = [jnp.reshape(x, shape) for x, shape in zip(numbers, _spread(numbers, asked), strict=True)]
        lower, upper, *slopes = compiled_answer(asked.question, asked.constants, spread, asked.wanted)
        found = [*_outwards(lower, upper, asked.dtype), *(slope.astype(asked.dtype) for slope in slopes)]
        return [jnp.broadcast_to(x, asked.axes) for x in found]


Job: TypeAlias = Callable[[Sequence[Array]], list[np.ndarray]]
"""What the host does with a program's numbers."""

# A call of the host returns bits as uint32: what JAX makes of float64 depends on settings of the thread.
_called = Primitive("jaxacct_host")
_called.multiple_results = True


@_called.def_abstract_eval
def _(*numbers: object, number: int, shape: tuple[int, ...], **_: object) -> list[ShapedArray]:
    return [result_type(shape, np.uint32, *numbers)] * number


def _calling(*numbers: Array, asked: Asked) -> list[jax.Array]:
    """The answer from the host."""
    _worker.ready()
    shapes = _spread(numbers, asked)
    shape = asked.axes if asked.dtype.itemsize == 4 else (*asked.axes, 2)

    def job(numbers: Sequence[Array]) -> list[np.ndarray]:
        found = [np.ascontiguousarray(x) for x in _on_host(numbers, shapes, asked)]
        return [x.view(np.uint32).reshape(shape) for x in found]

    found = _called.bind(*numbers, job=job, number=2 + sum(asked.wanted), shape=shape)
    with jax.enable_x64(True):
        return [jax.lax.bitcast_convert_type(x, asked.dtype) for x in found]


# Older versions of JAX take no such argument.
_NO_TOKEN = (
    {"returns_token": False} if "returns_token" in inspect.signature(mlir.emit_python_callback).parameters else {}
)


def _lower_call(ctx: Any, *numbers: PyTree, job: Job, **_: object) -> PyTree:
    run = lambda *numbers: _worker.call(lambda: job(numbers))  # noqa: E731
    return mlir.emit_python_callback(
        ctx, run, None, list(numbers), ctx.avals_in, ctx.avals_out, has_side_effect=False, **_NO_TOKEN
    )[0]


def _lower_on_cpu(ctx: mlir.LoweringRuleContext, *numbers: PyTree, asked: Asked) -> PyTree:
    around = ctx.module_context
    alone = asked.compiled or around.lowering_parameters.for_export or len(around.platforms) > 1
    return mlir.lower_fun(_in_program if alone else _calling, multiple_results=True)(ctx, *numbers, asked=asked)


mlir.register_lowering(_called, _lower_call)
mlir.register_lowering(_answer, mlir.lower_fun(_in_program, multiple_results=True))
mlir.register_lowering(_answer, _lower_on_cpu, platform="cpu")


def _outwards(lower: Array, upper: Array, dtype: np.dtype[np.floating]) -> tuple[Array, Array]:
    """float64 bounds in the precision of a program, which may read subnormal numbers as 0."""
    tiny = float(np.finfo(dtype).tiny)
    low, high = lower.astype(dtype), upper.astype(dtype)
    if dtype.itemsize == 4:
        low = xp.where(low.astype(np.float64) > lower, xp.nextafter(low, dtype.type(-np.inf)), low)
        high = xp.where(high.astype(np.float64) < upper, xp.nextafter(high, dtype.type(np.inf)), high)
    low = xp.where((lower > 0) & (lower < tiny), dtype.type(0.0), low)
    return low, xp.where((upper > 0) & (upper < tiny), dtype.type(tiny), high)
