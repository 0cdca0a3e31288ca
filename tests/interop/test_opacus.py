"""The bridge to Opacus, with the real package on a real model; skipped where it is not installed."""

import importlib
import warnings

import numpy as np
import pytest

import jaxacct
from jaxacct import filters

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
certified = pytest.importorskip("jaxacct.interop.opacus")
pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's and Opacus's own


def made(accountant="jaxacct", noise=1.0, batch=32, size=320, poisson=True, **clipping):
    torch.manual_seed(0)
    x = torch.randn(size, 8)
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    certified.register()
    engine = opacus.PrivacyEngine(accountant=accountant)
    private = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=noise,
        data_loader=torch.utils.data.DataLoader(data, batch_size=batch), poisson_sampling=poisson,
        **{"max_grad_norm": 1.0, **clipping},
    )  # fmt: skip
    return engine, *private


ADAPTIVE = {
    "clipping": "adaptive", "unclipped_num_std": 0.55, "target_unclipped_quantile": 0.5, "clipbound_learning_rate": 0.2,
    "max_clipbound": 10.0, "min_clipbound": 0.1,
}  # fmt: skip


def trained(model, optimizer, batches, epochs=1):
    for _ in range(epochs):
        for x, y in batches():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


def test_the_accountant_certifies_what_the_engine_ran():
    engine, model, optimizer, loader = made()
    trained(model, optimizer, lambda: loader, epochs=3)
    steps = len(engine.accountant)
    truth = jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(1.0), 0.1), 1e-5, steps=steps)
    assert steps == 30
    assert engine.get_epsilon(1e-5) == float(truth.upper)
    prv = opacus.accountants.PRVAccountant()
    prv.history = list(engine.accountant.history)
    assert engine.get_epsilon(1e-5) <= prv.get_epsilon(1e-5)


def test_its_state_is_saved_and_read_back():
    engine, model, optimizer, loader = made()
    trained(model, optimizer, lambda: loader)
    other = certified.CertifiedAccountant()
    other.load_state_dict(engine.accountant.state_dict())
    assert other.get_epsilon(1e-5) == engine.get_epsilon(1e-5)
    other.step(noise_multiplier=2.0, sample_rate=0.1)
    assert other.get_epsilon(1e-5) > engine.get_epsilon(1e-5)
    assert certified.CertifiedAccountant().get_epsilon(1e-5) == 0.0


def test_a_filter_stops_the_run_within_its_budget():
    engine, model, optimizer, loader = made(noise=1.5)
    stop = certified.BudgetStop(filters.renyi(4.0, 1e-5, order=8), optimizer, loader)
    trained(model, optimizer, stop.batches, epochs=20)
    assert 0 < stop.steps < 200
    assert stop.steps == len(engine.accountant)
    assert not stop.fits()
    # What was run costs less than the budget, and one step more would not have fitted.
    assert engine.get_epsilon(1e-5) <= float(stop.guarantee.epsilon(1e-5)) <= 4.0
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(certified.BudgetExhausted):
        trained(model, optimizer, lambda: loader)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_noise_may_be_chosen_on_the_way_and_physical_batches_are_no_steps():
    _, model, optimizer, loader = made(noise=4.0)
    stop = certified.BudgetStop(filters.renyi(4.0, 1e-5, order=8), optimizer, loader)
    manager = importlib.import_module("opacus.utils.batch_memory_manager").BatchMemoryManager
    with manager(data_loader=loader, max_physical_batch_size=5, optimizer=optimizer) as small:
        trained(model, optimizer, lambda: stop.batches(small))
    assert stop.steps == 10
    optimizer.noise_multiplier = 0.1
    assert not stop.fits()
    saved = stop.state_dict()
    again = certified.BudgetStop(filters.renyi(4.0, 1e-5, order=8), *made()[2:])
    again.load_state_dict(saved)
    assert np.array_equal(again.filter.spent(again.state), stop.filter.spent(stop.state))
    with pytest.raises(ValueError, match="same filter"):
        certified.BudgetStop(filters.renyi_any(4.0, 1e-5, (6.0, 8.0)), *made()[2:]).load_state_dict(saved)


def test_samplers_that_are_not_accounted_for_are_refused():
    _, _, optimizer, loader = made(poisson=False)
    with pytest.raises(ValueError, match="Poisson samples"):
        certified.BudgetStop(filters.renyi(4.0, 1e-5, order=8), optimizer, loader)
    _, _, _, loader = made()
    assert certified.check_loader(loader) == 0.1
    for loader in (torch.utils.data.DataLoader(list(range(8)), batch_size=2), made(poisson=False)[3], None):
        with pytest.raises(ValueError, match="Poisson samples"):
            certified.CertifiedAccountant().sampled_by(loader)


def test_steps_that_are_not_seen_to_be_poisson_samples_are_charged_as_unsampled():
    """A shuffled epoch answered as if sampled (2.85 here); one Gaussian alone has 4.377."""
    for by_hand in (False, True):
        engine, model, optimizer, loader = made(poisson=by_hand)
        if by_hand:
            optimizer.attach_step_hook(engine.accountant.get_optimizer_hook_fn(0.1))
        trained(model, optimizer, lambda: loader)  # noqa: B023
        with pytest.warns(RuntimeWarning, match=r"10 steps are charged .*epsilon 17\.86 .*sampled_by"):
            found = engine.get_epsilon(1e-5)
        assert found == pytest.approx(float(jaxacct.epsilon(jaxacct.Gaussian(1.0), 1e-5, steps=10).upper), rel=1e-12)
    sampled = jaxacct.epsilon(jaxacct.PoissonSampled(jaxacct.Gaussian(1.0), 0.1), 1e-5, steps=10)
    for by_hand in (False, True):
        engine, model, optimizer, loader = made()
        if by_hand:
            assert engine.accountant.sampled_by(loader) == 0.1
            optimizer.attach_step_hook(engine.accountant.get_optimizer_hook_fn(0.1))
        trained(model, optimizer, lambda: loader)  # noqa: B023
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert engine.get_epsilon(1e-5) == float(sampled.upper)


def test_noise_for_a_target_is_what_the_run_is_charged():
    loader, plain = made()[3], torch.nn.Linear(8, 2)
    engine = opacus.PrivacyEngine(accountant="jaxacct")
    model, optimizer, loader = engine.make_private_with_epsilon(
        module=plain, optimizer=torch.optim.SGD(plain.parameters(), lr=0.1), data_loader=loader,
        target_epsilon=3.0, target_delta=1e-5, epochs=2, max_grad_norm=1.0,
    )  # fmt: skip
    trained(model, optimizer, lambda: loader, epochs=2)
    assert 2.9 < engine.get_epsilon(1e-5) <= 3.0


def test_accumulated_batches_are_charged_for_a_record_in_each():
    engine, model, optimizer, loader = made(poisson=False)
    batches = iter(loader)
    for _ in range(3):
        x, y = next(batches)
        torch.nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
    assert engine.get_epsilon(1e-5) == float(jaxacct.epsilon(jaxacct.Gaussian(1.0 / 3), 1e-5).upper)


def test_a_step_without_noise_has_no_finite_epsilon():
    engine, _, optimizer, loader = made(noise=0.0)
    stop = certified.BudgetStop(filters.renyi(4.0, 1e-5, order=8), optimizer, loader)
    assert not stop.fits()
    engine.accountant.step(noise_multiplier=0.0, sample_rate=0.1)
    assert engine.get_epsilon(1e-5) == np.inf
    for bad in ({"noise_multiplier": -1.0}, {"noise_multiplier": np.nan}, {"sample_rate": 0.0}, {"sample_rate": 1.5}):
        with pytest.raises(ValueError, match="must be"):
            engine.accountant.step(**{"noise_multiplier": 1.0, "sample_rate": 0.1, **bad})


def test_optimizers_that_may_release_more_than_the_noisy_gradient_are_refused():
    """Noise 1, a count with noise .55, 68 steps: guarantee 3.0, and gradient and count alone cost 13.1."""
    budget = filters.renyi(4.0, 1e-5, order=8)
    _, model, optimizer, loader = made(**ADAPTIVE)
    assert isinstance(optimizer, opacus.optimizers.DPOptimizer)
    with pytest.raises(ValueError, match="AdaClipDPOptimizer"):
        certified.BudgetStop(budget, optimizer, loader)
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(ValueError, match="AdaClipDPOptimizer"):  # the hook's, before the update
        trained(model, optimizer, lambda: loader)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))

    class Mine(opacus.optimizers.DPOptimizer):
        """A subclass, which may do anything."""

    _, model, optimizer, loader = made()
    stop = certified.BudgetStop(budget, optimizer, loader)
    for change in ({"__class__": Mine}, {"_adjusted_noise_multiplier": 2.0}):  # the latter by opacus.utils
        _, model, optimizer, loader = made()
        stop = certified.BudgetStop(budget, optimizer, loader)
        for name, value in change.items():
            setattr(optimizer, name, value)
        with pytest.raises(ValueError, match="optimizer must"):
            stop.fits()
        with pytest.raises(ValueError, match="optimizer must"):
            trained(model, optimizer, lambda: loader)  # noqa: B023
        assert stop.steps == 0


@pytest.mark.parametrize(
    "clipping", [{}, {"clipping": "per_layer", "max_grad_norm": [1.0] * 4}, {"grad_sample_mode": "ghost"}]
)
def test_optimizers_that_release_a_noisy_gradient_alone_are_charged(clipping):
    engine, model, optimizer, *criterion, loader = made(**clipping)
    criterion = criterion[0] if criterion else torch.nn.CrossEntropyLoss()
    stop = certified.BudgetStop(filters.renyi(40.0, 1e-5, order=8), optimizer, loader)
    for x, y in stop.batches():
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    assert stop.steps == len(engine.accountant) == 10


def test_lightning_stops_at_the_budget():
    lightning = pytest.importorskip("lightning.pytorch")
    _, model, optimizer, loader = made()
    stop = certified.BudgetStop(filters.renyi(4.0, 1e-5, order=8), optimizer, loader)

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = model
            self.automatic_optimization = False

        def training_step(self, batch, index):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1]).backward()
            optimizer.step()

        def configure_optimizers(self):
            return None

    trainer = lightning.Trainer(
        max_epochs=50, callbacks=[certified.lightning_callback(stop)], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(Module(), train_dataloaders=loader)
    assert 0 < stop.steps < 200
    assert not stop.fits()
