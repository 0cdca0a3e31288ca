"""Atoms and spikes land on lattice points: laws of few atoms come out exact, rarely sampled records tight."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax import Array

import jaxacct
from jaxacct.losses import engine
from jaxacct.mechanisms._pair import Survey, Tails
from jaxacct.mechanisms._register import mechanism


@mechanism
class Extremal:
    """The dominating pair of every (level, leak)-DP mechanism: losses -level, level, and infinity with leak."""

    level: Array
    leak: Array

    def tails(self, losses):
        level, leak = (jnp.asarray(x)[..., None] for x in (self.level, self.leak))
        p = [(1.0 - leak) / (1.0 + jnp.exp(side * level)) for side in (1.0, -1.0)]
        above = [losses < -level, losses < level]
        total = lambda masses, where: sum(jnp.where(w, m, 0.0) for m, w in zip(masses, where, strict=True))  # noqa: E731
        q, below = p[::-1], [~x for x in above]
        sides = total(p, above) + leak, total(p, below), total(q, above), total(q, below) + leak
        return Tails(*sides, jnp.full(sides[0].shape, 2.0**-50))

    def survey(self):
        losses = jnp.stack([-self.level, self.level], -1)
        return Survey(losses, jnp.log1p(-self.leak)[..., None] - jnp.log1p(jnp.exp(-losses)))

    def max_loss(self):
        return jnp.where(self.leak > 0, jnp.inf, self.level)

    def infinity(self):
        return self.leak * (1.0 - 2.0**-52)

    def anchors(self):
        return -self.level, 2.0 * self.level

    def loss_error(self):
        return jnp.zeros_like(self.level)


def _truth(level, leak, steps, epsilon):
    """delta of ``steps`` extremal pairs: a binomial law of losses."""
    count = np.arange(steps + 1)
    losses = (2 * count - steps) * level
    masses = scipy.stats.binom.pmf(count, steps, scipy.special.expit(level))
    finite = (1 - leak) ** steps
    hockey_stick = (masses * -np.expm1(np.minimum(epsilon - losses, 0.0))).sum()
    return -np.expm1(steps * np.log1p(-leak)) + finite * hockey_stick


def _bounds(kind, parts, goals):
    """Answers for all ``goals`` at once; parts are (level, leak, steps)."""
    fill = lambda x: np.full(len(goals), float(x))  # noqa: E731
    with jax.enable_x64(True):
        pairs = [Extremal(fill(level), fill(leak)) for level, leak, _ in parts]
        return engine.bounds(kind, pairs, [fill(steps) for _, _, steps in parts], np.asarray(goals), None, np)


@pytest.mark.parametrize("leak", [0.0, 1e-7])
@pytest.mark.parametrize(
    ("level", "steps"),
    [
        (1.0, 1),
        pytest.param(1.0, 10, marks=pytest.mark.slow),
        pytest.param(0.3, 10, marks=pytest.mark.slow),
        pytest.param(0.05, 2000, marks=pytest.mark.slow),
        pytest.param(0.1234567, 2000, marks=pytest.mark.slow),
    ],
)
def test_two_atoms_compose_exactly(level, steps, leak):
    deviation = level * steps**0.5
    epsilons = steps * level * np.tanh(level / 2) + deviation * np.array([-0.31, 1.17, 4.03])
    epsilons = np.minimum(epsilons, 0.9 * steps * level)
    truth = np.array([_truth(level, leak, steps, epsilon) for epsilon in epsilons])
    lower, upper = _bounds("delta", [(level, leak, steps)], epsilons)
    assert np.all(lower <= truth * (1 + 1e-12))
    assert np.all(truth * (1 - 1e-12) <= upper)
    assert np.all(upper - lower <= (1e-9 if steps <= 10 else 6e-8) * upper)  # what is left is FFT rounding
    if leak and steps == 2000:  # beyond all losses but the infinite one
        lower, upper = _bounds("delta", [(level, leak, steps)], np.full(3, 2 * steps * level))
        failing = -np.expm1(steps * np.log1p(-leak))
        np.testing.assert_allclose(lower / failing - 1, -1e-12, rtol=0.1)
        assert np.all((upper >= failing) & (upper <= failing * (1 + 1e-8)))
    lower, upper = _bounds("epsilon", [(level, leak, steps)], truth)
    assert np.all(lower <= epsilons * (1 + 1e-12))
    assert np.all(epsilons * (1 - 1e-12) <= upper)
    assert np.all(upper - lower <= (1e-9 if steps <= 10 else 2e-8) * np.maximum(upper, level))


@pytest.mark.slow
def test_parts_with_different_periods_compose_exactly():
    # Losses -1, 1 three times and -0.25, 0.25 five times.
    epsilons = np.array([0.1, 1.3, 2.9])
    truth = np.zeros(3)
    for i, one in enumerate(scipy.stats.binom.pmf(np.arange(4), 3, scipy.special.expit(1.0))):
        for j, two in enumerate(scipy.stats.binom.pmf(np.arange(6), 5, scipy.special.expit(0.25))):
            loss = (2 * i - 3) + (2 * j - 5) * 0.25
            truth += one * two * -np.expm1(np.minimum(epsilons - loss, 0.0))
    lower, upper = _bounds("delta", [(1.0, 0.0, 3), (0.25, 0.0, 5)], epsilons)
    assert np.all((lower <= truth * (1 + 1e-12)) & (truth * (1 - 1e-12) <= upper))
    assert np.all(upper - lower <= 1e-8 * upper)


def _by_plain_fft(sigma, rate, steps, epsilon, reach):
    """delta on 2^21 points, losses split between neighbours so that means are kept: good to about 1e-5, no bound."""
    size = 2**21
    x = np.linspace(-12 * sigma, 1 + 12 * sigma, 400_001)
    base = scipy.stats.norm.pdf(x, 0, sigma) * (x[1] - x[0])
    loss = np.log1p(rate * np.expm1((x - 0.5) / sigma**2))
    masses = base * np.exp(loss)
    spacing = 2 * reach / size
    cell = np.floor(loss / spacing).astype(int)
    part = loss / spacing - cell
    law = np.bincount(cell % size, masses * (1 - part), size) + np.bincount((cell + 1) % size, masses * part, size)
    composed = np.fft.irfft(np.exp(steps * np.log(np.fft.rfft(law))), size)
    losses = np.fft.fftfreq(size, 1 / size) * spacing
    return (composed * -np.expm1(np.minimum(epsilon - losses, 0.0))).sum()


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "epsilon", "reach"),
    [(0.5, 1e-3, 10_000, 5.2, 20.0), (0.7, 1e-3, 1000, 0.6, 8.0), (0.4, 1e-4, 100_000, 7.4, 30.0)],
)
def test_rarely_sampled_records_are_bracketed_tightly(sigma, rate, steps, epsilon, reach):
    # The loss is a spike narrower than a cell, and a tail that decides delta.
    truth = _by_plain_fft(sigma, rate, steps, epsilon, reach)
    mechanism = jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), rate)
    bounds = jaxacct.delta(mechanism, epsilon, steps=steps, relation="remove")
    assert bounds.lower <= truth * (1 + 1e-4)
    assert truth * (1 - 1e-4) <= bounds.upper
    assert bounds.upper / bounds.lower - 1 < 5e-3
