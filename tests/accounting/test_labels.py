"""Nodes are named by labels in one place and counted by rows in another: every number is that of the same network in order."""
import itertools
import json
import math

import networkx as nx
import numpy as np
import pytest

from mfdl import account, train
from mfdl.accounting.methods.accountant import OnlineAccountant, restore, save
from mfdl.accounting.methods.all_attackers import exposure, share_beyond
from mfdl.accounting.methods.eavesdropper import independent, overheard
from mfdl.accounting.methods.lipschitz import Lipschitz
from mfdl.accounting.methods.report import in_short
from mfdl.accounting.methods.sparse_view import FromSeen, see
from mfdl.protocol.algorithms import decor, dp_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.steps import Noise, Round, Step, fresh_noise
from mfdl.protocol.methods.variants import anti_pgd, muffliato
from mfdl.protocol.participation import Participation
from mfdl.protocol.protocols import Protocol
from mfdl.protocol.threat_models import LDP, PNDP, SecLDP
from mfdl.tools.logs import MessageLog, read_log, write_log

LINKS = [(0, 1), (1, 2), (2, 3), (3, 4), (1, 4)]
ORDERS = [[3, 0, 1, 2, 4]]
NAMES = [["north", "d", "x + y", "Ü", "3"]]
LABELS = [*ORDERS, *NAMES]


def graph_of(labels):
    """The same network, its node v called labels[v]."""
    graph = nx.Graph()
    graph.add_nodes_from(labels)
    graph.add_edges_from((labels[u], labels[v]) for u, v in LINKS)
    return graph


def in_rows(report, labels):
    """mu by rows of attacker and victim."""
    place = {label: v for v, label in enumerate(labels)}
    pairs = zip(report.attackers, report.victims, report.mu, strict=True)
    return {(tuple(sorted(place[a] for a in attackers)), place[victim]): mu for attackers, victim, mu in pairs}


def same(found, expected):
    assert found.keys() == expected.keys()
    for pair, mu in expected.items(): assert found[pair] == pytest.approx(mu, rel=1e-9), pair


MAKERS = [dp_dsgd, lambda W, T, nodes: decor(W, T, nodes=nodes), lambda W, T, nodes: muffliato(W, T, 2, nodes), anti_pgd]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("labels", LABELS)
def test_accounts_of_a_relabelled_network(labels, make, tmp_path):
    W, T = gossip_matrix(graph_of(range(5))), 4
    assert np.array_equal(W, gossip_matrix(graph_of(labels)))
    plain, named, scheme = make(W, T, range(5)), make(W, T, labels), Participation.cyclic(2, 2)
    def attackers(names): return [*PNDP.each(names), PNDP([names[3], names[1]]), SecLDP([names[4], names[0]])]
    expected = in_rows(account(plain, attackers(range(5)), scheme), range(5))
    same(in_rows(account(named, attackers(labels), scheme), labels), expected)
    write_log(named, scheme, 1.0, tmp_path / "log")
    same(in_rows(read_log(tmp_path / "log").account(attackers(labels)), labels), expected)
    alone = exposure(named, attackers(labels)[:5], scheme, results=tmp_path / "kept")
    for v, line in enumerate(alone.lines): assert max(row["largest"] for row in line["rows"]) == pytest.approx(max(mu for (who, _), mu in expected.items() if who == (v,)))
    if make is anti_pgd: return
    for nodes in (None, labels):
        online = OnlineAccountant(attackers(labels), nodes=nodes, b=2)
        same(in_rows(online.feed(named), labels), expected)


@pytest.mark.parametrize("labels", LABELS)
def test_routes_count_rows_and_not_labels(labels):
    W, nodes = gossip_matrix(graph_of(range(5))), np.arange(5)
    for make in (dp_dsgd, anti_pgd):
        plain, named = make(W, 3, range(5)), make(W, 3, labels)
        for v in range(5):
            one, other = FromSeen(see(Attack(plain, PNDP([v])))), FromSeen(see(Attack(named, PNDP([labels[v]]))))
            np.testing.assert_array_equal(one.information(nodes[nodes != v]), other.information(nodes[nodes != v]))
        route = independent if make is dp_dsgd else overheard
        np.testing.assert_array_equal(route(Attack(plain, LDP())).information(nodes), route(Attack(named, LDP())).information(nodes))


def test_an_online_account_takes_the_labels_of_what_it_is_fed(tmp_path):
    """Without nodes= it took labels for rows: .986 about node 1, where the account says 2.449."""
    W, order = gossip_matrix(graph_of(ORDERS[0])), ORDERS[0]
    run = dp_dsgd(W, 6, order)
    online = OnlineAccountant(PNDP([3]))
    same(in_rows(online.feed(run), order), in_rows(account(run, PNDP([3]), Participation.every_step(6)), order))
    with pytest.raises(ValueError, match="of nodes"): online.feed(dp_dsgd(W, 1, [0, 1, 2, 3, 4]))
    with pytest.raises(ValueError, match="of nodes"): online.rounds_left(9.0, dp_dsgd(W, 1))
    saved = save(online, tmp_path / "kept.mfdl")
    again = restore(OnlineAccountant(PNDP([3])), saved)
    assert again.nodes == tuple(order)
    np.testing.assert_array_equal(again.feed(run).mu, online.feed(run).mu)
    with pytest.raises(ValueError, match="about other"): restore(OnlineAccountant(PNDP([3]), nodes=range(5)), saved)
    by_rows = OnlineAccountant(PNDP([3]))
    by_rows.feed(run.steps[0])
    with pytest.raises(ValueError, match="of nodes"): by_rows.feed(run)
    names = OnlineAccountant(PNDP(["north"]))
    assert names.rounds_left(1.5, dp_dsgd(W, 1, NAMES[0])) == OnlineAccountant(PNDP([0])).rounds_left(1.5, dp_dsgd(W, 1))


@pytest.mark.parametrize("updates", [None, Lipschitz(1.0)])
def test_an_online_report_ends_where_it_stands(updates):
    """b = 2, three steps, noise 1, 1/2, 1: a record of the second phase has taken part once, covered by 1/2. One more step would make sqrt(5)."""
    W = gossip_matrix(nx.path_graph(3))
    online = OnlineAccountant(SecLDP([0]), b=2, updates=updates)
    for size in (1.0, 0.5, 1.0):
        report = online.feed(Step(True, fresh_noise(size * np.eye(3)), [Round(W)]))
    np.testing.assert_allclose(report.mu, 2.0, rtol=1e-9)
    assert online.rounds_left(2.1) == 0 and online.rounds_left(2.3) >= 1


def test_a_promise_ends_where_the_run_stands():
    """b = 3, five steps: the third phase has taken part once. More participations can only cost more."""
    W = gossip_matrix(nx.path_graph(4))
    online, run, updates = OnlineAccountant(PNDP([0]), b=3, updates=Lipschitz(1.0)), dp_dsgd(W, 5), Lipschitz(1.0)
    mu = online.feed(run).mu
    until = account(run, PNDP([0]), Participation.min_sep(2, 2, 5), updates=updates).mu
    once = account(run, PNDP([0]), Participation.single(5), updates=updates).mu
    assert (mu <= until * (1 + 1e-6)).all() and (mu >= once * (1 - 1e-6)).all()


def test_noise_that_covers_nothing_is_counted_to_the_end():
    """A step whose gradients no noise covers, heard later: all steps are accounted for at once, up to the last and no further."""
    W, eye = gossip_matrix(nx.path_graph(3)), np.eye(3)
    bare, heard = Step(True, Noise.none(3), ()), Step(True, fresh_noise(0.5 * eye), [Round(W)])
    online = OnlineAccountant(PNDP([0]), b=2)
    for step in (bare, heard, bare): report = online.feed(step)
    whole = Protocol(None, [bare, heard, bare, Step(False, Noise.none(3), ())])
    same(in_rows(report, range(3)), in_rows(account(whole, PNDP([0]), Participation.cyclic(2, 2)), range(3)))


def test_a_node_is_no_coalition(tmp_path):
    """The node 'a + b' and the coalition of a and b shared a line in the file of results."""
    nodes, scheme = ["a + b", "c", "a", "b"], Participation.every_step(3)
    run = dp_dsgd(gossip_matrix(nx.path_graph(4)), 3, nodes)
    attackers = [PNDP(["a + b"]), PNDP(["a", "b"])]
    alone = [exposure(run, [one], scheme).table.largest.max() for one in attackers]
    together = exposure(run, attackers, scheme, results=tmp_path / "kept")
    found = together.table.groupby("attacker", sort=False).largest.max()
    np.testing.assert_allclose(found, alone)
    assert [exposure(run, [one], scheme, results=tmp_path / "kept").table.largest.max() for one in attackers] == alone
    with pytest.raises(ValueError, match="each attacker once"): exposure(run, [PNDP(["a", "b"]), PNDP(["b", "a"])], scheme)
    assert in_short(["a + b"]) != in_short(["a", "b"])


@pytest.mark.parametrize("size, drawn", [(1, 3), (2, 8), (3, 8)])
def test_a_sample_of_coalitions_is_compared_with_coalitions(size, drawn):
    """8 of 28 pairs of 8 nodes: nothing was said, because 8 attackers are not fewer than 8 nodes."""
    run, scheme = dp_dsgd(gossip_matrix(nx.cycle_graph(8)), 2), Participation.every_step(2)
    groups = list(itertools.combinations(range(8), size))
    text = repr(exposure(run, [PNDP(group) for group in groups[:drawn]], scheme))
    assert f"at most {share_beyond(drawn, math.comb(8, size)):.1%} of all" in text and ("coalitions" in text) == (size > 1)
    assert "promised" not in repr(exposure(run, [PNDP(group) for group in groups], scheme))
    mixed = repr(exposure(run, [PNDP([0]), PNDP([1, 2])], scheme))
    assert "nothing is promised" in mixed and "at random" not in mixed
    assert "promised" not in repr(exposure(run, [LDP()], scheme)).split("gradients: ")[1]


def log_of(path, noise):
    log = MessageLog(path, "abc", Participation.single(2), row_sensitivity=1.0)
    for terms in noise: log.step(True, terms, [[["a", "b", 0.5], ["b", "b", 0.5], ["b", "c", 0.5], ["c", "c", 0.5]]])
    return read_log(path)


def test_a_log_names_who_holds_a_variable_without_adding_it(tmp_path):
    """['c', 0, 'm']: c can draw m again, so that m hides nothing from it."""
    own = [[node, 1.0] for node in "bc"]
    first = [["a", 1.0, "m"], *own]
    secret = log_of(tmp_path / "secret", [first, [["a", 1.0], *own]]).account(PNDP(["c"]))
    for place in (0, 1):
        noise = [[*first], [["a", 1.0], *own]]
        noise[place].append(["c", 0, "m"])
        run = log_of(tmp_path / f"{place}", noise)
        assert run.protocol.variables.holders[0].tolist() == [True, False, True] and run.sigma == 1.0
        known = run.account(PNDP(["c"]))
        assert dict(zip(known.victims, known.mu, strict=True))["a"] > 1.1 * dict(zip(secret.victims, secret.mu, strict=True))["a"]
    nobody = log_of(tmp_path / "nobody", [[*first, ["c", 0, "never"]], [["a", 1.0], *own, ["c", 0]]])
    same(in_rows(nobody.account(PNDP(["c"])), "abc"), in_rows(secret, "abc"))
    assert json.loads((tmp_path / "nobody").read_text().splitlines()[1])["noise"][-1] == ["c", 0, "never"]


def test_promises_and_networks_that_change_name_their_nodes():
    """Absent nodes are named by label, constants are given by row."""
    graph, labels, scheme = graph_of(range(5)), NAMES[0], Participation.cyclic(2, 2)
    def absent(names): return [[names[1]], [], [names[0], names[3]], []]
    updates = Lipschitz([1.0, 1.2, 0.9, 1.1, 1.0])
    W = gossip_matrix(graph)
    plain, named = (dp_dsgd(W, 4, names, offline=absent(names)) for names in (range(5), labels))
    assert {step.digest for step in plain.steps} == {step.digest for step in named.steps}
    expected = in_rows(account(plain, PNDP.each(range(5)), scheme, updates=updates), range(5))
    same(in_rows(account(named, PNDP.each(labels), scheme, updates=updates), labels), expected)


@pytest.mark.parametrize("labels", LABELS)
def test_training_of_a_relabelled_network(labels):
    from torch import nn
    X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    options = {"epsilon": 8.0, "participation": Participation.cyclic(2, 2), "secret": 1, "progress": False, "noise": "independent"}
    plain, named = (train(lambda: nn.Linear(3, 1), (X, X[:, 0]), graph_of(names), against=[SecLDP([names[1]]), SecLDP([names[0], names[3]])], **options)
                    for names in (range(5), labels))
    assert named.simulation.runs[0].scale == pytest.approx(plain.simulation.runs[0].scale, rel=1e-12)
    same(in_rows(named.report, labels), in_rows(plain.report, range(5)))
