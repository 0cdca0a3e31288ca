"""Coarser lattices: from above dominates, from below is dominated, and both stay close."""

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from jaxacct.losses.chord import coarsen_above, coarsen_below, signed_below

SPACING, FACTOR, CELLS = 0.01, 8, 24


def _curve(masses, losses, at):
    """Hockey stick in long double; masses as they are, untilted."""
    terms = masses.astype(np.longdouble)[:, None] * -np.expm1(np.minimum(at[None, :] - losses[:, None], 0.0))
    return terms.sum(0)


def _coarsened(masses, theta):
    fine = (np.arange(masses.size) - masses.size // 2) * SPACING
    coarse = (np.arange(CELLS + 1) * FACTOR - masses.size // 2) * SPACING
    with jax.enable_x64(True):
        tilted = jnp.asarray(masses * np.exp(theta * fine))
        above = coarsen_above(tilted, jnp.asarray(SPACING), FACTOR, jnp.asarray(theta))
        below, spurious = coarsen_below(tilted, jnp.asarray(SPACING), FACTOR, jnp.asarray(theta))
    untilt = np.exp(-theta * coarse)
    return fine, coarse, np.asarray(above) * untilt, np.asarray(below) * untilt, float(spurious)


@hypothesis.settings(max_examples=15, deadline=None)
@hypothesis.given(
    st.lists(st.floats(0, 1), min_size=FACTOR * CELLS, max_size=FACTOR * CELLS),
    st.sampled_from([0.0, 1.0, 12.0]),
    st.integers(0, 3),
)
@pytest.mark.slow
def test_the_true_curve_lies_between(values, theta, power):
    masses = np.array(values) ** (10**power)  # from smooth to a few isolated atoms
    masses = np.where(masses < 1e-200, 0.0, masses)
    fine, coarse, above, below, spurious = _coarsened(masses, theta)
    at = np.concatenate([fine, coarse, [fine[0] - 0.5, coarse[-1] + 0.5]])
    truth = _curve(masses, fine, at)
    assert np.all(_curve(above, coarse, at) >= truth * (1 - 1e-14))
    # Spurious tilted mass may sit anywhere at or above a point: e^(-theta l) of it counts there at most.
    room = spurious * np.exp(-theta * np.minimum(at, coarse[0]))
    assert np.all(_curve(below, coarse, at) <= truth * (1 + 1e-14) + room)
    assert np.all(below >= 0)


def test_a_smooth_law_loses_little_on_either_side():
    fine = (np.arange(FACTOR * CELLS) - FACTOR * CELLS / 2) * SPACING
    masses = np.exp(-0.5 * ((fine - 0.1) / 0.25) ** 2)
    masses /= masses.sum()
    _, coarse, above, below, spurious = _coarsened(masses, 2.0)
    mean, spread = (masses * fine).sum(), (masses * fine**2).sum() - (masses * fine).sum() ** 2
    width = SPACING * FACTOR
    for law, low, high in ((above, 0.0, 0.2), (below, -0.12, 0.0)):
        assert abs((law * coarse).sum() / law.sum() - mean) < 0.5 * width**2
        change = (law * coarse**2).sum() / law.sum() - ((law * coarse).sum() / law.sum()) ** 2 - spread
        assert low * width**2 <= change <= high * width**2
    assert spurious < 1e-15


def test_steep_tilts_cost_their_own_rounding():
    # exp(theta * width) with an exponent of hundreds is good to hundreds of units, not to one.
    generator = np.random.default_rng(0)
    mpmath.mp.dps = 40
    for theta in generator.uniform(5000.0, 8500.0, 40):
        masses = np.zeros(FACTOR)
        masses[3] = 1.0
        with jax.enable_x64(True):
            above = np.asarray(coarsen_above(jnp.asarray(masses), jnp.asarray(SPACING), FACTOR, jnp.asarray(theta)))
        h, t = mpmath.mpf(SPACING), mpmath.mpf(theta)
        up = mpmath.expm1(-3 * h) / mpmath.expm1(-FACTOR * h)
        assert above[0] >= (1 - up) * mpmath.exp(-t * 3 * h)
        assert above[1] >= up * mpmath.exp(t * (FACTOR - 3) * h)
        assert above[1] <= up * mpmath.exp(t * (FACTOR - 3) * h) * (1 + mpmath.mpf(1e-11))


def test_masses_below_are_rounded_down_by_their_margin():
    """chords - second difference of e, in 40 digits: what comes back is less by 64 units of the terms' sizes."""
    rng = np.random.default_rng(5)
    widths, theta = rng.uniform(0.02, 0.3, 6), 3.0
    chords, error = rng.uniform(0.1, 1.0, 7), rng.uniform(0.1, 1.0, 7) * 1e-2
    with jax.enable_x64(True):
        found = np.asarray(signed_below(*(jnp.asarray(x) for x in (chords, error, widths)), jnp.asarray(theta)))
    with mpmath.workdps(40):
        m, e, w = ([mpmath.mpf(float(x)) for x in array] for array in (chords, error, widths))
        for k in range(7):
            terms = [m[k]]
            if k == 0:
                terms.append(e[0])
            else:  # the slope of e in the cell to the left, tilted like masses at its right end
                terms += [x / -mpmath.expm1(-w[k - 1]) for x in (e[k], -e[k - 1] * mpmath.exp(theta * w[k - 1]))]
            if k < 6:
                terms += [x / mpmath.expm1(w[k]) for x in (-e[k + 1] * mpmath.exp(-theta * w[k]), e[k])]
            exact, size = mpmath.fsum(terms), mpmath.fsum(map(abs, terms))
            assert 55 * 2.0**-53 * size <= exact - float(found[k]) <= 90 * 2.0**-53 * size
