"""Plots on matplotlib axes: privacy profiles, trade-off curves, privacy losses, budgets, sweeps and audits.

Every function takes ``ax`` (None makes a figure), draws, and returns the axes. Where there are bounds, the picture
shows both: a line where the guarantee is, and a band down to the other bound. What is not a bound is dotted and says
so. Calls with the same ``ax`` add to one picture, each in the next colour of Okabe and Ito's palette, which is distinct
under the common colour blindnesses; line styles differ as well.

Needs matplotlib: ``pip install 'jaxacct[plot]'``.
"""

from jaxacct.plotting._style import PALETTE
from jaxacct.plotting.audits import audits
from jaxacct.plotting.budgets import budget, filter_comparison
from jaxacct.plotting.curves import privacy_profile, trade_off
from jaxacct.plotting.laws import pld
from jaxacct.plotting.samplers import samplers
from jaxacct.plotting.sweeps import sweep

__all__ = [
    "PALETTE",
    "audits",
    "budget",
    "filter_comparison",
    "pld",
    "privacy_profile",
    "samplers",
    "sweep",
    "trade_off",
]
