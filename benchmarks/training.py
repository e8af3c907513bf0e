"""Training: California Housing on the Florentine families, all nodes and runs together against a loop over nodes with Opacus; and a9a on social networks."""
import resource
import time

import matplotlib.pyplot as plt
import networkx as nx
import torch
from harness import main
from torch import nn

from mfdl import LDP, account
from mfdl.accounting.privacy import row_sensitivity
from mfdl.ground.figures import PALETTE, STYLE
from mfdl.language.algorithms import dp_dsgd, muffliato
from mfdl.language.gossip import gossip_matrix
from mfdl.language.graphs import SOCIAL, load_graph
from mfdl.learning.data import Dataset, cut, load_data, round_robin
from mfdl.learning.noise_sources import Run
from mfdl.learning.simulator import Simulation

CLIP, RATE, SCALE = 1.0, 0.1, 0.01
FAMILIES = ("Opacus loop", "mfdl")  # ways on the Florentine families; other cases are social networks


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


def network(name):
    if name in SOCIAL: return load_graph(name), load_data("a9a")
    X, y = torch.randn(4200, 3).numpy(), torch.arange(4200).numpy() % 2
    return nx.random_regular_graph(4, 2100, seed=0), Dataset("random", X, y, X[:10], y[:10])


def on_a_network(name, T, b):
    "A linear predictor at each node; epsilon = 10 at delta = 1e-6 for each record, against who hears everything."
    graph, data = network(name)
    n, W = len(graph), gossip_matrix(graph)
    batches = cut(round_robin(len(data.y) // n * n, n), b)
    algorithm = muffliato(W, T, 10)
    start = time.perf_counter()
    report = account(algorithm, LDP(), batches.participation(T // b)).calibrate(10, 1e-6)
    accounted = time.perf_counter() - start
    run = Run("Muffliato", algorithm, report.sigma * row_sensitivity(CLIP, batches.size, "replace-one"))
    simulation = Simulation(lambda: nn.Linear(data.X.shape[1], 2), data, batches, [run], 2.0, CLIP)
    start = time.perf_counter()
    while simulation.t < T: simulation.step()
    seconds, memory = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    each = simulation.test(1000)["accuracy"].mean()
    simulation.models = simulation.models.mean(0, keepdim=True)
    mean = simulation.test()["accuracy"].item()
    return {"seconds": seconds, "per run": seconds, "GB": memory, "per step": seconds / T, "account": accounted, "right": each, "right, mean": mean}


def measure(how, T, b, seeds):
    if how not in FAMILIES: return on_a_network(how, T, b)
    seconds = by_loop(T, b) if how == "Opacus loop" else by_mfdl(T, b, seeds)
    return {"seconds": seconds, "per run": seconds / seeds, "GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}


def cases(quick):  # how, T, b, seeds
    T, b = (320, 16) if not quick else (2, 2)
    if not quick: yield "Opacus loop", T, b, 1
    for seeds in (1, 5, 20) if not quick else (1, 2): yield "mfdl", T, b, seeds
    for name in ("lastfm-asia", "deezer-europe") if not quick else ("random regular",): yield name, 40 if not quick else 2, 1, 1


def draw(table):
    table = table[table.how.isin(FAMILIES)]
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
    for _, row in table[~table.how.isin(FAMILIES)].iterrows():
        yield f"- {row.how}: {row['per step']:.2g} s for a step with ten exchanges; {row.right:.1%} of test records right, {row['right, mean']:.1%} with the mean of all models"


if __name__ == "__main__": main(__file__, __doc__, ("how", "T", "b", "seeds"), cases, measure, draw, report)
