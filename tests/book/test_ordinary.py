"""What a user meets first, on ordinary graphs that no chapter uses: every answer is right, against a second derivation."""
import warnings
from io import StringIO
from itertools import product

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from ordinary import GRAPHS
from scipy.sparse import csr_array
from scipy.stats import norm
from torch import nn

from mfdl import LDP, PNDP, Participation, account, dp_dsgd, dsgd, gossip_matrix, mf_dsgd, noisy_gradients_account, strategy, train, which_noise
from mfdl.learning.data import Dataset
from mfdl.noise.which_noise import KINDS
from mfdl.tools.cli import app

WEIGHTS = ("metropolis", "uniform")
SCHEMES = {"cyclic:2,3": Participation.cyclic(2, 3), "every-step": Participation.every_step(6), "single": Participation.single(6)}
CASES = [
    pytest.param(graph, weights, scheme, id=f"{graph}, {weights}, {scheme}", marks=[pytest.mark.nightly] if i % 10 else [])
    for i, (weights, scheme, graph) in enumerate(product(WEIGHTS, SCHEMES, GRAPHS))
]
ordinary = pytest.mark.parametrize("graph, weights, scheme", CASES)
BUDGET = 3.0, 1e-5


def test_there_are_sixty_graphs():
    assert len(GRAPHS) == 60 and all(nx.is_connected(graph) for graph in GRAPHS.values())


def sent(W, added, T):
    """What all nodes send, step after step, as a map of what is added in all steps: x <- W (x + added)."""
    n = len(W)
    models, rows = np.zeros((n, n * T)), []
    for t in range(T):
        rows.append(models + np.eye(n, n * T, k=t * n))
        models = W @ rows[-1]
    return np.concatenate(rows) @ added


def between(W, N, scheme, victim, observer=None, all_heard=False):
    """Limits of mu: the squared sensitivity for the best of some signs, and with absolute values."""
    n, T = len(W), scheme.T
    hears = (W != 0) & ~np.eye(n, dtype=bool)
    at = np.flatnonzero(hears[observer]) if observer is not None else np.flatnonzero(hears.any(axis=0) | all_heard)
    rows = (np.arange(T)[:, None] * n + at).ravel()
    kept = [t * n + v for t in range(T) for v in range(n) if v != observer]  # what it did not add itself
    noise, gradient = sent(W, N, T)[rows], sent(W, np.eye(n * T), T)[rows]
    if observer is not None: noise = noise[:, [column for column in range(N.shape[1]) if (N[kept][:, column] != 0).any()]]
    U, s, _ = np.linalg.svd(noise, full_matrices=False)
    U, s = U[:, s > 1e-9 * s[0]], s[s > 1e-9 * s[0]]
    low = high = 0.0
    for pattern in scheme.patterns():
        G = gradient[:, [t * n + victim for t in pattern]]
        assert np.allclose(U @ (U.T @ G), G, atol=1e-7)  # no gradient is seen without noise
        seen = (U.T @ G) / s[:, None]
        P = seen.T @ seen
        signs = np.array(list(product((-1, 1), repeat=len(pattern))))
        low, high = max(low, np.einsum("si,ij,sj->s", signs, P, signs).max()), max(high, np.abs(P).sum())
    return low**0.5, high**0.5


def epsilon_of(mu, delta):
    """By bisection of the curve of Gaussian differential privacy."""
    def above(epsilon): return norm.cdf(mu / 2 - epsilon / mu) - np.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) > delta
    low, high = 0.0, 100.0
    for _ in range(60): low, high = ((low + high) / 2, high) if above((low + high) / 2) else (low, (low + high) / 2)
    return high


def left(W, N, T):
    """Squared error of all models after all steps."""
    n = len(W)
    models, total = np.zeros((n, N.shape[1])), 0.0
    for t in range(T):
        models = W @ (models + N[t * n:(t + 1) * n])
        total += (models**2).sum()
    return total


@ordinary
def test_which_noise_answers_and_its_numbers_are_those_of_the_noise(graph, weights, scheme):
    W, scheme = gossip_matrix(GRAPHS[graph], weights), SCHEMES[scheme]
    table = which_noise(W, scheme, *BUDGET)
    assert set(table.index) == set(KINDS) and not table.drop(columns="gap").isna().any(axis=None)
    assert ((table.gap >= 0) & (table.gap < 1e-2) | (table.index == "independent")).all()
    for name, row in table.iterrows():
        run = KINDS[name](W, scheme).protocol
        N = run.mix.N.toarray() * noisy_gradients_account(run, LDP(), scheme).calibrate(*BUDGET).sigma  # in units of the row sensitivity
        assert row.squared_error == pytest.approx(left(W, N, scheme.T), rel=1e-3)
        low, high = (max(side) for side in zip(*(between(W, N, scheme, u) for u in range(len(W))), strict=True))
        assert epsilon_of(low, BUDGET[1]) <= BUDGET[0] * (1 + 1e-5) and BUDGET[0] <= epsilon_of(high, BUDGET[1]) * (1 + 1e-3)
    best = table.squared_error * (1 - table.gap.fillna(0))
    assert best["space-time"] <= table.squared_error.min() * (1 + 1e-9) and best["mafalda"] <= table.squared_error["independent"] * (1 + 1e-9)
    assert best["space"] <= min(table.squared_error[["decor", "independent"]]) * (1 + 1e-9)


RING = np.roll(np.eye(5), 1, axis=1)
DIRECTED = {
    "ring": (np.eye(5) + RING) / 2, "shift": RING, "lazy": 0.999 * np.eye(5) + 0.001 * RING, "all take one": np.eye(5)[[0] * 5],
    "one is heard": np.eye(5) / 2 + np.eye(5)[[0] * 5] / 2, "one is not": np.vstack([np.full(5, 0.2), np.eye(5)[1:] / 2 + RING[:, [0, 2, 3, 4, 1]][1:] / 2]),
}


@pytest.mark.parametrize("scheme", SCHEMES.values(), ids=SCHEMES)
@pytest.mark.parametrize("W", DIRECTED.values(), ids=DIRECTED)
def test_which_noise_on_directed_networks(W, scheme):
    """Every record is protected as if its node were heard, and the error is that of the noise that this needs."""
    W = W / W.sum(axis=1, keepdims=True)
    table = which_noise(W, scheme, *BUDGET)
    for name, row in table.iterrows():
        run = KINDS[name](W, scheme).protocol
        N = run.mix.N.toarray() * noisy_gradients_account(run, LDP(), scheme).calibrate(*BUDGET).sigma
        assert row.squared_error == pytest.approx(left(W, N, scheme.T), rel=1e-3)
        heard = max(between(W, N, scheme, u)[0] for u in range(5))
        low, high = (max(side) for side in zip(*(between(W, N, scheme, u, all_heard=True) for u in range(5)), strict=True))
        assert heard <= low * (1 + 1e-9) and epsilon_of(low, BUDGET[1]) <= BUDGET[0] * (1 + 1e-5) and BUDGET[0] <= epsilon_of(high, BUDGET[1]) * (1 + 1e-3)
    assert table.squared_error["space-time"] * (1 - table.gap["space-time"]) <= table.squared_error.min() * (1 + 1e-9)


@ordinary
def test_accounts_lie_between_their_limits_whatever_the_nodes_are_called(graph, weights, scheme):
    graph, scheme = GRAPHS[graph], SCHEMES[scheme]
    W, n = gossip_matrix(graph, weights), len(graph)
    names = np.random.default_rng(n).permutation(n).tolist()  # labels that are positions of others
    C = strategy("mafalda", scheme, W).C
    for run, N in ((dp_dsgd(W, scheme.T, nodes=names), np.eye(n * scheme.T)), (mf_dsgd(W, scheme.T, C, nodes=names), np.kron(np.linalg.inv(C), np.eye(n)))):
        heard = account(run, LDP(), scheme).to_frame().set_index("victim").mu
        curious = account(run, PNDP([names[0]]), scheme).to_frame().set_index("victim").mu
        assert set(curious.index) == set(names[1:]) and (curious <= heard[curious.index] * (1 + 1e-9)).all()
        for u, name in enumerate(names):
            low, high = between(W, N, scheme, u)
            assert low * (1 - 1e-6) <= heard[name] <= high * (1 + 1e-6)
        for u, name in enumerate(names[1:], 1):
            low, high = between(W, N, scheme, u, observer=0)
            assert low * (1 - 1e-6) - 1e-7 <= curious[name] <= high * (1 + 1e-6) + 1e-7


@ordinary
def test_training_keeps_the_budget(graph, weights, scheme):
    graph, scheme = GRAPHS[graph], SCHEMES[scheme]
    n, rng = len(graph), np.random.default_rng(1)
    data = Dataset("random", rng.normal(size=(12 * n, 3)), rng.integers(2, size=12 * n), rng.normal(size=(5, 3)), np.array([0, 1, 0, 1, 0]))
    trained = train(lambda: nn.Linear(3, 2), data, gossip_matrix(graph, weights), *BUDGET, participation=Participation.cyclic(scheme.k, scheme.b), progress=False)
    assert trained.report.participation == scheme or scheme.k == 1
    W = gossip_matrix(graph, weights)
    C = strategy("mafalda", scheme, W).C
    N = np.kron(np.linalg.inv(C), np.eye(n)) * trained.report.sigma
    low, high = (max(side) for side in zip(*(between(W, N, scheme, u) for u in range(n)), strict=True))
    assert epsilon_of(low, BUDGET[1]) <= BUDGET[0] * (1 + 1e-6) and BUDGET[0] <= epsilon_of(high, BUDGET[1]) * (1 + 1e-3)
    assert np.isfinite(trained.history.value).all() and "(3, 1e-05)-differential privacy" in trained.statement


@ordinary
def test_the_command_line_says_the_same(graph, weights, scheme, tmp_path):
    order = np.random.default_rng(5).permutation(len(GRAPHS[graph])).tolist()
    named = nx.Graph([tuple(f"site {order[v]}" for v in edge) for edge in nx.convert_node_labels_to_integers(GRAPHS[graph]).edges])
    file = tmp_path / "links.csv"
    file.write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in named.edges))
    run = [str(file), "-w", weights, "-p", scheme, "-T", "6"]
    said = CliRunner().invoke(app, ["account", *run, "-t", "pndp", "--attackers", "site 0", "-o", str(tmp_path / "report.csv")])
    assert said.exit_code == 0, said.output
    W, scheme = gossip_matrix(named, weights), SCHEMES[scheme]
    here = account(dp_dsgd(W, 6, nodes=named), PNDP(["site 0"]), scheme).to_frame().set_index("victim").mu
    there = pd.read_csv(tmp_path / "report.csv").set_index("victim").mu
    assert dict(there) == pytest.approx(dict(here), rel=1e-9)
    table = which_noise(W, scheme, *BUDGET)
    said = CliRunner().invoke(app, ["which-noise", *run, "--epsilon", "3", "--delta", "1e-5"])
    assert said.exit_code == 0, said.output
    printed = pd.read_csv(StringIO("\n".join(said.output.splitlines()[:7])), sep=r"\s+")
    for column in ("squared_error", "relative"): assert dict(printed[column]) == pytest.approx(dict(table[column]), rel=1e-3)
    assert {line.partition(":")[0] for line in said.output.splitlines()[7:]} == set(table.index[table.note != ""])


def records(n, per=12):
    rng = np.random.default_rng(1)
    return Dataset("random", rng.normal(size=(per * n, 3)), rng.integers(2, size=per * n), rng.normal(size=(5, 3)), np.array([0, 1, 0, 1, 0]))


def linear(): return nn.Linear(3, 2)


SIX = Participation.cyclic(2, 3)


@pytest.mark.parametrize("graph", [nx.empty_graph(1), nx.empty_graph(3)], ids=["one node", "no links"])
def test_where_nobody_hears_anything_it_is_said(graph):
    """An eavesdropper learns nothing, so the budget asks for no noise; that is no protection of the models."""
    n = len(graph)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a graph in pieces
        W = gossip_matrix(graph)
        assert account(dp_dsgd(W, 6), LDP(), SIX).mu.tolist() == [0] * n
        for trust in [LDP()] if n == 1 else [PNDP([0])]:
            with pytest.raises(ValueError, match="calibrate: nothing ever comes to these attackers.*expected attackers who hear somebody"):
                account(dp_dsgd(W, 6), trust, SIX).calibrate(*BUDGET)
        with pytest.raises(ValueError, match="W: no node hears another.*expected the gossip matrix of a network with links"): which_noise(W, SIX, *BUDGET)
        for trust in (LDP(), *(PNDP([u]) for u in range(n) if n > 1)):
            with pytest.raises(ValueError, match="graph: nothing ever comes to these attackers.*expected attackers who hear somebody, or a network with links"):
                train(linear, records(n), graph, *BUDGET, participation=Participation.cyclic(2, 3), against=trust, progress=False)


def test_rows_agree_on_networks_in_pieces():
    """With the same noise in each piece as alone, and the worst record of all pieces at the budget."""
    pieces = nx.path_graph(3), nx.complete_graph(4)
    with pytest.warns(UserWarning, match="2 components"): W = gossip_matrix(nx.disjoint_union(*pieces))
    whole, (first, second) = which_noise(W, SIX, *BUDGET), (which_noise(gossip_matrix(piece), SIX, *BUDGET) for piece in pieces)
    for name in ("independent", "mafalda", "space-time"):
        assert whole.squared_error[name] == pytest.approx(first.squared_error[name] + second.squared_error[name], rel=5e-3)
    assert whole.squared_error["space"] <= (first.squared_error["space"] + second.squared_error["space"]) * (1 + 1e-3)


def test_sites_of_unequal_sizes_train_within_the_budget():
    sizes = 10, 3, 27, 17, 4
    holdings = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    data, graph = records(1, sum(sizes)), nx.cycle_graph(5)
    trained = train(linear, data, graph, *BUDGET, holdings=holdings, participation=Participation.cyclic(2, 3), progress=False)
    for u in range(5):
        taken = [set(trained.simulation.batches.index[u][t]) - {-1} for t in range(3)]
        assert set().union(*taken) == set(holdings[u]) and sum(map(len, taken)) == sizes[u]
    assert epsilon_of(trained.report.worst.mu, BUDGET[1]) == pytest.approx(BUDGET[0], rel=1e-6)


def test_gossip_matrices_of_other_types_are_taken_or_refused_in_words():
    W = gossip_matrix(nx.cycle_graph(5))
    usual = which_noise(W, SIX, *BUDGET)
    for same in (W.tolist(), pd.DataFrame(W)): np.testing.assert_allclose(which_noise(same, SIX, *BUDGET).squared_error, usual.squared_error, rtol=1e-9)
    with pytest.raises(ValueError, match="W is sparse.*expected a full matrix"): which_noise(csr_array(W), SIX, *BUDGET)
    single = W.astype(np.float32)
    said = r"row 0 sums to 1.0000000298, expected 1 .* in single precision needs W = numpy.asarray\(W, float\), then W / W.sum"
    with pytest.raises(ValueError, match=said): which_noise(single, SIX, *BUDGET)
    double = single.astype(float)
    np.testing.assert_allclose(which_noise(double / double.sum(axis=1, keepdims=True), SIX, *BUDGET).squared_error, usual.squared_error, rtol=1e-6)


def test_a_baseline_without_noise_is_named():
    W = gossip_matrix(nx.cycle_graph(5))
    with pytest.raises(ValueError, match=r"sigma=0: .*dsgd\(W, T\)"): account(dp_dsgd(W, 6), LDP(), SIX, sigma=0)
    assert np.isinf(account(dsgd(W, 6), LDP(), SIX).mu).all()
    with pytest.raises(ValueError, match="epsilon=inf: expected a finite number"): train(linear, records(5), nx.cycle_graph(5), np.inf, participation=SIX, progress=False)


@pytest.mark.parametrize("kind", KINDS)
def test_what_wins_in_the_table_is_trained_by_its_name(kind):
    graph = nx.relabel_nodes(nx.star_graph(4), dict(enumerate("badce")))
    W = gossip_matrix(graph)
    trained = train(linear, records(5), graph, *BUDGET, noise=kind, participation=Participation.cyclic(2, 3), adjacency="zero-out", progress=False)
    run = trained.simulation.runs[0].protocol
    assert which_noise(W, SIX, *BUDGET).squared_error[kind] == pytest.approx(left(W, run.mix.N.toarray() * trained.report.sigma, SIX.T), rel=1e-3)
    assert trained.simulation.runs[0].protocol.nodes == tuple(graph) and trained.report.attackers == ((),) * 5
