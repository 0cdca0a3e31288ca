"""What is drawn is what was computed, on the right side, and nothing else passes for a bound."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from jaxacct import Bounds
from jaxacct.plotting import _enclosed


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.mark.parametrize("seed", range(8))
def test_a_trade_off_band_holds_that_of_any_experiment_within_the_bounds(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(5, 0.7), size=2)
    if seed % 2:
        p[0], q[1] = 0.0, 0.0  # losses that are infinite
        p, q = p / p.sum(), q / q.sum()
    noise = 10.0 ** rng.uniform(-9, -2)

    def deltas(mechanism, epsilon, steps, relation):
        del mechanism, steps
        first, second = (p, q) if relation == "remove" else (q, p)
        exact = np.maximum(first - np.exp(epsilon)[:, None] * second, 0.0).sum(-1)
        spread = noise * rng.uniform(0, 1, size=(2, epsilon.size))
        return Bounds(np.maximum(exact - spread[0], 0.0), np.minimum(exact + spread[1], 1.0))

    monkeypatch.setattr(_enclosed, "deltas", deltas)
    alpha = np.linspace(0.0, 1.0, 201)
    lower, upper = _enclosed.enclosed_trade_off(None, alpha, 1, "remove")
    # The trade-off curve itself, by Neyman and Pearson: outcomes in the order of q / p, alpha counted under p.
    order = np.argsort(-q / np.maximum(p, 1e-300))
    truth = np.interp(alpha, np.r_[0.0, np.cumsum(p[order])], 1.0 - np.r_[0.0, np.cumsum(q[order])])
    start = p[order] == 0  # rejected for free
    truth = np.minimum(truth, 1.0 - q[order][start].sum())
    assert np.all((lower <= truth + 1e-12) & (truth <= upper + 1e-12))
