"""Gossip over a network: time and volume of a step, with every rank a process on this machine."""
import multiprocessing
import os
import tempfile
import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main

from mfdl.base.figures import COLORMAPS, PALETTE, STYLE

ENVIRONMENT = {**ONE_THREAD, "GLOO_SOCKET_IFNAME": "lo"}
BAND = 8  # steps whose noise is in each step
WAYS = {  # way -> label, color
    "in turn": ("noise after the messages", "squared"),
    "overlapped": ("noise while they travel", "ours"),
    "journal": ("and with a journal", "as_plotted"),
}


def graph(name):
    "The Florentine families, or a ring of so many nodes."
    if name == "florentine":
        return nx.florentine_families_graph()
    return nx.cycle_graph(int(name.removeprefix("ring ")))


def peer_of(way):
    "The class of a node: one that draws noise while messages travel, or after them."
    from mfdl.tools.distributed import Peer

    class InTurn(Peer):
        "First the messages, then the noise."
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            swap = self.exchange.swap

            def in_turn(t, k, routes, messages, meanwhile):
                got = swap(t, k, routes, messages, lambda: None)
                meanwhile()
                return got

            self.exchange.swap = in_turn

    return InTurn if way == "in turn" else Peer


def algorithm_on(name, T):
    "Noise of eight steps in each."
    from mfdl.protocol.algorithms import mf_dsgd
    from mfdl.protocol.gossip import gossip_matrix
    strategy = np.linalg.inv(sum(np.eye(T, k=-k) * 0.5**k for k in range(BAND)))
    return mf_dsgd(gossip_matrix(graph(name)), T, np.tril(strategy))


def random_records(rank, d):
    "Sixteen, for a linear model of d parameters."
    from mfdl.learning.data import Dataset
    rng = np.random.default_rng(rank)
    X = rng.normal(size=(16, d - 1))
    y = rng.normal(size=16)
    return Dataset("random", X, y, rng.normal(size=(1, d - 1)), np.zeros(1))


def rank_main(rank, name, d, T, way, port, folder, answers):
    "A node: two steps to warm up, then steps that are timed; answers with their means."
    import torch.distributed as dist
    from torch import nn

    from mfdl.learning.data import cut
    from mfdl.learning.methods.noise_supply import Run
    from mfdl.protocol.methods.streams import deal_seeds
    from mfdl.tools.network import join

    algorithm = algorithm_on(name, T)
    store = dist.TCPStore("127.0.0.1", port, is_master=False)
    with join(store=store, rank=rank, size=algorithm.n) as network:
        peer = peer_of(way)(
            network, lambda: nn.Linear(d - 1, 1), random_records(rank, d), cut([range(16)], 1),
            Run("run", algorithm, 0.1), {rank: deal_seeds(algorithm)[rank]}, 0.1, 1.0,
            folder=f"{folder}/{rank}" if way == "journal" else None)
        for _ in range(2):
            peer.step()
        sent = peer.sent.copy()
        start = time.perf_counter()
        for _ in range(2, T):
            peer.step()
        seconds = time.perf_counter() - start
        answers.put((rank, seconds / (T - 2), int((peer.sent - sent)[0]) / (T - 2)))
        network.write("measured", rank)
        network.read_all("measured")


def measure(name, d, T, way):
    "Milliseconds of a step, and what each rank sends in it."
    import torch.distributed as dist
    nodes = graph(name)
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    preloaded = ["__main__", "torch.distributed", "mfdl.tools.distributed"]
    context.set_forkserver_preload(preloaded)
    answers = context.Queue()
    with tempfile.TemporaryDirectory(dir=".") as folder:
        given = name, d, T, way, store.port, folder, answers
        ranks = [context.Process(target=rank_main, args=(rank, *given))
                 for rank in range(len(nodes))]
        for process in ranks:
            process.start()
        found = sorted(answers.get(timeout=600) for _ in ranks)
        for process in ranks:
            process.join()
    return {
        "ranks": len(nodes), "ms": 1e3 * float(np.median([seconds for _, seconds, _ in found])),
        "kB": [sent / 1e3 for *_, sent in found], "degrees": [degree for _, degree in nodes.degree],
    }


def steps_for(d):
    "Fewer, the longer they take."
    if d < 10**5:
        return 102
    return 22 if d < 10**6 else 10


def cases(quick):
    "Graph, parameters, steps, way."
    if quick:
        yield "ring 2", 100, 4, "overlapped"
        yield "florentine", 100, 4, "journal"
        return
    for n in (2, 4, 8, 16):
        for d in (10**3, 10**4, 10**5, 10**6):
            yield f"ring {n}", d, steps_for(d), "overlapped"
    for d in (10**4, 10**5, 10**6):
        yield from (("ring 4", d, steps_for(d), way) for way in ("in turn", "journal"))
    yield "florentine", 10**4, 102, "overlapped"


def draw_rings(ax, table):
    "Time over parameters, for each number of ranks."
    rings = table[table.graph.str.startswith("ring") & (table.how == "overlapped")]
    shades = plt.get_cmap(COLORMAPS["more"])(np.linspace(0.5, 1, rings.ranks.nunique()))
    for color, (ranks, part) in zip(shades, rings.groupby("ranks"), strict=True):
        ax.plot(part.d, part.ms, marker="o", color=color)
        ax.annotate(f"{ranks} ranks", (part.d.iloc[-1], part.ms.iloc[-1]), color=color,
                    xytext=(6, -3), textcoords="offset points")
    ax.set(xscale="log", yscale="log", xlabel="parameters $d$", ylabel="milliseconds a step",
           title=f"Rings of processes on {os.cpu_count()} cores")
    ax.set_xlim(right=rings.d.max() * 8)


def draw_volume(ax, table):
    "What is sent, over the number of neighbours."
    for row in table[table.graph == "florentine"].itertuples():
        ax.scatter(row.degrees, row.kB, color=PALETTE["ours"])
        ax.axline((0, 0), slope=4 * row.d / 1e3, color=PALETTE["ldp"], lw=1)
        title = f"A node sends $4d$ bytes to each\n(Florentine families, $d$ = {row.d})"
        ax.set(xlabel="neighbours", ylabel="kB sent in a step", title=title)


def draw_ways(ax, table):
    "Bars for each way, side by side."
    same = table[(table.graph == "ring 4") & (table.d >= 10**4)]
    for k, (how, (label, color)) in enumerate(WAYS.items()):
        part = same[same.how == how]
        places = np.arange(len(part)) + 0.27 * (k - 1)
        ax.bar(places, part.ms, width=0.25, color=PALETTE[color], label=label)
    names = [f"$10^{int(np.log10(d))}$" for d in sorted(same.d.unique())]
    ax.set(xticks=range(len(names)), xticklabels=names, yscale="log", xlabel="parameters $d$",
           ylabel="milliseconds a step", title="A step of a ring of 4, in three ways")
    ax.legend(fontsize="small")


def draw(table):
    "Rings, volume and ways."
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(
            1, 3, figsize=(11, 3), layout="constrained", width_ratios=(1.2, 1, 1))
        for ax, part in zip(axes, (draw_rings, draw_volume, draw_ways), strict=True):
            part(ax, table)
    return fig


def report(table):
    "The three ways, and bytes over what they should be."
    for d, part in table[table.graph == "ring 4"].groupby("d"):
        ms = part.set_index("how").ms
        if set(WAYS) <= set(ms.index):
            yield (f"- ring of 4, d = {d}: a step takes {ms['in turn']:.3g} ms with noise drawn "
                   f"after the messages, {ms['overlapped']:.3g} ms while they travel, "
                   f"{ms['journal']:.3g} ms with a journal")
    for row in table[table.graph == "florentine"].itertuples():
        ratio = np.array(row.kB) * 250 / row.d / row.degrees
        yield ("- Florentine families: bytes sent in a step over 4 d times degree: "
               f"{ratio.min():.3f} to {ratio.max():.3f}")


if __name__ == "__main__":
    columns = ("graph", "d", "steps", "how")
    main(__file__, __doc__, columns, cases, measure, draw, report, ENVIRONMENT)
