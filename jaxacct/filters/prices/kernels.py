"""What one run of a query adds to a smoothed curve: its kernel, `kernel_of`.

Let E be the excess H - (1 - gamma)_+ of a hockey-stick curve and E^(l) = exp(-l / 2) E(exp(l)). A curve that is
piecewise linear in gamma, with p_k = gamma_k (change of slope at gamma_k), and is composed with a Gaussian G, rises
under a query L by sum over k of p_k D_L(gamma / gamma_k), with D_L = E_(L o G) - E_G >= 0 the *kernel* of L
(docs/theorems/prices.md, equation 2). Sums of it keep their relative accuracy however small one run's cost is, and
no lattice has to resolve the query: it is replaced by a discrete law above it, the chords in gamma between many points
of its curve.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import erfcx, ndtr

from jaxacct._numerics.rounding import EPS, deflated, inflated
from jaxacct.losses.curves.pld import PLD
from jaxacct.losses.curves.profile import PrivacyProfile
from jaxacct.losses.grids.grid import LossGrid
from jaxacct.mechanisms import Gaussian, PoissonSampled, UserLevel
from jaxacct.mechanisms.base import Mechanism
from jaxacct.mechanisms.directions import directions
from jaxacct.mechanisms.pairs.base import is_one_run

_REACH = 9.0  # standard deviations at which a Gaussian's atoms and kernel end
_FINEST = 1 / 16  # distance of a Gaussian's atoms in standard deviations: variance grows by a sixth of its square
_HAIR = 2.0**-45
_FINER = 8  # of the lattice on which other mechanisms are made discrete
_RARE = 1e-25  # probability of so many records of a user in one sample that they count as an infinite loss
_FARTHEST = 600.0  # loss from which one run's counts as infinite
_ROUNDED = 2.0**-40  # relative, of the difference of two probabilities of one cell of outputs
ACCURACY = 2.0**-46  # an eighth of the relative error of `gaussian_excess` times its parameter, at most


class Ratios(NamedTuple):
    """A discrete law above a query's, as likelihood ratios P / Q and their probabilities under Q."""

    losses: np.ndarray  # logarithms of the ratios, increasing, shape ``(atoms,)``: those near 0 and 1 keep their digits
    masses: np.ndarray  # at least 0, likewise
    infinite: float  # probability under P where Q has none


class Kernel(NamedTuple):
    """D^_L at lattice offsets, rounded up."""

    values: np.ndarray  # shape ``(2 n - 1,)``, offsets ``-(n - 1) .. n - 1``
    single: np.ndarray  # E^ of the query with G, likewise: what the ends of the lattice are bounded by
    lost: float  # bound on what ``values`` leave out, for each unit of P-mass and over exp(-l / 2)


def gaussian_excess(mu: float, losses: np.ndarray) -> np.ndarray:
    """E^ of the Gaussian mechanism of sensitivity over noise ``mu``; even in the loss.

    Good to a relative 8 `ACCURACY` / min(mu, 1): docs/proofs/gdp-curve.md, lemma 3.
    """
    z = np.abs(losses) / mu
    near, far = (z - 0.5 * mu) * 0.5**0.5, (z + 0.5 * mu) * 0.5**0.5
    return 0.5 * np.exp(-0.5 * z * z - mu * mu / 8) * (erfcx(near) - erfcx(far))


def gaussian_atoms(mu: float) -> Ratios:
    """A discrete law above that of the Gaussian mechanism, for `remove`, at ratios exp(i mu / 16)."""
    step = mu * _FINEST
    reach = math.ceil((_REACH * mu + 0.5 * mu * mu) / step)
    losses = step * np.arange(-reach, reach + 1)
    excess = inflated(gaussian_excess(mu, losses), 8 * ACCURACY / min(mu, 1.0))
    fade = math.exp(-0.5 * step)
    wide = np.concatenate([[excess[0] * fade], excess, [excess[-1] * fade]])
    kinks = (wide[2:] - 2.0 * math.cosh(0.5 * step) * excess + wide[:-2]) / (2.0 * math.sinh(0.5 * step))
    kinks[reach] += 1.0
    masses = np.maximum(kinks, 0.0) * np.exp(-0.5 * losses)
    at_nothing = excess[0] * math.exp(-0.5 * losses[0])
    infinite = float(excess[-1] * math.exp(0.5 * losses[-1]))
    return Ratios(np.append(-np.inf, losses), np.append(at_nothing, masses), infinite)


def sampled(atoms: Ratios, rate: float) -> Ratios:
    """The atoms of the Poisson-sampled query, for `remove`: a ratio t becomes 1 + rate (t - 1)."""
    losses = _log_of(rate * np.expm1(atoms.losses), (1.0 - rate) + rate * np.exp(atoms.losses))
    return Ratios(losses, atoms.masses, inflated(rate * atoms.infinite, 2.0**-50))


def _log_of(gains: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """Logarithms of ratios that are given less 1 as well, of the one that has its digits."""
    with np.errstate(divide="ignore"):
        return np.where(gains > -0.5, np.log1p(np.maximum(gains, -0.5)), np.log(ratios))


def atoms_of(query: Mechanism, grid: LossGrid) -> Ratios:
    """A discrete law above any mechanism with an analysis for `remove`: of a Gaussian from closed forms, else its PLD.

    The lattice of that is finer than ``grid``, and reaches as far as offsets of its points do. What Q has at losses
    below its atoms lies at the ratio 0: no more than the curve's steepest chord from the origin up to the first atom
    (docs/theorems/prices.md).
    """
    inner = query.mechanism if isinstance(query, PoissonSampled) else query
    if isinstance(inner, Gaussian):
        atoms = gaussian_atoms(inflated(float(inner.sensitivity) / float(inner.sigma), _HAIR))  # pyright: ignore[reportArgumentType]
        if isinstance(query, PoissonSampled):
            atoms = sampled(atoms, min(inflated(float(query.rate), _HAIR), 1.0))  # pyright: ignore[reportArgumentType]
        return atoms
    if isinstance(query, UserLevel):
        return _atoms_of_user(query)
    fine = LossGrid(grid.spacing / _FINER, -grid.size * _FINER, 2 * grid.size * _FINER + 1)
    (runs,) = directions(query, "remove")
    curve = PrivacyProfile.from_mechanism(query, "upper", relation="remove", grid=fine) if is_one_run(runs) else None
    # The law of one run is that of its curve.
    law = PLD.from_mechanism(query, "upper", relation="remove", grid=fine) if curve is None else curve.to_pld()
    masses, losses = np.asarray(law.masses), law.grid.losses
    some = masses > 0
    theirs = inflated(masses[some] * np.exp(-losses[some]), 2.0**-50 * (4.0 + np.abs(losses[some])))
    least = losses[some].min(initial=np.inf)
    if curve is not None:
        rise = np.asarray(curve.excess)
        at_nothing = float((rise * np.exp(-fine.losses))[fine.losses <= max(least, fine.losses[0])].max())
    else:  # what the law lacks under Q, and what it was lifted by under P
        lifted = max(math.fsum(masses) + float(law.infinity_mass) - 1.0, 0.0) + 2.0**-48
        at_nothing = max(1.0 - deflated(math.fsum(theirs), 2.0**-46), 0.0) + lifted * math.exp(-least)
    at_nothing = inflated(at_nothing, 2.0**-46)
    return Ratios(np.append(-np.inf, losses[some]), np.append(at_nothing, theirs), float(law.infinity_mass))


def _atoms_of_user(query: UserLevel) -> Ratios:
    noise: Any = query.mechanism._gaussian_noise()
    sigma, rate = deflated(float(noise), _HAIR), min(inflated(float(query.rate), _HAIR), 1.0)  # pyright: ignore[reportArgumentType]
    _, *drawn = UserLevel(Gaussian(sigma), rate, query.records)._mixture(True)._parts()
    numbers, weights = (np.asarray(one.values, np.float64) for one in drawn)
    rare = np.cumsum(weights[::-1])[::-1] < _RARE
    some = ~rare & (numbers > 0)
    moves, weights, infinite = numbers[some] / sigma, weights[some], float(weights[rare].sum())
    reach = math.ceil(_REACH / _FINEST), math.ceil((_REACH + moves[-1]) / _FINEST)
    z = np.append(-np.inf, _FINEST * np.arange(-reach[0], reach[1] + 1))
    losses = moves * z[:, None] - 0.5 * moves**2
    z, losses = (x[losses.max(-1) < _FARTHEST] for x in (z, losses))
    # The outputs of a cell count as its two ends, so that both probabilities stay what they are.
    masses, theirs = _differences(z), _differences(z[:, None] - moves)
    ratios = np.exp(losses)
    start, rise = ratios[:-1] * masses[:, None], np.diff(ratios @ weights)
    upper = ((theirs - start + _ROUNDED * (theirs + start)) @ weights) / rise
    found = np.append(0.0, upper) + np.append(np.maximum(masses - upper, 0.0), 0.0)
    infinite += float(ndtr(moves - z[-1]) @ weights) + (1.0 - float(weights.sum())) * float(ndtr(-z[-1]))
    losses = _log_of(np.expm1(losses) @ weights, ratios @ weights + max(1.0 - float(weights.sum()), 0.0))
    return Ratios(losses, inflated(found, 2.0**-44), inflated(infinite, 2.0**-44))


def _differences(z: np.ndarray) -> np.ndarray:
    """Normal probabilities between neighbours along the first axis, from the smaller tails."""
    return np.where(z[1:] > 0, -np.diff(ndtr(-z), axis=0), np.diff(ndtr(z), axis=0))


def excess_of(atoms: Ratios, spacing: float, size: int) -> np.ndarray:
    """E^ of a discrete law at lattice offsets ``-(size - 1) .. size - 1``: chords in gamma between its atoms.

    The sum of masses (ratio - gamma)_+ above gamma = 1, of masses (gamma - ratio)_+ below: from atom to atom by the
    mass beyond and the distance of ratios, so that only positive terms are added and small values keep their digits.
    """
    losses, masses = atoms.losses, atoms.masses
    offsets = spacing * np.arange(-(size - 1), size)
    at = np.searchsorted(losses, offsets, side="right")  # atoms below
    apart = _distance(losses[:-1], losses[1:])
    theirs, more = np.cumsum(masses), np.cumsum(masses[::-1])[::-1]
    low = np.append(0.0, np.cumsum(theirs[:-1] * apart))
    high = np.append(np.cumsum((more[1:] * apart)[::-1])[::-1], 0.0)
    last, first = np.maximum(at - 1, 0), np.minimum(at, losses.size - 1)
    below = np.where(at > 0, low[last] + theirs[last] * _distance(losses[last], offsets), 0.0)
    above = np.where(at < losses.size, high[first] + more[first] * _distance(offsets, losses[first]), 0.0)
    return np.where(offsets >= 0, above + atoms.infinite, below) * np.exp(-0.5 * offsets)


def _distance(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """exp(high) - exp(low) where high >= low, else 0."""
    return np.exp(high) * -np.expm1(np.minimum(low, high) - np.maximum(high, -1e300))


def kernel_of(atoms: Ratios, width: float, spacing: float, size: int) -> Kernel:
    """The kernel of a discrete law next to a Gaussian of sensitivity over noise ``width``, on ``size`` points."""
    offsets = spacing * np.arange(-(size - 1), size)
    own = excess_of(atoms, spacing, size)
    some = atoms.losses > -np.inf
    losses = atoms.losses[some]
    weights = atoms.masses[some] * np.exp(0.5 * losses)
    # E of G moved to each atom, where it is not negligible.
    half = math.ceil(_REACH * width / spacing) + 1
    first = np.floor(losses / spacing).astype(np.int64) - half
    index = first[:, None] + np.arange(2 * half + 2)
    inside = (index > -size) & (index < size)
    moved = weights[:, None] * gaussian_excess(width, index * spacing - losses[:, None])
    spread = np.bincount((index + size - 1)[inside], moved[inside], 2 * size - 1)
    alone = gaussian_excess(width, offsets)
    # What both sums were rounded by: each of them is a sum of non-negative terms, their difference is not.
    wrong = (64 * ACCURACY / min(width, 1.0)) * (spread + alone) + (8.0 * EPS * (atoms.losses.size + 16.0)) * own
    values = np.maximum(own + spread - alone, 0.0) + wrong
    lost = atoms.infinite + float(weights.sum()) * math.exp(-0.5 * _REACH**2)
    return Kernel(values, own + spread + wrong, lost)
