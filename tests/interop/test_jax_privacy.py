"""jax_privacy plans with our accountant underneath."""

import pytest

import jaxacct
from jaxacct import interop

dp = pytest.importorskip("dp_accounting", reason="dp_accounting is in the interop extra")
analysis = pytest.importorskip("jax_privacy.accounting.analysis", reason="jax_privacy is in no extra")
from jax_privacy.accounting import calibrate  # noqa: E402


def noise(**plan):
    accountant = analysis.DpsgdTrainingAccountant(interop.AccountantConfig())
    return calibrate.calibrate_noise_multiplier(accountant=accountant, target_epsilon=2.0, target_delta=1e-5, **plan)


@pytest.mark.parametrize(("batch", "updates"), [(1000, 50), pytest.param(20, 500, marks=pytest.mark.slow)])
def test_it_calibrates_the_noise_of_full_batches_and_of_poisson_samples(batch, updates):
    sigma = noise(batch_sizes=batch, num_samples=1000, num_updates=updates, tol=1e-3)
    steps = [jaxacct.PoissonSampled(jaxacct.Gaussian(s), batch / 1000) for s in (sigma, sigma - 3e-3)]
    enough, less = (jaxacct.delta(step, 2.0, steps=updates) for step in steps)
    assert enough.upper <= 1e-5 < less.lower


@pytest.mark.slow
def test_a_plan_takes_our_accountant():
    plans = pytest.importorskip("jax_privacy.experimental.execution_plan")
    ours = lambda: interop.Accountant(dp.NeighboringRelation.REPLACE_SPECIAL)  # noqa: E731
    plan = {"num_bands": 1, "iterations": 100, "epsilon": 2.0, "delta": 1e-5, "sampling_prob": 0.1}
    config = plans.BandMFExecutionPlanConfig.default(accountant=ours(), **plan)
    accountant = ours().compose(config.plan.dp_event)
    assert 1.99 < accountant.get_epsilon(1e-5) <= 2.0 + 1e-9
