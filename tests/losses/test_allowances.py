"""What formulas add for their rounding is what they say, no less and no more, wherever one term of it is all there is.

The truth has 64 bits (NumPy's long double) or more, so what lies between it and a bound is the allowance, but for the
rounding that it is for. Arguments go to both ends of what makes sense: next to order 1, a millionth of a nat, losses
of a million."""

import numpy as np
import pytest

from jaxacct import PLD, LossGrid
from jaxacct.losses.renyi import delta_from_renyi, epsilon_from_renyi, renyi_from_epsilon
from tests.allowances import UNIT, Long, allowed, needs_long_double, spread

pytestmark = [needs_long_double, pytest.mark.usefixtures("in_float64")]


def test_conversions_of_renyi_divergences():
    rng, count = np.random.default_rng(0), 4000
    order, rho = 1 + spread(rng, 1e-12, 1e9, count), spread(rng, 1e-18, 1e3, count)
    delta = spread(rng, 1e-300, 1.0, count)
    delta[::2] = 1 - spread(rng, 1e-15, 0.5, count // 2)
    a, r, log_delta = Long(order), Long(rho), np.log(Long(delta))
    first, second = np.where(a < 2, np.log(a - 1) - np.log(a), np.log1p(-1 / a)), (log_delta + np.log(a)) / (a - 1)
    size = np.abs(first) + (np.abs(log_delta) + np.log(a)) / (a - 1)

    found, truth = np.asarray(epsilon_from_renyi(rho, order, delta)), r + first - second
    small = np.sqrt(-np.expm1(-r)) <= delta  # total variation alone
    seen = (truth > 0) & ~small
    assert 300 < seen.sum() < count
    allowed((found - truth)[seen], (16 * UNIT * size + 4 * UNIT * r)[seen])
    assert np.all(found[small] == 0)

    epsilon = np.where(rng.random(count) < 0.3, 0.0, spread(rng, 1e-12, 1e3, count))
    e = Long(epsilon)
    back, truth = np.asarray(renyi_from_epsilon(epsilon, delta, order)), e - first + second
    allowed(truth - back, 32 * UNIT * size + 16 * UNIT * (e + np.abs(first - second)))

    found, log_truth = np.asarray(delta_from_renyi(rho, order, epsilon)), (a - 1) * (r - e + first) - np.log(a)
    log_variation = np.log(-np.expm1(-r)) / 2
    size, shown = (a - 1) * (r + e - first) + np.log(a), (np.minimum(log_truth, log_variation) > -600)
    for seen, truth, room in (
        ((log_truth < log_variation) & (log_truth < -1e-9) & shown, log_truth, 16 * UNIT * size + 8 * UNIT),
        ((log_truth > log_variation + 1e-12) & (log_variation < -1e-9) & shown, log_variation, 8 * UNIT * (1 + 0 * r)),
    ):
        assert seen.sum() > 200
        allowed(np.log(Long(found[seen])) - truth[seen], room[seen], 0.75, 1.25)


def test_total_variation_below_delta_is_seen_to_the_last_units():
    rng = np.random.default_rng(1)
    rho = spread(rng, 1e-15, 1.0, 3000)
    delta = np.sqrt(-np.expm1(-rho)) * (1 + rng.integers(-12, 13, 3000) * UNIT)
    share = np.asarray((np.log(Long(delta)) - np.log(-np.expm1(-Long(rho))) / 2) / UNIT, float)
    zero = np.asarray(epsilon_from_renyi(rho, 1.0001, delta)) == 0  # the conversion itself gives more
    assert np.all(share[zero] >= 2)
    assert np.all(zero[share > 6])


@pytest.mark.parametrize(("bound", "sign"), [("upper", 1), ("lower", -1)])
def test_hockey_sticks_of_laws_at_their_word(bound, sign):
    """Of losses everywhere, and within two units of lattice points."""
    rng, grid = np.random.default_rng(4), LossGrid(5.0, -20, 41)
    n, masses = grid.size, 0.99 * rng.dirichlet(np.full(grid.size, 0.05))
    points = rng.integers(-20, 21, 300) * grid.spacing * (1 + rng.integers(-2, 3, 300) * 2.0**-53)
    at, near = np.concatenate([points, rng.uniform(-110.0, 110.0, 600)]), np.arange(900) < 300
    found = PLD(masses, np.array(0.01), grid, bound).hockey_stick(at)
    losses, x = (grid.lowest + np.arange(n)) * Long(grid.spacing), Long(at)
    truth = (masses * -np.expm1(np.minimum(x[:, None] - losses, 0))).sum(-1) + Long(0.01)
    above = (masses * (losses > x[:, None])).sum(-1)
    floor = np.maximum(-np.expm1(x), 0)
    assert np.all(sign * (found - np.clip(truth, floor, 1)) >= 0)
    free = (found < 1) & (np.abs(found - floor) > 1e-14) & ~near
    room = UNIT * (4 * n + 16) * truth + 2 * UNIT * np.abs(at) * (above + truth)
    allowed((sign * (found - truth))[free], room[free], 0.9, 1.15)
    # Next to a lattice point its atom may be on either side.
    atom = (masses * (np.abs(losses - x[:, None]) < 1e-9)).sum(-1)
    room += 2 * UNIT * np.abs(at) * atom + UNIT * np.abs(at)
    assert np.all((sign * (found - np.clip(truth, floor, 1)) <= 1.15 * room)[near & (found < 1)])
