"""The batched simulator against a plain loop over runs, nodes and records, for every algorithm; and what it does when it is interrupted or misused."""
import copy
import gc
import pickle
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn
from tqdm import tqdm

import mfdl
from mfdl.accounting.account import account
from mfdl.base.files import seal, unseal
from mfdl.base.randomness import derive_seed, draw_block, grid_spacing, to_grid
from mfdl.learning.clipping import Batch, ClippingRule, record_loss
from mfdl.learning.data import Batches, Dataset, cut, round_robin
from mfdl.learning.methods import checkpoints
from mfdl.learning.methods.clipped_gradients import Scratch, gradients
from mfdl.learning.methods.data_sets import load_data
from mfdl.learning.methods.drawn_batches import random_batches
from mfdl.learning.methods.layers import _returned, chain
from mfdl.learning.methods.learner import Learner
from mfdl.learning.methods.noise_supply import Draws, NoiseSource, Run, _Blocks, looks_back, max_noise_std
from mfdl.learning.methods.own_code import own_code
from mfdl.learning.simulator import Simulation
from mfdl.learning.training import train
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import churn, gossip_matrix
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.steps import Noise, Round, Step, fingerprint
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.protocol.methods.token import random_walk
from mfdl.protocol.methods.variants import anti_pgd, dsgd, local_dsgd, muffliato
from mfdl.protocol.participation import Participation
from mfdl.protocol.protocols import Protocol
from mfdl.protocol.threat_models import LDP, PNDP, SecLDP

GRAPH = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (3, 4)])
W, T, N = gossip_matrix(GRAPH), 6, 5
RNG = np.random.default_rng(0)
C = np.tril(RNG.normal(size=(T, T)) / 3) + 2 * np.eye(T)
BANDED = np.eye(T) + 0.5 * np.eye(T, k=-1) + 0.25 * np.eye(T, k=-2)
DIRECTED = RNG.dirichlet(np.ones(N), size=N)
HALF = [gossip_matrix(GRAPH), *churn(GRAPH, [[0], [3]])] * 2
R = [np.diag(np.isin(np.arange(N), group) * 0.5) + np.outer(np.isin(np.arange(N), group), np.isin(np.arange(N), group)) for group in ([0, 1, 2], [2, 3, 4])]
ALGORITHMS = {
    "no noise": dsgd(W, T), "DP-D-SGD": dp_dsgd(W, T), "directed": dp_dsgd(DIRECTED, T), "changing": dp_dsgd(HALF, T), "Muffliato": muffliato(W, T, 3), "AntiPGD": anti_pgd(W, T),
    "dense C": mf_dsgd(W, T, C), "banded C": mf_dsgd(W, T, BANDED), "C for each node": mf_dsgd(W, T, [C * (1 + u) for u in range(N)]), "DECOR": decor(HALF, T, 0.7, 1.2),
    "CorN": corn(W, T, R[0] + R[1]), "CorN, groups": corn(W, T, R, [[0, 1, 2], [2, 3, 4]]), "Zip-DL": zip_dl(W, T), "Zip-DL with self-noise": zip_dl(HALF, T, self_noise=True),
    "local steps": local_dsgd(HALF, T, 2), "random walk": random_walk(W, T, seed=3), "some offline": dp_dsgd(W, T, offline=0.3, trains=0.7, seed=5),
}


def toy(classes, records=23, features=4):
    X = RNG.normal(size=(records + 10, features)).astype(np.float32)
    y = RNG.integers(classes, size=records + 10) if classes else RNG.normal(size=records + 10).astype(np.float32)
    return Dataset("toy", X[:records], y[:records], X[records:], y[records:])


CLASSES, NUMBERS = toy(3), toy(None)
BATCHES = cut(round_robin(23, N), 3)


def perceptron(): return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


class Convolution(nn.Module):
    """Not a chain of linear layers: goes through torch.func."""
    def __init__(self):
        super().__init__()
        self.convolution, self.norm, self.out = nn.Conv1d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Linear(16, 3)

    def forward(self, x): return self.out(torch.relu(self.norm(self.convolution(x[:, None]))).flatten(1))


def regression(): return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 1))


def plain_loop(make_model, data, batches, run, lr, clip, protect):
    """One run, node by node and record by record, with the noise that each node draws for itself; models (n, parameters) after all steps."""
    algorithm, n = run.protocol, run.protocol.n
    torch.manual_seed(derive_seed(run.seed, 0) % 2**63)
    model = make_model()
    loss = nn.CrossEntropyLoss() if data.classes else lambda out, y: ((out.squeeze(-1) - y)**2).mean()
    theta = [nn.utils.parameters_to_vector(model.parameters()).detach().clone() for _ in range(n)]
    streams = [NodeNoise(algorithm, u, seeds, len(theta[0])) for u, seeds in deal_seeds(algorithm, run.noise_secret).items()]

    def gradient(flat, records):
        nn.utils.vector_to_parameters(flat, model.parameters())
        model.zero_grad()
        loss(model(torch.as_tensor(data.X[records])), torch.as_tensor(data.y[records])).backward()
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    def clipped(g): return g if clip is None else g * min(1.0, clip / float(g.norm()))
    for t in range(algorithm.T):
        added = [next(stream) for stream in streams]
        for u in range(n):
            records = [i for i in batches.index[u, t % batches.b] if i >= 0]
            if protect == "record": change = sum(clipped(gradient(theta[u], [i])) for i in records) / batches.size
            else: change = clipped(gradient(theta[u], records))
            if not algorithm.steps[t].trains[u]: change = torch.zeros_like(theta[u])
            theta[u] = theta[u] - lr * (change + torch.as_tensor(run.scale * added[u][0], dtype=torch.float32))
        shares = [iter(rows[1:]) for rows in added]
        for one in algorithm.steps[t].rounds:
            mailbox = [torch.zeros_like(theta[0]) for _ in range(n)]
            for u in range(n):
                for v in np.flatnonzero(one.W[:, u]):
                    share = 0.0 if one.share is None else torch.as_tensor(run.scale * next(shares[u]), dtype=torch.float32)
                    mailbox[v] = mailbox[v] + float(one.W[v, u]) * (theta[u] - lr * share)
            theta = mailbox
    return torch.stack(theta)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_simulation_is_the_plain_loop(name):
    algorithm = ALGORITHMS[name]
    scale = 0.0 if name == "no noise" else 0.3
    runs = [Run("a", algorithm, scale, 1), Run("b", algorithm, 2 * scale, 1), Run("c", algorithm, scale, 2), Run("other", dsgd(W, T), 0.0, 2)]
    simulation = Simulation(perceptron, CLASSES, BATCHES, runs, 0.5, 0.7)
    simulation.run(progress=False)
    for k, run in enumerate(runs): np.testing.assert_allclose(simulation.theta[k].numpy(), plain_loop(perceptron, CLASSES, BATCHES, run, 0.5, 0.7, "record").numpy(), atol=2e-5)


def test_a_sweep_of_everything_is_each_run_alone():
    """Algorithms that share variables are combined in one product, others share nothing; each run gets what it would get alone."""
    runs = [Run(name, algorithm, 0.0 if name == "no noise" else 0.1 * (k + 1), seed) for k, (name, algorithm) in enumerate(ALGORITHMS.items()) for seed in (1, 2)]
    together = Simulation(perceptron, CLASSES, BATCHES, runs[::-1], 0.5, 0.7)
    together.run(progress=False)
    assert len(together.noise.supplies) < len(ALGORITHMS) - 1
    for run, models in zip(runs, together.theta.flip(0), strict=True):
        alone = Simulation(perceptron, CLASSES, BATCHES, [run], 0.5, 0.7)
        alone.run(progress=False)
        np.testing.assert_allclose(models.numpy(), alone.theta[0].numpy(), atol=2e-6)


@pytest.mark.parametrize("make_model, data", [(Convolution, CLASSES), (regression, NUMBERS)])
@pytest.mark.parametrize("protect, clip", [("record", 0.5), ("node", 0.2)])
def test_models_losses_and_units_of_protection(make_model, data, protect, clip):
    run = Run("a", mf_dsgd(W, T, C), 0.2, 3)
    simulation = Simulation(make_model, data, BATCHES, [run, Run("quiet", dsgd(W, T), seed=3)], 0.3, clip, protect)
    simulation.run(every=2, progress=False)
    np.testing.assert_allclose(simulation.theta[0].numpy(), plain_loop(make_model, data, BATCHES, run, 0.3, clip, protect).numpy(), atol=3e-5)
    frame = simulation.history.to_frame()
    assert list(frame.columns) == ["step", "run", "seed", "replicate", "node", "metric", "value"] and sorted(frame.step.unique()) == [0, 2, 4, 6]
    model = make_model()
    nn.utils.vector_to_parameters(simulation.theta[0, 2], model.parameters())
    with torch.no_grad(): out = model(torch.as_tensor(data.X_test))
    expected = nn.functional.cross_entropy(out, torch.as_tensor(data.y_test)) if data.classes else ((out[:, 0] - torch.as_tensor(data.y_test))**2).mean()
    last = frame[(frame.step == 6) & (frame.replicate == 0) & (frame.node == 2) & (frame.metric == "loss")].value.item()
    assert last == pytest.approx(expected.item(), rel=1e-5)


def test_chunks_change_nothing(monkeypatch):
    runs = [Run(str(k), mf_dsgd(W, T, C), 0.1 * (k + 1), k % 3) for k in range(7)]
    whole = Simulation(perceptron, CLASSES, BATCHES, runs, 0.3, 1.0)
    whole.run(progress=False)
    for limit in ("LIMIT", "CACHE"): monkeypatch.setattr(f"mfdl.learning.methods.layers.{limit}", 1)
    parts = Simulation(perceptron, CLASSES, BATCHES, runs, 0.3, 1.0)
    parts.run(progress=False)
    np.testing.assert_allclose(parts.theta.numpy(), whole.theta.numpy(), atol=1e-6)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_resumed_run_is_the_uninterrupted_one(name, tmp_path):
    runs = [Run("a", ALGORITHMS[name], 0.0 if name == "no noise" else 0.3, seed) for seed in (1, 2)]

    def fresh(): return Simulation(perceptron, CLASSES, BATCHES, runs, 0.5, 0.7)
    whole, first, second = fresh(), fresh(), fresh()
    whole.run(every=2, progress=False)
    first.test()
    for _ in range(2): first.step()
    first.test()
    first.save(tmp_path / "run")
    second.resume(tmp_path / "run").run(every=2, progress=False)
    np.testing.assert_array_equal(second.theta.numpy(), whole.theta.numpy())
    assert second.history.to_frame().equals(whole.history.to_frame())


def test_checkpoints_of_other_settings_are_refused(tmp_path):
    def one(scale=0.3, lr=0.5, data=CLASSES, C=C, seed=1): return Simulation(perceptron, data, BATCHES, [Run("a", mf_dsgd(W, T, C), scale, seed)], lr, 0.7)
    path = one().save(tmp_path / "run")
    assert one().resume(path).t == 0
    for other in (one(scale=0.2), one(lr=0.4), one(data=toy(3)), one(C=2 * C), one(seed=2)):
        with pytest.raises(ValueError, match="other runs, data or settings"): other.resume(path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError): one().resume(path)
    about, arrays = unseal(one().save(path))
    for scale, words in ((0.3, "or it is of an earlier version"), (0.2, "could calibrate noise against insiders by an estimate")):  # for this run and for another
        seal(path, {name: about[name] for name in ("training", "step")}, arrays)
        with pytest.raises(ValueError, match=words): one(scale).resume(path)


@pytest.mark.parametrize("memory", [False, True], ids=["fresh", "with a memory"])
def test_noise_along_directions_of_several_protocols_is_that_of_each(memory):
    """Protocols that share variables are combined at once; none gets the directions of another."""
    rng = np.random.default_rng(3)
    def along(basis):
        mixes = [np.hstack([rng.normal(size=(3, 3)), np.eye(3)]) if memory and t else np.eye(3) for t in range(3)]
        return Protocol(None, [Step(True, Noise(np.ones((3, 3), dtype=bool), csr_array(F), basis=basis), [Round(np.full((3, 3), 1 / 3))]) for F in mixes])
    several = [along(rng.normal(size=(3, 3))) for _ in range(2)]
    def noise(protocols):
        source = NoiseSource(protocols, Draws(protocols[0].variables, [5, 6], 4, keep=looks_back(protocols[0])))
        return np.array([source.noise_at(t) for t in range(3)])
    together = noise(several)
    alone = np.concatenate([noise([one]) for one in several], axis=2)
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)


def test_noise_ends_with_the_account_and_has_the_covariance_of_its_algorithm():
    algorithm = mf_dsgd(W, T, C)
    source = NoiseSource([algorithm], Draws(algorithm.variables, [5], 20000, keep=looks_back(algorithm)))
    noise = np.array([next(source)[:, 0] for _ in range(T)])
    with pytest.raises(StopIteration, match="there is none for step 6"): next(source)
    measured = np.einsum("tud,svd->tusv", noise, noise) / 20000
    inverse = np.linalg.inv(C)
    expected = np.einsum("ts,uv->tusv", inverse @ inverse.T, np.eye(N))
    np.testing.assert_allclose(measured, expected, atol=6 * np.abs(expected).max() / np.sqrt(20000))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in ("no noise", "banded C")])
def test_the_largest_standard_deviation_is_that_of_what_nodes_draw(name):
    """It decides the grid of secure noise, which would be too fine or too coarse for what is added otherwise. (Banded C takes noise back.)"""
    algorithm = ALGORITHMS[name]
    streams = [NodeNoise(algorithm, u, seeds, 5000) for u, seeds in deal_seeds(algorithm, 3).items()]
    measured = max(float(np.std(row)) for _ in range(T) for stream in streams for row in next(stream))
    assert measured == pytest.approx(max_noise_std(algorithm), rel=0.06)


@pytest.mark.parametrize("trust", [None, LDP(), PNDP.each(range(5))])
def test_train_meets_its_budget(trust):
    done = train(perceptron, CLASSES, GRAPH, epsilon=3.0, delta=1e-5, against=trust, participation=Participation.cyclic(4, 3), secret=1, progress=False)
    assert done.report.worst.epsilon(1e-5) == pytest.approx(3.0, rel=1e-9) and done.report.participation == Participation.cyclic(4, 3)
    run = done.simulation.runs[0]
    again = mfdl.account(run.protocol, LDP() if trust is None else trust, Participation.cyclic(4, 3), sigma=run.scale / (2 * 1.0 / done.simulation.batches.size))
    assert again.proved.worst.epsilon(1e-5) == pytest.approx(3.0, rel=1e-9)
    assert len(done.models) == 5 and "no promise" not in done.statement and done.epsilon == 3.0 and done.report.adaptive
    assert "(3, 1e-05)-differential privacy when one record is replaced by another" in done.statement


@pytest.mark.parametrize("loss, outputs", [("squared", 1), ("huber", 1), ("cross-entropy", 2)])
def test_train_promises_for_linear_predictors(loss, outputs):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 60) if loss == "cross-entropy" else rng.normal(size=60)
    data = Dataset("small", 3 * rng.normal(size=(60, 4)), y, 3 * rng.normal(size=(20, 4)), y[:20])
    settings = dict(graph=GRAPH, epsilon=3.0, delta=1e-5, against=PNDP.each(range(5)), lr=0.05, loss=loss, noise="independent", progress=False)
    settings["participation"] = Participation.cyclic(2, 3)
    done = train(lambda: nn.Linear(4, outputs), data, feature_norm=2.0, **settings)
    features = done.simulation.learner.X.numpy()
    assert np.sqrt((features**2).sum(axis=1).max() + 1) <= 2
    assert done.report.adaptive and done.report.verify() < 1e-9 and done.report.worst.epsilon(1e-5) == pytest.approx(3.0, rel=1e-9)
    assert "whatever it sees" in done.statement and "Promise" in done.statement and "estimate" not in done.statement
    estimate = train(lambda: nn.Linear(4, outputs), data, estimate=True, **settings)
    assert "no promise" in estimate.statement and not hasattr(estimate, "epsilon")
    assert estimate.proved.mu >= estimate.report.worst.mu and (done.report.nonreacting <= done.report.sensitivity * (1 + 1e-9)).all()
    overheard = train(lambda: nn.Linear(4, outputs), data, feature_norm=2.0, **settings | {"against": LDP()})
    assert overheard.report.updates is None and overheard.report.adaptive and "linear" not in overheard.statement and "istory" not in overheard.statement
    assert overheard.report.sigma == pytest.approx(train(lambda: nn.Linear(4, outputs), data, **settings | {"against": LDP()}).report.sigma, rel=1e-12)
    slower = train(lambda: nn.Linear(4, outputs), data, feature_norm=2.0, **settings | {"lr": 0.05 / np.arange(1, 7)})
    assert slower.report.adaptive and slower.report.verify() < 1e-9
    rising = {"lr": 0.05 * np.arange(1, 7) / 6, "progress": True}  # the bar asks for beginnings of the run
    growing = train(lambda: nn.Linear(4, outputs), data, feature_norm=2.0, **settings | rising)
    assert growing.report.adaptive and growing.report.updates.c.shape == (6, 1) and growing.report.verify() < 1e-9
    with pytest.raises(ValueError, match="feature_norm=2.0: it is not known"): train(perceptron, data, feature_norm=2.0, **settings)
    with pytest.raises(ValueError, match="rounded updates are not Lipschitz"): train(lambda: nn.Linear(4, outputs), data, feature_norm=2.0, secure=True, **settings)
    with pytest.raises(ValueError, match="feature_norm=0.5: expected"): train(lambda: nn.Linear(4, outputs), data, feature_norm=0.5, **settings)
    with pytest.raises(ValueError, match="lr changes"): train(lambda: nn.Linear(4, outputs), data, estimate=True, **settings | {"lr": 0.05 / np.arange(1, 7)})


@pytest.mark.parametrize("loss, outputs", [("squared", 1), ("huber", 1), ("cross-entropy", 2)])
def test_no_promise_for_a_layer_that_is_applied_to_parts_of_a_record(loss, outputs):
    """Its intercept counts once for each part, and what is clipped is no longer a convex function's gradient."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(24, 5, 1)), rng.integers(0, 2, 24) if loss == "cross-entropy" else rng.normal(size=(24, 5))
    def shared(): return nn.Sequential(nn.Linear(1, outputs), nn.Flatten())
    with pytest.raises(ValueError, match="expected one linear layer of 5 features"):
        train(shared, Dataset("parts", X, y, X[:4], y[:4]), nx.path_graph(6), 1.0, against=PNDP([0]), feature_norm=2.0, loss=loss, progress=False)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("model, width", [(nn.Linear(1, 1, bias=False), 1), (nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)), 8)])
def test_no_record_however_large_moves_a_sum_by_more_than_the_clip(model, width, known):
    """Down to factors that single precision cannot hold."""
    model = model if isinstance(model, nn.Sequential) else nn.Sequential(model)
    theta = nn.utils.parameters_to_vector(model.parameters()).detach()[None, None]
    layers = chain(model, torch.zeros(1, width)) if known else None
    moved = []
    for x in np.logspace(0, 18, 37):
        for y in (1.0, 1e10, 1e20, 1e30, 1e35, 1e37, 1e38):
            batch = Batch(torch.full((1, 1, width), float(x)), torch.full((1, 1, 1), -y), torch.ones(1, 1))
            change, _ = gradients(model, layers, theta, batch, ClippingRule(record_loss("squared"), 1.0, 69), Scratch())
            moved.append(69 * float(change.double().norm()))
    assert 1 - 1e-4 < max(moved) < 1 + 1e-5


def test_train_resumes_and_draws_fresh_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(Simulation, "forget", lambda self: None)
    def go(**options): return train(perceptron, CLASSES, GRAPH, epsilon=3.0, participation=Participation.cyclic(2, 3), noise="independent", progress=False, **options)
    whole, kept = go(secret=4), go(secret=4, checkpoint=tmp_path / "run")
    again = go(secret=4, checkpoint=tmp_path / "run")
    np.testing.assert_array_equal(again.simulation.theta.numpy(), whole.simulation.theta.numpy())
    assert kept.history.equals(whole.history)
    with pytest.raises(ValueError, match="needs a secret"): go(checkpoint=tmp_path / "other")
    seeds = {go().simulation.runs[0].secret for _ in range(3)}
    assert len(seeds) == 3 and not any(str(secret) in go().history.to_csv() for secret in seeds) and "which nobody knows" in go().statement


def test_what_is_refused():
    run = Run("a", dp_dsgd(W, T), 0.1)

    def wrong(message, make_model=perceptron, data=CLASSES, batches=BATCHES, runs=(run,), lr=0.1, clip=1.0, error=ValueError, **options):
        with pytest.raises(error, match=message): Simulation(make_model, data, batches, list(runs), lr, clip, **options).step()
    wrong("BatchNorm1d.*GroupNorm", make_model=lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    wrong("AlphaDropout", make_model=lambda: nn.Sequential(nn.Linear(4, 3), nn.AlphaDropout(0.5)))
    wrong("T=6 steps are no multiple of the b=4 batches", batches=cut(round_robin(23, N), 4))
    wrong("batches are for 4 nodes", batches=cut(round_robin(23, 4), 3))
    wrong("batches name record 29", batches=Batches(np.arange(30).reshape(5, 3, 2)))
    wrong("without clipping protects nobody", clip=None)
    wrong("scale=-1", runs=[Run("a", dp_dsgd(W, T), -1)])
    wrong("X of record 3 is not finite", data=Dataset("toy", np.where(np.arange(23)[:, None] == 3, np.nan, CLASSES.X), CLASSES.y, CLASSES.X_test, CLASSES.y_test))
    wrong("step 0: the gradient of node 0 in run 'a' is not a number", make_model=lambda: nn.Sequential(nn.Linear(4, 3), nn.LogSigmoid(), Root()), error=FloatingPointError)
    wrong("did you mean", protect="nodes")
    with pytest.raises(ValueError, match="no finite noise"): train(perceptron, CLASSES, GRAPH, 1.0, participation=Participation.cyclic(2, 3), noise=dsgd(W, T), progress=False)


class Root(nn.Module):
    def forward(self, x): return x.sqrt()


def test_importing_does_not_load_torch():
    import subprocess
    import sys
    code = ("import sys, mfdl.learning.training, mfdl.learning.data; heavy = {'torch', 'sklearn', 'cvxpy'} & set(sys.modules)\n"
            "assert not heavy, heavy")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_digits_are_learned():
    digits = load_data("digits")
    done = train(lambda: nn.Linear(64, 10), digits, "ring:n=5", epsilon=50, participation=Participation.cyclic(20, 4), lr=2.0, secret=0, progress=False)
    last = done.history[(done.history.step == 80) & (done.history.metric == "accuracy")].value
    assert last.min() > 0.8


def test_secrets_stay_apart():
    """Initial weights say nothing about the noise; other settings draw other noise from the same secret."""
    run = Run("a", dp_dsgd(W, T), 0.1, seed=3)
    assert run.noise_secret != derive_seed(3, 0) and Run("a", dp_dsgd(W, T), 0.1, seed=3, secret=8).noise_secret == 8
    usual = {"participation": Participation.cyclic(1, 3), "noise": "independent", "secret": 7, "progress": False}
    keys = {train(perceptron, CLASSES, GRAPH, epsilon=epsilon, lr=lr, **usual).simulation.runs[0].secret
            for epsilon, lr in ((3, 0.1), (4, 0.1), (3, 0.2), (3, 0.1))}
    assert len(keys) == 3


def test_budgets_against_insiders_do_not_depend_on_learning_rates():
    rates = np.geomspace(1, 0.1, 3)
    def go(**options): return train(perceptron, CLASSES, GRAPH, epsilon=3, participation=Participation.cyclic(1, 3), noise="independent", progress=False, **options)
    heard = go(lr=rates)
    for schedule in ({}, {"lr": rates}, {"lr": mfdl.Schedule(0.1, momentum=0.9)}, {"lr": mfdl.Schedule(0.1, weight_decay=0.1)}):
        inside = go(against=PNDP([0]), **schedule)
        assert inside.report.sigma == pytest.approx(heard.report.sigma, rel=1e-9) and inside.epsilon == 3 and "even if shown every noisy gradient" in inside.statement
    with pytest.raises(ValueError, match="lr changes"): go(lr=rates, against=PNDP([0]), estimate=True)
    with pytest.raises(ValueError, match="estimate"): go(estimate=True)
    with pytest.raises(ValueError, match="estimate"):
        train(perceptron, CLASSES, GRAPH, epsilon=3, participation=Participation.poisson(1 / 3, 3), noise="independent", estimate=True, progress=False)


def test_local_steps_keep_their_budget():
    """What an eavesdropper hears of them is an estimate: it would promise 8 where 21.5 is proved."""
    graph = nx.cycle_graph(4)
    run, scheme = local_dsgd(gossip_matrix(graph), 20, every=5), Participation.cyclic(4, 5)
    for trust in (None, [PNDP([0]), SecLDP([1])]):
        kept, wished = (train(perceptron, CLASSES, graph, 8, noise=run, participation=scheme, against=trust, estimate=estimate, progress=False) for estimate in (False, True))
        assert kept.epsilon == 8 and kept.report.adaptive and not hasattr(wished, "epsilon") and wished.estimated_epsilon == 8
        for done in (kept, wished):
            sigma = done.simulation.runs[0].scale / (2 / done.simulation.batches.size)
            proved = account(run, trust or LDP(), scheme, sigma, updates=mfdl.Lipschitz(1)).worst.epsilon(1e-6)
            assert (proved <= 8 * (1 + 1e-6)) == (done is kept) and proved < 22
        assert f"epsilon = {wished.proved.epsilon(1e-6):.4g}" in wished.statement and "no promise" in wished._repr_html_() and "no promise" not in kept.statement


def test_insiders_of_shared_noise_keep_their_budget():
    graph = nx.cycle_graph(5)
    W5, scheme = gossip_matrix(graph), Participation.cyclic(2, 3)
    run = decor(W5, 6, 0.5, 2.0)
    done = train(perceptron, CLASSES, graph, epsilon=3, noise=run, participation=Participation.cyclic(2, 3), against=PNDP.each(range(5)), progress=False)
    sigma = done.simulation.runs[0].scale / (2 / done.simulation.batches.size)
    assert account(run, SecLDP.each(range(5)), scheme, sigma).worst.epsilon(1e-6) == pytest.approx(3, rel=1e-6)
    with pytest.raises(ValueError, match="nothing is proved"):  # noise of messages alone
        train(perceptron, CLASSES, graph, epsilon=3, noise=mfdl.zip_dl(W5, 6), participation=Participation.cyclic(2, 3), against=PNDP([0]), progress=False)


def test_the_mark_of_progress_is_what_is_proved(monkeypatch):
    from mfdl.learning.methods.budgets import Claim
    graph, claims = nx.cycle_graph(4), []
    run, scheme = local_dsgd(gossip_matrix(graph), 20, every=5), Participation.cyclic(4, 5)
    for estimate, most in ((False, 2.0), (True, 0.9)):
        claim = Claim(run, PNDP([0]), scheme, estimate=estimate)
        claims.append([claim.spent(t, 1.0) for t in (1, 5, 6, 20)])
        assert claims[-1][-1] <= most + 1e-9
    np.testing.assert_allclose(claims[0], np.sqrt([1, 1, 2, 4]), rtol=1e-9)


def test_progress_shows_loss_and_what_is_spent(capsys, monkeypatch):
    monkeypatch.setattr("mfdl.learning.simulator.progress_bar", lambda **options: tqdm(**options | {"disable": False}, mininterval=0))
    done = train(perceptron, CLASSES, GRAPH, epsilon=5, participation=Participation.cyclic(2, 3))
    shown = capsys.readouterr().err
    first, last = (account(done.simulation.runs[0].protocol.until(3 * k), LDP(), BATCHES.participation(k), done.report.sigma).worst.mu for k in (1, 2))
    assert f"mu={first:.3g}" in shown and f"mu={last:.3g}" in shown and "loss=" in shown and first < last == pytest.approx(done.report.worst.mu)


def test_an_interrupted_step_is_not_gone_on_with(monkeypatch, tmp_path):
    simulation = Simulation(perceptron, CLASSES, BATCHES, [Run("a", dp_dsgd(W, T), 0.1)], 0.1, 1.0)
    simulation.step()
    def stop(*_): raise KeyboardInterrupt
    monkeypatch.setattr(simulation.exchange, "exchanged", stop)
    with pytest.raises(KeyboardInterrupt): simulation.step()
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="step 1 was interrupted"): simulation.step()
    with pytest.raises(RuntimeError, match="step 1 was interrupted"): simulation.save(tmp_path / "run")


class Residual(nn.Sequential):
    def forward(self, x): return x + super().forward(x)


IMAGES = Dataset("images", *(part.reshape(len(part), 1, 2, 2) if part.ndim > 1 else part for part in (CLASSES.X, CLASSES.y, CLASSES.X_test, CLASSES.y_test)))


@pytest.mark.parametrize("make_model", [
    lambda: nn.Sequential(nn.Conv2d(1, 4, 2, stride=(1, 2), padding=(1, 0), bias=False), nn.GroupNorm(2, 4), nn.SiLU(), nn.Flatten(), nn.Linear(12, 3)),
    lambda: nn.Sequential(nn.Conv2d(1, 3, 2, padding="same"), nn.Flatten(), nn.Linear(12, 3)), lambda: nn.Sequential(nn.Linear(2, 3), nn.Flatten(), nn.Linear(6, 3)),
    lambda: nn.Sequential(nn.GroupNorm(1, 1, affine=False), nn.AvgPool2d(2), nn.Conv2d(1, 3, 1), nn.Flatten()),
    lambda: nn.Sequential(nn.Conv2d(1, 2, 1, dilation=2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 3), nn.GroupNorm(1, 3)),
])
def test_images(make_model):
    runs = [Run("a", dp_dsgd(W, T), 0.1, 2), Run("b", dp_dsgd(W, T), 0.2, 3)]
    simulation = Simulation(make_model, IMAGES, BATCHES, runs, 0.3, 0.5)
    simulation.run(progress=False)
    for run, models in zip(runs, simulation.theta, strict=True):
        np.testing.assert_allclose(models.numpy(), plain_loop(make_model, IMAGES, BATCHES, run, 0.3, 0.5, "record").numpy(), atol=3e-5)


@pytest.mark.parametrize("make_model", [
    lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 3), nn.LeakyReLU(inplace=True)), lambda: nn.Sequential(Residual(nn.Linear(4, 4)), nn.Linear(4, 3)),
    lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3)),
    lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 3, bias=False)), lambda: nn.Sequential(nn.Identity(), nn.Linear(4, 3, bias=False)),
])
def test_chains_and_what_only_looks_like_one(make_model):
    run = Run("a", dp_dsgd(W, T), 0.1, 2)
    simulation = Simulation(make_model, CLASSES, BATCHES, [run], 0.3, 0.5)
    before = simulation.learner.X_test.clone()
    simulation.run(every=3, progress=False)
    assert torch.equal(simulation.learner.X_test, before)
    np.testing.assert_allclose(simulation.theta[0].numpy(), plain_loop(make_model, CLASSES, BATCHES, run, 0.3, 0.5, "record").numpy(), atol=3e-5)


def with_one_more():
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    model.extra = nn.Parameter(torch.ones(1))
    return model


def with_bias_first():
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    weight = model[0].weight
    del model[0].weight
    model[0].weight = weight
    return model


def patched():
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    model[1].forward = torch.sin
    return model


@pytest.mark.parametrize("make_model", [with_one_more, with_bias_first, patched])
def test_models_that_are_no_chain_though_their_layers_are(make_model):
    """They go through torch.func; what is trained is the model, in the order of its parameters."""
    model = make_model()
    simulation = Simulation(make_model, CLASSES, BATCHES, [Run("a", dp_dsgd(W, T), 0.1, 2)], 0.3, 0.5)
    assert simulation.learner.layers is None
    simulation.run(progress=False)
    nn.utils.vector_to_parameters(simulation.theta[0, 1].clone(), model.parameters())
    with torch.no_grad(): loss = nn.functional.cross_entropy(model(torch.as_tensor(CLASSES.X_test)), torch.as_tensor(CLASSES.y_test))
    assert simulation.history.metrics["loss"][-1][0, 1] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("secret", [None, 2**90])
def test_the_step_of_a_checkpoint_is_bound_to_its_models(tmp_path, secret):
    """Neither another step, nor models or tests of another checkpoint, sealed again; with a secret no code that is made without it."""
    run = Run("", ALGORITHMS["AntiPGD"], 0.1, secret=secret)
    def fresh(): return Simulation(perceptron, CLASSES, BATCHES, [run], 0.1, 1.0)
    simulation = fresh()
    simulation.test()
    simulation.step()
    early = unseal(simulation.save(tmp_path / "early"))
    simulation.step()
    about, arrays = unseal(simulation.save(tmp_path / "late"))
    assert fresh().resume(tmp_path / "late").t == 2 and fresh().resume(tmp_path / "early").t == 1
    learner = fresh().learner
    learner.restore(2, arrays)
    learner.t = 1
    guessed = [replace(run, secret=derive_seed(2**90, 1))]
    forged = unseal(checkpoints.Checkpoint(tmp_path / "forged", guessed).save(about["training"], learner))[0]
    assert forged["step"] == 1
    wrong = [(about | {"step": 1}, arrays), (about, early[1]), (early[0], arrays), (about | {"code": early[0]["code"]}, arrays), (about, arrays | {"steps": np.array([1])}),
             ({name: part for name, part in about.items() if name != "code"}, arrays), (forged, arrays)]
    for one in wrong:
        with pytest.raises(ValueError, match="not saved together"): fresh().resume(seal(tmp_path / "wrong", *one))
    with pytest.raises(ValueError, match="none of them tested later"): fresh().learner.restore(0, arrays | {"steps": np.array([1])})


CUT = """
import torch
from torch import nn
LIMIT = 50.0
NAMES = {"a", "b", "c"}
def cut(z, least=1.0): return torch.where(z.abs() > LIMIT, least * z / 2, z)
def make(bound=60.0):
    class Cutting(nn.Module):
        scale = 1.0
        def __init__(self):
            super().__init__()
            self.layer, self.change = nn.Linear(4, 3), torch.tanh
        def helper(self, x): return x.clamp(-bound, bound) * self.scale if "a" in NAMES else x
        def forward(self, x): return self.layer(self.helper(cut(x)))
    return Cutting
"""


def defined(source=CUT, **changed):
    """What a notebook cell defines, anew."""
    scope = {"__name__": "__main__"}
    exec(compile(source, "<a cell>", "exec"), scope)
    scope.update(changed)
    return scope


def test_a_number_that_acts_beyond_all_probes_gives_other_noise():
    """Gradients differ at records of the data alone, and the noise must not be the same, or they are the difference of what is sent."""
    far = Dataset("far", 100 * CLASSES.X, CLASSES.y, CLASSES.X_test, CLASSES.y_test)
    usual = {"data": far, "graph": GRAPH, "epsilon": 2, "participation": Participation.cyclic(1, 2), "noise": "independent", "secret": 7, "progress": False}

    def secret(scope): return train(scope["make"](), **usual).simulation.runs[0].secret
    first = secret(defined())
    assert secret(defined()) == first, "the same cell, run again"
    assert secret(defined(LIMIT=55.0)) != first


def test_code_is_told_apart_by_all_that_it_uses():
    """And is the same when it is defined again, copied or kept."""
    def code(scope, **more): return fingerprint(*own_code(scope["make"](**more)()))
    first = code(defined())
    assert code(defined()) == first == code(defined("\n\n# moved\n" + CUT))
    others = [code(defined(LIMIT=40.0)), code(defined(NAMES={"a"})), code(defined(cut=lambda z: z)), code(defined(), bound=61.0),
              *(code(defined(CUT.replace(*change))) for change in (
                  ("least=1.0", "least=2.0"), ("scale = 1.0", "scale = 2.0"), ("torch.tanh", "torch.relu"), ("z / 2", "z / 3"), ('"a" in', '"b" in'), ("x.clamp", "x.clip")))]
    model = defined()["make"]()()
    model.register_forward_hook(lambda module, given, returned: 2 * returned)
    assert len({first, *others, fingerprint(*own_code(model))}) == len(others) + 2
    for plain in (perceptron(), nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU())): assert own_code(plain) == []
    kept = Kept()
    assert own_code(pickle.loads(pickle.dumps(kept))) == own_code(kept) == own_code(copy.deepcopy(kept)) != own_code(Kept([1.0, 3.0]))


class Kept(nn.Linear):
    """A model that is found by its name, with plain and shared attributes."""
    def __init__(self, sizes=(1.0, 2.0)):
        super().__init__(2, 1)
        self.sizes = self.again = [*sizes]

    def forward(self, x): return super().forward(x) * sum(self.sizes)


def test_a_secret_gives_other_noise_wherever_anything_differs():
    """Two runs with the same noise and other data, weights or batches would give the gradients away by subtraction."""
    class Plain(nn.Module):
        def __init__(self, start=None):
            super().__init__()
            self.layer = nn.Linear(4, 3)
            if start is not None: nn.init.constant_(self.layer.weight, start)
        def forward(self, x): return self.layer(x)

    class Twice(Plain):
        def forward(self, x): return 2 * self.layer(x)
    Twice.__name__ = Twice.__qualname__ = "Plain"
    A, B = gossip_matrix(GRAPH), gossip_matrix(GRAPH, "uniform")
    options = [
        {}, *({"participation": Participation.cyclic(*kb)} for kb in ((3, 3), (1, 6))), {"model": lambda: Plain(0.5)}, {"model": Twice},
        {"clip": 2.0}, {"epsilon": 3}, {"adjacency": "zero-out"}, {"seed": 1},
        {"lr": 0.2}, *({"noise": mf_dsgd(Ws, 6, np.eye(6), nodes=GRAPH)} for Ws in ([A, B, A, B, A, B], [A, A, A, B, B, B])),
        {"noise": mf_dsgd(A, 6, np.eye(6) + 1e-3 * np.eye(6, k=-1), nodes=GRAPH)},
        {"data": Dataset("toy", CLASSES.X + np.eye(23, 4, dtype=np.float32), CLASSES.y, CLASSES.X_test, CLASSES.y_test)},
    ]
    usual = {"model": Plain, "data": CLASSES, "graph": GRAPH, "epsilon": 2, "participation": Participation.cyclic(3, 2), "noise": "independent", "secret": 7, "progress": False}

    def secret(given): return train(**usual | given).simulation.runs[0].secret
    found = [secret(given) for given in options]
    assert len(set(found)) == len(options) and found[0] == secret({})


def test_checkpoints_of_other_algorithms_are_refused(tmp_path):
    def one(algorithm, batches=BATCHES): return Simulation(perceptron, CLASSES, batches, [Run("a", algorithm, 0.1, 1)], 0.1, 1.0)
    A, B = gossip_matrix(GRAPH), gossip_matrix(GRAPH, "uniform")
    for first, other in (
        ((dp_dsgd([A, B] * 3, T),), (dp_dsgd([A] * 3 + [B] * 3, T),)), ((ALGORITHMS["CorN, groups"],), (ALGORITHMS["CorN"],)),
        ((dp_dsgd(A, T), Batches(np.arange(20).reshape(5, 2, 2))), (dp_dsgd(A, T), Batches(np.arange(20).reshape(5, 1, 4)))),
    ):
        path = one(*first).save(tmp_path / "run")
        one(*first).resume(path)
        with pytest.raises(ValueError, match="a checkpoint of other runs"): one(*other).resume(path)


def test_an_interrupted_resume_is_not_gone_on_with(tmp_path, monkeypatch):
    def one(): return Simulation(perceptron, CLASSES, BATCHES, [Run("a", anti_pgd(W, T), 0.1)], 0.1, 1.0)
    first = one()
    for _ in range(3): first.step()
    path, second = first.save(tmp_path / "run"), one()
    def stop(*given):
        original(*given)
        raise KeyboardInterrupt
    original = Learner.restore
    monkeypatch.setattr(Learner, "restore", stop)
    with pytest.raises(KeyboardInterrupt): second.resume(path)
    monkeypatch.undo()
    for go_on in (lambda: second.resume(path), second.step): pytest.raises((ValueError, RuntimeError), go_on)


def test_what_is_given_out_and_what_is_given_stay_as_they_are():
    done = train(perceptron, CLASSES, GRAPH, epsilon=5, participation=Participation.cyclic(1, 3), noise="independent", progress=False)
    before = done.simulation.theta.clone()
    for parameter in done.models[0].parameters(): parameter.data.zero_()
    assert torch.equal(done.simulation.theta, before)

    class Shifting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)
        def forward(self, x):
            x -= 1
            return self.layer(x)
    X = CLASSES.X.copy()
    with pytest.raises(ValueError, match="model changes the records"): Simulation(Shifting, CLASSES, BATCHES, [Run("a", dp_dsgd(W, T), 0.1)], 0.1, 1.0)
    np.testing.assert_array_equal(CLASSES.X, X)


def test_an_empty_place_is_nobody_elses_record():
    """Record 0, whose gradient is not a number, belongs to node 0 alone: no other node meets it."""
    data = replace(NUMBERS, X=np.vstack([np.zeros((1, 4)), np.abs(NUMBERS.X[1:]) + 1]).astype(np.float32))
    class Root(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(4))
        def forward(self, x): return (x * self.factor.square()).sum(-1, keepdim=True).sqrt()
    simulation = Simulation(Root, data, Batches(np.array([[[1, -1]], [[2, 3]]])), [Run("a", dsgd(gossip_matrix(nx.path_graph(2)), 1))], 0.1, 1.0)
    simulation.step()
    assert torch.isfinite(simulation.theta).all()


def test_a_label_moves_its_own_node_only():
    """Targets of shape (records, 1), as many records as nodes, batches of one: nothing may be broadcast."""
    X, y = RNG.normal(size=(5, 4)).astype(np.float32), RNG.normal(size=(5, 1)).astype(np.float32)
    moved = []
    for shift in (0, 1):
        data = Dataset("toy", X, y + shift * (np.arange(5) == 2)[:, None], X, y)
        simulation = Simulation(regression, data, cut([[u] for u in range(5)], 1), [Run("a", dsgd([np.eye(5)], 1))], 0.5, 1.0)
        simulation.step()
        moved.append(simulation.theta[0])
    assert torch.nonzero((moved[0] != moved[1]).any(dim=1)).flatten().tolist() == [2]


def test_models_and_data_that_are_refused():
    def make(make_model, data=CLASSES): return Simulation(make_model, data, BATCHES, [Run("a", dp_dsgd(W, T), 0.1, 1), Run("b", dp_dsgd(W, T), 0.1, 2)], 0.1, 1.0)

    class Counts(nn.Linear):
        def __init__(self, start):
            super().__init__(4, 3)
            self.register_buffer("seen", start)
        def forward(self, x):
            self.seen = self.seen + x.sum()
            return super().forward(x)

    def frozen():
        model = perceptron()
        model[0].weight.requires_grad_(False)
        return model
    with pytest.raises(ValueError, match="a constant '0.weight' that differs from seed to seed"): make(frozen)
    with pytest.raises(ValueError, match="differs from seed to seed"): make(lambda: Counts(torch.randn(1)))
    with pytest.raises(ValueError, match="changes its buffer 'seen'"): make(lambda: Counts(torch.zeros(1)))
    with pytest.raises(ValueError, match=r"outputs of shape \(1, 2\)"): make(lambda: nn.Linear(4, 2))
    with pytest.raises(ValueError, match="the label -100"): Dataset("toy", np.zeros((2, 1)), np.array([-100, 1]), np.zeros((1, 1)), np.array([0]))
    with pytest.raises(ValueError, match="2 and 3 records"): Dataset("toy", np.zeros((2, 1)), np.zeros(3), np.zeros((1, 1)), np.zeros(1))
    assert Dataset("toy", np.zeros((2, 1)), np.array([True, False]), np.zeros((1, 1), dtype=np.uint8), np.array([1])).y.dtype == np.int64


class Origin(nn.Module):
    """A model that starts at 0."""
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 3))

    def forward(self, X): return X @ self.weight


@pytest.mark.parametrize("case", [name for name, algorithm in ALGORITHMS.items() if not any(step.shares for step in algorithm.steps) and len(algorithm.variables.step)])
def test_secure_runs_add_what_nodes_draw_on_the_grid_of_the_gradients(case, tmp_path):
    algorithm, scale, clip = ALGORITHMS[case], 0.3, 0.7

    def made(secret=5, record=False): return Simulation(Origin, CLASSES, BATCHES, [Run("", algorithm, scale, secret=secret, secure=True)], 1.0, clip, record=record)
    simulation, q = made(record=True), grid_spacing(scale * np.linalg.norm(csr_array(algorithm.mix.N).toarray(), axis=1).max(), clip)
    assert simulation.noise.spacing[0] in (q / 2, q, 2 * q, 4 * q)  # what earlier noise takes back is not counted
    q = simulation.noise.spacing[0]
    streams = [NodeNoise(algorithm, u, seeds, 12, secure=True) for u, seeds in deal_seeds(algorithm, 5).items()]
    models = np.zeros((N, 12))
    for t in range(T):
        gradient = simulation.learner.changes(t)[:, 0].double().numpy()
        simulation.step()
        sums = np.round(gradient / q) * q + np.vstack([to_grid(scale * next(stream), q) for stream in streams])  # exact
        step = algorithm.steps[t]
        sums = sums * step.trains[:, None]
        senders = step.rounds[0].senders if step.rounds else []
        np.testing.assert_array_equal(simulation.transcript[t][:len(senders), 0].numpy(), (models.astype(np.float32) - sums.astype(np.float32))[senders])
        models = simulation.models[:, 0].numpy().copy()
        if t == 2: simulation.save(tmp_path / "checkpoint")
    assert np.array_equal(made().resume(tmp_path / "checkpoint").run(progress=False).metrics["loss"], simulation.test()["loss"][None])
    assert (simulation.transcript[0][:N].double() / q % 1 == 0).all(), "a first message has digits of its own"
    with pytest.raises(ValueError, match="other runs"): made(6).resume(tmp_path / "checkpoint")
    with pytest.raises(ValueError, match="before the checkpoint are gone"): made(record=True).resume(tmp_path / "checkpoint")


@pytest.mark.parametrize("protect", ["record", "node"])
@pytest.mark.parametrize("size", [4, 300])
def test_rounding_does_not_make_a_record_count_for_more(protect, size):
    """Real gradients of two inputs, after all rounding: zero-out and replace-one, small batches and large ones, from few to many equal summands."""
    clip, run = 0.5, Run("", dp_dsgd(np.ones((1, 1)), 1), 40.0 / size, secret=1, secure=True)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(size + 1, 4)) * 10 + (seed % 2) * 20, np.zeros(size + 1, dtype=int) if seed % 2 else rng.integers(3, size=size + 1)
        data, found = Dataset("", X, y, CLASSES.X, CLASSES.y), {}
        for kind, last in (("with", size - 1), ("without", -1), ("other", size)):
            simulation = Simulation(Origin, data, Batches(np.append(np.arange(size - 1), last)[None, None]), [run], 1.0, clip, protect)
            found[kind] = np.round(simulation.learner.changes(0)[0, 0].double().numpy() / simulation.noise.spacing[0]) * simulation.noise.spacing[0]
        share = clip / (size if protect == "record" else 1)
        assert simulation.learner.clip < clip and np.linalg.norm(found["with"] - found["other"]) <= 2 * share
        if protect == "record": assert 0 < np.linalg.norm(found["with"] - found["without"]) <= share
    assert protect == "node" or np.linalg.norm(found["with"] - found["without"]) > 0.9 * share * simulation.learner.clip / clip


@pytest.mark.parametrize("protect", ["record", "node"])
@pytest.mark.parametrize("by_chance", [False, True])
def test_steps_that_data_move_are_those_of_the_participation(protect, by_chance):
    """Real gradients, step by step, on data that differ in one record, or in all of a node: they move in a pattern of `participation`, the node's in every step."""
    holdings, run = round_robin(23, N), Run("", dp_dsgd(W, 6), 0.1)
    batches = random_batches(holdings, Participation.poisson(0.3, 6), secret=3) if by_chance else cut(holdings, 3)
    models = [Simulation(Origin, CLASSES, batches, [run], 1.0, 0.5, protect) for _ in range(2)]
    records = holdings[2] if protect == "node" else holdings[2][:1]
    models[1].learner.X[records] = 5 - models[1].learner.X[records]
    moved = {t for t in range(6) if not torch.equal(*(one.learner.changes(t) for one in models))}
    used = {t for t in range(6) if np.isin(records, batches.at(t)).any()}
    scheme = models[0].participation
    assert moved == used
    if protect == "node": assert scheme == Participation.every_step(6)
    elif by_chance: assert scheme == batches.scheme
    else: assert moved in map(set, scheme.patterns()) and scheme == Participation.cyclic(2, 3)


def test_what_secure_runs_refuse():
    def made(*runs, **change): return Simulation(Origin, CLASSES, BATCHES, list(runs), 1.0, **{"clip": 0.5, **change})
    noise = ALGORITHMS["DP-D-SGD"]
    for wrong, words in (
        ([Run("", noise, 4e5, secret=1, secure=True)], "rounding would take"), ([Run("", zip_dl(W, T), 1.0, secret=1, secure=True)], "adds noise to messages"),
        ([Run("", noise, 1.0, secure=True)], "without a secret"), ([Run("", noise, 1.0, secret=1, secure=True), Run("", noise, 1.0)], "a simulation of its own"),
        ([Run("", noise, 1.0, secret=1, secure=True), Run("", noise, 5.0, secret=2, secure=True)], "a simulation of its own"),
    ):
        with pytest.raises(ValueError, match=words): made(*wrong)
    made(Run("", decor(W, T, 1.0, 60.0), 1.0, secret=1, secure=True), clip=100.0).step()
    with pytest.raises(ValueError, match="different protocols"): made(Run("", noise, 1.0), Run("", ALGORITHMS["AntiPGD"], 1.0), record=True)


def test_no_number_is_drawn_for_two_purposes(tmp_path):
    """Every variable of a large plan (replicates, nodes, restarts of the correlation, groups, a resumed run) has its own numbers; only a replay draws them again."""
    drawn = {}
    algorithms = [dp_dsgd(W, T), mf_dsgd(W, T, np.kron(np.eye(2), np.tri(3))), corn(W, T, R, [[0, 1, 2], [2, 3, 4]]), decor(W, T), muffliato(W, T, 2)]
    for a, algorithm in enumerate(algorithms):
        for replicate in range(200):
            for row in range(len(algorithm.variables.holder_sets)):
                block = draw_block(derive_seed(derive_seed(2026, a, replicate), row), 0, 100)
                for number in algorithm.variables.number[algorithm.variables.holder_set == row]: drawn.setdefault(block[number].tobytes(), []).append((a, replicate, row, number))
    assert len(drawn) == sum(200 * len(algorithm.variables.step) for algorithm in algorithms) and all(len(who) == 1 for who in drawn.values())
    runs = [Run(f"{a}", algorithm, 1.0, seed=seed) for a, algorithm in enumerate(algorithms[:2]) for seed in range(3)]

    def record(simulation, steps):
        found = []
        for source, *_ in simulation.noise.supplies:
            fresh = source.draws.at
            source.draws.at = lambda t, fresh=fresh: found.append((t, fresh(t).copy())) or found[-1][1]
        for _ in range(steps): simulation.step()
        return found
    whole, first = (Simulation(perceptron, CLASSES, BATCHES, runs, 0.1, 1.0) for _ in range(2))
    record(first, 3)
    first.save(tmp_path / "checkpoint")
    later = record(Simulation(perceptron, CLASSES, BATCHES, runs, 0.1, 1.0).resume(tmp_path / "checkpoint"), 3)
    everything = record(whole, T)
    assert {t for t, _ in later} == {3, 4, 5}
    for t, variables in later: assert any(step == t and np.array_equal(variables, other) for step, other in everything)
    fresh = {row.tobytes() for step, variables in everything for row in variables}
    assert len(fresh) == sum(len(variables) for variables in {step: variables for step, variables in everything}.values())


def neighbours(values):
    """Each number with the next, in single precision: single numbers coincide by chance, pairs do not."""
    flat = np.ravel(values).astype(np.float32)
    return np.stack([flat[:-1], flat[1:]], axis=1).view(np.uint64).ravel()


def test_a_fresh_secret_is_forgotten(tmp_path):
    """No object that is reachable from what `train` returns holds it, a seed that follows from it, or noise that was drawn from it."""
    found, drawn = [], []
    with pytest.MonkeyPatch.context() as patch:
        forget, draw = Simulation.forget, _Blocks._draw
        patch.setattr(Simulation, "forget", lambda self: (found.append(self.runs[0]), forget(self)))
        patch.setattr(_Blocks, "_draw", lambda self, piece: drawn.append(draw(self, piece)) or drawn[-1])
        done = train(lambda: nn.Linear(10, 1), "diabetes", "ring:n=3", epsilon=5, participation=Participation.cyclic(1, 4), noise="independent", progress=False)
    run, = found
    seeds = {run.secret, run.noise_secret, *(derive_seed(run.noise_secret, row) for row in range(len(run.plain.variables.holder_sets)))}
    noise = np.concatenate([neighbours(block) for block in drawn])
    seen, waiting, arrays = set(), [done], 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type | type(pytest)): continue
        seen.add(id(one))
        assert not (isinstance(one, int) and one in seeds) and not (isinstance(one, str | bytes) and str(run.secret) in str(one))
        if isinstance(one, np.ndarray | torch.Tensor) and one.dtype in (np.float32, np.float64, torch.float32, torch.float64):
            arrays += 1
            assert not np.isin(noise, neighbours(one.detach() if torch.is_tensor(one) else one)).any()
        waiting += [part for part in gc.get_referents(one) if not callable(part)]
    assert arrays > 3 and len(noise) > 100
    with pytest.raises(RuntimeError, match="forgotten"): done.simulation.save(tmp_path / "run")
    assert done.models and done.statement and str(run.secret) not in repr(done)


@pytest.mark.parametrize("secret", [-12345678901, 2**130 + 12345678901, 12345678901.5, "12345678901"])
def test_a_wrong_secret_is_not_printed(secret):
    from mfdl import audit
    run = Run("a", ALGORITHMS["DP-D-SGD"], 1.0, secret=secret)
    assert "345678901" not in repr(run)
    calls = [lambda: derive_seed(secret), lambda: Simulation(perceptron, CLASSES, BATCHES, [run], 0.1, 1.0).step(), lambda: deal_seeds(ALGORITHMS["DP-D-SGD"], secret),
             lambda: train(perceptron, CLASSES, GRAPH, epsilon=3.0, participation=Participation.cyclic(1, 3), secret=secret),
             lambda: audit(ALGORITHMS["DP-D-SGD"], LDP(), BATCHES.participation(2), secret=secret)]
    for call in calls:
        with pytest.raises(ValueError, match="expected an integer from 0") as error: call()
        assert "345678901" not in str(error.value)


def test_a_fresh_secret_for_every_run(monkeypatch):
    monkeypatch.setattr(Simulation, "forget", lambda self: None)
    run = [train(lambda: nn.Linear(10, 1), "diabetes", "ring:n=3", epsilon=5, participation=Participation.cyclic(1, 4), noise="independent", progress=False) for _ in range(2)]
    assert len({one.simulation.runs[0].secret for one in run}) == 2 and deal_seeds(ALGORITHMS["DP-D-SGD"]) != deal_seeds(ALGORITHMS["DP-D-SGD"])


def test_damaged_and_forged_checkpoints(tmp_path):
    """A checkpoint with any byte changed, cut off anywhere, or with a right checksum around something else, is refused."""
    def made(): return Simulation(perceptron, CLASSES, BATCHES, [Run("", ALGORITHMS["AntiPGD"], 0.1, secret=1)], 0.1, 1.0)
    simulation, path, rng = made(), tmp_path / "checkpoint", np.random.default_rng(0)
    for _ in range(3): simulation.step()
    content = simulation.save(path).read_bytes()
    fresh = made()
    for _ in range(60):
        at, bad = int(rng.integers(len(content))), bytearray(content)
        bad[at] ^= 1 << int(rng.integers(8))
        for damaged in (bytes(bad), content[:at], content + b"0", b""):
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match="damaged"): fresh.resume(path)
    good = simulation.learner.state()
    for about, arrays in (({"step": 3}, {}), ({"step": 99}, good), ({"step": -1}, good), ({"step": "3"}, good), ({"step": 3}, good | {"theta": good["theta"][:, 1:]}),
                          ({"step": 3}, good | {"theta": good["theta"].astype(float)}), ({"step": 3}, good | {"steps": np.array(["x"])})):
        seal(path, {"training": fresh.digest()} | about, arrays)
        with pytest.raises(ValueError, match="step|models"): made().resume(path)
    path.write_bytes(content)
    assert fresh.resume(path).t == 3


@pytest.mark.parametrize("pool", [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True), nn.MaxPool2d(3, 1, dilation=2), nn.MaxPool2d((2, 3))])
@pytest.mark.parametrize("channels", [1, 3, 16])
def test_pooling_in_tests_is_that_of_training_to_the_last_bit(pool, channels):
    images = torch.relu(torch.randn(4, channels, 9, 10)).round(decimals=1)
    images[0, 0, 0, 0], images[1] = torch.nan, -torch.inf
    assert torch.equal(_returned(pool, images).nan_to_num(7), pool(images).nan_to_num(7)) and _returned(pool, images).is_contiguous()
