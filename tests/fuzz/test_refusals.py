"""What would be broadcast, fill the memory, never end, or is forgotten by a function of the caller, is refused."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from jaxacct import Gaussian, adversary, expost, filters, training
from tests.contract import filter_cases as cases
from tests.fuzz.cases_games import FAMILY, LOOP
from tests.fuzz.cases_training import PARAMS, ROWS, TOTAL, WHOLE, X, Y, logits, loss

QUERIES = adversary.Rule.unrestricted(FAMILY).queries


def summed(data, mask):
    return training.clipped_gradient_sum(loss, PARAMS, data, mask, 1.0)


def network(**wrong):
    return training.demo.build_network(**{"name": "mlp", "shape": (3,), "classes": 2, "seed": 0, **wrong})


def updated(nonsense):
    ledger = filters.residue(cases.response, nonsense, 40.0, rounds=3, grid=cases.GRID)
    return ledger.update(cases.law(0.5), ledger.init())


REFUSED = [
    # Each of these moved a sum by more than was accounted for: a short vector spread over more coordinates, an example
    # counted twice, a share of more answers than examples.
    ("gradients must", lambda: training.add_clipped(TOTAL, {"w": np.ones((3, 1), np.float32)}, WHOLE, 1.0)),
    ("valid must", lambda: training.add_clipped(TOTAL, ROWS, np.ones((3, 1), bool), 1.0)),
    ("data must", lambda: summed((X, Y[:1]), WHOLE)),
    ("mask must", lambda: summed((X, Y), np.ones(4, bool))),
    ("y must", lambda: training.accuracy(logits, X, Y[:, None])),
    ("y must", lambda: training.accuracy(logits, X, Y[:1])),
    ("logits must", lambda: training.accuracy(lambda params, x: x.sum(-1), X, Y)(PARAMS)),
    # The memory.
    ("classes", lambda: network(classes=2**40)),
    ("shape", lambda: network(shape=(2**20, 2**20))),
    ("piece must", lambda: training.sample_pieces(WHOLE, 2**40)),
    # Time.
    ("rounds must", lambda: adversary.counterexample(FAMILY, 2**40)),
    ("rounds must", lambda: adversary.totally_ordered_closure(FAMILY, 2**40)),
    ("rounds must", lambda: adversary.residue_condition(FAMILY[1], 0, FAMILY * 3, 60, relation="remove")),
    (
        "most must",
        lambda: expost.compose_until(lambda *_: (0.0, 0.5), 0.0, lambda _: 0.0, order=8.0, most=2**40, **LOOP),
    ),
    # A function that forgets what it is to return.
    ("step must return a hashable", lambda: adversary.worst_case(adversary.Rule(QUERIES, (), lambda *_: []), 2)),
    ("step must be a function", lambda: adversary.worst_case(adversary.Rule(QUERIES, (), None), 2)),  # pyright: ignore
    ("update must", lambda: updated(lambda left, query: None)),
    ("update must", lambda: updated(lambda left, query: "x")),
    ("update must", lambda: updated(lambda left, query: np.ones(2))),
]


@pytest.mark.parametrize(("words", "ask"), REFUSED)
def test_it_is_refused_by_name(words, ask):
    with pytest.raises(ValueError, match=words):
        ask()


def test_a_traced_number_of_no_piece_has_nobody_and_a_chain_of_any_length_is_known_at_once():
    _, valid = jax.jit(training.take_piece)(training.sample_pieces(WHOLE, 2), -1)
    assert not valid.any()
    assert adversary.counterexample([Gaussian(1.0), Gaussian(2.0)], 2**16) is None
