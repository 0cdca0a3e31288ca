"""The pair of a Gaussian whose sensitivity is random."""

from __future__ import annotations

import functools
import operator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxacct._log1p import log1p
from jaxacct._rounding import UNIT
from jaxacct.mechanisms._gaussian_pair import normal_tails
from jaxacct.mechanisms._pair import Survey, Tails
from jaxacct.mechanisms._register import mechanism
from jaxacct.mechanisms._sampled_loss import inner_loss, mixed_loss

__all__ = ["MixturePair"]

_POINTS = 256  # survey atoms a component: as in GaussianPair
_REACH = 37.5  # standard deviations up to which a normal tail is a normal float64
_ITERATIONS = 64
_ACCEPTED = 64.0  # roundoffs of the terms' size by which a solved loss may be off


@mechanism
class MixturePair:
    """P = sum_i w_i N(s_i, s^2) against Q = N(0, s^2), or the reverse; all s_i >= 0.

    The components of sensitivity 0 are a mixture of P with Q, that is sampling (:mod:`._sampled_loss`). What is left
    has the loss M(x) = log sum_i v_i exp(y_i), y_i = (s_i x - s_i^2 / 2) / s^2, v_i = w_i / rate: convex and strictly
    increasing. Its inverse is found by Newton's method from the right, which never overshoots; the residual is
    checked, and an outcome that is not accurate becomes NaN (so that bounds fail closed).

    Attributes:
        noise: s; scalar float64.
        sensitivities: tuple of k scalars s_i >= 0, not all 0.
        weights: tuple of k scalars w_i >= 0 whose sum is 1.
        reverse: 0 is the direction `remove` (P is the mixture), 1 is `add`; a leaf, see ``GaussianPair``.
    """

    noise: Any
    sensitivities: tuple[Any, ...]
    weights: tuple[Any, ...]
    reverse: Any

    def _components(self) -> tuple[Array, Array, Array]:
        """Sensitivities and weights v_i of the moving components, shape ``(k,)``, and their total weight."""
        s = jnp.stack([jnp.asarray(x, jnp.float64) for x in self.sensitivities])
        w = jnp.stack([jnp.asarray(x, jnp.float64) for x in self.weights])
        moving = jnp.where(s > 0, w, 0.0)
        rate = jnp.minimum(moving.sum() / w.sum(), 1.0)
        return s, moving / moving.sum(), rate

    def _loss(self, x: Array) -> Array:
        s, v, rate = self._components()
        return mixed_loss(_moving_loss(x, s, v, self.noise)[0], rate)

    def _outcome(self, losses: Array) -> Array:
        """The x at which the loss of the mixture against the base is ``losses``; -inf below its range."""
        s, v, rate = self._components()
        m = inner_loss(losses, rate)
        goal = jnp.where(jnp.isfinite(m), m, 0.0)
        # The solution is a constant to derivatives: those of one more Newton step are the right ones.
        x = _solved(*(jax.lax.stop_gradient(value) for value in (goal, s, v, jnp.asarray(self.noise))))
        value, slope = _moving_loss(x, s, v, self.noise)
        better = x - (value - goal) / slope
        off = jnp.abs(_moving_loss(better, s, v, self.noise)[0] - goal)
        better = jnp.where(off <= _accepted(better, goal, s, self.noise), better, jnp.nan)
        return jnp.where(m == -jnp.inf, -jnp.inf, better)

    def tails(self, losses: Array) -> Tails:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        add = jnp.asarray(self.reverse) > 0.5
        s, v, rate = self._components()
        x = self._outcome(jnp.where(add, -losses, losses))
        z0 = x / self.noise
        base_above, base_below = normal_tails(z0)
        parts = [normal_tails((x - s[i]) / self.noise) for i in range(s.shape[0])]
        sums = [functools.reduce(operator.add, [v[i] * part[side] for i, part in enumerate(parts)]) for side in (0, 1)]
        mix_above = (1.0 - rate) * base_above + rate * sums[0]
        mix_below = (1.0 - rate) * base_below + rate * sums[1]
        # As in GaussianPair; the sum of k terms adds a roundoff a term.
        larger = jnp.minimum(jnp.maximum(jnp.abs(z0), jnp.abs((x - s.max()) / self.noise)), _REACH + 2.0)
        error = UNIT * (24.0 + 4.0 * s.shape[0] + 8.0 * larger**2)
        choose = lambda reversed_, straight: jnp.where(add, reversed_, straight)  # noqa: E731
        return Tails(  # reversed, L > l means x < x(l)
            choose(base_below, mix_above),
            choose(base_above, mix_below),
            choose(mix_below, base_above),
            choose(mix_above, base_below),
            error,
        )

    def survey(self) -> Survey:
        """See :class:`jaxacct.mechanisms._pair.Pair`."""
        add = jnp.asarray(self.reverse) > 0.5
        s, v, rate = self._components()
        z = jnp.linspace(-_REACH, _REACH, _POINTS)
        log_weight = -0.5 * z**2 - jax.nn.logsumexp(-0.5 * z**2)
        outcomes = [z * self.noise, *(s[i] + z * self.noise for i in range(s.shape[0]))]
        nothing = jnp.full_like(log_weight, -jnp.inf)
        mixture = [log1p(-rate) + log_weight, *(jnp.log(rate * v[i]) + log_weight for i in range(s.shape[0]))]
        base = [log_weight, *(nothing for _ in range(s.shape[0]))]
        loss = self._loss(jnp.concatenate(outcomes))
        log_masses = jnp.where(add, jnp.concatenate(base), jnp.concatenate(mixture))
        return Survey(jnp.where(add, -loss, loss), log_masses)

    def max_loss(self) -> Array:
        """-log of the weight of sensitivity 0 in the direction `add`, where P is the base; none in the other."""
        rate = self._components()[2]
        return jnp.where(jnp.asarray(self.reverse) > 0.5, -log1p(-rate), jnp.inf)

    def loss_error(self) -> Array:
        """The residual that ``_outcome`` accepts, at outcomes that float64 can weigh."""
        s, _, _ = self._components()
        size = s.max() * (_REACH * self.noise + 2.0 * s.max()) / self.noise**2
        return UNIT * (128.0 + 3.0 * _ACCEPTED * (1.0 + size))

    def infinity(self) -> Array:
        """None: all of the line is support."""
        return 0.0 * jnp.asarray(self.noise)

    def anchors(self) -> tuple[Array, Array]:
        """No atoms, no preference."""
        return 0.0 * jnp.asarray(self.noise), 0.0 * jnp.asarray(self.noise)


def _moving_loss(x: Array, s: Array, v: Array, noise: Any) -> tuple[Array, Array]:
    """M(x) of the class's docstring and its slope, any shape."""
    y = jnp.where(v > 0, (s * x[..., None] - 0.5 * s**2) / noise**2, 0.0)
    logs = jnp.where(v > 0, y + jnp.log(jnp.where(v > 0, v, 1.0)), -jnp.inf)
    far = jax.nn.logsumexp(logs, axis=-1)
    near = log1p((v * jnp.expm1(jnp.clip(y, -0.6, 0.6))).sum(-1))
    slope = (jnp.exp(logs - far[..., None]) * s).sum(-1) / noise**2
    return jnp.where(jnp.max(jnp.abs(y), -1) < 0.5, near, far), slope


def _accepted(x: Array, goal: Array, s: Array, noise: Any) -> Array:
    """What M(x) may be off by: a relative error of x moves the loss by that of its steepest line."""
    size = s.max() * (jnp.abs(x) + s.max()) / noise**2
    return _ACCEPTED * UNIT * (1.0 + jnp.abs(goal) + size)


def _solved(goal: Array, s: Array, v: Array, noise: Array) -> Array:
    """The root of M(x) = goal, or whatever Newton's method has after 64 steps."""
    # Jensen: M is above the weighted mean of its lines, so the root lies left of that line's.
    start = (goal * noise**2 + 0.5 * (v * s**2).sum()) / (v * s).sum()

    def newton(state):
        x, value, slope, i = state
        x = x - (value - goal) / slope
        return x, *_moving_loss(x, s, v, noise), i + 1

    def unfinished(state):
        x, value, _, i = state
        return jnp.any(jnp.abs(value - goal) > _accepted(x, goal, s, noise)) & (i < _ITERATIONS)

    return jax.lax.while_loop(unfinished, newton, (start, *_moving_loss(start, s, v, noise), 0))[0]
