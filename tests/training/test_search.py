"""A search among hyperparameters runs the trials that were drawn, whatever kills it, and pays once."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxacct
from jaxacct import Gaussian, PrivateSelection, filters, training

RATES, LIKE = (0.1, 0.2, 0.4, 0.8), {"w": jnp.zeros(2)}
RUN = filters.gdp(0.5).guarantee


def search(folder, train, candidates=RATES, mean=4.0, run=RUN):
    return training.best_of(run, mean, 1.0, train=train, candidates=candidates, like=LIKE, folder=folder)


class Trials:
    """A training function that can be killed, and what it has seen."""

    def __init__(self, kill=()):
        self.kill, self.ran, self.keys = set(kill), [], set()

    def __call__(self, rate, keys):
        self.keys.add(str(keys.noise))
        if len(self.ran) in self.kill:
            self.kill.remove(len(self.ran))
            raise KeyboardInterrupt
        score = np.random.default_rng(len(self.ran)).normal()
        self.ran.append((score, rate))
        return score, {"w": jnp.full(2, score)}


def test_a_killed_search_runs_every_drawn_trial_once_and_returns_the_best(tmp_path):
    trials, killed = Trials(range(0, 200, 2)), 0
    while True:
        try:
            best = search(tmp_path / "one", trials, mean=12.0)
            break
        except KeyboardInterrupt:
            killed += 1
    assert killed == (len(trials.ran) + 1) // 2
    assert len(trials.keys) == killed + len(trials.ran)  # no keys twice
    assert (best.score, best.candidate) == max(trials.ran)
    np.testing.assert_array_equal(best.output["w"], np.full(2, np.float32(best.score)))
    again = search(tmp_path / "one", lambda *_: pytest.fail("a search that has ended runs nothing"), mean=12.0)
    assert (again.score, again.candidate) == (best.score, best.candidate)
    files = [path for path in (tmp_path / "one").iterdir() if path.is_file()]
    assert len(files) == 2  # losers are gone
    assert all(path.stat().st_mode & 0o077 == 0 for path in (*files, tmp_path / "one"))


def test_a_winner_that_is_damaged_or_gone_is_missed_in_words(tmp_path):
    search(tmp_path / "one", Trials())
    (kept,) = (tmp_path / "one").glob("*.npz")
    whole = kept.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole.replace(b"NUMPY", b"NVMPY"), b"", None):
        kept.unlink()
        if damaged is not None:
            kept.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"{kept.name} cannot be read"):
            search(tmp_path / "one", Trials())
        kept.write_bytes(whole)
    search(tmp_path / "one", Trials())


def test_the_number_of_trials_follows_the_law_and_every_candidate_is_drawn(tmp_path):
    trials = [Trials() for _ in range(100)]
    for number, one in enumerate(trials):
        search(tmp_path / str(number), one, mean=3.0)
    counts = np.array([len(one.ran) for one in trials])
    assert counts.min() == 1
    assert abs(counts.mean() - 3.0) < 6 * (6.0 / 100) ** 0.5  # a geometric number of mean 3 has variance 6
    shares = np.bincount([RATES.index(rate) for one in trials for _, rate in one.ran], minlength=4) / counts.sum()
    assert np.abs(shares - 0.25).max() < 6 * (0.19 / counts.sum()) ** 0.5


def test_the_guarantee_is_that_of_the_selection_and_a_score_that_is_none_loses(tmp_path):
    best = search(tmp_path / "one", lambda rate, keys: (np.nan, LIKE))
    assert best.score == -np.inf
    wanted = jaxacct.epsilon(PrivateSelection(RUN, 4.0, 1.0), 1e-5)
    assert float(jaxacct.epsilon(best.guarantee, 1e-5).upper) == float(wanted.upper)


def test_a_winner_comes_back_in_the_types_that_were_asked_for(tmp_path):
    best = search(tmp_path / "one", lambda rate, keys: (rate, {"w": np.array([0.1, 3.0])}))  # in float64
    assert best.output["w"].dtype == np.float32
    np.testing.assert_array_equal(best.output["w"], np.float32([0.1, 3.0]))


@pytest.mark.parametrize("other", [{"candidates": (0.1,)}, {"mean": 5.0}, {"run": Gaussian(2.0)}])
def test_a_folder_holds_one_search(tmp_path, other):
    search(tmp_path, Trials())
    with pytest.raises(ValueError, match="holds another search"):
        search(tmp_path, Trials(), **other)
    with pytest.raises(ValueError, match="mean and shape must be one number each"):
        search(tmp_path, Trials(), mean=np.array([2.0, 3.0]))
