"""Each event is read as the right mechanism, and written back as an equal one."""

import math
from fractions import Fraction

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

import jaxacct
from jaxacct import interop
from jaxacct import mechanisms as m

dp = pytest.importorskip("dp_accounting", reason="dp_accounting is in the interop extra")
from dp_accounting import dp_event as e  # noqa: E402

GAUSSIAN, RESPONSE = e.GaussianDpEvent(2.0), e.RandomizedResponseDpEvent
WITHOUT, WITH = (getattr(e, f"SampledWith{which}ReplacementDpEvent") for which in ("out", ""))
TREE, MIXED = e.SingleEpochTreeAggregationDpEvent, e.MixtureOfGaussiansDpEvent
TWICE, OPEN = m.Gaussian(2.0, 2.0), m.ApproximateDP(0.0, 1.0)
TRUNCATED, CUT = e.TruncatedSubsampledGaussianDpEvent, m.TruncatedPoisson(m.Gaussian(2.0), 0.1, 9, 50)


def same(found, expected):
    """Equal types and parameters, the latter to a few units."""
    if isinstance(expected, m.Composed):
        return all(same(a, c) and b == d for (a, b), (c, d) in zip(found.parts(), expected.parts(), strict=True))
    if not isinstance(expected, m.base.Mechanism):
        return np.allclose(np.asarray(found, float), np.asarray(expected, float), rtol=1e-13, atol=0)
    fields = type(expected).__dataclass_fields__
    return type(found) is type(expected) and all(same(getattr(found, f), getattr(expected, f)) for f in fields)


def of_nobody(event):
    """Samples that hold nobody, and no run at all: private, whatever it is that runs."""
    return (
        e.PoissonSampledDpEvent(0.0, event),
        WITHOUT(10, 0, event),
        WITH(10, 0, event),
        e.SelfComposedDpEvent(event, 0),
    )


READ = [
    (GAUSSIAN, "add_or_remove", m.Gaussian(2.0)),
    (GAUSSIAN, "replace", TWICE),
    (e.GaussianDpEvent(0.0), "add_or_remove", OPEN),
    (e.LaplaceDpEvent(3.0), "add_or_remove", m.Laplace(3.0)),
    (e.DiscreteLaplaceDpEvent(0.5, 3), "replace_special", m.DiscreteLaplace(2.0, 3)),
    (e.DiscreteLaplaceDpEvent(0.5, 3), "replace", m.DiscreteLaplace(2.0, 6)),
    (e.DiscreteLaplaceDpEvent(0.5, 0), "replace", m.PureDP(0.0)),
    (RESPONSE(0.5, 4), "replace", m.RandomizedResponse(math.log(0.625 / 0.125), 4)),
    (RESPONSE(0.5, 4), "replace_special", m.FromTables([0.625, 0.375], [0.25, 0.75])),
    (RESPONSE(0.0, 4), "replace", OPEN),
    (RESPONSE(1.0, 4), "replace_special", m.PureDP(0.0)),
    (MIXED(2.0, [0, 1], [0.5, 0.5]), "add_or_remove", m.RandomSensitivityGaussian(2.0, [0, 1], [0.5, 0.5])),
    (e.ZCDpEvent(0.1), "replace", m.ZeroConcentratedDP(0.1)),
    (e.ZCDpEvent(0.0, 0.3), "add_or_remove", m.PureDP(0.3)),
    (TREE(2.0, [3, 8, 1]), "replace_special", TWICE),
    (e.NoOpDpEvent(), "add_or_remove", m.PureDP(0.0)),
    (e.NonPrivateDpEvent(), "replace", OPEN),
    (e.ComposedDpEvent([]), "replace", m.PureDP(0.0)),
    (
        e.ComposedDpEvent([GAUSSIAN, e.SelfComposedDpEvent(e.LaplaceDpEvent(3.0), 5), GAUSSIAN, e.NoOpDpEvent()]),
        "add_or_remove",
        m.Composed([m.Gaussian(2.0), m.Laplace(3.0)], [2, 5]),
    ),
    (e.PoissonSampledDpEvent(0.1, GAUSSIAN), "add_or_remove", m.PoissonSampled(m.Gaussian(2.0), 0.1)),
    (e.PoissonSampledDpEvent(1.0, GAUSSIAN), "replace", TWICE),
    (e.PoissonSampledDpEvent(0.1, GAUSSIAN), "replace", m.PoissonSampled(m.Gaussian(2.0), 0.1)),
    (e.PoissonSampledDpEvent(0.1, e.LaplaceDpEvent(3.0)), "replace_special", m.PoissonSampled(m.Laplace(3.0), 0.1)),
    (MIXED(1.0, [1.0], [1.0]), "replace", m.RandomSensitivityGaussian(1.0, [1.0], [1.0])),
    (e.PoissonSampledDpEvent(0.5, e.NonPrivateDpEvent()), "add_or_remove", OPEN),
    (
        e.PoissonSampledDpEvent(0.1, e.SelfComposedDpEvent(GAUSSIAN, 4)),
        "replace_special",
        m.PoissonSampled(m.Composed([m.Gaussian(2.0)], [4]), 0.1),
    ),
    (WITHOUT(100, 10, GAUSSIAN), "replace", m.SampledWithoutReplacement(TWICE, 10, 100)),
    *((WITH(100, 10, GAUSSIAN), one, m.SampledWithReplacement(TWICE, 10, 100)) for one in ("replace", "add_or_remove")),
    *((TRUNCATED(50, 0.1, 9, 2.0), one, CUT) for one in ("replace", "add_or_remove", "replace_special")),
    (WITHOUT(100, 100, GAUSSIAN), "replace", TWICE),
    (WITHOUT(100, 0, GAUSSIAN), "replace", m.PureDP(0.0)),
    *((one, "add_or_remove", m.PureDP(0.0)) for one in of_nobody(e.NonPrivateDpEvent())),
    *((one, "add_or_remove", m.PureDP(0.0)) for one in of_nobody(e.UnsupportedDpEvent())),
    (TRUNCATED(50, 0.1, 51, 2.0), "add_or_remove", m.PoissonSampled(m.Gaussian(2.0), 0.1)),
]


@pytest.mark.parametrize(
    ("event", "relation", "expected"), READ, ids=lambda x: str(x)[:60] if isinstance(x, str) else ""
)
def test_an_event_is_read_as_its_mechanism(event, relation, expected):
    assert same(interop.from_dp_event(event, relation), expected)


@pytest.mark.parametrize(
    ("event", "relation", "reason"),
    [
        (e.UnsupportedDpEvent(), "add_or_remove", "no analysis of this event"),
        (type("Better", (e.GaussianDpEvent,), {})(1.0), "add_or_remove", "no analysis of this event"),
        (WITH(10, 2, e.LaplaceDpEvent(1.0)), "replace", "it has one for Gaussian"),
        (e.ComposedDpEvent([GAUSSIAN, e.UnsupportedDpEvent()]), "replace", "^UnsupportedDpEvent"),
        (RESPONSE(0.5, 2), "add_or_remove", "'replace_special'"),
        (e.PoissonSampledDpEvent(0.1, e.ZCDpEvent(0.1)), "replace_special", "added to a sum"),
        (e.PoissonSampledDpEvent(0.1, e.SelfComposedDpEvent(e.LaplaceDpEvent(1.0), 2)), "add_or_remove", "Gaussians"),
        (WITHOUT(100, 10, GAUSSIAN), "replace_special", "'add_or_remove' and 'replace' only"),
        (WITHOUT(10, 100, GAUSSIAN), "replace", "sample_size"),
        (TREE(1.0, [4]), "add_or_remove", "'replace_special' only"),
        (TREE(1.0, []), "replace_special", "step_counts"),
        (MIXED(1.0, [1.0], [0.5, 0.5]), "add_or_remove", "zip|weights"),
        (MIXED(1.0, [-1.0], [1.0]), "add_or_remove", "sensitivities"),
        (e.RepeatAndSelectDpEvent(GAUSSIAN, 0.5, 1.0), "add_or_remove", "mean"),
        (e.SelfComposedDpEvent(GAUSSIAN, -1), "add_or_remove", "count"),
        (e.SelfComposedDpEvent(GAUSSIAN, 2**60), "add_or_remove", "count"),
        (e.GaussianDpEvent(-1.0), "add_or_remove", "noise_multiplier"),
        (e.GaussianDpEvent(None), "add_or_remove", "Event: "),
        (e.DiscreteLaplaceDpEvent(0.0, 1), "add_or_remove", "noise_parameter"),
        (RESPONSE(1.5, 3), "replace", "noise_parameter"),
        (RESPONSE(0.5, 0), "replace", "num_buckets"),
        (e.ZCDpEvent(-0.1), "replace", "rho"),
        (e.PoissonSampledDpEvent(1.5, GAUSSIAN), "add_or_remove", "sampling_probability"),
    ],
)
def test_what_has_no_analysis_is_refused_with_a_sentence(event, relation, reason):
    with pytest.raises(interop.UnreadableEvent, match=reason) as caught:
        interop.from_dp_event(event, relation)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value.event, e.DpEvent)


def test_an_event_that_stands_in_many_others_is_read_once():
    """Thirty-three levels of an event that runs once and twice: 3^33 runs, and 2^33 readings one by one."""
    event = GAUSSIAN
    for _ in range(33):
        event = e.ComposedDpEvent([e.SelfComposedDpEvent(event, 1), e.SelfComposedDpEvent(event, 2)])
    assert same(interop.from_dp_event(event), m.Composed([m.Gaussian(2.0)], [3**33]))


def test_an_event_is_read_anew_where_it_has_changed():
    parts = [GAUSSIAN]
    event, accountant = e.ComposedDpEvent(parts), interop.Accountant()
    accountant.compose(event)
    parts.append(e.NonPrivateDpEvent())
    assert accountant.compose(event).get_epsilon(0.5) == math.inf


def test_long_mixtures_that_print_alike_are_two_parts():
    weights, quiet = np.full(2048, 2.0**-11), np.full(2048, 0.1)
    loud = np.where((np.arange(2048) < 3) | (np.arange(2048) > 2044), quiet, 5.0)
    events = [e.MixtureOfGaussiansDpEvent(1.0, sensitivities, weights) for sensitivities in (quiet, loud)]
    parts = interop.from_dp_event(e.ComposedDpEvent([*events, events[0]])).parts()
    assert [steps for _, steps in parts] == [2, 1]
    assert [float(np.max(np.asarray(part.sensitivities))) for part, _ in parts] == [0.1, 5.0]


@pytest.mark.parametrize(
    ("mechanism", "relation", "words"),
    [
        (m.Skellam(1.0), "add_or_remove", "Skellam"),
        (m.RenyiDP(2.0, 0.1), "add_or_remove", "RenyiDP"),
        (m.Gaussian([1.0, 2.0]), "add_or_remove", "scalar"),
        (m.RandomizedResponse(1.0), "add_or_remove", "'replace'"),
        (m.DiscreteLaplace(1.0, 3), "replace", "even"),
        (m.Gaussian(1.0), "remove", "relation"),
        ("gaussian", "replace", "mechanism"),
    ],
)
def test_what_no_event_describes_is_not_written(mechanism, relation, words):
    with pytest.raises(ValueError, match=words):
        interop.to_dp_event(mechanism, 1, relation)


ORDERS = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64)) + [128, 256, 512]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.0, 1.0, math.inf])
def test_selection_costs_less_than_by_their_divergences(shape):
    event = e.RepeatAndSelectDpEvent(e.GaussianDpEvent(4.0), 10.0, shape)
    ours = interop.Accountant().compose(event, 2)
    assert 0 < ours.get_epsilon(1e-5) < dp.rdp.RdpAccountant(ORDERS).compose(event, 2).get_epsilon(1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (e.SelfComposedDpEvent(e.PoissonSampledDpEvent(0.05, e.GaussianDpEvent(1.5)), 300), 1),
        (e.SelfComposedDpEvent(e.PoissonSampledDpEvent(0.2, e.LaplaceDpEvent(1.5)), 20), 1),
        (e.SelfComposedDpEvent(e.DiscreteLaplaceDpEvent(0.3, 2), 20), 1),
        (e.RandomizedResponseDpEvent(0.5, 4), 3),
        (e.SelfComposedDpEvent(e.MixtureOfGaussiansDpEvent(2.0, [0.0, 1.0, 2.0], [0.5, 0.3, 0.2]), 10), 3),
        (e.SelfComposedDpEvent(GAUSSIAN, 5), 2),
    ],
)
def test_epsilon_agrees_with_their_loss_distributions(event, relation):
    relation = dp.NeighboringRelation(relation)
    ours = interop.Accountant(relation).compose(event)
    pld = dp.pld.PLDAccountant(relation).compose(event)
    lower, upper = ours.bounds(1e-5)
    assert upper == pytest.approx(ours.get_epsilon(1e-5))
    assert upper == pytest.approx(pld.get_epsilon(1e-5), rel=2e-3)
    assert lower <= pld.get_epsilon(1e-5) * (1 + 1e-9)


@pytest.mark.slow
def test_xi_moves_the_curve_of_rho():
    accountant = interop.Accountant().compose(e.ZCDpEvent(0.02, 0.01), 5)
    rdp = dp.rdp.RdpAccountant(ORDERS).compose(e.ZCDpEvent(0.02, 0.01), 5)
    assert accountant.get_epsilon(1e-5) <= rdp.get_epsilon(1e-5) * 1.002
    assert accountant.get_epsilon(1e-5) >= float(jaxacct.epsilon(m.ZeroConcentratedDP(0.1), 1e-5).upper) + 0.05 - 1e-6


@hypothesis.given(st.floats(1e-3, 1e3), st.sampled_from(["add_or_remove", "replace_special", "replace"]))
@hypothesis.settings(max_examples=50, deadline=None)
def test_noise_survives_the_round_trip_to_the_last_digit(noise, relation):
    sampled = e.PoissonSampledDpEvent(0.1, e.GaussianDpEvent(noise))
    several = e.ComposedDpEvent([e.SelfComposedDpEvent(sampled, 17), e.LaplaceDpEvent(noise)])
    for event in (e.GaussianDpEvent(noise), e.LaplaceDpEvent(noise), e.SelfComposedDpEvent(sampled, 17), several):
        assert interop.to_dp_event(interop.from_dp_event(event, relation), 1, relation) == event


@hypothesis.given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
@hypothesis.settings(max_examples=50, deadline=None)
def test_an_event_s_noise_is_the_largest_float_that_is_no_more_private(sigma, sensitivity):
    found = interop.to_dp_event(jaxacct.Gaussian(sigma, sensitivity)).noise_multiplier
    exact = Fraction(sigma) / Fraction(sensitivity)
    assert Fraction(found) <= exact < Fraction(math.nextafter(found, math.inf))
