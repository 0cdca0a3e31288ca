"""What odometers read, and what they refuse to claim."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.filters.expost_readings import approximate_reading, probable_reading
from jaxacct.mechanisms.pairs.gaussian_curve import gdp_epsilon
from tests.filters.test_odometer import ODOMETERS


def test_levels_read_the_guarantee_of_the_smallest_filter_that_still_stands():
    counter = ODOMETERS["gdp, levels"]()
    state = counter.init()
    for square, level in ((0.001, 7), (2.5**2 / 16 - 0.002, 4), (0.01, 3)):
        admitted, state = counter.update(np.sqrt(square), state)
        assert admitted
        with jax.enable_x64(True):
            reading = float(counter.epsilon(state, 1e-5))
        assert reading == pytest.approx(float(gdp_epsilon(2.5 * 2 ** (-level / 2), 1e-5 / 8)), rel=1e-9)


def test_the_reading_covers_every_loss_it_is_compared_with():
    """(1 - exp(reading - L))_+ <= delta W(L) for losses on a fine grid, and with equality somewhere."""
    with jax.enable_x64(True):
        orders = jnp.array([1.5, 3.0, 9.0, 40.0])
        for rho, delta in ((1e-3, 1e-5), (0.1, 1e-9), (2.0, 0.05)):
            reading = float(approximate_reading(orders, orders * rho, jnp.array(delta)))
            losses = np.linspace(0, reading + 6, 400_001)
            mixture = np.mean(np.exp((orders[:, None] - 1) * (losses - orders[:, None] * rho)), axis=0)
            payoff = np.maximum(-np.expm1(reading - losses), 0.0)
            assert np.all(payoff <= delta * mixture * (1 + 1e-9))
            assert np.max(payoff / (delta * mixture)) > 1 - 1e-6
            sure = float(probable_reading(orders, orders * rho, jnp.array(delta)))
            at = np.mean(np.exp((orders - 1) * (sure - orders * rho)))
            assert 1 <= at * delta <= 1 + 1e-8
