"""The GDP residue filter: a GDP budget, with optional slack, that any query can be charged to."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.float64 import in_float64
from jaxacct._numerics.host import MOST, at_hand, each, floats, hosted, on_device
from jaxacct._numerics.pieces import join
from jaxacct._numerics.rounding import deflated, inflated
from jaxacct._types import PyTree
from jaxacct.filters import amounts
from jaxacct.filters.additive.costs import gaussian_cost, is_gaussian
from jaxacct.filters.base import is_scalar_query
from jaxacct.filters.guarantees import OF_GDP, ParameterGuarantee
from jaxacct.filters.printing import number
from jaxacct.filters.residues.prepare import Prepared, of_curve, prepared
from jaxacct.filters.residues.response import largest_for_response
from jaxacct.filters.residues.solver import largest
from jaxacct.filters.states import BaseFilter, filter_class
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.curves.trade_off import TradeOff
from jaxacct.mechanisms.directions import RELATIONS

_TOLERANCE = 2e-5  # relative, of a charge: how near the largest residue the search ends
_TRIES = 24
_ROUNDING = 2.0**-40  # at most this is an atom at infinity that a lattice makes of a query that has none
_MOST_IN_TURN = 64  # accounts that NumPy takes before a compiled program would be done sooner
_STATEMENT = (
    "The whole interaction has a privacy profile of at most delta + (1 - delta) times that of mu-GDP, in both "
    "directions and at every epsilon at once, if each query is dominated by the loss it was charged as, given all "
    "earlier outputs, and every refusal was obeyed: after each query the budget is replaced by a residue, a budget "
    "whose composition with the query's loss is within the budget before it (residue filters, arXiv 2602.15815, "
    "Theorem 1; GDP budgets: Theorem 5). The mu quoted counts a rounding slack of a relative 2^-41."
)


class ResidueState(NamedTuple):
    """What is left of the budget: float32[..., 3] each, three numbers whose exact sum it is; the filter's mark."""

    mu: Array
    delta: Array
    mark: Array | None = None

    def __repr__(self) -> str:
        if not at_hand(self):
            return f"ResidueState(mu={self.mu}, delta={self.delta})"
        with jax.enable_x64(True):
            mu, delta = amounts.join(self.mu), amounts.join(self.delta)
        return f"ResidueState(mu={number(mu)} and delta={number(delta)} are left)"


@filter_class(ResidueState, "gdp_residue", "mu", "slack")
class GDPResidueFilter(BaseFilter):
    """A budget of mu-GDP with a slack of delta, for any query; make it with `gdp_residue`.

    A query is a number mu (any mechanism that is mu-GDP), a `Gaussian`, a `GDP` or a `Composed` of them; or any other
    mechanism with concrete parameters, an upper `PLD` or `PrivacyProfile`, a lower `TradeOff`, or the result of
    `prepare`, which is the fast way for a query that is asked again. It is refused if no residue is certain, because it
    may be leakier than what is left, or have an atom at infinity that the slack does not cover. A mechanism whose
    parameters are traced raises ValueError: ``prepare`` it, or give ``prepare`` a grid. `spent` is the mu of a Gaussian
    that costs as much, `remaining` that of the largest one that still fits.

    Attributes:
        mu_pieces: mu in exact float32 pieces.
        delta_pieces: delta likewise, zeros for 0.
        share: of the slack that one query may take.
        relation: for mechanisms, static.
    """

    mu_pieces: Array
    delta_pieces: Array
    share: Array
    relation: str = dataclasses.field(default="add_or_remove", metadata={"static": True})

    unit = OF_GDP

    mu = amounts.exact("mu_pieces")
    """The budget's mu, as it was given (float64)."""

    slack = amounts.exact("delta_pieces")
    """The budget's delta, as it was given (float64)."""

    @property
    @in_float64
    def guarantee(self) -> ParameterGuarantee:
        """What the whole interaction satisfies, a proven bound."""
        fails = amounts.join(self.delta_pieces)
        return ParameterGuarantee(self.unit, _whole(self.mu_pieces), _STATEMENT, fails=fails)

    def _identity(self) -> list[Array]:
        return [self.mu_pieces, self.delta_pieces]  # `share` only steers

    def _fresh(self) -> ResidueState:
        return on_device(ResidueState(_packed(_whole(self.mu_pieces)), self.delta_pieces))

    def _after(self, query: object, state: ResidueState) -> tuple[Array, ResidueState]:
        if is_scalar_query(query) or is_gaussian(query):
            with jax.enable_x64(True):
                return _update_gaussian(gaussian_cost(query), self.mu_pieces, self.delta_pieces, state)
        if not isinstance(query, Prepared | PLD | PrivacyProfile | TradeOff):
            query = prepared(query, relation=self.relation)
        with jax.enable_x64(True):
            return on_device(_update(query, self.mu_pieces, self.delta_pieces, self.share, state))

    def _spent(self, state: ResidueState) -> Array:
        """sqrt(mu^2 - (mu left)^2): a Gaussian of this mu costs as much."""
        gone = self._gone(state)
        return inflated(array_module(gone).sqrt(gone), 2.0**-50)

    def _remaining(self, state: ResidueState) -> Array:
        mu, left = amounts.join(self.mu_pieces), amounts.join(state.mu)
        # Without the rounding slack, so that a Gaussian of exactly this much is admitted.
        xp, free = array_module(mu, left), left * left - amounts.SLACK * mu * mu
        return xp.minimum(xp.sqrt(xp.maximum(free, 0.0)), mu)

    def remaining_slack(self, state: ResidueState) -> Array:
        """The delta that is left, rounded down, in the caller's float type."""
        return self._read(lambda state: amounts.join(state.delta), state, up=False)

    def _fraction(self, state: ResidueState) -> Array:
        """The share of mu^2 that is spent."""
        mu = amounts.join(self.mu_pieces)
        return inflated(self._gone(state) / (mu * mu), 2.0**-50)

    def _gone(self, state: ResidueState) -> Array:
        """The mu^2 that is spent."""
        whole, left = _whole(self.mu_pieces), amounts.join(state.mu)
        return array_module(whole, left).maximum((whole - left) * (whole + left), 0.0)


def _whole(pieces: Array) -> Array:
    """The budget with its rounding slack: n queries of mu / sqrt(n) fit n times."""
    return inflated(amounts.join(pieces), 0.5 * amounts.SLACK)


def _packed(value: Array) -> Array:
    """`amounts.split`, with 0 for what is too small for it."""
    return array_module(value).where((value < 1e-18)[..., None], np.float32(0.0), amounts.pieces_of(value))


def _left(budget: Array, slack: Array, state: ResidueState) -> tuple[Array, Array]:
    """The mu and delta that are left; NaN, which no query fits, where words say more than the budget holds."""
    left, delta = amounts.join(state.mu), amounts.join(state.delta)
    xp, whole, most = array_module(left, budget), _whole(budget), amounts.join(slack)
    # A hair is a program's rounding of the whole.
    sane = (left >= 0) & (left <= inflated(whole, 2.0**-48)) & (delta >= 0) & (delta <= most)
    return xp.where(sane, xp.minimum(left, whole), np.nan), delta


def _covered(shape: tuple[int, ...], state: ResidueState) -> tuple[int, ...]:
    mine = state.mu.shape[:-1]
    amounts.check_covered(mine, shape)
    return mine


def _accepted(mu: Array, delta: Array, state: ResidueState) -> tuple[Array, ResidueState]:
    """What is left after a query; a ``mu`` below 0 is a refusal."""
    admitted = mu >= 0
    xp = array_module(admitted, mu, delta, state)
    made = (xp.where(admitted, value, 0.0) for value in (mu, delta))
    keep = lambda new, old: xp.where(admitted[..., None], _packed(new), old)  # noqa: E731
    return admitted, ResidueState(*map(keep, made, (state.mu, state.delta)))


def _after_gaussian(mu: Array, cost: Array) -> Array:
    """sqrt(mu^2 - cost) rounded down, or -1: the residue of a Gaussian is exact (Koskela et al. 2023)."""
    xp, left = array_module(mu, cost), mu * mu - cost
    root = deflated(xp.sqrt(xp.maximum(left, 0.0)), 2.0**-50)
    return xp.where((cost >= 0) & (left >= 0) & (mu > 0), xp.where(cost == 0, mu, root), -1.0)


@jax.jit
def _update_gaussian(cost: ArrayLike, budget: Array, slack: Array, state: ResidueState) -> tuple[Array, ResidueState]:
    cost = jnp.asarray(cost, jnp.float64)
    shape = _covered(cost.shape, state)
    left, delta = _left(budget, slack, state)
    after = jnp.broadcast_to(_after_gaussian(left, cost), shape)
    return _accepted(after, delta, state)


def _work(query: object, budget: Array, slack: Array, share: Array, state: ResidueState) -> int:
    return math.prod(state.mu.shape[:-1]) * (MOST // _MOST_IN_TURN)


@hosted(work=_work)
def _update(
    query: Prepared | PLD | PrivacyProfile | TradeOff, budget: Array, slack: Array, share: Array, state: ResidueState
) -> tuple[Array, ResidueState]:
    law = query if isinstance(query, Prepared) else of_curve(query)
    shape = _covered(np.shape(law.epsilon)[:-1], state)
    xp, share = floats(share)
    mu, delta = _left(budget, slack, state)
    offer = xp.broadcast_to(amounts.join(slack) * share, shape)
    wide = jax.tree.map(lambda x: xp.broadcast_to(x, (*shape, *x.shape[law.epsilon.ndim - 1 :])), law)
    one = _residue if xp is np else _each
    for _ in shape:
        one = functools.partial(each, one)
    after, left = one(wide, mu, delta, offer)
    return _accepted(after, left, state)


@jax.custom_batching.custom_vmap
def _each(query: Prepared, mu: Array, delta: Array, offer: Array) -> tuple[Array, Array]:
    return _residue(query, mu, delta, offer)


@_each.def_vmap
@in_float64
def _many(size: int, mapped: PyTree, *arguments: PyTree) -> tuple[tuple[Array, Array], tuple[bool, bool]]:
    """Processors take one after the other, each in as few steps as it needs; accelerators all at once."""
    leaves, tree = jax.tree.flatten(arguments)
    flags = jax.tree.leaves(mapped)
    given = [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag]

    def of(function: Callable[..., tuple[Array, Array]]) -> Callable[[list[Array]], tuple[Array, Array]]:
        def one(some: list[Array]) -> tuple[Array, Array]:
            rest = iter(some)
            whole = [next(rest) if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)]
            return function(*jax.tree.unflatten(tree, whole))

        return one

    in_turn = lambda some: jax.lax.map(of(_each), some)  # noqa: E731
    return jax.lax.platform_dependent(given, cpu=in_turn, default=jax.vmap(of(_residue))), (True, True)


def _residue(query: Prepared, mu: Array, delta: Array, offer: Array) -> tuple[Array, Array]:
    """(mu', delta') after ``query``, mu' = -1 where it is refused; all scalars."""
    infinity, epsilon, dominating = join(query.infinity), join(query.epsilon), join(query.mu)
    xp, top = array_module(infinity, mu, delta, offer), infinity.max()
    # Without any slack but for the query's own atom: whatever is best of two closed forms. A largest loss that is
    # known is one of the query itself: a tiny atom beside it is a rounding's, and is not paid for.
    response = largest_for_response(mu, epsilon)
    plain = xp.maximum(response, _after_gaussian(mu, inflated(dominating**2, 2.0**-50)))
    rest, payable = _after_atom(delta, top)
    plain = xp.where(payable, plain, -1.0)
    unpaid = (top > 0) & (top <= _ROUNDING) & (response >= 0) & (response >= plain)
    plain, rest = xp.where(unpaid, response, plain), xp.where(unpaid, delta, rest)
    # With a slack s: rho = 1 / ((1 - s)(1 - top)), and what an atom takes beyond its direction's own is room.
    s = xp.maximum(xp.minimum(offer, deflated((delta - top) / (1.0 - top), 1e-9)), 0.0)
    both = top + s - top * s
    rho = (1.0 + 8.0 * 2.0**-52) / ((1.0 - s) * (1.0 - top))
    room = deflated(s / (1.0 - s) + (top - infinity) * rho, 8.0 * 2.0**-52)
    losses, masses = join(query.losses), join(query.masses)
    guess = xp.sum(masses * losses * losses, -1).max()
    finite = xp.isfinite(losses).all() & (masses >= 0).all() & (infinity >= 0).all() & (top < 1)
    wanted = xp.where(finite, mu, np.nan)
    best = largest(wanted, losses, masses, room, rho, guess, _TOLERANCE, _TRIES)
    less, affordable = _after_atom(delta, inflated(both, 4.0 * 2.0**-52))
    best = xp.where(affordable & (top < 1), best, -1.0)
    # Spend slack only if it lowers the charge by more than 1 %.
    saves = (best > plain) & ((plain < 0) | (s == 0) | (mu * mu - best * best < 0.99 * (mu * mu - plain * plain)))
    return xp.where(saves, best, plain), xp.where(saves, less, rest)


def _after_atom(delta: Array, atom: Array) -> tuple[Array, Array]:
    """delta' with (1 - delta')(1 - atom) = 1 - delta, rounded down, and whether there is one."""
    xp, left = array_module(delta, atom), (delta - atom) / (1.0 - atom) - 4.0 * 2.0**-52 * delta
    return xp.where(atom > 0, xp.maximum(left, 0.0), delta), (atom == 0) | ((left >= 0) & (atom < 1))


def gdp_residue(
    mu: ArrayLike, delta: ArrayLike = 0.0, *, steps: ArrayLike = 1000, relation: str = "add_or_remove"
) -> GDPResidueFilter:
    """A filter that charges any query to a GDP budget: what is left is the largest certified residue.

    After a query with loss L a budget of mu becomes mu' = max{m : G_m * L <= G_mu} (Theorem 5 of the residue paper),
    always rounded down; that is never worse than charging L as the Gaussian that dominates it, and exact for Gaussians
    and for randomized response. Queries with heavy tails (sampled Gaussians) need a slack: the budget is then G_mu next
    to a (0, delta)-DP step, and each query may take a part of delta to pay for its tail,

        (1 - d') H_(G_mu' * L)(gamma) + d'  <=  (1 - d) H_mu(gamma) + d    for all gamma >= 0, in both directions.

    Args:
        mu: the budget, between 1e-18 and 1e30; an array makes one account for each entry. Only Gaussians and randomized
            response can be charged above 20.
        delta: the slack, in [0, 1); broadcasts with ``mu``.
        steps: how many queries the slack is spread over evenly. More may be asked: it only steers what each may take.
        relation: for mechanisms: ``"add_or_remove"`` charges both directions, ``"replace"`` that pair.

    Raises:
        ValueError: concrete values outside their range.
    """
    amounts.check_budget(mu=mu)
    _validate.rate(delta=delta)
    _validate.count(steps=steps)
    if not _validate.is_traced(delta):
        given = np.asarray(delta, np.float64)
        if np.any((given >= 1) | ((given > 0) & (given < 1e-18))):
            raise ValueError(f"delta must be 0 or between 1e-18 and 1, got {delta}")
    _validate.one_of(RELATIONS, relation=relation)
    with jax.enable_x64(True):
        xp, mus, deltas = floats(mu, delta)
        mus, deltas = xp.broadcast_arrays(mus, deltas)
        pieces = xp.where((deltas == 0)[..., None], np.float32(0.0), amounts.pieces_of(deltas))
        # A traced delta that is none leaves no budget.
        mus = xp.where((deltas >= 0) & (deltas < 1), mus, np.nan)
        _, runs = floats(steps)
        share = (1.0 / runs).astype(np.float32)
        made, slack, part = on_device((amounts.pieces_of(mus), pieces, share))
        return GDPResidueFilter(made, slack, part, relation)
