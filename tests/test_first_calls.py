"""Concrete numbers compile nothing, in processes of their own; queries of all kinds share one small program."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import pytest

from jaxacct import Laplace, PoissonSampled, filters

SETUP = """
import warnings
import jax, numpy as np, jaxacct
from jaxacct import *
from jaxacct import adversary, filters
names = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **more: names.append(event) if event.endswith("backend_compile_duration") else None
)
warnings.simplefilter("ignore", RuntimeWarning)
"""
DONE = """
assert not names, len(names)
jax.jit(lambda x: x + 1)(1.0)
assert names
"""
NOTHING = {
    "one run of a mechanism": """
from tests.contract.mechanism_cases import CASES
for case in CASES.values():
    for relation in case.relations:
        jaxacct.epsilon(case.make(0.8), 1e-5, relation=relation)
        jaxacct.delta(case.make(0.8), 0.5, relation=relation)
""",
    "compositions": """
from tests.tight.test_bounds import NARROW
for mechanism, steps in NARROW.values():
    jaxacct.epsilon(mechanism, 1e-5, steps=steps)
    jaxacct.delta(mechanism, 1.0, steps=steps)
fixed = SampledWithoutReplacement(Gaussian(2.0), 10, 1000)
jaxacct.epsilon(fixed, 1e-5, steps=1000, relation="replace"), jaxacct.epsilon(fixed, 1e-5, steps=100)
jaxacct.epsilon(ZeroConcentratedDP(0.001), 1e-5, steps=10)
""",
    "curves": """
from jaxacct.losses.compare.attack import advantage, bayes_risk, power
from jaxacct.losses.compare.chain import is_chain
from jaxacct.losses.compare.distance import delta_divergence
from jaxacct.losses.compare.gaussian_order import gaussian_trade_off, mu_of
from jaxacct.losses.compare.order import crossings
from jaxacct.losses.compare.suprema import infimum
from jaxacct.papers.central_limit import clt_of_box

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
""",
    "filters": """
from jaxacct.losses import renyi as curves
for query in (Gaussian(2.0), Laplace(2.0), Exponential(0.1), DiscreteLaplace(2.0), FromTables([0.4, 0.6], [0.6, 0.4]),
              PoissonSampled(Gaussian(2.0), 0.01), PoissonSampled(Laplace(2.0), 0.01),
              RandomSensitivityGaussian(2.0, [1.0, 2.0], [0.5, 0.5]), Composed([Gaussian(2.0), Laplace(2.0)])):
    for order in (8, 8.5):
        curves.renyi(query, order)
curves.epsilon_from_renyi(0.1, 8.0, 1e-5), curves.delta_from_renyi(0.1, 8.0, 1.0)
made = [filters.pure_dp(1.0), filters.zcdp(1.0), filters.approximate_dp(1.0, 1e-5), filters.gdp([1.0, 2.0]),
        filters.renyi(2.0, 1e-5, order=8), filters.renyi_any(2.0, 1e-5, [8.0, 16.5]), filters.gdp_residue(1.0, 1e-6)]
for one in made:
    state = one.init()
    one.spent(state), one.remaining(state), one.fraction(state)
    one.guarantee.epsilon(1e-3), one.guarantee.delta(1.0)
residue, state = made[-1], made[-1].init()
for query in (Laplace(20.0), PoissonSampled(Gaussian(2.0), 0.01), RandomizedResponse(0.1)):
    admitted, state = residue.update(query, state)
    assert admitted
grid = LossGrid(0.02, -100, 201)
for one in (filters.natural(GDP(1.0), grid=grid), adversary.natural_approximate_dp(1.0, 1e-5, rounds=9, grid=grid)):
    admitted, _ = one.update(Laplace(20.0), one.init())
    assert admitted
filters.plan_order(PoissonSampled(Gaussian(2.0), 0.05), 1e-5, 2.0, steps=100)
for make in (Gaussian, Laplace, lambda sigma: PoissonSampled(Gaussian(sigma), 0.01)):
    jaxacct.calibrate(make, 1.0, 1e-5)
adversary.is_free(PureDP(2.0), [RandomizedResponse(0.5)], 3)
adversary.GeneralizedResponse.enclosing(Laplace(2.0), [0.1, 0.2])
""",
}
ONE_EACH = """
for one, queries in (
    (filters.pure_dp(5.0), [0.1, Laplace(20.0), PoissonSampled(Laplace(20.0), 0.1), RandomizedResponse(0.1)]),
    (filters.zcdp(5.0), [Gaussian(9.0), Laplace(20.0), Composed([Gaussian(9.0), Laplace(9.0)])]),
    (filters.renyi(9.0, 1e-5, order=8), [Gaussian(9.0), Laplace(9.0), PoissonSampled(Laplace(9.0), 0.1)]),
    (filters.gdp(1.0), [Gaussian(9.0), GDP(0.1), Composed([Gaussian(9.0), GDP(0.1)])]),
):
    jax.clear_caches()
    del names[:]
    state = one.init()
    for query in queries:
        admitted, state = one.update(query, state)
        assert admitted
    assert len(names) == 1, (one, len(names))
"""


@pytest.mark.parametrize("program", [*(text + DONE for text in NOTHING.values()), ONE_EACH], ids=[*NOTHING, "updates"])
def test_a_fresh_process_compiles_nothing_or_one_program_for_all_updates(program):
    command = [sys.executable, "-c", SETUP + program]
    found = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr[-2000:]


def test_a_query_that_is_known_in_a_trace_becomes_a_constant():
    budget = filters.renyi(5.0, 1e-5, order=16)
    query = PoissonSampled(Laplace(3.0), 0.1)
    program = jax.make_jaxpr(lambda state: budget.update(query, state))(budget.init())
    assert "exp" not in str(program).replace("expand", "")
