"""Adam and others on noisy gradients: the steps of PyTorch, budgets that are kept against whoever is shown all noisy gradients, and an audit."""
import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

from mfdl import LDP, PNDP, Adam, Participation, Run, Schedule, Simulation, account, cut, decor, dp_dsgd, dsgd, gossip_matrix, noisy_gradients_account, train, zip_dl
from mfdl.evidence.methods.distances import interval
from mfdl.learning.data import Dataset, round_robin
from mfdl.learning.methods.train_arguments import attackers_given

RING = nx.cycle_graph(4)
W = gossip_matrix(RING)
X = np.random.default_rng(3).normal(size=(48, 3))
DATA = (X, (X[:, 0] > 0).astype(int), X[:9], np.array([0, 1, 0, 1, 0, 1, 0, 1, 1]))
SCHEME = Participation.cyclic(2, 3)
OTHER = Adam(0.8, 0.9, 1e-6, 0.05)


def model(): return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def trained(**change): return train(**{"model": model, "data": DATA, "graph": RING, "epsilon": 6.0, "participation": SCHEME, "secret": 5, "progress": False} | change)


@pytest.mark.parametrize("adam, theirs", [(Adam(), torch.optim.Adam), (Adam(weight_decay=0.05), torch.optim.AdamW), (OTHER, torch.optim.AdamW)])
def test_without_noise_each_node_takes_the_steps_of_pytorch(adam, theirs):
    rates = np.linspace(0.2, 0.05, 6)
    data, batches = Dataset("random", *DATA), cut(round_robin(48, 4), 3)
    simulation = Simulation(model, data, batches, [Run("quiet", dsgd(W, 6))], rates, 0.5, optimizer=adam)
    models = [torch.nn.Parameter(one.clone()) for one in simulation.models[:, 0]]
    more = {"weight_decay": adam.weight_decay} if adam.weight_decay else {}
    steps = [theirs([one], lr=1.0, betas=(adam.beta1, adam.beta2), eps=adam.eps, **more) for one in models]
    for t in range(6):
        for one, step, gradient in zip(models, steps, simulation.learner.changes(t)[:, 0], strict=True):
            step.param_groups[0]["lr"], one.grad = rates[t], gradient
            step.step()
        mixed = torch.tensor(W, dtype=torch.float32) @ torch.stack([one.detach() for one in models])
        for one, new in zip(models, mixed, strict=True): one.data[:] = new
        simulation.step()
        assert (simulation.models[:, 0] - mixed).abs().max() < 2e-6


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "adamw", OTHER], ids=str)
@pytest.mark.parametrize("against", [None, PNDP([0]), "one insider"], ids=str)
def test_budgets_are_kept_against_whoever_is_shown_all_noisy_gradients(optimizer, against):
    noise = "pairwise" if against == "one insider" else "mafalda"
    done = trained(optimizer=optimizer, against=against, noise=noise)
    assert done.report.worst.epsilon(1e-6) == pytest.approx(6.0, abs=1e-9) and done.epsilon == 6.0
    run, watchers = done.simulation.runs[0].plain, attackers_given(against, list(RING))
    assert ("as Adam(" in done.statement) == (optimizer != "momentum")
    if optimizer != "momentum":
        assert "even if shown every noisy gradient" in done.statement
        again = noisy_gradients_account(run, watchers, SCHEME, sigma=done.report.sigma)
        assert again.worst.epsilon(1e-6) == pytest.approx(6.0, abs=1e-9)
    plain = trained(against=against, noise=noise)
    assert done.report.sigma >= plain.report.sigma * (1 - 1e-9)
    if against is None: assert done.report.sigma == pytest.approx(plain.report.sigma)  # who hears every message knows all noisy gradients
    assert not torch.equal(done.simulation.theta, plain.simulation.theta)


def test_random_batches_cost_the_same_under_adam():
    random = {"participation": Participation.poisson(0.25, 6), "noise": "independent"}
    assert trained(optimizer="adam", **random).report.sigma == pytest.approx(trained(**random).report.sigma)


def test_a_run_that_is_resumed_ends_with_the_same_models(tmp_path):
    data, batches = Dataset("random", *DATA), cut(round_robin(48, 4), 3)
    def fresh(adam=OTHER): return Simulation(model, data, batches, [Run("a", dp_dsgd(W, 6), 0.1), Run("b", dp_dsgd(W, 6), 0.3, 1)], 0.1, 0.5, optimizer=adam)
    whole, part = fresh(), fresh()
    for _ in range(3): part.step()
    part.save(tmp_path / "kept")
    for other in (None, Adam()):
        with pytest.raises(ValueError): fresh(other).resume(tmp_path / "kept")
    again = fresh().resume(tmp_path / "kept")
    for one in (whole, again): one.run(progress=False)
    assert torch.equal(whole.theta, again.theta)


@pytest.mark.parametrize("noise_left, corrected", [(1.0, True), (1.0, False), (0.4, True), (0.4, False)])
def test_an_audit_tells_honest_noise_from_noise_that_is_too_small(noise_left, corrected):
    """An eavesdropper undoes the mixing, and adds up where models moved in the steps of one record, which is there or not."""
    V, d, sigma, replays = np.full((2, 2), 0.5), 64, 2.0, 3000
    run = dp_dsgd(V, 4)
    claimed = noisy_gradients_account(run, LDP(), Participation.cyclic(2, 2), sigma=sigma).worst.mu
    def moves(size):
        records = np.zeros((8, d))
        records[0] = size  # of the first batch of node 0; all others have gradients of zero
        data = Dataset("canary", records, np.full((8, 1), -1.0), records[:1], np.zeros((1, 1)))
        batches = cut([range(4), range(4, 8)], 2)
        runs = [Run(str(r), run, noise_left * sigma / batches.size, secret=r + (size > 0) * replays) for r in range(replays)]
        simulation = Simulation(lambda: nn.Linear(d, 1, bias=False), data, batches, runs, 0.001, 1.0, optimizer=Adam(corrected=corrected), record=True)
        torch.nn.init.zeros_(simulation.learner.models)
        found, before = 0.0, simulation.models.clone()
        for t in range(4):
            simulation.step()
            sent = simulation.transcript[t]
            if t % 2 == 0: found = found + (before - sent)[0].double().sum(-1)
            before = torch.tensor(V, dtype=torch.float32) @ sent.flatten(1)
            before = before.view_as(sent)
        return found.numpy()
    apart = interval(moves(0.0), moves(1.0), 0.999)
    if noise_left == 1: assert 0.4 * claimed < apart.low <= claimed
    else: assert apart.low > claimed


@pytest.mark.parametrize("change, said", [
    ({"optimizer": torch.optim.Adam([nn.Parameter(torch.ones(1))])}, "every node has a model of its own"),
    ({"optimizer": torch.optim.Adam}, "an Adam"), ({"optimizer": "adagrad"}, "expected"),
    ({"optimizer": "adam", "lr": Schedule(0.1, momentum=0.9)}, "momentum or weight decay of its own"),
    ({"optimizer": "adam", "noise": zip_dl(W, 6)}, "no finite noise"),
    ({"optimizer": "adam", "noise": dp_dsgd(W, 6, trains=0.5)}, "train in every step"),
    ({"optimizer": "adam", "estimate": True, "against": PNDP([0])}, "nothing has to be estimated"),
    ({"optimizer": "adam", "feature_norm": 2.0, "model": lambda: nn.Linear(3, 2)}, "plain steps react"),
])
def test_what_is_not_paid_for_is_refused_before_training(change, said):
    with pytest.raises(ValueError, match=said): trained(**change)


def test_secrets_of_pairs_protect_only_against_who_does_not_know_them():
    """Adam makes no difference to that: against an insider only noise counts whose seed it does not hold."""
    done = trained(optimizer="adam", noise=decor(W, 6), against=PNDP([0]))
    eavesdropper = account(decor(W, 6), LDP(), SCHEME, sigma=done.report.sigma)
    assert eavesdropper.worst.epsilon(1e-6) < 6.0
