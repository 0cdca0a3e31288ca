"""`durable_run`: training that may be killed at any moment; a step's cost is on disk before its release.

Two records with two duties. The *journal* holds the budget: a sealed line for every charge, fsynced between a
step's two halves, after the filter has admitted it and before any private data is touched. *Checkpoints* hold the
parameters, and may be as old as they like.

A resumed run takes its parameters from the last checkpoint and its budget from the journal. Steps after the checkpoint
may have been released, so they stay charged, and are lost. Replaying one with its old keys on parameters that differ in
a single bit would put the old noise on another sum, and the difference of the two releases has no noise at all; and
keys on the disk would take the noise off everything. So every attempt draws new keys (docs/how-to/durable-training.md).
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxacct import _validate
from jaxacct._files import as_path
from jaxacct._types import Fields
from jaxacct.filters import Filter, check_state
from jaxacct.training.checks import Tree
from jaxacct.training.durable_runs import kept_filter
from jaxacct.training.durable_runs.journal import Record
from jaxacct.training.durable_runs.records import agree, check, history, made
from jaxacct.training.durable_runs.run_folder import RunFolder, mesh_of
from jaxacct.training.keys import RootKeys, check_roots, fresh_keys, same_roots
from jaxacct.training.processes import agree as all_agree
from jaxacct.training.processes import led
from jaxacct.training.sharding import number_of
from jaxacct.training.state import Proposal, StepReport, TrainState
from jaxacct.training.step import Step


class DurableRun:
    """An open run in a folder, made by :func:`durable_run`; its :meth:`step` is a step like that of `make_step`.

    Attributes:
        state: the state to start from: the last checkpoint's parameters, the journal's budget and new keys.
        attempt: how often the run was started before, 0 the first time.
        records: every step that was ever charged, as far as known when the run was opened; those that are not in
            ``state`` are marked ``lost``.
        evaluations: (step, accuracy) pairs behind ``state``.
    """

    def __init__(
        self, step: Step, folder: RunFolder, state: TrainState, keys: Callable[[int], RootKeys], every: int, ahead: int
    ):
        self._step, self._folder, self._every, self._ahead = step, folder, every, ahead
        self._paid: deque[Proposal] = deque()
        records = folder.records
        self.attempt = sum(record["kind"] == "attempt" for record in records)
        if folder.latest is not None:
            state = state._replace(**folder.restore(_kept(state)))
        charges = [record for record in records if record["kind"] == "charge"]
        if records:
            # Before the first charge it is the account that the run began with, perhaps taken over from another one.
            account = charges[-1]["filter_state"] if charges else records[0]["account"]
            state = state._replace(filter_state=unpacked(account, state.filter_state))
        if any(charge["clip_scale"] < 1 for charge in charges):
            state = state._replace(halted=jnp.bool_(True))
        self._next, self._saved = int(state.step), folder.latest or 0
        self._evaluations = int(state.released.evaluations)
        attempt = {
            "kind": "attempt", "attempt": self.attempt, "from_step": self._next, "time": time.strftime("%FT%T%z")
        }  # fmt: skip
        folder.append(attempt)
        folder.sync()
        self.records, self.evaluations = history([*records, attempt])
        # New roots: no state on the disk holds any, and none that served before serves again.
        roots = keys(self.attempt)
        check_roots(roots)
        if any(same_roots(keys(earlier), roots) for earlier in range(self.attempt)):
            raise ValueError(
                f"keys must return other roots for attempt {self.attempt} than for earlier ones, whose noise would be "
                "repeated: leave keys out, or give functools.partial(training.attempt_keys, seeded)"
            )
        self.state = folder.placed(state._replace(keys=roots))  # keys are those of process 0
        self._filter_state = self.state.filter_state

    def sentence(self, report: StepReport) -> str:
        """The reason of a report in words."""
        return self._step.sentence(report)

    def step(self, state: TrainState, data: object) -> tuple[TrainState, StepReport]:
        """As the step of :func:`jaxacct.training.make_step`, charged on the disk first.

        Must be given the state that it returned last (or `state`, the first time): an older one would use a step's
        keys a second time.

        Raises:
            ValueError: a state of another step.
            OSError: the disk refused the charge; nothing was released.
        """
        number = int(state.step)
        if number != self._next:
            raise ValueError(f"state must be the one of step {self._next}, got step {number}: keys serve one step once")
        self._note(state)
        if number - self._saved >= self._every:
            self.save(state)
        if not self._paid:
            self._paid.extend(self._charge(state, number_of(data)))
        state, report = self._step.take(state, self._paid.popleft(), data)
        if bool(report.admitted):
            self._next = number + 1
            norm = float(report.gradient_norm)
            self._folder.append(
                {"kind": "done", "step": number + 1, "gradient_norm": norm if math.isfinite(norm) else None}
            )
        return state, report

    def save(self, state: TrainState) -> None:
        """Makes a checkpoint of ``state`` (without its keys), unless its step has one."""
        number = int(state.step)
        if number == self._saved:
            return
        self._note(state)
        self._folder.save(number, _kept(state))
        self._saved = number

    def reported(self, seal: str) -> None:
        """Notes the ``seal`` of the report that was written, so that `jaxacct.reports.verify` knows an edited one."""
        self._folder.append({"kind": "report", "seal": seal})
        self._folder.sync()

    def _charge(self, state: TrainState, size: int) -> list[Proposal]:
        """Asks for the next steps, ``ahead`` of them, writes what they cost and waits for the disk."""
        number = int(state.step)
        # The budget is the journal's, whatever the state says.
        ahead = state._replace(filter_state=self._filter_state)
        paid = []  # none is taken before the disk has all of them
        for offset in range(self._ahead):
            proposal = self._step.ask(ahead, size)
            paid.append(proposal)
            report = proposal.report
            if not bool(report.admitted):
                break
            self._folder.append(
                {
                    "kind": "charge",
                    "attempt": self.attempt,
                    "step": number + offset + 1,
                    "sigma": float(report.sigma),
                    "rate": float(report.rate),
                    "clip_scale": float(report.clip_scale),
                    "budget_left": float(report.budget_left),
                    "filter_state": packed(proposal.filter_state),
                }
            )
            self._filter_state = proposal.filter_state
            ahead = ahead._replace(
                step=ahead.step + 1,
                filter_state=proposal.filter_state,
                schedule_state=proposal.schedule_state,
                halted=report.clip_scale < 1,
            )
        self._folder.sync()
        return paid

    def _note(self, state: TrainState) -> None:
        seen = int(state.released.evaluations)
        if seen > self._evaluations:
            self._evaluations = seen
            value = float(state.released.accuracy)
            self._folder.append(
                {"kind": "accuracy", "step": int(state.step), "value": value if math.isfinite(value) else None}
            )


@contextlib.contextmanager
def durable_run(
    folder: str | Path,
    step: Step,
    state: TrainState,
    filter: Filter,
    *,
    resume: bool = False,
    every: int = 50,
    ahead: int = 1,
    keys: Callable[[int], RootKeys] = lambda attempt: fresh_keys(),
    settings: Fields | None = None,
) -> Iterator[DurableRun]:
    """Opens a run whose spent budget survives being killed at any moment, in ``folder``::

        step = training.make_step(loss, optimizer, budget, schedule, clip_norm=1.0)
        state = training.init_state(params, optimizer, budget, schedule, training.fresh_keys())
        with training.durable_run("run", step, state, budget, resume=True) as run:
            outcome = training.fit(run.step, run.state, data, steps=1000, evaluate=accuracy, before=run)
            run.save(outcome.state)

    At every moment the filter state in ``folder/journal`` covers everything that was released: the record on the disk
    is never behind. The filter's guarantee is for the whole run, all attempts and lost steps included, as long as
    only this folder is resumed: resuming a copy of it spends the same budget twice. See the module's text for
    why lost steps are neither replayed nor refunded.

    Under ``jax.distributed`` every process opens the run and takes its steps. Process 0 keeps the folder, and none goes
    on before the charge is on its disk; a run of which any process was killed is resumed by all of them.

    Args:
        folder: ``journal``, ``filter.json`` and ``checkpoints`` lie in it; `jaxacct.reports.verify` reads it.
        step: from :func:`jaxacct.training.make_step`; no sampler of whole epochs, no per-example filter.
        state: from :func:`jaxacct.training.init_state`: the shapes, and the parameters of a new run, which must be
            public (not fitted to the private data) on every start.
        filter: the one in ``step``; its budget may not change between attempts.
        resume: go on with the run in ``folder``, or start one if there is none.
        every: steps between checkpoints: the most that a kill loses, with ``ahead``.
        ahead: steps that are charged with one wait for the disk. Above 1 only for schedules that are fixed in advance:
            the charge of a step is then written before the release that precedes it.
        keys: the roots of attempt 0, 1, ...; different for different attempts. Without it, from the operating system.
        settings: settings in which a resumed run must agree, as JSON; the journal keeps them for its readers, beside
            the filter's epsilon, delta, relation and arguments, which go in by themselves (``delta`` here is where
            epsilon is quoted).

    Raises:
        ValueError: a ``state`` of another filter; a run in ``folder`` without ``resume``; a damaged journal or
            checkpoint; another filter, network or settings than before, or in another process.
        OSError: the folder cannot be read or written.
    """
    _validate.whole(every=every, ahead=ahead)
    _validate.instance(Step, step=step)
    _validate.instance(TrainState, state=state)
    _validate.instance(dict | None, settings=settings)
    _validate.function(keys=keys)
    _validate.truth(resume=resume)
    if step.unkept:
        raise ValueError(f"step must be one whose charges a journal can hold: {step.unkept}")
    if ahead > 1 and step.adaptive:
        raise ValueError(f"ahead must be 1 for a schedule that looks at releases, got {ahead}")
    with contextlib.closing(RunFolder(as_path(folder=folder), mesh_of(state))) as opened:
        if opened.records and not resume:
            raise ValueError(f"folder {folder} holds a run: resume it, or choose another folder")
        account = packed(state.filter_state)
        header: Record = {"kind": "run", "filter": kept_filter.fingerprint(filter), "settings": settings or {}}
        all_agree(run=json.dumps([header, account, resume, every, ahead], sort_keys=True, default=repr))
        if opened.records:
            check(opened.path / "journal", opened.records)
            agree(opened.path / "journal", opened.records[0], header)
        check_state(filter, state.filter_state)
        if not opened.records:
            led(lambda: kept_filter.write(filter, opened.path))
            # Epsilon, delta, relation and the filter's arguments stand in every journal, whatever a caller gives.
            known = kept_filter.promise(filter, (settings or {}).get("delta"))
            opened.append(header | {"settings": known | header["settings"], "account": account, "made": made()})
        yield DurableRun(step, opened, state, keys, every, ahead)


def _kept(state: TrainState) -> dict[str, object]:
    """What a checkpoint holds of a state: everything but the keys, which must never be on a disk."""
    return {name: value for name, value in state._asdict().items() if name != "keys"}


def packed(state: object) -> list[str]:
    """The bytes of a filter's state, in hexadecimal, for a journal."""
    return [np.asarray(leaf).tobytes().hex() for leaf in jax.tree.leaves(state)]


def unpacked(words: list[str], like: Tree) -> Tree:
    """The state that `packed` wrote, in the form of ``like``."""
    leaves, structure = jax.tree.flatten(like)
    found = []
    try:
        for word, leaf in zip(words, leaves, strict=True):
            array = np.frombuffer(bytes.fromhex(word), np.dtype(leaf.dtype)).reshape(np.shape(leaf))
            found.append(jnp.asarray(array))
    except (ValueError, TypeError) as problem:
        raise ValueError(f"journal holds a filter_state that is none of this filter's: {problem}") from None
    return jax.tree.unflatten(structure, found)
