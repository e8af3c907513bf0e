"""Training on California Housing, Florentine families, T = 320: all nodes and runs together against a loop over nodes with Opacus."""
import resource
import time

import matplotlib.pyplot as plt
import networkx as nx
import torch
from harness import main
from torch import nn

from mfdl.ground.figures import PALETTE, STYLE
from mfdl.language.algorithms import dp_dsgd
from mfdl.language.gossip import gossip_matrix
from mfdl.learning.data import Dataset, cut, load_data, round_robin
from mfdl.learning.noise_sources import Run
from mfdl.learning.simulator import Simulation

CLIP, RATE, SCALE = 1.0, 0.1, 0.01


def perceptron(): return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))


def problem(T, b):
    try: data = load_data("housing")
    except FileNotFoundError: data = Dataset("random", torch.randn(16512, 8).numpy(), torch.randn(16512).numpy(), torch.randn(10, 8).numpy(), torch.randn(10).numpy())
    W = gossip_matrix(nx.florentine_families_graph(), "uniform")
    return data, W, cut(round_robin(len(data.y), len(W)), b)


def by_loop(T, b):
    "What a per-node script does: hooks that keep the gradient of every record, one node after the other."
    from opacus.grad_sample import GradSampleModule
    data, W, batches = problem(T, b)
    torch.manual_seed(0)
    first = perceptron()
    models = [GradSampleModule(perceptron()) for _ in W]
    for model in models: model.load_state_dict({f"_module.{name}": value for name, value in first.state_dict().items()})
    X, y, mixing = torch.as_tensor(data.X), torch.as_tensor(data.y), torch.as_tensor(W, dtype=torch.float32)
    start = time.perf_counter()
    for t in range(T):
        for u, model in enumerate(models):
            index = batches.at(t)[u]
            records = torch.as_tensor(index[index >= 0])
            ((model(X[records]).squeeze(-1) - y[records])**2).sum().backward()
            each = torch.cat([p.grad_sample.flatten(1) for p in model.parameters()], dim=1)
            change = (each * (CLIP / each.norm(dim=1)).clamp(max=1)[:, None]).sum(0) / batches.size
            change = change + SCALE * torch.randn(len(change))
            with torch.no_grad():
                flat = nn.utils.parameters_to_vector(model.parameters()) - RATE * change
                nn.utils.vector_to_parameters(flat, model.parameters())
            for p in model.parameters(): p.grad = p.grad_sample = None
        with torch.no_grad():
            mixed = mixing @ torch.stack([nn.utils.parameters_to_vector(model.parameters()) for model in models])
            for model, flat in zip(models, mixed, strict=True): nn.utils.vector_to_parameters(flat, model.parameters())
    return time.perf_counter() - start


def by_mfdl(T, b, seeds):
    data, W, batches = problem(T, b)
    algorithm = dp_dsgd(W, T)
    simulation = Simulation(perceptron, data, batches, [Run("DP-D-SGD", algorithm, SCALE, seed) for seed in range(seeds)], RATE, CLIP)
    start = time.perf_counter()
    while simulation.t < T: simulation.step()
    return time.perf_counter() - start


def measure(how, T, b, seeds):
    seconds = by_loop(T, b) if how == "Opacus loop" else by_mfdl(T, b, seeds)
    return {"seconds": seconds, "per run": seconds / seeds, "GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def cases(quick):  # how, T, b, seeds
    T, b = (320, 16) if not quick else (2, 2)
    if not quick: yield "Opacus loop", T, b, 1
    for seeds in (1, 5, 20) if not quick else (1, 2): yield "mfdl", T, b, seeds


def draw(table):
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
        colors = [PALETTE["squared"] if how == "Opacus loop" else PALETTE["ours"] for how in table.how]
        bars = ax.barh([f"{row.how}, {row.seeds} at once" for row in table.itertuples()], table["per run"], color=colors)
        ax.bar_label(bars, [f"{value:.2g} s" for value in table["per run"]], padding=3)
        ax.set(xscale="log", xlabel="seconds for one run of 320 steps", title="A run takes a fraction of a second")
        ax.invert_yaxis()
    return fig


def report(table):
    loop = table[table.how == "Opacus loop"]
    for row in table[table.how == "mfdl"].itertuples():
        if len(loop): yield f"- {row.seeds} at once: {loop.seconds.item() / row.seconds * row.seeds:.1f} times faster for each run than the loop"


if __name__ == "__main__": main(__file__, __doc__, ("how", "T", "b", "seeds"), cases, measure, draw, report)
