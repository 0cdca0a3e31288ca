"""Hostile grids, laws, profiles and trade-off curves, and hostile questions to good ones."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from jaxacct import PLD, LossGrid, PrivacyProfile, RandomizedResponse, TradeOff, dominates, supremum
from jaxacct.losses.compare.chain import is_chain
from tests.fuzz.common import MORE_VALUES, VALUES, Case, at_length, fuzz, some

GRID = LossGrid(0.1, -20, 41)
ALPHA, BETA = np.array([0.0, 0.25, 1.0]), np.array([1.0, 0.5, 0.0])
FAMILY = [RandomizedResponse(0.5), RandomizedResponse(1.0)]


@functools.cache
def law():
    return PLD.from_mechanism(FAMILY[0], grid=GRID)


@functools.cache
def profile():
    return PrivacyProfile.from_mechanism(FAMILY[0], grid=GRID)


@functools.cache
def curve():
    return TradeOff.from_points(ALPHA, BETA)


def within(low, high):
    """What comes back is within bounds, or is told to be no number by being at the worse one."""

    def sound(found, arguments):
        value = np.asarray(found)
        assert np.all((value >= low) & (value <= high))

    return sound


def case(function, sound=None, *, words=(), **arguments):
    return lambda: Case(function, arguments, sound, words=words)


def method(make, name, sound=None, *, words=(), **arguments):
    return lambda: Case(
        getattr(make(), name), {k: v() if callable(v) else v for k, v in arguments.items()}, sound, words=words
    )


FROM = {"mechanism": FAMILY[0], "bound": "upper", "relation": "remove", "grid": GRID}
ORDER = {"relation": "remove", "grid": GRID, "tolerance": 1e-6}
CASES = {
    "LossGrid": case(LossGrid, spacing=0.1, lowest=-5, size=11),
    "PLD.from_mechanism": case(PLD.from_mechanism, **FROM),
    "PLD.hockey_stick": method(law, "hockey_stick", within(0, 1), epsilon=1.0),
    "PLD.log_moment": method(law, "log_moment", theta=1.0),
    "PLD.self_compose": method(law, "self_compose", steps=2),
    "PLD.compose": method(law, "compose", other=law),
    "PLD.tilt": method(law, "tilt", theta=0.5),
    "PLD.trade_off": method(law, "trade_off", within(0, 1), alpha=0.5),
    "PrivacyProfile.compose": method(profile, "compose", other=profile),
    "PrivacyProfile.from_mechanism": case(PrivacyProfile.from_mechanism, **FROM),
    "PrivacyProfile.from_pld": lambda: Case(PrivacyProfile.from_pld, {"pld": law(), "grid": GRID}),
    "PrivacyProfile.from_values": lambda: Case(
        PrivacyProfile.from_values, {"values": np.asarray(profile().values()), "grid": GRID, "bound": "upper"}
    ),
    "PrivacyProfile.hockey_stick": method(profile, "hockey_stick", within(0, 1), epsilon=1.0),
    "PrivacyProfile.on": method(profile, "on", grid=GRID),
    "TradeOff.compose": method(curve, "compose", other=curve, size=8),
    "TradeOff.from_points": case(TradeOff.from_points, alpha=ALPHA, beta=BETA, bound="lower"),
    "TradeOff.from_profile": method(lambda: TradeOff, "from_profile", profile=profile),
    "TradeOff.power": method(curve, "power", within(0, 1), alpha=0.5),
    "TradeOff.profile": method(curve, "profile", grid=GRID),
    "TradeOff.trade_off": method(curve, "trade_off", within(0, 1), alpha=0.5),
    "dominates": case(dominates, a=FAMILY[1], b=FAMILY[0], **ORDER, words=("mechanism",)),
    "is_chain": case(is_chain, family=FAMILY, **ORDER, words=("mechanism",)),
    "supremum": case(supremum, family=FAMILY, bound="upper", relation="remove", grid=GRID, words=("mechanism",)),
}
QUICK = ("LossGrid", "TradeOff.from_points", "PrivacyProfile.from_values")


@pytest.mark.parametrize("name", QUICK)
def test_curves_name_what_is_wrong(name):
    fuzz(CASES[name](), VALUES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_curves_name_what_is_wrong_at_length(name):
    fuzz(CASES[name](), [*VALUES, *MORE_VALUES])
    at_length(CASES[name](), some)
