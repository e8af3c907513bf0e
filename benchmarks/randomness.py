"""Noise that resists a look at its last digits, against noise as it comes: drawing it, and training with it (Florentine families, digits)."""
import time

import matplotlib.pyplot as plt
import networkx as nx
from harness import ONE_THREAD, main
from torch import nn

from mfdl.ground.figures import PALETTE, STYLE
from mfdl.ground.randomness import draw_block
from mfdl.language.algorithms import dp_dsgd, mf_dsgd
from mfdl.language.gossip import gossip_matrix
from mfdl.language.participation import Participation
from mfdl.learning.data import cut, load_data, round_robin
from mfdl.learning.noise_sources import Run
from mfdl.learning.simulator import Simulation
from mfdl.noise.strategies import strategy

DIMENSIONS = (650, 10_000, 100_000)


def drawing(dimension, secure, numbers):
    draw_block(0, 0, dimension, secure)
    start, blocks, size = time.perf_counter(), 0, 0
    while size < numbers:
        size += draw_block(1, blocks, dimension, secure).size
        blocks += 1
    return (time.perf_counter() - start) / size * 1e9


def training(name, secure, T):
    graph, data = nx.florentine_families_graph(), load_data("digits")
    W, batches, scheme = gossip_matrix(graph), cut(round_robin(len(data.y), len(graph)), 4), Participation.cyclic(T // 4, 4)
    algorithm = dp_dsgd(W, T) if name == "DP-D-SGD" else mf_dsgd(W, T, strategy("mafalda", scheme, W).C)
    run = Run(name, algorithm, 0.05, secret=1, secure=secure)
    simulation = Simulation(lambda: nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), data, batches, [run], 0.1, 1.0)
    simulation.step()
    start = time.perf_counter()
    for _ in range(T - 1): simulation.step()
    return (time.perf_counter() - start) / (T - 1) * 1e3


def measure(what, secure, size): return {"time": training(what, secure, size) if isinstance(what, str) else drawing(what, secure, size)}


def cases(quick):
    for dimension in DIMENSIONS[:1] if quick else DIMENSIONS: yield from ((dimension, secure, 10**5 if quick else 10**7) for secure in (False, True))
    for name in ("DP-D-SGD", "MAFALDA"): yield from ((name, secure, 8 if quick else 80) for secure in (False, True))


def label(what): return f"train, {what}" if isinstance(what, str) else f"draw, d = {what:,}"


def ratios(table): return {label(what): float(rows[rows.secure].time.iloc[0] / rows[~rows.secure].time.iloc[0]) for what, rows in table.groupby("what", sort=False)}


def draw(table):
    found = ratios(table)
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
        ax.barh(list(found), list(found.values()), color=PALETTE["ours"])
        for y, value in enumerate(found.values()): ax.text(value, y, f" {value:.1f}", va="center")
        ax.axvline(1, color=PALETTE["ldp"], lw=0.8)
        ax.invert_yaxis()
        ax.set(xlabel="time, secure over fast", title="What it costs that last digits tell nothing")
    return fig


def report(table):
    return ["Time is in nanoseconds for a number drawn, and in milliseconds for a step of training (15 nodes, 9610 parameters).", "",
            *(f"- {what}: {ratio:.1f} times as long" for what, ratio in ratios(table).items())]


if __name__ == "__main__": main(__file__, __doc__, ("what", "secure", "size"), cases, measure, draw, report, ONE_THREAD)
