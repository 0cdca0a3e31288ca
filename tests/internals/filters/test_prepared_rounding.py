"""The parts of ``prepare``: pairs of float32 rounded up, laws read as pairs, atoms pooled so that they dominate."""

from __future__ import annotations

import jax
import mpmath
import numpy as np
import pytest

from jaxacct import LossGrid
from jaxacct.filters.residues import prepare as _prepared
from tests import stored

RNG = np.random.default_rng(11)
GRID = LossGrid(0.25, -5, 12)
LOSSES = GRID.losses
MINOR = 2.0**-126  # below it float32 may be flushed to 0


@jax.enable_x64(True)
def test_two_pieces_are_rounded_up_by_little_and_none_is_denormal():
    values = np.concatenate([RNG.uniform(-1, 1, 100) * 10.0 ** RNG.uniform(-44, 37, 100), [0.0, 1.0, -1.0, 0.1, 1e-30]])
    values = np.concatenate(
        [values, [3.9e-38, 4.1e-38, -3.9e-38, 1e-60, 1.0 + 1e-37, 1.0 + 2.0**-52, 2.0**-20 + 2e-38]]
    )
    split = jax.jit(_prepared.split_up)
    pieces = np.asarray(split(values))
    assert pieces.dtype == np.float32
    assert np.all((pieces == 0) | (np.abs(pieces) >= MINOR))
    joined = np.asarray(_prepared.join(pieces))
    assert np.all(joined >= values)
    assert np.all(joined <= values + np.abs(values) * 2.0**-46 + 4.1e-38)
    exact = values.astype(np.float32) == values
    big = np.abs(values) > 1e-37
    assert np.array_equal(joined[exact & big], values[exact & big])
    assert joined[values == 0].tolist() == [0.0]
    ends = np.asarray(split(np.resize([np.inf, -np.inf, np.nan], values.size)))
    assert ends[:2].tolist() == [[np.inf, 0.0], [-np.inf, 0.0]]
    assert np.isnan(ends[2, 0])


def masses_of(total=1.0, atom=0.0):
    p = RNG.uniform(0.1, 1.0, GRID.size) * np.exp(0.5 * LOSSES) * (RNG.uniform(size=GRID.size) < 0.7)
    p[2] = 0.05
    return (
        p / (p * np.maximum(1.0, np.exp(-LOSSES))).sum() * (total - atom)
        if total == 1.0
        else p / p.sum() * (total - atom)
    )


@jax.enable_x64(True)
def test_a_law_read_as_a_pair_has_the_masses_of_both_sides_and_what_only_one_has():
    units = 2.0**-52 * (8 + 2 * GRID.size)
    read = jax.jit(_prepared._of_pld)
    for total, atom in ((1.0, 0.0), (1.0, 1e-3), (1.0 + 1e-4, 0.0), (1.0 + 1e-5, 1e-6)):
        p = masses_of(total, atom)
        for dtype, more in ((np.float64, 0.0), (np.float32, 2.0**-21)):
            law = stored.law(np.asarray(p, dtype), np.asarray(atom, dtype), GRID)
            wide = law.float64()
            mine, lump = np.asarray(wide.masses), float(wide.infinity_mass)
            pair = read(law)
            widths, drops = np.asarray(pair.widths), np.asarray(pair.drops)
            with mpmath.workdps(40):
                q = [mpmath.mpf(x) * mpmath.exp(-s) for x, s in zip(mine.tolist(), LOSSES.tolist(), strict=True)]
                for found, truth in ((widths[1:-1], mine), (drops[1:-1], q)):
                    assert all(t <= v <= t * (1 + 2.0**-46) for v, t in zip(found, truth, strict=True))
                tau = max(sum(map(mpmath.mpf, mine.tolist())) + lump - 1, 0)
                first = LOSSES[np.flatnonzero(mine)[0]]
                lost = max(1 - sum(q), 0) + tau * mpmath.exp(-first)
                allowed = (units + more) * (sum(q) + mpmath.exp(-first))
                assert min(lost + 0.8 * allowed, 1) <= drops[0] <= lost + 1.2 * allowed
            assert (widths[0], drops[-1]) == (0.0, 0.0)
            # What the masses leave of 1 is an infinite loss.
            assert widths[-1] == pytest.approx(max(lump, 1.0 - mine.sum()), rel=1e-12)
            assert widths[-1] >= atom * (1 - 2.0**-24)
            assert pair.bound == "lower"


def stick(losses, masses, at):
    return (masses * np.maximum(-np.expm1(at[:, None] - losses), 0.0)).sum(-1)


@pytest.mark.parametrize("spread", [0.3, 4.0])
@jax.enable_x64(True)
def test_pooled_atoms_dominate_in_both_directions_and_are_some_of_those_there_were(spread):
    n, atoms = 60, 16
    losses = np.sort(RNG.normal(0.0, spread, n))
    losses[20:23] = losses[20]
    p = RNG.uniform(0.2, 1.0, n) * np.exp(-0.5 * losses**2 / spread**2 + 0.5 * np.minimum(losses, 6.0))
    p /= p.sum()
    q = p * np.exp(-losses)
    kept, a, b = map(np.asarray, jax.jit(_prepared._pooled, static_argnums=3)(losses, p, q, atoms))
    assert kept.shape == a.shape == b.shape == (atoms,)
    assert np.all(np.diff(kept) >= 0)
    assert np.isin(kept, losses).all()
    assert (kept[0], kept[-1]) == (losses[0], losses[-1])
    at = np.concatenate([np.linspace(losses[0] - 1, losses[-1] + 1, 500), losses])
    for mine, pooled, sign in ((p, a, 1.0), (q, b, -1.0)):
        assert pooled.min() >= 0
        # As much more as sums of so many may have lost.
        assert mine.sum() * (1 + 2 * n * 2.0**-52) <= pooled.sum() <= mine.sum() * (1 + 5 * n * 2.0**-52)
        before, after = stick(sign * losses, mine, at), stick(sign * kept, pooled, at)
        assert np.all(after >= before * (1 - 1e-15) - 1e-300)
        assert np.max(after - before) < 0.1 * mine.sum()
    same = _prepared._pooled(losses, p, q, n)
    assert all(x is y for x, y in zip(same, (losses, p, q), strict=True))
