"""One run of a mechanism is answered without compiling anything."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import logging, warnings
import jax
import jaxacct
from tests.contract.mechanism_cases import CASES

seen = []
handler = logging.Handler()
handler.emit = lambda record: seen.append(record.getMessage())
logging.getLogger("jax").addHandler(handler)
logging.getLogger("jax").propagate = False
warnings.simplefilter("ignore", RuntimeWarning)
with jax.log_compiles(True):
    for case in CASES.values():
        for relation in case.relations:
            jaxacct.epsilon(case.make(0.8), 1e-5, relation=relation)
            jaxacct.delta(case.make(0.8), 0.5, relation=relation)
    assert not seen, seen[:3]
    jax.jit(lambda x: x + 1)(1.0)
    assert seen
"""


def test_one_run_compiles_nothing():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
