"""Gossip over a network: time and volume of a step, with every rank a process on this machine."""
import multiprocessing
import os
import tempfile
import time

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from harness import ONE_THREAD, main

from mfdl.ground.figures import PALETTE, STYLE

ENVIRONMENT = {**ONE_THREAD, "GLOO_SOCKET_IFNAME": "lo"}
BAND = 8


def graph(name): return nx.florentine_families_graph() if name == "florentine" else nx.cycle_graph(int(name.removeprefix("ring ")))


def rank_main(rank, name, d, T, way, port, folder, answers):
    import torch.distributed as dist
    from torch import nn

    from mfdl.language.algorithms import mf_dsgd
    from mfdl.language.gossip import gossip_matrix
    from mfdl.language.streams import deal_seeds
    from mfdl.learning.data import Dataset, cut
    from mfdl.learning.noise_sources import Run
    from mfdl.workshop.distributed import Peer
    from mfdl.workshop.network import join

    class InTurn(Peer):
        "First the messages, then the noise."
        def exchange(self, k, routes, messages, meanwhile):
            got = super().exchange(k, routes, messages, lambda: None)
            meanwhile()
            return got

    W = gossip_matrix(graph(name))
    C = np.linalg.inv(sum(np.eye(T, k=-k) * 0.5**k for k in range(BAND)))  # noise of eight steps in each
    algorithm, rng = mf_dsgd(W, T, np.tril(C)), np.random.default_rng(rank)
    data = Dataset("random", rng.normal(size=(16, d - 1)), rng.normal(size=16), rng.normal(size=(1, d - 1)), np.zeros(1))
    with join(store=dist.TCPStore("127.0.0.1", port, is_master=False), rank=rank, size=len(W)) as network:
        seeds = {rank: deal_seeds(algorithm)[rank]}  # nobody shares noise, and used seeds are refused
        peer = (InTurn if way == "in turn" else Peer)(
            network, lambda: nn.Linear(d - 1, 1), data, cut([range(16)], 1), Run("run", algorithm, 0.1), seeds, 0.1, 1.0, folder=f"{folder}/{rank}" if way == "journal" else None)
        for _ in range(2): peer.step()
        start, sent = time.perf_counter(), peer.sent.copy()
        for _ in range(2, T): peer.step()
        answers.put((rank, (time.perf_counter() - start) / (T - 2), int((peer.sent - sent)[0]) / (T - 2)))
        network.write("measured", rank)
        network.read_all("measured")


def measure(name, d, T, way):
    import torch.distributed as dist
    context, store = multiprocessing.get_context("forkserver"), dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context.set_forkserver_preload(["__main__", "torch.distributed", "mfdl.workshop.distributed"])
    answers, nodes = context.Queue(), graph(name)
    with tempfile.TemporaryDirectory(dir=".") as folder:
        ranks = [context.Process(target=rank_main, args=(rank, name, d, T, way, store.port, folder, answers)) for rank in range(len(nodes))]
        for process in ranks: process.start()
        found = sorted(answers.get(timeout=600) for _ in ranks)
        for process in ranks: process.join()
    degrees = [degree for _, degree in nodes.degree]
    return {"ranks": len(nodes), "ms": 1e3 * float(np.median([seconds for _, seconds, _ in found])), "kB": [sent / 1e3 for *_, sent in found], "degrees": degrees}


def cases(quick):  # graph, parameters, steps, how
    if quick:
        yield "ring 2", 100, 4, "overlapped"
        yield "florentine", 100, 4, "journal"
        return
    for n in (2, 4, 8, 16):
        for d in (10**3, 10**4, 10**5, 10**6): yield f"ring {n}", d, 102 if d < 10**5 else 22 if d < 10**6 else 10, "overlapped"
    for d in (10**4, 10**5, 10**6):
        for way in ("in turn", "journal"): yield "ring 4", d, 102 if d < 10**5 else 22 if d < 10**6 else 10, way
    yield "florentine", 10**4, 102, "overlapped"


def draw(table):
    with plt.rc_context(STYLE):
        fig, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 3), layout="constrained", width_ratios=(1.2, 1, 1))
        rings = table[table.graph.str.startswith("ring") & (table.how == "overlapped")]
        shades = plt.get_cmap("viridis")(np.linspace(0, 0.85, rings.ranks.nunique()))
        for color, (ranks, part) in zip(shades, rings.groupby("ranks"), strict=True):
            left.plot(part.d, part.ms, marker="o", color=color)
            left.annotate(f"{ranks} ranks", (part.d.iloc[-1], part.ms.iloc[-1]), xytext=(6, -3), textcoords="offset points", color=color)
        left.set(xscale="log", yscale="log", xlabel="parameters $d$", ylabel="milliseconds a step", title=f"Rings of processes on {os.cpu_count()} cores")
        left.set_xlim(right=rings.d.max() * 8)
        for row in table[table.graph == "florentine"].itertuples():
            middle.scatter(row.degrees, row.kB, color=PALETTE["ours"])
            middle.axline((0, 0), slope=4 * row.d / 1e3, color=PALETTE["ldp"], lw=1)
            middle.set(xlabel="neighbours", ylabel="kB sent in a step", title=f"A node sends $4d$ bytes to each\n(Florentine families, $d$ = {row.d})")
        same = table[table.graph == "ring 4"]
        ways = (("in turn", "noise after the messages", "squared"), ("overlapped", "noise while they travel", "ours"), ("journal", "and with a journal", "as_plotted"))
        for k, (how, label, color) in enumerate(ways):
            part = same[(same.how == how) & (same.d >= 10**4)]
            right.bar(np.arange(len(part)) + 0.27 * (k - 1), part.ms, width=0.25, color=PALETTE[color], label=label)
        sizes = sorted(same[same.d >= 10**4].d.unique())
        right.set(xticks=range(len(sizes)), xticklabels=[f"$10^{int(np.log10(d))}$" for d in sizes], yscale="log")
        right.set(xlabel="parameters $d$", ylabel="milliseconds a step", title="Ring of 4: a journal costs little")
        right.legend(fontsize="small")
    return fig


def report(table):
    for d, part in table[table.graph == "ring 4"].groupby("d"):
        ms = part.set_index("how").ms
        if {"in turn", "journal"} <= set(ms.index):
            yield (f"- ring of 4, d = {d}: a step takes {ms['in turn']:.3g} ms with noise drawn after the messages, "
                   f"{ms['overlapped']:.3g} ms while they travel, {ms['journal']:.3g} ms with a journal")
    for row in table[table.graph == "florentine"].itertuples():
        ratio = np.array(row.kB) * 250 / row.d / row.degrees
        yield f"- Florentine families: bytes sent in a step over 4 d times degree: {ratio.min():.3f} to {ratio.max():.3f}"


if __name__ == "__main__": main(__file__, __doc__, ("graph", "d", "steps", "how"), cases, measure, draw, report, ENVIRONMENT)
