"""``jaxacct epsilon`` and ``jaxacct delta`` as a shell sees them."""

import pytest

from jaxacct.cli import run_options as _options


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exponential:epsilon=1", "Exponential(epsilon=1.0)"),
        ("permute-and-flip:epsilon=1", "PermuteAndFlip(epsilon=1.0)"),
        ("discrete-gaussian:sigma=2,sensitivity=3", "DiscreteGaussian(sigma=2.0, sensitivity=3)"),
        (
            "discrete-laplace:scale=2,rate=0.1",
            "PoissonSampled(mechanism=DiscreteLaplace(scale=2.0, sensitivity=1), rate=0.1)",
        ),
        ("zcdp:rho=0.1", "ZeroConcentratedDP(rho=0.1)"),
        ("renyi-dp:order=3,epsilon=0.1", "RenyiDP(order=3.0, epsilon=0.1)"),
        (
            "gdp:mu=2,sample-size=1e1,dataset_size=100",
            "SampledWithoutReplacement(mechanism=GDP(mu=2.0), sample_size=10, dataset_size=100)",
        ),
    ],
)
def test_runs_describe_mechanisms(text, expected):
    assert repr(_options._parsed(text).mechanism()) == expected
