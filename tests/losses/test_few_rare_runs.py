"""Few runs on rare samples of a Gaussian: bounds against nested quadrature of one-run tails."""

import numpy as np
import pytest
from scipy.special import ndtr

import jaxacct

NODES, WEIGHTS = np.polynomial.legendre.leggauss(16)
# Distances from the outcome whose loss alone is enough, in panels that shrink towards it.
ENDS = np.concatenate([[0.0], 2.0 ** np.arange(-34.0, -1.0), np.arange(0.5, 32.0, 0.5)])
DISTANCES = (0.5 * (ENDS[1:] + ENDS[:-1])[:, None] + 0.5 * np.diff(ENDS)[:, None] * NODES).ravel()
MASSES = (0.5 * np.diff(ENDS)[:, None] * WEIGHTS).ravel()


def stick(noise, rate, runs, epsilon, add):
    """delta(epsilon) in float64, good to 1e-10 or so: the mean over one loss of the hockey stick of the others."""
    mu, epsilon = 1.0 / noise, np.asarray(epsilon, float)
    sign = -1.0 if add else 1.0

    def tails(x, epsilon):
        """P - e^eps Q of the outcomes from which on a loss is at least epsilon; no difference of tails near 1."""
        if add:
            near, far = ndtr(x), ndtr(x - mu)
            return rate * (near - far) - np.expm1(epsilon) * (near + rate * (far - near))
        return rate * (ndtr(mu - x) - ndtr(-x)) - np.expm1(epsilon) * ndtr(-x)

    def outcome(loss):
        """Where one run's loss is ``loss``; -inf below all losses."""
        ratio = np.maximum((np.expm1(loss) + rate) / rate, 0.0)
        with np.errstate(divide="ignore"):
            return (np.log(ratio) + 0.5 * mu * mu) / mu

    if runs == 1:
        x = outcome(sign * epsilon)
        with np.errstate(invalid="ignore"):
            value = tails(x, epsilon)
        none = np.zeros_like(epsilon) if add else -np.expm1(epsilon)
        return np.where(x > -np.inf, np.maximum(value, 0.0), none)
    # The others' losses are at least (`remove`) or at most (`add`) so many times this one.
    others = (runs - 1) * np.log1p(-rate)
    end = outcome(sign * epsilon - others)[..., None]
    t = end - DISTANCES
    loss = np.log1p(rate * np.expm1(mu * t - 0.5 * mu * mu))
    density = np.exp(-0.5 * t * t) / np.sqrt(2.0 * np.pi) * (1.0 if add else np.exp(loss))
    rest = stick(noise, rate, runs - 1, epsilon[..., None] - sign * loss, add)
    inside = np.where(np.isfinite(end[..., 0]), (density * rest * MASSES).sum(-1), 0.0)
    if add:
        return inside
    with np.errstate(invalid="ignore"):
        alone = tails(end[..., 0], epsilon)
    return np.where(end[..., 0] > -np.inf, inside + alone, -np.expm1(epsilon))


def bounds(kind, noise, rate, runs, goal, add):
    mechanism = jaxacct.PoissonSampled(jaxacct.Gaussian(noise), rate)
    lower, upper = getattr(jaxacct, kind)(mechanism, goal, steps=runs, relation="add" if add else "remove")
    return float(lower), float(upper)


CASES = [(1.0, 1e-9, 4.0), (1.0, 1e-3, 40.0), (0.6, 1e-5, 60.0), (2.0, 1e-6, 5.0), (4.0, 1e-2, 1.7), (1.3, 3e-2, 9.0)]


def check(noise, rate, runs, epsilon, add, truth, room):
    """Bounds of delta enclose the truth, those of epsilon at the truth enclose epsilon, and both are narrow."""
    for kind, goal, value in (("delta", epsilon, truth), ("epsilon", truth, epsilon)):
        lower, upper = bounds(kind, noise, rate, runs, goal, add)
        assert lower <= value * (1.0 + room)
        assert value * (1.0 - room) <= upper
        assert upper - lower <= 1e-3 * upper


@pytest.mark.parametrize(
    ("noise", "rate", "losses", "runs"), [(*case, 2) for case in CASES] + [(*case, 3) for case in CASES[1:4]]
)
@pytest.mark.parametrize("add", [False, True], ids=["remove", "add"])
def test_bounds_enclose_nested_quadrature(noise, rate, losses, runs, add):
    epsilon = 0.6 * runs * rate if add else losses * rate
    check(noise, rate, runs, epsilon, add, float(stick(noise, rate, runs, epsilon, add)), 1e-7)


def inverted(noise, rate, runs, epsilon, add, vertex, outcomes):
    """delta(epsilon) in float64 by Gauss-Legendre panels on a vertical line, without thresholds, outcomes cut off."""
    mu, nodes, weights = 1.0 / noise, *np.polynomial.legendre.leggauss(24)
    away = (-epsilon if add else epsilon) - runs * np.log1p(-rate)
    t = np.arange(-outcomes, outcomes + mu, 0.01)
    loss = np.log1p(rate * np.expm1(mu * t - 0.5 * mu * mu) / (1.0 - rate) + rate / (1.0 - rate))
    law = 0.01 / np.sqrt(2.0 * np.pi) * np.exp(vertex * loss - 0.5 * t * t)
    moment, total, size = law.sum(), 0.0, abs(vertex)
    widths = np.diff(np.append(0.0, size * np.geomspace(1e-4, 0.3, 12)))
    for end, width in zip(np.cumsum(widths), widths, strict=True):
        y = end + 0.5 * width * (nodes - 1.0)
        total += 0.5 * width * _line(law / moment, loss, vertex + 1j * y, away, runs) @ weights
    y = end + 2.0 * np.arange(200.0)[:, None] / away + (1.0 + nodes) / away
    terms = _line(law / moment, loss, vertex + 1j * y.ravel(), away, runs).reshape(y.shape)
    total += (terms @ weights).sum() / away
    return total / np.pi * moment**runs * np.exp(-vertex * away) * (1.0 if add else np.exp(epsilon))


def _line(law, loss, z, away, runs):
    moments = np.concatenate([np.exp(1j * np.outer(some.imag, loss)) @ law for some in np.array_split(z, 16)])
    return (np.exp(-1j * z.imag * away) * moments**runs / (z * (z - 1.0))).real


@pytest.mark.parametrize(
    ("noise", "rate", "runs", "epsilon", "add", "vertex"),
    [
        (17.4, 1.6e-5, 9, 4.83e-6, False, 1e5),
        (8.19, 0.018, 23, 0.0129, False, 100.0),
        (1.52, 0.0022, 89, 0.0317, True, -50.0),
        (0.425, 2.8e-5, 49, 0.000995, True, -4000.0),
    ],
)
def test_more_runs_and_noise_are_enclosed_and_a_thousandth_wide(noise, rate, runs, epsilon, add, vertex):
    check(noise, rate, runs, epsilon, add, inverted(noise, rate, runs, epsilon, add, vertex, 9.0), 1e-9)


def test_beyond_the_largest_loss_nothing_is_left():
    assert bounds("delta", 1.0, 1e-3, 4, 4.1e-3, True) == bounds("delta", 0.1, 1e-4, 10, 1.0, True) == (0.0, 0.0)
    assert bounds("epsilon", 1.0, 1e-9, 3, 1e-7, False) == (0.0, 0.0)


def test_where_powers_underflow_the_lower_bound_holds():
    # 1.06442e-211 by the same integral in logarithms; the 16th power of a transform is a subnormal number.
    epsilon = (1.0 - 0.02041) * -16.0 * np.log1p(-0.05)
    assert bounds("delta", 2.0, 0.05, 16, epsilon, True)[0] <= 1.0645e-211
