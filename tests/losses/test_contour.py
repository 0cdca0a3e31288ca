"""The contour's bounds against truth computed in another way; NumPy's answers and compiled ones are the same."""

import numpy as np
import pytest

import jaxacct

SETTINGS = [
    (1.0, 0.01, 0.0, 1000.0),
    (1.0, 0.01, 1.0, 1000.0),
    (2.0, 0.05, 0.0, 300.0),
    (4.0, 0.3, 1.0, 50.0),
    (1.5, 0.9, 0.0, 40.0),
    (0.8, 0.001, 0.0, 20000.0),
    (6.0, 0.02, 1.0, 1e5),
    (1.2, 0.02, 0.0, 400.0),
]


def test_compiled_formulas_are_the_same():
    noise, rate, _, steps = np.array(SETTINGS, float).T
    delta = 10.0 ** -np.arange(4.0, 12.0)

    def epsilon(at):
        sampled = jaxacct.PoissonSampled(jaxacct.Gaussian(noise[at]), rate[at])
        return np.array(jaxacct.epsilon(sampled, delta[at], steps=steps[at]))

    together = epsilon(slice(None))  # enough of them to be compiled
    alone = np.stack([epsilon(i) for i in range(len(noise))], -1)
    np.testing.assert_allclose(together, alone, rtol=1e-9)


@pytest.mark.parametrize("kind", ["epsilon", "delta"])
def test_of_many_settings_each_is_bounded_as_it_is_alone(kind):
    """Of many the second direction is looked at with the bounds of the first one at hand."""
    noise, rate = np.linspace(0.7, 3.0, 300), np.geomspace(0.9, 0.01, 300)
    goal = 1e-6 if kind == "epsilon" else 0.3

    def bounds(some):
        sampled = jaxacct.PoissonSampled(jaxacct.Gaussian(noise[some]), rate[some])
        return np.array(getattr(jaxacct, kind)(sampled, goal, steps=200))

    some = slice(None, None, 30)
    together, alone = bounds(slice(None))[:, some], bounds(some)
    assert np.all((together[0] <= alone[1]) & (alone[0] <= together[1]))
    np.testing.assert_allclose(together, alone, rtol=2e-6)
