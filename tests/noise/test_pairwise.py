"""Secrets of pairs against a generic solver, the account, and inputs that no chapter uses."""
import itertools
import time

import networkx as nx
import numpy as np
import pytest

from mfdl import LDP, NotConverged, Participation, SecLDP, account, gossip_matrix, optimize_pairwise, strategy
from mfdl.noise.methods.coalitions import optimize_coalition
from mfdl.noise.methods.expected_error import expected_error
from mfdl.noise.methods.shared_secrets import CircularSecrets, CompleteSecrets, GroupSecrets, search_strengths

CYCLE = Participation.cyclic(2, 3)
SMALL = {"star": nx.star_graph(5), "path": nx.path_graph(4), "wheel": nx.wheel_graph(6), "two parts": nx.disjoint_union(nx.cycle_graph(4), nx.path_graph(3))}


def lazy(graph, kept=0.1): return (1 - kept) * gossip_matrix(graph) + kept * np.eye(len(graph))


def neighbours(graph): return [[u] for u in graph] + [sorted(edge) for edge in graph.edges]


@pytest.mark.parametrize("curious", [0, 1, 2])
@pytest.mark.parametrize("graph", SMALL.values(), ids=SMALL)
def test_strengths_of_one_step_are_those_of_the_semidefinite_program(graph, curious):
    """Two solvers with nothing in common, with a bound each; own noise is a group of one for both."""
    graph, W = nx.convert_node_labels_to_integers(graph), lazy(graph)
    program = optimize_coalition(W, neighbours(graph), curious, tol=1e-3)
    found = search_strengths(GroupSecrets(W.T @ W, neighbours(graph), curious, np.ones(len(W))), 1e-2, 20_000)
    assert found.bound <= program.objective * (1 + 1e-6) and program.lower_bound <= found.error * (1 + 1e-6)
    assert found.error == pytest.approx(program.objective, rel=3e-3)


@pytest.mark.parametrize("n, curious", [(4, 0), (5, 1), (7, 3)])
def test_symmetry_changes_nothing(n, curious):
    """Where all nodes are alike: general, circulant and complete searches, and labels in another order."""
    W = lazy(nx.complete_graph(n), 0.05)
    M = expected_error(W, 4).weights(np.eye(4) + 0.2 * np.eye(4, k=1) + 0.2 * np.eye(4, k=-1))
    pairs = [[u] for u in range(n)] + list(map(list, itertools.combinations(range(n), 2)))
    searches = GroupSecrets(M, pairs, curious, np.ones(n)), CircularSecrets(M, np.arange(1, n // 2 + 1), curious), CompleteSecrets(M, curious)
    errors = [search_strengths(one, 1e-4, 5000).error for one in searches]
    assert errors == pytest.approx([errors[0]] * 3, rel=1e-4)
    ring, order = lazy(nx.cycle_graph(n)), np.random.default_rng(n).permutation(n)
    in_order, shuffled = (optimize_pairwise(one, CYCLE, curious) for one in (ring, ring[np.ix_(order, order)]))
    assert shuffled.objective == pytest.approx(in_order.objective, rel=1e-2)


def test_the_guarantee_belongs_to_who_is_named_and_not_to_positions():
    """The run with labels that are other nodes' positions: each pair of labels learns mu = 1 at most, and one pair does."""
    W, names = lazy(nx.wheel_graph(6)), [3, 0, "b", 5, 2, "a"]
    found = optimize_pairwise(W, CYCLE, 2, budgets=[1, 1, 0.5, 2, 1, 1])
    limits = dict(zip(names, found.budgets, strict=True))
    run, kept = found.protocol(W, nodes=names), []
    for two in itertools.combinations(names, 2):
        report = account(run, SecLDP(two), CYCLE).to_frame()
        kept += [row.mu / limits[row.victim] for row in report.itertuples()]
    assert max(kept) == pytest.approx(1, abs=1e-6)
    assert found.learned(0) <= found.learned(1) <= 1 + 1e-9 < found.learned(3) < found.learned(5)
    assert account(run, LDP(), CYCLE).worst.mu <= 2


def test_special_cases():
    """A leaf relies on itself, no link needs no secret, and one seed for all is the eavesdropper's case."""
    star, apart = optimize_pairwise(lazy(nx.star_graph(4)), CYCLE, 1, "edges"), optimize_pairwise(np.eye(4), CYCLE, 1, "edges")
    alone = (np.abs(star.shares.toarray()) > 0).sum(axis=0) == 1
    assert ((star.shares.toarray()[:, alone]**2).sum(axis=1)[1:] >= 1 - 1e-9).all()
    assert apart.relative == pytest.approx(strategy("mafalda", CYCLE, np.eye(4)).objective / apart.independent, rel=1e-4)
    seed, pairs = (optimize_pairwise(lazy(nx.cycle_graph(5)), CYCLE, 0, groups) for groups in ([list(range(5))], "pairs"))
    assert seed.objective <= pairs.objective * (1 + 1e-2)
    with pytest.raises(ValueError, match="curious=3: expected a number of nodes from 0 to 2.*strategy"): optimize_pairwise(lazy(nx.path_graph(4)), CYCLE, 3)
    with pytest.raises(ValueError, match="curious=5: .* coalitions of 40 nodes are too many"): optimize_pairwise(lazy(nx.path_graph(40)), CYCLE, 5)
    assert optimize_pairwise(lazy(nx.cycle_graph(5)), CYCLE, 1, absent=1.0).gap < 0.01


def test_a_gap_that_stays_is_told_with_the_noise():
    with pytest.raises(NotConverged, match="above tol=1e-12") as stopped: optimize_pairwise(lazy(nx.wheel_graph(6)), CYCLE, 1, tol=1e-12)
    assert 0 < stopped.value.best.gap < 0.01


@pytest.mark.alone
def test_a_thousand_nodes_who_all_know_each_other_take_seconds():
    began = time.perf_counter()
    found = optimize_pairwise(lazy(nx.complete_graph(1000), 0.05), Participation.cyclic(5, 8), 3)
    assert found.gap < 0.01 and time.perf_counter() - began < 30
