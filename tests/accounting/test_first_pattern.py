"""Runs whose steps are alike: the first pattern against the view of all messages, on networks and attackers that no chapter uses."""
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from mfdl import LDP, PNDP, Noise, Participation, Protocol, SecLDP, account, decor, dp_dsgd, exposure, gossip_matrix
from mfdl.accounting.account import account_by
from mfdl.accounting.lemma14 import decompose, view
from mfdl.accounting.methods import first_pattern as module
from mfdl.accounting.methods import ways
from mfdl.accounting.methods.state_space import state_space
from mfdl.accounting.sensitivity import worst_sensitivities
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.variants import muffliato

DIRECTED = np.array([[0.5, 0.3, 0.2, 0], [0, 0.6, 0.4, 0], [0.1, 0, 0.5, 0.4], [0.7, 0, 0, 0.3]])
NETWORKS = {
    "complete": gossip_matrix(nx.complete_graph(4)), "singular": np.ones((5, 5)) / 5, "ring": gossip_matrix(nx.cycle_graph(9)),
    "star": gossip_matrix(nx.star_graph(6)), "path": gossip_matrix(nx.path_graph(11), "uniform"), "directed": DIRECTED,
    "random": gossip_matrix(nx.gnp_random_graph(14, 0.4, seed=3), "uniform"), "identity": np.eye(4), "two": np.array([[0.9, 0.1], [0.1, 0.9]]),
}


def found_by(run, trust, scheme):
    """By the first pattern alone."""
    space = state_space(Attack(run, trust))
    assert module.all_alike(space)
    return module.first_pattern(module.as_seen(space), scheme.k, scheme.b).sensitivities(space.victims, scheme)


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("trust", [PNDP([0]), PNDP([1, 0]), SecLDP([1])], ids=str)
@pytest.mark.parametrize("name", NETWORKS)
def test_as_the_whole_view_says(name, trust, k):
    if name == "two" and trust == PNDP([1, 0]): return
    run, scheme = dp_dsgd(NETWORKS[name], 12), Participation.cyclic(k, 12 // k)
    expected = account_by("dense", run, trust, scheme).sensitivity
    np.testing.assert_allclose(found_by(run, trust, scheme), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("run", [muffliato(NETWORKS["ring"], 8, 3), decor(NETWORKS["random"], 8, 1.0, 2.0)], ids=["three exchanges", "secrets"])
def test_other_noise_and_exchanges(run):
    scheme, trust = Participation.cyclic(2, 4), PNDP([0])
    P = decompose(view(run, trust)).information(Attack(run, trust).victims)
    np.testing.assert_allclose(found_by(run, trust, scheme), worst_sensitivities(P, scheme), rtol=1e-9)


@pytest.mark.parametrize("change", ["noise", "a node rests", "weights"])
def test_steps_that_are_not_alike_are_left_to_others(change):
    """A single later step that differs is enough."""
    W = NETWORKS["ring"]
    if change == "weights": run = dp_dsgd([W] * 5 + [gossip_matrix(nx.complete_graph(9))], 6)
    else:
        plain = dp_dsgd(W, 6)
        one = plain.steps[4]
        trains = np.ones(9, dtype=bool)
        trains[3] = change == "noise"
        sizes = np.where(np.arange(9) == 3, 0.5, 1.0) if change == "noise" else np.ones(9)
        other = replace(one, trains=trains, noise=Noise(np.eye(9), np.diag(sizes)))
        run = Protocol(None, [*plain.steps[:4], other, plain.steps[5]])
    assert not module.all_alike(state_space(Attack(run, PNDP([0]))))


def test_a_slow_network_and_a_fast_one():
    """A long path forgets slowly and a random network fast; hundreds of steps, with all pairs of which one pass agrees."""
    for graph in (nx.path_graph(80), nx.random_regular_graph(4, 80, seed=1)):
        run, scheme = dp_dsgd(gossip_matrix(graph), 240), Participation.cyclic(6, 40)
        slow = account_by("streaming", run, PNDP([0]), scheme).sensitivity
        np.testing.assert_allclose(found_by(run, PNDP([0]), scheme), slow, rtol=1e-7, atol=1e-11)


def test_it_is_taken_where_rows_would_be_many(monkeypatch):
    """And says the same as they do; patterns of other steps are left to others."""
    run, trust, scheme = dp_dsgd(gossip_matrix(nx.gnp_random_graph(60, 0.5, seed=1)), 60), PNDP([0]), Participation.cyclic(6, 10)
    rows = account_by("seen", run, trust, scheme).sensitivity
    taken = []
    monkeypatch.setattr(ways, "_LONG", 1.0)
    monkeypatch.setattr(ways, "first_pattern", lambda *given: taken.append(given[1:]) or module.first_pattern(*given))
    np.testing.assert_allclose(account(run, trust, scheme).sensitivity, rows, rtol=1e-9)
    assert taken == [(6, 10)] and ways.expected_work(run, trust, scheme)[0] == "first pattern"
    for other in (Participation.min_sep(6, 10, 60), LDP()):
        if other == LDP(): account(run, other, scheme)
        else: account(run, trust, other)
    assert taken == [(6, 10)]


def test_a_smaller_recursion_that_shows_something_else_is_not_used(monkeypatch):
    """Directions that are lost are found out by comparing what both recursions show."""
    space = state_space(Attack(dp_dsgd(NETWORKS["random"], 12), PNDP([0])))
    whole = module.seen_directions
    monkeypatch.setattr(module, "seen_directions", lambda A, H, T: whole(A, H, T)[:, :-1])
    assert module.as_seen(space) is None


def test_many_attackers_share_threads(tmp_path):
    """In order, each as by itself, and resumed from a file."""
    run, scheme = dp_dsgd(NETWORKS["random"], 12), Participation.cyclic(3, 4)
    trusts = PNDP.each(run.nodes)
    together = exposure(run, trusts, scheme, results=tmp_path / "found")
    assert [line["attacker"] for line in together.lines] == [exposure(run, [one], scheme).lines[0]["attacker"] for one in trusts]
    for one, line in zip(trusts, together.lines, strict=True): assert exposure(run, [one], scheme).lines[0] == line
    again = exposure(run, trusts, scheme, results=tmp_path / "found")
    assert again.table.equals(together.table)
