"""Time, memory and gap of the best noise in time and space, as networks and runs grow."""
import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import main, peak_memory

from mfdl.base.figures import PALETTE, STYLE
from mfdl.noise.methods.objectives import Objective
from mfdl.noise.methods.spectral import optimize_space_time
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.graphs import load_graph
from mfdl.protocol.participation import Participation

COLORS = {"exact": PALETTE["squared"], "directions": PALETTE["ours"]}


def network(name):
    if not name.isdigit(): return load_graph(name)
    return nx.connected_watts_strogatz_graph(int(name), 4, 0.3, seed=0)


def last_model(T):  # under learning rates that fall to zero
    return Objective.last(T, learning_rates=np.arange(T, 0, -1) / T)


def measure(series, method, graph, weights, k, b, made_for, trace_penalty):
    W = gossip_matrix(network(graph), weights)
    scheme = Participation.cyclic(k, b)
    options = {"method": method, "trace_penalty": trace_penalty}
    if made_for == "last model":
        options["objective"] = last_model(scheme.T)
    start = time.perf_counter()
    cpu = time.process_time()
    best = optimize_space_time(W, scheme, tol=1e-4, **options)
    cost = {
        "seconds": time.perf_counter() - start, "cpu seconds": time.process_time() - cpu,
        "GB": peak_memory()}
    harm = best.objective / best.independent
    bound = best.lower_bound / best.independent
    return {"n": len(W), "T": scheme.T, **cost, "harm": harm, "bound": bound, "gap": best.gap}


def cases(quick):  # all columns but those that are measured
    for case in for_all_models(quick):
        yield *case, "all models", 1e-6
    for case in for_the_last_model(quick):
        yield *case, "last model", 1e-4


def for_all_models(quick):
    if quick:
        yield "nodes", "exact", "6", "metropolis", 2, 3
        yield "nodes", "directions", "6", "metropolis", 2, 3
        yield "steps", "directions", "6", "metropolis", 2, 3
        return
    for n in (10, 20, 40, 80, 160):
        yield "nodes", "directions", str(n), "metropolis", 5, 8
    for n in (10, 20, 40):
        yield "nodes", "exact", str(n), "metropolis", 5, 8
    for k in (5, 10, 20, 40):
        yield "steps", "directions", "40", "metropolis", k, 8
    for weights in ("metropolis", "uniform"):
        yield "records", "exact", "florentine", weights, 5, 8
        yield "records", "directions", "florentine", weights, 5, 8
        yield "records", "directions", "facebook-414", weights, 20, 16


def for_the_last_model(quick):
    yield "records", "directions", "florentine", "uniform", 5, 8
    if quick: return
    for weights in ("metropolis", "uniform"):
        yield "records", "directions", "facebook-414", weights, 10, 16


def draw(table):
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained", sharey=True)
        for method, color in COLORS.items():
            nodes = table[(table.series == "nodes") & (table.method == method)]
            axes[0].plot(nodes.n, nodes["cpu seconds"], "o-", color=color, label=method)
        steps = table[table.series == "steps"]
        axes[1].plot(steps["T"], steps["cpu seconds"], "o-", color=COLORS["directions"])
        largest = table[(table.series == "nodes") & (table.method == "directions")].iloc[-1]
        title = f"{largest.n} nodes in {largest['cpu seconds']:.1f} s"
        axes[0].set(xscale="log", yscale="log", title=title)
        axes[0].set(xlabel="nodes, 40 steps", ylabel="processor seconds")
        axes[1].set(xscale="log", xlabel="steps, 40 nodes")
        axes[0].legend()
    return fig


def report(table):
    yield "harm and bound are relative to independent noise; the bound is one for any noise.\n"
    for _, row in table[table.graph == "facebook-414"].iterrows():
        seconds = f"{row['cpu seconds']:.0f} processor seconds"
        found = f"{seconds}, harm {row.harm:.4f}, gap {row.gap:.1%}"
        what = f"{row.graph}, {row.weights}, for {row['made for']}"
        yield f"- {what}: n = {row.n}, T = {row['T']}, {found}"


if __name__ == "__main__":
    columns = ("series", "method", "graph", "weights", "k", "b", "made for", "trace penalty")
    main(__file__, __doc__, columns, cases, measure, draw, report)
