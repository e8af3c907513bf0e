"""Models as people bring them: gradients of records against one call of autograd for each, tests, checkpoints, and what is refused."""
import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from mfdl.learning.data import Dataset, cut
from mfdl.learning.methods.drawn_batches import RandomBatches, random_batches
from mfdl.learning.methods.noise_supply import Run
from mfdl.learning.methods.replaced_layers import draw_masks, replace_batch_norm
from mfdl.learning.simulator import Simulation
from mfdl.protocol.algorithms import dp_dsgd
from mfdl.protocol.methods.variants import dsgd
from mfdl.protocol.participation import Participation

W = np.full((2, 2), 0.5)


class Last(nn.Module):
    """The last output of a recurrent layer."""
    def __init__(self, layer, width):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 3)

    def forward(self, x): return self.head(self.layer(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.layer, self.head = nn.MultiheadAttention(d, 2, batch_first=True), nn.Linear(d, 3)

    def forward(self, x): return self.head(self.layer(x, x, x, need_weights=False)[0].mean(1))


class Words(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.words, self.head = nn.Embedding(9, d), nn.Linear(d, 3)

    def forward(self, x): return self.head(self.words(x).mean(1))


class Cell(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.cell, self.head = nn.GRUCell(d, 4), nn.Linear(4, 3)

    def forward(self, x):
        state = x.new_zeros(len(x), 4)
        for t in range(x.shape[1]): state = self.cell(x[:, t], state)
        return self.head(state)


class Tied(nn.Module):
    """Two layers with one matrix."""
    def __init__(self, d):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, 3)
        self.second.weight = self.first.weight

    def forward(self, x): return self.head(self.second(torch.tanh(self.first(x))))


class Residual(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.inner, self.head = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Dropout(0.2), nn.Linear(d, d)), nn.Linear(d, 3)

    def forward(self, x): return self.head(x + self.inner(x))


def twice(d):
    layer = nn.Linear(d, d)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(d, 3))


def frozen(d):
    """A layer as if it were loaded, and a head that is trained."""
    body = nn.Linear(d, d).requires_grad_(False)
    body.load_state_dict({"weight": torch.linspace(-1, 1, d * d).view(d, d), "bias": torch.ones(d)})
    return nn.Sequential(body, nn.Tanh(), nn.Linear(d, 3))


def image(layer, width=16): return nn.Sequential(nn.Conv2d(1, 4, 3), layer, nn.Flatten(), nn.Linear(width, 3))


MODELS = {  # how each is made from a width, and the shape of a record
    "LSTM": (lambda d: Last(nn.LSTM(d, 5, batch_first=True), 5), lambda d: (3, d)),
    "LSTM of two layers, both ways": (lambda d: Last(nn.LSTM(d, 3, 2, batch_first=True, bidirectional=True), 6), lambda d: (3, d)),
    "GRU": (lambda d: Last(nn.GRU(d, 5, batch_first=True), 5), lambda d: (3, d)),
    "RNN": (lambda d: Last(nn.RNN(d, 5, batch_first=True), 5), lambda d: (3, d)),
    "GRU cell": (Cell, lambda d: (3, d)),
    "PReLU": (lambda d: nn.Sequential(nn.Linear(d, 8), nn.PReLU(), nn.Linear(8, 3)), lambda d: (d,)),
    "attention": (Attention, lambda d: (3, d)),
    "transformer": (lambda d: nn.Sequential(nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 2, 7, 0.0, batch_first=True), 1, enable_nested_tensor=False),
                                            nn.Flatten(), nn.Linear(3 * d, 3)), lambda d: (3, d)),
    "transformer with dropout": (lambda d: nn.Sequential(nn.Linear(d, d), nn.Dropout(0.3), nn.LayerNorm(d), nn.Flatten(), nn.Linear(3 * d, 3)), lambda d: (3, d)),
    "embedding": (Words, lambda d: (5,)),
    "layer norm": (lambda d: nn.Sequential(nn.Linear(d, 8), nn.LayerNorm(8), nn.Linear(8, 3)), lambda d: (d,)),
    "RMS norm": (lambda d: nn.Sequential(nn.Linear(d, 8), nn.RMSNorm(8), nn.Linear(8, 3)), lambda d: (d,)),
    "group norm": (lambda d: image(nn.GroupNorm(2, 4)), lambda d: (1, 4, 4)),
    "instance norm": (lambda d: image(nn.InstanceNorm2d(4, affine=True)), lambda d: (1, 4, 4)),
    "batch norm, replaced": (lambda d: replace_batch_norm(image(nn.BatchNorm2d(4))), lambda d: (1, 4, 4)),
    "convolution in one dimension": (lambda d: nn.Sequential(nn.Conv1d(1, 4, 3), nn.Flatten(), nn.Linear(4 * (d - 2), 3)), lambda d: (1, d)),
    "dilated convolution": (lambda d: nn.Sequential(nn.Conv2d(1, 4, 2, dilation=2), nn.Flatten(), nn.Linear(16, 3)), lambda d: (1, 4, 4)),
    "pooled": (lambda d: nn.Sequential(nn.Conv2d(1, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)), lambda d: (1, 4, 4)),
    "one layer twice": (twice, lambda d: (d,)),
    "tied": (Tied, lambda d: (d,)),
    "frozen": (frozen, lambda d: (d,)),
    "dropout": (lambda d: nn.Sequential(nn.Linear(d, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3)), lambda d: (d,)),
    "dropout of channels": (lambda d: image(nn.Dropout2d(0.5)), lambda d: (1, 4, 4)),
    "residual": (Residual, lambda d: (d,)),
    "parametrized": (lambda d: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(d, 8)), nn.Linear(8, 3)), lambda d: (d,)),
}
ONE_BY_ONE = {"LSTM", "LSTM of two layers, both ways", "GRU", "RNN", "PReLU"}


def brute(simulation, t):
    """Clipped means (nodes, runs, parameters), by one call of autograd for each record."""
    learner, found = simulation.learner, torch.zeros_like(simulation.learner.models)
    masks = draw_masks(learner.drops, learner.history.seeds, learner.history.nodes, t, (learner.batches.size,), "cpu")
    for u in range(2):
        for r, model in enumerate(simulation.modules(0)[u:u + 1] + simulation.modules(1)[u:u + 1]):
            now = {}
            for name, layer in model.named_modules():
                if name in learner.drops:
                    layer.forward = lambda x, name=name, now=now: x * now[name]
            for i, record in enumerate(learner.batches.at(t)[u]):
                if record < 0: continue
                now.update({name: mask[u, r, i][None] for name, mask in masks.items()})
                loss = nn.functional.cross_entropy(model(learner.X[record][None]), learner.y[record][None])
                parts = torch.autograd.grad(loss, [p for p in model.parameters() if p.requires_grad])
                gradient = torch.cat([part.flatten() for part in parts])
                found[u, r] += gradient * min(1, learner.clip / gradient.double().norm()) / learner.batches.size
    return found


def prepared(name, d):
    make, shape = MODELS[name]
    rng = np.random.default_rng(d)
    X = rng.integers(9, size=(25, *shape(d))) if name == "embedding" else rng.normal(size=(25, *shape(d)))
    data = Dataset("random", X, rng.integers(3, size=25), X[:4], rng.integers(3, size=4))
    runs = [Run("one", dp_dsgd(W, 6), 0.01), Run("other", dp_dsgd(W, 6), 0.01, seed=1)]
    return Simulation(lambda: make(d), data, cut([range(13), range(13, 25)], 3), runs, 0.1, clip=0.5)


@pytest.mark.parametrize("d", [4, 6])
@pytest.mark.parametrize("name", MODELS)
def test_any_layer_trains_as_one_call_for_each_record_would(name, d, tmp_path):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        simulation = prepared(name, d)
    assert any("cannot batch" in str(one.message) for one in said) == (name in ONE_BY_ONE)
    for t in range(3):
        assert (simulation.learner.changes(t) - brute(simulation, t)).abs().max() < 4e-7
        simulation.step()
    simulation.test()
    simulation.save(tmp_path / "kept")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        other = prepared(name, d).resume(tmp_path / "kept")
    for one in (simulation, other): one.run(progress=False)
    assert torch.equal(simulation.theta, other.theta)
    outputs = [copy.deepcopy(model)(simulation.learner.X_test) for model in simulation.modules()]
    losses = [float(nn.functional.cross_entropy(made, simulation.learner.y_test)) for made in outputs]
    assert np.allclose(losses, simulation.history.metrics["loss"][-1][0], atol=1e-5)


@pytest.mark.parametrize("d", [4, 6])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore")
def test_one_record_moves_no_sum_by_more_than_two_clips(name, d):
    """Whatever it is replaced by, at the worst another record a thousand times as large; with dropout at the same masks."""
    simulation = prepared(name, d)
    learner, before = simulation.learner, simulation.learner.changes(0)
    record = int(learner.batches.at(0)[0, 0])
    for other in (learner.X[(record + 1) % 25], learner.X[record] if name == "embedding" else -1e3 * learner.X[record], learner.X[record] * 0):
        learner.X[record] = other
        assert float((learner.changes(0) - before).norm(dim=-1).max()) <= 2 * 0.5 / learner.batches.size * (1 + 1e-5)


def test_a_frozen_layer_is_the_same_everywhere_and_gets_no_noise():
    simulation = prepared("frozen", 4)
    assert simulation.theta.shape[2] == 4 * 3 + 3
    before = [p.clone() for p in simulation.modules()[0][0].parameters()]
    simulation.run(progress=False)
    for model in simulation.modules(0) + simulation.modules(1): assert all(map(torch.equal, before, model[0].parameters()))


class Shaken(nn.Linear):
    def forward(self, x): return super().forward(x) + 0.1 * torch.rand(len(x), 3)


class Rolled(nn.Linear):
    """Random numbers that torch does not know of."""
    def forward(self, x): return super().forward(x) * np.random.random()  # noqa: NPY002


class Tally(nn.Linear):
    """Counts only where derivatives are taken, and not when it is tried out."""
    def __init__(self):
        super().__init__(4, 3)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x):
        if torch.is_grad_enabled():
            with torch.no_grad(): torch.add(torch.ones(1), 1, out=self.seen)
        return super().forward(x)


def unlike():
    return nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3))


@pytest.mark.parametrize("make, said", [
    (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), r"replace_batch_norm\(model\)"),
    (lambda: Last(nn.LSTM(4, 5, 2, dropout=0.1), 5), "draws random numbers inside"),
    (lambda: nn.Sequential(nn.Linear(4, 3), nn.AlphaDropout(0.1)), "expected nn.Dropout"),
    (lambda: Shaken(4, 3), "draws random numbers"), (lambda: Rolled(4, 3), "draws random numbers"),
    (lambda: nn.Linear(4, 3).requires_grad_(False), "no parameter to train"),
    (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), "differs from seed to seed"), (Tally, "it changes its buffers"),
    (unlike, "differs from seed to seed"),
    (lambda: nn.Sequential(nn.Embedding(4, 3), nn.Flatten(), nn.Linear(12, 3)), "does not take a record"),
])
def test_what_cannot_be_trained_is_refused_before_the_first_step(make, said):
    X = np.arange(40).reshape(10, 4) % 7  # more numbers than four words
    data = Dataset("counts", X, [0, 1] * 5, X, [0, 1] * 5)
    runs = [Run("one", dp_dsgd(W, 2), 0.1), Run("other", dp_dsgd(W, 2), 0.1, seed=1)]
    with pytest.raises(ValueError, match=said): Simulation(make, data, cut([range(5), range(5, 10)], 2), runs, 0.1, clip=1.0)


@pytest.mark.parametrize("protect", ["record", "node"])
@pytest.mark.parametrize("make", [lambda: nn.Linear(4, 3), lambda: nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 3)), lambda: twice(4)])
def test_automatic_clipping_scales_every_gradient_to_nearly_one(make, protect):
    """By all routes, and whatever the size of the data."""
    rng = np.random.default_rng(0)
    for size in (1e-3, 1.0, 1e3):
        X = size * rng.normal(size=(24, 4))
        data = Dataset("random", X, rng.integers(3, size=24), X[:4], rng.integers(3, size=4))
        run, batches = Run("one", dp_dsgd(W, 6), 0.1), cut([range(12), range(12, 24)], 3)
        simulation = Simulation(make, data, batches, [run], 0.1, "automatic", protect)
        free = Simulation(make, data, batches, [Run("one", dsgd(W, 6))], 0.1, None, protect)
        for t in range(3):
            found = simulation.learner.changes(t)[:, 0].double()
            if protect == "node":
                mean = free.learner.changes(t)[:, 0].double()
                expected = mean / (mean.norm(dim=-1, keepdim=True) + 0.01)
            else: expected = by_records(simulation, t)
            assert (found - expected).abs().max() < 1e-6 and (found.norm(dim=-1) <= 1 + 1e-6).all()


def by_records(simulation, t):
    """Sums of gradients, each scaled by autograd and a division."""
    learner, found = simulation.learner, torch.zeros(2, simulation.models.shape[2], dtype=torch.float64)
    for u, model in enumerate(simulation.modules()):
        for record in learner.batches.at(t)[u]:
            loss = nn.functional.cross_entropy(model(learner.X[record][None]), learner.y[record][None])
            gradient = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(model.parameters()))]).double()
            found[u] += gradient / (gradient.norm() + 0.01) / learner.batches.size
    return found


@pytest.mark.parametrize("persons", [False, True])
@pytest.mark.parametrize("make", [MODELS["dropout"][0], MODELS["residual"][0]])
def test_a_record_that_is_not_drawn_changes_no_mask_of_another(make, persons, monkeypatch):
    """One record more in a random batch moves those behind it to other places, and the sum by no more than a clip."""
    rng = np.random.default_rng(0)
    X = 100 * rng.normal(size=(40, 4))  # all gradients are as long as the clip
    data = Dataset("random", X, rng.integers(3, size=40), X[:4], rng.integers(3, size=4))
    members = np.arange(40).reshape(20, 2) if persons else None
    batches = random_batches(np.array_split(np.arange(20 if persons else 40), 2), Participation.poisson(0.5, 6), secret=1)
    simulation = Simulation(lambda: make(4), data, batches, [Run("one", dp_dsgd(W, 6), 0.1)], 0.1, clip=1.0, members=members)
    moved = []
    for t in range(6):
        whole, there = simulation.learner.changes(t), batches.at(t)
        assert (there[0] >= 0).sum() > 2
        fewer = there.copy()
        fewer[0] = [*there[0, 1:], -1]  # the first is not there, and all others move up
        monkeypatch.setattr(RandomBatches, "at", lambda self, step, fewer=fewer: fewer)
        apart = (whole - simulation.learner.changes(t))[:, 0].norm(dim=-1)
        monkeypatch.undo()
        assert apart[0] <= 1 / batches.size * (1 + 1e-5) and apart[1] == 0
        moved.append(float(apart[0]) * batches.size)
    assert max(moved) > 0.5
