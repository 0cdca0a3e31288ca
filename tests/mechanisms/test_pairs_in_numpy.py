"""Pairs answer in NumPy what they answer in JAX, over settings, and one run of a mechanism compiles nothing."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import logging, warnings
import jax
import jaxacct
from tests.internals.mechanisms.test_pairs_in_numpy import EVERY

seen = []
handler = logging.Handler()
handler.emit = lambda record: seen.append(record.getMessage())
logging.getLogger("jax").addHandler(handler)
logging.getLogger("jax").propagate = False
warnings.simplefilter("ignore", RuntimeWarning)
with jax.log_compiles(True):
    for mechanism, relation in EVERY.values():
        jaxacct.epsilon(mechanism, 1e-5, relation=relation)
        jaxacct.delta(mechanism, 0.5, relation=relation)
    assert not seen, seen[:3]
    jax.jit(lambda x: x + 1)(1.0)
    assert seen
"""


def test_one_run_compiles_nothing():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
