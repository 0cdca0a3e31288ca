"""Rules: which queries an adaptive analyst may choose next, as finite states, and the game graph they unroll to.

A rule of Definition 10 of the residue paper maps what was played to the set of allowed queries; here it may depend on
that only through a state that it updates itself. Releasing nothing is always allowed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from jaxacct import _validate
from jaxacct.games.experiment import Query

_T = TypeVar("_T")
_MOST_STATES = 200_000
MOST_ROUNDS = 2**16
_MOST_MOVES = 2**28  # of a whole game: about a gigabyte


def check_rounds(rounds: int) -> int:
    """``rounds`` as a whole number; nothing that would be played for ever."""
    _validate.whole(rounds=rounds)
    _validate.at_most(MOST_ROUNDS, rounds=rounds)
    return int(rounds)


@dataclasses.dataclass(frozen=True)
class Rule:
    """Queries, a first state, and the state after each allowed query.

    Attributes:
        queries: mechanisms, PLDs or curves, each with one setting.
        start: the first state; any hashable value.
        step: ``step(state, query)`` with the index of a query: the next state, or None where the query is refused.
        certain: ``certain(state, query)``: whether an allowed query is certainly allowed. Upper bounds count every
            allowed query, lower bounds those that certainly are.
    """

    queries: Sequence[Query]
    start: Hashable
    step: Callable[[Any, int], Hashable | None]
    certain: Callable[[Any, int], bool] = lambda state, query: True

    @classmethod
    def unrestricted(cls, queries: Sequence[Query]) -> Rule:
        """Every query is allowed at every time."""
        return cls(sequence(queries=queries), (), lambda state, query: ())

    @classmethod
    def additive(cls, queries: Sequence[Query], costs: Sequence[int], budget: int) -> Rule:
        """Query i costs ``costs[i]`` whole units and is allowed while they last.

        Raises:
            ValueError: as many costs as queries are needed, whole and at least 1.
        """
        moves = sequence(queries=queries)
        if len(sequence(costs=costs)) != len(moves):
            raise ValueError(f"costs must be as many as queries, {len(moves)}, got {len(costs)}")
        for cost in costs:
            _validate.number(_validate.count, costs=cost)
        _validate.number(_validate.nonnegative, budget=budget)
        return cls(moves, int(budget), lambda left, query: left - c if (c := int(costs[query])) <= left else None)

    @classmethod
    def of_counts(
        cls,
        queries: Sequence[Query],
        allowed: Callable[[tuple[int, ...]], bool],
        certain: Callable[[tuple[int, ...]], bool] | None = None,
    ) -> Rule:
        """The state is how often each query was played; a query may run where the new counts are ``allowed``."""
        _validate.function(allowed=allowed)
        queries, start = sequence(queries=queries), (0,) * len(queries)

        def step(counts: tuple[int, ...], query: int) -> tuple[int, ...] | None:
            after = one_more(counts, query)
            return after if allowed(after) else None

        if certain is None:
            return cls(queries, start, step)
        _validate.function(certain=certain)
        return cls(queries, start, step, lambda counts, query: certain(one_more(counts, query)))


def sequence(**named: Iterable[_T]) -> tuple[_T, ...]:
    """The one value as a tuple; raises ValueError for what is no sequence."""
    ((name, value),) = named.items()
    try:
        return tuple(value)
    except TypeError:
        raise ValueError(f"{name} must be a sequence, got {type(value).__name__}") from None


def one_more(counts: tuple[int, ...], query: int) -> tuple[int, ...]:
    """The counts with one more run of a query."""
    return tuple(n + (i == query) for i, n in enumerate(counts))


@dataclasses.dataclass(frozen=True)
class Game:
    """The rule, unrolled: states that can occur before each round, and where the moves lead.

    Attributes:
        states: of rounds 0 to ``rounds``, lists.
        after: per round, shape ``(states, queries)``: index of the next round's state, -1 where not allowed.
        certain: per round, same shape: allowed for certain.
    """

    states: list[list[Any]]
    after: list[np.ndarray]
    certain: list[np.ndarray]

    @property
    def rounds(self) -> int:
        """The number of rounds that are played at most."""
        return len(self.after)


def unroll(rule: Rule, rounds: int) -> Game:
    """All states that an analyst can reach within ``rounds``; at most 200,000 in one round."""
    _validate.instance(Rule, rule=rule)
    rounds = check_rounds(rounds)
    _validate.function(step=rule.step, certain=rule.certain)
    count, moved = len(sequence(queries=rule.queries)), 0
    if not count:
        raise ValueError("queries must have at least one member, got none")
    states, after, certain = [[rule.start]], [], []
    for played in range(rounds):
        index: dict[Hashable, int] = {}
        moves = np.full((len(states[-1]), count), -1, np.int32)
        sure = np.zeros(moves.shape, bool)
        for row, state in enumerate(states[-1]):
            for query in range(count):
                following = rule.step(state, query)
                if following is None:
                    continue
                if not isinstance(following, Hashable):
                    raise ValueError(f"step must return a hashable state or None, got {following!r:.200}")
                moves[row, query] = index.setdefault(following, len(index))
                sure[row, query] = rule.certain(state, query)
        if len(index) > _MOST_STATES:
            raise ValueError(
                f"rule must have at most {_MOST_STATES} states a round, got {len(index)} in round {played}"
            )
        moved += moves.size
        if moved > _MOST_MOVES:
            raise ValueError(f"rounds must give at most {_MOST_MOVES} moves in all, got more in round {played}")
        after.append(moves)
        certain.append(sure)
        states.append(list(index))
        if not index:
            # Nothing is allowed any more: the game is over.
            break
    return Game(states, after, certain)
