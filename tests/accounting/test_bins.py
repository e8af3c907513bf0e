"""Records that are assigned to batches at random: bounds by Monte Carlo against quadrature, theorems against random reactions, refusals."""
import itertools
import math
from concurrent.futures import ThreadPoolExecutor

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mfdl import LDP, PNDP, Lipschitz, Participation, SecLDP, account
from mfdl.accounting.gaussian_dp import ADJACENCY, GaussianDP
from mfdl.accounting.methods import importance_sampling as rare
from mfdl.accounting.methods.importance_sampling import Mixtures, SampledCurve, Sampling
from mfdl.accounting.methods.poisson import amplified
from mfdl.accounting.methods.random_batches import BinsReport, amplified_if_assigned
from mfdl.noise.methods.spectral import optimize_space_time
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.random_participation import BinsParticipation
from mfdl.protocol.methods.steps import Round, Step, fresh_noise
from mfdl.protocol.methods.variants import anti_pgd
from mfdl.protocol.participation import check_participation
from mfdl.protocol.protocols import Protocol

W = gossip_matrix(nx.cycle_graph(3))
LAZY = (np.eye(3) + W) / 2
SHARED = optimize_space_time(LAZY, Participation.cyclic(2, 2), method="directions").protocol(LAZY)
ONE, NEW = Participation.balls_in_bins, Participation.balls_in_new_bins


def mixture(C, sets, sign, sigma, axis):
    """Density of C g + Z on a grid in as many dimensions as C has rows, where g is `sign` in the steps of a random set."""
    total = 0.0
    for chosen in sets:
        mean = sign * C[:, list(chosen)].sum(axis=1)
        rows = [stats.norm.pdf(axis, m, sigma) for m in mean]
        density = rows[0]
        for row in rows[1:]: density = np.multiply.outer(density, row)
        total = total + density / len(sets)
    return total


def truth(C, sets, sigma, adjacency, epsilon, points):
    """delta of the worst gradients, the larger of both directions, by a sum over a grid; sigma in row sensitivities."""
    size = 1 / ADJACENCY[adjacency]
    reach = 7 * sigma + C.sum(axis=1).max()
    axis = np.linspace(-reach, reach, points)
    P = mixture(C, sets, size, sigma, axis)
    Q = mixture(C, sets, -size if adjacency == "replace-one" else 0.0, sigma, axis)
    cell = (axis[1] - axis[0]) ** len(C)
    return cell * max(np.maximum(P - math.exp(epsilon) * Q, 0).sum(), np.maximum(Q - math.exp(epsilon) * P, 0).sum())


MEMORY = np.array([[1, 0, 0], [0.6, 0.9, 0], [0.3, 0.5, 1.2]])
TINY = {  # name -> strategy, scheme, sets of steps
    "two steps": (np.eye(2), ONE(1, 2), [(0,), (1,)]),
    "two steps with a memory": (MEMORY[:2, :2], ONE(1, 2), [(0,), (1,)]),
    "three steps": (np.diag([0.5, 1.0, 1.5]), ONE(1, 3), [(0,), (1,), (2,)]),
    "three steps with a memory": (MEMORY, ONE(1, 3), [(0,), (1,), (2,)]),
}


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("adjacency", ADJACENCY)
def test_a_hundred_seeds_never_undercut_the_truth(name, adjacency):
    """Not even with few samples, as failures have a probability of 1e-10; with many, zero-out bounds are tight."""
    C, scheme, sets = TINY[name]
    report = amplified_if_assigned(mf_dsgd(W, scheme.T, C), LDP(), scheme, 0.9).in_units(1.0, 1, adjacency)
    known = truth(C, sets, 0.9, adjacency, 0.6, 901 if scheme.T == 2 else 161)
    tried = [report.with_samples(2**10, seed=seed).delta(0.6).max() for seed in range(100)]
    assert known < min(tried), "more is promised than is true"
    tight = report.with_samples(2**17).delta(0.6).max()
    assert known < tight < known * (1.05 if adjacency == "zero-out" else 1.6)


def test_two_epochs():
    """Four steps of two epochs: one assignment for both, and one for each."""
    for scheme, sets in ((ONE(2, 2), [(0, 2), (1, 3)]), (NEW(2, 2), list(itertools.product((0, 1), (2, 3))))):
        report = amplified_if_assigned(dp_dsgd(W, 4), LDP(), scheme, 1.0).in_units(1.0, 1, "zero-out")
        known = truth(np.eye(4), sets, 1.0, "zero-out", 0.5, 49)
        assert known * (1 - 1e-3) < report.with_samples(2**17).delta(0.5).max() < 1.03 * known
    C = np.eye(4) + 0.7 * np.eye(4, k=-1)
    known = truth(C, [(0, 2), (1, 3)], 1.2, "zero-out", 0.5, 49)
    found = amplified_if_assigned(mf_dsgd(W, 4, C), LDP(), ONE(2, 2), 1.2).in_units(1.0, 1, "zero-out").with_samples(2**17).delta(0.5).max()
    assert known * (1 - 1e-3) < found < 1.03 * known


@settings(max_examples=15, deadline=None)
@given(st.floats(0, 1.5), st.floats(0.2, 1.5), st.floats(0, 1.5), st.floats(-1, 1), st.floats(-1, 1), st.floats(-1, 1),
       st.floats(-2, 2), st.sampled_from(["zero-out", "replace-one"]))
def test_no_reaction_is_worse_than_constant_gradients(below, last, epsilon, g, above, under, threshold, adjacency):
    """Theorem 1 for two steps: a gradient of any size and sign, then another that depends on what was seen; and its mirror image."""
    axis = np.linspace(-8, 9.5, 301)
    first, second = np.meshgrid(axis, axis, indexing="ij")
    later = np.where(first > threshold, above, under)

    def both(early, late):
        one = stats.norm.pdf(first, early) * stats.norm.pdf(second, below * early)
        return (one + stats.norm.pdf(first) * stats.norm.pdf(second, last * late)) / 2

    def told(P, Q): return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((P, Q), (Q, P))) * (axis[1] - axis[0]) ** 2
    other = (lambda sign: both(-1.0, -1.0)) if adjacency == "replace-one" else lambda sign: both(0.0, 0.0)
    reacting = both(-0.5 * g, -np.roll(later, 30, axis=0)) if adjacency == "replace-one" else both(0.0, 0.0)
    assert told(both(g, later), reacting) <= told(both(1.0, 1.0), other(-1)) + 1e-6


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.floats(-2, 2), min_size=2, max_size=2), min_size=1, max_size=4), st.floats(0, 2))
def test_the_mixture_first_is_the_worse_direction(means, epsilon):
    """For mixtures of any bell curves in the plane; a sum over a grid errs where an excess begins, by a share of the squared mesh."""
    axis = np.linspace(-9, 9, 721)
    seen = np.stack(np.meshgrid(axis, axis), axis=-1)
    def bell(m): return np.exp(-((seen - m) ** 2).sum(-1) / 2) / (2 * np.pi)
    P, Q = sum(bell(np.array(m)) for m in means) / len(means), bell(np.zeros(2))
    cell = (axis[1] - axis[0]) ** 2
    assert np.maximum(P - math.exp(epsilon) * Q, 0).sum() * cell >= np.maximum(Q - math.exp(epsilon) * P, 0).sum() * cell - cell * (1 + math.exp(epsilon)) / 16


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.booleans(), st.floats(0.3, 20), st.floats(1e-7, 0.1), st.sampled_from(list(ADJACENCY)))
def test_random_batches_never_promise_more_than_they_may(k, b, anew, sigma, delta, adjacency):
    """Known steps bound them from above, batches that are known in advance too; delta, epsilon and beta are of one curve."""
    scheme = BinsParticipation(k, b, anew)
    report = amplified_if_assigned(dp_dsgd(W, k * b), LDP(), scheme, sigma).in_units(1.0, 1, adjacency).with_samples(2**12, failure=1e-9)
    sure = GaussianDP(math.sqrt(k) / sigma)
    value = report.epsilon(delta).max()
    assert 0 <= value <= sure.epsilon(delta) * (1 + 1e-9)
    assert report.delta(value).max() <= delta * (1 + 1e-6)
    assert report.delta(0.3).max() <= sure.delta(0.3) + 1e-15
    for alpha in (0.0, 0.1, 0.7, 1.0):
        assert sure.beta(alpha) * (1 - 1e-9) <= report.beta(alpha).min() <= 1 - alpha + 1e-12


def test_one_batch_is_the_gaussian_account():
    for scheme in (ONE(4, 1), NEW(4, 1)):
        sure = account(dp_dsgd(W, 4), LDP(), scheme, 1.3)
        known = account(dp_dsgd(W, 4), LDP(), Participation.every_step(4), 1.3)
        np.testing.assert_allclose(sure.epsilon(1e-12), known.epsilon(1e-12), rtol=1e-9)
        np.testing.assert_allclose(sure.calibrate(1.0, 1e-6).sigma, known.calibrate(1.0, 1e-6).sigma, rtol=1e-9)


def test_a_seed_says_what_is_drawn(monkeypatch):
    """Threads change nothing; another seed changes the number a little."""
    monkeypatch.setattr(rare, "_BATCH", 2**12)  # so that there is more than one to share
    monkeypatch.setattr(rare, "worker_threads", lambda: ThreadPoolExecutor(1))
    report = amplified_if_assigned(dp_dsgd(W, 12), LDP(), NEW(3, 4), 1.0).in_units(1.0, 1, "zero-out").with_samples(2**14)
    once = report.epsilon(1e-5).max()
    rare._tally.cache_clear()
    monkeypatch.setattr(rare, "worker_threads", lambda: ThreadPoolExecutor(4))
    assert report.epsilon(1e-5).max() == once
    other = report.with_samples(2**14, seed=1).epsilon(1e-5).max()
    assert other != once and other == pytest.approx(once, rel=0.05)


def test_sums_are_kept(tmp_path, monkeypatch):
    """An account that breaks off goes on from the parts that it had."""
    monkeypatch.setattr(rare, "_BATCH", 2**10)
    monkeypatch.setattr(rare, "_BATCHES", 2)
    rare._tally.cache_clear()
    report = amplified_if_assigned(dp_dsgd(W, 8), LDP(), ONE(2, 4), 1.0).in_units(1.0, 1, "zero-out").with_samples(2**12, keep=tmp_path)
    drawn, real = [], rare._added_up

    def breaks_off(*arguments):
        drawn.append(arguments)
        if len(drawn) > 5: raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(rare, "_added_up", breaks_off)
    with pytest.raises(KeyboardInterrupt): report.delta(0.5)
    kept = len(list(tmp_path.iterdir()))
    assert kept >= 1
    monkeypatch.setattr(rare, "_added_up", lambda *arguments: drawn.append(arguments) or real(*arguments))
    drawn.clear()
    value = report.delta(0.5).max()
    resumed = len(drawn)
    rare._tally.cache_clear()
    drawn.clear()
    report = report.with_samples(2**12)
    assert report.delta(0.5).max() == value and resumed == len(drawn) - 2 * kept
    rare._tally.cache_clear()


def test_calibration_is_judged_by_samples_of_its_own():
    report = amplified_if_assigned(dp_dsgd(W, 20), LDP(), NEW(4, 5)).in_units(1.0, 1, "zero-out").with_samples(2**14)
    enough = report.calibrate(1.0, 1e-5)
    assert enough.epsilon(1e-5).max() <= 1.0 and enough.looks > 1
    less = amplified_if_assigned(dp_dsgd(W, 20), LDP(), NEW(4, 5), enough.sigma * 0.97).in_units(1.0, 1, "zero-out").with_samples(2**16)
    assert less.epsilon(1e-5).max() > 1.0


def test_failure_is_inside_delta():
    """A larger probability of misleading samples is a larger delta, by itself at least."""
    report = amplified_if_assigned(dp_dsgd(W, 8), LDP(), ONE(2, 4), 1.0).in_units(1.0, 1, "zero-out")
    curve = SampledCurve(report.cases[0], 1.0, report.with_samples(2**12, failure=1e-3).sampling, 2)._bounds
    loose = report.with_samples(2**12, failure=1e-3).delta(float(curve.epsilons[3])).max()
    assert loose == pytest.approx(curve.bound(3).value + 1e-3, rel=1e-9)
    with pytest.raises(ValueError, match="probability 0.001 that samples mislead"): report.with_samples(2**12, failure=1e-3).epsilon(1e-3)


def test_rounds_that_tell_nothing():
    """Without rounds nothing is told; a round more never tells less."""
    none, some = SampledCurve(Mixtures((), ()), 1.0), SampledCurve(Mixtures((np.eye(3),), (1,)), 1.0, Sampling(2**14))
    more = SampledCurve(Mixtures((np.eye(3), 0.5 * np.eye(2)), (1, 2)), 1.0, Sampling(2**14))
    assert (none.epsilon(1e-5), none.delta(0.3), none.beta(0.2)) == (0, 0, 0.8)
    assert 0 < some.epsilon(1e-5) < more.epsilon(1e-5) and some.delta(0.3) < more.delta(0.3) and some.beta(0.2) > more.beta(0.2)


def test_nodes_that_are_away():
    """Fewer steps tell less; none tell nothing."""
    away = dp_dsgd(gossip_matrix(nx.cycle_graph(5)), 4, offline=[[0, 1], [0], [0], [0]])
    for scheme in (ONE(2, 2), NEW(2, 2)):
        report = amplified_if_assigned(away, LDP(), scheme, 1.0).in_units(1.0, 1, "zero-out").with_samples(2**14)
        values = report.epsilon(1e-5)
        assert values[0] == 0 and 0 < values[1] < values[2] and report.delta(0.0)[0] == 0 and report.beta(0.2)[0] == 0.8


def test_extremes():
    """Hardly any noise, a great deal of noise, many batches."""
    for sigma in (1e-3, 0.05, 1e3, 1e8):
        value = amplified_if_assigned(dp_dsgd(W, 6), LDP(), ONE(2, 3), sigma).with_samples(2**10).epsilon(1e-6).max()
        assert 0 <= value <= GaussianDP(math.sqrt(2) / sigma).epsilon(1e-6) * (1 + 1e-9)
    many = amplified_if_assigned(dp_dsgd(W, 600), LDP(), ONE(2, 300), 1.0).in_units(1.0, 1, "zero-out").with_samples(2**14)
    assert many.epsilon(1e-5).max() < 0.7 * GaussianDP(math.sqrt(2)).epsilon(1e-5)


def test_what_is_not_proved_is_refused():
    scheme, memory = ONE(2, 2), np.eye(4) + 0.3 * np.eye(4, k=-1)
    refused = {
        "insiders": ("nothing is proved", lambda: account(dp_dsgd(W, 4), PNDP([0]), scheme)),
        "coalitions": ("nothing is proved", lambda: account(dp_dsgd(W, 4), SecLDP([0]), scheme)),
        "several": ("nothing is proved", lambda: account(dp_dsgd(W, 4), [LDP(), LDP()], scheme)),
        "bare gradients": ("covers all gradients", lambda: account(decor(W, 4, 0.0, 1.0), LDP(), scheme)),
        "shared memory": ("but not both", lambda: account(SHARED, LDP(), scheme)),
        "negative": ("nothing is proved about negative", lambda: account(mf_dsgd(W, 4, np.eye(4) - 0.3 * np.eye(4, k=-1)), LDP(), scheme)),
        "assigned anew": ("b\\^k choices", lambda: account(mf_dsgd(W, 4, memory), LDP(), NEW(2, 2))),
        "steps": ("covers 6 steps", lambda: account(dp_dsgd(W, 4), LDP(), ONE(2, 3))),
        "sigma": ("sigma=0", lambda: account(dp_dsgd(W, 4), LDP(), scheme, 0.0)),
        "Poisson": ("records assigned to batches", lambda: amplified_if_assigned(dp_dsgd(W, 4), LDP(), Participation.poisson(0.5, 4))),
        "promises": ("at random", lambda: account(dp_dsgd(W, 4), LDP(), scheme, updates=Lipschitz(1))),
        "elsewhere": ("drawn at random", lambda: amplified(dp_dsgd(W, 4), LDP(), scheme)),
        "known steps": ("at random", lambda: check_participation(scheme)),
        "bins": ("b=0", lambda: ONE(2, 0)),
        "epochs": ("k=1.5", lambda: NEW(1.5, 2)),
        "flag": ("anew", lambda: BinsParticipation(2, 2, 1)),
    }
    for name, (words, ask) in refused.items():
        with pytest.raises(ValueError, match=words): pytest.fail(f"{name}: accepted {ask()!r:.80}")
    assert isinstance(account(anti_pgd(W, 4), LDP(), scheme), BinsReport)


def test_bad_arguments_of_samples(tmp_path):
    report = account(dp_dsgd(W, 4), LDP(), ONE(2, 2))
    for words, bad in (("samples", {"samples": 1}), ("samples", {"samples": 10.5}), ("seed", {"seed": -1}), ("failure", {"failure": 0}),
                       ("failure", {"failure": 1}), ("keep", {"keep": tmp_path / "missing"})):
        with pytest.raises(ValueError, match=words): report.with_samples(**bad)
    for ask in (lambda: report.epsilon(0), lambda: report.epsilon(1e-11), lambda: report.delta(-1), lambda: report.beta(2), lambda: report.calibrate(-1, 1e-6)):
        with pytest.raises(ValueError): ask()
    with pytest.raises(ValueError, match=r"samples=50: too few .* expected about [0-9e+]+ or more"): report.with_samples(50).epsilon(1e-6)
    with pytest.warns(UserWarning, match="mu is empty"): assert len(report.mu) == 0


def test_nodes_are_told_apart_in_any_unit():
    """Coefficients of noise that are a million times as large, and a sigma that is as small, are the same run."""
    def epsilons(scale):
        W, noise = gossip_matrix(nx.path_graph(2)), fresh_noise(scale * np.diag([14, 1.5]))
        run = Protocol(None, [Step(True, noise, [Round(W)])] * 4)
        return account(run, LDP(), Participation.balls_in_bins(1, 4), sigma=1 / scale).in_units(1, 1, "zero-out").with_samples(2**12).epsilon(1e-5)
    plain = epsilons(1.0)
    assert plain.max() > 10 * plain.min()
    for scale in (1e-6, 1e6): assert epsilons(scale).to_numpy() == pytest.approx(plain.to_numpy(), rel=1e-9)
