"""Norms of single layers, and means over batches of unequal sites: brute force, sensitivities, budgets and statements."""
import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

from mfdl import LDP, PNDP, Participation, Run, Schedule, Simulation, cut, dp_dsgd, dsgd, gossip_matrix, noisy_gradients_account, round_robin, row_sensitivity, train
from mfdl.learning.data import Dataset

RING = nx.cycle_graph(4)
W = gossip_matrix(RING)
X = np.random.default_rng(3).normal(size=(48, 3)).astype(np.float32)
DATA = (X, (X[:, 0] > 0).astype(int), X[:9], np.array([0, 1, 0, 1, 0, 1, 0, 1, 1]))
HOLDINGS = [list(range(20)), list(range(20, 29)), list(range(29, 46)), [46, 47]]
HOW = {"participation": Participation.cyclic(2, 2), "progress": False, "lr": 0.3, "secret": 5}


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.last = nn.LSTM(1, 3, batch_first=True), nn.Linear(3, 2)

    def forward(self, x): return self.last(self.cells(x[..., None])[0][:, -1])


def tied():
    first = nn.Linear(3, 3)
    return nn.Sequential(first, nn.Tanh(), first, nn.Linear(3, 2))


def model(): return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
def norms(): return nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2), nn.GroupNorm(1, 4), nn.Flatten(), nn.Linear(8, 2))


def trained(**change): return train(**{"model": model, "data": DATA, "graph": RING, "epsilon": 6.0} | HOW | change)


def simulation(make, clip, data=None, run=None, **more):
    data = Dataset("random", *DATA) if data is None else data
    return Simulation(make, data, cut(HOLDINGS, 2), [Run("one", run or dsgd(W, 4)), Run("two", run or dsgd(W, 4), seed=1)], 0.3, clip, **more)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make, clip", [(model, [0.3, 0.1]), (norms, [0.3, 0.2, 0.1]), (Recurrent, [0.2, 0.4]), (tied, (0.3, 0.1)), (lambda: nn.Linear(3, 2), np.array([0.2]))])
def test_each_layer_of_each_record_is_clipped_to_its_norm(make, clip):
    simulated = simulation(make, clip)
    learner = simulated.learner
    for t in range(2):
        found, expected = learner.changes(t), torch.zeros_like(learner.models)
        for r in range(2):
            for u, one in enumerate(simulated.modules(r)):
                layers = [layer for layer in one.modules() if [*layer.parameters(recurse=False)]]
                for record in learner.batches.at(t)[u]:
                    if record < 0: continue
                    loss = nn.functional.cross_entropy(one(learner.X[record][None]), learner.y[record][None])
                    parts = [torch.cat([p.flatten() for p in torch.autograd.grad(loss, [*layer.parameters(recurse=False)], retain_graph=True)]) for layer in layers]
                    expected[u, r] += torch.cat([part * min(1.0, norm / float(part.norm())) for part, norm in zip(parts, clip, strict=True)]) / learner.batches.size
        assert (found - expected).abs().max() < 4e-7
        simulated.step()


def test_no_record_moves_a_sum_by_more_than_all_norms_together():
    clip = [0.3, 0.4]
    def moved(size):
        data = Dataset("random", *DATA)
        data.X[0] *= size
        return simulation(model, clip, data).learner.changes(0)[0]
    for size in (1e3, -1e6, 0.0):
        assert float((moved(1.0) - moved(size)).norm(dim=-1).max()) <= row_sensitivity(0.5, 10, "replace-one") * (1 + 1e-5)


def test_a_budget_with_norms_of_layers():
    one, other = trained(clip=[0.3, 0.4]), trained(clip=0.5)
    assert one.simulation.runs[0].scale == other.simulation.runs[0].scale and one.report.worst.epsilon(1e-6) == pytest.approx(6.0)
    assert "layer by layer (to 0.3, 0.4), to norm 0.5" in one.statement and "layer" not in other.statement
    assert one.simulation.digest() != trained(clip=[0.4, 0.3]).simulation.digest()


@pytest.mark.parametrize("protect, against", [("record", None), ("record", PNDP([0])), ("record", "2 insiders")])
def test_own_means_are_at_the_same_guarantee(protect, against):
    own, largest = (trained(divide_by=how, holdings=HOLDINGS, against=against) for how in ("own", "largest"))
    assert own.simulation.runs[0].scale == pytest.approx(largest.simulation.runs[0].scale)
    shown = noisy_gradients_account(dp_dsgd(W, 4), LDP(), HOW["participation"]).worst.mu
    assert shown > 0 and own.report.worst.epsilon(1e-6) == pytest.approx(6.0)
    assert "the largest batch of its own" in own.statement and "of its own" not in largest.statement


def test_small_sites_take_the_steps_of_their_own_mean():
    plain, own = simulation(model, 0.5), simulation(model, 0.5, divide_by="own")
    assert own.learner.factors.flatten().tolist() == pytest.approx([1, 10 / 5, 10 / 9, 10])
    start = own.models.clone()
    change = plain.learner.changes(0)
    own.step()
    stepped = torch.einsum("vu,urd->vrd", torch.tensor(W, dtype=torch.float32), start - 0.3 * change * own.learner.factors)
    assert (own.models - stepped).abs().max() < 1e-6


def test_noise_is_multiplied_with_the_sum():
    def end(scale, **more):
        runs = [Run("one", dp_dsgd(np.eye(4), 1), scale)]
        one = Simulation(model, Dataset("random", *DATA), cut(HOLDINGS, 1), runs, 1.0, 0.5, **more)
        one.step()
        return one.models[:, 0]
    noise, multiplied = end(0.2) - end(0.0), end(0.2, divide_by="own") - end(0.0, divide_by="own")
    for u, size in enumerate(map(len, HOLDINGS)): assert torch.allclose(multiplied[u], noise[u] * 20 / size, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("change, said", [
    ({"clip": [1.0]}, "expected a list of 2 norms"), ({"clip": [1.0, 0.0]}, "a positive norm for each layer"),
    ({"clip": []}, "a positive norm"), ({"clip": np.array(0.0)}, "clip="), ({"clip": [[1.0]]}, "a positive"),
    ({"clip": [1.0, "a"]}, "a positive norm"), ({"clip": [1.0, 1.0], "protect": "node"}, "clipped as a whole"), ({"clip": [1.0, 1.0], "feature_norm": 1.0}, "layer by layer"),
    ({"divide_by": "mine"}, "divide_by"), ({"divide_by": "own", "protect": "node"}, "nothing to divide"), ({"divide_by": "own", "optimizer": "adam"}, "nothing to divide"),
    ({"divide_by": "own", "noise": "independent", "participation": Participation.poisson(0.5, 4)}, "nothing to divide"),
    ({"divide_by": "own", "estimate": True, "against": PNDP([0])}, "nothing has to be estimated"),
    ({"divide_by": "own", "feature_norm": 2.0, "model": lambda: nn.Linear(3, 2)}, "small sites that are made larger"),
])
def test_what_does_not_go_together_is_refused(change, said):
    with pytest.raises(ValueError, match=said): trained(**change)


def test_momentum_follows_own_means():
    assert trained(divide_by="own", holdings=HOLDINGS, lr=Schedule(0.1, momentum=0.9)).report.worst.epsilon(1e-6) == pytest.approx(6.0)
    assert len(trained(divide_by="own", holdings=round_robin(48, 4)).models) == 4
