"""`filter_class` makes a class a filter: a frozen pytree that checks its arguments and prints as its maker.

Its methods see states without marks (:mod:`jaxacct.filters.marks`), which are looked at, taken off and put back here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TypeVar, dataclass_transform

import jax
import numpy as np

from jaxacct import _validate
from jaxacct._numerics.arrays import Array, array_module
from jaxacct._numerics.host import at_hand, on_device
from jaxacct._numerics.pytree import mechanism
from jaxacct._types import Fields, PyTree
from jaxacct.filters import amounts, marks
from jaxacct.filters.around import AroundFilter
from jaxacct.filters.printing import printed_as

T = TypeVar("T", bound=type)
Method = TypeVar("Method", bound=Callable[..., object])
_UPDATES = ("update", "update_clipped")
_NOTHING = ("remaining", "remaining_slack", "clip_scale", "bounds", "steps_left")
"""Readings that are 0 of a state which is not the filter's own, inside a program; of the others it is all there is."""
_READINGS = (*_NOTHING, "spent", "fraction", "price", "epsilon", "loss_bound")


@dataclass_transform(frozen_default=True, eq_default=False)
def filter_class(state: type, name: str, *shown: str) -> Callable[[T], T]:
    """Makes a class a pytree that keeps states of a type, and prints as the function ``name`` with properties.

    Arguments are those of `printed_as`.
    """
    return lambda cls: printed_as(name, *shown)(keeps(state)(mechanism(cls)))


def by_itself(method: Method) -> Method:
    """Leaves it to a method to look at the marks of its state."""
    vars(method)["looks_at_marks"] = True
    return method


def keeps(kind: type) -> Callable[[T], T]:
    """Makes the methods of a filter with a ``state`` raise ValueError where it is no ``kind``, and look at its mark.

    `init` marks its state. `update` refuses a state of another filter and leaves it as it is. The readings of one raise
    ValueError where it is concrete, and fail closed in a program: nothing is left, and everything is spent.
    """

    def checked(name: str, method: Callable[..., object]) -> Callable[..., object]:
        names = list(inspect.signature(method).parameters)

        def given(args: tuple[PyTree, ...], kwargs: Fields) -> Fields:
            if len(args) > len(names) or kwargs.keys() & set(names[: len(args)]):
                method(*args, **kwargs)  # too many arguments, or one twice: Python complains, as where one is missing
            found = dict(zip(names, args, strict=False)) | kwargs
            if not isinstance(found.get("state"), kind) and "state" in found:
                raise ValueError(
                    f"state must be what init or update returned, {kind.__name__}, got {marks.shown(found['state'])}"
                )
            if isinstance(found.get("query"), list | dict | set):
                asked = _validate.shown(found["query"])
                raise ValueError(f"query must be a mechanism, a number or an array, got {asked}")
            if isinstance(found.get("query"), np.ma.MaskedArray):  # what is masked is no number: refused, as NaN is
                found["query"] = np.ma.filled(found["query"].astype(float), np.nan)
            _validate.plain(query=found.get("query"))
            if isinstance(found.get("norms"), list | tuple | dict | set | str | None) and "norms" in found:
                _validate.numbers(norms=found["norms"])
            return found

        run = _updated if name in _UPDATES else functools.partial(_read, name in _NOTHING)

        @functools.wraps(method)
        def inner(*args: object, **kwargs: object) -> object:
            found = given(args, kwargs)
            if "state" not in found or hasattr(method, "looks_at_marks"):
                return method(**found)
            return run(method, found.pop(names[0]), found)

        return inner

    def wrap(cls: T) -> T:
        if not issubclass(cls, AroundFilter):
            setattr(cls, "init", _marked(inspect.getattr_static(cls, "init")))  # noqa: B010
        for name in (*_UPDATES, *_READINGS):
            method = inspect.getattr_static(cls, name, None)
            if not inspect.isfunction(method) or method is vars(AroundFilter).get(name):
                continue  # what a filter around another does not say is the inner one's
            if "state" in inspect.signature(method).parameters:
                setattr(cls, name, checked(name, method))
        return cls

    return wrap


def _marked(method: Callable[..., PyTree]) -> Callable[..., object]:
    @functools.wraps(method)
    def init(self: object, *args: object, **kwargs: object) -> object:
        return marks.marked(self, method(self, *args, **kwargs))

    return init


def _updated(method: Callable[..., PyTree], filter: object, given: Fields) -> tuple[object, ...]:
    """``update`` or ``update_clipped``, of states of ``filter``'s own."""
    state, fits = given["state"], marks.belongs(filter, given["state"])
    known = at_hand(fits)
    if known and not np.any(fits):
        kinds = [bool, amounts.caller_dtype()][: 1 + (method.__name__ == "update_clipped")]
        refused, *scale = on_device([np.zeros(np.shape(fits), kind) for kind in kinds])
        return refused, state, *scale
    bare = marks.put(state, None)
    admitted, after, *scale = method(filter, **(given | {"state": bare}))
    if not (known and np.all(fits)):
        admitted, after = fits & admitted, marks.chosen(fits, after, bare)
        scale = [array_module(fits, one).where(fits, one, array_module(one).zeros_like(one)) for one in scale]
    (mark, *_) = marks.marks_in(state)
    return admitted, marks.put(after, mark), *scale


def _read(nothing: bool, method: Callable[..., object], filter: object, given: Fields) -> object:
    """A reading of a state of ``filter``'s own; of another one in a program, 0 or the largest number there is."""
    state = given["state"]
    if state is None:
        return method(filter, **given)
    fits = marks.belongs(filter, state)
    if at_hand(fits) and not np.all(fits):
        marks.check_state(filter, state)
    found = method(filter, **(given | {"state": marks.put(state, None)}))
    if at_hand(fits):
        return found

    def closed(value: Array) -> Array:
        xp = array_module(fits, value)
        most = np.inf if value.dtype.kind == "f" else True if value.dtype.kind == "b" else np.iinfo(value.dtype).max
        worst = xp.full_like(value, 0 if nothing else most)
        axes = (1,) * max(value.ndim - fits.ndim, 0)
        return xp.where(xp.reshape(fits, fits.shape + axes) if axes else fits, value, worst)

    return jax.tree.map(closed, found)
