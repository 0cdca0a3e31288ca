"""`check_step`: replays a training step on neighbours with the same randomness."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._types import PyTree
from jaxacct.testing.charged import Charged, charged, wrong_sampler
from jaxacct.testing.findings import Checked, Leak
from jaxacct.testing.noise import noise_leaks, noise_spread
from jaxacct.testing.pairs import NOT_FINITE, RELATIONS, Neighbours, opposite
from jaxacct.testing.pairs import neighbours as made_neighbours
from jaxacct.testing.releases import NOISE, PUBLIC
from jaxacct.testing.replay import Program, Seen, as_array

if TYPE_CHECKING:
    from jaxacct.mechanisms.base import Mechanism

_TOLERANCE = 1e-3  # of a sensitivity, for rounding
_SEEN = 4  # keys under which a pair is compared once its record takes part
_ROWS = 32  # whose part in samples is watched
_ROUNDING = 1e-5  # what programs of other shapes may differ by

_UNSEEN = (
    "what the step keeps, logs or times outside of what it returns and tells callbacks, and runs that were thrown away",
    "the quality of the generator, who knows the keys, and keys that another step or another run uses again",
    "records, parameters and sizes other than those tried, and other compilers and devices",
    "low bits of noise in floating point, and leaks that the program shows only for data that nobody tried",
)


def check_step(
    step: Callable[[PyTree, PyTree], PyTree],
    data: PyTree,
    neighbours: Sequence[PyTree] | None = None,
    *,
    mechanism: Mechanism,
    relation: str = "add_or_remove",
    keys: Callable[[int], jax.Array] = jax.random.key,
    steps: int = 1,
    private: Sequence[str] = (),
) -> Checked:
    """Tries to refute that ``step`` is the Gaussian mechanism that it is charged for; the answer prints as sentences.

    The step is traced, and noise is followed to where it is added to what depends on the data. There the values of two
    neighbours, which draw the same randomness, are compared with the noise: they may move by one sensitivity. From
    there on both runs continue with the same released value, and whatever else leaves the step has to be the same to
    the last bit. Optimisers, schedules and metrics may do with a release what they like.

    Args:
        step: ``step(data, keys)``, traceable by JAX; all that it returns is taken to be published. State that a loop
            carries is bound before: ``lambda data, keys: step(state._replace(keys=keys), data)``.
        data: pytree of arrays (records, ...). Best are up to 32 records, so that samples are seen as a whole.
        neighbours: data sets that are neighbours of ``data``, or `Neighbours`; by default those of
            :func:`jaxacct.testing.neighbours`.
        mechanism: what one step is charged as: a `Gaussian`, or one of the sampled Gaussians. `Gaussian` for a step
            that is given a batch which was drawn elsewhere.
        relation: ``"add_or_remove"``, or ``"replace"`` for steps of a fixed number of records.
        keys: ``keys(seed)``, what the step takes as keys: `jax.random.key`, `jax.random.PRNGKey`,
            `jaxacct.training.seeded_keys`.
        steps: how many steps of the mechanism one call of ``step`` takes, each with noise. Two show whether a
            loop uses its keys again.
        private: beginnings of paths of outputs that stay secret and are not checked, such as ``"[0].filter_state"``.

    Returns:
        A :class:`Checked`: ``ok``, ``leaks``, ``warnings``.

    Raises:
        ValueError: arguments out of range; noise in a loop that cannot be written out; no Gaussian mechanism.
    """
    _validate.function(step=step, keys=keys)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.whole(steps=steps)
    data = jax.tree.map(np.asarray, data)
    wanted = charged(mechanism, relation, len(jax.tree.leaves(data)[0]))
    pairs = [
        each
        if isinstance(each, Neighbours)
        else Neighbours(f"neighbour {number}", data, jax.tree.map(np.asarray, each))
        for number, each in enumerate(made_neighbours(data, relation) if neighbours is None else neighbours)
    ]
    draws = 16 if wanted.rate == 1 else int(np.clip(np.ceil(8 / wanted.rate), 64, 400))
    check = _Check(step, data, wanted, [keys(seed) for seed in range(draws)], int(steps), tuple(private))
    return check.answer(pairs, replaced=1.0 if relation == "replace" else 2.0)


@dataclasses.dataclass(eq=False)
class _Check:
    """What is known of a step while it is tried."""

    step: Callable[[PyTree, PyTree], PyTree]
    data: PyTree
    wanted: Charged
    keys: list[jax.Array]
    steps: int
    secret: tuple[str, ...]
    moved: float = 0.0

    def __post_init__(self) -> None:
        self.programs: dict[Any, Program] = {}
        self.program = self.of(self.data)
        self.found = self.program.found
        self.spread = noise_spread(self.program, self.data, self.keys)
        self.leaks: dict[tuple[str, str], Leak] = {}
        self.changed: dict[str, dict[str, str]] = {}  # why, then where and how

    def of(self, data: PyTree) -> Program:
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(data))
        if shapes not in self.programs:
            self.programs[shapes] = Program(self.step, data, self.keys[0])
        return self.programs[shapes]

    def add(self, kind: str, where: str, says: str, severity: str = "critical") -> None:
        self.leaks.setdefault((kind, where), Leak(kind, where, says, severity))

    def answer(self, pairs: list[Neighbours], replaced: float) -> Checked:
        self.repeats()
        if told := ", ".join(sorted(self.found.told)):
            says = "private values go to a callback (a print, perhaps): show the host releases only"
            self.add("output", "", f"{says}; the callback is in {told}")
        for leak in noise_leaks(self.program, self.data, self.keys, self.spread.variances):
            self.leaks.setdefault((leak.kind, leak.where), leak)
        self.open = [place for place, path in enumerate(self.program.paths) if not self.is_told(place, path)]
        for pair in pairs:
            self.compare(pair)
        unseen = [*_UNSEEN, *self.sampler(replaced)]
        for why, places in self.changed.items():
            where, how = next(iter(places.items()))
            more = f" and {len(places) - 1} more outputs" if len(places) > 1 else ""
            self.add("output", where, f"{where}{more}: {why} ({how})")
        if self.moved < 0.5:
            unseen.append(f"the clip: no record moved releases by more than {self.moved:.2g} of what was charged")
        if self.spread.slack > 1:
            share = 100 * (self.spread.slack - 1)
            unseen.append(f"the noise's scale to better than {share:.0f} %, and how its entries depend on each other")
        critical = tuple(leak for leak in self.leaks.values() if leak.severity == "critical")
        rest = tuple(leak for leak in self.leaks.values() if leak.severity != "critical")
        names = tuple(pair.name for pair in pairs)
        return Checked(critical, rest, self.moved, len(self.found.cuts), names, tuple(unseen))

    def repeats(self) -> None:
        """Whether the step is one program, and the replay computes what it computes."""
        flats = self.program.flat, Program(self.step, self.data, self.keys[0]).flat
        texts = [  # without addresses
            (re.sub("0x[0-9a-f]+", "", str(flat.jaxpr)), [as_array(value).tobytes() for value in flat.consts])
            for flat in flats
        ]
        if texts[0] != texts[1]:
            says = "the step is another program each time it is traced: Python's state, or randomness from no key"
            self.add("randomness", "", says)
        computed = jax.tree.leaves(jax.jit(self.step)(self.data, self.keys[0]))
        replayed = self.program.run(self.data, self.keys[0]).outputs
        for path, mine, theirs in zip(self.program.paths, replayed, computed, strict=True):
            if not np.allclose(as_array(mine), as_array(theirs), rtol=1e-2, atol=1e-2, equal_nan=True):
                says = f"{path} of the replay is not what the step computes: the rest is said of the replay"
                self.add("randomness", path, says, "theoretical")

    def is_told(self, place: int, path: str) -> bool:
        """Whether an output need not be compared: it is secret, or its leak is already known."""
        if self.secret and path.startswith(self.secret):
            return True
        kind = self.found.kinds[place]
        if kind == NOISE:
            self.add("noise", path, f"{path} is the noise itself: without it nothing is hidden")
        told = kind == PUBLIC and self.found.of_bits[place] and self.wanted.rate < 1
        if told:
            why = "random bits reach it other than through a release, and who is in the sample is secret"
            self.changed.setdefault(why, {})[path] = "a divisor or a count, perhaps"
        return told

    def compare(self, pair: Neighbours) -> None:
        """Runs both neighbours under some keys, until the record has taken part a few times."""
        both = (self.of(pair.data), pair.data), (self.of(pair.other), pair.other)
        shapes = [[cut.aval.shape for cut in program.found.cuts] for program, _ in both]
        if shapes[0] != shapes[1]:
            self.add("noise", "", f"the step makes other releases where {pair.name}")
            return
        took_part = 0
        for number, key in enumerate(self.keys[:64] if self.moved else self.keys):
            released = both[0][0].run(pair.data, key).inputs
            quiet, moved = (program.run(rows, key, 0.0, released=released) for program, rows in both)
            takes_part = self.move(pair, quiet, moved) > 0
            took_part += takes_part
            if number < 2 or takes_part:
                self.outputs(pair, *(program.run(rows, key, released=released).outputs for program, rows in both))
            if took_part == _SEEN:
                return

    def move(self, pair: Neighbours, quiet: Seen, moved: Seen, allowed: float = 1.0) -> float:
        """How far the inputs of the noise moved, in sensitivities; complains if it is too far.

        ``allowed`` is relative to what the relation allows.
        """
        changes = []
        for number, (variance, *inputs) in enumerate(
            zip(self.spread.variances, quiet.inputs, moved.inputs, strict=True)
        ):
            where, (a, b) = self.program.place(number), (np.asarray(each, np.float64) for each in inputs)
            if not np.array_equal(np.isfinite(a), np.isfinite(b)):
                says = f"{where} is not finite where {pair.name}: noise hides nothing of that"
                self.add("not finite", where, says, "theoretical" if NOT_FINITE in pair.name else "critical")
                return 0.0
            change = np.where(np.isfinite(a), a - b, 0.0)
            if bare := int(np.sum((change != 0) & (variance == 0))):
                self.add("noise", where, f"{bare} entries of {where} depend on the data and have no noise")
            changes.append(change)
        share = self.spread.size(changes) * self.wanted.sigma
        relative = share / (self.wanted.moves * self.steps**0.5 * (self.spread.slack + _TOLERANCE) * allowed)
        if relative > max(self.moved, 1.0):
            says = (
                f"where {pair.name}, releases move by {relative:.4g} times what a noise multiplier of "
                f"{self.wanted.sigma:.4g} allows. Either contributions are not clipped one by one, or a record counts "
                "more than once, or the noise is too small"
            )
            self.leaks["sensitivity", ""] = Leak("sensitivity", "", says)
        self.moved = max(self.moved, relative)
        return share

    def outputs(self, pair: Neighbours, ones: list[PyTree], others: list[PyTree]) -> None:
        """Compares what leaves the step; two programs, of other shapes, may round differently."""
        rounding = 0 if self.of(pair.data) is self.of(pair.other) else _ROUNDING
        for place in self.open:
            one, other = as_array(ones[place]), as_array(others[place])
            floats, how = one.dtype.kind == "f", "has another shape"
            if one.shape == other.shape:
                if np.allclose(one, other, rtol=rounding if floats else 0, atol=0, equal_nan=floats):
                    continue
                how = f"changes by {np.max(np.abs(np.nan_to_num(one.astype(float)) - np.nan_to_num(other))):.4g}"
            places = self.changed.setdefault(self.why(place, floats), {})
            places.setdefault(self.program.paths[place], f"it {how} where {pair.name}")

    def why(self, place: int, floats: bool) -> str:
        if self.found.kinds[place] == PUBLIC:
            return "it depends on how many records there are: divide by a number that is public"
        if self.found.scaled:
            return "noise is multiplied by something that depends on the data, and is none of what was charged"
        if not self.found.cuts:
            return "no normal noise from the keys that the step was given reaches what depends on the data"
        if place in self.found.again:
            return "it is made of a release and, once more, of the data: by a divisor, a statistic or a choice"
        return "it leaves the step without noise" if floats else "a count or a choice leaves the step without noise"

    def sampler(self, replaced: float) -> list[str]:
        """Watches who takes part in samples, as records are replaced; what was not seen.

        ``replaced`` is how far a replaced record may move releases, relative to what the relation allows.
        """
        records = len(jax.tree.leaves(self.data)[0])
        if self.steps == 1 and self.found.cuts:
            keys, rows = self.keys[:64], range(min(records, _ROWS))
            changed = [Neighbours(f"row {row} is replaced", self.data, opposite(self.data, row)) for row in rows]
            drawn = np.zeros((len(keys), len(rows)), bool)
            for number, key in enumerate(keys):
                released = self.program.run(self.data, key).inputs
                quiet = self.program.run(self.data, key, 0.0, released=released)
                for row, pair in enumerate(changed):
                    moved = self.program.run(pair.other, key, 0.0, released=released)
                    drawn[number, row] = self.move(pair, quiet, moved, replaced) > 0
                    if number == 0:  # pairs may have changed no row but the last
                        runs = (self.program.run(rows, key, released=released) for rows in (self.data, pair.other))
                        self.outputs(pair, *(run.outputs for run in runs))
            if says := wrong_sampler(drawn, records, self.wanted):
                self.add("sampler", "", f"the sampler is not the one that was charged: {says}")
            if self.wanted.rate < 1 and records <= _ROWS:
                return []
        return ["the sampler: that takes one step in which the sample is drawn, and at most 32 records"]
