"""Rényi divergence curves of mechanisms, and what they imply in (epsilon, delta)."""

from jaxacct.losses.renyi.conversion import delta_from_renyi, epsilon_from_renyi, renyi_from_epsilon
from jaxacct.losses.renyi.curve import renyi

__all__ = ["delta_from_renyi", "epsilon_from_renyi", "renyi", "renyi_from_epsilon"]
