"""Records that are replaced in a Poisson sample: no attack exceeds the pair, and the pair is an attack."""

import jax
import numpy as np
import pytest
from scipy import stats

import jaxacct
from jaxacct import PLD, FromTables, Gaussian, Laplace, PoissonSampled, PureDP, RandomSensitivityGaussian, filters
from jaxacct.losses.renyi import renyi

EPSILONS = np.array([-0.5, 0.0, 0.02, 0.3, 1.0])


def hockey_stick(p, q, epsilons):
    return np.maximum(p - np.exp(epsilons)[:, None] * q, 0.0).sum(-1)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_no_two_records_exceed_the_pair(noise):
    """Two vectors in the unit ball (of L2, of L1), by a sum over a grid in the plane."""
    power = 2 if noise == "gaussian" else 1
    log = lambda y: -0.5 * (y**2).sum(-1) / 0.81 if power == 2 else -np.abs(y).sum(-1) / 0.9  # noqa: E731
    x = np.stack(np.meshgrid(*[np.linspace(-14.0, 14.0, 801)] * 2), -1).reshape(-1, 2)
    rng = np.random.default_rng(3)
    for rate in (0.05, 0.6):
        mechanism = PoissonSampled((Gaussian if noise == "gaussian" else Laplace)(0.9), rate)
        bounds = jaxacct.delta(mechanism, EPSILONS, relation="replace")
        for trial in range(8):
            u, v = rng.normal(size=(2, 2))
            u, v = (z / np.linalg.norm(z, power) * (1.0 if trial % 2 else rng.uniform()) for z in (u, v))
            if trial == 0:
                u, v = np.array([1.0, 0.0]), np.array([-1.0, 0.0])
            densities = [np.exp(log(x - shift)) for shift in (np.zeros(2), u, v)]
            base, one, other = (density / density.sum() for density in densities)
            attack = hockey_stick((1 - rate) * base + rate * one, (1 - rate) * base + rate * other, EPSILONS)
            assert np.all(attack <= bounds.upper + 2e-4)  # the grid's own error
            if trial == 0:
                np.testing.assert_allclose(attack, bounds.lower, atol=1e-3)


def test_no_three_tables_exceed_the_pair():
    """Three tables of which both with a record are the given one, permuted and mixed; the base stays uniform."""
    rng = np.random.default_rng(5)
    with_record, base = rng.dirichlet(np.full(5, 0.7)), np.full(5, 0.2)
    for rate in (0.02, 0.4, 1.0):
        bounds = jaxacct.delta(PoissonSampled(FromTables(with_record, base), rate), EPSILONS, relation="replace")
        mixed = lambda table, rate=rate: (1 - rate) * base + rate * table  # noqa: E731
        for _ in range(50):
            one, other = (
                sum(w * rng.permutation(with_record) for w in rng.dirichlet([0.2, 0.2, 0.2])) for _ in range(2)
            )
            assert np.all(hockey_stick(mixed(one), mixed(other), EPSILONS) <= bounds.upper)
        rising = np.sort(with_record)
        truth = hockey_stick(mixed(rising[::-1]), mixed(rising), EPSILONS)
        assert np.all((bounds.lower <= truth + 1e-15) & (truth - 1e-15 <= bounds.upper))
        np.testing.assert_allclose(bounds.upper, bounds.lower, atol=1e-11)


@pytest.mark.parametrize(("sigma", "rate", "steps", "epsilon"), [(1.0, 0.01, 1000, 2.81), (2.0, 0.05, 500, 4.965)])
def test_compositions_agree_with_their_certificate(sigma, rate, steps, epsilon):
    pytest.importorskip("flint", reason="certificates need python-flint")
    asked = {"steps": steps, "relation": "replace"}
    truth = jaxacct.certify(PoissonSampled(Gaussian(sigma), rate), epsilon=epsilon, **asked)
    for inner in (Gaussian(sigma), RandomSensitivityGaussian(sigma, (0.0, 1.0), (0.0, 1.0))):
        bounds = jaxacct.delta(PoissonSampled(inner, rate), epsilon, **asked)
        assert truth.encloses(float(bounds.lower), float(bounds.upper))
        assert bounds.upper - bounds.lower <= 1e-3 * float(truth.upper)


def test_two_runs_of_laplace_noise_on_a_sample_are_the_sum_over_pairs_of_cells():
    """Cells of outcomes lose next to nothing of the privacy loss, which is constant beyond the records' ends."""
    rate, edges = 0.3, np.concatenate([[-np.inf], np.linspace(-1.0, 1.0, 1201), [np.inf]])
    cells = lambda at: np.diff(stats.laplace.cdf(edges, at, 0.9))  # noqa: E731
    p, q = ((1 - rate) * cells(0.0) + rate * cells(at) for at in (1.0, -1.0))
    bounds = jaxacct.delta(PoissonSampled(Laplace(0.9), rate), EPSILONS[1:], steps=2, relation="replace")
    for epsilon, lower, upper in zip(EPSILONS[1:], bounds.lower, bounds.upper, strict=True):
        truth = np.maximum(np.outer(p, p) - np.exp(epsilon) * np.outer(q, q), 0.0).sum()
        assert truth * (1 - 1e-12) <= upper <= truth * (1 + 2e-3)
        assert truth * (1 - 2e-3) <= lower <= truth * (1 + 1e-5)


def test_all_ways_to_ask_agree():
    mechanism = PoissonSampled(Gaussian(1.0), 0.02)
    asked = {"steps": 50, "relation": "replace"}
    ask = lambda sigma: jaxacct.epsilon(PoissonSampled(Gaussian(sigma), 0.02), 1e-5, **asked)  # noqa: E731
    bounds = ask(1.0)
    for run, sigma in ((jax.jit(ask), np.float32(1.0)), (jax.jit(jax.vmap(ask)), np.float32([1.0]))):
        found = run(sigma)
        assert np.all(np.asarray(found.lower) <= bounds.upper)
        assert np.all(bounds.lower <= np.asarray(found.upper))
    law = PLD.from_mechanism(mechanism, relation="replace").self_compose(50)
    assert 1e-5 <= float(law.hockey_stick(bounds.lower)) <= 1e-5 * 1.02
    order = np.array([2.0, 5.0, 9.5])
    x = np.linspace(-30.0, 30.0, 60001)
    log = lambda sign: np.logaddexp(np.log(0.98) - 0.5 * x**2, np.log(0.02) - 0.5 * (x - sign) ** 2)  # noqa: E731
    moments = [np.exp(a * log(1.0) + (1 - a) * log(-1.0)).sum() * (x[1] - x[0]) / np.sqrt(2 * np.pi) for a in order]
    truth = np.log(moments) / (order - 1)
    found = np.asarray(renyi(mechanism, order, relation="replace"))
    assert np.all((truth <= found) & (found <= truth * 1.001))
    found = jaxacct.calibrate(lambda s: PoissonSampled(Gaussian(s), 0.02), bounds.upper, 1e-5, **asked)
    assert abs(float(found.parameter) - 1.0) < 2e-3
    budget = filters.gdp_residue(2.0, 1e-6, steps=50, relation="replace")
    _, accepted = budget.update(mechanism, budget.init())
    assert bool(accepted)
    # Of these two the replaced record's loss is the larger one, also where it is largest.
    asked = [PoissonSampled(Laplace(1.0), 0.3), PureDP(float(np.log(0.7 + 0.3 * np.e)))]
    costs = [float(np.max(filters.residues.prepare.prepared(one, relation="replace").epsilon)) for one in asked]
    assert costs[0] > costs[1]


def test_a_special_record_is_as_good_as_none():
    sampled = [PoissonSampled(inner, 0.1) for inner in (Gaussian(1.0), Laplace(1.0))]
    for mechanism in (Gaussian(1.0), PureDP(0.4), *sampled):
        special = jaxacct.delta(mechanism, 0.3, steps=7, relation="replace_special")
        assert special == jaxacct.delta(mechanism, 0.3, steps=7)
        for one, name in (("zero_out", "remove"), ("fill_in", "add")):
            assert jaxacct.delta(mechanism, 0.3, relation=one) == jaxacct.delta(mechanism, 0.3, relation=name)
    with pytest.raises(ValueError, match="'zero_out' or 'fill_in'"):
        PLD.from_mechanism(Gaussian(1.0), relation="replace_special")
