"""jax_privacy with our filters and accountant: with the real package where it is, and with a stand-in for its plan."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxacct
from jaxacct import filters, interop, training

dp = pytest.importorskip("dp_accounting", reason="dp_accounting is in the interop extra")


def config(steps=50, sigma=2.0, rate=0.25, budget=None, **more):
    budget = budget or filters.for_target("renyi", 4.0, 1e-5)
    return interop.FilteredConfig(
        filter=budget, schedule=training.schedules.constant(sigma, rate, steps), **{"expected_batch": 10.0, **more}
    )


@pytest.fixture
def stand_in(monkeypatch):
    """What a plan is made of, in the shape that jax_privacy's 2.2 has it."""
    flags = types.SimpleNamespace(dtype=np.float32, microbatch_size=None, spmd_axis_name=None, keep_batch_dim=True)
    partitions = types.SimpleNamespace(INDEPENDENT="independent")
    parts = {
        "execution_plan": {"PerformanceFlags": lambda: flags, "DPExecutionPlan": types.SimpleNamespace},
        "clipping": {"clipped_grad": lambda loss, **named: named},
        "batch_selection": {"CyclicPoissonSampling": types.SimpleNamespace, "PartitionType": partitions},
    }
    monkeypatch.setitem(sys.modules, "jax_privacy", types.ModuleType("jax_privacy"))
    for name, content in parts.items():
        monkeypatch.setitem(sys.modules, f"jax_privacy.{name}", types.SimpleNamespace(**content))


def test_a_plan_samples_and_clips_as_the_filter_is_told(stand_in):
    plan = config(l2_clip_norm=0.5).make()
    assert plan.batch_selection_strategy.sampling_prob == 0.25
    assert plan.batch_selection_strategy.iterations == 50
    clipped = plan.clipped_grad(None)
    assert clipped["l2_clip_norm"] == 0.5
    assert not clipped["rescale_to_unit_norm"]
    with pytest.raises(Exception, match="Unsupported"):
        interop.Accountant().compose(plan.dp_event)


def test_noise_is_that_of_the_schedule_and_ends_with_the_budget(stand_in):
    plan = config(l2_clip_norm=0.5)
    noise = plan.make().noise_addition_transform
    total = {"w": jnp.zeros(40_000)}
    state, update = noise.init(total), jax.jit(noise.update)
    steps = 0
    while not state.halted:
        mean, state = update(total, state)
        if not state.halted:
            steps += 1
            assert float(jnp.std(mean["w"])) == pytest.approx(2.0 * 0.5 / 10.0, rel=0.03)
    assert 2 < steps == int(state.step)
    bound = jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(2.0), 0.25), 1e-5, steps=steps)
    assert float(bound.upper) <= 4.0
    assert not jnp.any(mean["w"])
    mean, after = update(total, state)
    assert not jnp.any(mean["w"])
    assert int(after.step) == steps
    with pytest.raises(interop.BudgetSpent, match=f"after {steps} admitted"):
        interop.stop_when_spent(steps, types.SimpleNamespace(noise_state=after), None)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"rate": 1.0}, "schedule must have one sampling rate"),
        ({"expected_batch": 0.0}, "expected_batch"),
        ({"l2_clip_norm": -1.0}, "l2_clip_norm"),
        ({"budget": "epsilon"}, "filter"),
    ],
)
def test_senseless_plans_are_refused(bad, words):
    with pytest.raises((ValueError, TypeError), match=words):
        config(**bad)


def test_the_real_trainer_stops_at_the_budget():
    try:
        from jax_privacy import training as theirs

        trainer_of = theirs.DPTrainer
    except (ImportError, AttributeError):
        pytest.skip("jax_privacy from 2.3 on, in no extra")
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)

    def loss(params, batch, key):
        return jnp.mean((batch[0] @ params - batch[1]) ** 2), {}

    trainer = trainer_of(config=config(), loss_fn=loss, optimizer=optax.sgd(0.1))
    with pytest.raises(interop.BudgetSpent) as spent:
        trainer.fit((x, x @ np.arange(3.0, dtype=np.float32)), jnp.zeros(3), callback=interop.stop_when_spent)
    state = spent.value.state
    assert int(state.step) == int(state.noise_state.step) + 1
    assert np.all(np.isfinite(state.params))


@pytest.mark.parametrize("lost", ["module", "name", "class"])
def test_a_later_jax_privacy_says_what_takes_the_place_of_accountantconfig(monkeypatch, lost):
    """Its head has moved the accountants: as a module that is gone, a name, or a class in it."""
    home, accounting = types.ModuleType("jax_privacy"), types.ModuleType("jax_privacy.accounting")
    home.__path__, accounting.__path__ = [], []
    monkeypatch.setitem(sys.modules, "jax_privacy", home)
    if lost != "module":
        monkeypatch.setitem(sys.modules, "jax_privacy.accounting", accounting)
    if lost == "class":
        accountants = types.ModuleType("jax_privacy.accounting.accountants")
        monkeypatch.setitem(sys.modules, accountants.__name__, accountants)
        monkeypatch.setattr(accounting, "accountants", accountants, raising=False)
    monkeypatch.delitem(sys.modules, "jaxacct.interop.jax_privacy", raising=False)
    monkeypatch.delitem(vars(interop), "AccountantConfig", raising=False)
    with pytest.raises(ImportError, match=r"later ones take interop\.Accountant as it is"):
        interop.AccountantConfig()


def noise(**plan):
    analysis = pytest.importorskip("jax_privacy.accounting.analysis", reason="jax_privacy is in no extra")
    from jax_privacy.accounting import calibrate

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
