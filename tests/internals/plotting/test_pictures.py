"""What is drawn is what was computed, on the right side, and nothing else passes for a bound."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import norm

from jaxacct import PLD, ApproximateDP, Bounds, Gaussian, LossGrid, filters, plotting
from jaxacct.plotting import _enclosed, curves


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module", name="law")
def law_fixture():
    """That of a Gaussian of mu 1, every loss rounded up: no mechanism has to be compiled for it."""
    grid = LossGrid(0.005, -2000, 4096)
    masses = np.diff(norm.cdf(np.r_[-np.inf, grid.losses], loc=0.5))
    return PLD(masses, norm.sf(grid.losses[-1], loc=0.5), grid)


def _delta(mechanism, epsilon):
    if isinstance(mechanism, Gaussian):
        return norm.cdf(0.5 - epsilon) - np.exp(epsilon) * norm.cdf(-0.5 - epsilon)
    share = (np.exp(1.0) - np.exp(np.minimum(epsilon, 1.0))) / (1.0 + np.e)
    return mechanism.delta + (1.0 - mechanism.delta) * share


@pytest.fixture(name="closed")
def closed_fixture(monkeypatch):
    """Closed forms in the place of the accountant, which has tests of its own and compiles for long."""

    def deltas(mechanism, epsilon, steps, relation):
        assert (steps, relation) == (1, "add_or_remove")
        exact = _delta(mechanism, epsilon)
        return Bounds(exact * (1.0 - 1e-9), exact * (1.0 + 1e-9))

    monkeypatch.setattr(_enclosed, "deltas", deltas)
    monkeypatch.setattr(curves, "deltas", deltas)


def _lines(ax):
    return [line for line in ax.lines if line.get_gid() == "jaxacct"]


def test_curves_of_every_kind_share_one_picture_in_colours_and_styles_of_their_own(law, closed):
    at = np.linspace(0.0, 3.0, _enclosed.POINTS)  # of this size, so that one compiled program serves all
    truth = _delta(Gaussian(1.0), at)
    ax = plotting.privacy_profile(Gaussian(1.0), at, label="both bounds")
    assert plotting.privacy_profile(Bounds(0.5 * truth, truth), at, ax=ax) is ax
    plotting.privacy_profile(law, ax=ax)
    plotting.privacy_profile(law, at, ax=ax)
    plotting.privacy_profile(filters.approximate_gdp(0.5).guarantee, at, ax=ax)
    lines = _lines(ax)
    assert len({line.get_color() for line in lines}) == len(lines) == 5
    assert [line.get_linestyle() for line in lines[:2]] == ["-", "--"]
    for line in (lines[0], lines[3]):
        assert np.all(line.get_ydata() >= truth)
        np.testing.assert_allclose(line.get_ydata(), truth, rtol=0.03)
    assert len(ax.collections) == 2  # a band where there are two bounds
    band = ax.collections[1].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(0.5 * truth[-1])
    assert ax.get_yscale() == "log"
    # The guarantee that is none says so; the others do not.
    labels = [line.get_label() for line in lines]
    assert [("asymptotic" in label) for label in labels] == [False] * 4 + [True]
    assert lines[4].get_linestyle() == ":"
    assert lines[2].get_ydata()[-1] < 1e-10 < lines[2].get_ydata()[-8]  # by default as far as there is something to see


@pytest.mark.parametrize("accountant", ["closed", pytest.param("real", marks=pytest.mark.slow)])
def test_a_trade_off_band_holds_the_closed_forms(accountant, request):
    if accountant == "closed":
        request.getfixturevalue("closed")
    alpha = np.geomspace(1e-9, 0.999, 60)
    lower, upper = _enclosed.enclosed_trade_off(Gaussian(1.0), alpha, 1, "add_or_remove")
    truth = norm.cdf(norm.isf(alpha) - 1.0)
    assert np.all((lower <= truth) & (truth <= upper))
    assert np.max(upper - lower) < 1e-3
    lower, upper = _enclosed.enclosed_trade_off(ApproximateDP(1.0, 1e-3), alpha, 1, "add_or_remove")
    truth = np.maximum.reduce([0 * alpha, 1 - 1e-3 - np.e * alpha, (1 - 1e-3 - alpha) / np.e])
    assert np.all((lower <= truth + 1e-15) & (truth <= upper + 1e-15))
    assert np.max(upper - lower) < 2e-3


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
