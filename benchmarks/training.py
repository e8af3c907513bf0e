"""Training: California Housing against a loop over nodes with Opacus, and a9a on networks."""
import time

import matplotlib.pyplot as plt
import networkx as nx
import torch
from harness import main, peak_memory
from torch import nn

from mfdl import LDP, account
from mfdl.accounting.gaussian_dp import row_sensitivity
from mfdl.base.figures import PALETTE, STYLE
from mfdl.learning.data import Dataset, cut, round_robin
from mfdl.learning.methods.data_sets import load_data
from mfdl.learning.methods.noise_supply import Run
from mfdl.learning.simulator import Simulation
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.graphs import SOCIAL, load_graph
from mfdl.protocol.methods.variants import muffliato

CLIP = 1.0
RATE = 0.1
SCALE = 0.01
FAMILIES = {"Opacus loop": "squared", "mfdl": "ours"}  # ways on the Florentine families -> color


def perceptron():
    "Of one hidden layer."
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))


def housing():
    "California Housing, or random numbers of its size."
    try:
        return load_data("housing")
    except FileNotFoundError:
        X = torch.randn(16512, 8).numpy()
        y = torch.randn(16512).numpy()
        return Dataset("random", X, y, torch.randn(10, 8).numpy(), torch.randn(10).numpy())


def problem(b):
    "Records, gossip weights and batches."
    data = housing()
    W = gossip_matrix(nx.florentine_families_graph(), "uniform")
    return data, W, cut(round_robin(len(data.y), len(W)), b)


def clipped(model, X, y, size):
    "The mean of clipped gradients of records, (d,), each of which a hook kept."
    ((model(X).squeeze(-1) - y) ** 2).sum().backward()
    each = torch.cat([p.grad_sample.flatten(1) for p in model.parameters()], dim=1)
    for p in model.parameters():
        p.grad = p.grad_sample = None
    return (each * (CLIP / each.norm(dim=1)).clamp(max=1)[:, None]).sum(0) / size


def flat(model):
    "All parameters, (d,)."
    return nn.utils.parameters_to_vector(model.parameters())


def put(model, parameters):
    "Into a model."
    nn.utils.vector_to_parameters(parameters, model.parameters())


def by_loop(T, b):
    "Seconds of what a per-node script does: one node after the other."
    from opacus.grad_sample import GradSampleModule
    data, W, batches = problem(b)
    torch.manual_seed(0)
    first = perceptron().state_dict()
    models = [GradSampleModule(perceptron()) for _ in W]
    for model in models:
        model.load_state_dict({f"_module.{name}": value for name, value in first.items()})
    X = torch.as_tensor(data.X)
    y = torch.as_tensor(data.y)
    mixing = torch.as_tensor(W, dtype=torch.float32)
    start = time.perf_counter()
    for t in range(T):
        for model, index in zip(models, batches.at(t), strict=True):
            records = torch.as_tensor(index[index >= 0])
            change = clipped(model, X[records], y[records], batches.size)
            change = change + SCALE * torch.randn(len(change))
            with torch.no_grad():
                put(model, flat(model) - RATE * change)
        with torch.no_grad():
            mixed = mixing @ torch.stack([flat(model) for model in models])
            for model, parameters in zip(models, mixed, strict=True):
                put(model, parameters)
    return time.perf_counter() - start


def seconds_of(simulation, T):
    "Until the last step."
    start = time.perf_counter()
    while simulation.t < T:
        simulation.step()
    return time.perf_counter() - start


def by_mfdl(T, b, seeds):
    "Seconds of all nodes and seeds together."
    data, W, batches = problem(b)
    algorithm = dp_dsgd(W, T)
    runs = [Run("DP-D-SGD", algorithm, SCALE, seed) for seed in range(seeds)]
    return seconds_of(Simulation(perceptron, data, batches, runs, RATE, CLIP), T)


def network(name):
    "A graph, and records for its nodes."
    if name in SOCIAL:
        return load_graph(name), load_data("a9a")
    X = torch.randn(4200, 3).numpy()
    y = torch.arange(4200).numpy() % 2
    return nx.random_regular_graph(4, 2100, seed=0), Dataset("random", X, y, X[:10], y[:10])


def on_a_network(name, T, b):
    """A linear predictor at each node.

    epsilon = 10 at delta = 1e-6 for each record, against who hears everything.
    """
    graph, data = network(name)
    n = len(graph)
    batches = cut(round_robin(len(data.y) // n * n, n), b)
    algorithm = muffliato(gossip_matrix(graph), T, 10)
    start = time.perf_counter()
    report = account(algorithm, LDP(), batches.participation(T // b)).calibrate(10, 1e-6)
    accounted = time.perf_counter() - start
    noise = report.sigma * row_sensitivity(CLIP, batches.size, "replace-one")
    runs = [Run("Muffliato", algorithm, noise)]
    simulation = Simulation(
        lambda: nn.Linear(data.X.shape[1], 2), data, batches, runs, 2.0, CLIP)
    seconds = seconds_of(simulation, T)
    memory = peak_memory()
    each = simulation.test(1000)["accuracy"].mean()
    simulation.learner.models = simulation.models.mean(0, keepdim=True)
    return {
        "seconds": seconds, "per run": seconds, "GB": memory, "per step": seconds / T,
        "account": accounted, "right": each, "right, mean": simulation.test()["accuracy"].item(),
    }


def measure(how, T, b, seeds):
    "Seconds and memory; on networks also what the models are worth."
    if how not in FAMILIES:
        return on_a_network(how, T, b)
    seconds = by_loop(T, b) if how == "Opacus loop" else by_mfdl(T, b, seeds)
    return {"seconds": seconds, "per run": seconds / seeds, "GB": peak_memory()}


def cases(quick):
    "Way or network, steps, batches, seeds."
    if quick:
        yield from (("mfdl", 2, 2, seeds) for seeds in (1, 2))
        yield "random regular", 2, 1, 1
        return
    yield "Opacus loop", 320, 16, 1
    yield from (("mfdl", 320, 16, seeds) for seeds in (1, 5, 20))
    yield from ((name, 40, 1, 1) for name in ("lastfm-asia", "deezer-europe"))


def draw(table):
    "Seconds of a run on the Florentine families."
    table = table[table.how.isin(FAMILIES)]
    names = [f"{row.how}, {row.seeds} at once" for row in table.itertuples()]
    colors = [PALETTE[FAMILIES[how]] for how in table.how]
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
        bars = ax.barh(names, table["per run"], color=colors)
        ax.bar_label(bars, [f"{value:.2g} s" for value in table["per run"]], padding=3)
        ax.set(xscale="log", xlabel="seconds for one run of 320 steps",
               title=f"From {table['per run'].min():.2g} s a run")
        ax.invert_yaxis()
        ax.minorticks_off()
    return fig


def report(table):
    "Ratios of one run, and what was learned on networks."
    loop = table[table.how == "Opacus loop"]
    for row in table[table.how == "mfdl"].itertuples():
        if len(loop):
            times = loop.seconds.item() / row.seconds * row.seeds
            yield f"- {row.seeds} at once: {times:.1f} times faster for each run than the loop"
    for _, row in table[~table.how.isin(FAMILIES)].iterrows():
        yield (f"- {row.how}: {row['per step']:.2g} s for a step with ten exchanges; "
               f"{row.right:.1%} of test records right, {row['right, mean']:.1%} with the mean of "
               "all models")


if __name__ == "__main__":
    main(__file__, __doc__, ("how", "T", "b", "seeds"), cases, measure, draw, report)
