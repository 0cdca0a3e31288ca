"""Finds where noise meets private values in a straight-line program: the releases of a training step.

Every value has one of four kinds. *Noise* is made of normal draws and of nothing private; *mixed* is a linear function
of noise and private values; *private* depends on the data in another way; all else, keys and coins among it, is
*public* (coins are told apart from noise because they pass through no inverse error function or cosine).

A release is the first mixed number that is complete: floating point, alone in carrying what was mixed, and not about to
be added to more noise or private values. So a sum of integer limbs, of shards with noise each, or of noisy
microbatches is one release. What follows a release is public: whoever sees the release can compute it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.extend.core as core
import jax.numpy as jnp

PUBLIC, NOISE, PRIVATE, MIXED = range(4)

_LINEAR = {
    "add", "add_any", "sub", "neg", "convert_element_type", "reshape", "broadcast_in_dim", "squeeze", "transpose",
    "rev", "expand_dims", "reduce_sum", "cumsum", "slice", "concatenate", "pad", "copy", "copy_p", "reduce_precision",
    "psum", "floor", "round", "and", "or", "shift_right_arithmetic", "shift_left", "optimization_barrier", "split",
}  # fmt: skip
_LINEAR_IN_FIRST = {"div", "dynamic_slice", "gather"}  # all other operands must be public
_BILINEAR = {"mul", "dot_general", "conv_general_dilated"}  # all but one operand must be public


@dataclasses.dataclass(frozen=True, eq=False)
class Releases:
    """What `releases` finds in a flat program.

    Attributes:
        cuts: the variables that are released, in the program's order.
        sources: the variables that hold normal draws, by JAX's method (inverse error functions, of variance 1/2) or
            that of Box and Muller (of variance 1).
        fed: for every cut, the positions in ``sources`` of what it is made of.
        kinds: the kind of every output.
        of_bits: for every output, whether it depends on random bits other than through a release.
        again: positions of outputs that depend on a release and on private values.
        scaled: whether noise is multiplied by something private.
    """

    cuts: list[Any]
    sources: list[Any]
    fed: list[set[int]]
    kinds: list[int]
    of_bits: list[bool]
    again: set[int]
    scaled: bool


def releases(flat: core.ClosedJaxpr, private: int) -> Releases:
    """The releases of a program whose first ``private`` inputs are the data, and the others keys."""
    jaxpr = flat.jaxpr
    cuts: dict[Any, None] = {}
    done: set[int] = set()
    while True:
        kinds, sources, scaled = _kinds(jaxpr, private, cuts)
        places = (place for place in range(len(jaxpr.eqns)) if place not in done)
        root = next((place for place in places if _mixes(jaxpr.eqns[place], kinds, cuts)), None)
        if root is None:
            break
        complete, roots = _complete(jaxpr, kinds, cuts, root)
        cuts.update(dict.fromkeys(complete))
        done |= roots
    order = [out for equation in jaxpr.eqns for out in equation.outvars if out in cuts]
    fed = _fed(jaxpr, kinds, sources)
    found = [_kind(atom, kinds, cuts) for atom in jaxpr.outvars]
    bits = _reached(jaxpr, {"random_bits"}, set(), set(cuts))
    after = _reached(jaxpr, set(), set(cuts), set())
    again = {place for place, atom in enumerate(jaxpr.outvars) if found[place] == PRIVATE and atom in after}
    of_bits = [not isinstance(atom, core.Literal) and atom in bits for atom in jaxpr.outvars]
    return Releases(order, sources, [fed[cut] for cut in order], found, of_bits, again, scaled)


def _reached(jaxpr: Any, names: set[str], start: set[Any], without: set[Any]) -> set[Any]:
    """The variables that depend on ``start`` or on an operation of one of ``names``, other than through ``without``."""
    found = set(start)
    for equation in jaxpr.eqns:
        if equation.primitive.name in names or any(
            not isinstance(atom, core.Literal) and atom in found for atom in equation.invars
        ):
            found.update(out for out in equation.outvars if out not in without)
    return found


def _kind(atom: Any, kinds: dict[Any, int], cuts: dict[Any, None]) -> int:
    return PUBLIC if isinstance(atom, core.Literal) or atom in cuts else kinds.get(atom, PUBLIC)


def _kinds(jaxpr: Any, private: int, cuts: dict[Any, None]) -> tuple[dict[Any, int], list[Any], bool]:
    kinds: dict[Any, int] = dict.fromkeys(jaxpr.invars[:private], PRIVATE)
    # A constant is the same in every run: only what depends on a key can be noise.
    random, sources, scaled = set(jaxpr.invars[private:]), [], False
    made: dict[Any, str] = {}
    for equation in jaxpr.eqns:
        found = [_kind(atom, kinds, cuts) for atom in equation.invars]
        of_key = any(not isinstance(atom, core.Literal) and atom in random for atom in equation.invars)
        most = max(found, default=PUBLIC)
        if most >= PRIVATE:
            carries = NOISE in found or MIXED in found
            kind = MIXED if carries and is_linear(equation, found) else PRIVATE
            scaled |= kind == PRIVATE and NOISE in found
        elif of_key and (equation.primitive.name == "erf_inv" or _is_box_muller(equation, made)):
            kind = NOISE
            sources.append(equation.outvars[0])
        else:
            kind = most
        kinds.update(dict.fromkeys(equation.outvars, kind))
        made.update(dict.fromkeys(equation.outvars, equation.primitive.name))
        if of_key:
            random.update(equation.outvars)
    return kinds, sources, scaled


def _is_box_muller(equation: Any, made: dict[Any, str]) -> bool:
    """Whether a radius is multiplied by the cosine or sine of an angle."""
    names = {made.get(atom) for atom in equation.invars if not isinstance(atom, core.Literal)}
    return equation.primitive.name == "mul" and "sqrt" in names and bool(names & {"cos", "sin"})


def is_linear(equation: Any, kinds: list[int]) -> bool:
    """Whether the results are linear (up to rounding) in the operands that are not public."""
    name = equation.primitive.name
    if name == "select_n" or name in _LINEAR_IN_FIRST:
        others = kinds[:1] if name == "select_n" else kinds[1:]
        return all(kind == PUBLIC for kind in others)
    return name in _LINEAR or (name in _BILINEAR and sum(kind != PUBLIC for kind in kinds) == 1)


def _mixes(equation: Any, kinds: dict[Any, int], cuts: dict[Any, None]) -> bool:
    """Whether noise and private values first meet here, or more of either comes to what is mixed."""
    if not any(kinds[out] == MIXED and out not in cuts for out in equation.outvars):
        return False
    return any(_kind(atom, kinds, cuts) in (NOISE, PRIVATE) for atom in equation.invars)


def _complete(jaxpr: Any, kinds: dict[Any, int], cuts: dict[Any, None], first: int) -> tuple[list[Any], set[int]]:
    """The variable at which what is mixed in equation ``first`` is complete, and the equations that mix it.

    Where there is none, the variables that they mix.
    """
    last: dict[Any, int] = {}
    uses: dict[Any, list[int]] = {}
    for place, equation in enumerate(jaxpr.eqns):
        for atom in equation.invars:
            if not isinstance(atom, core.Literal):
                last[atom] = place
                uses.setdefault(atom, []).append(place)
    for atom in jaxpr.outvars:
        if not isinstance(atom, core.Literal):
            last[atom] = len(jaxpr.eqns)
    made = {out: place for place, equation in enumerate(jaxpr.eqns) for out in equation.outvars}

    def mixed(atom: Any) -> bool:
        return _kind(atom, kinds, cuts) == MIXED

    def grows(variable: Any) -> bool:
        """Whether the only use of a variable adds more noise or private values to it."""
        if len(uses.get(variable, [])) != 1 or last[variable] == len(jaxpr.eqns):
            return False
        equation = jaxpr.eqns[uses[variable][0]]
        others = [_kind(atom, kinds, cuts) for atom in equation.invars if atom is not variable]
        return mixed(equation.outvars[0]) and any(kind != PUBLIC for kind in others)

    def apart() -> list[Any]:
        return [out for root in sorted(roots) for out in jaxpr.eqns[root].outvars if out not in cuts]

    roots = {first}
    while True:
        live: dict[Any, None] = {}
        more: set[int] = set()
        for place in range(min(roots), len(jaxpr.eqns)):
            equation = jaxpr.eqns[place]
            touched = place in roots or any(
                not isinstance(atom, core.Literal) and atom in live for atom in equation.invars
            )
            if touched:
                if not mixed(equation.outvars[0]):
                    return apart(), roots
                strange = [atom for atom in equation.invars if mixed(atom) and atom not in live]
                more = {root for atom in strange for root in _roots(jaxpr, made, mixed, atom)} - roots
                if more:
                    break
                live.update(dict.fromkeys(equation.outvars))
            live = {variable: None for variable in live if last.get(variable, -1) > place}
            if place >= max(roots) and len(live) == 1:
                (only,) = live
                if jnp.issubdtype(only.aval.dtype, jnp.floating) and not grows(only):
                    return [only], roots
        if not more:
            return apart(), roots
        roots |= more


def _roots(jaxpr: Any, made: dict[Any, int], mixed: Any, variable: Any) -> set[int]:
    """The equations in which the parts of a mixed variable were first mixed."""
    found, seen, waiting = set(), set(), [made[variable]]
    while waiting:
        place = waiting.pop()
        before = {made[atom] for atom in jaxpr.eqns[place].invars if mixed(atom)}
        found |= set() if before else {place}
        waiting += before - seen
        seen |= before
    return found


def _fed(jaxpr: Any, kinds: dict[Any, int], sources: list[Any]) -> dict[Any, set[int]]:
    found: dict[Any, set[int]] = {source: {number} for number, source in enumerate(sources)}
    for equation in jaxpr.eqns:
        into = set().union(*(found.get(atom, set()) for atom in equation.invars if not isinstance(atom, core.Literal)))
        for out in equation.outvars:
            found.setdefault(out, set())
            if kinds[out] in (NOISE, MIXED):
                found[out] = found[out] | into
    return found
