"""What is drawn is what was computed, on the right side, and nothing else passes for a bound."""

import sys

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from scipy.stats import norm

from jaxacct import PLD, Bounds, Gaussian, LossGrid, PoissonSampled, PrivacyProfile, audit, filters, plotting
from jaxacct.plotting.samplers import sampler_costs


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


def _lines(ax):
    return [line for line in ax.lines if line.get_gid() == "jaxacct"]


def test_power_is_one_minus_the_error_and_a_law_has_one_side(law):
    ax = plotting.trade_off(law, log=True, smallest=1e-4)
    (line,) = _lines(ax)
    alpha, power = line.get_data()
    truth = norm.sf(norm.isf(alpha) - 1.0)
    assert np.all(power >= truth * (1 - 1e-12))
    np.testing.assert_allclose(power, truth, rtol=0.02)
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert not ax.collections


@pytest.mark.slow
def test_a_profile_is_drawn_as_its_trade_off_curve(law):
    errors = _lines(plotting.trade_off(PrivacyProfile.from_pld(law)))[0]
    truth = norm.cdf(norm.isf(errors.get_xdata()) - 1.0)
    assert np.all(errors.get_ydata() <= truth + 1e-15)
    np.testing.assert_allclose(errors.get_ydata(), truth, atol=0.01)


def test_a_histogram_holds_the_mass_and_names_what_is_infinite(law):
    ax = plotting.pld(law, label="Gaussian")
    plotting.pld(PLD(0.75 * law.masses, np.asarray(0.25), law.grid), ax=ax, log=True)
    sums, edges, _ = ax.patches[0].get_data()
    assert sums.sum() == pytest.approx(1.0, abs=1e-5)
    assert 100 <= len(sums) <= 200
    middles = 0.5 * (edges[1:] + edges[:-1])
    assert (sums * middles).sum() == pytest.approx(0.5, abs=5e-3)
    assert "infinite with probability 0.25" in ax.get_legend_handles_labels()[1][1]
    assert ax.patches[0].get_facecolor() != ax.patches[2].get_facecolor()


def test_a_budget_falls_from_100_and_a_cross_marks_the_first_refusal():
    ax = plotting.budget([0.25, 0.5, 0.5, 0.75], admitted=[True, True, False, True])
    line, cross = ax.lines
    assert line.get_ydata().tolist() == [100.0, 75.0, 50.0, 50.0, 25.0]
    assert line.get_xdata().tolist() == [0, 1, 2, 3, 4]
    assert (cross.get_xdata()[0], cross.get_ydata()[0]) == (3, 50.0)


def test_filters_are_asked_the_same_queries_and_the_legend_counts_them():
    schedule = Gaussian(np.full(40, 10.0))
    ax = plotting.filter_comparison({"gdp": filters.gdp(0.5), "zCDP": filters.zcdp(0.05)}, schedule)
    assert ax.get_legend_handles_labels()[1] == ["gdp: 25 of 40", "zCDP: 10 of 40"]
    sampled = PoissonSampled(Gaussian(np.full(40, 1.0)), 0.01)
    ax = plotting.filter_comparison({"approximate": filters.approximate_gdp(1e-3)}, sampled)
    assert "asymptotic" in ax.get_legend_handles_labels()[1][0]


def test_a_sweep_draws_upper_bounds_and_leaves_out_what_is_not_certified():
    x, y = np.array([0.5, 1.0, 2.0]), np.array([100.0, 1000.0])
    upper = np.array([[np.inf, 2.0, 1.0], [8.0, 4.0, 2.0]])
    ax = plotting.sweep(Bounds(0.9 * upper, upper), x, y, xlabel="sigma", ylabel="steps")
    shown = ax.collections[0].get_array().reshape(2, 3)
    assert shown.mask.tolist() == [[True, False, False], [False, False, False]]
    assert shown[1, 0] == 8.0
    assert "10 % below" in ax.get_title()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("sigma", "steps")
    assert len(ax.figure.axes) == 2


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"jaxacct\[plot\]"):
        plotting.budget([0.5])


def found(right, **options):
    given = {"delta": 1e-5, "mechanism": Gaussian(4.0)} | options
    return audit.one_run(right, 200, 1000, **given)


def test_the_band_ends_at_what_was_audited_and_a_cross_marks_what_is_refuted():
    audits = [found(right) for right in (110, 150, 190)]
    ax = plotting.audits(audits, [10, 20, 30], label="half the noise")
    certified, audited, gaussian, cross = ax.lines
    assert certified.get_gid() == "jaxacct"
    np.testing.assert_array_equal(certified.get_ydata(), [one.certified for one in audits])
    np.testing.assert_array_equal(audited.get_ydata(), [one.epsilon for one in audits])
    np.testing.assert_array_equal(gaussian.get_ydata(), [one.gaussian_epsilon for one in audits])
    np.testing.assert_array_equal(
        cross.get_xdata(), [x for x, one in zip((10, 20, 30), audits, strict=True) if one.refuted]
    )
    assert len(ax.collections) == 1
    labels = ax.get_legend_handles_labels()[1]
    assert labels[0] == "half the noise: certified for the mechanism"
    assert labels[-1] == "half the noise: refuted"
    assert ax.get_title() == "audited at confidence 95 %, delta 1e-05"
    plt.gcf().canvas.draw()


def test_audits_of_many_runs_have_no_gaussian_line():
    many = [audit.many_runs(wrong, 100, 30, 100, delta=1e-5, mechanism=Gaussian(1.0)) for wrong in (30, 40)]
    ax = plotting.audits(many, [1, 2])
    assert [line.get_label() for line in ax.lines] == ["certified for the mechanism", "audited, any mechanism"]


def test_every_sampler_has_a_line_and_its_bounds():
    found = sampler_costs([1.0, 2.0], batches=20, records=1000)
    assert set(found) == {"poisson", "truncated", "fixed", "allocation", "shuffled", "everyone knows"}
    for bounds in found.values():
        assert (bounds.lower <= bounds.upper).all()
        assert (bounds.upper <= 1.001 * found["fixed"].upper.clip(found["everyone knows"].upper)).all()
    assert (found["allocation"].upper < found["shuffled"].upper).all()
    ax = plotting.samplers(np.array([1.0, 2.0]), batches=20, records=1000, names=("poisson", "shuffled"))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["poisson", "shuffled"]
    with pytest.raises(ValueError, match="names"):
        sampler_costs([1.0], batches=20, records=1000, names=("bernoulli",))
