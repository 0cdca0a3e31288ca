"""The accountant that dp_accounting's users hold: their own test case, and bounds against closed forms."""

import copy
import math

import pytest

import jaxacct
from jaxacct import interop

dp = pytest.importorskip("dp_accounting", reason="dp_accounting is in the interop extra")
theirs = pytest.importorskip("dp_accounting.privacy_accountant_test")
Relation = dp.NeighboringRelation
GAUSSIAN, LAPLACE = dp.GaussianDpEvent(3.0), dp.LaplaceDpEvent(2.0)


def test_gaussians_add_up_exactly_however_they_are_composed():
    accountant = interop.Accountant()
    accountant.compose(GAUSSIAN, 3).compose(dp.SelfComposedDpEvent(dp.ComposedDpEvent([GAUSSIAN, dp.NoOpDpEvent()]), 6))
    truth = jaxacct.Gaussian(1.0)
    assert accountant.get_epsilon(1e-6) == pytest.approx(float(jaxacct.epsilon(truth, 1e-6).upper), rel=1e-12)
    assert accountant.get_delta(2.0) == pytest.approx(float(jaxacct.delta(truth, 2.0).upper), rel=1e-9)
    assert accountant.ledger.events[0] == dp.SelfComposedDpEvent(GAUSSIAN, 3)
    assert accountant.get_epsilon(0) == math.inf
    assert accountant.get_delta(math.inf) < 1e-300
    lower, upper = accountant.bounds(1e-6)
    assert lower <= accountant.get_epsilon(1e-6) <= upper * (1 + 1e-12)


@pytest.mark.parametrize(("relation", "loss"), [(Relation.ADD_OR_REMOVE_ONE, 0.5), (Relation.REPLACE_ONE, 1.0)])
def test_pure_privacy_has_a_finite_epsilon_at_delta_0(relation, loss):
    accountant = interop.Accountant(relation).compose(LAPLACE, 10)
    assert accountant.get_epsilon(0) == pytest.approx(10 * loss, rel=1e-11)
    assert accountant.get_epsilon(0) >= 10 * loss
    assert accountant.get_delta(accountant.get_epsilon(0)) == accountant.get_delta(math.inf) == 0.0


def test_huge_counts_are_composed_and_too_huge_ones_refused():
    accountant = interop.Accountant().compose(dp.GaussianDpEvent(1e6), 10**12)
    assert accountant.get_epsilon(1e-5) == pytest.approx(float(jaxacct.epsilon(jaxacct.Gaussian(1.0), 1e-5).upper))
    again = dp.SelfComposedDpEvent(dp.SelfComposedDpEvent(GAUSSIAN, 2**40), 2**40)
    assert not accountant.supports(again)
    with pytest.raises(dp.UnsupportedEventError, match=r"2\*\*53"):
        accountant.compose(again)
    with pytest.raises(dp.UnsupportedEventError, match=r"2\*\*53"):
        accountant.compose(dp.GaussianDpEvent(1e6), 2**53)


class TestTheirs(theirs.PrivacyAccountantTest):
    """What dp_accounting asks of every accountant."""

    def _make_test_accountants(self):
        return [interop.Accountant(relation) for relation in Relation]


def test_a_copy_is_independent():
    empty = interop.Accountant()
    used = copy.deepcopy(empty).compose(GAUSSIAN)
    assert empty.get_epsilon(1e-5) == 0.0 < used.get_epsilon(1e-5)


def test_their_calibration_finds_the_noise_of_a_gaussian():
    event, bracket = lambda x: dp.SelfComposedDpEvent(dp.GaussianDpEvent(x), 4), dp.ExplicitBracketInterval(0.5, 20.0)
    sigma = dp.calibrate_dp_mechanism(interop.Accountant, event, 1.0, 1e-5, bracket)
    assert jaxacct.delta(jaxacct.Gaussian(sigma), 1.0, steps=4).upper <= 1e-5
    assert jaxacct.delta(jaxacct.Gaussian(sigma * (1 - 1e-5)), 1.0, steps=4).lower > 1e-5


def test_cut_batches_are_calibrated_in_one_go():
    """What a plan of jax_privacy asks for: 10 epochs of 60,000 records in 1,000 batches of at most 700."""

    def event(sigma):
        step = dp.TruncatedSubsampledGaussianDpEvent(60_000, 0.01, 700, sigma)
        return dp.SelfComposedDpEvent(step, 1000)

    relation = Relation.REPLACE_SPECIAL
    found = dp.calibrate_dp_mechanism(lambda: interop.Accountant(relation), event, 2.0, 1e-5)
    assert found < 0.9594  # PLDAccountant: 0.97327
    step = jaxacct.TruncatedPoisson(jaxacct.Gaussian(found), 0.01, 700, 60_000)
    bounds = jaxacct.epsilon(step, 1e-5, steps=1000, relation="replace_special")
    assert bounds.upper <= 2.0
    assert bounds.lower >= 1.998
