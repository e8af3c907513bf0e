"""Training on sparse networks: the same noise and models as on full tables, memory that grows with nodes and parameters, and what is refused."""
import tracemalloc

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch import nn

from mfdl import LDP, PNDP, Noise, Protocol, Round, Step, account, audit, fresh_noise, train
from mfdl.learning.data import Dataset, cut, round_robin
from mfdl.learning.methods import noise_supply as sources
from mfdl.learning.methods.checking import check_protocol
from mfdl.learning.methods.noise_supply import Draws, NoiseSource, Run, looks_back, noise_sources
from mfdl.learning.simulator import Simulation
from mfdl.protocol.algorithms import dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import gossip_matrix
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.protocol.methods.variants import anti_pgd, dsgd, local_dsgd, muffliato
from mfdl.protocol.participation import Participation

T = 6
BANDED = np.eye(T) - 0.5 * np.eye(T, k=-1)
GROWING = np.tril(np.linalg.inv(BANDED)) + 0.1 * np.tri(T, k=-3)
ALGORITHMS = {
    "dp_dsgd": lambda W: dp_dsgd(W, T), "churn": lambda W: dp_dsgd(W, T, trains=0.6, offline=0.3, seed=2),
    "mf_dsgd": lambda W: mf_dsgd(W, T, GROWING), "taking back": lambda W: mf_dsgd(W, T, BANDED), "banded": lambda W: mf_dsgd(W, T, np.linalg.inv(BANDED)),
    "muffliato": lambda W: muffliato(W, T, 3), "local_dsgd": lambda W: local_dsgd(W, T, 2), "anti_pgd": lambda W: anti_pgd(W, T), "dsgd": lambda W: dsgd(W, T),
}


def records(n, features=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, features)).astype(np.float32)
    return Dataset("records", X, (X[:, 0] > 0).astype(np.int64), X[:20], (X[:20, 0] > 0).astype(np.int64))


def linear(): return nn.Linear(3, 2)


def network(n, seed): return nx.compose(nx.path_graph(n), nx.gnp_random_graph(n, 0.2, seed=seed))


def both(make, graph): return [make(gossip_matrix(graph, sparse=sparse)) for sparse in (False, True)]


def trained(runs, n, **options):
    simulation = Simulation(linear, records(2 * n), cut(round_robin(2 * n, n), 2), runs, 0.3, 1.0, **options)
    simulation.run(progress=False)
    return simulation


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(list(ALGORITHMS)), st.integers(3, 14), st.integers(0, 10**6))
def test_sparse_networks_get_the_noise_and_the_models_of_full_ones(name, n, seed):
    full, sparse = both(ALGORITHMS[name], network(n, seed))
    assert sparse.sparse and not full.sparse and np.array_equal(full.variables.holders, csr_array(sparse.variables.holders).toarray())
    scale = 0.0 if name == "dsgd" else 0.5
    runs = [[Run("r", run, scale, seed=k, secret=seed + k) for k in range(2)] for run in (full, sparse)]
    if scale:
        one, other = (noise_sources(each, 5, "cpu") for each in runs)
        for _ in range(T): assert all(np.array_equal(next(a.source), next(b.source)) for a, b in zip(one, other, strict=True))
    models = [trained(each, n).theta.numpy() for each in runs]
    np.testing.assert_allclose(models[1], models[0], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_nodes_of_a_sparse_network_draw_is_what_the_simulation_adds(name):
    run = ALGORITHMS[name](gossip_matrix(network(7, 1), sparse=True))
    assert check_protocol(run) < 1e-5
    if name == "dsgd": return
    source = NoiseSource([run], Draws(run.variables, [5], 4, keep=looks_back(run)))
    together = np.array([next(source)[:, 0] for _ in range(T)])
    for u, seeds in deal_seeds(run, 5).items():
        np.testing.assert_allclose(together[:, u], np.array(list(NodeNoise(run, u, seeds, 4)))[:, 0], rtol=1e-4, atol=1e-5)


def test_runs_on_different_sparse_networks_train_together_as_alone():
    runs = [Run(name, ALGORITHMS[name](gossip_matrix(network(8, k), sparse=k < 2)), 0.3, seed=k) for k, name in enumerate(("dp_dsgd", "muffliato", "anti_pgd"))]
    together = trained(runs, 8).theta.numpy()
    for run, theta in zip(runs, together, strict=True): np.testing.assert_allclose(trained([run], 8).theta.numpy()[0], theta, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["dp_dsgd", "muffliato", "taking back"])
def test_messages_checkpoints_and_secure_noise_of_sparse_networks(name, tmp_path):
    full, sparse = both(ALGORITHMS[name], network(6, 3))
    told = [trained([Run("r", run, 0.4, secret=1)], 6, record=True) for run in (full, sparse)]
    for one, other in zip(*(simulation.transcript for simulation in told), strict=True): torch.testing.assert_close(one, other, rtol=1e-6, atol=2e-6)
    secure = [trained([Run("r", run, 0.4, secret=1, secure=True)], 6).theta.numpy() for run in (full, sparse)]
    np.testing.assert_allclose(secure[1], secure[0], rtol=1e-5, atol=1e-5)
    make = lambda: Simulation(linear, records(12), cut(round_robin(12, 6), 2), [Run("r", sparse, 0.4, secret=1)], 0.3, 1.0)  # noqa: E731
    first = make()
    for _ in range(4): first.step()
    resumed = make().resume(first.save(tmp_path / "run"))
    resumed.run(progress=False)
    assert torch.equal(resumed.theta, told[1].theta)


def test_the_noise_of_a_secret_depends_on_the_weights_of_a_sparse_network():
    W = gossip_matrix(network(8, 0), sparse=True)
    lazy = csr_array(0.9 * W + 0.1 * csr_array(np.eye(8)))
    shuffled = csr_array((W.data.copy(), W.indices.copy(), W.indptr.copy()), shape=W.shape)
    for first, end in zip(W.indptr[:-1], W.indptr[1:], strict=True): shuffled.data[first:end], shuffled.indices[first:end] = W.data[first:end][::-1], W.indices[first:end][::-1]
    shuffled.has_sorted_indices = False
    digests = [trained([Run("r", dp_dsgd(one, T), 0.1, secret=3)], 8).digest() for one in (W, W.copy(), shuffled, lazy)]
    assert digests[0] == digests[1] == digests[2] != digests[3]
    graph = nx.path_graph(8)
    def key(W): return train(linear, records(16), graph, 10.0, noise=dp_dsgd(W, 4), participation=Participation.cyclic(2, 2), secret=7, progress=False).simulation.runs[0].secret
    P = gossip_matrix(graph, sparse=True)
    assert key(P) == key(P.copy()) != key(csr_array(0.9 * P + 0.1 * csr_array(np.eye(8))))


def test_pieces_of_blocks_are_the_blocks(monkeypatch):
    run = mf_dsgd(gossip_matrix(network(6, 2), sparse=True), 40, np.eye(40) - 0.5 * np.eye(40, k=-1))
    def noise(): return np.array([next(source) for source in [NoiseSource([run], Draws(run.variables, [5, 6], 300, keep=looks_back(run)))] for _ in range(40)])
    whole = noise()
    for most in (1, 2 * 6 * 2 * 300, 5 * 6 * 2 * 300 + 1):  # pieces of 1, 2 and 5 of the 27 variables of a block
        monkeypatch.setattr(sources, "_AT_ONCE", most)
        assert np.array_equal(noise(), whole)
    draws = Draws(run.variables, [5, 6], 300, keep=0)
    late, again = draws.at(30).copy(), draws.at(3).copy()  # out of order: drawn anew
    monkeypatch.undo()
    draws = Draws(run.variables, [5, 6], 300, keep=0)
    assert np.array_equal(draws.at(3), again) and np.array_equal(draws.at(30), late)


def test_variables_are_kept_as_long_as_they_are_needed():
    W, T = gossip_matrix(network(5, 0), sparse=True), 30
    with_gaps = sum(np.eye(T, k=-k) for k in range(0, T, 4))
    for C, back in ((np.tri(T), 1), (np.tri(T) + np.tri(T, k=-2) / 2, T - 1), (np.eye(T), 0), (with_gaps, 4), (np.eye(T) - 0.5 * np.eye(T, k=-1), 0)):
        run = mf_dsgd(W, T, np.tril(C))
        assert looks_back(run) == back
        draws = Draws(run.variables, [1], 2, keep=back)
        assert draws.kept.shape[1] == (back + 1 if back else 0)
        source = NoiseSource([run], draws)
        variables = np.concatenate([Draws(run.variables, [1], 2, keep=0).at(t) for t in range(T)])
        expected = (run.mix.N @ variables).reshape(T, 5, 2)
        np.testing.assert_allclose([next(source)[:, 0] for _ in range(T)], expected, rtol=1e-4, atol=1e-5)
        if back:
            with pytest.raises(ValueError, match="expected as many as noise looks back"): NoiseSource([run], Draws(run.variables, [1], 2, keep=back - 1))


def test_noise_of_any_step_is_that_of_steps_in_order():
    """Whatever was asked for before, also by another source that shares the variables; and from a state that was saved."""
    W, T, rng = gossip_matrix(network(5, 0)), 9, np.random.default_rng(0)
    dense, bands = np.tril(rng.uniform(0.2, 1, (T, T))), np.eye(T) + 0.5 * np.eye(T, k=-1)
    inverse = np.linalg.inv(np.eye(T) - 0.4 * np.eye(T, k=-1) - 0.2 * np.eye(T, k=-2))
    protocols = dp_dsgd(W, T), anti_pgd(W, T), mf_dsgd(W, T, dense), mf_dsgd(W, T, bands), mf_dsgd(W, T, inverse), zip_dl(W, T)
    def runs(): return [Run(f"{k}", run, 1.0, secret=3) for k, run in enumerate(protocols)]
    def of(supply, t): return supply.source.noise_at(t).copy(), supply.source.shares.copy()
    in_order = [[of(supply, t) for t in range(T)] for supply in noise_sources(runs(), 3, "cpu")]
    supplies = noise_sources(runs(), 3, "cpu")
    assert len(supplies) > 2 and any(supply.source.reach for supply in supplies)
    for k, t in rng.permutation([(k, t) for k in range(len(supplies)) for t in range(T)]).tolist():
        for found, expected in zip(of(supplies[k], t), in_order[k][t], strict=True): assert np.array_equal(found, expected)
    for supply, later, expected in zip(supplies, noise_sources(runs(), 3, "cpu"), in_order, strict=True):
        supply.source.noise_at(4)
        later.source.restore(supply.source.state())
        assert np.array_equal(next(later.source), expected[5][0])


def test_memory_grows_with_nodes_and_parameters_alone(monkeypatch):
    monkeypatch.setattr(sources, "_AT_ONCE", 1)
    def peak(n):
        run = anti_pgd(gossip_matrix(nx.random_regular_graph(4, n, seed=1), sparse=True), 4)
        tracemalloc.start()
        source = noise_sources([Run("r", run, 1.0)], 50, "cpu")[0].source
        for _ in range(4): next(source)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found
    small, large = peak(500), peak(2000)
    assert large < 4.5 * small and large < 2 * 2000**2  # a quarter of a table of all pairs


def test_a_large_network_is_trained_by_one_call():
    n = 2400
    graph = nx.random_regular_graph(4, n, seed=0)
    options = {"participation": Participation.cyclic(2, 1), "lr": 0.5, "secret": 1, "every": 2, "progress": False, "noise": muffliato(gossip_matrix(graph), 2, 3, nodes=graph)}
    done = train(linear, records(n), graph, 20.0, **options)
    assert done.simulation.runs[0].protocol.sparse and done.report.adaptive and "Promise:" in done.statement
    accuracy = done.history.query("metric == 'accuracy' and step == 2").value
    assert len(accuracy) == len(done.models) == n
    mean, data = done.simulation.theta[0].mean(0), records(n)
    right = (torch.as_tensor(data.X) @ mean[:6].view(2, 3).T + mean[6:]).argmax(1).numpy() == data.y
    assert right.mean() > 0.9  # of thousands of nodes the noise cancels
    insider = train(linear, records(n), graph, 20.0, against=PNDP([0]), **options)
    assert "Promise:" in insider.statement and insider.report.sigma == pytest.approx(done.report.sigma)


def test_what_is_still_refused_in_sparse_networks():
    run = dp_dsgd(gossip_matrix(nx.path_graph(6), sparse=True), 4)
    large = dp_dsgd(gossip_matrix(nx.path_graph(1001), sparse=True), 4)
    with pytest.raises(ValueError, match="sparse"): audit(run, LDP(), Participation.every_step(4))
    with pytest.raises(ValueError, match="at most 4000 gradients"): check_protocol(large)
    with pytest.raises(ValueError, match="sparse"): _ = run.M_Z


def test_a_step_of_a_sparse_run_in_which_nobody_draws():
    W = gossip_matrix(nx.path_graph(4), sparse=True)
    silent = Step(True, fresh_noise(csr_array((4, 0))), [Round(W)])
    assert len(Protocol(None, [silent] * 3).variables.step) == 0 and check_protocol(Protocol(None, [silent] * 3)) < 1e-5
    noisy = Step(True, fresh_noise(csr_array(np.eye(4))), [Round(W)])
    assert check_protocol(Protocol(None, [silent, noisy, silent])) < 1e-5
    crowd = csr_array(np.array([[1, 1, 0, 0], [0, 0, 1, 1]], dtype=bool))
    crowd.data[0] = False  # an entry that is not there
    with pytest.raises(ValueError, match="does not hold"): Protocol(None, [Step(True, Noise(crowd, csr_array(np.eye(4, 2))), [Round(W)])])
    assert account(Protocol(None, [noisy] * 2), LDP(), Participation.every_step(2)).mu.size
