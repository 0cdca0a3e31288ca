"""What a process has to load, and that it works without what extras install."""

import pytest

from tests.processes import printed

EXTRAS = "scipy optax flax chex flint matplotlib dp_accounting jax_privacy sqlalchemy sklearn tqdm"
ASK = "from jaxacct import Gaussian, Laplace, PoissonSampled, UserLevel, epsilon; epsilon({}, 1e-5, steps=10)"
LOADED = [
    (ASK.format("PoissonSampled(Gaussian(1.0), 0.01)"), EXTRAS),
    (ASK.format("Laplace(3.0)"), EXTRAS),
    (ASK.format("UserLevel(Gaussian(2.0), 0.01, records=5)"), EXTRAS),
    ("import jaxacct, jaxacct.cli, jaxacct.interop", f"{EXTRAS} jax"),
]


@pytest.mark.parametrize(("program", "heavy"), LOADED, ids=["sampled", "Laplace", "users", "shell"])
def test_a_first_answer_loads_neither_scipy_nor_what_an_extra_installs(program, heavy):
    assert not set(heavy.split()) & set(printed(f"import sys; {program}; print(*sys.modules)").split())


FACES = ("", ".adversary", ".audit", ".certificates", ".expost", ".filters", ".interop", ".ledger", ".plotting",
         ".release", ".testing")  # fmt: skip


def test_star_imports_need_no_extra_and_calls_name_the_missing_one():
    program = f"""
import sys
for name in ("dp_accounting", "flax", "flint", "jax_privacy", "matplotlib", "optax", "sqlalchemy"):
    sys.modules[name] = None
for face in {FACES}:
    exec(f"from jaxacct{{face}} import *")
calls = (
    lambda: certify(Gaussian(1.0), epsilon=1.0),
    lambda: from_dp_event(None),
    lambda: Ledger("postgresql://x/y", pure_dp(1.0), create=True),
)
for call in calls:
    try:
        call()
    except ImportError as missing:
        print(missing)
"""
    flint, events, server = printed(program).splitlines()
    assert "needs python-flint: pip install 'jaxacct[certify]'" in flint
    assert "from_dp_event needs dp_accounting: pip install 'jaxacct[interop]'" in events
    assert "jaxacct[ledger]" in server
