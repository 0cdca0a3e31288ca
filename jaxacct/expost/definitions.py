"""The definitions of ex-post privacy, what each supports (Table 1 and two more), and results that carry one.

An ex-post mechanism returns a pair (output, epsilon): epsilon is part of what is released, and may depend on the
data. P and Q are the laws of that pair on neighbouring data sets X and X', p and q their densities:

=========================== ====================================================== ==================
definition                  for all neighbours                                     post-processing
=========================== ====================================================== ==================
`PureExPost`                p <= e^epsilon q, almost surely                        immune
`ProbabilisticExPost`       P(p > e^epsilon q) <= delta                            not immune
`ApproximateExPost`         P(S) <= E_Q[e^epsilon 1_S] + delta, all S              immune (see there)
`RenyiExPost`               E_Q[e^((1 - order) epsilon) (p / q)^order] <= 1        immune
`ZCDPExPost`                the same at every order a > 1, with epsilon = a rho    immune
`GDPExPost`                 made from a Brownian motion stopped at drift^2 = rho   immune
=========================== ====================================================== ==================
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import ClassVar

from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct._numerics.pytree import mechanism as _register
from jaxacct._types import PyTree

__all__ = [
    "ApproximateExPost",
    "Definition",
    "ExPostResult",
    "GDPExPost",
    "ImmunityWarning",
    "ProbabilisticExPost",
    "PureExPost",
    "RenyiExPost",
    "ZCDPExPost",
    "post_process",
]


class ImmunityWarning(UserWarning):
    """A post-processed result keeps less than the definition it had."""


@dataclasses.dataclass(frozen=True)
class Definition:
    """A definition of ex-post privacy; compare with ``==``.

    Attributes:
        immune: whether every post-processing f of (output, epsilon) that leaves epsilon alone keeps it.
        brownian: whether the Brownian mechanism satisfies it (`RenyiExPost` directly, others by conversion).
    """

    immune: ClassVar[bool]
    brownian: ClassVar[bool]

    @property
    def after_post_processing(self) -> Definition:
        """What is true of (f(output, epsilon), epsilon) for every randomised f."""
        return self


@dataclasses.dataclass(frozen=True)
class PureExPost(Definition):
    """The privacy loss is at most the returned epsilon, almost surely.

    Source: Ligett et al. 2017, Definition 2.3; immunity: accuracy-first paper, Section 3.2.
    """

    immune: ClassVar[bool] = True
    brownian: ClassVar[bool] = False


@dataclasses.dataclass(frozen=True)
class _WithDelta(Definition):
    delta: float

    def __post_init__(self) -> None:
        _validate.scalar(_validate.rate, delta=self.delta)
        object.__setattr__(self, "delta", float(self.delta))


@dataclasses.dataclass(frozen=True)
class ApproximateExPost(_WithDelta):
    """P(S) is at most E_Q[e^epsilon 1_S] + delta for every set S of outputs and epsilons.

    Immune, which is the entry that Table 1 of the paper leaves open: docs/theorems/ex-post-immunity.md.

    Source: Ghazi et al. 2025, Definition 5; immunity: docs/theorems/ex-post-immunity.md.
    """

    immune: ClassVar[bool] = True
    brownian: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class ProbabilisticExPost(_WithDelta):
    """The privacy loss is at most the returned epsilon except with probability delta.

    Not immune: merging two outputs of which one breaks its epsilon can make both break it (Meiser 2018). What
    survives is `ApproximateExPost` at the same delta: P(S) is at most delta on the bad set, and
    E_Q[e^epsilon 1_S] off it.

    Source: Whitehouse et al. 2022, Definition 2.2; accuracy-first paper, Section 3.
    """

    immune: ClassVar[bool] = False
    brownian: ClassVar[bool] = True

    @property
    def after_post_processing(self) -> Definition:
        """`ApproximateExPost` at the same delta; with delta 0 this is the pure definition, which is immune."""
        return ApproximateExPost(self.delta) if self.delta > 0 else PureExPost()


@dataclasses.dataclass(frozen=True)
class RenyiExPost(Definition):
    """E_Q[e^((1 - order) epsilon) (p / q)^order] is at most 1: Rényi privacy with epsilon inside the expectation.

    Source: accuracy-first Rényi paper, Section 4 (Definition, immunity, composition).
    """

    order: float

    immune: ClassVar[bool] = True
    brownian: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _validate.scalar(order=self.order)
        _validate.greater(1.0, order=self.order)
        object.__setattr__(self, "order", float(self.order))


@dataclasses.dataclass(frozen=True)
class ZCDPExPost(Definition):
    """E_Q[e^((1 - a) a rho) (p / q)^a] is at most 1 at every order a > 1; the number that comes back is rho.

    Concentrated privacy with rho inside the expectation: ex-post Rényi at all orders at once. A conversion's order may
    be chosen for its delta, and must not be chosen for the rho that came back (docs/theorems/ex-post-zcdp.md).

    Source: docs/theorems/ex-post-zcdp.md.
    """

    immune: ClassVar[bool] = True
    brownian: ClassVar[bool] = True


@dataclasses.dataclass(frozen=True)
class GDPExPost(Definition):
    """The pair can be made, on either data set, from a Brownian motion with that data set's drift, stopped early.

    The number that comes back is rho = mu^2 / 2: with drifts -1/2 and 1/2 and unit variance in a unit of time, the
    motion is stopped at the time 2 rho, by what it has shown and by other randomness (docs/theorems/ex-post-zcdp.md). A
    largest rho makes it GDP, rho adds up, and it implies `ZCDPExPost`.

    Source: docs/theorems/ex-post-zcdp.md.
    """

    immune: ClassVar[bool] = True
    brownian: ClassVar[bool] = True


class OfGaussians:
    """Whatever adds up Gaussians: ex-post Rényi at its ``order``, or ex-post GDP, its budgets rho, without one."""

    order: float | None

    @property
    def definition(self) -> RenyiExPost | GDPExPost:
        """Ex-post Rényi at this order, or ex-post GDP."""
        return GDPExPost() if self.order is None else RenyiExPost(self.order)


@_register
class ExPostResult:
    """What an ex-post mechanism returned, and what its epsilon means; a pytree (the definition is static).

    Attributes:
        output: any pytree.
        epsilon: at least 0, scalar, or batched like the output; rho under `ZCDPExPost` and `GDPExPost`.
        definition: a `Definition`.

    Raises:
        ValueError: a concrete ``epsilon`` that is NaN or negative, something else than a definition.
    """

    output: PyTree
    epsilon: ArrayLike
    definition: Definition = dataclasses.field(metadata={"static": True})

    def __post_init__(self) -> None:
        _validate.epsilon(epsilon=self.epsilon)
        _validate.instance(Definition, definition=self.definition)

    @property
    def order(self) -> float | None:
        """The Rényi order of the definition, None where it has none."""
        return getattr(self.definition, "order", None)

    @property
    def delta(self) -> float:
        """The delta of the definition, 0 where it has none."""
        return getattr(self.definition, "delta", 0.0)

    @classmethod
    def from_odometer(
        cls, output: PyTree, spent: Callable[..., ArrayLike], parameters: Sequence[object], *, delta: float
    ) -> ExPostResult:
        """A probabilistic odometer's reading as a delta-probabilistic ex-post result (Appendix A).

        Args:
            output: of the whole fully adaptive interaction.
            spent: the odometer COMP, called as ``spent(*parameters)``; valid in the sense of Rogers et al. 2016 and
                2023 (Definition 3.1): except with probability ``delta`` the interaction's privacy loss is at most
                what it returns, at every point where one may stop.
            parameters: the privacy parameters that the interaction ended up with.
            delta: the odometer's failure probability, in (0, 1).

        Raises:
            ValueError: a ``delta`` out of range, or a negative or NaN epsilon returned by ``spent``.

        A `RenyiOdometer` needs no such validity from elsewhere: `convert` its result instead.
        """
        _validate.function(spent=spent)
        _validate.scalar(_validate.probability, delta=delta)
        if not isinstance(parameters, Sequence):
            raise ValueError(f"parameters must be a sequence, got {parameters!r:.200}")
        return cls(output, spent(*parameters), ProbabilisticExPost(delta))


def post_process(released: PyTree, f: Callable[[PyTree, ArrayLike], object]) -> PyTree:
    """``f`` applied to what was released, with its epsilon kept (the paper's circled dot, equations 6 and 7).

    Args:
        released: an `ExPostResult`, or a mechanism: a callable that returns one.
        f: called as ``f(output, epsilon)``; it may be random (with a key of its own) but must not look at the data.

    Returns:
        An `ExPostResult` with the new output, or a callable that returns one. The definition is what post-processing
        leaves: `ProbabilisticExPost` drops to `ApproximateExPost`, with an `ImmunityWarning`.
    """
    _validate.function(f=f)
    if not isinstance(released, ExPostResult):
        _validate.instance(ExPostResult | Callable, released=released)

        @functools.wraps(released, updated=())
        def mechanism(*args: object, **kwargs: object) -> ExPostResult:
            return post_process(released(*args, **kwargs), f)

        return mechanism
    after = released.definition.after_post_processing
    if not released.definition.immune and after != PureExPost():
        warnings.warn(
            f"delta-probabilistic ex-post privacy is not immune to post-processing; the result is only "
            f"delta-approximate ex-post private, at the same delta {released.delta:g}",
            ImmunityWarning,
            stacklevel=2,
        )
    return ExPostResult(f(released.output, released.epsilon), released.epsilon, after)
