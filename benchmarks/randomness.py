"""Noise that resists a look at its last digits, against noise as it comes and torch.randn: drawing it, and training with it (Florentine families, digits)."""
import time

import matplotlib.pyplot as plt
import networkx as nx
import torch
from harness import ONE_THREAD, main
from torch import nn

from mfdl.base.figures import PALETTE, STYLE, method_name
from mfdl.base.randomness import draw_block
from mfdl.learning.data import cut, round_robin
from mfdl.learning.methods.data_sets import load_data
from mfdl.learning.methods.noise_supply import NoiseOfRuns, Run
from mfdl.learning.simulator import Simulation
from mfdl.noise.methods.strategies import strategy
from mfdl.protocol.algorithms import dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.participation import Participation

DIMENSIONS = (650, 10_000, 100_000)


def drawing(dimension, secure, numbers):
    draw_block(0, 0, dimension, secure)
    blocks = size = 0
    start = time.perf_counter()
    while size < numbers:
        size += draw_block(1, blocks, dimension, secure).size
        blocks += 1
    return (time.perf_counter() - start) / size * 1e9


def perceptron():
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def training(name, secure, T):
    graph = nx.florentine_families_graph()
    data = load_data("digits")
    W = gossip_matrix(graph)
    batches = cut(round_robin(len(data.y), len(graph)), 4)
    if name == "DP-D-SGD":
        algorithm = dp_dsgd(W, T)
    else:
        algorithm = mf_dsgd(W, T, strategy("mafalda", Participation.cyclic(T // 4, 4), W).C)
    run = Run(name, algorithm, 0.05, secret=1, secure=secure)
    simulation = Simulation(perceptron, data, batches, [run], 0.1, 1.0)
    simulation.step()
    start = time.perf_counter()
    for _ in range(T - 1):
        simulation.step()
    return (time.perf_counter() - start) / (T - 1) * 1e3


def supplying(what, secure, T):
    "All that the noise of a training takes, for a number: drawn, combined and added."
    W = gossip_matrix(nx.florentine_families_graph())
    run = Run(what, dp_dsgd(W, T), 0.05, secret=1)
    noise, change = NoiseOfRuns([run], 641, torch.device("cpu"), 1.0), torch.zeros(15, 1, 641)
    noise.add_to(change, 0)
    start = time.perf_counter()
    for t in range(1, T):
        noise.add_to(change, t)
    return (time.perf_counter() - start) / (T - 1) / change.numel() * 1e9


def by_torch(what, secure, numbers):
    dtype = torch.float64 if what.endswith("64") else torch.float32
    start = time.perf_counter()
    for _ in range(numbers // 10**4):
        torch.randn(10**4, dtype=dtype)
    return (time.perf_counter() - start) / numbers * 1e9


OTHERS = {"torch.randn, float64": by_torch, "torch.randn, float32": by_torch, "supply, 15 x 641": supplying}


def measure(what, secure, size):
    how = drawing if not isinstance(what, str) else OTHERS.get(what, training)
    return {"time": how(what, secure, size)}


def cases(quick):
    numbers, steps = (10**5, 8) if quick else (10**7, 80)
    for dimension in DIMENSIONS[:1] if quick else DIMENSIONS:
        yield from ((dimension, secure, numbers) for secure in (False, True))
    for name in ("DP-D-SGD", "MAFALDA"):
        yield from ((name, secure, steps) for secure in (False, True))
    yield from ((name, False, numbers if how is by_torch else 4 * steps) for name, how in OTHERS.items())


def label(what):
    return f"train, {method_name(what)}" if isinstance(what, str) else f"draw, d = {what:,}"


def ratios(table):
    table = table[~table.what.isin(OTHERS)]
    time = table.pivot(index="what", columns="secure", values="time")
    ratio = time[True] / time[False]
    return {label(what): float(ratio[what]) for what in table.what.unique()}


def draw(table):
    found = ratios(table)
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
        ax.barh(list(found), list(found.values()), color=PALETTE["ours"])
        for y, value in enumerate(found.values()):
            ax.text(value, y, f" {value:.1f}", va="center")
        ax.axvline(1, color=PALETTE["ldp"], lw=0.8)
        ax.invert_yaxis()
        ax.set(xlabel="time, secure over fast", title="What it costs that last digits tell nothing")
    return fig


def report(table):
    yield ("Time is in nanoseconds for a number drawn, "
           "and in milliseconds for a step of training (15 nodes, 9610 parameters).\n")
    for what, ratio in ratios(table).items():
        yield f"- {what}: {ratio:.1f} times as long"


if __name__ == "__main__":
    columns = ("what", "secure", "size")
    main(__file__, __doc__, columns, cases, measure, draw, report, ONE_THREAD)
