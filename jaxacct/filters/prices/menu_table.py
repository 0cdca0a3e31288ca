"""Certified upper bounds of the worst case of an analyst who spends prices from a menu (docs/proofs/filters.md, 4).

Curves are kept as excesses E = H - (1 - gamma)_+ at lattice points. Functions U_b, linear in the budget b between nodes
j D, bound the worst case if U_b >= T_m U_(b - c_m) for every query m. With c_m = (K_m - 1 + t_m) D, 0 < t_m <= 1,
K_m >= 2, i = j + 1 - K_m and X_m,i >= T_m U_i it is enough that

    U_(j+1) >= t_m X_m,i + (1 - t_m) X_m,i+1,          U_(j+1) >= U_j + (X_m,i - U_j) / t_m,

one convolution a query and node. Two choices keep what interpolation costs at 0.1 % of the budget (measured; both only
raise U): before a query's first run U rises like a ramp, and U_(j+1) makes room for what the second inequality will
ask of U_(j+2), by a forecast of U_(j+2) - U_(j+1).

Where a query fits a few times only, neither choice is affordable: a part of its ramp, followed by a run, is a part of a
run too many. Then prices are whole numbers of nodes (t_m = 1) and U is a staircase, U_b = U_(j D) for j D <= b: the
inequalities are U_(j+1) >= X_m,i and U_(j+1) >= U_j, and ask for no more.

The scan keeps E / sqrt(gamma), whose convolution is with the masses P_m(l) exp(-l / 2): an error is multiplied by
exp(epsilon / 2) in either direction. Every X is raised by the error of its own transform (docs/proofs/fft.md, lemma 3).
Above its last point a curve's excess is at most its last value, below its first point at most proportional to gamma:
both are filled in, over the reach of one run, so that nothing wraps around. A single run's mass beyond ``above`` points
is at infinity, within E_m.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct._numerics.arrays import Array
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import on_device
from jaxacct._numerics.rounding import UNIT, inflated
from jaxacct.filters.prices.laws import MenuLaws

_CHUNK = 256  # levels between looks at the target
_ETA = 8.0 * UNIT
_SMOOTHING = 0.25  # of the rise a node; any number is sound
_MOST_BYTES = 2**33  # of the curves that a scan holds at a time


class Table(NamedTuple):
    """The end of a table: the certified curve of the largest budget that was asked for.

    ``curves``, where they were to be kept, are U / sqrt(gamma) at every node up to the first one above the budget:
    between nodes linear in the budget, each a bound of the worst case.
    """

    excess: np.ndarray  # at the lattice's points, shape ``(grid.size,)``
    budget: int  # in units, a whole number
    curves: np.ndarray | None = None  # shape ``(nodes, grid.size)``


class _Rows(NamedTuple):
    """What the scan needs of every query."""

    spectra: Array  # (queries, n / 2 + 1)
    excess: Array  # (queries, size): E_m / sqrt(gamma)
    error: Array  # (queries,): of a value, over the Euclidean norm of the padded curve
    nodes: Array  # (queries,), int32: K_m
    share: Array  # (queries,): t_m
    left: Array  # (above,): values before the first point, over the first
    right: Array  # (below,): values after the last point, over the last
    floors: Array  # (levels, size): what U / sqrt(gamma) is at least; or none


class _Carry(NamedTuple):
    level: jax.Array  # int32: the last node
    curve: jax.Array  # (size,): U / sqrt(gamma) at the last node
    ring: jax.Array  # (depth, n / 2 + 1): transforms of the last nodes' curves, node j in row j % depth
    norms: jax.Array  # (depth,): their Euclidean norms, padded
    last: jax.Array  # (queries, size): X_m,i of the next level's i
    pace: jax.Array  # (2, size): how much U rises a node, smoothed once and twice


def prices_in_nodes(prices: np.ndarray, node: int) -> tuple[np.ndarray, np.ndarray]:
    """``(K, t)`` of whole prices, with price = (K - 1 + t) node and 0 < t <= 1."""
    whole = -(-np.asarray(prices, np.int64) // node)
    if whole.max() > 2**31 - 2:
        raise ValueError(f"prices must be at most {2**31 - 2} nodes of {node} units, got {prices.max()} units")
    return whole.astype(np.int32), (prices - (whole - 1) * node) / node


@in_float64
def budget_table(
    laws: MenuLaws,
    prices: np.ndarray,
    node: int,
    met: Callable[[np.ndarray], bool],
    most: int,
    progress: Callable[[int], object] | None = None,
    keep: bool = False,
    whole: bool = False,
) -> Table:
    """The largest whole budget, at most ``most``, whose certified curve passes ``met``, and that curve.

    Args:
        prices: units a query takes, whole numbers above ``node``, shape ``(queries,)``.
        node: units between nodes.
        met: whether a curve (excess at lattice points) meets the target.
        progress: called with the number of nodes done.
        keep: whether to return the curves of all nodes, 8 bytes a node and point.
        whole: whether U is a staircase; prices are whole numbers of nodes then.
    """
    root = _root(laws)
    # The first node is perfect privacy, at every budget below the cheapest price.
    before, count = np.zeros(laws.grid.size), 0
    kept = [np.zeros((1, laws.grid.size))]
    for found in node_curves(laws, prices, node, whole):
        if keep:
            kept.append(found)
        curves = np.concatenate([before[None], found * root])
        if met(curves[-1]) and (count + _CHUNK) * node < most:
            before, count = curves[-1], count + _CHUNK
            if progress is not None:
                progress(count)
            continue
        last = _CHUNK if met(curves[-1]) else _last(curves.__getitem__, met, _CHUNK)
        upper = curves[min(last + 1, _CHUNK)]
        inside = functools.partial(_between, curves[last], curves[last] if whole else upper, node)
        units = 0 if last == _CHUNK else _last(inside, met, node)
        if progress is not None:
            progress(count + last)
        # A budget above `most` is cut: a smaller budget's worst case is below that of a larger one.
        nodes = np.concatenate(kept)[: count + last + 2] if keep else None
        return Table(inside(units), min((count + last) * node + units, most), nodes)
    raise ArithmeticError("there is always another node")


@in_float64
def curve_of_budget(
    laws: MenuLaws, prices: np.ndarray, node: int, budget: int, whole: bool, floors: np.ndarray | None
) -> np.ndarray:
    """The certified curve (excess at lattice points) of a whole budget of at least a node; see `node_curves`."""
    at, units = divmod(budget, node)
    before = np.zeros(laws.grid.size) if floors is None else floors[0]
    for found in node_curves(laws, prices, node, whole, floors):
        curves = np.concatenate([before[None], found])
        if at < _CHUNK:
            upper = curves[at] if whole else curves[at + 1]
            return _between(curves[at] * _root(laws), upper * _root(laws), node, units)
        before, at = found[-1], at - _CHUNK
    raise ArithmeticError("there is always another node")


def _root(laws: MenuLaws) -> np.ndarray:
    """sqrt(gamma) at the points of the lattice, rounded up."""
    return np.exp(0.5 * laws.grid.losses) * _up(laws)


def _up(laws: MenuLaws) -> float:
    return 1.0 + 16 * UNIT * (4.0 + np.abs(laws.grid.losses).max())


def node_curves(
    laws: MenuLaws, prices: np.ndarray, node: int, whole: bool = False, floors: np.ndarray | None = None
) -> Iterator[np.ndarray]:
    """U / sqrt(gamma) at nodes 1, 2, ..., ``_CHUNK`` of them at a time, shape ``(_CHUNK, grid.size)``, without end.

    Arguments as of `budget_table`. ``floors``, shape ``(levels, grid.size)``, is what U must not be below at nodes 0 to
    ``levels - 1`` and, with the last row, after them. It takes the place of the ramps.
    """
    size, pad = laws.grid.size, laws.below + laws.above
    n = 1 << (size + pad - 1).bit_length()
    nodes, share = prices_in_nodes(prices, node)
    if nodes.min() < 2:
        raise ValueError(f"prices must be above {node}, the distance of nodes, got {prices.min()}")
    if whole and (share < 1.0).any():
        raise ValueError(f"prices must be whole numbers of nodes of {node} units, got {prices.tolist()}")
    spacing, losses, up = laws.grid.spacing, laws.grid.losses, _up(laws)
    offsets = np.arange(-laws.below, laws.above + 1)
    masses = laws.masses * np.exp(-0.5 * spacing * offsets) * up
    kernels = np.zeros((len(prices), n))
    kernels[:, offsets % n] = masses
    eta = math.expm1((math.log2(n) + 1.0) * math.log1p(_ETA))
    total, euclid = masses.sum(-1), np.sqrt((masses**2).sum(-1))
    error = (eta * total + (2.0 * eta + 8.0 * UNIT) * euclid) * 1.01
    fixed: list[np.ndarray] = [
        np.fft.rfft(kernels),
        laws.excess * np.exp(-0.5 * losses) * up,
        error,
        nodes,
        share,
        np.exp(-0.5 * spacing * np.arange(laws.above, 0, -1)) * up,
        np.exp(-0.5 * spacing * np.arange(1, laws.below + 1)) * up,
        np.zeros((0, size)) if floors is None else floors,
    ]
    depth = int(nodes.max())
    if depth * (n // 2 + 1) * 16 > _MOST_BYTES:
        raise ValueError(
            "mechanisms must hold entries whose prices are closer: the dearest one costs "
            f"{prices.max() / prices.min():.3g} times the cheapest, which takes {depth} curves of {size} points in "
            "memory; leave out the cheapest entries"
        )
    empty: list[np.ndarray | np.generic] = [
        np.int32(0),
        np.zeros(size) if floors is None else floors[0],
        np.zeros((depth, n // 2 + 1), np.complex128),
        np.zeros(depth),
        np.full((len(prices), size), -np.inf),
        np.zeros((2, size)),
    ]
    rows, carry = _Rows(*on_device(fixed)), _Carry(*on_device(empty))
    while True:
        carry, found = _levels(carry, rows, n, whole)
        yield np.asarray(found)


def _last(curve: Callable[[int], np.ndarray], met: Callable[[np.ndarray], bool], end: int) -> int:
    """A number below ``end`` whose curve meets the target, and the next one's does not; that of 0 does."""
    low, high = 0, end
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if met(curve(middle)) else (low, middle)
    return low


def _between(low: np.ndarray, high: np.ndarray, node: int, units: int) -> np.ndarray:
    """The curve at ``units`` after a node, rounded up."""
    share = units / node
    return inflated(low * (1.0 - share) + high * share, 8 * UNIT)


@functools.partial(jax.jit, static_argnums=(2, 3), donate_argnums=0)
def _levels(carry: _Carry, rows: _Rows, n: int, whole: bool) -> tuple[_Carry, Array]:
    """``_CHUNK`` more nodes and their curves."""
    size = carry.curve.shape[0]
    depth = carry.ring.shape[0]
    share = rows.share[:, None]

    def level(c: _Carry, _: None) -> tuple[_Carry, Array]:
        # Laid out so that the points of the lattice come first: circular index -above .. size - 1 + below.
        gap = jnp.zeros(n - size - rows.left.shape[0] - rows.right.shape[0])
        padded = jnp.concatenate([c.curve, c.curve[-1] * rows.right, gap, c.curve[0] * rows.left])
        ring = c.ring.at[c.level % depth].set(jnp.fft.rfft(padded))
        norms = c.norms.at[c.level % depth].set(jnp.sqrt(jnp.sum(padded * padded)))
        index = c.level + 2 - rows.nodes
        row = index % depth
        moved = jnp.fft.irfft(rows.spectra * ring[row], n)[:, :size]
        slack = rows.error * norms[row]
        moved = inflated(jnp.maximum(moved, 0.0) + rows.excess + slack[:, None], 8 * UNIT)
        moved = jnp.where((index >= 0)[:, None], moved, -jnp.inf)
        known = (index > 0)[:, None]
        at_node = share * c.last + (1.0 - share) * moved
        inside = c.curve + ((c.last - c.curve) / share + (c.last + c.curve) * (4 * UNIT / share))
        # Where a query does not fit yet nothing is asked; a ramp up to its first run keeps U from having to jump there.
        ramp = rows.excess * jnp.minimum((c.level + 1) / (rows.nodes - 1 + rows.share), 1.0)[:, None]
        trend = c.pace[0] - c.pace[1]
        # Brown's double smoothing, two nodes ahead.
        ahead = moved - share * (c.pace[0] + trend * (1.0 + 2.0 * _SMOOTHING / (1.0 - _SMOOTHING)))
        if whole:
            ramp, ahead = c.curve[None], -jnp.inf
        if rows.floors.shape[0]:
            ramp = rows.floors[jnp.minimum(c.level + 1, rows.floors.shape[0] - 1)][None]
            ahead = jnp.maximum(ahead, ramp)
        asked = jnp.maximum(jnp.where(known, jnp.maximum(at_node, inside), ramp), ahead)
        # No clip at the largest excess there is, min(gamma, 1): that is not affine. It is for the reader of the end.
        curve = inflated(jnp.maximum(asked.max(0), 0.0), 8 * UNIT)
        once = c.pace[0] + _SMOOTHING * (curve - c.curve - c.pace[0])
        pace = jnp.stack([once, c.pace[1] + _SMOOTHING * (once - c.pace[1])])
        return _Carry(c.level + 1, curve, ring, norms, moved, pace), curve

    return jax.lax.scan(level, carry, None, length=_CHUNK)
