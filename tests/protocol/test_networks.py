"""Networks that change every week, and large or strange graphs: what is read, and what sparse and full tables make of it."""
import csv
import os
import sys
import tempfile
import time
import warnings
from importlib.util import find_spec
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, issparse

from mfdl import LDP, PNDP, Participation, SecLDP, SecureSum, account, dp_dsgd, gossip_matrix
from mfdl.base.graph_files import read_graph
from mfdl.protocol.methods.checked_gossip import check_gossip, gossip_sequence
from mfdl.protocol.methods.graphs import FEDIVERSE, fediverse, fediverse_weeks, load_graph
from mfdl.protocol.methods.variants import local_dsgd, muffliato

FOLLOWS = {  # of PeerTube servers, week by week: b follows c but not back, d comes and goes, and one server follows itself
    "20250203": ("abcd", "ab ba bc ca cd dd"), "20250210": ("abc", "ab ba bc cb"), "20250217": ("abcde", "ab ba cb bc cd dc ea"), "20250225": ("ab", "ab ba"),
}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """What the package fedivertex keeps on a machine, in its layout: instances.csv and interactions.csv for each date."""
    if find_spec("tkinter") is None:  # networkx_temporal, which it needs, imports turtle
        monkeypatch.setitem(sys.modules, "turtle", SimpleNamespace(pd=None))
    monkeypatch.setattr("fedivertex.cache.DEFAULT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("requests.get", lambda *_, **__: pytest.fail("a download"))
    folder = tmp_path / "reduced"
    for software, kind in FEDIVERSE.items():
        for date, (servers, follows) in FOLLOWS.items():
            where = folder / software / kind / date
            where.mkdir(parents=True)
            with open(where / "instances.csv", "w", newline="") as file:
                csv.writer(file).writerows([["host", "totalUsers", "Id", "Label"], *([f"{s}[DOT]org", 7, f"{s}[DOT]org", s] for s in servers)])
            with open(where / "interactions.csv", "w", newline="") as file:
                csv.writer(file).writerows([["Source", "Target", "Weight"], *([f"{u}[DOT]org", f"{v}[DOT]org", 3] for u, v in follows.split())])
    (folder / "last_update.txt").write_text("2025-03-01T00:00:00+00:00")
    return folder


def short(pairs): return sorted("".join(sorted(node[0] for node in pair)) for pair in pairs)


@pytest.mark.parametrize("software", FEDIVERSE)
def test_snapshots_are_what_the_files_say(kept, software):
    weeks = fediverse_weeks(software, 4)
    assert [week.graph["date"] for week in weeks] == list(FOLLOWS) and all(list(week) == list(weeks[0]) for week in weeks)
    assert [node[0] for node in weeks[0]] == list("abcde")
    for week, (servers, follows) in zip(weeks, FOLLOWS.values(), strict=True):
        assert short(week.edges) == sorted({"".join(sorted(pair)) for pair in follows.split() if len(set(pair)) == 2})
        assert {node[0] for node in nx.isolates(week)} >= set("abcde") - set(servers)
    later = fediverse_weeks(software, 2, "20250217")
    assert [week.graph["date"] for week in later] == ["20250217", "20250225"] and short(later[1].edges) == ["ab"]


def test_one_snapshot_is_its_largest_strong_component(kept):
    assert short(load_graph("peertube").edges) == ["ab", "bc"] and load_graph("peertube").graph["date"] == "20250210"
    assert short(load_graph("lemmy").edges) == ["ab", "ac", "bc"]  # of the first date, without d, which follows nobody but itself
    assert short(load_graph("mastodon:date=20250217").edges) == ["ab", "bc", "cd"]
    assert fediverse("misskey", 20250225).nodes["a[DOT]org"]["totalUsers"] == "7"


def test_what_is_refused_of_the_fediverse(kept, monkeypatch):
    for call, said in ((lambda: fediverse("peertub", 20250210), "did you mean peertube"), (lambda: fediverse("lemmy", 20250211), "one of 4 snapshots, from 20250203 to 20250225"),
                       (lambda: fediverse_weeks("lemmy", 3, 20250217), "at most 2, those from 20250217"), (lambda: fediverse_weeks("lemmy", 0), "weeks=0"),
                       (lambda: load_graph("lemmy:weeks=2"), "expected parameters of 'lemmy'")):
        with pytest.raises(ValueError, match=said): call()
    damaged = kept / "misskey" / "active_user" / "20250210" / "interactions.csv"
    for content in (b"Source,Target\na,b\n", b"Source,Target,Weight\na\n", b"Source,Target,Weight\n\xff,b,1\n"):
        damaged.write_bytes(content)
        with pytest.raises(ValueError, match="damaged or changed"): fediverse_weeks("misskey", 2)
    (kept / "last_update.txt").unlink()

    def offline(*_, **__): raise requests.ConnectionError("no route to Kaggle")

    monkeypatch.setattr("requests.get", offline)
    with pytest.raises(ConnectionError, match="not available offline.*no route to Kaggle.*pass that file's path"): load_graph("lemmy")


@pytest.mark.filterwarnings("ignore:graph has")
def test_an_account_of_a_network_that_changes_every_week(kept):
    """Full and sparse tables agree; who is absent has a row of the identity; nobody is reached by who is not there yet."""
    weeks = fediverse_weeks("peertube", 4)
    nodes, T = list(weeks[0]), 4
    full, sparse = ([gossip_matrix(week, sparse=kind) for week in weeks] for kind in (False, True))
    assert all((W[4] == np.eye(5)[4]).all() for W in (full[0], full[1], full[3]))
    for W, S in zip(gossip_sequence(full, T), gossip_sequence(sparse, T, sparse=True), strict=True): np.testing.assert_array_equal(W, S.toarray())
    records = Participation.every_step(T)
    for attacker in nodes:
        one, other = (account(dp_dsgd(Ws, T, nodes=nodes), PNDP([attacker]), records) for Ws in (full, sparse))
        np.testing.assert_allclose(one.mu, other.mu, rtol=1e-9, atol=1e-12)
        assert one.victims == other.victims
    newcomer = account(dp_dsgd(sparse, T, nodes=nodes), PNDP(["e[DOT]org"]), records)
    assert [node[0] for node, mu in zip(newcomer.victims, newcomer.mu, strict=True) if mu > 0] == list("abc")  # d's first model is with b when e hears a


# --- files and graphs that are large or strange

def outcome(make):
    """What a call gives as a full table, or what it says; and what it warns of."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try: found = make()
        except ValueError as error: found = str(error)
    return found.toarray() if issparse(found) else found, [str(one.message) for one in heard]


def same(one, other):
    assert one[1] == other[1] and isinstance(one[0], str) == isinstance(other[0], str)
    if isinstance(one[0], str): assert one[0] == other[0]
    else: np.testing.assert_allclose(one[0], other[0], rtol=1e-12, atol=1e-15)


def by_definition(graph, weights):
    """Both tables entry by entry."""
    hears = {u: {v for v in graph[u] if v != u} for u in graph}
    shares = {u: {v: 1 / (1 + max(len(hears[u]), len(hears[v]) if weights == "metropolis" else 0)) for v in hears[u]} for u in graph}
    return np.array([[shares[u].get(v, 0) if u != v else 1 - sum(shares[u].values()) for v in graph] for u in graph])


@given(st.sampled_from([nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph]), st.sampled_from(["metropolis", "uniform"]), st.integers(0, 6),
       st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([-1.0, 0.0, 0.5, 7.0])), max_size=9))
def test_sparse_tables_are_made_and_refused_like_full_ones(kind, weights, n, edges):
    """Of graphs in pieces, with loops, weights, directions and parallel edges, or none at all: the same table, error and warning."""
    graph = kind()
    graph.add_nodes_from(range(n))
    graph.add_weighted_edges_from((u, v, w) for u, v, w in edges if max(u, v) < n)
    one, other = (outcome(lambda sparse=sparse: gossip_matrix(graph, weights, sparse=sparse)) for sparse in (False, True))
    same(one, other)
    if isinstance(one[0], str): return
    np.testing.assert_allclose(one[0], by_definition(graph, weights), rtol=1e-12, atol=1e-15)
    assert bool(one[1]) == (not nx.is_connected(graph))
    check = [outcome(lambda W=W: check_gossip(W, graph, sparse=True)) for W in (one[0], csr_array(one[0]))]
    same(*check)
    off = nx.create_empty_copy(graph)
    same(*[outcome(lambda W=W: check_gossip(W, off, sparse=True)) for W in (one[0], csr_array(one[0]))])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(5, 8)), min_size=1, max_size=9), st.permutations(range(3)), st.sampled_from([" ", ",", "\t"]))
def test_edges_that_are_there_twice_or_reversed_are_one(edges, order, separator):
    """A file with all of them is the graph without them; one with weights in some lines, or arrows in one direction, is refused."""
    strange = [edges, [(v, u) for u, v in edges], [(u, u) for u, _ in edges]]
    lines = [separator.join(map(str, edge)) for kind in order for edge in strange[kind]]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mine.txt")
        with open(path, "w") as file: file.write("\n".join(lines))
        graph = read_graph(path)
        with open(path, "a") as file: file.write(separator.join(["\n0", "5", "0.5"]))
        with pytest.raises(ValueError, match="3 columns"): read_graph(path)
        arrows = nx.MultiDiGraph(edges * 2)
        nx.write_graphml(arrows, path := os.path.join(folder, "mine.graphml"))
        with pytest.raises(ValueError, match="goes one way"): read_graph(path)
        arrows.add_edges_from([(v, u) for u, v in edges])
        nx.write_graphml(arrows, path)
        directed = read_graph(path)
    clean = {frozenset(edge) for edge in edges}
    assert type(graph) is type(directed) is nx.Graph and {frozenset(edge) for edge in graph.edges} == clean
    assert {frozenset(map(int, edge)) for edge in directed.edges} == clean


@pytest.mark.filterwarnings("ignore:graph has")
def test_accounts_of_networks_in_pieces():
    """Out of reach is 0 in full and sparse tables alike, exactly; a node alone learns nothing."""
    graph = nx.disjoint_union_all([nx.path_graph(4), nx.cycle_graph(3), nx.empty_graph(1)])
    full, sparse = (dp_dsgd(gossip_matrix(graph, sparse=kind), 3) for kind in (False, True))
    for attacker in graph:
        one, other = (account(run, PNDP([attacker]), Participation.every_step(3)) for run in (full, sparse))
        piece = nx.node_connected_component(graph, attacker)
        for report in (one, other): assert all((mu > 0) == (v in piece) for v, mu in zip(report.victims, report.mu, strict=True))
        np.testing.assert_allclose(one.mu, other.mu, rtol=1e-9)
    same(*[outcome(lambda run=run: account(run, PNDP(["nobody"]), Participation.every_step(3))) for run in (full, sparse)])


@pytest.mark.parametrize("make", [dp_dsgd, lambda W, T: local_dsgd(W, T, 2), lambda W, T: muffliato(W, T, 2)], ids=["dp-dsgd", "local-dsgd", "muffliato"])
@pytest.mark.parametrize("trust", [PNDP([0]), PNDP([0, 2]), SecureSum([0]), SecureSum([0, 2]), SecLDP([0]), SecLDP([1], "received"), LDP()], ids=repr)
def test_attackers_of_sparse_tables(make, trust):
    """Also those who overhear nodes that are far away, in a long network."""
    graph = nx.path_graph(9)
    one, other = (account(make(gossip_matrix(graph, sparse=kind), 4), trust, Participation.every_step(4)) for kind in (False, True))
    assert one.victims == other.victims and one.mu.max() > 0
    np.testing.assert_allclose(one.mu, other.mu, rtol=1e-8, atol=1e-12)


def test_a_file_that_does_not_fit_is_refused_by_its_size(tmp_path, monkeypatch):
    path = tmp_path / "mine.csv"
    path.write_text("1,2\n2,3\n")
    assert len(read_graph(path)) == 3
    monkeypatch.setattr("mfdl.base.graph_files.READING", 1e12)
    monkeypatch.setattr("mfdl.base.graph_files.read_bytes", lambda _: pytest.fail("is read"))
    with pytest.raises(ValueError, match=r"path='.*mine.csv' has 8 bytes, which takes about 8e\+03 GB of .* GB; expected a smaller file"): load_graph(path)


def test_three_hundred_thousand_edges_take_not_much_longer_than_networkx_reads_them(tmp_path):
    """Read, made into weights, and checked, within three times its reader: computing time in one run, a second time if other work was in the way."""
    ends = np.random.default_rng(0).integers(0, 40_000, (300_000, 2))
    (tmp_path / "large.csv").write_text("".join(f"{u},{v}\n" for u, v in ends.tolist()))
    longer = []
    for _ in range(2):
        started = time.process_time()
        graph = load_graph(tmp_path / "large.csv")
        with warnings.catch_warnings(action="ignore"): W = gossip_matrix(graph)
        check_gossip(W, graph, sparse=True)
        ready = time.process_time()
        theirs = nx.read_edgelist(tmp_path / "large.csv", delimiter=",", nodetype=int)
        longer.append((ready - started) / (time.process_time() - ready))
        if longer[-1] < 3: break
    theirs.remove_edges_from(list(nx.selfloop_edges(theirs)))
    assert graph.number_of_edges() == theirs.number_of_edges() and W.nnz == len(graph) + 2 * graph.number_of_edges()
    assert min(longer) < 3


@pytest.mark.parametrize("name", ["ring:n=99999999999", "complete:n=999999", "grid:rows=99999,columns=99999", "erdos-renyi:n=1000000,p=0.5"])
def test_networks_that_do_not_fit_are_refused_before_they_are_made(name):
    with pytest.raises(ValueError, match=f"graph='{name}': [0-9]+ nodes, which takes about .* GB of .* GB; expected fewer of them"): load_graph(name)
