"""All records of a user: truths of high precision, order in the number of records, and errors."""

import numpy as np
import pytest

import jaxacct
from jaxacct import Gaussian, PoissonSampled, UserLevel, filters

# sigma, rate, records, steps, epsilon, delta of remove, delta of add: quadrature in high precision.
TRUTHS = [
    (1.0, 0.01, 5, 1000, 11.638, 9.9995878143514e-06, 1.3043600990702255e-10),
    (3.0, 0.02, 10, 500, 6.0, 0.0003592463884832606, 0.00012266906361745026),
]


@pytest.mark.parametrize(("sigma", "rate", "records", "steps", "epsilon", "remove", "add"), TRUTHS)
def test_bounds_enclose_values_computed_in_high_precision(sigma, rate, records, steps, epsilon, remove, add):
    user = UserLevel(Gaussian(sigma), rate, records)
    for relation, truth in (("remove", remove), ("add", add)):
        found = jaxacct.delta(user, epsilon, steps=steps, relation=relation)
        assert found.lower <= truth <= found.upper <= 1.0001 * truth


def test_fewer_records_cost_less_and_one_is_a_poisson_sample():
    found = jaxacct.epsilon(UserLevel(Gaussian(4.0), 0.01, np.array([1, 2, 5, 30])), 1e-5, steps=200)
    assert np.all(np.diff(found.upper) > 0)
    one = jaxacct.epsilon(PoissonSampled(Gaussian(4.0), 0.01), 1e-5, steps=200)
    assert one.lower <= found.upper[0]
    assert found.lower[0] <= one.upper


def test_every_record_in_every_sample_is_a_louder_gaussian():
    user = jaxacct.epsilon(UserLevel(Gaussian(10.0), 1.0, 4), 1e-5, steps=3)
    group = jaxacct.epsilon(Gaussian(2.5), 1e-5, steps=3)
    assert user.lower <= group.upper
    assert group.lower <= user.upper <= 1.0001 * group.upper


def test_a_thousand_records_have_narrow_bounds():
    found = jaxacct.epsilon(UserLevel(Gaussian(100.0), 0.01, 1000), 1e-5, steps=100)
    assert found.lower > 0.99995 * found.upper


def test_a_user_is_a_query_of_a_filter():
    budget = filters.menu([UserLevel(Gaussian(4.0), 0.01, 5)], epsilon=2.0, delta=1e-5)
    admitted, _ = budget.update(0, budget.init())
    assert bool(admitted)


def test_other_noise_than_gaussian_is_named():
    with pytest.raises(ValueError, match="Gaussian"):
        UserLevel(jaxacct.Laplace(1.0), 0.1, 5)


def test_a_user_who_is_surely_in_the_sample_is_seen_to_come():
    # No record is drawn with probability 0.7^777: that is no rounding of 1.
    seen = jaxacct.delta(jaxacct.UserLevel(jaxacct.Gaussian(5.0), np.array([0.3, 0.5]), 777), 40.0, relation="add")
    assert np.all(seen.upper > 0.99)
