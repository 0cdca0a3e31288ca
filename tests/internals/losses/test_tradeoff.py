"""Trade-off curves against exact rational arithmetic, and their tensor products (Proposition 12)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import TradeOff, supremum
from jaxacct.losses.compare.enclose import excess_of_segments
from tests import finite


def curve(experiment, bound="lower"):
    return TradeOff(*finite.as_arrays(experiment), bound)


def hockey_stick(trade_off, gamma):
    """H of a curve at gamma >= 1, from both sides."""
    with jax.enable_x64(True):
        found = excess_of_segments(jnp.asarray(trade_off.widths), jnp.asarray(trade_off.drops), jnp.log(gamma)[None])
        return float(found[0][0]), float(found[1][0])


def test_certificates_of_the_residue_paper():
    """D1 and D3 of the restored formulas: gaps between L * sup and sup of L *, to 1e-14."""
    r2, r3, failing = (
        curve(x) for x in (finite.randomized_response(2), finite.randomized_response(3), finite.failing("1/10"))
    )
    best = supremum([r2, failing])
    for law, gamma, value in [
        (r2.compose(best), 2.0, 23 / 90),
        (r2.compose(r2), 2.0, 2 / 9),
        (r2.compose(failing), 2.0, 1 / 10),
        (r2.compose(supremum([r2.compose(r2), r3])), 1.5, 89 / 216),
        (r2.compose(r3), 1.5, 3 / 8),
        (r2.compose(r2).compose(r2), 1.5, 19 / 54),
    ]:
        low, high = hockey_stick(law, gamma)
        assert low <= high
        assert high >= value
        assert high - value < 1e-13
    eight = supremum([r2.compose(r2), r2.compose(curve(finite.failing("2/9")))])
    whole = r2.compose(supremum([r2, curve(finite.failing("2/9"))]))
    assert hockey_stick(eight, 2.0)[1] == pytest.approx(2 / 9, abs=1e-13)
    assert hockey_stick(whole, 2.0)[1] == pytest.approx(8 / 27, abs=1e-13)


def test_the_supremum_is_the_convex_envelope():
    rng = np.random.default_rng(3)
    for bound in ("lower", "upper"):
        for _ in range(4):
            family = [finite.random_experiment(rng, 4) for _ in range(3)]
            best = supremum([curve(one, bound) for one in family])
            assert best.bound == bound
            for gamma in (0.2, 0.7, 1.0, 1.3, 2.5, 40.0):
                truth = max(float(finite.hockey_stick(one, gamma)) for one in family) - max(0.0, 1 - gamma)
                low, high = hockey_stick(best, gamma)
                assert truth <= high if bound == "lower" else low <= truth + 1e-16
                assert abs((high if bound == "lower" else low) - truth) < 1e-12
