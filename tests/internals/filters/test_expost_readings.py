"""What a running sum proves about the loss: against the supremum and the root that define it, in high precision."""

from __future__ import annotations

import jax
import mpmath
import numpy as np

from jaxacct.filters.expost_readings import approximate_reading, probable_reading

RNG = np.random.default_rng(12)
READ = jax.jit(lambda orders, sums, delta: [f(orders, sums, delta) for f in (approximate_reading, probable_reading)])


def truths(orders, sums, delta):
    """The largest L + log(1 - delta W(L)) and the L with delta W(L) = 1, by Newton steps from above."""
    slopes = [mpmath.mpf(a) - 1 for a in orders]

    def root(weights):
        # log sum w exp(slope (L - R)) is convex and rises: Newton from above stays there.
        at = min(r + (-mpmath.log(delta) - mpmath.log(w)) / s for w, s, r in zip(weights, slopes, sums, strict=True))
        for _ in range(60):
            terms = [w * mpmath.exp(s * (at - r)) for w, s, r in zip(weights, slopes, sums, strict=True)]
            total = mpmath.fsum(terms)
            at -= (
                (mpmath.log(total) + mpmath.log(delta))
                * total
                / mpmath.fsum(t * s for t, s in zip(terms, slopes, strict=True))
            )
        return at

    equal = [mpmath.mpf(1) / len(orders)] * len(orders)
    best = root([w * a for w, a in zip(equal, orders, strict=True)])
    mixture = mpmath.fsum(w * mpmath.exp(s * (best - r)) for w, s, r in zip(equal, slopes, sums, strict=True))
    return best + mpmath.log(1 - delta * mixture), root(equal)


@jax.enable_x64(True)
def test_readings_are_the_supremum_and_the_root_rounded_up():
    for orders in ((8.0, 8.0, 8.0), (1.5, 4.0, 33.0)):
        sums = np.sort(RNG.uniform(0.0, 3.0, (40, len(orders))) * 10.0 ** RNG.uniform(-6, 1.5, (40, 1)), -1)
        delta = 10.0 ** RNG.uniform(-14, -0.1, 40)
        sums[0], sums[1, 1:], delta[2] = 0.0, np.inf, 0.999
        found, probable = (np.asarray(x) for x in READ(np.array(orders), sums, delta))
        with mpmath.workdps(30):
            for n in range(40):
                seen = np.isfinite(sums[n])
                rest, some = ([mpmath.mpf(x) for x in v[seen]] for v in (sums[n], np.array(orders)))
                # An order that says nothing keeps its share of the weights.
                high, root = (max(x, 0) for x in truths(some, rest, delta[n] * mpmath.mpf(len(some)) / len(orders)))
                for value, exact in ((found[n], high), (probable[n], root)):
                    assert exact <= value <= exact + 2.0**-37 * (1 + abs(root)), (orders, n, value, exact)


@jax.enable_x64(True)
def test_what_is_no_sum_or_no_delta_reads_as_unknown():
    none = [[np.nan, 0.2, 0.2], [0.1, 0.2, np.nan], [np.inf] * 3]
    sums = np.resize([[0.1, 0.2, 0.2]] * 5 + none + [[0.1, 0.2, 0.2]], (40, 3))
    delta = np.resize([0.0, -1.0, np.nan, 1.0, 2.0, 1e-5, 1e-5, 1e-5, 1e-5], 40)
    found, probable = (np.asarray(x) for x in READ(np.array([4.0, 9.0, 17.0]), sums, delta))
    assert (found[:8] == np.inf).all()
    assert (probable[:8] == np.inf).all()
    assert 0 < found[8] < probable[8] < np.inf
