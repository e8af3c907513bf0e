"""Accounts of one curious node in large networks: from what is seen, against the filter and the whole view."""
import resource
import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main

from mfdl.accounting.account import account
from mfdl.accounting.seen import expected_cost, see
from mfdl.ground.figures import PALETTE, STYLE
from mfdl.language.algorithms import dp_dsgd
from mfdl.language.attackers import PNDP, view
from mfdl.language.gossip import gossip_matrix
from mfdl.language.graphs import load_graph
from mfdl.language.participation import Participation

SOCIAL = ("facebook", "lastfm-asia", "deezer-europe", "github-developers")


def network(what): return nx.barabasi_albert_graph(what, 3, seed=0) if isinstance(what, int) else load_graph(what)


def by_semidefinite_programs(run, trust, scheme):
    """Sensitivities of the records that take part from the first step on, a semidefinite program for each victim."""
    import cvxpy as cp
    seen = view(run, trust)
    K = seen.B @ seen.B.T
    found = []
    for u in seen.victims:
        moved = seen.A[:, [t * run.n + u for t in range(0, run.T, scheme.b)]].sum(axis=1)[:, None]
        bound = cp.Variable((1, 1), symmetric=True)
        problem = cp.Problem(cp.Minimize(bound[0, 0]), [cp.bmat([[K, moved], [moved.T, bound]]) >> 0])
        found.append(np.sqrt(max(problem.solve(solver=cp.CLARABEL), 0)))
    return np.array(found)


def measure(what, T, degree, route):
    """Gossip weights, account and report, without loading the graph; records take part twice, in social networks five times."""
    graph = network(what)
    curious = min(graph, key=lambda v: abs(graph.degree(v) - degree))
    k = 5 if what in SOCIAL else 2
    scheme = Participation.cyclic(k, T // k)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    run = dp_dsgd(gossip_matrix(graph, sparse=route == "seen"), T, nodes=graph)
    trust = PNDP([curious])
    expected = expected_cost(see(run, trust), scheme).seconds() if route == "seen" else np.nan
    mu = by_semidefinite_programs(run, trust, scheme) if route == "sdp" else account(run, trust, scheme, backend=route).mu
    took = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"nodes": len(graph), "edges": graph.number_of_edges(), "neighbours": graph.degree(curious), "time": took, "expected": expected,
            "memory": (after - before) * 1024 / 1e9, "mean_mu": float(np.mean(mu))}


def cases(quick):
    if quick:
        yield from ((20, 4, 3, route) for route in ("seen", "streaming", "dense", "sdp"))
        return
    for n in (1000, 3000, 10_000, 30_000, 100_000): yield n, 20, 10, "seen"
    for T in (10, 50, 100, 200): yield 10_000, T, 10, "seen"
    for degree in (5, 20, 40, 80): yield 10_000, 20, degree, "seen"
    for name, T, degree in (("facebook", 50, 100), ("lastfm-asia", 50, 20), ("deezer-europe", 100, 20), ("github-developers", 50, 50)): yield name, T, degree, "seen"
    for n in (100, 300, 1000, 2000): yield n, 20, 10, "streaming"
    for n in (100, 200): yield n, 20, 10, "dense"
    for n in (100, 300): yield n, 20, 10, "seen"
    for n in (20, 40, 80): yield from ((n, 4, 5, route) for route in ("seen", "sdp"))


def line(table, what):
    """Measurements along one direction, and the exponent of the larger half."""
    grown = table[(table.route == "seen") & table.what.map(lambda name: not isinstance(name, str))]
    fixed = {"nodes": (grown["T"] == 20) & grown.neighbours.between(8, 12), "T": (grown.nodes == 10_000) & grown.neighbours.between(8, 12),
             "neighbours": (grown.nodes == 10_000) & (grown["T"] == 20)}[what]
    rows = grown[fixed & (grown.nodes >= 1000)].sort_values(what)
    return rows, np.log(rows.time.iloc[-1] / rows.time.iloc[-2]) / np.log(rows[what].iloc[-1] / rows[what].iloc[-2]) if len(rows) > 1 else np.nan


def draw(table):
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
        for ax, what in zip(axes, ("nodes", "T", "neighbours"), strict=True):
            rows, exponent = line(table, what)
            ax.loglog(rows[what], rows.time, "o-", color=PALETTE["ours"], label="from what is seen")
            if what == "nodes":
                for route, color in (("streaming", "squared"), ("dense", "as_plotted"), ("sdp", "ldp")):
                    its = table[table.route == route]
                    ax.loglog(its.nodes, its.time, "o-", color=PALETTE[color], label={"streaming": "filter", "dense": "whole view", "sdp": "an SDP a victim, $T = 4$"}[route])
                social = table[table.what.isin(SOCIAL)]
                ax.loglog(social.nodes, social.time, "D", color=PALETTE["attacker"], label="social networks, $T \\geq 50$")
                ax.legend(fontsize=7)
            ax.xaxis.set_minor_formatter("")
            ax.set(xlabel=what, title=f"exponent at the end: {exponent:.1f}" if np.isfinite(exponent) else what)
        axes[0].set_ylabel("seconds")
    return fig


def report(table):
    seen = table[table.route == "seen"]
    found = seen.expected / seen.time
    slow = found[seen.time > 1]
    lines = ["Time in seconds with one thread, memory in GB beyond what was there before; records take part twice, in social networks five times. "
             "The graph is loaded beforehand.", "",
             *(f"- exponent in {what}, between the two largest: {line(table, what)[1]:.2f}" for what in ("nodes", "T", "neighbours"))]
    if len(slow): lines.append(f"- expected over measured time, where it is above one second: {slow.min():.2f} to {slow.max():.2f}")
    for n in (100, 300):
        both = table[(table.nodes == n) & (table["T"] == 20)].set_index("route").time
        if {"seen", "streaming"} <= set(both.index): lines.append(f"- {n} nodes: the filter takes {both.streaming / both.seen:.1f} times as long")
    for n in (20, 40, 80):
        both = table[(table.nodes == n) & (table["T"] == 4)].set_index("route")
        if {"seen", "sdp"} <= set(both.index):
            error = abs(both.mean_mu.sdp / both.mean_mu.seen - 1)
            longer = both.time.sdp / both.time.seen
            lines.append(f"- {n} nodes, 4 steps: a semidefinite program for each victim takes {longer:.0f} times as long (means of mu agree to {error:.0e})")
    return lines


if __name__ == "__main__": main(__file__, __doc__, ("what", "T", "degree", "route"), cases, measure, draw, report, ONE_THREAD)
