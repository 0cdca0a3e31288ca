"""Concrete curves compile nothing, and what NumPy and JAX spell differently means the same."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("in_float64")

CALLS = """
import jaxacct
from jaxacct import *
from jaxacct.losses.compare.attack import advantage, bayes_risk, power
from jaxacct.losses.compare.chain import is_chain
from jaxacct.papers.central_limit import clt_of_box
from jaxacct.losses.compare.distance import delta_divergence
from jaxacct.losses.compare.suprema import infimum
from jaxacct.losses.compare.gaussian_order import gaussian_trade_off, mu_of
from jaxacct.losses.compare.order import crossings

sampled, noise = PoissonSampled(Gaussian(1.0), 0.01), Laplace(1.0)
for bound in ("upper", "lower"):
    law = PLD.from_mechanism(sampled, bound)
    law.self_compose(1000).compose(law).hockey_stick([0.1, 1.0])
    law.tilt(1.0), law.log_moment(1.0), law.trade_off(0.1)
    profile = PrivacyProfile.from_mechanism(noise, bound)
    profile.symmetrise(), profile.compose(profile), profile.values(), profile.to_pld()
    curve = TradeOff.from_profile(profile)
    curve.power(0.1), curve.trade_off(0.1), curve.points(), curve.profile(profile.grid)
    bayes_risk(law, 0.3), power(law, 0.1), advantage(curve)
few = TradeOff.from_points([0.0, 0.3, 1.0], [1.0, 0.3, 0.0])
few.compose(few, 16), few.compose(few), supremum([few, few.reflect()]), dominates(few, few)
pair = [Gaussian(1.0), noise]
dominates(*pair), is_chain([*pair, Gaussian(2.0)]), supremum(pair), infimum(pair), crossings(*pair)
delta_divergence(*pair), mu_of(noise, delta=1e-6), gaussian_trade_off(1.0, 0.1)
clt_of_box((0.01, 0.02), (1.0, 2.0), 100)
"""


def test_concrete_calls_compile_nothing():
    said = subprocess.run(
        [sys.executable, "-c", CALLS], env=os.environ | {"JAX_LOG_COMPILES": "1"}, capture_output=True, text=True
    )
    assert said.returncode == 0, said.stderr
    assert "ompil" not in said.stderr
