"""`Mechanism`, the base class: the dominating pairs of a mechanism and of samples of it.

Queries and engines know no mechanism by name. A new family is one class with :meth:`Mechanism._dominating`, derived
from :class:`Symmetric` if `add` and `remove` have one curve; sampling and composition then work for it.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, Real
from jaxacct._numerics.pytree import check_fields, unchecked
from jaxacct._numerics.rows import poisoned
from jaxacct.mechanisms.pairs.base import Pair, Runs
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.replaced.gaussian import AntipodalGaussianPair
from jaxacct.mechanisms.pairs.replaced.table import AntipodalTablePair
from jaxacct.mechanisms.pairs.sampled import SampledPair
from jaxacct.mechanisms.pairs.table import Tabulated
from jaxacct.mechanisms.parameters import Rate, composed_noise, times
from jaxacct.mechanisms.renyi.concentrated import rho_of_pure
from jaxacct.mechanisms.renyi.from_pair import largest

BOTH_DIRECTIONS = {"add_or_remove": ["remove", "add"], "replace_special": ["zero_out", "fill_in"]}
"""Relations that are the worse of two directions, each of which is the other reversed."""

_AS = {"zero_out": "remove", "fill_in": "add", "replace_out": "replace", "replace_in": "replace"}


def shapes_of_settings(queries: object) -> list[tuple[int, ...]]:
    """The shapes of all parameters of a mechanism, or of a tree of them, without the rows of tables and profiles."""

    def is_row(part: object) -> bool:
        return isinstance(part, Mechanism) and part._rows

    shapes: list[tuple[int, ...]] = []
    for part in jax.tree.leaves(queries, is_leaf=is_row):
        shapes += [np.shape(value)[:-1] for value in vars(part).values()] if is_row(part) else [np.shape(part)]
    return shapes


class Mechanism:
    """Base of every mechanism; subclasses are frozen dataclasses whose leaves are the parameters.

    The methods are private because analysts never call them: they are the contract between a mechanism and
    :mod:`jaxacct.mechanisms.directions`. Numbers in pairs are float64 scalars per setting (arrays that broadcast),
    NumPy's where every parameter is concrete and jax.numpy's inside a trace; invalid parameters
    become NaN there, which the engine turns into delta 1 and epsilon inf.
    """

    _rows: ClassVar[bool] = False
    """Whether the last axis of every parameter is the mechanism's own, and no settings."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def _name(self) -> str:
        """The name by which error messages call this mechanism."""
        return type(self).__name__

    @property
    def _symmetric(self) -> bool:
        """Whether `add` and `remove` have the same hockey-stick curve (so that one of them is enough)."""
        return False

    def _sides(self, relation: str) -> list[str]:
        """The directions of a relation, by the names that :meth:`_runs` takes.

        `replace_special` has `zero_out` (the numerator has the record, the denominator the special one) and `fill_in`.
        `replace` goes both ways by itself and has one, unless a :meth:`_witness` needs `replace_out` and `replace_in`.
        """
        names = BOTH_DIRECTIONS.get(relation, [relation])
        return names[:1] if self._symmetric else names

    def _as(self, side: str) -> str:
        """The direction whose pairs serve for ``side``: a special record counts as a missing one unless overridden."""
        return _AS.get(side, side)

    def _dominating(self, relation: str) -> Runs:
        """The dominating pairs of one run, as ``[(pair, how often it occurs), ...]``.

        Args:
            relation: ``"add"``, ``"remove"``, ``"replace"``, or what :meth:`_as` returns. The trees of `add` and
                `remove` have one structure, so that both directions run in one batch (a leaf says which is which, as in
                ``GaussianPair``).

        That of a mechanism which is equivalent to Gaussian ones is one Gaussian pair.

        Raises:
            ValueError: the relation has no analysis; the sentence says what would work.
        """
        noise = self._gaussian_noise()
        if noise is None:
            raise NotImplementedError
        return [(GaussianPair(noise, np.ones(()), np.zeros(())), 1.0)]

    def _one_pair(self, relation: str, of: str) -> Any:
        """The pair of one run, for what is only known of single pairs; NaN where traced counts are not 1.

        Raises:
            ValueError: one run is several; the sentence begins with ``of``, what wants one pair.
        """
        (pair, count), *others = self._dominating(relation)
        known = not _validate.is_traced(count)
        if others or (known and not _validate.passing() and np.any(np.asarray(count) > 1.0)):
            raise ValueError(
                f"{of} needs a mechanism of which one run is one pair, got {self._name}; give it "
                "the mechanisms that are run instead, each by itself"
            )
        return pair if known and np.all(count == 1.0) else poisoned(pair, count != 1.0)

    def _runs(self, relation: str, steps: ArrayLike) -> Runs:
        """The dominating pairs of ``steps`` runs: those of one run so often, unless guarantees add up otherwise."""
        return [(pair, times(count, steps)) for pair, count in self._dominating(self._as(relation))]

    def _witness(self, relation: str) -> Mechanism:
        """The mechanism whose exact curve is the lower bound: itself, unless its pair is more than its worst case.

        A guarantee that is only a curve may be dominated by a pair that no mechanism with the guarantee attains. Then
        this is one that has the guarantee, so that the class's worst case lies between the two.
        """
        return self

    def _attained(self, direction: str, replaced: bool) -> Runs:
        """The pairs of the best attack known, for :class:`jaxacct.mechanisms.known_attack.KnownAttack`.

        Args:
            direction: ``"remove"`` or ``"add"``: whether the record goes or comes.
            replaced: whether another record takes its place, or had it before.
        """
        return self._dominating(direction)

    def _gaussian_runs(self) -> list[tuple[Array, Real]] | None:
        """``[(noise multiplier, how often), ...]`` of Gaussian mechanisms that this is equivalent to, or None."""
        return None

    def _gaussian_noise(self) -> Array | None:
        """The noise multiplier of the one Gaussian mechanism that this is equivalent to, or None."""
        runs = self._gaussian_runs()
        return None if runs is None else composed_noise(runs)

    def _sampled(self, rate: Rate, relation: str) -> Pair:
        """The pair of one run on a Poisson sample of the given ``rate``, for ``"add"`` or ``"remove"``.

        With (P, Q) the pair of ``relation`` itself, `remove` has ((1 - rate) Q + rate P, Q) and `add` has
        (P, (1 - rate) P + rate Q) (Zhu, Dong, Wang 2022, on Poisson sampling). This needs one pair a run.

        Raises:
            ValueError: a run is a composition, whose pair is a product and not one pair.
        """
        noise, reverse = self._gaussian_noise(), np.full((), float(relation == "add"))
        if noise is not None:
            return GaussianPair(noise, rate.value, reverse, rate.rest)
        return SampledPair(self._one_pair(relation, "PoissonSampled"), rate.value, reverse, rate.rest)

    def _replaced(self, rate: Rate) -> Pair:
        """The pair of replaced records in a Poisson sample of the given ``rate``; `replace` is symmetric.

        It needs the pair for `remove` only (``docs/proofs/replaced-records.md``), which this reads off lists of
        outcomes.

        Raises:
            ValueError: a pair that lists no outcomes.
        """
        noise = self._gaussian_noise()
        if noise is not None:
            return AntipodalGaussianPair(noise, rate.value, rate.rest)
        parts = self._dominating("remove")
        if len(parts) == 1 and isinstance(parts[0][0], Tabulated):
            return AntipodalTablePair(self._one_pair("remove", "PoissonSampled"), rate.value, rate.rest)
        raise ValueError(
            f"relation 'replace' has no analysis for PoissonSampled of {self._name}; it has one for Gaussian, "
            "Laplace, RandomSensitivityGaussian, FromTables and other mechanisms of few outcomes. Otherwise a replaced "
            "record is one removed and one added: group privacy turns (epsilon, delta) for 'add_or_remove' into "
            "(2 epsilon, (1 + exp(epsilon)) delta)"
        )

    def _renyi(self, order: ArrayLike, relation: str) -> Array:
        """An upper bound of the Rényi divergence of one run (inside ``enable_x64``); infinite for invalid numbers.

        It is that of the pair, unless the mechanism has a formula for less.

        Raises:
            ValueError: a run is a composition, whose pair is a product and not one pair.
        """
        return largest([self._one_pair(name, "A Rényi curve") for name in self._sides(relation)], order)

    def _as_renyi(self, relation: str) -> str:
        """The relation that :meth:`_renyi` takes for ``relation``."""
        if relation == "replace_special" and self._as("zero_out") == "remove":
            return "add_or_remove"
        return self._as(relation)

    def _pure(self) -> Array | None:
        """The largest privacy loss, rounded up, where it has a closed form; NaN for invalid numbers."""
        return None

    def _rho(self) -> Array | None:
        """The rho of zCDP of one run, to a few roundings, where it has a closed form; NaN for invalid numbers."""
        pure = self._pure()
        return None if pure is None else rho_of_pure(pure)

    def _approximate_rho(self) -> tuple[Array, Array] | None:
        """(rho, delta) of delta-approximate rho-zCDP, rounded up, where there is a closed form."""
        rho = self._rho()
        return None if rho is None else (rho, np.zeros(()))

    def _rarely_sampled(self, steps: ArrayLike) -> tuple[Array, Real]:
        """See :func:`jaxacct.mechanisms.directions.rarely_sampled`."""
        return np.zeros((), bool), np.inf


class Symmetric(Mechanism):
    """A mechanism whose `add` and `remove` have one curve, that of a pair which is its own reflection."""

    @property
    def _symmetric(self) -> bool:
        return True


def of_witness(sample: Any, relation: str) -> Any:
    """``sample``, a mechanism that runs another one, with the other's witness in its place; itself if they are one."""
    inner = sample.mechanism._witness(relation)
    return sample if inner is sample.mechanism else unchecked(type(sample), **{**vars(sample), "mechanism": inner})


def as_mechanism(mechanism: object) -> Mechanism:
    """``mechanism``, if it is one.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(mechanism, Mechanism):
        raise ValueError(f"mechanism must be one of those in jaxacct.mechanisms, got {type(mechanism).__name__}")
    return mechanism
