"""Trade-off curves against exact rational arithmetic, and their tensor products (Proposition 12)."""

import jax
import jax.numpy as jnp
import numpy as np

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
