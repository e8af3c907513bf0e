"""Accounts of one curious node in large networks: what is seen, the filter and the whole view."""
import resource
import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main

from mfdl.accounting.account import account_by
from mfdl.accounting.lemma14 import view
from mfdl.accounting.methods.all_attackers import exposure
from mfdl.accounting.methods.sparse_view import expected_cost, see
from mfdl.base.figures import PALETTE, STYLE
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.graphs import load_graph
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import PNDP

SOCIAL = {  # network -> steps, neighbours of the curious node
    "facebook": (50, 100), "lastfm-asia": (50, 20),
    "deezer-europe": (100, 20), "github-developers": (50, 50),
}
OTHERS = {  # route -> color, label
    "streaming": ("squared", "filter"), "dense": ("as_plotted", "whole view"),
    "sdp": ("ldp", "an SDP a victim, $T = 4$"),
}
ALL = "all attackers"
HEAD = ("Time in seconds with one thread, memory in GB beyond what was there before; records take "
        "part twice, in social networks five times. The graph is loaded beforehand.")


def network(what):
    "A random graph of so many nodes, or one that has a name."
    return nx.barabasi_albert_graph(what, 3, seed=0) if isinstance(what, int) else load_graph(what)


def by_semidefinite_program(K, moved):
    "Length of what a gradient moves, (s, 1), in the metric of the noise (s, s)."
    import cvxpy as cp
    bound = cp.Variable((1, 1), symmetric=True)
    joint = cp.bmat([[K, moved], [moved.T, bound]])
    problem = cp.Problem(cp.Minimize(bound[0, 0]), [joint >> 0])
    return np.sqrt(max(problem.solve(solver=cp.CLARABEL), 0))


def mu_by_programs(run, trust, scheme):
    "One program a victim, for records that take part from the first step on."
    seen = view(run, trust)
    K = seen.B @ seen.B.T
    starts = np.arange(0, run.T, scheme.b) * run.n
    return [by_semidefinite_program(K, seen.A[:, starts + u].sum(axis=1)[:, None])
            for u in seen.victims]


def peak_bytes():
    "Of this process, so far."
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_all(n, T, degree):
    "Every 25th node of a random regular graph as the attacker, scaled to all of them."
    run = dp_dsgd(gossip_matrix(nx.random_regular_graph(degree, n, seed=0)), T)
    scheme = Participation.cyclic(10, T // 10)
    before = peak_bytes()
    start = time.perf_counter()
    found = exposure(run, PNDP.each(run.nodes[::25]), scheme)
    took = time.perf_counter() - start
    return {
        "nodes": n, "edges": n * degree // 2, "neighbours": degree, "expected": np.nan,
        "time": took * n / len(found.lines), "memory": (peak_bytes() - before) / 1e9,
        "mean_mu": float(found.table["mean"].mean()),
    }


def measure(what, T, degree, route):
    """Gossip weights, account and report, without loading the graph.

    Records take part twice, in social networks five times, with all attackers ten times.
    """
    if route == ALL:
        return measure_all(what, T, degree)
    graph = network(what)
    curious = min(graph, key=lambda v: abs(graph.degree(v) - degree))
    k = 5 if what in SOCIAL else 2
    scheme = Participation.cyclic(k, T // k)
    trust = PNDP([curious])
    expected = np.nan
    before = peak_bytes()
    start = time.perf_counter()
    run = dp_dsgd(gossip_matrix(graph, sparse=route == "seen"), T, nodes=graph)
    if route == "seen":
        expected = expected_cost(see(Attack(run, trust)), scheme).seconds()
    if route == "sdp":
        mu = mu_by_programs(run, trust, scheme)
    else:
        mu = account_by(route, run, trust, scheme).mu
    took = time.perf_counter() - start
    return {
        "nodes": len(graph), "edges": graph.number_of_edges(), "neighbours": graph.degree(curious),
        "time": took, "expected": expected, "memory": (peak_bytes() - before) / 1e9,
        "mean_mu": float(np.mean(mu)),
    }


def cases(quick):
    "Network or number of nodes, steps, neighbours, route."
    if quick:
        yield from ((20, 4, 3, route) for route in ("seen", *OTHERS))
        yield 30, 10, 4, ALL
        return
    yield from ((n, 20, 10, "seen") for n in (1000, 3000, 10_000, 30_000, 100_000))
    yield 1_000_000, 10, 10, "seen"
    yield 1000, 500, 6, ALL
    yield from ((10_000, T, 10, "seen") for T in (10, 50, 100, 200))
    yield from ((10_000, 20, degree, "seen") for degree in (5, 20, 40, 80))
    yield from ((name, *size, "seen") for name, size in SOCIAL.items())
    yield from (("facebook-0", 200, degree, route)
                for degree in (17, 77) for route in ("auto", "streaming"))
    yield from ((n, 20, 10, "streaming") for n in (100, 300, 1000, 2000))
    yield from ((n, 20, 10, "dense") for n in (100, 200))
    yield from ((n, 20, 10, "seen") for n in (100, 300))
    yield from ((n, 4, 5, route) for n in (20, 40, 80) for route in ("seen", "sdp"))


def along(table, what):
    "Measurements where nothing but one thing grows."
    rows = table[(table.route == "seen") & ~table.what.isin(SOCIAL) & (table.nodes >= 1000)]
    if what != "nodes":
        rows = rows[rows.nodes == 10_000]
    if what != "T":
        rows = rows[rows["T"] == 20]
    if what != "neighbours":
        rows = rows[rows.neighbours.between(8, 12)]
    return rows.sort_values(what)


def last_exponent(rows, what):
    "Between the two largest."
    if len(rows) < 2:
        return np.nan
    grown = np.diff(np.log(rows[[what, "time"]].to_numpy(dtype=float)[-2:]), axis=0)[0]
    return grown[1] / grown[0]


def draw_others(ax, table):
    "The other routes, and social networks."
    for route, (color, label) in OTHERS.items():
        its = table[(table.route == route) & (table["T"] <= 20)]
        ax.loglog(its.nodes, its.time, "o-", color=PALETTE[color], label=label)
    social = table[table.what.isin(SOCIAL)]
    label = "social networks, $T \\geq 50$"
    ax.loglog(social.nodes, social.time, "D", color=PALETTE["attacker"], label=label)
    ax.legend(fontsize=7)


def draw(table):
    "Time along nodes, steps and neighbours."
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
        for ax, what in zip(axes, ("nodes", "T", "neighbours"), strict=True):
            rows = along(table, what)
            ax.loglog(rows[what], rows.time, "o-", color=PALETTE["ours"], label="from what is seen")
            if what == "nodes":
                draw_others(ax, table)
            ax.xaxis.set_minor_formatter("")
            exponent = last_exponent(rows, what)
            title = f"exponent at the end: {exponent:.1f}" if np.isfinite(exponent) else what
            ax.set(xlabel=what, title=title)
        axes[0].set_ylabel("seconds")
    return fig


def side_by_side(table, T, other):
    "Networks that were measured from what is seen and in another way, both as rows."
    same = table[table["T"] == T]
    for n, both in same.groupby("nodes"):
        rows = both.set_index("route")
        if {"seen", other} <= set(rows.index):
            yield n, rows.loc["seen"], rows.loc[other]


def report(table):
    "Exponents, and ratios of one run."
    yield HEAD
    yield ""
    for what in ("nodes", "T", "neighbours"):
        exponent = last_exponent(along(table, what), what)
        yield f"- exponent in {what}, between the two largest: {exponent:.2f}"
    slow = table[(table.route == "seen") & (table.time > 1)]
    found = slow.expected / slow.time
    if len(slow):
        yield ("- expected over measured time, where it is above one second: "
               f"{found.min():.2f} to {found.max():.2f}")
    for one in table[table.route == ALL].itertuples():
        yield (f"- all {one.nodes} attackers of {one.T} steps, each about all others: "
               f"{one.time / 60:.1f} minutes, from every 25th")
    for one in table[(table.route == "seen") & (table.nodes >= 10**6)].itertuples():
        yield (f"- a million nodes, {one.T} steps, one attacker with {one.neighbours} neighbours: "
               f"{one.time:.0f} s, {one.memory:.1f} GB")
    for degree, rows in table[table.what == "facebook-0"].groupby("neighbours"):
        took = rows.set_index("route").time
        yield (f"- facebook-0, 200 steps, an attacker with {degree} neighbours: "
               f"{took['auto']:.2f} s, {took['streaming'] / took['auto']:.0f} times as fast as one pass")
    for n, seen, filtered in side_by_side(table, 20, "streaming"):
        if n < 1000:
            yield f"- {n} nodes: the filter takes {filtered.time / seen.time:.1f} times as long"
    for n, seen, program in side_by_side(table, 4, "sdp"):
        error = abs(program.mean_mu / seen.mean_mu - 1)
        yield (f"- {n} nodes, 4 steps: a semidefinite program for each victim takes "
               f"{program.time / seen.time:.0f} times as long (means of mu agree to {error:.0e})")


if __name__ == "__main__":
    columns = ("what", "T", "degree", "route")
    main(__file__, __doc__, columns, cases, measure, draw, report, ONE_THREAD)
