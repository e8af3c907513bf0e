"""The simulator gives the models of the plain loops of chapter 01, and the loops do what they say."""
import networkx as nx
import numpy as np
import pytest

from mfdl.protocol.algorithms import dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.start.first_run import train_in_loops

GRAPH = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (3, 4)])
N, T, D = 5, 6, 4
W = gossip_matrix(GRAPH)
C = np.tril(np.random.default_rng(1).uniform(-0.4, 0.4, (T, T)), -1) + np.eye(T)
RUNS = {
    "DP-D-SGD": dp_dsgd(W, T), "directed": dp_dsgd(np.random.default_rng(2).dirichlet(np.ones(N), size=N), T), "MF-D-SGD": mf_dsgd(W, T, C),
    "banded C": mf_dsgd(W, T, np.eye(T) + 0.5 * np.eye(T, k=-1)), "one C each": mf_dsgd(W, T, [C * (1 + u) for u in range(N)]),
}


def squared_gradient(theta, x, y):
    """Of the squared error of one record, for weights and a bias."""
    return 2 * (x @ theta[:-1] + theta[-1] - y) * np.append(x, 1)


@pytest.mark.parametrize("name", RUNS)
def test_the_simulator_is_these_loops(name):
    import torch

    from mfdl.base.randomness import derive_seed
    from mfdl.learning.data import Dataset, cut, round_robin
    from mfdl.learning.methods.noise_supply import Run
    from mfdl.learning.simulator import Simulation
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(33, D)).astype(np.float32), rng.normal(size=33).astype(np.float32)
    batches = cut(round_robin(23, N), 3)
    run = Run(name, RUNS[name], 0.3, 1)

    def make_model(): return torch.nn.Linear(D, 1)
    simulation = Simulation(make_model, Dataset("toy", X[:23], y[:23], X[23:], y[23:]), batches, [run], 0.2, 0.7)
    simulation.run(progress=False)

    torch.manual_seed(derive_seed(run.seed, 0) % 2**63)
    start = torch.nn.utils.parameters_to_vector(make_model().parameters()).detach().numpy()
    streams = [NodeNoise(run.protocol, u, seeds, D + 1) for u, seeds in deal_seeds(run.protocol, run.noise_secret).items()]
    noise = run.scale * np.array([[next(stream)[0] for stream in streams] for _ in range(T)])
    models, sent = train_in_loops(run.protocol.steps[0].rounds[0].W, squared_gradient, X.astype(float), y.astype(float), batches.index, noise, 0.7, 0.2, start)
    assert np.isfinite(models).all() and np.abs(models - start).max() > 0.1
    np.testing.assert_allclose(simulation.theta[0].numpy(), models, atol=2e-5)
    np.testing.assert_allclose(run.protocol.steps[0].rounds[0].W @ sent[-1], models, atol=1e-12)


def test_sums_of_constant_gradients_are_the_matrices():
    """Gradients that do not depend on models, nor on the clip: messages = -lr (M_G G + M_Z Z), as the protocol says."""
    rng = np.random.default_rng(3)
    run, X = mf_dsgd(W, T, C), rng.normal(size=(N * T, D))
    Z = rng.normal(size=(N * T, D))
    noise = (run.mix.N @ Z).reshape(T, N, D)
    batches = np.arange(N * T).reshape(N, T, 1)
    _, sent = train_in_loops(W, lambda theta, x, y: x, X, np.zeros(N * T), batches, noise, np.inf, 0.5, np.zeros(D))
    G = X[batches[:, :, 0].T.ravel()]
    np.testing.assert_allclose(sent.reshape(N * T, D), -0.5 * (run.M_G @ G + run.M_Z @ Z), atol=1e-12)


@pytest.mark.parametrize("clip", [0.1, 1.0, 10.0])
def test_no_record_moves_a_message_farther_than_its_clip(clip):
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(10, D)), rng.normal(size=10)
    batches, silence = np.arange(10).reshape(N, 1, 2), np.zeros((1, N, D + 1))
    for value in (-100.0, 100.0):
        changed = np.append(value, y[1:])
        before, after = (train_in_loops(W, squared_gradient, X, targets, batches, silence, clip, 0.5, np.zeros(D + 1))[1] for targets in (y, changed))
        moved = np.linalg.norm(after - before, axis=2)[0]
        assert moved[0] <= 0.5 * 2 * clip / 2 + 1e-12 and (moved[1:] == 0).all()
    ends = [train_in_loops(W, squared_gradient, X, np.append(value, y[1:]), batches, silence, clip, 0.5, np.zeros(D + 1))[1] for value in (-100.0, 100.0)]
    np.testing.assert_allclose(np.linalg.norm(ends[1][0, 0] - ends[0][0, 0]), 0.5 * clip, rtol=1e-12)
