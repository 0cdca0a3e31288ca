"""Finds the `Line` of a pair: how its transform is computed, if it is known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import numpy as np

from jaxacct._numerics.arrays import Array, array_module
from jaxacct.losses.engines.lines.derived_lines import RescaledLine, RevealedLine
from jaxacct.losses.engines.lines.line import Line
from jaxacct.losses.engines.lines.listed_line import ListedLine
from jaxacct.losses.engines.lines.normal_line import NormalLine
from jaxacct.losses.engines.lines.sampled_laplace_line import SampledLaplaceLine
from jaxacct.mechanisms.pairs.base import Pair
from jaxacct.mechanisms.pairs.gaussian import GaussianPair
from jaxacct.mechanisms.pairs.laplace import LaplacePair
from jaxacct.mechanisms.pairs.mixture import MixturePair
from jaxacct.mechanisms.pairs.revealed import RescaledPair, RevealedPair
from jaxacct.mechanisms.pairs.sampled import SampledPair
from jaxacct.mechanisms.pairs.table import lists_outcomes

Maker = Callable[[Array, Array, int], Line]


def line_of(pair: Pair) -> Maker | None:
    """How ``pair`` makes a :class:`Line` of theta, the log probability that may be left out, and a number of points.

    None where its transform is not known.
    """
    if isinstance(pair, RevealedPair):
        makers = [line_of(pair.first), None if pair.second is None else line_of(pair.second)]
        known = makers[0] is not None and (pair.second is None or makers[1] is not None)
        return functools.partial(_of_two, pair, makers) if known else None
    if isinstance(pair, RescaledPair):
        maker = line_of(pair.pair)
        return None if maker is None else functools.partial(_of_rescaled, pair, maker)
    if lists_outcomes(pair):
        return functools.partial(_of_outcomes, pair)
    inner = pair.inner if isinstance(pair, SampledPair) else pair
    if hasattr(inner, "window") and array_module(*jax.tree.leaves(pair)) is np:  # its size follows values
        return functools.partial(_of_window, pair)
    if isinstance(inner, LaplacePair):
        return functools.partial(SampledLaplaceLine.of, cast(Any, pair))
    return functools.partial(NormalLine.of, pair) if isinstance(pair, GaussianPair | MixturePair) else None


def _of_two(pair: RevealedPair, makers: list[Maker | None], theta: Array, log_share: Array, points: int) -> Line:
    first, second = (None if make is None else make(theta, log_share, points) for make in makers)
    return RevealedLine(first, second, pair.weight, pair.rest, pair.doubt)


def _of_rescaled(pair: RescaledPair, maker: Maker, theta: Array, log_share: Array, points: int) -> Line:
    return RescaledLine(maker(theta, log_share, points), pair.offset, pair.doubt, theta)


def _of_outcomes(pair: Any, theta: Array, log_share: Array, points: int) -> Line:
    return ListedLine.of_outcomes(pair.atoms(), 0.0 * theta, theta)


def _of_window(pair: Any, theta: Array, log_share: Array, points: int) -> Line:
    window = pair.window(log_share)
    return ListedLine.of_outcomes(window.atoms, window.rest_p, theta)


def has_derivatives(pairs: list[Pair]) -> bool:
    """Whether compositions of pairs of these kinds have transforms that may be differentiated in parameters.

    Of listed outcomes alone, curves have kinks at every sum of losses.
    """
    inner = [pair.inner if isinstance(pair, SampledPair) else pair for pair in pairs]
    smooth = [isinstance(one, LaplacePair | GaussianPair | MixturePair) for one in inner]
    discrete = [hasattr(one, "window") or hasattr(one, "atoms") for one in inner]
    return all(a or b for a, b in zip(smooth, discrete, strict=True)) and (
        any(smooth) or any(hasattr(one, "window") for one in inner)
    )
