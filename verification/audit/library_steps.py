"""Training steps of this library and of optax, as `check_step` takes them."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxacct import (
    Gaussian,
    PoissonSampled,
    RandomAllocation,
    SampledWithoutReplacement,
    SampledWithReplacement,
    Shuffled,
    TruncatedPoisson,
    filters,
    training,
)
from jaxacct.training import schedules

RNG = np.random.default_rng(3)
N, D, SIGMA = 12, 4, 3.0
DATA = RNG.normal(size=(N, D)).astype(np.float32), RNG.normal(size=N).astype(np.float32)
PARAMS = {"b": jnp.zeros(()), "w": jnp.full(D, 0.1)}
OPTIMIZER = optax.adam(0.1)
GAUSSIAN = Gaussian(SIGMA)
MECHANISMS = {
    "Poisson": PoissonSampled(GAUSSIAN, 0.5),
    "truncated Poisson": TruncatedPoisson(GAUSSIAN, 0.5, largest=7, records=N),
    "without replacement": SampledWithoutReplacement(GAUSSIAN, sample_size=4, dataset_size=N),
    "with replacement": SampledWithReplacement(GAUSSIAN, batch=4, records=N),
    "allocation": RandomAllocation(GAUSSIAN, batches=3),
    "shuffled": Shuffled(GAUSSIAN, batches=3),
}


class Case(NamedTuple):
    """What `check_step` is given."""

    step: Any
    mechanism: Any
    relation: str = "replace"
    keys: Any = training.seeded_keys
    private: tuple[str, ...] = ()
    steps: int = 1
    data: Any = DATA

    def check(self, testing: Any) -> Any:
        return testing.check_step(
            self.step,
            self.data,
            mechanism=self.mechanism,
            relation=self.relation,
            keys=self.keys,
            private=self.private,
            steps=self.steps,
        )


def loss(params, example):
    x, y = example
    return optax.huber_loss(x @ params["w"] + params["b"], y)


def clipped_gradients(params, data):
    return training.per_example_gradients(loss, params, data)


def of_state(step, state):
    return lambda data, keys: step(state._replace(keys=keys), data)


def filtered(rate, name, relation="add_or_remove", steps=1):
    """`make_step` under a filter: coins at ``rate``, or everybody; several steps as one."""
    plan = training.plan_budget(name, "constant", epsilon=3.0, delta=1e-5, steps=60, rate=rate)
    step = training.make_step(loss, OPTIMIZER, plan.filter, plan.schedule, clip_norm=0.5, size=N)
    state = training.init_state(PARAMS, OPTIMIZER, plan.filter, plan.schedule, training.seeded_keys(0))
    sigma = float(step(state, DATA)[1].sigma)

    def several(data, keys):
        now, reports = state._replace(keys=keys), []
        for _ in range(steps):
            now, report = step(now, data)
            reports.append(report)
        return now, reports

    gaussian = Gaussian(sigma)
    return Case(several, gaussian if rate == 1 else PoissonSampled(gaussian, rate), relation, steps=steps)


def bound(budget, schedule, clip_norm=0.5, **about):
    """`make_step` with the state that a run begins with."""
    step = training.make_step(loss, OPTIMIZER, budget, schedule, clip_norm=clip_norm, **about)
    return of_state(step, training.init_state(PARAMS, OPTIMIZER, budget, schedule, training.seeded_keys(0)))


def sampled(mechanism):
    """A step on a sampler's batches."""
    sampler = training.sampler(mechanism, N)
    return Case(bound(sampler.filter(8.0, 1e-5), sampler.schedule(10), sampler=sampler), mechanism)


def individual():
    """A step in which everybody pays for themselves; accounts stay secret."""
    budget = filters.per_example(filters.approximate_gdp(1.0), examples=N)
    step = bound(budget, schedules.constant(SIGMA, 0.15, 10))
    return Case(step, PoissonSampled(GAUSSIAN, 0.15), private=("[0].filter_state",))


def moving_clip(mechanism=GAUSSIAN):
    """A step whose clip norm follows a quantile of the gradients' norms: gradient and count are one query."""
    rate = 1.0 if mechanism is GAUSSIAN else 0.5
    clip = training.adaptive_clip(0.5, start=0.5, weight=0.3)
    step = bound(filters.renyi(50.0, 1e-5, order=4.0), schedules.constant(SIGMA, rate, 10), clip, size=N)
    return Case(step, mechanism, "add_or_remove")


def cryptographic():
    """A step whose coins and noise are ChaCha20's."""
    roots = training.secure_keys()
    step = bound(filters.approximate_gdp(1.0), schedules.constant(SIGMA, 0.15, 10), size=N)
    return Case(step, PoissonSampled(GAUSSIAN, 0.15), keys=lambda number: training.attempt_keys(roots, number))


def aggregate():
    """`filtered_aggregate` in an optax chain, on a batch that is given."""
    schedule = schedules.constant(SIGMA, 1.0, 10)

    def step(data, keys):
        private = training.filtered_aggregate(filters.gdp(5.0), schedule, keys, clip_norm=0.5, size=N)
        optimizer = optax.chain(private, OPTIMIZER)
        updates, state = optimizer.update(clipped_gradients(PARAMS, data), optimizer.init(PARAMS), PARAMS)
        return optax.apply_updates(PARAMS, updates), state

    return Case(step, GAUSSIAN, "add_or_remove")


def of_optax():
    """`optax.contrib.differentially_private_aggregate`, which divides by the number of rows in the batch."""

    def step(data, key):
        optimizer = optax.chain(optax.contrib.differentially_private_aggregate(0.5, SIGMA, key), OPTIMIZER)
        gradients = jax.vmap(jax.grad(loss), (None, 0))(PARAMS, data)
        updates, state = optimizer.update(gradients, optimizer.init(PARAMS), PARAMS)
        return optax.apply_updates(PARAMS, updates), state

    return Case(step, Gaussian(SIGMA / 2), keys=jax.random.key)


CASES = {
    "everybody": lambda: filtered(1.0, "gdp"),
    "coins": lambda: filtered(0.5, "renyi"),
    "two steps": lambda: filtered(0.5, "renyi", relation="replace", steps=2),
    **{name: (lambda mechanism=mechanism: sampled(mechanism)) for name, mechanism in MECHANISMS.items()},
    "individual": individual,
    "moving clip norm": moving_clip,
    "moving clip norm, coins": lambda: moving_clip(PoissonSampled(GAUSSIAN, 0.5)),
    "ChaCha20": cryptographic,
    "filtered aggregate": aggregate,
    "optax": of_optax,
}
