"""`check_step`: replays a training step on neighbours with the same randomness."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxacct import _validate
from jaxacct.testing.charged import Charged, charged, wrong_sampler
from jaxacct.testing.findings import Checked, Leak
from jaxacct.testing.neighbours import LARGEST, NOT_FINITE, RELATIONS, Neighbours
from jaxacct.testing.neighbours import neighbours as made_neighbours
from jaxacct.testing.noise import noise_leaks, noise_variances
from jaxacct.testing.releases import NOISE, PUBLIC
from jaxacct.testing.replay import Program, Seen

_TOLERANCE = 1e-3  # of a sensitivity, for rounding
_SEEN = 4  # keys under which a pair is compared once its record takes part
_ROWS = 32  # rows whose part in samples is watched
_ROUNDING = 1e-5  # what programs of other shapes may differ by

_UNSEEN = (
    "what the step keeps, prints, logs or times outside of what it returns, and runs that were thrown away",
    "the quality of the generator, who knows the keys, and keys that another step or another run uses again",
    "records, parameters and sizes other than those tried, and other compilers and devices",
    "low bits of noise in floating point, and leaks that the program shows only for data that nobody tried",
)


def check_step(
    step: Callable[[Any, Any], Any],
    data: Any,
    neighbours: Sequence[Any] | None = None,
    *,
    mechanism: Any,
    relation: str = "add_or_remove",
    keys: Callable[[int], Any] = jax.random.key,
    steps: int = 1,
    private: Sequence[str] = (),
) -> Checked:
    """Tries to refute that ``step`` is the Gaussian mechanism that it is charged for; the answer prints as sentences.

    The step is traced, and noise is followed to where it is added to what depends on the data. There the values of two
    neighbours, which draw the same randomness, are compared with the noise: they may move by one sensitivity. From
    there on both runs continue with the same released value, so that whatever else leaves the step has to be the same to
    the last bit. Optimisers, schedules and metrics may do with a release what they like.

    Args:
        step: ``step(data, keys)``, traceable by JAX; all that it returns is taken to be published. State that a loop
            carries is bound before: ``lambda data, keys: step(state._replace(keys=keys), data)``.
        data: pytree of arrays (records, ...). Small data are best: up to 32 records, so that samples are seen as a whole.
        neighbours: data sets that are neighbours of ``data``, or `Neighbours`; by default those of
            :func:`jaxacct.testing.neighbours`.
        mechanism: what one step is charged as: a `Gaussian`, or one of the sampled Gaussians. `Gaussian` for a step that
            is given a batch which was drawn elsewhere.
        relation: as `jaxacct.epsilon` takes it.
        keys: ``keys(seed)``, what the step takes as keys: `jax.random.key`, `jax.random.PRNGKey`,
            `jaxacct.training.seeded_keys`.
        steps: how many steps of the mechanism one call of ``step`` takes, each with noise. Two show whether a
            loop uses its keys again.
        private: beginnings of paths of outputs that stay secret and are not checked, such as ``"[0].accounts"``.

    Returns:
        A :class:`Checked`: ``ok``, ``leaks``, ``warnings``.

    Raises:
        ValueError: arguments out of range; noise in a loop that cannot be written out; no Gaussian mechanism.
    """
    _validate.function(step=step, keys=keys)
    _validate.one_of(RELATIONS, relation=relation)
    _validate.whole(steps=steps)
    data = jax.tree.map(np.asarray, data)
    count = len(jax.tree.leaves(data)[0])
    wanted = charged(mechanism, relation, count)
    if neighbours is None:
        neighbours = made_neighbours(data, relation)
    pairs = [
        pair if isinstance(pair, Neighbours) else Neighbours(f"neighbour {number}", data, jax.tree.map(np.asarray, pair))
        for number, pair in enumerate(neighbours)
    ]
    return _Check(step, data, wanted, relation, keys, int(steps), tuple(private)).answer(pairs)


class _Check:
    def __init__(
        self,
        step: Any,
        data: Any,
        wanted: Charged,
        relation: str,
        keys: Callable[[int], Any],
        steps: int,
        private: tuple[str, ...],
    ) -> None:
        self.step, self.data, self.wanted, self.steps, self.private = step, data, wanted, steps, private
        self.draws = 16 if wanted.rate == 1 else int(np.clip(np.ceil(8 / wanted.rate), 64, 400))
        self.keys = [keys(seed) for seed in range(self.draws)]
        self.programs: dict[Any, Program] = {}
        self.program = self.of(data)
        self.variances, self.slack = noise_variances(self.program, data, self.keys)
        self.allowed = wanted.moves * steps**0.5 * (self.slack + _TOLERANCE)
        self.replaced = 1.0 if relation == "replace" else 2.0  # of what is allowed, for a record that goes and one that comes
        self.leaks: dict[tuple[str, str], Leak] = {}
        self.changed: dict[str, dict[str, str]] = {}  # why, and then where and how
        self.moved: dict[str, float] = {}

    def of(self, data: Any) -> Program:
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(data))
        if shapes not in self.programs:
            self.programs[shapes] = Program(self.step, data, self.keys[0])
        return self.programs[shapes]

    def add(self, *leaks: Leak) -> None:
        for leak in leaks:
            self.leaks.setdefault((leak.kind, leak.where), leak)

    def answer(self, pairs: list[Neighbours]) -> Checked:
        self.repeats()
        self.add(*noise_leaks(self.program, self.data, self.keys, self.variances))
        self.bare_randomness()
        for pair in pairs:
            self.compare(pair)
        self.grows()
        for why, places in self.changed.items():
            where, how = next(iter(places.items()))
            more = f" and {len(places) - 1} more outputs" if len(places) > 1 else ""
            self.add(Leak("output", where, f"{where}{more}: {why} ({how})"))
        drawn = self.sampler()
        leaks = list(self.leaks.values())
        unseen = list(_UNSEEN)
        largest = max(self.moved.values(), default=0.0)
        if largest < 0.5:
            unseen.append(
                f"the clip: no record moved a release by more than {largest:.2g} of what was charged; give neighbours "
                "whose gradients are longer"
            )
        if self.slack > 1:
            unseen.append(
                f"the noise's scale to better than {100 * (self.slack - 1):.0f} %, and correlations between its entries: "
                "they are mixtures of the same draws"
            )
        if not drawn:
            unseen.append("the sampler: that takes one step, with at most 32 records, in which the sample is drawn")
        return Checked(
            tuple(leak for leak in leaks if leak.severity == "critical"),
            tuple(leak for leak in leaks if leak.severity != "critical"),
            largest,
            len(self.program.found.cuts),
            tuple(pair.name for pair in pairs),
            tuple(unseen),
        )

    def repeats(self) -> None:
        """Whether the step is one program, and the replay computes what it computes."""
        again = Program(self.step, self.data, self.keys[0]).flat
        texts = {re.sub("0x[0-9a-f]+", "", str(flat.jaxpr)) for flat in (self.program.flat, again)}  # no addresses
        constants = [[_array(value).tobytes() for value in flat.consts] for flat in (self.program.flat, again)]
        if len(texts) > 1 or constants[0] != constants[1]:
            says = "the step is another program each time that it is traced: state of Python's, or randomness from no key"
            self.add(Leak("randomness", "", says))
        computed = jax.tree.leaves(jax.jit(self.step)(self.data, self.keys[0]))
        replayed = self.program.run(self.data, self.keys[0]).outputs
        for path, mine, theirs in zip(self.program.paths, map(_array, replayed), map(_array, computed), strict=True):
            if not np.allclose(mine, theirs, rtol=1e-2, atol=1e-2, equal_nan=True):
                says = f"{path} of the step that was replayed is not what the step computes: what follows is about the replay"
                self.add(Leak("randomness", path, says, "theoretical"))

    def bare_randomness(self) -> None:
        found = self.program.found
        for path, kind, of_bits in zip(self.program.paths, found.kinds, found.of_bits, strict=True):
            if self.hidden(path):
                continue
            if kind == NOISE:
                self.add(Leak("noise", path, f"{path} is the noise itself: subtract it from a release and none is left"))
            elif of_bits and kind == PUBLIC and self.wanted.rate < 1:
                why = "random bits reach it other than through a release, and who is in the sample is secret: is it a divisor?"
                self.changed.setdefault(why, {})[path] = "seen in the program"

    def hidden(self, path: str) -> bool:
        return path.startswith(self.private) if self.private else False

    def compare(self, pair: Neighbours) -> None:
        one, other = self.of(pair.data), self.of(pair.other)
        if [cut.aval.shape for cut in one.found.cuts] != [cut.aval.shape for cut in other.found.cuts]:
            self.add(Leak("noise", "", f"the step makes other releases where {pair.name}"))
            return
        took_part = 0
        tried = self.keys[:64] if self.moved else self.keys
        for number, key in enumerate(list(tried)):
            released = one.run(pair.data, key).inputs
            quiet, moved = (
                program.run(rows, key, 0.0, released=released) for program, rows in ((one, pair.data), (other, pair.other))
            )
            move = self.move(pair, quiet, moved)
            took_part += move > 0
            if number < 2 or move > 0:
                outputs = [
                    program.run(rows, key, released=released).outputs
                    for program, rows in ((one, pair.data), (other, pair.other))
                ]
                self.outputs(pair, *outputs, exact=one is other)
            if move > 0 and number > _SEEN:  # where the record takes part: the first to be tried for the next pair
                self.keys.insert(0, self.keys.pop(number))
            if took_part == _SEEN:
                return

    def move(self, pair: Neighbours, quiet: Seen, moved: Seen, allowed: float = 1.0) -> float:
        """How far the inputs of the noise moved, in sensitivities; complains if it is too far.

        ``allowed`` is relative to what the relation allows.
        """
        shares = []
        for number, (a, b) in enumerate(zip(quiet.inputs, moved.inputs, strict=True)):
            a, b, variance = (np.asarray(each, np.float64) for each in (a, b, self.variances[number]))
            where = self.program.place(number)
            if not np.all(np.isfinite(a) == np.isfinite(b)):
                says = f"{where} is not finite where {pair.name}: noise hides nothing of that"
                self.add(Leak("not finite", where, says, "theoretical" if NOT_FINITE in pair.name else "critical"))
                return 0.0
            change = np.where(np.isfinite(a), a - b, 0.0)
            if np.any((change != 0) & (variance == 0)):
                bare = int(np.sum((change != 0) & (variance == 0)))
                self.add(Leak("noise", where, f"{bare} entries of {where} depend on the data and have no noise"))
            shares.append(np.sum(np.where(variance > 0, change**2 / np.where(variance > 0, variance, 1.0), 0.0)))
        share = float(np.sqrt(np.sum(shares)) * self.wanted.sigma) if shares else 0.0
        relative = share / (self.allowed * allowed)
        self.moved[pair.name] = max(self.moved.get(pair.name, 0.0), relative)
        if relative > 1 and relative == max(self.moved.values()):
            worst = int(np.argmax(shares))
            length = np.linalg.norm(np.asarray(quiet.inputs[worst], np.float64) - np.asarray(moved.inputs[worst], np.float64))
            noise = np.sqrt(np.mean(self.variances[worst]))
            most = self.wanted.moves * allowed
            says = (
                f"where {pair.name}, releases move by {relative:.4g} times what was charged: {self.program.place(worst)} "
                f"moves by {length:.4g} under noise of standard deviation {noise:.4g}, and a noise multiplier of "
                f"{self.wanted.sigma:.4g} allows {noise * most / self.wanted.sigma:.4g}. Either contributions "
                "are not clipped one by one, a record counts more than once, or the noise is too small"
            )
            self.leaks["sensitivity", "releases"] = Leak("sensitivity", "releases", says)
        return share

    def outputs(self, pair: Neighbours, ones: list[Any], others: list[Any], exact: bool) -> None:
        found = self.program.found
        for place, (path, *both) in enumerate(zip(self.program.paths, ones, others, strict=True)):
            one, other = map(_array, both)
            if self.hidden(path) or np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
                continue
            if one.shape == other.shape and not exact and np.allclose(one, other, rtol=_ROUNDING, equal_nan=True):
                continue  # another program, with roundings of its own
            if found.kinds[place] == PUBLIC and found.of_bits[place] and self.wanted.rate < 1:
                continue  # said already
            if one.shape == other.shape:
                size = np.max(np.abs(np.nan_to_num(one.astype(float)) - np.nan_to_num(other.astype(float))), initial=0.0)
                how = f"it changes by {size:.4g} where {pair.name}"
            else:
                how = f"it has another shape where {pair.name}"
            self.changed.setdefault(self.why(place, one), {}).setdefault(path, how)

    def why(self, place: int, value: np.ndarray) -> str:
        found = self.program.found
        if found.kinds[place] == PUBLIC:
            return "it depends on how many records there are: divide by a number that is public"
        if found.scaled:
            return "noise is multiplied by something that depends on the data, and is none of what was charged"
        if not found.cuts:
            return "no normal noise from the keys that the step was given reaches what depends on the data"
        if place in found.again:
            return "it is made of a release and, once more, of the data: a divisor, a statistic or a choice is not noised"
        if value.dtype.kind in "iub":
            return "a count or a choice leaves the step without noise"
        return "it leaves the step without noise"

    def grows(self) -> None:
        """Says that there is no clip where a hundred times the record moves releases so many times as far."""
        large, huge = (
            next((size for name, size in self.moved.items() if part in name), 0.0) for part in (" 100 times", LARGEST)
        )
        leak = self.leaks.get(("sensitivity", "releases"))
        if leak and huge > 30 * large > 0:
            says = f"{leak.says}. A record 100 times as large moves them {huge / large:.3g} times as far: nothing is clipped"
            self.leaks["sensitivity", "releases"] = Leak(leak.kind, leak.where, says)

    def sampler(self) -> bool:
        """Watches which records take part in samples; whether anything was seen."""
        records = len(jax.tree.leaves(self.data)[0])
        if not self.program.found.cuts or self.steps > 1:
            return False
        rows = np.arange(records) if records <= _ROWS else np.random.default_rng(0).choice(records, _ROWS, replace=False)
        drawn = np.zeros((min(self.draws, 64), len(rows)), bool)
        changed = [
            Neighbours(
                f"the record in row {row} is replaced",
                self.data,
                jax.tree.map(lambda leaf, row=row: _changed(leaf, row), self.data),
            )
            for row in rows
        ]
        for number in range(len(drawn)):
            key = self.keys[number]
            released = self.program.run(self.data, key).inputs
            quiet = self.program.run(self.data, key, 0.0, released=released)
            for place, other in enumerate(changed):
                moved = self.program.run(other.other, key, 0.0, released=released)
                drawn[number, place] = self.move(other, quiet, moved, self.replaced) > 0
        says = wrong_sampler(drawn, records, self.wanted)
        if says:
            self.add(Leak("sampler", "", f"the sampler is not the one that was charged: {says}"))
        return records <= _ROWS and self.wanted.rate < 1


def _changed(leaf: np.ndarray, row: int) -> np.ndarray:
    """One row with the opposite features, 100 times as large; labels are those of the row before."""
    leaf = leaf.copy()
    leaf[row] = -100 * leaf[row] if leaf.dtype.kind == "f" and leaf.ndim > 1 else leaf[row - 1]
    return leaf


def _array(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)
