"""The same questions, put to the peers in their own words."""

from __future__ import annotations

from typing import Any

import numpy as np

PEERS = ["dp_accounting", "prv_accountant"]
SLOW = {"prv_accountant": 8}
"""Answers only every so many of single queries."""

_STEPS = np.arange(1, 3651)
_SIGMAS, _COUNTS = np.unique(1.5 + np.sin(np.pi / 3650 * 150 * np.ceil(_STEPS / 150)), return_counts=True)
HETEROGENEOUS = (_SIGMAS, _COUNTS)
"""A schedule of 3,650 steps at rate 0.01: distinct noise multipliers, and how often each occurs."""


def _pld_accountant(parts: list[tuple[float, float, int]]) -> Any:
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation

    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    for sigma, rate, steps in parts:
        accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma)), steps)
    return accountant


def _prv_epsilon(parts: list[tuple[float, float, int]], delta: float) -> float:
    from prv_accountant import PRVAccountant
    from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism

    variables = [PoissonSubsampledGaussianMechanism(noise_multiplier=s, sampling_probability=q) for s, q, _ in parts]
    counts = [n for _, _, n in parts]
    accountant = PRVAccountant(prvs=variables, max_self_compositions=counts, eps_error=0.01, delta_error=delta / 1000)
    return float(accountant.compute_epsilon(delta, counts)[2])


def peer_delta(peer: str, sigma: float, rate: float, steps: int, epsilon: float) -> float:
    """delta(epsilon), add or remove; prv_accountant has its `remove` only, and a fixed error."""
    if peer == "dp_accounting":
        return float(_pld_accountant([(sigma, rate, steps)]).get_delta(epsilon))
    from prv_accountant import PRVAccountant
    from prv_accountant.privacy_random_variables import PoissonSubsampledGaussianMechanism

    variable = PoissonSubsampledGaussianMechanism(noise_multiplier=sigma, sampling_probability=rate)
    accountant = PRVAccountant(prvs=[variable], max_self_compositions=[steps], eps_error=0.01, delta_error=1e-10)
    return float(accountant.compute_delta(epsilon, [steps])[2])


def peer_epsilon(peer: str, sigma: float, rate: float, steps: int, delta: float) -> float:
    """epsilon(delta); prv_accountant's upper end."""
    if peer == "dp_accounting":
        return float(_pld_accountant([(sigma, rate, steps)]).get_epsilon(delta))
    return _prv_epsilon([(sigma, rate, steps)], delta)


def peer_schedule(peer: str, delta: float) -> float:
    """epsilon(delta) of the heterogeneous schedule."""
    parts = [(float(s), 0.01, int(n)) for s, n in zip(*HETEROGENEOUS, strict=True)]
    if peer == "dp_accounting":
        return float(_pld_accountant(parts).get_epsilon(delta))
    return _prv_epsilon(parts, delta)


def peer_calibrate(rate: float, steps: int, epsilon: float, delta: float) -> float:
    """dp_accounting's smallest noise multiplier, to a relative 1e-4."""
    import dp_accounting
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    def make(sigma: float) -> Any:
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma))
        return dp_event.SelfComposedDpEvent(step, steps)

    bracket = dp_accounting.ExplicitBracketInterval(0.3, 50.0)
    return dp_accounting.calibrate_dp_mechanism(PLDAccountant, make, epsilon, delta, bracket, tol=1e-4)


def peer_advantage(rate: float, steps: int, advantage: float) -> float:
    """riskcal's smallest noise multiplier for an attack's advantage, to its own tolerance of 1e-3 in the advantage."""
    from riskcal.calibration.dpsgd import find_noise_multiplier_for_advantage

    return float(find_noise_multiplier_for_advantage(advantage, rate, steps))
