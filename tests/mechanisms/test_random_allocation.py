"""Random allocation: bounds against exact sums, certificates, quadrature and reference values."""

import itertools
import math
from fractions import Fraction

import jax
import numpy as np
import pytest
from scipy.special import ndtr

import jaxacct
from jaxacct import PLD, FromTables, Gaussian, Laplace, PoissonSampled, RandomAllocation, delta, epsilon

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.125, 0.375, 0.5])


def exact(t: int, k: int, eps: float, relation: str) -> Fraction:
    """delta of an epoch of tables, outcome by outcome, in rational numbers."""
    p, q = ([Fraction(float(x)) for x in table] for table in (P, Q))
    p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
    gamma, total = Fraction(math.exp(eps)), Fraction(0)
    subsets = list(itertools.combinations(range(t), k))
    for outcome in itertools.product(range(3), repeat=t):
        base = math.prod((q[o] for o in outcome), start=Fraction(1))
        mix = sum(
            math.prod((p[o] if i in chosen else q[o] for i, o in enumerate(outcome)), start=Fraction(1))
            for chosen in subsets
        ) / len(subsets)
        one, other = (mix, base) if relation == "remove" else (base, mix)
        total += max(one - gamma * other, Fraction(0))
    return total


@pytest.mark.parametrize("relation", ["remove", "add"])
@pytest.mark.parametrize(("t", "k"), [(1, 1), (2, 1), (5, 1), (4, 2), (5, 3), (3, 3)])
def test_bounds_enclose_exact_sums_over_outcomes(t: int, k: int, relation: str) -> None:
    for eps in (-0.3, 0.0, 0.9):
        truth = float(exact(t, k, eps, relation))
        found = delta(RandomAllocation(FromTables(P, Q), t, k), eps, relation=relation)
        assert found.lower <= truth * (1 + 1e-12) + 1e-15
        assert truth <= found.upper * (1 + 1e-12)


@pytest.mark.parametrize("relation", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "eps"), [(1.0, 0.5), (1.0, 3.0), (0.3, 12.0), (0.5, 6.0), (4.0, 0.3), (30.0, 0.01)])
def test_two_batches_agree_with_their_certificate(sigma: float, eps: float, relation: str) -> None:
    pytest.importorskip("flint", reason="certificates need python-flint")
    mechanism = RandomAllocation(Gaussian(sigma), 2)
    truth, found = jaxacct.certify(mechanism, epsilon=eps, relation=relation), delta(mechanism, eps, relation=relation)
    assert truth.encloses(float(found.lower), float(found.upper))
    if float(truth.upper) > 1e-12:
        assert found.upper - found.lower <= 5e-3 * float(truth.upper)


def two_of_three(sigma: float, eps: float, relation: str) -> float:
    """delta of three batches and two participations by quadrature over two: R is linear in the third."""
    gamma, z = math.exp(eps), np.linspace(-9.0, 12.0, 1401)
    weights = np.exp(-z * z / 2) * (z[1] - z[0]) / math.sqrt(2 * math.pi)
    ratio = np.exp(z / sigma - 1 / (2 * sigma**2))
    a, b = np.outer(ratio, ratio) / 3, np.add.outer(ratio, ratio) / 3  # R = a + b r
    level = gamma if relation == "remove" else 1 / gamma
    edge = sigma * (np.log(np.maximum(level - a, 1e-300) / b) + 1 / (2 * sigma**2))
    if relation == "remove":
        inner = b * ndtr(1 / sigma - edge) + (a - level) * ndtr(-edge)
    else:
        inner = np.where(a < level, gamma * ((level - a) * ndtr(edge) - b * ndtr(edge - 1 / sigma)), 0.0)
    return float(weights @ inner @ weights)


@pytest.mark.parametrize("relation", ["remove", "add"])
@pytest.mark.parametrize(("sigma", "eps"), [(1.0, 1.0), (1.0, 4.0), (2.0, 1.5), (0.5, 8.0)])
def test_two_of_three_batches_match_quadrature_and_the_attack_is_near(sigma: float, eps: float, relation: str) -> None:
    truth = two_of_three(sigma, eps, relation)
    found = delta(RandomAllocation(Gaussian(sigma), 3, 2), eps, relation=relation)
    assert 0.85 * truth <= found.lower <= truth * (1 + 1e-6)
    assert truth * (1 - 1e-6) <= found.upper


REFERENCE = [  # sums of log-normals on a linear lattice, means preserved, Richardson extrapolation: (value, error)
    (1.0, 8, 1, 3.7186, "remove", 9.995506102860672e-09, 4.8e-14),
    (1.0, 64, 1, 1.7988, "remove", 9.990629444808864e-09, 5.4e-14),
    (0.8, 1000, 1, 1.0, "remove", 8.81130842075994e-09, 8.8e-13),
    (1.0, 8, 1, 1.0, "remove", 0.004928248216268242, 9.9e-9),
    (1.0, 8, 1, 1.0, "add", 0.0013216864254323687, 2.7e-9),
    # These two by another way: the density of the sum by FFT, that of the loss by splines, ten epochs by FFT.
    (1.0, 64, 10, 3.0, "remove", 3.666258e-08, 2e-13),
    (1.0, 64, 10, 3.0, "add", 1.171598e-10, 1e-16),
]


@pytest.mark.parametrize(("sigma", "t", "epochs", "eps", "relation", "value", "error"), REFERENCE)
def test_reference_values_are_enclosed_and_narrowly(sigma, t, epochs, eps, relation, value, error) -> None:
    mechanism = RandomAllocation(Gaussian(sigma), t)
    found = delta(mechanism, eps, steps=epochs, relation=relation)
    assert found.lower <= value + error
    assert value - error <= found.upper
    read = epsilon(mechanism, value, steps=epochs, relation=relation)
    assert read.lower <= eps * (1 + 1e-6)
    assert eps * (1 - 1e-6) <= read.upper
    assert read.upper - read.lower <= (1e-3 if epochs == 1 else 2e-3)


@pytest.mark.parametrize("level", [1e-10, 1e-4])
@pytest.mark.parametrize(
    "mechanism", [Gaussian(0.3), Gaussian(0.7), Gaussian(10.0), Laplace(1.5), PoissonSampled(Gaussian(1.0), 0.2)]
)
def test_many_batches_cost_less_than_few_and_never_more_than_one_run(mechanism, level: float) -> None:
    found = [epsilon(RandomAllocation(mechanism, t), level) for t in (1, 3, 40, 4000)]
    once = epsilon(mechanism, level)
    assert found[0].lower <= once.upper
    assert once.lower <= found[0].upper
    for more, less in itertools.pairwise(found):
        assert less.lower <= more.upper
        assert less.upper < more.upper


def test_every_participation_is_a_composition() -> None:
    both = epsilon(RandomAllocation(Gaussian(2.0), 5, 5), 1e-6), epsilon(Gaussian(2.0), 1e-6, steps=5)
    assert both[0].lower <= both[1].upper
    assert both[1].lower <= both[0].upper
    assert both[0].upper - both[0].lower < 2e-3


def test_two_participations_lie_between_one_and_two_epochs_of_half_the_batches() -> None:
    one = epsilon(RandomAllocation(Gaussian(1.0), 64), 1e-6)
    two = epsilon(RandomAllocation(Gaussian(1.0), 64, 2), 1e-6)
    blocks = epsilon(RandomAllocation(Gaussian(1.0), 32), 1e-6, steps=2)
    assert one.upper < two.lower
    assert two.upper == pytest.approx(blocks.upper, rel=1e-6)
    assert two.upper - two.lower < 0.08


def test_attacks_on_several_participations_come_near_what_is_proven() -> None:
    for sigma, t, k, most in ((1.0, 64, 4, 0.06), (0.3, 100, 7, 0.12), (2.0, 1000, 5, 0.001), (1.0, 64, 16, 0.075)):
        found = epsilon(RandomAllocation(Gaussian(sigma), t, k), 1e-6)
        assert found.lower <= found.upper <= (1 + most) * found.lower


def test_numbers_of_batches_broadcast_and_may_be_traced() -> None:
    eager = epsilon(RandomAllocation(Gaussian(1.0), 64), 1e-8)
    inside = jax.jit(lambda sigma, t: epsilon(RandomAllocation(Gaussian(sigma), t), 1e-8))(1.0, 64)
    np.testing.assert_allclose(inside, eager, rtol=1e-6)
    many = epsilon(RandomAllocation(Gaussian(np.array([1.0, 2.0])), np.array([[8], [64]])), 1e-8)
    assert many.upper.shape == (2, 2)
    assert many.upper[1, 0] == eager.upper
    bad = jax.jit(lambda t: epsilon(RandomAllocation(Gaussian(1.0), t), 1e-8))(2.5)
    assert bad.upper == np.inf


@pytest.mark.parametrize("participations", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_program_without_host_has_the_bound_of_known_batches_and_says_so(participations: int) -> None:
    ask = lambda sigma: epsilon(RandomAllocation(Gaussian(sigma), 8, participations), 1e-8)  # noqa: E731
    with jaxacct.without_callbacks(), pytest.warns(RuntimeWarning, match="known batches"):
        found = jax.jit(ask)(1.0)
    known = epsilon(Gaussian(1.0), 1e-8, steps=participations)
    assert found.lower == 0.0
    np.testing.assert_allclose(found.upper, known.upper, rtol=1e-5)
    assert found.upper >= ask(1.0).lower


def test_losses_on_a_grid_bound_the_epoch_from_either_side() -> None:
    mechanism = RandomAllocation(Gaussian(1.0), 64)
    truth = delta(mechanism, 0.5, relation="remove")
    assert PLD.from_mechanism(mechanism, "lower").hockey_stick(0.5) <= truth.upper
    assert PLD.from_mechanism(mechanism).hockey_stick(0.5) >= truth.lower


@pytest.mark.parametrize("sigma", [0.6, 1.0, 200.0])
def test_replaced_records_of_several_epochs_cost_less_than_known_batches(sigma: float) -> None:
    found = epsilon(RandomAllocation(Gaussian(sigma), 8), 1e-8, steps=2, relation="replace")
    nothing_hidden = epsilon(PoissonSampled(Gaussian(sigma), 1.0), 1e-8, steps=2, relation="replace")
    assert found.lower <= found.upper < 0.6 * nothing_hidden.upper


def test_replaced_records_cost_no_less_than_removed_ones() -> None:
    mechanism = RandomAllocation(Gaussian(1.0), 64)
    replaced, special, plain = (
        epsilon(mechanism, 1e-6, relation=name) for name in ("replace", "replace_special", "add_or_remove")
    )
    assert special == plain
    assert plain.lower <= replaced.lower < replaced.upper


def test_a_composition_inside_an_epoch_has_no_analysis() -> None:
    with pytest.raises(ValueError, match="one pair"):
        epsilon(RandomAllocation(jaxacct.Composed([Gaussian(1.0), Laplace(1.0)]), 4), 1e-6)


@pytest.mark.filterwarnings("ignore:1 of 1 bounds:RuntimeWarning")
@pytest.mark.parametrize("relation", ["remove", "add", "replace"])
@pytest.mark.parametrize("sigma", [5e-324, 1e-300, 0.01, 0.07, 3e4, 1e308])
def test_any_noise_has_an_answer_between_nothing_and_one_known_batch(sigma: float, relation: str) -> None:
    found = epsilon(RandomAllocation(Gaussian(sigma), 8), 1e-6, relation=relation)
    most = epsilon(PoissonSampled(Gaussian(sigma), 1.0), 1e-6, relation=relation)
    assert found.lower <= most.upper
    assert found.lower <= found.upper
    if sigma != 0.07:
        assert found.upper <= most.upper * (1 + 1e-9)
