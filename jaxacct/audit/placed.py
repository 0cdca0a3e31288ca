"""`canaries`: places canaries in the data of a training run and reads their scores from what each step releases."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.audit.guesses import OneRun, one_run
from jaxacct.mechanisms.base import Mechanism
from jaxacct.training import checks as _check

if TYPE_CHECKING:
    import optax

_RECORD, _ABSENT = -1, -2  # labels of rows; a gradient canary's is its number
_AT_ONCE = 64  # gradients of canaries


class Scores(NamedTuple):
    """Two scores of every canary, (canaries,) float32 each; what is high speaks for a canary that is in the data.

    Attributes:
        total: the sum over steps of the release along the canary.
        change: the sum over steps of the squared change of it from one step to the next.
        last: of the last step.
        steps: () int32, steps observed.
    """

    total: jax.Array
    change: jax.Array
    last: jax.Array
    steps: jax.Array


class AuditedState(NamedTuple):
    """The state of :meth:`Canaries.optimizer`: the scores so far, and the state of the optimiser that it wraps."""

    scores: Scores
    inner: PyTree


@dataclasses.dataclass(frozen=True, eq=False)
class Canaries:
    """A training problem with canaries in it; made by :func:`canaries`. Static: a program holds it as a constant.

    Attributes:
        loss: ``loss(params, example)`` of a row of ``data``, for the training step that is audited.
        params: where training starts. With gradient canaries, ``{"model": the user's, "canaries": zeros}``.
        data: pytree of arrays (records + canaries, ...): records and canaries in random order.
        included: (canaries,) bool, NumPy: which canaries are in. The secret that is guessed: neither the step nor
            the scores look at it.
        examples: the canaries that are the user's own; None for gradient canaries.
        of_model: the user's loss, along whose gradients those are read.
    """

    loss: Callable[[PyTree, PyTree], jax.Array]
    params: PyTree
    data: PyTree
    included: np.ndarray
    examples: PyTree = dataclasses.field(repr=False)
    of_model: Callable[[PyTree, PyTree], jax.Array] = dataclasses.field(repr=False)

    def model(self, params: PyTree) -> PyTree:
        """The part of ``params``, or of a tree of their shapes, that is the user's model."""
        return params["model"] if self.examples is None else params

    def init(self) -> Scores:
        """The scores before the first step."""
        nothing = jnp.zeros(self.included.shape, jnp.float32)
        return Scores(nothing, nothing, nothing, jnp.int32(0))

    def observe(self, scores: Scores, release: object, params: object) -> Scores:
        """``scores`` after one more release: the noisy gradient of a step, of the shapes of ``params``; jittable.

        ``params`` are those that the gradients were taken at.
        """
        _validate.instance(Scores, scores=scores)
        along = self._along(release, params)
        change = jnp.where(scores.steps > 0, jnp.square(along - scores.last), 0.0)
        return Scores(scores.total + along, scores.change + change, along, scores.steps + 1)

    def _along(self, release: PyTree, params: PyTree) -> jax.Array:
        """The length of ``release`` along each canary, (canaries,) float32."""
        if self.examples is None:
            return release["canaries"].astype(jnp.float32)

        def one(example: PyTree) -> jax.Array:
            gradient = jax.grad(self.of_model)(params, example)
            dot, square = (
                sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(tree), jax.tree.leaves(gradient), strict=True))
                for tree in (release, gradient)
            )
            return jnp.where(square > 0, dot / jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0).astype(jnp.float32)

        return jax.lax.map(one, self.examples, batch_size=min(_AT_ONCE, self.included.size))

    def optimizer(self, inner: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
        """``inner``, with every gradient that it is given observed first; its state is an ``AuditedState``.

        It must be given the releases themselves, so it stands first in a chain. Of gradient canaries ``inner`` sees the
        model's part alone: the model moves as it would without them.
        """
        import optax

        _validate.methods("init", "update", inner=inner)
        wrapped = optax.with_extra_args_support(inner)

        def init(params: object) -> AuditedState:
            return AuditedState(self.init(), wrapped.init(self.model(params)))

        def update(
            updates: PyTree, state: PyTree, params: PyTree = None, **more: object
        ) -> tuple[PyTree, AuditedState]:
            if params is None:
                raise ValueError("params must be given to update: scores are read at them, got None")
            scores = self.observe(state.scores, updates, params)
            moved, inner_state = wrapped.update(self.model(updates), state.inner, self.model(params), **more)
            if self.examples is None:
                moved = {"model": moved, "canaries": jnp.zeros_like(updates["canaries"])}
            return moved, AuditedState(scores, inner_state)

        return optax.GradientTransformationExtraArgs(init, update)

    def audit(
        self,
        scores: Scores,
        guesses: int | tuple[int, int] | None = None,
        *,
        delta: float,
        confidence: float = 0.95,
        mechanism: Mechanism | None = None,
        steps: int = 1,
        relation: str = "add_or_remove",
    ) -> OneRun:
        """What the scores show: :func:`one_run` of guesses that the highest scores are in, and the lowest out.

        Args:
            scores: after the last step.
            guesses: how many canaries are said to be in, and how many to be out; or one number, half of it each. Fixed
                before scores are looked at; by default a fifth of the canaries.
            delta, confidence, mechanism, steps, relation: as in :func:`one_run`. An absent canary is a row that counts
                as nothing: ``"replace_special"``, which for Poisson samples is ``"add_or_remove"``. Where a mechanism
                has no analysis of it, ``"replace"`` is more.

        Returns:
            A :class:`OneRun` of the better one of the two scores, which share the error.

        Raises:
            ValueError: scores that are not finite or of another number of canaries; else as :func:`one_run`.
        """
        _validate.instance(Scores, scores=scores)
        count = self.included.size
        guesses = max(count // 5, 1) if guesses is None else guesses
        if not isinstance(guesses, tuple):
            _validate.integer(1, count, guesses=guesses)
            guesses = (guesses - guesses // 2, guesses // 2)
        if len(guesses) != 2:
            raise ValueError(f"guesses must be a number or a pair of numbers, in and out, got {guesses!r:.200}")
        high, low = guesses
        _validate.integer(0, count, guesses=high)
        _validate.integer(0, count - high, guesses=low)
        correct = []
        for name, score in (("total", scores.total), ("change", scores.change)):
            found = np.asarray(score)
            if found.shape != (count,) or not np.isfinite(found).all():
                raise ValueError(f"scores must hold {count} finite numbers as {name}, got {found!r:.200}")
            order = np.argsort(found, kind="stable")
            correct.append(int(np.sum(~self.included[order[:low]])) + int(np.sum(self.included[order[count - high :]])))
        return one_run(
            correct,
            high + low,
            count,
            delta=delta,
            confidence=confidence,
            mechanism=mechanism,
            steps=steps,
            relation=relation,
        )


def canaries(
    loss: Callable[[PyTree, PyTree], jax.Array],
    params: PyTree,
    data: PyTree,
    *,
    key: jax.Array,
    number: int | None = None,
    gradient_norm: float | None = None,
    examples: PyTree = None,
) -> Canaries:
    """A training problem with canaries: train on its ``loss``, ``params`` and ``data``, and its scores audit the run.

    Either ``number`` gradient canaries: rows whose gradient is ``gradient_norm`` long and points along a coordinate
    that is the canary's own, in a vector of parameters beside the model's. No record and no other canary has a
    gradient there: it is the strongest position that an attacker in gradient space has, and the model does not notice.
    Or the user's own ``examples``, read along their own gradients.

    Each canary is in the data by a fair coin from ``key``; one that is not is a row whose loss is 0, so that the number
    of rows is public and the same. Rows are in random order, as bugs may sit at either end of the data.

    Args:
        loss: ``loss(params, example)``, a scalar for one example without a batch axis.
        params: pytree of float arrays.
        data: pytree of arrays (records, ...).
        key: a typed PRNG key that neither the step nor its keys depend on.
        number: of gradient canaries.
        gradient_norm: of a gradient canary before it is clipped. Choose ten clip norms: a step that does not clip gives
            itself away.
        examples: pytree of arrays (canaries, ...), like ``data``.

    Raises:
        ValueError: both or neither of ``number`` and ``examples``; a number without a norm; trees that do not fit.
    """
    _validate.function(loss=loss)
    if not _validate.is_key(key):
        raise ValueError(f"key must be one typed PRNG key, got {_validate.shown(key)}")
    records = _check.rows(data=data)
    if (number is None) == (examples is None) or (number is None) != (gradient_norm is None):
        raise ValueError(
            "canaries must be given as a number with a gradient_norm, or as examples, got "
            f"number={number!r}, gradient_norm={gradient_norm!r} and examples={examples!r:.80}"
        )
    coins, order = jax.random.split(key)
    if number is not None and gradient_norm is not None:
        _validate.integer(1, 2**20, number=number)
        _validate.scalar(_validate.positive, gradient_norm=gradient_norm)
        count, length = int(number), jnp.float32(gradient_norm)
        # Its row is some record's, which its loss does not look at: at a row of zeros a loss may have no gradient.
        extra = jax.tree.map(lambda leaf: jnp.asarray(leaf)[np.arange(count) % records], data)
        params = {"model": params, "canaries": jnp.zeros(count, jnp.float32)}
    else:
        count, length = _check.rows(examples=examples), 0.0
        extra = examples = jax.tree.map(jnp.asarray, examples)
        found, wanted = (_validate.shapes(jax.tree.map(lambda leaf: leaf[0], tree)) for tree in (extra, data))
        if found != wanted:
            raise ValueError("examples must be a tree of the shapes of data, but for their number")
    included = np.asarray(jax.random.bits(coins, (count,), jnp.uint32) >> 31, bool)
    number_of = np.arange(count) if examples is None else np.full(count, _RECORD)
    labels = np.r_[np.full(records, _RECORD), np.where(included, number_of, _ABSENT)].astype(np.int32)
    places = jax.random.permutation(order, records + count)
    rows = jax.tree.map(lambda some, more: jnp.concatenate([jnp.asarray(some), more])[places], data, extra)

    def audited(params: PyTree, example: PyTree) -> jax.Array:
        row, label = example
        if examples is not None:
            return jnp.where(label == _RECORD, loss(params, row), 0.0)
        own = length * jnp.vdot(jax.nn.one_hot(label, count, dtype=jnp.float32), params["canaries"])
        return jnp.where(label == _RECORD, loss(params["model"], row), jnp.where(label == _ABSENT, 0.0, own))

    return Canaries(audited, params, (rows, jnp.asarray(labels)[places]), included, examples, loss)
