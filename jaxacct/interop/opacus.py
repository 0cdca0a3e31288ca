"""Certified accounting and stopping at a budget for Opacus, PyTorch's DP-SGD; needs ``opacus``.

    from jaxacct.interop import opacus as certified

    certified.register()                                     # once; the name is "jaxacct"
    engine = opacus.PrivacyEngine(accountant="jaxacct")
    model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, data_loader=loader, ...)
    engine.get_epsilon(1e-5)                                 # a certified upper bound

`CertifiedAccountant` composes the steps that were run as if they had been fixed in advance. Where the number of steps,
the noise or the rate depend on results, that is no guarantee; `BudgetStop` is one: it asks a *filter* before each
step's update, and the filter's guarantee holds for whatever was chosen on the way::

    stop = certified.BudgetStop(filters.renyi(3.0, 1e-5, order=8), optimizer, loader)
    for epoch in range(100):
        for x, y in stop.batches():                          # ends before the step that does not fit
            ...
            optimizer.step()
"""

from __future__ import annotations

import collections
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from opacus.accountants import IAccountant, register_accountant  # pyright: ignore[reportMissingImports]

from jaxacct import _validate, accounting
from jaxacct._printing import rounded_up
from jaxacct._types import Fields, PyTree
from jaxacct.interop.opacus_steps import charged_step, check_loader, check_optimizer, rate_of_engine, valid_step
from jaxacct.mechanisms import Composed, Gaussian, PoissonSampled

if TYPE_CHECKING:
    from jaxacct.filters.base import Filter, Guarantee

NAME = "jaxacct"


class BudgetExhausted(RuntimeError):
    """The filter refused a step: the parameters were not updated, and nothing of that step may be released."""


class CertifiedAccountant(IAccountant):
    """Opacus's ``IAccountant`` with this library's upper bounds, for Gaussian steps fixed in advance.

    Steps of an optimizer are charged as Poisson samples only where the loader was seen to draw them: by
    ``PrivacyEngine.make_private``, whose loader is looked at, or by `sampled_by`. All others
    (``poisson_sampling=False``) are charged as if every record were in every batch, which holds for whatever loader
    has a record at most once in a batch, and `get_epsilon` warns. Neighbours are add-or-remove for Poisson samples.
    Without them they differ in one record that is replaced by a zero gradient: one that is removed from a shuffled
    data set moves others into other batches.

    Steps given to `step` or in a ``history`` are taken at their word: Poisson samples at the rate that is stated.
    """

    def __init__(self) -> None:  # abstract in Opacus
        super().__init__()
        self._rate: float | None = None  # of the loader that was checked
        self._unchecked = 0

    def sampled_by(self, loader: object) -> float:
        """Charges steps from now on as Poisson samples of this loader, and returns its rate.

        For hooks that were not made by ``PrivacyEngine.make_private``; call it before the first step.

        Raises:
            ValueError: a loader that does not draw Poisson samples; see `check_loader`.
        """
        self._rate = check_loader(loader)
        return self._rate

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Counts one step on a Poisson sample. Without noise, epsilon is infinite from then on.

        Raises:
            ValueError: a noise multiplier that is negative, a rate outside (0, 1].
        """
        noise, rate = valid_step(noise_multiplier, sample_rate)
        if self.history and tuple(self.history[-1][:2]) == (noise, rate):
            self.history[-1] = (noise, rate, self.history[-1][2] + 1)
        else:
            self.history.append((noise, rate, 1))

    def get_epsilon(self, delta: float, *args: object, **kwargs: object) -> float:
        """The certified upper bound of epsilon at ``delta`` in (0, 1) of all steps so far; 0 before the first.

        Other arguments, which Opacus's own accountants take for their approximations, are not needed. A
        ``RuntimeWarning`` is issued where steps were charged without a loader that `sampled_by` had seen.
        """
        found = float(self.bounds(delta).upper)
        if self._unchecked:
            warnings.warn(
                f"{self._unchecked} steps are charged as if every record were in every batch, because their "
                f"loader was not seen to draw Poisson samples: epsilon {rounded_up(found, 4)} at delta "
                f"{float(delta):g}. Where it does, call accountant.sampled_by(loader) before the first step",
                RuntimeWarning,
                stacklevel=2,
            )
        return found

    def bounds(self, delta: float) -> accounting.Bounds:
        """The certified bounds of epsilon from both sides.

        Raises:
            ValueError: a ``delta`` that is not strictly between 0 and 1.
        """
        _validate.number(_validate.probability, delta=delta)
        # Opacus lists a step anew whenever its noise or rate differ from the last one's.
        counts: collections.Counter[tuple[float, float]] = collections.Counter()
        for noise, rate, steps in self.history:
            counts[valid_step(noise, rate)] += int(steps)
        if not counts:
            return accounting.Bounds(np.zeros(()), np.zeros(()))
        if any(noise == 0 for noise, _ in counts):
            return accounting.Bounds(np.zeros(()), np.full((), np.inf))
        parts = [PoissonSampled(Gaussian(noise), rate) for noise, rate in counts]
        return accounting.epsilon(Composed(parts, list(counts.values())), float(delta))

    def __len__(self) -> int:
        return sum(int(steps) for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which `register` registers it."""
        return NAME

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[object], None]:
        """What Opacus attaches to its optimizer; refuses optimizers of unknown types before their update."""

        frame = inspect.currentframe()
        seen = rate_of_engine(None if frame is None else frame.f_back)

        def hook(optimizer: object) -> None:
            known = self._rate if seen is None else seen
            noise, rate = charged_step(optimizer, 1.0 if known is None else max(known, sample_rate))
            self.step(noise_multiplier=noise, sample_rate=rate)
            self._unchecked += known is None

        return hook


def register(name: str = NAME) -> None:
    """Registers `CertifiedAccountant` with Opacus, so that ``PrivacyEngine(accountant="jaxacct")`` finds it."""
    register_accountant(name, CertifiedAccountant, force=True)


class BudgetStop:
    """Asks a filter before each update of the parameters, and stops the run when it refuses.

    It hooks into Opacus's optimizer: a step is charged when its noisy gradient is made, and where the filter refuses
    it, `BudgetExhausted` is raised before any parameter has changed. `batches` ends a loop one step earlier, where the
    next step, at the optimizer's present noise, would be refused. Noise multipliers may depend on anything that was
    released.

    Args:
        filter: of :mod:`jaxacct.filters`, one that takes Poisson-sampled Gaussians: `menu` of the steps that the
            run may take, `sampled_gaussian` of a range of noise, `renyi`.
        optimizer: an Opacus ``DPOptimizer`` or another of the types that `check_optimizer` knows.
        loader: the loader that feeds it, which is checked by `check_loader`.

    Attributes:
        state: the filter's state.
        steps: how many steps were admitted.

    Raises:
        ValueError: an optimizer of another type (``AdaClipDPOptimizer``); a loader that does not draw Poisson samples.
    """

    def __init__(self, filter: Filter, optimizer: Any, loader: Iterable[object]) -> None:
        _validate.methods("init", "update", filter=filter)
        check_optimizer(optimizer)
        self.filter, self.optimizer, self.loader = filter, optimizer, loader
        self.rate = check_loader(loader)
        self.state, self.steps = filter.init(), 0
        before = getattr(optimizer, "step_hook", None)

        def hook(optimizer: object) -> None:
            self._charge(optimizer)
            if before is not None:
                before(optimizer)

        optimizer.attach_step_hook(hook)

    @property
    def guarantee(self) -> Guarantee:
        """What the whole run satisfies, however it was steered: the filter's guarantee."""
        return self.filter.guarantee

    def fits(self) -> bool:
        """Whether the filter would admit a step at the optimizer's present noise; charges nothing."""
        check_optimizer(self.optimizer)
        return self._asked(*valid_step(self.optimizer.noise_multiplier, self.rate))[0]

    def batches(self, loader: Iterable[object] | None = None) -> Iterator[Any]:
        """The loader's batches while the next step fits. ``loader`` may be Opacus's wrapper around the same loader."""
        for batch in self.loader if loader is None else loader:
            if not self.fits():
                return
            yield batch

    def state_dict(self) -> dict[str, object]:
        """The filter's state and the number of steps, as NumPy arrays: save it with every checkpoint."""
        return {"steps": self.steps, "state": [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)]}

    def load_state_dict(self, saved: Fields) -> None:
        """Goes on from a `state_dict`; resuming from an older one than the last spends the budget twice.

        Raises:
            ValueError: it is of another filter.
        """
        leaves, structure = jax.tree.flatten(self.filter.init())
        given = [np.asarray(leaf) for leaf in saved["state"]]
        if [(g.shape, g.dtype) for g in given] != [(np.shape(x), np.asarray(x).dtype) for x in leaves]:
            raise ValueError("saved must be a state of the same filter, got one of another shape")
        self.state, self.steps = jax.tree.unflatten(structure, given), int(saved["steps"])

    def _asked(self, noise: float, rate: float) -> tuple[bool, PyTree]:
        if noise == 0:
            return False, self.state
        admitted, state = self.filter.update(PoissonSampled(Gaussian(noise), rate), self.state)
        return bool(np.asarray(admitted)), state

    def _charge(self, optimizer: object) -> None:
        noise, rate = charged_step(optimizer, self.rate)
        admitted, state = self._asked(noise, rate)
        if not admitted:
            raise BudgetExhausted(
                f"the filter refused step {self.steps + 1}, of noise {noise:g} at rate {rate:g}: the parameters are as "
                "they were before it"
            )
        self.state, self.steps = state, self.steps + 1


def lightning_callback(stop: BudgetStop) -> Any:
    """A Lightning callback that ends ``Trainer.fit`` after the last step that fits.

    Leave the trainer's ``min_epochs`` and ``min_steps`` alone: Lightning puts them above the callback, and then
    `BudgetExhausted` ends the run.

    Raises:
        ImportError: neither lightning nor pytorch_lightning is there.
    """
    for name in ("lightning.pytorch", "pytorch_lightning"):
        try:
            base = importlib.import_module(name).Callback
            break
        except ModuleNotFoundError:
            continue
    else:
        raise ImportError("lightning_callback needs lightning: pip install lightning")

    class StopAtBudget(base):
        """Ends the run where the filter would refuse the next step."""

        def on_train_start(self, trainer: Any, *_: object) -> None:
            trainer.should_stop = not stop.fits()

        def on_train_batch_end(self, trainer: Any, *_: object) -> None:
            trainer.should_stop = trainer.should_stop or not stop.fits()

    return StopAtBudget()
