"""Finds where noise meets private values in a straight-line program: the releases of a training step.

Every value has one of four kinds. *Noise* is made of normal draws and of nothing private; *mixed* is a linear function
of noise and private values; *private* depends on the data in another way; all else, keys and coins among it, is
*public* (coins are told apart from noise because they pass through no inverse error function, which is how JAX makes
normal numbers).

A release is the first mixed floating-point number to which no more noise or private values are added. So a sum of
integer limbs, of shards with noise each, or of noisy microbatches is one release. What follows a release is public:
whoever sees the release can compute it.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import jax.extend.core as core
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

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
        sources: the variables that hold normal draws, inverse error functions of variance 1/2.
        kinds: the kind of every output.
        of_bits: for every output, whether it depends on random bits other than through a release.
        again: positions of outputs that depend on a release and on private values.
        scaled: whether noise is multiplied by something private.
        told: the operations through which private values go to a callback (a print, perhaps).
    """

    cuts: list[Any]
    sources: list[Any]
    kinds: list[int]
    of_bits: list[bool]
    again: set[int]
    scaled: bool
    told: set[str]


def releases(flat: core.ClosedJaxpr, private: int) -> Releases:
    """The releases of a program whose first ``private`` inputs are the data, and the others keys."""
    jaxpr, cuts = flat.jaxpr, []
    uses = collections.defaultdict(list)  # an output is used by the end, which is no equation
    for equation in (*jaxpr.eqns, None):
        for variable in _variables(jaxpr.outvars if equation is None else equation.invars):
            uses[variable].append(equation)
    while True:  # what follows a release is public: all kinds are found anew
        kinds, sources, scaled = _kinds(jaxpr, private, cuts)
        mixed = [out for equation in jaxpr.eqns for out in equation.outvars if kinds[out] == MIXED]
        cut = next((one for one in mixed if _is_float(one) and not _grows(one, uses, kinds, cuts)), None)
        if cut is None:
            break
        cuts.append(cut)
    order = [out for equation in jaxpr.eqns for out in equation.outvars if out in cuts]
    found = [_kind(atom, kinds) for atom in jaxpr.outvars]
    bits = _reached(jaxpr, {"random_bits"}, set(), set(cuts))
    after = _reached(jaxpr, set(), set(cuts), set())
    again = {place for place, atom in enumerate(jaxpr.outvars) if found[place] == PRIVATE and atom in after}
    of_bits = [not isinstance(atom, core.Literal) and atom in bits for atom in jaxpr.outvars]
    # Who knows the bits that noise is made of knows the noise.
    of_noise = _reached(jaxpr, set(), _bits_of(jaxpr, sources), set(cuts))
    for place, atom in enumerate(jaxpr.outvars):
        if found[place] == PUBLIC and not isinstance(atom, core.Literal) and atom in of_noise:
            found[place] = NOISE
    return Releases(order, sources, found, of_bits, again, scaled, _told(jaxpr, kinds))


def _bits_of(jaxpr: core.Jaxpr, sources: list[core.Var]) -> set[core.Var]:
    """The random bits that normal draws are made of."""
    needed, bits = set(sources), set()
    for equation in reversed(jaxpr.eqns):
        if not needed.isdisjoint(equation.outvars):
            if equation.primitive.name == "random_bits":
                bits.update(equation.outvars)
            else:
                needed.update(_variables(equation.invars))
    return bits


def _told(jaxpr: core.Jaxpr, kinds: dict[core.Var, int]) -> set[str]:
    """The operations with effects on the host, to which anything but public values is given."""
    found = set()
    for equation in jaxpr.eqns:
        if equation.effects:
            alone = jaxpr.replace(eqns=[equation], outvars=[], debug_info=jaxpr.debug_info.with_unknown_names())
            only, _ = dce_jaxpr(alone, [])  # of a loop what its callbacks need
            if any(_kind(atom, kinds) > PUBLIC for kept in only.eqns for atom in kept.invars):
                found.add(equation.primitive.name)
    return found


def _variables(atoms: Any) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, core.Literal)]


def _is_float(variable: Any) -> bool:
    return jnp.issubdtype(variable.aval.dtype, jnp.floating)


def _grows(
    variable: core.Var, uses: dict[core.Var, list[core.JaxprEqn]], kinds: dict[core.Var, int], cuts: list[core.Var]
) -> bool:
    """Whether the only use of a mixed variable, or that of what it becomes, adds more noise or private values to it."""
    while len(uses[variable]) == 1 and uses[variable] != [None]:
        (equation,) = uses[variable]
        others = [_kind(atom, kinds) for atom in equation.invars if atom is not variable]
        variable = equation.outvars[0]
        if kinds[variable] != MIXED:
            return variable in cuts  # what it was completed to
        if max(others, default=PUBLIC) > PUBLIC:
            return True
    return False


def _reached(jaxpr: core.Jaxpr, names: set[str], start: set[core.Var], without: set[core.Var]) -> set[core.Var]:
    """The variables that depend on ``start`` or on an operation of one of ``names``, other than through ``without``."""
    found = set(start)
    for equation in jaxpr.eqns:
        if equation.primitive.name in names or not found.isdisjoint(_variables(equation.invars)):
            found.update(out for out in equation.outvars if out not in without)
    return found


def _kind(atom: core.Var | core.Literal, kinds: dict[core.Var, int]) -> int:
    return PUBLIC if isinstance(atom, core.Literal) else kinds.get(atom, PUBLIC)


def _kinds(jaxpr: core.Jaxpr, private: int, cuts: list[core.Var]) -> tuple[dict[core.Var, int], list[Any], bool]:
    kinds: dict[core.Var, int] = dict.fromkeys(jaxpr.invars[:private], PRIVATE)
    # A constant is the same in every run: only what depends on a key can be noise.
    random, sources, scaled = set(jaxpr.invars[private:]), [], False
    for equation in jaxpr.eqns:
        found = [_kind(atom, kinds) for atom in equation.invars]
        of_key = not random.isdisjoint(_variables(equation.invars))
        kind = max(found, default=PUBLIC)
        if kind >= PRIVATE:
            carries = NOISE in found or MIXED in found
            kind = MIXED if carries and _is_linear(equation, found) else PRIVATE
            scaled |= kind == PRIVATE and NOISE in found
        elif of_key and equation.primitive.name == "erf_inv":
            kind = NOISE
            sources.append(equation.outvars[0])
        for out in equation.outvars:
            kinds[out] = PUBLIC if out in cuts else kind
        if of_key:
            random.update(equation.outvars)
    return kinds, sources, scaled


def _is_linear(equation: core.JaxprEqn, kinds: list[int]) -> bool:
    """Whether the results are linear (up to rounding) in the operands that are not public."""
    name = equation.primitive.name
    if name == "select_n" or name in _LINEAR_IN_FIRST:
        others = kinds[:1] if name == "select_n" else kinds[1:]
        return all(kind == PUBLIC for kind in others)
    return name in _LINEAR or (name in _BILINEAR and sum(kind != PUBLIC for kind in kinds) == 1)
