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


def test_it_calibrates_the_noise_of_full_batches():
    # Samples of everything are no samples: Gaussians only.
    sigma = noise(batch_sizes=1000, num_samples=1000, num_updates=50, tol=1e-4)
    assert jaxacct.delta(jaxacct.Gaussian(sigma), 2.0, steps=50).upper <= 1e-5
    assert jaxacct.delta(jaxacct.Gaussian(sigma - 3e-4), 2.0, steps=50).lower > 1e-5


@pytest.mark.slow
def test_it_calibrates_the_noise_of_poisson_samples():
    sigma = noise(batch_sizes=20, num_samples=1000, num_updates=500, tol=1e-3)
    step = jaxacct.PoissonSampled(jaxacct.Gaussian(sigma), 0.02)
    assert jaxacct.delta(step, 2.0, steps=500).upper <= 1e-5
    assert jaxacct.delta(jaxacct.PoissonSampled(jaxacct.Gaussian(sigma - 3e-3), 0.02), 2.0, steps=500).lower > 1e-5


@pytest.mark.slow
def test_a_plan_takes_our_accountant():
    plans = pytest.importorskip("jax_privacy.experimental.execution_plan")
    config = plans.BandMFExecutionPlanConfig.default(
        num_bands=1,
        iterations=100,
        epsilon=2.0,
        delta=1e-5,
        sampling_prob=0.1,
        accountant=interop.Accountant(dp.NeighboringRelation.REPLACE_SPECIAL),
    )
    accountant = interop.Accountant(dp.NeighboringRelation.REPLACE_SPECIAL).compose(config.plan.dp_event)
    assert 1.99 < accountant.get_epsilon(1e-5) <= 2.0 + 1e-9
