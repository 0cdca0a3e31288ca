"""Hostile grids, laws, profiles and trade-off curves, and hostile questions to good ones."""

from __future__ import annotations

import functools

import numpy as np

from jaxacct import PLD, LossGrid, PrivacyProfile, RandomizedResponse, TradeOff
from jaxacct.losses.compare.chain import is_chain
from tests.fuzz.common import Later, case

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


def is_share(found, arguments):
    """A probability, or 1 where it is told to be no number."""
    assert np.all((np.asarray(found) >= 0) & (np.asarray(found) <= 1))


def of(make, name):
    """A method of what is made when it is called."""
    return lambda **arguments: getattr(make(), name)(**arguments)


FROM = {"mechanism": FAMILY[0], "bound": "upper", "relation": "remove", "grid": GRID}
ORDER = {"relation": "remove", "grid": GRID, "tolerance": 1e-6}
CASES = {
    "LossGrid": case(spacing=0.1, lowest=-5, size=11),
    "PLD.from_mechanism": case(**FROM),
    "PLD.hockey_stick": case(of(law, "hockey_stick"), sound=is_share, epsilon=1.0),
    "PLD.log_moment": case(of(law, "log_moment"), theta=1.0),
    "PLD.self_compose": case(of(law, "self_compose"), steps=2),
    "PLD.compose": case(of(law, "compose"), other=Later(law)),
    "PLD.tilt": case(of(law, "tilt"), theta=0.5),
    "PLD.trade_off": case(of(law, "trade_off"), sound=is_share, alpha=0.5),
    "PrivacyProfile.compose": case(of(profile, "compose"), other=Later(profile)),
    "PrivacyProfile.from_mechanism": case(**FROM),
    "PrivacyProfile.from_pld": case(pld=Later(law), grid=GRID),
    "PrivacyProfile.from_values": case(values=Later(lambda: np.asarray(profile().values())), grid=GRID, bound="upper"),
    "PrivacyProfile.hockey_stick": case(of(profile, "hockey_stick"), sound=is_share, epsilon=1.0),
    "PrivacyProfile.on": case(of(profile, "on"), grid=GRID),
    "TradeOff.compose": case(of(curve, "compose"), other=Later(curve), size=8),
    "TradeOff.from_points": case(alpha=ALPHA, beta=BETA, bound="lower"),
    "TradeOff.from_profile": case(profile=Later(profile)),
    "TradeOff.power": case(of(curve, "power"), sound=is_share, alpha=0.5),
    "TradeOff.profile": case(of(curve, "profile"), grid=GRID),
    "TradeOff.trade_off": case(of(curve, "trade_off"), sound=is_share, alpha=0.5),
    "dominates": case(a=FAMILY[1], b=FAMILY[0], **ORDER, words=("mechanism",)),
    "is_chain": case(is_chain, family=FAMILY, **ORDER, words=("mechanism",)),
    "supremum": case(family=FAMILY, bound="upper", relation="remove", grid=GRID, words=("mechanism",)),
}
QUICK = {"LossGrid", "TradeOff.from_points", "PrivacyProfile.from_values"}
DEAR = set()
