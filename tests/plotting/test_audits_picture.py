"""The picture of audits: certified from above, audited from below, and a cross where a mechanism is refuted."""

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest

from jaxacct import Gaussian, audit, plotting


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


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
    crossed = cross.get_xdata()[np.isfinite(cross.get_ydata())]
    np.testing.assert_array_equal(crossed, [x for x, one in zip((10, 20, 30), audits, strict=True) if one.refuted])
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
