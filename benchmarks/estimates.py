"""What an account is expected to take, and what it takes, by every way to find it."""
import resource
import time

import matplotlib.pyplot as plt
import numpy as np
from harness import ONE_THREAD, main

from mfdl import LDP, PNDP, Participation, account, dp_dsgd, gossip_matrix, load_graph
from mfdl.accounting.methods.ways import expected_work
from mfdl.base.figures import PALETTE, STYLE
from mfdl.tools.names import build_algorithm

COLUMNS = ("algorithm", "attacker", "graph", "k", "b")
NOTED = 1.0  # seconds from which an estimate matters


def peak():
    "Memory of this process at its highest, in GB."
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def load_late_imports():
    "A small account, so that nothing is loaded while time is taken."
    small = dp_dsgd(gossip_matrix(load_graph("ring:n=4")), 2)
    account(small, PNDP([0]), Participation.every_step(2))


def measure(algorithm, attacker, graph, k, b):
    "One attacker: the way, and seconds of this process and memory, expected and taken."
    network = load_graph(graph)
    records = Participation.cyclic(k, b)
    strategy = "mafalda" if algorithm == "mf-dsgd" else None
    W = gossip_matrix(network)
    run = build_algorithm(algorithm, W, k * b, strategy, network, records)
    trust = LDP() if attacker == "eavesdropper" else PNDP([next(iter(network))])
    load_late_imports()
    way, cost = expected_work(run, trust, records)
    expected = cost.seconds()
    before = peak()
    start = time.process_time()
    account(run, trust, records)
    seconds = time.process_time() - start
    return {
        "way": way, "expected": expected, "seconds": seconds, "ratio": expected / seconds,
        "expected GB": cost.memory / 1e9, "GB": peak() - before,
    }


def cases(quick):
    "Rows of COLUMNS."
    if quick:
        yield "dp-dsgd", "eavesdropper", "karate", 2, 3
        yield "dp-dsgd", "node", "karate", 2, 3
        yield "mf-dsgd", "eavesdropper", "florentine", 2, 3
        yield "space-time", "node", "florentine", 2, 3
        return
    yield "dp-dsgd", "eavesdropper", "facebook-414", 20, 100
    for b in (20, 40, 100):
        yield "dp-dsgd", "node", "facebook-414", 5, b
    yield "dp-dsgd", "node", "erdos-renyi:n=1000,p=0.01", 5, 100
    for k in (10, 20, 25):
        yield "mf-dsgd", "eavesdropper", "facebook-414", k, 16
    for b in (8, 12, 16):
        yield "mf-dsgd", "node", "karate", 5, b
    for b in (5, 8):
        yield "space-time", "node", "karate", 2, b
    for b in (4, 6):
        yield "zip-dl", "node", "karate", 5, b


def noted(table):
    "Rows in which an estimate matters."
    return table[table[["expected", "seconds"]].max(axis=1) >= NOTED]


def spread(ratios):
    "From the least to the largest, in words; a dash where there are none."
    return f"{ratios.min():.2g} to {ratios.max():.2g}" if len(ratios) else "-"


def draw(table):
    "Expected against taken, in seconds."
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
        colors = ("ours", "squared", "ldp", "as_plotted", "attacker")
        for color, (way, rows) in zip(colors, table.groupby("way", sort=False), strict=False):
            ax.plot(rows.seconds, rows.expected, "o", color=PALETTE[color], label=way)
        ends = np.array([table.seconds.min(), table.seconds.max()])
        ax.plot(ends, ends, "-", color="#888888")
        ax.fill_between(ends, ends / 3, ends * 3, color="#eeeeee", label="a factor of three")
        ax.set(xscale="log", yscale="log", xlabel="seconds taken", ylabel="seconds expected")
        ax.set_title(f"Expected over taken, from {NOTED:g} s on: {spread(noted(table).ratio)}")
        ax.legend()
    return fig


def report(table):
    "How far off estimates are where they matter."
    yield (f"- expected over taken, where either is above {NOTED:g} s: "
           f"{spread(noted(table).ratio)}")
    large = table[table.GB >= 0.1]
    yield f"- memory, above 0.1 GB: {spread(large['expected GB'] / large.GB)}"


if __name__ == "__main__":
    main(__file__, __doc__, COLUMNS, cases, measure, draw, report, ONE_THREAD)
