"""Which engine answers a batch of queries.

One run of one pair is read off its tails (:mod:`jaxacct.losses.single`). Compositions of Gaussians, sampled or not,
go to the contour (:mod:`jaxacct.losses.contour`): its bounds are 1e-9 wide where it suits the query, and say so
where it does not. Compositions of few outcomes are summed, one sum of losses after the other
(:mod:`jaxacct.losses.sums`). What is left, and everything else, goes to the lattices (:mod:`jaxacct.losses.lattice`).
Where two engines answered, both enclosures hold, so their intersection does.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._arrays import stopped
from jaxacct.losses.contour import Size, contour_bounds, finish, plan, prepare, smooth_delta
from jaxacct.losses.lattice import grouped, lattice_bounds, traced_lattice_bounds
from jaxacct.losses.single import single_delta, single_epsilon, single_value
from jaxacct.losses.spread import Spread
from jaxacct.losses.sums import enumerable, sum_bounds
from jaxacct.losses.transform import transform_float32
from jaxacct.mechanisms._gaussian_pair import GaussianPair

__all__ = ["Options", "bounds", "smooth_deltas"]

_SIZES = (Size(256, 256), Size(512, 1024), Size(2048, 1024), Size(2048, 4096))  # of the contour, tried in turn
_BATCHES = (2, 16, 128, 1024)  # to which batches are padded: every size is a compilation
_CACHED = 128  # larger batches leave a CPU's cache
_ROWS = 64  # of a table of NumPy's
_RUNS = 1024  # single runs worked on at once
_FEW = 96  # contours that NumPy answers as fast as a program does
_PATIENCE = 2**25  # points times square roots of nodes that take NumPy as long as a program takes to compile
_WORK = 2**25  # points times square roots of nodes worked on at once: 256 MiB a table
_TRACED = Size(256, 256)
_SMOOTH = Size(512, 1024)
_NOTHING = 1e-280  # a delta that no second engine makes smaller
_DEEP = 1e-12
_TIGHT = {"delta": 9.5e-4, "deep": 5e-3, "epsilon": 5e-4}  # relative width that asks for no second engine


class Options(NamedTuple):
    """How concrete queries are run.

    Attributes:
        precision: ``"float64"``, or ``"float32"`` for accelerators without float64: the transforms of the contour run
            there in float32, everything else on the host's CPU.
        devices: over which a batch is spread; None is JAX's default device.
        progress: called with (settled, total) numbers of settings.
    """

    precision: str = "float64"
    devices: Sequence[Any] | None = None
    progress: Callable[[int, int], Any] | None = None


def bounds(
    kind: str,
    pairs: list[Any],
    counts: list[Any],
    goal: Any,
    most: float | None,
    xp: Any,
    options: Options = Options(),  # noqa: B008
    sides: int = 1,
) -> tuple[Any, Any]:
    """``(lower, upper)`` of delta or epsilon for a flat batch.

    Args:
        kind: ``"delta"`` (``goal`` is epsilon) or ``"epsilon"`` (``goal`` is delta).
        pairs: the K pairs of a composition, leaves of shape ``(batch,)``.
        counts: how often each runs, K arrays of shape ``(batch,)``.
        goal: shape ``(batch,)``.
        most: the largest number of steps, where it is known while tracing.
        xp: NumPy where everything is concrete, jax.numpy inside a trace.
        options: only for concrete queries.
        sides: the batch is that many directions of the same settings, one after the other, of which only the worst
            counts; of the others concrete queries may have wide bounds.
    """
    groups, stacked = grouped(pairs, counts, xp)
    contour = all(isinstance(pair, GaussianPair) for pair in pairs)
    if xp is not np:
        return _traced(kind, most, contour, groups, stacked, goal)
    if options.precision == "float32":
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            return _concrete(kind, contour, groups, stacked, goal, options, sides)
    return _concrete(kind, contour, groups, stacked, goal, options, sides)


def _concrete(kind: str, contour: bool, groups: tuple[Any, ...], counts: Any, goal: Any, options: Options, sides: int):
    total = goal.size
    lower, upper = np.zeros(total), np.full(total, np.inf if kind == "epsilon" else 1.0)
    open_ = np.arange(total)
    spread = Spread(options.devices)
    done = 0

    def asked(members: np.ndarray) -> Any:
        return jax.tree.map(lambda x: x[members], (groups, counts, goal))

    def narrow(members: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
        lower[members], upper[members] = np.maximum(lower[members], low), np.minimum(upper[members], high)

    def report(settled: int) -> None:
        nonlocal done
        done += settled
        if options.progress is not None and settled:
            options.progress(done, total)

    def attempt(run: Any, parts: int, each: float, query: Any, members: np.ndarray) -> np.ndarray:
        """Takes what ``run`` answers; returns the members that are still open."""
        for some, low, high in _in_chunks(run, parts * each, query, members, spread):
            narrow(some, low, high)
        left = members[~settled(members)]
        report(members.size - left.size)
        return left

    def settled(members: np.ndarray) -> np.ndarray:
        """Which are tight, or no worse than another direction that is."""
        tight = _tight(kind, lower, upper)
        worst = np.where(tight, upper, -np.inf).reshape(sides, -1).max(0)
        return tight[members] | (upper[members] <= worst[members % worst.size])

    parts = counts.shape[1]
    if parts == 1:
        single = counts[:, 0] == 1.0
        read = _single_batch if options.devices is None else _single_spread
        rest = attempt(functools.partial(read, kind), 1, 1.0, (groups, goal), open_[single])
        report(rest.size)
        open_ = open_[~single]
    for size in _SIZES if contour else ():
        each = size.points * (size.nodes if options.precision == "float32" else size.nodes**0.5)
        run = functools.partial(_contour(kind, size, open_.size, options), kind, size)
        open_ = attempt(run, parts, each, (groups[0], counts, goal), open_)
    if open_.size and options.devices is None and enumerable(groups):  # by this host, so for this host alone
        answered, low, high = sum_bounds(kind, *asked(open_), report)
        narrow(open_[answered], low[answered], high[answered])
        open_ = open_[~answered]
    if open_.size:
        narrow(open_, *lattice_bounds(kind, *asked(open_), spread, report, open_ % (total // sides)))
    return lower, upper


_answered: collections.Counter[tuple[str, Size]] = collections.Counter()


def _contour(kind: str, size: Size, number: int, options: Options) -> Callable[..., Any]:
    """What runs ``number`` contours. On one CPU the formulas in NumPy, until large arrays have paid for a program.

    A program takes half a minute to compile, and is then about twice as fast. It is bought when as much has been paid
    in rent; either way the answers are bounds, with other last digits.
    """
    if options.precision == "float32":
        return _contour_float32
    if options.devices is not None or jax.default_backend() != "cpu":
        return _contour_batch
    if number <= _FEW:
        return _contour_numpy
    _answered[kind, size] += int(number * size.points * size.nodes**0.5)
    return _contour_numpy if _answered[kind, size] <= _PATIENCE else _contour_batch


def _tight(kind: str, lower: Any, upper: Any) -> Any:
    tight = (upper == lower) | (upper < np.inf) & (lower >= (1.0 - _TIGHT[kind]) * upper)
    if kind == "epsilon":
        return tight
    return tight | (upper < _DEEP) & (lower >= (1.0 - _TIGHT["deep"]) * upper) | (upper < _NOTHING)


def _in_chunks(run: Any, each: float, query: Any, members: np.ndarray, spread: Spread):
    """Runs ``members`` of a batch in chunks of few different sizes: ``(members, lower, upper)`` of each."""
    on_cpu = jax.default_backend() == "cpu"
    rows = max(1, min(_ROWS, int(_WORK / each)))
    most = _CACHED if on_cpu else _BATCHES[-1]
    sizes = [size for size in _BATCHES if size == _BATCHES[0] or (size * each <= _WORK and size <= most)]
    sizes = [size * spread.shares for size in sizes]
    rented = run.func is _contour_numpy
    bought = run.func is _contour_batch and on_cpu and spread.shares == 1
    while members.size:
        if run.func is _single_batch:
            some, members = members[:_RUNS], members[_RUNS:]
            yield some, *run(*jax.tree.map(lambda x: x[some], query))  # noqa: B023
            continue
        if rented or (bought and members.size <= _FEW):
            some, members = members[:rows], members[rows:]
            yield some, *_contour_numpy(*run.args, *jax.tree.map(lambda x: x[some], query))  # noqa: B023
            continue
        # A batch that is filled to three quarters, or else the largest that the members fill.
        filled = [size for size in sizes if size <= members.size]
        size = next((size for size in sizes if 0.75 * size <= members.size <= size), max(filled, default=sizes[0]))
        some, members = members[:size], members[size:]
        index = spread.padded(some, size)
        low, high = run(*spread.place(jax.tree.map(lambda x: x[index], query)))  # noqa: B023
        yield some, spread.gather(low)[: some.size], spread.gather(high)[: some.size]


def _single_batch(kind: str, groups: tuple[Any, ...], goal: Any):
    """Bounds of one run each; NumPy's in NumPy."""
    (group,) = groups
    return (single_delta if kind == "delta" else single_epsilon)(_only(group), goal)


_single_spread = jax.jit(_single_batch, static_argnums=0)


def _only(group: Any) -> Any:
    """The one part of a group."""
    return jax.tree.map(lambda x: x[:, 0], group)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _contour_batch(kind: str, size: Size, pairs: Any, counts: jax.Array, goal: jax.Array):
    return contour_bounds(kind, size, pairs, counts, goal)


def _contour_numpy(kind: str, size: Size, pairs: Any, counts: Any, goal: Any):
    with np.errstate(all="ignore"):  # what comes of it fails closed
        return contour_bounds(kind, size, pairs, counts, goal)


def _contour_float32(kind: str, size: Size, pairs: Any, counts: Any, goal: Any):
    """What needs float64 on the CPU, the transforms in float32 on JAX's default device."""
    prepared = jax.tree.map(np.asarray, _prepare_batch(kind, size, pairs, counts, goal))
    single = lambda x: np.asarray(x, np.float32)  # noqa: E731
    tables = (single(prepared.parts.losses), single(prepared.parts.weights), single(prepared.spacing))
    with jax.default_device(None):
        found = jax.tree.map(lambda x: np.asarray(x, np.float64), _transform_batch(size.nodes, *tables))
    return _finish_batch(kind, prepared, counts, goal, found)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _prepare_batch(kind: str, size: Size, pairs: Any, counts: jax.Array, goal: jax.Array):
    return prepare(kind, size, pairs, counts, goal)


@functools.partial(jax.jit, static_argnums=0)
def _transform_batch(nodes: int, losses: jax.Array, weights: jax.Array, spacing: jax.Array):
    return transform_float32(losses, weights, spacing, nodes)


@functools.partial(jax.jit, static_argnums=0)
def _finish_batch(kind: str, prepared: Any, counts: jax.Array, goal: jax.Array, found: Any):
    return finish(kind, prepared, counts, goal, found)


def _traced(kind: str, most: float | None, contour: bool, groups: tuple[Any, ...], counts: Any, goal: Any):
    """Bounds of a batch inside somebody's trace."""
    if most == 1.0 and counts.shape[-1] == 1:
        return _single_batch(kind, groups, goal)
    if not contour:
        return traced_lattice_bounds(kind, groups, counts, goal, most)
    lower, upper = _contour_batch(kind, _TRACED, groups[0], counts, goal)

    def both() -> tuple[Any, Any]:
        low, high = traced_lattice_bounds(kind, groups, counts, goal, most)
        return jnp.maximum(lower, low), jnp.minimum(upper, high)

    return jax.lax.cond(_tight(kind, lower, upper).all(), lambda: (lower, upper), both)


def smooth_deltas(pairs: list[Any], counts: list[Any], epsilon: Any, most: float | None) -> tuple[Any, Any]:
    """delta(epsilon) of a flat batch without bounds, to be differentiated in everything.

    The contour integral converges spectrally, and so do its derivatives; the contour, its points and frequencies
    may be held fixed, because the integral does not depend on them.

    Returns:
        The values, and whether their derivatives are to be trusted.

    Raises:
        NotImplementedError: a composition of other pairs than Gaussian ones.
    """
    (group, *others), stacked = grouped(pairs, counts, jnp)
    if most == 1.0 and len(pairs) == 1:
        value = single_value(_only(group), epsilon)
        return value, jnp.ones(value.shape, bool)
    if others or not isinstance(pairs[0], GaussianPair):
        raise NotImplementedError(
            "compositions have derivatives for Gaussian and PoissonSampled(Gaussian) mechanisms only; "
            "take finite differences of the bounds, or differentiate one run"
        )

    return smooth_delta(plan("delta", *stopped((group, stacked, epsilon))), _SMOOTH, group, stacked, epsilon)
