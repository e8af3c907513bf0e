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


ORDINARY = {"star": nx.star_graph(8), "path": nx.path_graph(4), "ring": nx.cycle_graph(5), "three": nx.complete_graph(3), "families": nx.florentine_families_graph()}


@pytest.mark.parametrize("groups", ["pairs", "edges"])
@pytest.mark.parametrize("graph", ORDINARY.values(), ids=ORDINARY)
def test_never_more_than_noise_that_nobody_shares(graph, groups):
    """MAFALDA is noise of these groups without secrets; on stars the search alone can end above it."""
    for kept, scheme in ((0.0, Participation.cyclic(3, 4)), (0.05, Participation.cyclic(5, 8))):
        W = lazy(graph, kept)
        found = optimize_pairwise(W, scheme, 1, groups)
        assert found.objective <= strategy("mafalda", scheme, W).objective * (1 + 1e-6) and found.gap <= 0.01


def test_never_more_on_a_directed_ring():
    W = 0.5 * np.eye(5) + 0.5 * np.roll(np.eye(5), 1, axis=0)
    for curious in (1, 2): assert optimize_pairwise(W, CYCLE, curious, "edges").objective <= strategy("mafalda", CYCLE, W).objective * (1 + 1e-6)


def test_batches_that_are_made_up_for_cost_more():
    """Why a missed batch is left out: in steps closer than planned the same noise hides more of a record."""
    noise = optimize_pairwise(lazy(nx.complete_graph(8), 0.05), Participation.cyclic(3, 4), 2)
    K = noise.C.T @ noise.C

    def sensitivity(steps): return max(float(signs @ K[np.ix_(steps, steps)] @ signs) for signs in map(np.array, itertools.product((-1, 1), repeat=3)))**0.5
    assert max(sensitivity(steps) for steps in ([0, 4, 8], [1, 5, 9], [2, 6, 10], [3, 7, 11])) < 1 + 1e-6
    assert sensitivity([0, 5, 8]) == pytest.approx(1.0997, abs=2e-3) and sensitivity([0, 1, 8]) == pytest.approx(1.245, abs=3e-3)


def test_sites_agree_whatever_kind_of_labels_they_have(tmp_path):
    from mfdl.tools.agreement import Site, new_key, public_key
    W, keys = lazy(nx.complete_graph(3)), [new_key() for _ in range(3)]
    run = optimize_pairwise(W, CYCLE).protocol(W, nodes=np.arange(3))
    sites = [Site(np.int64(u), keys[u], {np.int64(v): public_key(key) for v, key in enumerate(keys)}, tmp_path / str(u)) for u in range(3)]
    given = {site.label: site.contribute() for site in sites}
    seeds = [site.seeds(run, given) for site in sites]
    shared = set(seeds[0].values()) & set(seeds[1].values())
    assert len(shared) == len(set(seeds[0]) & set(seeds[1])) > 0
    for wrong in ([*given.values()], None):
        with pytest.raises(ValueError, match="contributions is of type"): sites[0].seeds(run, wrong)
    with pytest.raises(ValueError, match="pinned is of type"): Site(0, keys[0], [public_key(key) for key in keys], tmp_path / "x")
    with pytest.raises(ValueError, match="journal=.*expected a file in a folder that is there"): Site(0, keys[0], {0: public_key(keys[0])}, tmp_path / "away" / "x")


@pytest.mark.parametrize("call, words", [
    (lambda: optimize_pairwise(np.eye(1), CYCLE, 0), "W has a single node: expected at least two"),
    (lambda: optimize_pairwise(lazy(nx.complete_graph(3)), CYCLE, True), "curious=True: expected a number of nodes from 0 to 1$"),
    (lambda: optimize_pairwise(lazy(nx.complete_graph(3)), CYCLE, 2), "curious=2: .*MAFALDA is the best of that"),
    (lambda: optimize_pairwise(lazy(nx.complete_graph(3)), CYCLE, 1, [0, 1]), "groups: 0 is no group"),
])
def test_errors_name_what_was_given(call, words):
    with pytest.raises(ValueError, match=words): call()
