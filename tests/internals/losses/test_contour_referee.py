"""What a hostile reading of the contour found: rounding of log1p, derivatives at a rate of 1 and of a few runs."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

from jaxacct._numerics.log1p import log1p
from jaxacct.losses.engines.lines.gaussian_points import placed
from jaxacct.losses.engines.lines.gaussian_quadrature import log_moments, quadrature
from jaxacct.mechanisms.pairs.gaussian import GaussianPair


def test_log1p_is_accurate_where_that_of_xla_is_not():
    x = np.concatenate([-np.linspace(1e-12, 0.9999, 200_001), np.geomspace(1e-300, 1e300, 1001)])
    with jax.enable_x64(True):
        value = np.asarray(jax.jit(log1p)(jnp.asarray(x)))
    truth = np.log1p(x)
    assert np.max(np.abs(value - truth) / np.abs(truth)) < 8 * 2.0**-53


@pytest.mark.parametrize(("noise", "rate", "theta"), [(5.0, 0.45, 965.4217711669659), (100.0, 0.6, 36443.825373911335)])
def test_quadrature_keeps_its_promise_where_the_tilted_law_sits_on_a_bad_log1p(noise, rate, theta):
    @jax.jit
    def both(pair, theta):
        points = placed(pair, theta, 512, jnp.full_like(theta, 40.0), jnp.full_like(theta, jnp.inf))
        law = quadrature(pair, theta, jnp.full_like(theta, jnp.inf), points, jnp.ones_like(theta), 16)
        return law, log_moments(pair, theta[None], jnp.full_like(theta, jnp.inf), points)[0]

    with jax.enable_x64(True), mp.workdps(40):
        pair = GaussianPair(*map(jnp.asarray, (noise, rate, 1.0)))
        found, moment = both(pair, jnp.asarray(theta))
        mu, q = 1 / mp.mpf(noise), mp.mpf(rate)
        # The integrand is a bump of about one standard deviation around the mode.
        t = np.linspace(-400.0, 20.0, 420_001)
        mode = t[np.argmax(-(t**2) / 2 - theta * np.log1p(rate * np.expm1(t / noise - noise**-2 / 2)))]
        points = [mp.mpf(mode) + mp.mpf(k) / 16 for k in range(-320, 321)]
        total = mp.fsum(
            mp.exp(-t * t / 2 - mp.mpf(theta) * mp.log1p(q * mp.expm1(mu * t - mu * mu / 2))) for t in points
        )
        truth = mp.log(total / 16 / mp.sqrt(2 * mp.pi))
        slack = 8 * 2.0**-53 * (1 + abs(truth))
        assert abs(truth - mp.mpf(float(found.log_total))) <= 1.5 * float(found.error[0]) + slack
        assert truth <= mp.mpf(float(moment)) + slack
