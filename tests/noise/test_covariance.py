"""Covariances between nodes: against values of CVXPY with Clarabel (reference_covariance.json), generic solvers, the account, and their own certificates."""
import json
import re
import subprocess
import sys

import cvxpy as cp
import networkx as nx
import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st

from mfdl import account
from mfdl.accounting.gaussian_dp import GaussianDP
from mfdl.noise.covariance import COVARIANCE_METHODS, optimize_covariance
from mfdl.noise.methods.coalitions import hidden_groups, optimize_coalition, seed_groups
from mfdl.noise.methods.covariance_budgets import CALIBRATIONS, privacy_constraint
from mfdl.noise.methods.objectives import Objective
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, SecLDP

REFERENCE = json.loads((ROOT / "tests" / "reference_covariance.json").read_text())
FAMILY = {"edges": "edges", "nbhd": "neighbourhoods", "loo": "leave-one-out", "cyc": "windows"}


def network(case):
    graph = nx.empty_graph(case["n"])
    graph.add_edges_from(case["edges"])
    return gossip_matrix(graph)


@pytest.mark.parametrize("method", ["corn", "decor", "ldp"])
def test_reference_values(method):
    for case in REFERENCE["cases"]:
        found = optimize_covariance(network(case), method=method)
        assert found.objective == pytest.approx(case[method], rel=1e-6)
        assert -1e-10 <= found.gap <= 1e-8


@pytest.mark.parametrize("case", REFERENCE["coalition"]["cases"], ids=lambda c: f"{c['groups']}-{c['m']}-{c['q']}")
def test_reference_values_of_coalitions(case):
    W = network(REFERENCE["coalition"])
    groups = [list(part) for part in np.array_split(np.arange(len(W)), case["m"])] if case["groups"] == "disjoint" else seed_groups(W, FAMILY[case["groups"]])
    found = optimize_coalition(W, groups, case["q"])
    assert found.objective == pytest.approx(case["objective"], rel=1e-6)
    assert -1e-9 <= found.gap <= 1e-6


def test_reference_values_of_constraints():
    for case in REFERENCE["constraint"]["cases"]:
        for name in CALIBRATIONS: assert privacy_constraint(case["epsilon"], 1e-5, 5000, 0.1, name) == pytest.approx(case[name], abs=6e-6)


@given(st.floats(0.01, 60), st.floats(1e-12, 0.1), st.integers(1, 10**4), st.floats(1e-3, 100))
def test_constraints_guarantee_what_they_promise(epsilon, delta, T, clip):
    c = {}
    for name in CALIBRATIONS:
        try: c[name] = privacy_constraint(epsilon, delta, T, clip, name)
        except ValueError: assert name == "paper" and epsilon > 8 * (1 - 2**-0.5) * np.log(1 / delta)
    for value in c.values(): assert GaussianDP(2 * clip * np.sqrt(T * value)).epsilon(delta) <= epsilon * (1 + 1e-9)
    assert c["rdp"] <= c["gdp"] * (1 + 1e-9) and c.get("paper", 0) <= c["rdp"] * (1 + 1e-9)
    log = np.log(1 / delta)
    mu = 2 * clip * np.sqrt(T * c["rdp"])
    assert mu**2 / 2 + mu * np.sqrt(2 * log) == pytest.approx(epsilon, rel=1e-9)


@st.composite
def networks(draw, largest=8):
    """Gossip matrices: symmetric, reversible, directed, of rank one, without gossip."""
    n, seed = draw(st.integers(1, largest)), draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    match draw(st.sampled_from(["metropolis", "uniform", "directed", "average", "identity"])):
        case "directed": return rng.dirichlet(np.full(n, 0.4), size=n)
        case "average": return np.full((n, n), 1 / n)
        case "identity": return np.eye(n)
        case weights: return gossip_matrix(nx.gnp_random_graph(n, draw(st.sampled_from([0.3, 0.7, 1.0])), seed=seed), weights)


@pytest.mark.filterwarnings("ignore:graph has")
@settings(deadline=None)
@given(networks(), st.data())
def test_optimum_is_private_certified_and_best(W, data):
    n, rng = len(W), np.random.default_rng(data.draw(st.integers(0, 2**31)))
    c, horizon = 10.0**rng.uniform(-2, 2, n), data.draw(st.sampled_from([1, 2, 15]))
    found = {method: optimize_covariance(W, c, horizon, method) for method in COVARIANCE_METHODS}
    for method in ("corn", "decor", "ldp"):
        R = found[method].R
        np.testing.assert_allclose(R, R.T, rtol=1e-12)
        assert (np.diag(np.linalg.inv(R)) <= c * (1 + 1e-8)).all()
        assert -1e-9 <= found[method].gap <= 1e-8 and np.trace(R) <= 1e4 * (1 / c).sum() * (1 + 1e-8)
        run = corn(W, 1, R)  # an eavesdropper on a network that forgets sees less
        assert account(run, LDP(), Participation.single(1)).mu.max()**2 <= c.max() * (1 + 1e-7)
    assert found["corn"].lower_bound <= found["decor"].objective * (1 + 1e-9) and found["decor"].lower_bound <= found["ldp"].objective * (1 + 1e-9)
    A = rng.normal(size=(n, n))
    other = A @ A.T + 1e-3 * np.eye(n)
    other *= (np.diag(np.linalg.inv(other)) / c).max()
    if np.trace(other) <= 1e4 * (1 / c).sum():
        powers = [np.linalg.matrix_power(W, k) for k in range(1, horizon + 1)]
        assert sum(np.trace(P @ other @ P.T) for P in powers) >= found["corn"].lower_bound * (1 - 1e-9)
    order = rng.permutation(n)
    again = optimize_covariance(W[np.ix_(order, order)], c[order], horizon)
    assert again.objective == pytest.approx(found["corn"].objective, rel=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_optimum_is_that_of_a_generic_solver(seed):
    rng = np.random.default_rng(seed)
    n = 5
    W, c = rng.dirichlet(np.ones(n), size=n) / 2 + np.eye(n) / 2, rng.uniform(0.5, 2, n)
    R, s, e = cp.Variable((n, n), symmetric=True), cp.Variable(nonneg=True), cp.Variable(nonneg=True)
    M = sum(np.linalg.matrix_power(W, k).T @ np.linalg.matrix_power(W, k) for k in (1, 2, 3))

    def solve(R): return cp.Problem(cp.Minimize(cp.trace(M @ R)), [cp.matrix_frac(np.eye(n)[i], R) <= c[i] for i in range(n)]).solve(solver=cp.CLARABEL)
    assert optimize_covariance(W, c, 3).objective == pytest.approx(solve(R), rel=1e-5)
    L = n * np.eye(n) - np.ones((n, n))  # every node hears every other
    assert optimize_covariance(W, c, 3, "decor").objective == pytest.approx(solve(s * np.diag(1 / c) + e * L), rel=1e-5)


def test_trusted_server_is_out_of_reach():
    W = gossip_matrix(nx.gnp_random_graph(12, 0.4, seed=3))
    found = {method: optimize_covariance(W, 2.0, method=method) for method in COVARIANCE_METHODS}
    assert found["cdp"].objective == pytest.approx(1 / (12 * 2.0)) and found["cdp"].objective < found["corn"].lower_bound
    assert account(corn(W, 1, found["cdp"].R), LDP(), Participation.single(1)).mu.min() == np.inf


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_coalitions_learn_no_more_than_the_account_says(data):
    n, seed = data.draw(st.integers(2, 5)), data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    W = rng.dirichlet(np.ones(n), size=n) / 2 + np.eye(n) / 2
    groups = [sorted(rng.choice(n, rng.integers(1, n + 1), replace=False).tolist()) for _ in range(data.draw(st.integers(0, 4)))]
    q, c = data.draw(st.integers(0, min(2, n - 1))), rng.uniform(0.3, 3, n)
    found = optimize_coalition(W, groups, q, c)
    run = corn(W, 1, *found.seeds)
    coalitions = [LDP()] + [SecLDP(list(map(int, rng.choice(n, size, replace=False)))) for size in range(1, q + 1) for _ in range(3)]
    for trust in coalitions:
        report = account(run, trust, Participation.single(1))
        assert (report.mu**2 <= c[list(report.victims)] * (1 + 1e-7)).all()
    parts = []
    for group in groups:
        A = rng.normal(size=(len(group), 2))
        part = np.zeros((n, n))
        part[np.ix_(group, group)] = A @ A.T
        parts.append(part)
    unknown = {hidden: np.eye(n) + sum((parts[k] for k in hidden), np.zeros((n, n))) for hidden in hidden_groups(groups, n, q)}
    worst = max((np.diag(np.linalg.inv(unknown[hidden])) / c)[protected].max() for hidden, protected in hidden_groups(groups, n, q).items())
    assert found.lower_bound <= np.trace(W @ (np.eye(n) + sum(parts, np.zeros((n, n)))) @ W.T) * worst * (1 + 1e-9)
    assert found.objective <= optimize_covariance(W, c.min(), method="ldp").objective * (1 + 1e-5)


def test_coalition_without_solver_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(ImportError, match=r"pip install 'mfdl\[sdp\]'"): optimize_coalition(np.eye(3), [[0, 1]], 0)


AGENT = """
import json, sys
import numpy as np
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.streams import NodeNoise
given = json.load(sys.stdin)
run = corn(np.array(given["W"]), given["T"], [np.array(R) for R in given["R"]], given["groups"])
seeds = {int(row): seed for row, seed in given["seeds"].items()}
print(json.dumps([step.tolist() for step in NodeNoise(run, given["node"], seeds, given["d"])]))
"""


def test_agents_in_processes_of_their_own_add_correlated_noise():
    """Each knows R, the groups, and its own seeds; none says a word. An agent whose seed is another one's, or missing, is out of step or stopped."""
    W, groups, T, d = gossip_matrix(nx.path_graph(4)), [[0, 1, 2], [1, 2, 3]], 3, 2
    found = optimize_coalition(W, groups, 0)
    R, groups = found.seeds
    run = corn(W, T, R, groups)
    seeds = deal_seeds(run, 5)

    def agent(node, held):
        given = {"W": W.tolist(), "T": T, "R": [Rk.tolist() for Rk in R], "groups": groups, "seeds": held, "node": node, "d": d}
        return subprocess.run([sys.executable, "-c", AGENT], input=json.dumps(given), capture_output=True, text=True)
    alone = np.array([json.loads(agent(node, seeds[node]).stdout) for node in range(4)])[:, :, 0]
    by_one = np.array([list(NodeNoise(run, node, seeds[node], d)) for node in range(4)])[:, :, 0]
    np.testing.assert_array_equal(alone, by_one)
    shared = set(seeds[0]) - set(seeds[3])
    assert shared and "lacks the seed" in agent(0, seeds[3]).stderr
    stranger = json.loads(agent(0, {row: seed + 1 for row, seed in seeds[0].items()}).stdout)
    assert not np.isclose(np.array(stranger)[:, 0], alone[0]).any()


def test_streams_of_groups_steps_and_runs_are_independent():
    W, R = np.full((3, 3), 1 / 3), np.eye(3) + 0.5
    run = corn(W, 200, [R, R], [[0, 1, 2], [0, 1, 2]])

    def noise(secret): return np.array([list(NodeNoise(run, node, seeds, 40)) for node, seeds in deal_seeds(run, secret).items()])[:, :, 0]
    first, other = noise(1), noise(2)
    assert np.unique(np.concatenate([first, other])).size == first.size + other.size
    within = np.einsum("itk,jtk->ij", first, first) / 8000
    np.testing.assert_allclose(within, 2 * R, atol=6 * 3 / np.sqrt(8000))
    for a, b in ((first[:, 1:], first[:, :-1]), (first, other)):
        np.testing.assert_allclose(np.einsum("itk,jtk->ij", a, b) / a[0].size, 0, atol=6 * 3 / np.sqrt(8000))


@pytest.mark.parametrize("n, bound", [(20, 10), (8, 10), (4, 2)])
def test_decor_is_the_optimum_of_a_complete_graph_up_to_the_bound_on_the_trace(n, bound):
    found, best = (optimize_covariance(np.full((n, n), 1 / n), method=method, bound=bound) for method in ("decor", "corn"))
    assert found.objective == pytest.approx(best.objective, rel=1e-9) and np.trace(found.R) == pytest.approx(bound * n, rel=1e-8)


@pytest.mark.parametrize("c", [1e-170, 2.6e-5, 1e8, 1e170])
def test_noise_is_inversely_proportional_to_budgets(c):
    W = gossip_matrix(nx.gnp_random_graph(6, 0.6, seed=1))
    for method in ("corn", "decor"): assert c * optimize_covariance(W, c, method=method).objective == pytest.approx(optimize_covariance(W, method=method).objective, rel=1e-8)
    groups = seed_groups(W, "windows")
    assert c * optimize_coalition(W, groups, 1, c).objective == pytest.approx(optimize_coalition(W, groups, 1).objective, rel=1e-6)


def test_bound_on_the_trace_wherever_it_falls():
    """Also where it is what one of the tried prices gives, to the last digit."""
    W = np.full((4, 4), 0.25)
    traces = [np.trace(optimize_covariance(W, bound=b).R) / 4 for b in (3.0, 11.0, 101.0)]
    for trace in traces: assert np.trace(optimize_covariance(W, bound=float(trace)).R) <= 4 * trace * (1 + 1e-8)


PATH = gossip_matrix(nx.path_graph(3))


@pytest.mark.parametrize("wrong, said", [
    (lambda: optimize_covariance(PATH[:2]), "W has shape (2, 3): expected a square matrix"),
    (lambda: optimize_covariance(PATH, c=0.0), "c=0: expected a positive, finite number"),
    (lambda: optimize_covariance(PATH, c=[1, -1, 1]), "c=-1 at node 1: expected a positive, finite number"),
    (lambda: optimize_covariance(PATH, c=[1, 1]), "c=[1, 1]: expected a number, or 3 of them, one for each node"),
    (lambda: optimize_covariance(PATH, horizon=0), "horizon=0 is a number of rounds: expected an integer >= 1"),
    (lambda: optimize_covariance(PATH, method="sdp"), "method='sdp' is not known: did you mean ldp or cdp?"),
    (lambda: optimize_covariance(PATH, bound=1), "bound=1: expected a finite number, at least 2"),
    (lambda: optimize_covariance(PATH, objective=Objective(momentum=0.9)), "objective: it does not say how many steps there are"),
    (lambda: optimize_covariance(PATH, horizon=2, objective=Objective.last(4)), "horizon=2: expected 1 with an objective, which has its steps"),
    (lambda: optimize_covariance(gossip_matrix(nx.cycle_graph(30_000))), "W is sparse, and this makes tables of all pairs of 30,000 nodes"),
    (lambda: privacy_constraint(40, 1e-5, 100, 1.0, "paper"), "epsilon=40: calibration 'paper' guarantees only"),
    (lambda: privacy_constraint(-1, 1e-5, 100, 1.0), "epsilon=-1: expected a positive, finite number"),
    (lambda: privacy_constraint(1, 0, 100, 1.0), "delta=0: expected a probability in (0, 1)"),
    (lambda: privacy_constraint(1, 1e-5, 100, 1e-200), "the constraint is out of the range of floating-point numbers"),
    (lambda: privacy_constraint(1, 1e-5, 0, 1.0), "T=0 is a number of steps: expected an integer >= 1"),
    (lambda: privacy_constraint(1, 1e-5, 10, 0.0), "clip=0.0: expected a positive, finite number"),
    (lambda: optimize_coalition(PATH, [[0, 1], []], 0), "groups[1]=[]: expected a list of at least one node"),
    (lambda: optimize_coalition(PATH, [[0, 10]], 0), "groups[0] names 10: expected nodes from 0 to 2"),
    (lambda: optimize_coalition(PATH, "edges", 0), "groups='edges': expected a list of groups"),
    (lambda: optimize_coalition(PATH, [[0, 1]], -1), "q=-1: expected a number of curious nodes from 0 to 2"),
    (lambda: optimize_coalition(PATH, [[0, 1]], 3), "q=3: expected a number of curious nodes from 0 to 2"),
    (lambda: optimize_coalition(PATH, [[0, 1]], 1, c=0), "c=0: expected a positive, finite number"),
    (lambda: seed_groups(PATH, "disjont"), "family='disjont' is not known: did you mean disjoint?"),
    (lambda: seed_groups(PATH, "edges", 3), "size=3: groups of 'edges' have sizes of their own"),
    (lambda: seed_groups(PATH, "windows", 4), "size=4: expected at most the number of nodes, 3"),
])
def test_what_is_refused(wrong, said):
    with pytest.raises(ValueError, match=re.escape(said)): wrong()
