"""The noise of a given secret under every algorithm: its digests, node by node and step by step, and the models of five steps."""
import hashlib

import networkx as nx
import numpy as np
from golden_features import outcome
from inner import Batches, Dataset, NodeNoise, Run, Simulation, deal_seeds, noise_sources
from scipy.sparse import csr_array

from mfdl import (
    LDP,
    PNDP,
    Noise,
    Participation,
    Protocol,
    Round,
    Schedule,
    ScheduledProtocol,
    Step,
    anti_pgd,
    corn,
    decor,
    dp_dsgd,
    dsgd,
    gossip_matrix,
    local_dsgd,
    mf_dsgd,
    muffliato,
    random_walk,
    train,
    zip_dl,
)

GRAPH = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2)])
T, D, SECRET = 5, 3, 20261127
N = len(GRAPH)


def runs():
    """A run of each algorithm, by name."""
    rng = np.random.default_rng(16)
    W = gossip_matrix(GRAPH)
    sparse, M, lower = csr_array(W), rng.normal(size=(N, N)), np.tril(rng.uniform(-0.4, 0.4, (T, T)), -1) + np.diag(rng.uniform(0.5, 1.5, T))
    banded, covariance = np.eye(T) + 0.5 * np.eye(T, k=-1), M @ M.T + np.eye(N)
    groups = [[0, 1, 2], [2, 3, 4]]
    inside = [np.where(np.outer(*2 * [np.isin(np.arange(N), group)]), covariance, 0.0) for group in groups]
    holders = np.ones((N, N), dtype=bool)
    first, later = Noise(holders, np.eye(N), basis=M), Noise(holders, np.hstack([-0.5 * np.eye(N), np.eye(N)]), basis=M)
    return {
        "dsgd": dsgd(W, T), "dp_dsgd": dp_dsgd(W, T), "dp_dsgd of some": dp_dsgd(W, T, trains=0.6, offline=0.2), "dp_dsgd, sparse": dp_dsgd(sparse, T),
        "dp_dsgd, changing": dp_dsgd([W, W @ W] * 2 + [W], T), "muffliato": muffliato(W, T, 2), "anti_pgd": anti_pgd(W, T), "anti_pgd, sparse": anti_pgd(sparse, T),
        "mf_dsgd": mf_dsgd(W, T, lower), "mf_dsgd, banded": mf_dsgd(W, T, banded), "mf_dsgd, banded, sparse": mf_dsgd(sparse, T, banded),
        "mf_dsgd, banded inverse": mf_dsgd(W, T, np.linalg.inv(banded)), "mf_dsgd, one each": mf_dsgd(W, T, [banded * (1 + u) for u in range(N)]),
        "decor": decor(W, T, 0.5, 2.0), "decor, directed": decor(W, T, 0.5, 2.0, nx.DiGraph([(1, 0), (2, 1), (2, 3)])), "corn": corn(W, T, covariance),
        "corn, singular": corn(W, T, M[:, :2] @ M[:, :2].T), "corn, groups": corn(W, T, inside, groups), "zip_dl": zip_dl(W, T),
        "zip_dl, self noise": zip_dl(W, T, self_noise=True),
        "local_dsgd": local_dsgd(W, T, 2), "random_walk": random_walk(W, T), "basis": Protocol(None, [Step(True, first if t == 0 else later, [Round(W)]) for t in range(T)]),
    }


RUNS = runs()
SCHEDULES = {"momentum": Schedule(0.5, momentum=0.9, nesterov=True), "weight decay": Schedule(np.linspace(0.5, 0.1, T), momentum=0.5, weight_decay=0.1)}
TRAININGS = {
    "train mafalda": {}, "train identity for insiders": {"noise": "independent", "against": PNDP.each(range(N))},
    "train banded": {"noise": "banded", "lr": Schedule(0.1, momentum=0.5)},
    "train decor": {"noise": RUNS["decor"], "participation": Participation.cyclic(1, 5)},
    "train secure": {"noise": "bsr", "secure": True}, "train with random batches": {"noise": "independent", "participation": Participation.poisson(1 / 2, 4)},
    "train bounded": {"noise": "independent", "against": PNDP([0]), "feature_norm": 1.0, "clip": 0.5},
    "train for zero-out": {"adjacency": "zero-out", "against": [LDP(), PNDP([1, 2])]},
}
SEVERAL = "dp_dsgd", "mf_dsgd", "mf_dsgd, banded", "corn", "decor", "dsgd", "dp_dsgd of some"
CASES = [*RUNS, *SCHEDULES, "several", *TRAININGS]


def digest(values):
    """The first digits of SHA-256 of an array, with its type."""
    values = np.ascontiguousarray(values)
    return hashlib.sha256(values.dtype.str.encode() + (values + 0).tobytes()).hexdigest()[:12]  # + 0: no negative zeros


def streamed(run, secure):
    """What each node draws for itself, step by step."""
    return [list(NodeNoise(run, node, seeds, D, secure)) for node, seeds in deal_seeds(run, SECRET).items()]


def simulated(run):
    """What the simulator draws for all nodes: for each step what enters models, and what is added to messages."""
    supplies = noise_sources([Run("golden", run, 1.0, secret=SECRET)], D, "cpu")
    return [[next(one.source), one.source.shares] for one in supplies for _ in range(T)]


def records():
    """Ten records for each node."""
    rng = np.random.default_rng(68)
    return rng.normal(size=(2 * N * T, D)).astype(np.float32), rng.normal(size=2 * N * T).astype(np.float32)


def from_zero():
    """A linear predictor."""
    import torch
    layer = torch.nn.Linear(D, 1, bias=False)
    torch.nn.init.zeros_(layer.weight)
    return layer


def trained(some, secure=False):
    """The models after five steps, of runs with noise of scale 0.1, (runs, nodes, parameters)."""
    X, y = records()
    batches = Batches(np.arange(2 * N * T).reshape(N, T, 2))
    made = [Run(f"golden {i}", run, 0.1 if plain.drawn[-1] else 0.0, secret=SECRET + i // 2, secure=secure) for i, (run, plain) in enumerate(some)]
    lr = None if isinstance(some[0][0], ScheduledProtocol) else 0.5
    simulation = Simulation(from_zero, Dataset("golden", X, y, X[:1], y[:1]), batches, made, lr, 1.0)
    while simulation.t < T: simulation.step()
    return simulation.theta.double().tolist()


def budgeted(options):
    """What a training within a budget says, and its models; their noise depends on the last digits of its scale and of its coefficients."""
    X, y = records()
    given = {"data": (X, y, X[:5], y[:5]), "graph": GRAPH, "epsilon": 8.0, "delta": 1e-5, "participation": Participation.cyclic(2, 2), "secret": SECRET, "progress": False}
    made = train(from_zero, **given | options)
    run, = made.simulation.runs
    models = [[round(one, 6) for part in model.parameters() for one in part.detach().flatten().tolist()] for model in made.models]
    return {"sigma": made.report.sigma, "digits": [run.scale.hex(), digest(run.plain.M_Z)], "bits": models}


def tolerances(key):
    """Models are float32."""
    return {"models": 1e-6, "secure models": 1e-6}


def result(key):
    """Digests of the noise (bits), sums of what they are digests of, and models; or what a training gives."""
    if key in TRAININGS: return budgeted(TRAININGS[key])
    if key == "several": return {"models": trained([(RUNS[name], RUNS[name]) for name in SEVERAL])}
    plain = RUNS.get(key, RUNS["mf_dsgd, banded"])
    run = ScheduledProtocol(plain, SCHEDULES[key]) if key in SCHEDULES else plain
    found = {"models": trained([(run, plain)])[0], "secure models": outcome(lambda: trained([(run, plain)], secure=True)[0])}
    if key in SCHEDULES: return found
    own, secure, joint = streamed(run, False), streamed(run, True), simulated(run) if plain.drawn[-1] else []
    bits = {"streams": own, "secure streams": secure, "simulator": joint}
    return found | {
        "sums": [[float(np.abs(part).sum()) for part in node] for node in own], "secure sums": [[float(np.abs(part).sum()) for part in node] for node in secure],
        "bits": {name: [[digest(part) for part in some] for some in parts] for name, parts in bits.items()},
    }
