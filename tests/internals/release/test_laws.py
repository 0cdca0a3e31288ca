"""The samplers' laws, by enumeration of their coins with rational numbers; a charge stands when a draw dies."""

import functools
from decimal import Context, Decimal
from fractions import Fraction

import pytest

from jaxacct import Ledger, filters, release
from jaxacct.release import samplers

LEAST = Fraction(1, 10**20)  # branches that are less likely are left out


class Undecided(Exception):
    """A draw that comes after those of the script."""


class Restart(Exception):
    """The sampler rejected what it had drawn, and begins anew."""


@functools.cache
def exp_minus(numerator, denominator):
    digits = Context(prec=60)
    return Fraction(digits.exp(-digits.divide(Decimal(numerator), Decimal(denominator))))


def law(sample):
    """``{outcome: probability}`` of ``sample(pick)``, where ``pick(weights)`` draws an index."""
    found, rejected, branches = {}, Fraction(0), [((), Fraction(1))]
    while branches:
        script, mass = branches.pop()
        rest = list(script)

        def pick(weights, rest=rest, script=script, mass=mass):
            if rest:
                return rest.pop(0)
            branches.extend(((*script, i), mass * w) for i, w in enumerate(weights) if mass * w > LEAST)
            raise Undecided

        try:
            outcome = sample(pick)
        except Undecided:
            continue
        except Restart:
            rejected += mass
            continue
        found[outcome] = found.get(outcome, 0) + mass
    lost = 1 - rejected - sum(found.values())
    assert 0 <= lost < Fraction(1, 10**15)
    return {outcome: mass / (1 - rejected) for outcome, mass in found.items()}


def assert_same(found, weights):
    total = sum(weights.values())
    for outcome in found.keys() | weights.keys():
        assert abs(found.get(outcome, 0) - weights.get(outcome, Fraction(0)) / total) < Fraction(1, 10**14), outcome


@pytest.mark.parametrize(("numerator", "denominator"), [(0, 1), (1, 3), (3, 4), (1, 1), (2, 2), (5, 2), (7, 3)])
def test_a_coin_of_an_exponential_has_its_probability(numerator, denominator, monkeypatch):
    class Uniform:
        def __init__(self, pick, most):
            self.pick, self.most = pick, most

        def __lt__(self, bound):
            return self.pick([1 - Fraction(bound, self.most), Fraction(bound, self.most)])

    def sample(pick):
        monkeypatch.setattr(samplers, "randbelow", lambda most: Uniform(pick, most))
        return samplers._exp_coin(numerator, denominator)

    true = exp_minus(numerator, denominator)
    assert_same(law(sample), {True: true, False: 1 - true})


def once(pick, weights):
    """Draws with ``weights`` on the first call, and says that a second one begins anew."""
    calls = []

    def draw(*_):
        if calls:
            raise Restart
        calls.append(1)
        return pick(weights)

    return draw


def coin(pick):
    def flip(numerator, denominator):
        true = exp_minus(numerator, denominator)
        return bool(pick([1 - true, true]))

    return flip


@pytest.mark.parametrize(("numerator", "denominator"), [(1, 1), (3, 2), (5, 1), (1, 3), (4, 3), (7, 10)])
def test_discrete_laplace_noise_has_its_law(numerator, denominator, monkeypatch):
    def sample(pick):
        low = once(pick, [Fraction(1, numerator)] * numerator)
        sign = lambda most: pick([Fraction(1, most)] * most)  # noqa: E731
        # The last digit comes first; then a sign, which no other draw looks like: no numerator here is 2.
        monkeypatch.setattr(samplers, "randbelow", lambda most: sign(most) if most == 2 else low(most))
        monkeypatch.setattr(samplers, "_exp_coin", coin(pick))
        return samplers._laplace(numerator, denominator)

    weights = {x: exp_minus(abs(x) * denominator, numerator) for x in range(-300, 301)}
    assert_same(law(sample), weights)


@functools.cache
def laplace_law(scale):
    weights = [exp_minus(abs(x), scale) for x in range(-250, 251)]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize(("numerator", "denominator"), [(1, 4), (1, 1), (9, 4), (10, 1), (2, 7), (4, 1), (120, 11)])
def test_discrete_gaussian_noise_has_its_law(numerator, denominator, monkeypatch):
    def sample(pick):
        scale = []

        def laplace(over, under):
            assert under == 1
            if scale:
                raise Restart
            scale.append(over)
            return pick(laplace_law(over)) - 250

        monkeypatch.setattr(samplers, "_laplace", laplace)
        monkeypatch.setattr(samplers, "_exp_coin", coin(pick))
        return samplers._gaussian(numerator, denominator)

    weights = {x: exp_minus(x**2 * denominator, 2 * numerator) for x in range(-100, 101)}
    assert_same(law(sample), weights)


QUERIES = {
    "count": lambda **rest: release.count([True, False], scale=10, **rest),
    "histogram": lambda **rest: release.histogram(["a"], bins=["a", "b"], sigma=10, **rest),
    "bounded_sum": lambda **rest: release.bounded_sum([1, 2], lower=0, upper=2, scale=20, **rest),
    "mean": lambda **rest: release.mean([1, 2], lower=0, upper=2, sigma=(20, 10), **rest),
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_request_is_on_the_disk_before_a_coin_is_drawn(query, tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "budget.db", filters.zcdp(1.0), create=True)

    def dies(_):
        (entry,) = Ledger(tmp_path / "budget.db").outstanding()
        assert entry.admitted
        raise KeyboardInterrupt

    monkeypatch.setattr(samplers, "randbelow", dies)
    with pytest.raises(KeyboardInterrupt):
        QUERIES[query](budget=ledger)
    assert float(ledger.spent()) > 0
    assert len(ledger.outstanding()) == 1
