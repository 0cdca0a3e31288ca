"""Products and merged segments in exact arithmetic: leakier or less leaky at every order, and close."""

from fractions import Fraction as F

import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct.losses.curves import segments
from jaxacct.losses.curves.segments import Segments

pytestmark = pytest.mark.usefixtures("in_float64")

GAMMAS = [F(x) for x in ("1/64", "1/7", "2/5", "3/5", "4/5", "19/20", "99/100")]
GAMMAS += [F(1), *(1 / x for x in GAMMAS)]


def excess(curve, gamma):
    """Of outcomes of slope above 1 to the left of gamma = 1, of the others to its right; exactly."""
    pairs = [(F(float(w)), F(float(d))) for w, d in zip(*curve, strict=True)]
    if gamma < 1:
        return sum(max(gamma * d - w, F(0)) for w, d in pairs)
    return sum(max(w - gamma * d, F(0)) for w, d in pairs)


def experiment(seed, count=60):
    rng = np.random.default_rng(seed)
    loss = rng.normal(0, 0.8, count)
    q = rng.dirichlet(np.ones(count))
    p = q * np.exp(loss)
    p /= p.sum()
    p[:2], q[2:4], p[4:6], q[4:6] = 0.0, 0.0, 0.0, 0.0  # both kinds of singular mass, and padding
    return Segments(p, q)


@pytest.mark.parametrize("leakier", [True, False])
def test_merged_segments_stay_on_their_side_of_every_order(leakier):
    for seed in range(4):
        given = experiment(seed)
        found = segments.reduce(given, 40, leakier)
        assert found.widths.shape == found.drops.shape == (40,)
        for gamma in GAMMAS:
            gap = (excess(found, gamma) - excess(given, gamma)) * (1 if leakier else -1)
            assert 0 <= gap <= F(1, 100)
            if gamma == 1:  # no group straddles slope 1
                assert gap <= F(1, 10**12)
        w, d = (np.asarray(x) for x in found)
        ends = [d[w == 0].sum(), w[d == 0].sum()]
        np.testing.assert_allclose(ends, [given.drops[:2].sum(), given.widths[2:4].sum()], rtol=1e-12)
        inner = (w > 0) & (d > 0)
        slopes = np.log(d[inner] / w[inner])
        assert np.all(np.diff(slopes) <= 1e-9)
        assert inner.sum() >= 18


@pytest.mark.parametrize("leakier", [True, False])
def test_products_are_rounded_to_their_side_and_no_more(leakier):
    rng = np.random.default_rng(0)
    one, other = (Segments(rng.random(4), rng.random(4)) for _ in range(2))
    one.widths[0] = one.drops[1] = other.drops[3] = 0.0  # which is no underflow
    found = segments.product(one, other, leakier)
    inner = slice(1, -1) if leakier else slice(None)
    for x, a, b in zip(found, one, other, strict=True):
        exact = [F(float(u)) * F(float(v)) for u in a for v in b]
        assert all(v == 0 for v, e in zip(np.asarray(x)[inner], exact, strict=True) if not e)
        ratios = [float(F(float(v)) / e - 1) for v, e in zip(np.asarray(x)[inner], exact, strict=True) if e]
        sign = 1 if leakier else -1
        assert all(2.0**-52 <= sign * r <= 6 * 2.0**-52 for r in ratios)
    if leakier:
        assert [float(x[k]) for x in found for k in (0, -1)] == [0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("which", ["widths", "drops"])
def test_mass_that_underflows_in_a_product_is_charged_at_both_ends(which):
    normal, tiny = np.array([0.5, 0.0]), np.array([1e-160, 0.0])
    one = Segments(tiny, normal) if which == "widths" else Segments(normal, tiny)
    found = segments.product(one, one, True)
    assert float(found.widths[0]) == float(found.drops[-1]) == 0.0
    assert float(found.drops[0]) == float(found.widths[-1]) >= 4 * 1e-300
    less = segments.product(one, one, False)
    assert float(jnp.max(getattr(less, which))) <= 1e-320
