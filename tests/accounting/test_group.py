"""What a mechanism guarantees for groups: attained curves, group privacy by brute force, and which of them it is."""

import functools
import itertools

import numpy as np
import pytest

import jaxacct
from jaxacct import Composed, Gaussian, Laplace, PoissonSampled, UserLevel, filters, group_of


@pytest.mark.parametrize(
    ("mechanism", "same"),
    [
        (Gaussian(10.0), Gaussian(10.0, 4.0)),
        (jaxacct.GDP(0.1), Gaussian(2.5)),
        (Laplace(10.0), Laplace(2.5)),
        (PoissonSampled(Gaussian(2.0), 0.05), UserLevel(Gaussian(2.0), 0.05, 4)),
        (PoissonSampled(PoissonSampled(Gaussian(2.0), 0.5), 0.1), UserLevel(Gaussian(2.0), 0.05, 4)),
    ],
)
def test_attained_curves_are_said_to_be_attained(mechanism, same):
    found = group_of(mechanism, 4, steps=3)
    assert found.tight
    assert "attained" in found.why
    got, wanted = (jaxacct.epsilon(one, 1e-5, steps=n) for one, n in ((found.mechanism, 1), (same, 3)))
    assert got.lower <= wanted.upper
    assert wanted.lower <= got.upper


def test_a_composition_is_tight_if_all_its_parts_are():
    assert group_of(Composed([PoissonSampled(Gaussian(2.0), 0.05), Laplace(30.0)], [10, 2]), 3).tight
    loose = group_of(Composed([jaxacct.RandomizedResponse(0.1)]), 3)
    assert not loose.tight
    assert "upper bound" in loose.why


@pytest.mark.parametrize("records", [2, 3, 7, 30])
def test_group_privacy_of_a_gaussian_curve_is_that_of_a_louder_gaussian(records):
    """The trade-off curve of mu-GDP, applied k times, is that of k mu; here from the guarantee of a filter."""
    found = group_of(filters.gdp(0.1).guarantee, records)
    assert not found.tight
    epsilons = np.array([0.0, 0.3, 1.0, 3.0])
    truth, upper = (jaxacct.delta(one, epsilons) for one in (jaxacct.GDP(0.1 * records), found.mechanism))
    assert np.all(truth.lower <= upper.upper)
    assert np.all(upper.upper <= 1.02 * truth.upper + 1e-12)


@pytest.mark.filterwarnings("ignore:.* wide:RuntimeWarning")
def test_no_chain_of_neighbours_is_above_group_privacy():
    """Random outputs of four, each data set's in the middle of those of its neighbours, within one run's curve."""
    random = np.random.default_rng(2)
    for _ in range(20):
        laws = random.dirichlet(np.full(4, 3.0), 4)
        pairs = [jaxacct.FromTables(p, q) for p, q in itertools.pairwise(laws)]
        at = np.linspace(0.0, 3.0, 61)
        one = functools.reduce(np.maximum, [jaxacct.delta(pair, at).upper for pair in pairs])
        group = group_of(jaxacct.FromProfile(at, one), 3).mechanism
        ends = jaxacct.delta(jaxacct.FromTables(laws[0], laws[-1]), at).lower
        assert np.all(ends <= jaxacct.delta(group, at).upper)


def test_settings_are_arrays_and_wrong_arguments_are_named():
    many = group_of(Gaussian(10.0), np.array([1, 2, 5]))
    assert jaxacct.epsilon(many.mechanism, 1e-5).upper.shape == (3,)
    skellam = group_of(jaxacct.Skellam(np.array([400.0, 900.0])), 2)
    assert np.all(np.diff(jaxacct.epsilon(skellam.mechanism, 1e-5).upper) < 0)
    for given in (0, 2.5, 10**6):
        with pytest.raises(ValueError, match="records"):
            group_of(Gaussian(1.0), given)
    with pytest.raises(ValueError, match="one number"):
        group_of(jaxacct.PureDP(0.1), np.array([1, 2]))
