"""What noise with a memory needs and does: vectors that a node holds, time in a step, and harm."""
import time
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np
from harness import ONE_THREAD, main

from mfdl.base.figures import PALETTE, STYLE, method_name
from mfdl.noise.methods.strategies import STRATEGIES, strategy
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.graphs import load_graph
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.protocol.participation import Participation

KEPT = "kept"
AGAIN = "drawn again"
COLORS = {KEPT: PALETTE["ours"], AGAIN: PALETTE["squared"]}
QUICK = ("identity", "banded", "banded_inverse")


def peak(stream, dimension):
    "The most that a node holds at any time of a run, in vectors."
    tracemalloc.start()
    for _ in stream:
        pass
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return held / (8 * dimension)


def time_of_step(stream, steps):
    "Milliseconds of this process."
    start = time.process_time()
    for _ in stream:
        pass
    return 1000 * (time.process_time() - start) / steps


def measure(name, bands, how, k, b, dimension):
    W = gossip_matrix(load_graph("florentine"))
    scheme = Participation.cyclic(k, b)
    one = strategy(name, scheme, W, bands)
    run = one.protocol(W)
    seeds = deal_seeds(run, 1)[0]

    def stream():
        return NodeNoise(run, 0, seeds, dimension, regenerate=how == AGAIN)

    best = strategy("mafalda", scheme, W).objective
    independent = strategy("identity", scheme, W).objective
    return {
        "vectors": peak(stream(), dimension),
        "ms a step": time_of_step(stream(), run.T),
        "harm": one.objective / independent,
        "above MAFALDA": one.objective / best - 1,
    }


def numbers_of_bands(one, b, quick):
    if not one.banded: return (None,)
    tried = (2, 4) if one.inverse else (4, b)
    return tried[quick:]


def cases(quick):  # strategy, bands, how, k, b, dimension
    size = (3, 4, 100) if quick else (10, 10, 10_000)
    for name, one in STRATEGIES.items():
        if one.buffered or quick and name not in QUICK: continue  # buffers: see buffers.py
        for bands in numbers_of_bands(one, size[1], quick):
            for how in (KEPT, AGAIN) if one.inverse else (KEPT,):
                yield name, bands, how, *size


def label(row):
    name = method_name(row.strategy)
    if row.bands is None or np.isnan(row.bands): return name
    return f"{name}, {row.bands:.0f} bands"


def draw(table):
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(ncols=2, sharey=True, figsize=(9, 4.6), layout="constrained")
        shown = table[table.harm <= 1].sort_values("harm", ascending=False, kind="stable")
        names = list(dict.fromkeys(label(row) for row in shown.itertuples()))
        for how, color in COLORS.items():
            rows = shown[shown.how == how]
            places = [names.index(label(row)) for row in rows.itertuples()]
            axes[0].plot(rows.harm, places, "o", color=color)
            axes[1].plot(rows.vectors, places, "o", color=color, label=f"variables {how}")
        axes[0].set_yticks(range(len(names)), names)
        axes[0].set(title="Strategy and bands, Florentine graph", xlabel="harm / independent noise")
        axes[1].set(title="What a node holds", xscale="log", xlabel="vectors, at most")
        axes[1].legend(loc="lower right")
    return fig


def report(table):
    four = table[(table.bands == 4) & (table.how == KEPT)]
    for name, share in four.set_index("strategy")["above MAFALDA"].items():
        yield f"- four bands, {method_name(name)}: {share:.0%} more harm than MAFALDA"


if __name__ == "__main__":
    columns = ("strategy", "bands", "how", "k", "b", "dimension")
    main(__file__, __doc__, columns, cases, measure, draw, report, ONE_THREAD)
