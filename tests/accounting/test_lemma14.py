"""What is known may be taken away from a view if it contains nothing of the victim; otherwise it leaks. And what the chapters from threat models to sensitivity refuse."""
import math

import networkx as nx
import numpy as np
import pytest

from mfdl import GaussianDP, account, row_sensitivity, sensitivity
from mfdl.accounting.gaussian_dp import check_sigma
from mfdl.accounting.lemma14 import decompose, factorize, view
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.attacker_names import parse_attackers
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.tables import Messages, Variables
from mfdl.protocol.methods.variants import muffliato
from mfdl.protocol.participation import Participation
from mfdl.protocol.protocols import Protocol
from mfdl.protocol.threat_models import LDP, PNDP, SecLDP

W = gossip_matrix(nx.path_graph(4))
RUNS = {"independent": dp_dsgd(W, 3), "rounds": muffliato(W, 2, 2), "in time": mf_dsgd(W, 3, np.tril(np.ones((3, 3)))), "secrets": decor(W, 3, 0.7, 2.0)}
TRUSTS = [PNDP([0]), PNDP([3, 1]), SecLDP([2]), SecLDP([0, 1], "received")]


def information_of_all_rows(attack):
    """By pseudo-inverses, from messages, known gradients and known noise in one stack, each gradient's column less what is known."""
    run = attack.run
    K, K_Z = np.eye(run.n * run.T)[attack.known_gradients], np.eye(len(run.variables.step))[~attack.unknown_noise]
    A = np.vstack([attack.observation @ run.M_G, K, np.zeros((len(K_Z), K.shape[1]))])
    B = np.vstack([attack.observation @ run.M_Z, np.zeros((len(K), K_Z.shape[1])), K_Z])
    A = A - A @ np.linalg.pinv(K) @ K
    C = np.linalg.pinv(B, rcond=1e-10) @ A
    np.testing.assert_allclose(B @ C, A, atol=1e-9)
    return C.T @ np.linalg.pinv(B, rcond=1e-10) @ B @ C


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("trust", TRUSTS, ids=repr)
def test_nothing_is_lost_with_what_is_known(kind, trust):
    run = RUNS[kind]
    P, f = information_of_all_rows(Attack(run, trust)), factorize(view(run, trust))
    for u in range(4): np.testing.assert_allclose(P[u::4, u::4], f.information(u), atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_knowledge_that_contains_a_victim_is_a_leak(seed):
    """For a combination of gradients without noise Lemma 14 as printed has a finite number, smaller than without that knowledge; every route says that it leaks."""
    rng = np.random.default_rng(seed)
    known = rng.normal(size=3) * (rng.random(3) < 0.7)
    known[0] = rng.choice([-1, 0.5, 1])  # of the victim
    sent = Messages(np.zeros(4, int), np.arange(4), np.array([0, 1, 2, 0]), np.array([[False, False, True]]), np.zeros(4, int))
    drawn = Variables(np.zeros(3, int), np.eye(3, dtype=bool), np.arange(3))
    run = Protocol.from_matrices(np.vstack([np.eye(3), known]), np.eye(4, 3), sent, drawn, None, 1)
    for trust in (LDP(), PNDP([2])):
        K = known[None] if isinstance(trust, LDP) else np.vstack([known, [0, 0, 1]])
        printed = (np.eye(3) - np.linalg.pinv(K) @ K)[0, 0]  # squared, as A and B are the identity
        assert printed < 1 - 1e-9
        report = account(run, trust, Participation.single(1))
        assert report.mu[0] == np.inf
        reached = [u for u in range(3) if known[u] and u not in trust.nodes]
        assert decompose(view(run, trust)).leaks == [(0, u) for u in reached] and np.flatnonzero(np.isinf(report.mu)).tolist() == reached


@pytest.mark.parametrize(("wrong", "message"), [
    (lambda: PNDP("Medici"), "expected a list of nodes"), (lambda: PNDP([]), "expected at least one node"), (lambda: PNDP([1, 1]), "expected each node once"),
    (lambda: SecLDP([2], "recieved"), "did you mean received"), (lambda: view(RUNS["independent"], PNDP([7])), "7 is not a node"),
    (lambda: view(RUNS["independent"], PNDP(range(4))), "every node is an attacker"), (lambda: parse_attackers("Borgia", ["Medici"]), "'Borgia' is not a node"),
    (lambda: GaussianDP(math.nan), "expected a number >= 0"), (lambda: GaussianDP(-1), "inf for no protection"), (lambda: GaussianDP(1).epsilon(0), "such as 1e-6"),
    (lambda: GaussianDP(1).delta(-1), "epsilon=-1: expected a number >= 0"), (lambda: GaussianDP(1).rdp(1), "expected an order > 1"),
    (lambda: GaussianDP(1).beta(1.5), "expected a probability from 0 to 1"), (lambda: GaussianDP(1).compose(1), "is not a mechanism"),
    (lambda: GaussianDP.from_epsilon(math.inf, 1e-6), "expected a finite number"),
    (lambda: row_sensitivity(1.0, 3, "replace"), "did you mean replace-one"),
    *[(lambda sigma=sigma: check_sigma(sigma), f"sigma={sigma!r}") for sigma in (0, -1.0, math.inf, math.nan)],
    (lambda: sensitivity([[1, 2], [2, 1]]), "P has eigenvalue -1"), (lambda: sensitivity([[1, 2, 3]]), "expected a square matrix"),
    (lambda: sensitivity(np.eye(2), "exakt"), "did you mean exact"),
])
def test_what_is_refused_is_named(wrong, message):
    with pytest.raises(ValueError, match=message): wrong()


def test_ends_of_the_scale():
    nothing, everything = GaussianDP(0), GaussianDP(math.inf)
    assert [nothing.epsilon(1e-6), nothing.delta(1.0), nothing.advantage(), round(nothing.beta(0.3), 12)] == [0, 0, 0, 0.7]
    assert [everything.epsilon(1e-6), everything.delta(3.0), everything.advantage(), *map(everything.beta, (0, 0.3, 1))] == [math.inf, 1, 1, 0, 0, 0]
    assert check_sigma(2) == 2.0


def test_the_lemma_is_refused_where_its_condition_fails():
    """Who knows a gradient of somebody else would be told to learn nothing about it."""
    class Told(PNDP):
        def knows_gradient(self, owner, coalition): return super().knows_gradient(owner, coalition) | (owner == 0)
    run, trust = RUNS["independent"], Told([2])
    for take in (view, lambda *who: account(*who, Participation.every_step(run.T))):
        with pytest.raises(ValueError, match="knows a gradient of 0, which is none of its nodes"): take(run, trust)
