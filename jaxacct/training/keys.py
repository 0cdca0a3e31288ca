"""Makes the random keys of a run, each used once."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxacct import _validate
from jaxacct.training import chacha20

# Keys are derived from keys here, some by two numbers in a row: the step's and the leaf's. Of JAX's generators,
# unsafe_rbg folds a number in by exclusive or, so that step 0 of leaf 1 and step 1 of leaf 0 have one key; and keys of
# rbg are not independent under vmap.
_GENERATORS = ("threefry2x32", chacha20.GENERATOR)
_NAMES = " or ".join(map(str, _GENERATORS))
_WHY = "others derive the same key, and so the same noise, twice"


class RootKeys(NamedTuple):
    """The roots of a run's private randomness: scalar typed PRNG keys, one root a stream; its text shows no key.

    Attributes:
        sampling: root of the coins that say who is in a sample.
        noise: root of the Gaussian noise.
    """

    sampling: jax.Array
    noise: jax.Array

    def __repr__(self) -> str:
        return "RootKeys(secret)"


class StepKeys(NamedTuple):
    """The keys of one step, from `step_keys`: scalar typed PRNG keys, each used once; its text shows no key.

    Attributes:
        sampling: key of the step's coins.
        noise: key of the step's noise.
        run: root of the run's coins, from which a sampler draws the batches of an epoch together.
        number: () uint32, number of the step.
    """

    sampling: jax.Array
    noise: jax.Array
    run: jax.Array
    number: jax.Array

    def __repr__(self) -> str:
        return "StepKeys(secret)"


def fresh_keys() -> RootKeys:
    """Keys from the operating system's entropy, as a private run needs them.

    Each root takes all 64 bits of a threefry key from ``os.urandom``. ``jax.random.key(seed)`` would hold
    32 bits of a seed, few enough to try them all. Sixty-four bits are what JAX's generator offers; it is a
    good statistical generator and not a cryptographic one, so the guarantee is for an adversary who does
    not search 2^64 keys; `secure_keys` are for one who does.
    """
    return _from_system(2, "threefry2x32")


def secure_keys() -> RootKeys:
    """Keys of a cryptographic generator, ChaCha20 (RFC 8439), each of 256 bits of the operating system's entropy.

    They go wherever `fresh_keys` go. Coins and noise are then what nobody who does not know the roots can tell from
    fair ones, as far as is known of ChaCha20, whatever else of the run they see; a step takes a little longer.
    """
    return _from_system(8, chacha20.GENERATOR)


def _from_system(words: int, generator: Any) -> RootKeys:
    roots = np.frombuffer(os.urandom(2 * 4 * words), dtype=np.uint32).reshape(2, words)
    return RootKeys(*(jax.random.wrap_key_data(jnp.asarray(root), impl=generator) for root in roots))


def seeded_keys(seed: int) -> RootKeys:
    """Keys that anyone who knows ``seed`` can rebuild: for tests and reproducible runs, not for private ones.

    Args:
        seed: a whole number in [0, 2^64).

    Raises:
        ValueError: a seed outside that range.
    """
    _validate.integer(0, 2**64 - 1, seed=seed)
    seed = int(seed)
    words = jnp.array([seed >> 32, seed & 0xFFFFFFFF], dtype=jnp.uint32)
    root = jax.random.wrap_key_data(words, impl="threefry2x32")
    return RootKeys(sampling=jax.random.fold_in(root, 0), noise=jax.random.fold_in(root, 1))


def attempt_keys(keys: RootKeys, attempt: int) -> RootKeys:
    """The roots of one attempt of a seeded run that is resumed: no step of one attempt has a key of another's.

    Give them for every attempt, the first (0) included, and never use ``keys`` itself beside them.

    Raises:
        ValueError: no roots, or an attempt outside [0, 2^32).
    """
    check_roots(keys)
    _validate.integer(0, 2**32 - 1, attempt=attempt)
    return RootKeys(*(jax.random.fold_in(root, np.uint32(attempt)) for root in keys))


def step_keys(keys: RootKeys, step: ArrayLike) -> StepKeys:
    """The keys of one step: a function of the root and the step's number, so that no step repeats another.

    Args:
        keys: the run's roots.
        step: number of the step, a whole number in [0, 2^32). A step that was refused released nothing, so
            its number may be asked for again.

    Raises:
        ValueError: no roots, or a concrete step outside that range.
    """
    check_roots(keys)
    _validate.number(step=step)
    if not _validate.is_traced(step):
        number = np.asarray(step)
        if number.dtype.kind not in "iu" or not 0 <= int(number) < 2**32:
            raise ValueError(f"step must be a whole number from 0 to 2**32 - 1, got {step!r:.200}")
        step = np.uint32(number)
    sampling, noise = (jax.random.fold_in(root, step) for root in keys)
    return StepKeys(sampling, noise, keys.sampling, jnp.asarray(step, jnp.uint32))


def check_roots(keys: object) -> None:
    """Raises ValueError, which shows no key, unless ``keys`` are the roots of a run."""
    _check(keys, RootKeys, "pass training.fresh_keys(), or training.seeded_keys(seed) for a run that repeats")


def same_roots(one: RootKeys, other: RootKeys) -> bool:
    """Whether two pairs of concrete roots have a key in common."""
    return any(_is_same(key, another) for key in one for another in other)


def check_step_keys(keys: object) -> None:
    """Raises ValueError, which shows no key, unless ``keys`` are those of one step: roots would repeat its noise."""
    _check(keys, StepKeys, "pass training.step_keys(roots, number)")


def check_key(key: jax.Array) -> None:
    """Raises ValueError unless ``key`` is a typed scalar PRNG key of one of `_GENERATORS`."""
    if isinstance(key, RootKeys | StepKeys):
        raise ValueError(
            f"key must be one key, got {type(key).__name__}: pass the sampling or noise of "
            "training.step_keys(roots, number)"
        )
    if not _validate.is_key(key):
        raise ValueError(f"key must be a typed scalar PRNG key, got {type(key).__name__}")
    if (found := jax.random.key_impl(key)) not in _GENERATORS:
        raise ValueError(f"key must be one of the generator {_NAMES}, got one of {found}: {_WHY}")


def _check(keys: object, kind: type[RootKeys] | type[StepKeys], instead: str) -> None:
    if not isinstance(keys, kind):
        raise ValueError(f"keys must be {kind.__name__}, got a {type(keys).__name__}: {instead}")
    held: tuple[jax.Array, ...] = tuple(keys)
    if not all(_validate.is_key(key) for key in held[:3]) or any(map(np.ndim, held[3:])):
        raise ValueError(f"keys must be {kind.__name__} of typed scalar PRNG keys, got other values: {instead}")
    for found in map(jax.random.key_impl, held[:3]):
        if found not in _GENERATORS:
            raise ValueError(f"keys must be {kind.__name__} of the generator {_NAMES}, got {found}: {_WHY}; {instead}")
    if _is_same(held[0], held[1]):
        raise ValueError(
            f"keys must be {kind.__name__} of two different keys, got one twice: its noise would tell the coins; "
            f"{instead}"
        )


def _is_same(one: jax.Array, other: jax.Array) -> bool:
    """Whether two keys are one, as far as that can be told of traced ones."""
    if one is other or _validate.is_traced(one) or _validate.is_traced(other):
        return one is other
    with jax.ensure_compile_time_eval():
        words, others = (np.asarray(jax.random.key_data(key)) for key in (one, other))
    return np.array_equal(words, others)
