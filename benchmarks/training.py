"""Training: California Housing against Opacus, torch.func and a loop written by hand, and a9a on networks."""
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
# ways on the Florentine families -> color
FAMILIES = {"Opacus loop": "squared", "torch.func.vmap": "squared", "ghost norms by hand": "squared", "mfdl": "ours"}


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


def together(T, b, seeds):
    "Records, weights of gossip, batches with masks, and parameters of all nodes and seeds, (nodes, seeds, d)."
    data, W, batches = problem(b)
    torch.manual_seed(0)
    theta = torch.stack([flat(perceptron()).detach() for _ in range(seeds)]).repeat(len(W), 1, 1)
    X, y = torch.as_tensor(data.X), torch.as_tensor(data.y)
    each = [batches.at(t) for t in range(b)]
    records = [torch.as_tensor(index.clip(0)) for index in each]
    masks = [torch.as_tensor(index >= 0, dtype=torch.float32) for index in each]
    return X, y, torch.as_tensor(W, dtype=torch.float32), records, masks, batches.size, theta


def by_vmap(T, b, seeds):
    "Seconds of all nodes and seeds together, with gradients of records by torch.func."
    from torch.func import functional_call, grad, vmap
    X, y, W, records, masks, size, theta = together(T, b, seeds)
    model = perceptron()
    shapes = {name: p.shape for name, p in model.named_parameters()}

    def loss(parameters, x, target):
        parts = parameters.split([shape.numel() for shape in shapes.values()])
        named = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return (functional_call(model, named, (x[None],)).squeeze() - target) ** 2

    def node(parameters, x, target, mask):
        each = vmap(grad(loss), (None, 0, 0))(parameters, x, target)
        return (each * ((CLIP / each.norm(dim=1)).clamp(max=1) * mask)[:, None]).sum(0) / size

    changes = vmap(vmap(node, (0, None, None, None)))
    start = time.perf_counter()
    with torch.no_grad():
        for t in range(T):
            at = records[t % b]
            change = changes(theta, X[at], y[at], masks[t % b])
            theta = theta - RATE * (change + SCALE * torch.randn_like(theta))
            theta = (W @ theta.flatten(1)).view_as(theta)
    return time.perf_counter() - start


def by_hand(T, b, seeds):
    "The same for this model alone: norms of gradients that are never formed, in single precision and without checks."
    X, y, W, records, masks, size, theta = together(T, b, seeds)
    n = len(W)
    start = time.perf_counter()
    with torch.no_grad():
        for t in range(T):
            x, target = X[records[t % b]], y[records[t % b]][:, None]  # (n, m, 8), (n, 1, m)
            first, bias, second, last = theta.split([64 * 8, 64, 64, 1], dim=-1)
            h = torch.bmm(first.reshape(n, seeds * 64, 8), x.mT).view(n, seeds, 64, -1).add_(bias[..., None]).relu_()
            out = (second[:, :, None] @ h)[:, :, 0] + last  # (n, seeds, m)
            error = 2 * (out - target)
            back = (second[..., None] * error[:, :, None]).mul_(h > 0)
            squares = error.square() * (h.square().sum(2) + 1) + back.square().sum(2) * (x.square().sum(-1) + 1)[:, None]
            factors = (CLIP / squares.sqrt()).clamp_(max=1).mul_(masks[t % b][:, None]).div_(size)
            error, back = error * factors, back.mul_(factors[:, :, None])
            inner = torch.bmm(back.flatten(1, 2), x).view(n, seeds, -1)
            change = torch.cat([inner, back.sum(-1), (h @ error[..., None])[..., 0], error.sum(-1, keepdim=True)], dim=-1)
            theta = theta - RATE * (change + SCALE * torch.randn_like(theta))
            theta = (W @ theta.flatten(1)).view_as(theta)
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
    ways = {"Opacus loop": lambda: by_loop(T, b), "torch.func.vmap": lambda: by_vmap(T, b, seeds), "ghost norms by hand": lambda: by_hand(T, b, seeds)}
    seconds = ways.get(how, lambda: by_mfdl(T, b, seeds))()
    return {"seconds": seconds, "per run": seconds / seeds, "GB": peak_memory()}


def cases(quick):
    "Way or network, steps, batches, seeds."
    if quick:
        yield from ((how, 2, 2, seeds) for how in ("mfdl", "torch.func.vmap", "ghost norms by hand") for seeds in (1, 2))
        yield "random regular", 2, 1, 1
        return
    yield "Opacus loop", 320, 16, 1
    yield from ((how, 320, 16, seeds) for how in ("torch.func.vmap", "ghost norms by hand", "mfdl") for seeds in (1, 5, 20))
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
    for row in table[table.how == "mfdl"].itertuples():
        others = table[table.how.isin(FAMILIES) & (table.how != "mfdl") & ((table.seeds == row.seeds) | (table.how == "Opacus loop"))]
        ratios = ", ".join(f"{row.seconds / row.seeds / other.seconds * other.seeds:.2g} of {other.how}" for other in others.itertuples())
        if ratios: yield f"- {row.seeds} at once, time for each run: {ratios}"
    for _, row in table[~table.how.isin(FAMILIES)].iterrows():
        yield (f"- {row.how}: {row['per step']:.2g} s for a step with ten exchanges; "
               f"{row.right:.1%} of test records right, {row['right, mean']:.1%} with the mean of "
               "all models")


if __name__ == "__main__":
    main(__file__, __doc__, ("how", "T", "b", "seeds"), cases, measure, draw, report)
