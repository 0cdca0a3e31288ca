"""What a sample of a mechanism asks of other curves: which one, at which rate, with which room for rounding."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import Composed, Gaussian, Laplace, MixtureOfGaussians, PoissonSampled, SampledWithoutReplacement
from jaxacct.losses.renyi import sampled

pytestmark = pytest.mark.usefixtures("in_float64")


@pytest.fixture
def asked(monkeypatch):
    """Curves that note what they are asked and answer a name."""
    seen = []

    def gaussian(mu, rate, order, relation):
        seen.append(("gaussian", float(mu), float(rate), relation))
        return jnp.asarray(0.25)

    def mixture(mechanism, order, relation, rate=1.0):
        seen.append(("mixture", float(rate), relation))
        return jnp.asarray(0.25)

    def pair(pair, order, log_moment):
        seen.append(("pair", float(log_moment(jnp.asarray(order)))))
        return jnp.asarray(float(len(seen)))

    monkeypatch.setattr(sampled, "sampled_gaussian_curve", gaussian)
    monkeypatch.setattr(sampled, "mixture_curve", mixture)
    monkeypatch.setattr(sampled, "_from_pair", pair)
    return seen


def own(mechanism, order, relation):
    """A curve of what is inside: 0.5 for `remove`, 0.75 for `add`, 1 else."""
    return {"remove": 0.5, "add": 0.75}.get(relation, 1.0) + 0.0 * order


def test_noise_that_is_all_gaussian_is_one_gaussian(asked):
    four = Composed([Gaussian(3.0, 2.0)], 4)  # noise 3 / (2 * 2)
    for mechanism in (PoissonSampled(four, 0.125), PoissonSampled(PoissonSampled(four, 0.5), 0.25)):
        asked.clear()
        sampled.poisson_curve(mechanism, 3.0, "add", own)
        ((name, mu, rate, relation),) = asked
        assert (name, rate, relation) == ("gaussian", 0.125, "add")
        assert 2.0**-49 < mu * 0.75 - 1 < 2.0**-47
    asked.clear()
    sampled.poisson_curve(PoissonSampled(Gaussian(3.0, 2.0), 0.125), 3.0, "remove", own)
    assert asked[0][:1] + asked[0][2:] == ("gaussian", 0.125, "remove")
    assert 0 <= asked[0][1] * 1.5 - 1 < 2.0**-49
    asked.clear()
    sampled.poisson_curve(PoissonSampled(MixtureOfGaussians(1.0, (1.0,), (1.0,)), 0.125), 3.0, "remove", own)
    assert asked == [("mixture", 0.125, "remove")]


def test_the_moments_of_other_samples_come_from_what_is_inside(asked):
    """log(1 + rate (e^c - 1)), c = (order - 1) times the curve inside; the larger of both directions."""
    made = PoissonSampled(Laplace(1.0), 0.125)
    moment = lambda rate, curve: np.log1p(rate * np.expm1(2.0 * curve))  # noqa: E731
    assert float(sampled.poisson_curve(made, 3.0, "add_or_remove", own)) == 2.0
    np.testing.assert_allclose([m for _, m in asked], [moment(0.125, 0.5), moment(0.125, 0.75)], rtol=1e-11)
    asked.clear()
    assert float(sampled.poisson_curve(made, 3.0, "add", own)) == 1.0
    np.testing.assert_allclose([m for _, m in asked], [moment(0.125, 0.75)], rtol=1e-11)
    with pytest.raises(ValueError, match="got 'replace'"):
        sampled.poisson_curve(made, 3.0, "replace", own)


def test_a_sample_without_replacement_has_both_halves_moments(asked):
    """1 + 2 rate (A - 1), A that of `replace`; of Gaussians 1 + 2 (A - 1), A that of a Poisson sample."""
    sampled.without_replacement_curve(SampledWithoutReplacement(Laplace(1.0), 1, 8), 3.0, "replace", own)
    assert asked[0][1] == pytest.approx(np.log1p(0.25 * np.expm1(2.0)), rel=1e-11)
    asked.clear()
    sampled.without_replacement_curve(SampledWithoutReplacement(Gaussian(3.0, 2.0), 1, 8), 3.0, "replace", own)
    (name, mu, rate, relation), (_, moment) = asked
    assert (name, rate, relation) == ("gaussian", 0.125, "remove")
    assert 2.0**-49 < mu * 1.5 - 1 < 2.0**-47
    assert moment == pytest.approx(np.log1p(2 * np.expm1(2.0 * 0.25)), rel=1e-11)


def test_a_sample_of_the_contents_of_a_sample_is_rebuilt():
    one = PoissonSampled(PoissonSampled(Laplace(2.0, 3.0), 0.5), 0.25)
    again = sampled._rebuilt(one, one.mechanism.mechanism, 0.125)
    assert isinstance(again, jaxacct.PoissonSampled)
    assert (again.rate, again.mechanism.scale, again.mechanism.sensitivity) == (0.125, 2.0, 3.0)
