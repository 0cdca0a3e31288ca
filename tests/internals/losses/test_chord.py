"""Masses below a curve in 40 digits."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

from jaxacct.losses.grids.convex_envelope import signed_below


def test_masses_below_are_rounded_down_by_their_margin():
    """chords - second difference of e: what comes back is less by 64 units of the terms' sizes."""
    rng = np.random.default_rng(5)
    for width in (0.02, 0.3):
        chords, error = rng.uniform(0.1, 1.0, 7), rng.uniform(0.1, 1.0, 7) * 1e-2
        with jax.enable_x64(True):
            compiled = np.asarray(jax.jit(signed_below)(jnp.asarray(chords), jnp.asarray(error), jnp.asarray(width)))
        with mpmath.workdps(40):
            m, e = ([mpmath.mpf(float(x)) for x in array] for array in (chords, error))
            rise, fall = mpmath.expm1(width), -mpmath.expm1(-mpmath.mpf(width))
            for k in range(7):
                terms = [m[k]]
                terms += [e[k] / fall, -e[k - 1] / fall] if k else [e[0]]
                terms += [-e[k + 1] / rise, e[k] / rise] if k < 6 else []
                exact, size = mpmath.fsum(terms), mpmath.fsum(map(abs, terms))
                for found in (compiled, signed_below(chords, error, np.float64(width))):
                    assert 55 * 2.0**-53 * size <= exact - float(found[k]) <= 75 * 2.0**-53 * size
