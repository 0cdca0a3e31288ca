"""What every sampler promises: it draws what its mechanism accounts for, in programs of one shape."""

from __future__ import annotations

import contextlib
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxacct import (
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    SampledWithReplacement,
    Shuffled,
    TruncatedPoisson,
    training,
)
from jaxacct.cli import main
from jaxacct.training.samplings import SAMPLINGS
from tests.contract import mechanism_cases

N, RUNS, PIECE = 60, 4000, 4
CASES = {
    "poisson": PoissonSampled(Gaussian(1.0), 0.1),
    "truncated": TruncatedPoisson(Gaussian(1.0), 0.1, 12, N),
    "without": SampledWithoutReplacement(Gaussian(1.0), 6, N),
    "with": SampledWithReplacement(Gaussian(1.0), 6, N),
    "allocated": RandomAllocation(Gaussian(1.0), 10),
    "allocated twice": RandomAllocation(Gaussian(1.0), 10, 2),
    "shuffled": Shuffled(Gaussian(1.0), 10),
}
every_sampler = pytest.mark.parametrize("name", CASES)


@functools.cache
def program(name: str):
    """How often each of N examples is in the samples of many keys, and how many places each sample says it has."""
    made = training.sampler(CASES[name], N, piece=PIECE)

    def counts(key, step):
        sample = made.draw(key, step)
        valid = jnp.arange(sample.indices.size) < sample.count
        return jnp.zeros(N, jnp.int32).at[sample.indices].add(valid.astype(jnp.int32)), sample.count

    return jax.jit(jax.vmap(counts, (0, None)))


def drawn(name: str, step: int = 0, seed: int = 0) -> np.ndarray:
    """Counts of shape (RUNS, N)."""
    counts, places = map(np.asarray, program(name)(jax.random.split(jax.random.key(seed), RUNS), jnp.uint32(step)))
    assert (counts.sum(1) == places).all(), "an index that no example has"
    return counts


def test_every_mechanism_has_a_sampler_here_or_is_refused_by_name() -> None:
    held = {type(mechanism).__name__ for mechanism in CASES.values()}
    for name, case in mechanism_cases.CASES.items():
        if name not in held:
            with pytest.raises(ValueError, match=f"mechanism must be one of .*, got {name}"):
                training.sampler(case.make(0.75), N)


def test_the_register_of_samplers_is_what_the_shell_offers_and_the_pages_list(capsys) -> None:
    assert {one.kind for one in SAMPLINGS.values()} == {type(mechanism) for mechanism in CASES.values()}
    with contextlib.suppress(SystemExit):
        main(["train", "--help"])
    help_page = capsys.readouterr().out
    page = (pathlib.Path(__file__).parents[2] / "docs/how-to/what-does-my-data-loader-cost.md").read_text("utf-8")
    for name in SAMPLINGS:
        assert name in help_page
        assert f"| `{name}` |" in page


@every_sampler
def test_every_example_is_drawn_as_often_as_said(name: str) -> None:
    found, made = drawn(name), training.sampler(CASES[name], N, piece=PIECE)
    cut = np.minimum(np.random.default_rng(0).binomial(N, 0.1, 10**6), 12).mean()
    wanted = (cut if name == "truncated" else made.expected) / N
    np.testing.assert_allclose(found.mean(0), wanted, atol=5.0 * np.sqrt(wanted / RUNS))
    sizes = found.sum(1)
    if name in ("without", "with", "shuffled"):
        assert (sizes == 6).all()
    assert sizes.max() <= made.capacity
    if name == "truncated":
        assert sizes.max() == 12
    assert found.max() > 1 if name == "with" else found.max() == 1


@every_sampler
def test_what_draws_is_what_is_charged_in_one_shape_and_by_the_key_alone(name: str) -> None:
    made = training.sampler(CASES[name], N, piece=PIECE)
    assert made.mechanism is CASES[name]
    moves = 2.0 if name in ("with", "without") else 1.0  # records that are replaced move a sum by two clip norms
    assert made.noise_multiplier == moves * float(CASES[name].mechanism.sigma)
    shape = jax.eval_shape(made.draw, jax.random.key(0), jnp.uint32(0))
    assert shape.indices.dtype == shape.starts.dtype == jnp.int32
    assert shape.indices.shape == (made.capacity,)
    assert shape.starts.shape == (PIECE + 1,)
    again = drawn(name)
    np.testing.assert_array_equal(again, drawn(name))
    assert (again != drawn(name, seed=1)).any()
    assert (again != drawn(name, step=made.steps)).any(), "the next run of the mechanism is another one"
