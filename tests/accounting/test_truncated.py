"""Batches of a largest size: accounts against quadrature of the whole mechanism, another library, and brute force."""
import math
from itertools import combinations

import dp_accounting
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mfdl import LDP, PNDP, Participation, account
from mfdl.accounting.gaussian_dp import ADJACENCY, GaussianDP
from mfdl.accounting.methods.pairs import check_account
from mfdl.accounting.methods.poisson import amplified
from mfdl.accounting.methods.truncated_poisson import OthersTold, PushesOut, TruncatedReport, amplified_if_cut
from mfdl.accounting.methods.ways import expected_work
from mfdl.learning.methods.drawn_batches import random_batches
from mfdl.noise.methods.strategies import strategy
from mfdl.protocol.algorithms import dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.participation import check_participation

W = gossip_matrix(nx.cycle_graph(3))


def batches(q, n, B):
    """Each batch, and how likely it is, by all coins and all ways to cut."""
    found = {}
    for size in range(n + 1):
        for came in combinations(range(n), size):
            kept = list(combinations(came, min(size, B)))
            for batch in kept: found[batch] = found.get(batch, 0) + q**size * (1 - q) ** (n - size) / len(kept)
    return found


def truth(q, n, B, T, gradients, other, noise, epsilon):
    """delta of T steps in which records have given gradients on a line, and the first another one instead, by a sum over a grid."""
    def density(values, x): return sum(p * stats.norm.pdf(x, sum(values[i] for i in batch), noise) for batch, p in batches(q, n, B).items())
    x = np.linspace(-n - 9 * noise, n + 9 * noise, 1201 if T == 2 else 8001)
    P, Q = density(gradients, x), density([other, *gradients[1:]], x)
    if T == 2: P, Q = np.outer(P, P), np.outer(Q, Q)
    return (x[1] - x[0]) ** T * max(np.maximum(P - math.exp(epsilon) * Q, 0).sum(), np.maximum(Q - math.exp(epsilon) * P, 0).sum())


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 1), st.integers(2, 5), st.integers(1, 2), st.floats(0.5, 2), st.floats(0, 1.5), st.sampled_from(list(ADJACENCY)), st.data())
def test_no_gradients_are_told_apart_more_easily_than_is_accounted_for(q, n, T, noise, epsilon, adjacency, data):
    B = data.draw(st.integers(1, n))
    gradients = [1.0, *(data.draw(st.floats(-1, 1)) for _ in range(n - 1))]
    found = truth(q, n, B, T, gradients, 0.0 if adjacency == "zero-out" else -1.0, noise, epsilon)
    report = account(dp_dsgd(W, T), LDP(), Participation.truncated_poisson(q, T, n, B), noise / ADJACENCY[adjacency])
    assert found <= report.in_units(1.0, 1, adjacency).delta(epsilon).max() * (1 + 3e-4) + 1e-9  # of the grid


@pytest.mark.parametrize("adjacency", ADJACENCY)
@pytest.mark.parametrize("q, n, B", [(0.3, 2, 1), (0.8, 4, 2), (1.0, 5, 2)])
def test_a_fault_would_be_found(adjacency, q, n, B):
    """Coins whose chance is the mean one of being kept, as if the cut told nothing of the others, promise too much."""
    share = sum(p for batch, p in batches(q, n, B).items() if 0 in batch)
    gradients = [1.0] * n if adjacency == "replace-one" else [1.0, *[-1.0] * (n - 1)]
    naive = amplified(dp_dsgd(W, 1), LDP(), Participation.poisson(share, 1), 0.7 / ADJACENCY[adjacency]).in_units(1.0, 1, adjacency)
    ours = account(dp_dsgd(W, 1), LDP(), Participation.truncated_poisson(q, 1, n, B), 0.7 / ADJACENCY[adjacency]).in_units(1.0, 1, adjacency)
    epsilons = np.linspace(0, 3, 7)
    found = [truth(q, n, B, 1, gradients, 0.0 if adjacency == "zero-out" else -1.0, 0.7, e) for e in epsilons]
    assert all(f <= ours.delta(e).max() * (1 + 1e-6) for f, e in zip(found, epsilons, strict=True))
    assert any(f > naive.delta(e).max() * 1.02 for f, e in zip(found, epsilons, strict=True))


@pytest.mark.parametrize("adjacency, relation", [("zero-out", "ADD_OR_REMOVE_ONE"), ("replace-one", "REPLACE_ONE")])
def test_the_better_of_two_accounts_is_never_worse_than_that_of_dp_accounting(adjacency, relation):
    for q, n, B, sigma, T in ((1 / 16, 160, 16, 1.0, 50), (0.1, 50, 5, 2.0, 20), (1.0, 20, 4, 3.0, 30)):
        theirs = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation[relation], 1e-3)
        theirs.compose(dp_accounting.dp_event.TruncatedSubsampledGaussianDpEvent(n, q, B, ADJACENCY[adjacency] * sigma), T)
        report = account(dp_dsgd(W, T), LDP(), Participation.truncated_poisson(q, T, n, B), sigma).in_units(1.0, 1, adjacency)
        ours, other = report.epsilon(1e-6).max(), theirs.get_epsilon(1e-6)
        assert ours <= other * (1 + 1e-3)
        by_chance = account(dp_dsgd(W, T), LDP(), Participation.poisson(q, T), sigma).in_units(1.0, 1, adjacency).epsilon(1e-6).max()
        assert ours >= by_chance * (1 - 1e-3) or q == 1  # cuts do not make coins rarer where few are cut


def over(P, Q, noise, epsilon):
    """delta of one step in which two mixtures on a line, {center: weight}, are told apart, by a sum over a grid."""
    x = np.linspace(-3 - 9 * noise, 3 + 9 * noise, 12001)
    p, q = (sum(weight * stats.norm.pdf(x, center, noise) for center, weight in one.items()) for one in (P, Q))
    return (x[1] - x[0]) * np.maximum(p - math.exp(epsilon) * q, 0).sum()


@settings(max_examples=15, deadline=None)
@given(st.floats(0.01, 1), st.integers(2, 300), st.floats(0.5, 4), st.floats(0, 2), st.sampled_from(list(ADJACENCY)), st.data())
def test_pushing_out_is_accounted_for_as_dp_accounting_has_it(q, n, noise, epsilon, adjacency, data):
    """Whether the others fill the batch is told, so delta is that of either case, weighted; chances by a sum over how many of the others come."""
    B = data.draw(st.integers(1, n - 1))
    coin, others = PushesOut(q, n, B), stats.binom.pmf(np.arange(n), n - 1, q)
    full = others[B:].sum()
    if full < 1e-12: return
    chance = q * B / np.arange(B + 1, n + 1) @ others[B:] / full
    assert math.isclose(coin.chance, chance, rel_tol=1e-6)
    joins, stays = {0: 1 - q, 1: q}, {0: 1 - q, -1: q} if adjacency == "replace-one" else {0: 1}
    pushed = over({0: 1 - chance, 2: chance}, {0: 1 - chance, -2: chance}, noise, epsilon)
    wanted = full * pushed + (1 - full) * max(over(joins, stays, noise, epsilon), over(stays, joins, noise, epsilon))
    found = coin.losses(noise, adjacency, 1e-3).get_delta_for_epsilon(epsilon)
    assert wanted * (1 - 1e-4) - 1e-9 <= found <= wanted * (1 + 1e-3) + 1e-6


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-9, 1), st.integers(2, 400), st.data())
def test_what_is_told_is_a_distribution(q, n, data):
    B = data.draw(st.integers(1, n - 1))
    weights, chances = np.array(OthersTold(q, n, B).chances).T
    assert math.isclose(weights.sum(), 1, rel_tol=1e-9) and (weights >= 0).all() and (chances <= 1 + 1e-12).all() and chances[1] >= q
    kept = np.minimum(np.arange(n + 1), B) @ stats.binom.pmf(np.arange(n + 1), n, q) / n
    assert math.isclose(weights @ chances, kept, rel_tol=1e-8)


@pytest.mark.nightly
@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 1), st.integers(2, 300), st.integers(1, 40), st.floats(1, 20), st.floats(1e-8, 0.1), st.data())
def test_cuts_never_promise_more_than_they_may(q, n, T, sigma, delta, data):
    """Sure participation bounds the account; epsilon, delta and beta go together; calibration keeps its promise."""
    B = data.draw(st.integers(1, n))
    report = account(dp_dsgd(W, T), LDP(), Participation.truncated_poisson(q, T, n, B), sigma)
    sure = GaussianDP(math.sqrt(T) / sigma)
    report = report.in_units(1.0, 1, data.draw(st.sampled_from(list(ADJACENCY))))
    value = report.epsilon(delta).max()
    assert 0 <= value <= sure.epsilon(delta) and report.delta(value).max() <= delta * (1 + 1e-6) + 1e-10
    for alpha in (0.0, 0.3, 1.0): assert sure.beta(alpha) * (1 - 1e-9) <= report.beta(alpha).min() <= 1 - alpha + 1e-12
    least = report.calibrate(2.0, delta)
    assert type(least) is TruncatedReport and least.epsilon(delta).max() <= 2


def test_limits():
    for q in (0.2, 1.0):
        poisson = account(dp_dsgd(W, 6), LDP(), Participation.poisson(q, 6), 1.5)
        for B in (10, 11):
            cut = account(dp_dsgd(W, 6), LDP(), Participation.truncated_poisson(q, 6, 10, B), 1.5)
            for ask in (lambda report: report.epsilon(1e-6).max(), lambda report: report.delta(0.5).max(), lambda report: report.beta(0.2).min()):
                assert math.isclose(ask(cut), ask(poisson), rel_tol=1e-9)
    far = OthersTold(1e-7, 1000, 900), PushesOut(1e-7, 1000, 900)  # probabilities below the least number
    for coin in far: assert coin.losses(1.0, "zero-out", 1e-3).get_delta_for_epsilon(0.0) < 2e-6
    for q, n, B in ((0.1, 2000, 863), (0.01, 5000, 507), (0.7, 2000, 1961), (0.9, 10000, 9910)):  # binomial probabilities without their digits
        poisson = account(dp_dsgd(W, 2), LDP(), Participation.poisson(q, 2), 1.5).epsilon(1e-6).max()
        assert math.isclose(account(dp_dsgd(W, 2), LDP(), Participation.truncated_poisson(q, 2, n, B), 1.5).epsilon(1e-6).max(), poisson, rel_tol=1e-9)


def test_groups_and_bands():
    """Chances two steps apart, with a memory of two steps: steps are as long as columns, and half of the places are in turn."""
    C = np.eye(6) + np.diag(np.full(5, 0.6), -1)
    banded = account(mf_dsgd(W, 6, C), LDP(), Participation.truncated_poisson(0.3, 6, 11, 3, groups=2), 2.0).epsilon(1e-5).max()
    lengths = np.linalg.norm(C, axis=0)
    alone = [account(mf_dsgd(W, 3, np.diag(lengths[j::2])), LDP(), Participation.truncated_poisson(0.3, 3, 6, 3), 2.0).epsilon(1e-5).max() for j in (0, 1)]
    assert math.isclose(banded, max(alone), rel_tol=1e-6)
    with pytest.raises(ValueError, match="a memory of 2 steps"): account(mf_dsgd(W, 6, C), LDP(), Participation.truncated_poisson(0.3, 6, 11, 3))


def test_what_is_refused():
    run, scheme = dp_dsgd(W, 4), Participation.truncated_poisson(0.5, 4, 8, 4)
    for refuse, words in (
        (lambda: account(run, PNDP([0]), scheme), "insiders"), (lambda: amplified(run, LDP(), scheme), "expected one that is drawn at random"),
        (lambda: amplified_if_cut(run, LDP(), Participation.poisson(0.5, 4)), "truncated_poisson"), (lambda: check_participation(scheme), "at random"),
        (lambda: check_account(run, LDP(), scheme, 1.0, "exact"), "at random"), (lambda: expected_work(run, LDP(), scheme), "at random"),
        (lambda: strategy("mafalda", scheme, W), "at random"), (lambda: scheme.k, "at random"), (lambda: account(run, LDP(), scheme).epsilon(1e-11), "at least 1e-10"),
        (lambda: random_batches([range(9)], scheme), "cut for 8 at most"), (lambda: Participation.truncated_poisson(0.5, 4, 8, 2, groups=3), "multiple of groups"),
        (lambda: Participation.truncated_poisson(1.5, 4, 8, 2), "q=1.5"), (lambda: Participation.truncated_poisson(0.5, 4, 0, 2), "records=0"),
        (lambda: Participation.truncated_poisson(0.5, 4, 8, 2.5), "largest=2.5"),
    ):
        with pytest.raises(ValueError, match=words): refuse()
