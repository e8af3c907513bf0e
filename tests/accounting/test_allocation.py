"""One place among many without samples: bounds against quadrature, long simulations, known limits, and random Gram matrices."""
import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mfdl import LDP, Participation, account
from mfdl.accounting.gaussian_dp import GaussianDP
from mfdl.accounting.methods import random_allocation as allocation
from mfdl.accounting.methods.importance_sampling import Mixtures, SampledCurve, Sampling
from mfdl.accounting.methods.random_allocation import AllocatedCurve, as_allocation
from mfdl.protocol.algorithms import dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix

W = gossip_matrix(nx.cycle_graph(3))
ONE, NEW = Participation.balls_in_bins, Participation.balls_in_new_bins


@pytest.fixture(autouse=True)
def coarse(request, monkeypatch):
    """Less work, as every grid gives bounds that hold, but where the bounds have to be tight."""
    if "nightly" in request.keywords: return
    monkeypatch.setattr(allocation, "_SECONDS", 1.0)
    monkeypatch.setattr(allocation, "_SECONDS_BELOW", 0.3)


def curve(b, k, sigma, replaced=False): return AllocatedCurve(as_allocation(Mixtures((np.eye(b),), (k,))), sigma, replaced)


def excess(b, sigma, replaced, epsilon, points):
    """delta of one round of b = 2 or 3 places, the larger of both directions, by a sum over a grid."""
    axis = np.linspace(-8.5 * sigma - 1, 8.5 * sigma + 1, points)
    def seen(mean):
        rows = [[stats.norm.pdf(axis, mean * (i == j), sigma) for i in range(b)] for j in range(b)]
        grids = []
        for row in rows:
            one = row[0]
            for other in row[1:]: one = np.multiply.outer(one, other)
            grids.append(one)
        return sum(grids) / b
    P, Q, cell = seen(1.0), seen(-1.0 if replaced else 0.0), (axis[1] - axis[0]) ** b
    return cell * max(np.maximum(P - math.exp(epsilon) * Q, 0).sum(), np.maximum(Q - math.exp(epsilon) * P, 0).sum())


@settings(max_examples=5, deadline=None)
@given(st.floats(0.5, 3), st.floats(0.05, 2), st.booleans())
def test_one_of_two_places_is_enclosed_by_quadrature(sigma, epsilon, replaced):
    truth, told = excess(2, sigma, replaced, epsilon, 801), curve(2, 1, sigma, replaced)
    assert told.delta(epsilon) >= truth * (1 - 1e-4) - 1e-12, "more is promised than is true"
    if truth > 1e-7:
        least = told.lower(truth)
        assert math.isnan(least) if replaced else least <= epsilon * (1 + 1e-3) + 1e-4
        assert epsilon * (1 - 1e-3) - 1e-4 <= told.epsilon(truth)
    if not replaced: assert told.delta(epsilon) <= truth * 1.1 + 1e-9, "less is promised than could be"


def test_one_of_three_places():
    for sigma, epsilon in ((1.0, 0.8), (2.0, 0.2)):
        truth, told = excess(3, sigma, False, epsilon, 121), curve(3, 1, sigma)
        assert truth * (1 - 4e-3) <= told.delta(epsilon) <= truth * 1.1


@pytest.mark.parametrize("b, k, sigma, epsilon", [
    (2, 2, 0.8, 1.0), (2, 2, 2.0, 0.3), pytest.param(10, 8, 2.0, 0.5, marks=pytest.mark.nightly), pytest.param(50, 3, 1.0, 0.5, marks=pytest.mark.nightly)])
def test_long_simulations_stand_between_both_bounds(b, k, sigma, epsilon):
    """Millions of plays of all rounds under P, of the loss that is written down here: within five standard errors."""
    rng, means, plays = np.random.default_rng(b), [], 10**6 // b
    for _ in range(4):
        loss = np.zeros(plays)
        for _ in range(k):
            seen = rng.normal(0, sigma, (plays, b))
            seen[:, 0] += 1  # the place does not matter
            loss += np.log(np.exp((seen - 0.5) / sigma**2).mean(axis=1))
        means.append(np.maximum(0, -np.expm1(epsilon - loss)))
    over = np.concatenate(means)
    mean, error = over.mean(), over.std() / math.sqrt(len(over))
    told = curve(b, k, sigma)
    assert mean - 5 * error <= told.delta(epsilon) <= (mean + 5 * error) * 1.1
    assert told.lower(mean + 5 * error) <= epsilon * (1 + 1e-6), "the lower bound is above the truth"
    assert told.epsilon(mean - 5 * error) >= epsilon * (1 - 1e-6)


def test_bounds_are_in_order_and_agree_with_samples():
    """Lower bound, samples at a loose failure, upper bound, known centers; the same for both ways to convolve."""
    for b, k, sigma, delta in ((16, 1, 0.447, 1e-6), (3, 2, 1.2, 1e-6)):
        told = curve(b, k, sigma)
        sampled = SampledCurve(Mixtures((np.eye(b),), (k,)), sigma, Sampling(2**15)).epsilon(delta)
        upper, lower = told.epsilon(delta), told.lower(delta)
        assert lower <= upper <= told.known.epsilon(delta) and lower <= sampled
        assert upper - lower < 0.1 * upper and upper < sampled * 1.02
        asked = told._asked(delta)
        if sigma < 1: continue
        ways = [allocation._losses(asked, way, step).get_epsilon_for_delta(delta) for way, step in (("GEOM", 0.1), ("FFT", 0.01))]
        assert lower <= min(ways) and max(ways) < 1.1 * min(ways)


def test_limits():
    """One batch is a Gaussian; many places hide nearly all; noise that is extreme is left to what is known."""
    for scheme in (ONE(4, 1), NEW(4, 1)):
        report = account(dp_dsgd(W, 4), LDP(), scheme, 1.3).in_units(1.0, 1, "zero-out")
        assert report.certain.all() and report.epsilon(1e-6).max() == pytest.approx(GaussianDP(2 / 1.3).epsilon(1e-6), rel=1e-9)
    values = [curve(b, 1, 2.0).epsilon(1e-4) for b in (2, 10, 50)]
    assert values == sorted(values)[::-1] and values[-1] < 0.2 * values[0]
    weak = curve(4, 2, 0.05)
    assert weak.applies and weak.epsilon(1e-6) == weak.known.epsilon(1e-6) and math.isnan(weak.lower(1e-6))
    assert not curve(4, 2, 1e4).applies and not curve(100, 10**6, 1.0).applies
    with pytest.raises(ValueError, match="delta=1e-11"): curve(2, 1, 1.0).epsilon(1e-11)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(0, 2**31), st.sampled_from([0.0, 1e-12, 1e-9, 1e-7, 1e-3]))
def test_lengths_are_rounded_to_their_safe_side(b, seed, off):
    """Whatever is accepted has eigenvalues between the two lengths; what is farther off is left to samples."""
    noise = np.random.default_rng(seed).normal(size=(b, b))
    gram = np.eye(b) + off * (noise + noise.T)
    found = as_allocation(Mixtures((gram, gram), (1, 2)))
    if found is None: assert off >= 1e-9
    else:
        eigenvalues = np.linalg.eigvalsh(gram)
        assert found.low <= eigenvalues[0] + 1e-15 and eigenvalues[-1] - 1e-15 <= found.high and found.rounds == 3 and off < 1e-3
        assert found.high <= found.low * (1 + 2e-6)


def test_reports_say_which_way_they_take():
    """Without samples for equal batches; by samples for noise with a memory, batches that differ, and where samples are asked for."""
    plain = account(dp_dsgd(W, 8), LDP(), NEW(2, 4), 1.5).in_units(1.0, 1, "zero-out")
    assert plain.certain.all() and "hold for certain" in repr(plain) and "mislead" not in repr(plain)
    table = plain.bounds(1e-5)
    assert list(table.columns) == ["epsilon", "lower", "slack", "certain"] and (table.lower < table.epsilon).all()
    np.testing.assert_allclose(table.slack, table.epsilon - table.lower)
    np.testing.assert_array_equal(table.epsilon, plain.epsilon(1e-5))
    asked = plain.with_samples(2**13)
    assert not asked.certain.any() and "mislead" in repr(asked) and asked.bounds(1e-5).slack.isna().all()
    assert asked.epsilon(1e-5).max() > plain.bounds(1e-5).lower.max()
    memory = np.eye(4) + 0.3 * np.eye(4, k=-1)
    for run in (mf_dsgd(W, 4, memory), mf_dsgd(W, 4, np.diag([1.0, 2.0, 1.0, 2.0]))):
        assert not account(run, LDP(), ONE(2, 2), 1.0).certain.any()
    both = account(dp_dsgd(W, 4), LDP(), ONE(2, 2), 1.0)
    apart = [both.in_units(1.0, 1, kind).epsilon(1e-5).max() for kind in ("zero-out", "replace-one")]
    assert both.epsilon(1e-5).max() == max(apart)


def test_without_the_library_samples_are_drawn(monkeypatch):
    monkeypatch.setattr(allocation, "find_spec", lambda name: None)
    assert not account(dp_dsgd(W, 4), LDP(), ONE(2, 2), 1.0).certain.any()


def test_assigned_once_is_one_round_of_longer_centers():
    """k epochs of one assignment have centers of length sqrt(k)."""
    once = account(dp_dsgd(W, 12), LDP(), ONE(3, 4), 2.0).in_units(1.0, 1, "zero-out")
    assert once.epsilon(1e-5).max() == pytest.approx(curve(4, 1, 2.0 / math.sqrt(3)).epsilon(1e-5), rel=1e-9)
    anew = account(dp_dsgd(W, 12), LDP(), NEW(3, 4), 2.0).in_units(1.0, 1, "zero-out")
    assert anew.epsilon(1e-5).max() < once.epsilon(1e-5).max()


@pytest.mark.nightly
def test_calibration_without_samples():
    report = account(dp_dsgd(W, 8), LDP(), NEW(2, 4)).in_units(1.0, 1, "zero-out")
    enough = report.calibrate(1.0, 1e-4)
    assert enough.certain.all() and 0.99 < enough.epsilon(1e-4).max() <= 1.0


def test_chaining_is_the_least_over_splits():
    epsilons = np.linspace(0, 3, 31)
    deltas = np.array([GaussianDP(0.7).delta(e) for e in epsilons])
    for j, i in itertools.product((0, 7, 30), range(31)):
        if i > j: continue
        assert allocation._chained(epsilons, deltas)[j] <= deltas[i] + math.exp(epsilons[i]) * deltas[j - i] + 1e-15
