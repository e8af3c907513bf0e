"""The best weights of a network, and networks side by side: against another solver, no weights below the bound, the error and the guarantee of what is returned."""
import networkx as nx
import numpy as np
import pytest
from scipy.optimize import minimize

from mfdl import LDP, NotConverged, Participation, account, gossip_matrix, load_graph, local_gram, optimize_weights, which_network, which_noise

GRAPHS = {
    "pair": nx.path_graph(2), "K3": nx.complete_graph(3), "star": nx.star_graph(4), "ring": nx.cycle_graph(6), "path": nx.path_graph(5), "tree": nx.balanced_tree(2, 2),
    "two parts": nx.disjoint_union(nx.cycle_graph(3), nx.path_graph(3)), "names": nx.relabel_nodes(nx.path_graph(4), dict(enumerate("dacb"))),
    "loops": nx.Graph([(0, 1), (1, 1), (1, 2)]),
}


def matrix(graph, w):
    place = {node: i for i, node in enumerate(graph)}
    W = np.eye(len(graph))
    for (u, v), weight in zip([(u, v) for u, v in graph.edges if u != v], w, strict=True):
        i, j = place[u], place[v]
        W[[i, j], [j, i]] += weight
        W[[i, j], [i, j]] -= weight
    return W


def error(W, T): return sum((T + 1 - j) * np.trace(np.linalg.matrix_power(W, 2 * j)) for j in range(1, T + 1))


@pytest.mark.parametrize("T, k", [(1, 1), (6, 2), (30, 3)])
@pytest.mark.parametrize("name", GRAPHS)
def test_it_is_what_another_solver_finds(name, T, k):
    graph = GRAPHS[name]
    found = optimize_weights(graph, Participation.min_sep(k, 1, T))
    assert found.gap <= 1e-5 and found.nodes == tuple(graph)
    assert np.allclose(found.W, found.W.T) and np.allclose(found.W.sum(axis=1), 1, atol=1e-12) and (found.W >= 0).all()
    allowed = nx.to_numpy_array(graph, weight=None) + np.eye(len(graph))
    assert not found.W[allowed == 0].any()
    assert found.objective == pytest.approx(k * error(found.W, T), rel=1e-9) == k * np.trace(local_gram(found.W, T))
    edges = sum(u != v for u, v in graph.edges)
    room = {"type": "ineq", "fun": lambda w: np.diag(matrix(graph, w))}
    other = minimize(lambda w: error(matrix(graph, w), T), np.full(edges, 0.1), bounds=[(0, 1)] * edges, constraints=room, method="SLSQP", options={"ftol": 1e-12, "maxiter": 500})
    assert k * other.fun >= found.lower_bound * (1 - 1e-9) and found.objective <= k * other.fun * (1 + 1e-4)


@pytest.mark.parametrize("name", GRAPHS)
def test_no_weights_are_below_the_bound(name):
    graph, rng = GRAPHS[name], np.random.default_rng(3)
    found = optimize_weights(graph, Participation.every_step(8))
    edges = sum(u != v for u, v in graph.edges)
    for _ in range(200):
        W = matrix(graph, rng.exponential(size=edges))
        W = matrix(graph, rng.exponential(size=edges) / (1 + (1 - np.diag(W)).max() * rng.uniform(0.5, 2)))
        if np.diag(W).min() < 0: continue
        assert 8 * error(W, 8) >= found.lower_bound
    for weights in ("metropolis", "lazy"):
        try: W = gossip_matrix(graph, weights)
        except ValueError: continue
        assert 8 * error(W, 8) >= found.lower_bound


def test_the_guarantee_is_that_of_any_weights():
    graph, scheme = load_graph("florentine"), Participation.cyclic(2, 4)
    run = optimize_weights(graph, scheme).protocol()
    assert run.nodes == tuple(graph) and run.T == 8
    assert account(run, LDP(), scheme).worst.mu == pytest.approx(np.sqrt(2))


def test_forty_nodes_and_a_gap_that_cannot_be_closed():
    found = optimize_weights(nx.random_regular_graph(4, 40, seed=1), Participation.cyclic(5, 8))
    assert found.gap <= 1e-5
    with pytest.raises(NotConverged) as stopped: optimize_weights(nx.path_graph(5), Participation.every_step(9), tol=1e-16)
    assert stopped.value.best.gap < 1e-8


@pytest.mark.parametrize("graph, said", [
    (nx.DiGraph([(0, 1)]), "graph"), (nx.cycle_graph(3000), "nodes.2 . edges|for larger graphs"), ("ring", "graph"), (nx.Graph(), "no nodes"), (None, "graph"),
    (nx.MultiGraph([(0, 1), (0, 1)]), "parallel edges")])
def test_what_is_no_graph_is_refused(graph, said):
    with pytest.raises(ValueError, match=said): optimize_weights(graph, Participation.every_step(4))


@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("against", ["eavesdropper", "one insider"])
def test_networks_side_by_side_have_the_errors_of_their_own(n, against):
    scheme = Participation.cyclic(2, 3)
    table = which_network(n, scheme, 3.0, 1e-6, against)
    assert (table.best <= table.independent * (1 + 1e-9)).all() and table.best.is_monotonic_increasing and table.best.min() > 0
    assert table.messages["complete"] == n * (n - 1) and table.messages["star"] == 2 * (n - 1) and table.messages["one-peer exponential"] == n
    assert ("hypercube" in table.index) == (n == 8) and ("random regular" in table.index) == (n >= 6)
    W = optimize_weights(nx.star_graph(n - 1), scheme).W
    alone = which_noise(W, scheme, 3.0, 1e-6, against)
    assert table.independent["star"] == pytest.approx(alone.squared_error["independent"], rel=1e-6)
    assert table.best["star"] == pytest.approx(alone.squared_error[table.noise["star"]], rel=1e-4)


def test_a_network_of_your_own_is_compared():
    scheme = Participation.cyclic(2, 3)
    table = which_network(nx.relabel_nodes(nx.path_graph(4), dict(enumerate("dacb"))), scheme, 3.0, 1e-6, "one insider")
    assert table.messages["yours"] == 6 and {"complete", "hypercube"} < {*table.index}
    for wrong in (nx.DiGraph([(0, 1)]), "ring", 1.5, None):
        with pytest.raises(ValueError, match="sites="): which_network(wrong, scheme, 3.0, 1e-6)
