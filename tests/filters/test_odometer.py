"""What odometers read, and what they refuse to claim."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxacct import Gaussian, PureDP, filters
from jaxacct.losses.renyi import epsilon_from_renyi
from tests.refusals import all_refused

ODOMETERS = {
    "pure": lambda: filters.odometer(filters.pure_dp(10.0)),
    "renyi": lambda: filters.odometer(filters.renyi(6.0, 1e-5, order=8)),
    "zcdp": lambda: filters.odometer(filters.zcdp(3.0)),
    "gdp": lambda: filters.odometer(filters.gdp(2.5)),
    "zcdp, two orders": lambda: filters.odometer(filters.zcdp(3.0), orders=(4, 9)),
    "renyi, levels": lambda: filters.odometer(filters.renyi(6.0, 1e-5, order=8), levels=5),
    "zcdp, levels": lambda: filters.odometer(filters.zcdp(3.0), levels=8),
    "gdp, levels": lambda: filters.odometer(filters.gdp(2.5), levels=8),
}
every_odometer = pytest.mark.parametrize("name", ODOMETERS)


def query(name):
    return PureDP(0.2) if name == "pure" else Gaussian(3.0)


@every_odometer
def test_readings_start_at_nothing_or_its_smallest_level_and_rise_with_what_is_spent(name):
    counter = ODOMETERS[name]()
    state, last = counter.init(), -1.0
    if not counter.levels:
        assert float(counter.epsilon(state, 1e-5)) == 0.0
    for _ in range(8):
        reading = float(counter.epsilon(state, 1e-5))
        assert reading >= last if counter.levels else reading > last
        last = reading
        admitted, state = counter.update(query(name), state)
        assert admitted
    if not counter.levels:
        assert float(counter.loss_bound(state, 1e-5)) >= float(counter.epsilon(state, 1e-5))
    assert "Ex-post, not ex-ante" in counter.statement
    assert "20" in counter.statement


def test_the_pure_reading_is_the_sum_itself():
    counter = ODOMETERS["pure"]()
    state = counter.init()
    for _ in range(7):
        _, state = counter.update(PureDP(0.2), state)
    assert float(counter.epsilon(state, 1e-9)) == pytest.approx(1.4, rel=1e-6)
    assert float(counter.loss_bound(state, 1e-9)) == float(counter.epsilon(state, 1e-9))


def test_the_renyi_reading_is_the_conversion_of_the_running_sum():
    counter = ODOMETERS["renyi"]()
    _, state = counter.update(1.5, counter.init())
    with jax.enable_x64(True):
        found, sure = float(counter.epsilon(state, 1e-5)), float(counter.loss_bound(state, 1e-5))
    truth = float(epsilon_from_renyi(1.5, 8.0, 1e-5))
    assert truth * (1 - 1e-12) <= found <= truth * (1 + 1e-10)
    assert sure == pytest.approx(1.5 + np.log(1e5) / 7, rel=1e-10)


def test_arguments_that_make_no_sense_raise():
    counter = filters.odometer(filters.gdp(1.0), levels=3)
    renyi, zcdp = filters.renyi(6.0, 1e-5, order=8), filters.zcdp(1.0)
    all_refused(
        (
            "must be a pure_dp, zcdp, renyi or gdp filter, got Appr",
            lambda: filters.odometer(filters.approximate_gdp(1.0)),
        ),
        ("levels must be None for pure_dp", lambda: filters.odometer(filters.pure_dp(1.0), levels=3)),
        ("levels must be at most 32", lambda: filters.odometer(filters.gdp(1.0), levels=33)),
        ("orders must be None", lambda: filters.odometer(renyi, orders=(2,))),
        ("orders must be", lambda: filters.odometer(zcdp, orders=(1.0,))),
        ("orders must be", lambda: filters.odometer(zcdp, orders=())),
        ("levels must be None for loss_bound", lambda: counter.loss_bound(counter.init(), 1e-5)),
        ("delta must be", lambda: counter.epsilon(counter.init(), 0.0)),
    )
