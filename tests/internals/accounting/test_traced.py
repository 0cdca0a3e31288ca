"""delta and epsilon inside every transformation, in float32 and in float64 programs: the bounds of the eager call."""

import threading

import jax
import numpy as np
import pytest
from jax.extend.core import Primitive

import jaxacct
from jaxacct import (
    Composed,
    DiscreteGaussian,
    FromTables,
    Gaussian,
    Laplace,
    RandomizedResponse,
    RandomSensitivityGaussian,
    ZeroConcentratedDP,
)
from jaxacct.accounting import worker as _worker
from tests.accounting.test_traced import check, sampled

P, Q = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.5, 0.3])


MECHANISMS = {
    "Laplace": Laplace(2.0),
    "integer Gaussian": DiscreteGaussian(2.0),
    "mixture": RandomSensitivityGaussian(2.0, (0.0, 1.0), (0.5, 0.5)),
    "response": RandomizedResponse(1.0, 4),
    "sampled": sampled(1.0),
    "tables": FromTables(P, Q),
    "schedule": Composed([FromTables(P, Q), Gaussian(2.0)], [2, 1]),
    "zCDP": ZeroConcentratedDP(0.1),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_host_calls_no_program_while_one_waits(name, monkeypatch):
    bind = Primitive.bind

    def watched(self, *args, **parameters):
        assert threading.current_thread().name != "jaxacct", self
        return bind(self, *args, **parameters)

    ask = jax.jit(lambda at: jaxacct.delta(MECHANISMS[name], at, steps=3))
    compiled = ask.lower(0.5).compile()
    monkeypatch.setattr(Primitive, "bind", watched)
    # Whether threads of the runtime flush is the machine's affair: the work goes to its own thread in any case here.
    monkeypatch.setattr(_worker, "_flushes", lambda: True)
    found = compiled(0.5)
    monkeypatch.undo()
    check(found, jaxacct.delta(MECHANISMS[name], 0.5, steps=3), False)


def test_a_program_s_work_is_done_with_gradual_underflow():
    seen = []

    def host(x):
        seen.append(_worker.call(lambda: (np.full(8, 2.0**-1060) * 1.0 > 0).all()))
        return x

    _worker.ready()
    jax.jit(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct((), np.float32), x))(1.0).block_until_ready()
    assert seen == [True]
