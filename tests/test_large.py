"""Accounts of large networks: from what is seen, against the whole view, on sparse tables, and what is refused."""
import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from mfdl import LDP, PNDP, Lipschitz, Participation, SecureSum, account
from mfdl.accounting.seen import FromSeen, check_memory, expected_cost, see
from mfdl.accounting.state_space import NotStreamable
from mfdl.language.algorithms import corn, decor, dp_dsgd, local_dsgd, mf_dsgd, muffliato
from mfdl.language.attackers import view
from mfdl.language.factorization import decompose
from mfdl.language.gossip import check_gossip, gossip_matrix
from mfdl.language.protocol import check_protocol_type
from mfdl.language.workloads import gossip_kinds


def changing(W, T, rng):
    """A run with nodes that pause, exchanges that are left out, or a network that changes."""
    n = len(W)
    other = gossip_matrix(nx.gnp_random_graph(n, 0.6, seed=int(rng.integers(99))), "uniform")
    C = np.tril(rng.uniform(-0.5, 0.5, (T, T)), -1) + np.diag(rng.uniform(0.5, 2, T))
    make = rng.integers(7)
    if make == 0: return dp_dsgd([W, other] * (T // 2), T // 2 * 2)
    if make == 1: return muffliato(W, T, int(rng.integers(2, 4)))
    if make == 2: return local_dsgd(W, T, 2)
    if make == 3: return dp_dsgd(W, T, offline=0.3, seed=int(rng.integers(99)))
    if make == 4: return mf_dsgd(W, T, C)
    if make == 5: return mf_dsgd([W, other] * (T // 2), T // 2 * 2, C[:T // 2 * 2, :T // 2 * 2])
    return dp_dsgd(W, T)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
@pytest.mark.filterwarnings("ignore:graph has")
def test_what_is_seen_tells_what_the_whole_view_tells(seed):
    rng = np.random.default_rng(seed)
    n, T = int(rng.integers(3, 9)), int(rng.integers(2, 7))
    W = gossip_matrix(nx.gnp_random_graph(n, 0.5, seed=int(rng.integers(99))))
    run = changing(W, T, rng)
    kind = [PNDP, SecureSum][int(rng.integers(2))]
    trust = kind(rng.choice(n, int(rng.integers(1, n)), replace=False).tolist())
    try: found = FromSeen(see(run, trust))
    except NotStreamable: return  # it does not guess
    reduced = view(run, trust)
    other = decompose(reduced)
    assert np.allclose(found.information(reduced.victims), other.information(reduced.victims), rtol=1e-9, atol=1e-10)
    assert not other.uncovered.any() and found.seen.complete == reduced.complete


@pytest.mark.parametrize("scheme", [Participation.single(12), Participation.cyclic(3, 4), Participation.every_step(12), Participation.min_sep(2, 5, 12)])
@pytest.mark.parametrize("method", ["exact", "bound"])
@pytest.mark.parametrize("make", [lambda W: dp_dsgd(W, 12), lambda W: mf_dsgd(W, 12, np.eye(12) - 0.5 * np.eye(12, k=-1)),
                                  lambda W: mf_dsgd(W, 12, np.diag(np.linspace(1, 2, 12)))], ids=["fresh", "banded", "growing"])
def test_accounts_of_sparse_tables(make, method, scheme):
    graph = nx.barabasi_albert_graph(30, 2, seed=1)
    full, sparse = make(gossip_matrix(graph)), make(gossip_matrix(graph, sparse=True))
    for trust in (PNDP([7]), PNDP([0, 3]), LDP()):
        one, other = (account(run, trust, scheme, method=method) for run in (full, sparse))
        assert np.allclose(one.mu, other.mu, rtol=1e-8, atol=1e-12) and one.victims == other.victims and (one.distance == other.distance)[~np.isnan(one.distance)].all()
        assert one.adaptive == other.adaptive


@pytest.mark.filterwarnings("ignore:graph has")
def test_who_is_out_of_reach_has_nothing_to_fear():
    graph = nx.disjoint_union(nx.path_graph(6), nx.path_graph(3))
    report = account(dp_dsgd(gossip_matrix(graph, sparse=True), 4), PNDP([0]), Participation.every_step(4))
    mu = dict(zip(report.victims, report.mu, strict=True))
    assert all(mu[v] == 0 for v in (5, 6, 7, 8)) and mu[4] > 0 and report.distance[-1] == np.inf


def test_what_is_refused_in_sparse_networks():
    S = gossip_matrix(nx.path_graph(6), sparse=True)
    run, scheme = dp_dsgd(S, 4), Participation.every_step(4)
    for call in (lambda: account(run, PNDP([0]), scheme, backend="dense"), lambda: account(run, PNDP([0]), scheme, updates=Lipschitz(1.0)),
                 lambda: decor(S, 4), lambda: corn(S, 4, np.eye(6)), lambda: run.M_G, lambda: check_gossip(S), lambda: check_protocol_type(run)):
        with pytest.raises(ValueError, match="sparse"): call()
    for wrong in (S * 2, csr_array(np.full((2, 3), 0.5)), -1 * S, csr_array(np.diag([np.nan, 1]))):
        with pytest.raises(ValueError, match="W"): check_gossip(wrong, sparse=True)
    with pytest.raises(ValueError, match="nodes share noise"): see(decor(S.toarray(), 4), PNDP([0]))
    with pytest.raises(ValueError, match="sizes"): gossip_kinds([S, gossip_matrix(nx.path_graph(5), sparse=True)], 2, sparse=True)


def test_what_does_not_fit_is_refused_before_any_work(monkeypatch):
    seen = see(dp_dsgd(gossip_matrix(nx.star_graph(40), sparse=True), 50), PNDP([0]))
    assert expected_cost(seen, Participation.single(50)).memory > 8 * 2000**2
    monkeypatch.setattr("mfdl.accounting.seen.MEMORY_SHARE", 1e-6)
    with pytest.raises(ValueError, match="2000 numbers about 40 nodes.*expected fewer neighbours or steps"): check_memory(seen)


def test_large_tables_are_sparse_unless_asked():
    graph = nx.path_graph(2001)
    assert isinstance(gossip_matrix(graph), csr_array) and isinstance(gossip_matrix(graph, sparse=False), np.ndarray)
    assert isinstance(gossip_matrix(nx.path_graph(2000)), np.ndarray)
