"""One run, and bounds without a lattice: against 60 digits, from epsilon 1e-7 to 6e5 and delta down to 1e-193."""

import jaxacct


def test_a_rate_of_0_asks_no_engine(monkeypatch):
    monkeypatch.setattr("jaxacct.accounting.enclosure.bounds_with_failures", None)
    never = jaxacct.PoissonSampled(jaxacct.Laplace(0.1), 0.0)
    assert jaxacct.epsilon(never, 1e-300, steps=1000) == (0.0, 0.0)
    assert jaxacct.delta(never, 0.5, steps=1000) == (0.0, 0.0)
