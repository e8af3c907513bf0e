"""Networks that change every week, and large or strange graphs: what is read, and what sparse and full tables make of it."""
import csv

import networkx as nx
import numpy as np
import pytest
import requests

from mfdl import PNDP, Participation, account, dp_dsgd, gossip_matrix
from mfdl.language.graphs import FEDIVERSE, fediverse, fediverse_weeks, load_graph
from mfdl.language.workloads import gossip_sequence

FOLLOWS = {  # of PeerTube servers, week by week: b follows c but not back, d comes and goes, and one server follows itself
    "20250203": ("abcd", "ab ba bc ca cd dd"), "20250210": ("abc", "ab ba bc cb"), "20250217": ("abcde", "ab ba cb bc cd dc ea"), "20250225": ("ab", "ab ba"),
}


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """What the package fedivertex keeps on a machine, in its layout: instances.csv and interactions.csv for each date."""
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
