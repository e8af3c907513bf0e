"""Promises against insiders: time, memory and gap of plans, for all attackers of a network and for single pairs of large ones."""
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from harness import main, peak_memory
from scipy.sparse import coo_array, csr_array, diags_array

from mfdl import PNDP, Lipschitz, Participation, account, dp_dsgd, gossip_matrix, load_graph
from mfdl.accounting.methods.best_plans import best_plans
from mfdl.accounting.methods.paths import Paths
from mfdl.base.downloads import find_file
from mfdl.base.figures import PALETTE, STYLE

T = {"all attackers": 10, "pairs": 20}


def metropolis(edges: np.ndarray, n: int) -> csr_array:
    degree = np.bincount(edges.ravel(), minlength=n)
    weight = 1 / (1 + degree[edges].max(axis=1))
    ends = edges.T.ravel(), edges[:, ::-1].T.ravel()
    W = coo_array((np.tile(weight, 2), ends), shape=(n, n)).tocsr()
    return csr_array(W + diags_array(1 - W.sum(axis=1)))


def measure_all(graph, c):
    network = load_graph(graph)
    run = dp_dsgd(gossip_matrix(network), T["all attackers"], network)
    attackers = PNDP.each(network)
    start = time.perf_counter()
    report = account(run, attackers, Participation.single(run.T), updates=Lipschitz(c))
    seconds = time.perf_counter() - start
    return {"n": run.n, "pairs": len(report.mu), "seconds": seconds, "gap": report.gap}


def edges_of(graph):  # (edges, 2), and the number of nodes
    if graph.isdigit():
        n = int(graph)
        drawn = np.random.default_rng(0).integers(n, size=(3 * n, 2))
        edges = np.unique(np.sort(drawn, axis=1), axis=0)
    else:
        edges = pd.read_csv(find_file(f"social_graphs/{graph}.csv.gz")).to_numpy()[:, :2]
        n = int(edges.max()) + 1
    return edges[edges[:, 0] != edges[:, 1]], n


def measure_pairs(graph, c, victims=8):
    """A sparse network of which nothing is n x n.

    An attacker with six neighbours, and some of all victims.
    """
    W = metropolis(*edges_of(graph))
    n = W.shape[0]
    attacker = int(np.flatnonzero(np.diff(W.indptr) == 7)[0])
    steps = T["pairs"]
    strength = np.ones((steps, n))
    strength[:, attacker] = 0
    heard = np.zeros(n, dtype=bool)
    heard[W[[attacker]].indices] = True
    always = np.ones((steps, n), dtype=bool)
    paths = Paths([W] * steps, np.tile(heard, (steps, 1)), strength, always, np.ones(steps))
    some = np.random.default_rng(1).permutation(np.flatnonzero(~heard))[:victims]
    new = np.zeros((steps, n, victims))
    new[0, some, np.arange(victims)] = 1
    start = time.perf_counter()
    _, cost, bound = best_plans(paths, np.full(n, c), new, tol=0.01)
    seconds = time.perf_counter() - start
    return {"n": n, "pairs": victims, "seconds": seconds, "gap": float((1 - bound / cost).max())}


def measure(series, graph, c):
    how = measure_all if series == "all attackers" else measure_pairs
    found = how(graph, c)
    return found | {"seconds a pair": found["seconds"] / found["pairs"], "GB": peak_memory()}


def cases(quick):  # series, graph, c
    if quick:
        yield from (("all attackers", "florentine", 1.0), ("pairs", "300", 1.0))
        return
    for graph in ("florentine", "karate", "facebook-414"):
        yield "all attackers", graph, 1.0
    yield "all attackers", "facebook-414", 0.9
    for n in (1000, 3000, 10000, 30000):
        yield "pairs", str(n), 1.0
    yield "pairs", "deezer_europe", 1.0


def draw(table):
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
        for series, color in (("all attackers", PALETTE["ours"]), ("pairs", PALETTE["squared"])):
            shown = table[table.series == series].sort_values("n")
            label = f"{series}, {T[series]} steps"
            ax.plot(shown.n, shown["seconds a pair"], "o", color=color, label=label)
        largest = table.loc[table.n.idxmax()]
        seconds = f"{largest['seconds a pair']:.1f} s"
        title = f"A promise for a pair among {largest.n:,} nodes takes {seconds}"
        ax.set(xscale="log", yscale="log", xlabel="nodes", ylabel="seconds a pair", title=title)
        ax.legend()
    return fig


def report(table):
    yield "Gaps are relative, of the squared sensitivity from that of the best plan.\n"
    for _, row in table[table.graph.isin(["facebook-414", "deezer_europe"])].iterrows():
        cost = f"{row.pairs} pairs in {row.seconds:.1f} s, gap {row.gap:.2%}, {row.GB:.2f} GB"
        yield f"- {row.graph}, {row.series}, c = {row.c:g}: n = {row.n}, {cost}"


if __name__ == "__main__":
    columns = ("series", "graph", "c")
    main(__file__, __doc__, columns, cases, measure, draw, report)
