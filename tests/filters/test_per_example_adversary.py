"""The theorem of individual filters, exactly: all adaptive analysts of a finite world against the certified curve."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import norm as normal

from jaxacct import Gaussian, PoissonSampled, filters

SIGMA, RATE, ROUNDS = (0.8, 1.1, 1.5), 0.2, 4
OWN, OTHER = (0.0, 0.5, 0.72, 1.0), (0.0, 1.0)  # contributions that the analyst can ask for
AT = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
# Releases are told apart by these thresholds only: post-processing, which makes the world finite and its laws exact.
CELLS = np.array([-np.inf, 0.0, 0.8, 1.6, 2.4, np.inf])


@pytest.fixture(scope="module")
def ledger():
    menu = [PoissonSampled(Gaussian(s), RATE) for s in SIGMA]
    made = filters.per_example(filters.menu(menu, epsilon=2.0, delta=3e-3, points=1024, unit=24), examples=2)
    assert int(made.filter.budget) // int(made.filter.prices[0]) == 1, "a loud step, some quiet ones, and that was it"
    assert int(made.filter.budget) // int(made.filter.prices[-1]) > ROUNDS
    return made


class World:
    """Two examples, of which the first is there or not; both keep the ledgers of the code under test."""

    def __init__(self, ledger, *, obey=True, charge=lambda norms: norms):
        self.ledger, self.obey, self.charge = ledger, obey, charge
        self.query = PoissonSampled(Gaussian(SIGMA[0]), RATE)
        self.known, self.laws = {}, {}

    def step(self, words, norms):
        """What both may contribute, and the words after."""
        key = words, norms
        if key not in self.known:
            state = self.ledger.init()._replace(words=np.array(words, np.int32))
            charged = np.array(self.charge(norms), np.float32)
            _, after = self.ledger.update(self.query, charged, state)
            takes_part = np.asarray(self.ledger.bounds(self.query, charged, after)) > 0
            mine = tuple(n if took or not self.obey else 0.0 for n, took in zip(norms, takes_part, strict=True))
            self.known[key] = mine, tuple(np.asarray(after.words).tolist())
        return self.known[key]

    def law(self, own, other):
        """Probabilities of the cells with the first example and without."""
        if (own, other) not in self.laws:

            def cells(mean):
                return np.diff(normal.cdf(CELLS, mean, SIGMA[0]))

            without = RATE * cells(other) + (1 - RATE) * cells(0.0)
            inside = RATE * cells(own + other) + (1 - RATE) * cells(own)
            self.laws[own, other] = RATE * inside + (1 - RATE) * without, without
        return self.laws[own, other]

    def worst(self, reverse, rounds=ROUNDS, words=(0, 0), gamma=None):
        """The largest sum of (P - gamma Q)_+ over all analysts who choose norms after seeing each cell."""
        gamma = np.exp(AT) if gamma is None else gamma
        best = np.maximum(1 - gamma, 0)
        if rounds == 0:
            return best
        for norms in itertools.product(OWN, OTHER):
            (own, other), after = self.step(words, norms)
            if own == 0:
                # The same law on both sides: no better than to go straight on.
                if after != words and rounds > 1:
                    best = np.maximum(best, self.worst(reverse, rounds - 1, after, gamma))
                continue
            p, q = self.law(own, other)[:: -1 if reverse else 1]
            ahead = self.worst(reverse, rounds - 1, after, (gamma[:, None] * (q / p)).ravel())
            best = np.maximum(best, ahead.reshape(gamma.size, -1) @ p)
        return best


@pytest.mark.parametrize("reverse", [False, True], ids=["remove", "add"])
def test_no_analyst_who_plays_against_one_example_exceeds_the_certificate(ledger, reverse):
    claimed = np.asarray(ledger.guarantee.delta(AT))
    found = World(ledger).worst(reverse)
    assert (found <= claimed).all()
    assert found[0] >= 0.4 * claimed[0], "an attack that far below shows nothing"


@pytest.mark.parametrize(
    "broken",
    [{"obey": False}, {"charge": lambda norms: tuple(n / 2 for n in norms)}],
    ids=["not obeyed", "half charged"],
)
def test_the_same_analysts_break_ledgers_that_are_not_obeyed_or_that_charge_too_little(ledger, broken):
    assert (World(ledger, **broken).worst(False) > np.asarray(ledger.guarantee.delta(AT))).any()
