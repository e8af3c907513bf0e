"""The attack against exact recovery, brute-force ranks, textbook covariances, and training runs that it did not see."""
import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from mfdl.accounting.account import account
from mfdl.accounting.lemma14 import decompose, view
from mfdl.evidence.methods.reconstruction import estimate, image_of, observed, picture_error, play
from mfdl.learning.data import Dataset, cut
from mfdl.learning.methods.noise_supply import Run
from mfdl.learning.simulator import Simulation
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.variants import anti_pgd, dsgd, muffliato
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, PNDP, SecLDP

GRAPH = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4)])
W, T, N = gossip_matrix(GRAPH), 4, 5
C = np.linalg.inv(np.eye(T) - 0.5 * np.eye(T, k=-1))
NOISY = {"DP-D-SGD": dp_dsgd(W, T), "MF-D-SGD": mf_dsgd(W, T, C), "AntiPGD": anti_pgd(W, T), "Muffliato": muffliato(W, T, 2), "DECOR": decor(W, T, 0.7, 1.2),
         "CorN": corn(W, T, np.eye(N) - 0.15), "groups": corn(W, T, [np.diag([1, 1, 1, 0, 0.0]), np.diag([0, 0, 1, 1, 1.0])], [[0, 1, 2], [2, 3, 4]])}
TRUSTS = {"a node": PNDP([1]), "two that hear each other": PNDP([1, 2]), "an eavesdropper": LDP(), "a node that hears all": SecLDP([4])}


@st.composite
def attacks(draw):
    """A view without noise of a random connected graph, with gradients that repeat every b steps."""
    n, b, rounds = draw(st.integers(3, 7)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    graph = nx.random_labeled_tree(n, seed=draw(st.integers(0, 99)))
    graph.add_edges_from(draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda e: e[0] != e[1]), max_size=4)))
    weights = gossip_matrix(nx.relabel_nodes(graph, dict(zip(sorted(graph), range(n), strict=True))), draw(st.sampled_from(["metropolis", "uniform"])))
    attackers = sorted(draw(st.sets(st.integers(0, n - 1), min_size=1, max_size=2)))
    return view(dsgd(weights, b * rounds), PNDP(attackers)), b


@given(attacks(), st.integers(0, 99))
def test_without_noise_what_is_determined_is_recovered_and_nothing_else_is(attack, seed):
    v, b = attack
    n, known = len(v.nodes), np.tile(v.coalition, b)
    X = np.random.default_rng(seed).normal(size=(b * n, 2))
    found = estimate(v, v.A @ np.tile(X, (v.T // b, 1)), b=b)
    A = v.A @ np.tile(np.eye(b * n), (v.T // b, 1))
    rank = np.linalg.matrix_rank(A, tol=1e-7)
    brute = np.array([not known[i] and np.linalg.matrix_rank(np.vstack([A, e]), tol=1e-7) == rank for i, e in enumerate(np.eye(b * n))])
    np.testing.assert_array_equal(found.determined.ravel(), brute)
    np.testing.assert_allclose(found.gradients.reshape(b * n, 2)[brute], X[brute], atol=1e-6)
    assert np.isnan(found.gradients.reshape(b * n, 2)[~brute]).all() and np.isinf(found.deviation.ravel()[~brute]).all() and not found.deviation.ravel()[brute].any()


@pytest.mark.parametrize("b", [1, 2, 4])
@pytest.mark.parametrize("who", TRUSTS)
@pytest.mark.parametrize("name", NOISY)
def test_with_noise_it_is_generalised_least_squares(name, who, b):
    """Against a covariance made regular by a little noise on every message, and the inverse of the whole information matrix, on unknowns that are determined."""
    v = view(NOISY[name], TRUSTS[who])
    found = estimate(v, np.zeros((len(v.A), 0)), 0.3, b)
    A = v.A @ np.tile(np.eye(b * N), (T // b, 1))
    L = found.weights.reshape(b * N, -1)[found.determined.ravel()]
    np.testing.assert_allclose(L @ A, np.eye(b * N)[found.determined.ravel()], atol=1e-7)  # unbiased
    covariance = 0.09 * (v.B @ v.B.T + 1e-9 * np.eye(len(v.A)))
    P = A.T @ np.linalg.solve(covariance, A)
    best = np.diag(np.linalg.pinv(P, rcond=1e-13, hermitian=True))[found.determined.ravel()]
    np.testing.assert_allclose(found.deviation[found.determined], np.sqrt(best), rtol=1e-3, atol=5e-4)


@pytest.mark.parametrize("who", TRUSTS)
@pytest.mark.parametrize("name", NOISY)
def test_no_error_is_below_what_mu_allows(name, who):
    """One participation, row sensitivity and scale 1: a deviation below 1 / mu would beat somebody who knows all other gradients."""
    v, report = view(NOISY[name], TRUSTS[who]), account(NOISY[name], TRUSTS[who], Participation.single(T))
    deviation = estimate(v, np.zeros((len(v.A), 0)), 1.0).deviation
    for u, mu in zip(report.victims, report.mu, strict=True):
        if np.isfinite(mu): assert (deviation[:, u] * mu >= 1 - 1e-6).all()
    assert (deviation[decompose(v).uncovered == 0] > 1e-7).all()


def test_simulated_errors_have_the_covariance():
    v, rng = view(NOISY["MF-D-SGD"], PNDP([1])), np.random.default_rng(0)
    X = rng.normal(size=(N, 1)) * ~v.coalition[:, None]
    found = estimate(v, v.A @ np.tile(X, (T, 1)) + 0.3 * v.B @ rng.normal(size=(v.B.shape[1], 100_000)), 0.3, b=1)
    off, mask = (found.gradients[0] - X)[found.determined[0]], found.determined[0]
    expected = 0.09 * (found.weights[0, mask] @ v.B) @ (found.weights[0, mask] @ v.B).T
    scale = found.deviation[0, mask]
    np.testing.assert_allclose(off @ off.T / off.shape[1] / np.outer(scale, scale), expected / np.outer(scale, scale), atol=0.02)
    assert np.abs(off.mean(axis=1) / scale).max() < 0.02


RNG = np.random.default_rng(1)
TOY = Dataset("toy", RNG.normal(size=(20, 6)).astype(np.float32), RNG.integers(3, size=20), RNG.normal(size=(4, 6)).astype(np.float32), RNG.integers(3, size=4))


def layer(): return nn.Sequential(nn.Linear(6, 3))


def simulated(runs, lr=0.1, **more): return Simulation(layer, TOY, cut(np.arange(N * T).reshape(N, T), T), runs, lr, 1.0, **{"record": True, **more})


@pytest.mark.parametrize("name", NOISY)
def test_what_is_put_down_is_what_happened(name):
    """Gradients come out of messages as the simulator computes them, and messages are the algorithm's combinations."""
    runs = [Run("a", NOISY[name], 0.2, 1), Run("b", NOISY[name], 0.5, 2)]
    simulation, changes = simulated(runs), []
    compute = simulation.learner.changes
    simulation.learner.changes = lambda t: changes.append(compute(t).clone()) or changes[-1].clone()
    for i, (run, played) in enumerate(zip(runs, play(simulation), strict=True)):
        true = torch.cat(changes)[:, i].double().numpy()
        np.testing.assert_allclose(played.gradients, true, atol=5e-5)
        np.testing.assert_allclose(played.messages, run.protocol.M_G @ true + run.scale * run.protocol.M_Z @ played.noise, atol=5e-5)
        for trust in TRUSTS.values():
            v = view(run.protocol, trust)
            secret = ~trust.knows_noise(run.protocol.variables, v.coalition)
            np.testing.assert_allclose(observed(played, trust), v.A @ true + run.scale * v.B @ played.noise[secret], atol=1e-4)


def test_images_come_out_of_trained_gradients():
    played, = play(simulated([Run("quiet", dsgd(W, T))]))
    found = estimate(view(dsgd(W, T), PNDP([0])), observed(played, PNDP([0])))
    assert {(0, u) for u in GRAPH[0]} <= set(map(tuple, np.argwhere(found.determined)))
    for t, u in np.argwhere(found.determined): np.testing.assert_allclose(image_of(found.gradients[t, u], 3, 6), TOY.X[u * T + t], atol=1e-3)


@given(st.integers(0, 999), st.floats(0.01, 100), st.floats(0.1, 10))
def test_images_and_their_errors_do_not_depend_on_size(seed, clip, brightness):
    rng = np.random.default_rng(seed)
    x, delta, other = rng.normal(size=7), rng.normal(size=4), rng.normal(size=7)
    gradient = clip * np.concatenate([np.outer(delta, x).ravel(), delta, rng.normal(size=5)])
    np.testing.assert_allclose(image_of(gradient, 4, 7), x, rtol=1e-6, atol=1e-9)
    assert picture_error(brightness * x, x) < 1e-7
    cosine = other @ x / np.linalg.norm(other) / np.linalg.norm(x)
    assert picture_error(brightness * other, x) == pytest.approx(np.sqrt(1 - cosine**2), abs=1e-7)
    assert picture_error(np.zeros(7), x) == 1


def test_refused():
    with pytest.raises(ValueError, match="is at step 1"):
        started = simulated([Run("quiet", dsgd(W, T))])
        started.step()
        play(started)
    with pytest.raises(ValueError, match="record=True"): play(simulated([Run("quiet", dsgd(W, T))], record=False))
    with pytest.raises(ValueError, match="learning rates that change"): play(simulated([Run("quiet", dsgd(W, T))], lr=[0.1, 0.1, 0.1, 0.2]))
    with pytest.raises(ValueError, match=r"scale=inf: expected a finite number"): estimate(view(dsgd(W, T), LDP()), np.zeros((N * T, 1)), np.inf)
    with pytest.raises(ValueError, match="b=0"): estimate(view(dsgd(W, T), LDP()), np.zeros((N * T, 1)), b=0)
