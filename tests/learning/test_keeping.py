"""Trained models in a file: the same answers after a round trip, and a refusal of what is damaged, of something else, or of another model."""
import doctest
import inspect
from functools import cache

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from mfdl import Participation, Trained, train
from mfdl.base.files import seal, unseal

RNG = np.random.default_rng(4)
X = RNG.normal(size=(60, 5)).astype(np.float32)
CLASSES, NUMBERS = (X[:, 0] > 0).astype(int) + (X[:, 1] > 1), X[:, 0] + 0.5
WORDS = RNG.integers(6, size=(60, 4))
SITES = nx.relabel_nodes(nx.path_graph(3), {0: "north", 1: "south", 2: "west"})
SECRET = 0x1234567890ABCDEF1234567890ABCDEF


def with_dropout(): return nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 3))


def half_frozen():
    torch.manual_seed(8)
    model = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    model[0].requires_grad_(False)
    return model


def of_words(): return nn.Sequential(nn.Embedding(6, 3), nn.Flatten(), nn.Linear(12, 3))


KINDS = {  # the model, data, the network and more
    "network": (with_dropout, (X, CLASSES, X[:20], CLASSES[:20]), SITES, {}),
    "frozen": (half_frozen, (X, CLASSES, X[:20], CLASSES[:20]), "ring:n=4", {}),
    "numbers": (lambda: nn.Linear(5, 1), (X, NUMBERS, X[:20], NUMBERS[:20]), nx.grid_2d_graph(2, 2), {"adjacency": "zero-out"}),
    "scaled": (lambda: nn.Linear(5, 3), (3 * X, CLASSES, 3 * X[:20], CLASSES[:20]), SITES, {"feature_norm": 2.0}),
    "words": (of_words, (WORDS, CLASSES, WORDS[:20], CLASSES[:20]), SITES, {}),
    "chance": (lambda: nn.Linear(5, 3), (X, CLASSES, X[:20], CLASSES[:20]), SITES, {"participation": Participation.poisson(0.5, 4), "noise": "independent"}),
}


@cache
def trained(kind):
    model, data, network, more = KINDS[kind]
    usual = {"participation": Participation.cyclic(2, 2), "secret": SECRET, "progress": False, "lr": 0.5}
    return train(model, data, network, 8.0, **usual | more)


@pytest.mark.parametrize("kind", KINDS)
def test_models_that_are_read_answer_the_same(kind, tmp_path):
    done, (model, data, _, _) = trained(kind), KINDS[kind]
    file = done.save(tmp_path / "models.mfdl")
    state = torch.get_rng_state()
    kept = Trained.load(file, model)
    assert torch.equal(torch.get_rng_state(), state) or kind == "frozen"  # whose function sets a seed
    for own, again in zip(done.models, kept.models, strict=True):
        here, there = own.state_dict(), again.state_dict()
        assert [*here] == [*there] and all(torch.equal(here[name], there[name]) for name in here)
    answers = done.predict(data[0])
    assert np.array_equal(kept.predict(data[0]), answers) and len(answers) == len(done.models) and answers.shape[1] == 60
    for i, node in enumerate(done.simulation.history.nodes):
        assert np.array_equal(done.predict(data[0], node=node), answers[i]) and np.array_equal(kept.predict(data[0], node=node), answers[i])
        assert np.array_equal(kept.predict(data[0].tolist(), node=str(node)), answers[i])
    last = done.history[done.history.step == done.history.step.max()]
    if data[1].dtype.kind == "i": assert np.allclose(last[last.metric == "accuracy"].value, (done.predict(data[2]) == data[3]).mean(axis=1))
    else: assert np.allclose(last.value, ((done.predict(data[2]) - data[3]) ** 2).mean(axis=1))
    assert (kept.statement, kept.epsilon, kept.delta, kept.card()) == (done.statement, 8.0, 1e-6, done.card())
    text = done.history.astype({name: str for name in done.history if done.history[name].dtype.kind not in "if"})
    pd.testing.assert_frame_equal(kept.history, text, check_dtype=False)


def test_a_file_has_no_secret_no_noise_and_no_data(tmp_path):
    done = trained("network")
    content = done.save(tmp_path / "models.mfdl").read_bytes()
    for secret in {SECRET, done.simulation.runs[0].noise_secret}:
        numbers = secret.to_bytes(16, "little"), secret.to_bytes(16, "big"), secret.to_bytes(16, "little")[:8]
        for kept in (str(secret).encode(), f"{secret:x}".encode(), f"{secret:X}".encode(), *numbers): assert kept not in content
    for record in X: assert record.tobytes() not in content and record.astype(float).tobytes() not in content
    about, arrays = unseal(tmp_path / "models.mfdl")
    assert {name.partition("/")[0] for name in arrays} == {"weight", "history", "answers"}
    assert not {"secret", "seed", "key"} & {*about, *about["numbers"]}


def test_a_file_in_which_any_byte_was_changed_is_refused(tmp_path):
    file = trained("network").save(tmp_path / "models.mfdl")
    content = file.read_bytes()
    for place in [0, 31, 32, len(content) - 1, *RNG.integers(len(content), size=60)]:
        file.write_bytes(content[:place] + bytes([content[place] ^ (1 << int(RNG.integers(8)))]) + content[place + 1:])
        with pytest.raises(ValueError, match="models.mfdl.*the file is damaged"): Trained.load(file, with_dropout)
    for end in (0, 10, 40, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:end])
        with pytest.raises(ValueError, match="models.mfdl"): Trained.load(file, with_dropout)
    file.write_bytes(content)
    assert len(Trained.load(file, with_dropout).models) == 3


class Gated(nn.Module):
    """The same parameters, used in another way."""
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x): return self.second(torch.relu(self.first(x)))


@pytest.mark.parametrize("other, said", [
    (lambda: nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Dropout(0.5), nn.Linear(7, 3)), r"model has '0.weight' of shape \(7, 5\), and path=.* has '0.weight' of shape \(6, 5\)"),
    (lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 4)), r"model has '3.weight' of shape \(4, 6\)"),
    (lambda: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 3)), "model has no '3.weight'"), (Gated, "model has no '0.weight'"),
    (lambda: nn.Sequential(*with_dropout(), nn.Linear(3, 3)), "model has '4.weight' of shape .*, and path=.* has no '4.weight'"),
    (lambda: nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3)), "computes something else with them"),
    (with_dropout(), "model is a model, a Sequential"), (lambda: 3, "model returns an object of type int"),
])
def test_another_model_is_refused(other, said, tmp_path):
    file = trained("network").save(tmp_path / "models.mfdl")
    with pytest.raises(ValueError, match=said): Trained.load(file, other)


def test_files_of_something_else_are_refused_and_none_is_overwritten(tmp_path):
    file = seal(tmp_path / "other", {"format": "else"}, {})
    with pytest.raises(ValueError, match="holds no trained models; expected one that Trained.save has written"): Trained.load(file, with_dropout)
    with pytest.raises(FileExistsError, match="other'.*is there; expected another name"): trained("network").save(file)
    (tmp_path / "text").write_text("models")
    with pytest.raises(ValueError, match="text'.*the file is damaged"): Trained.load(tmp_path / "text", with_dropout)
    with pytest.raises(FileNotFoundError, match="none"): Trained.load(tmp_path / "none", with_dropout)
    with pytest.raises(FileNotFoundError, match="there is no folder"): trained("network").save(tmp_path / "no" / "models")


def test_records_of_another_shape_and_unknown_nodes_are_refused():
    done = trained("network")
    for wrong, said in ((X[0], r"X has shape \(5,\): expected \(records, 5\), such as X\[None\] for one record"), (X[:, :4], r"X has shape \(60, 4\): expected \(records, 5\)$"),
                        ([[1.0], [1.0, 2.0]], "X is no array of numbers"), ([["a"] * 5], "X has entries of type str"), (3.0, "X and y: expected arrays")):
        with pytest.raises(ValueError, match=said): done.predict(wrong)
    assert done.predict(X[0][None]).shape == (3, 1) and done.predict(torch.tensor(X), node="west").shape == (60,)
    with pytest.raises(ValueError, match="node='east' is not one of these nodes: expected one of north, south, west, or None for all"): done.predict(X, node="east")


def test_a_model_is_not_moved_by_being_asked():
    done = trained("network")
    before = done.simulation.theta.clone()
    first = done.predict(X)
    assert np.array_equal(done.predict(X), first) and torch.equal(done.simulation.theta, before)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_on_a_card_are_those_of_the_training(kind):
    done, more = trained(kind), KINDS[kind][3]
    card = done.card()
    last = done.history[done.history.step == done.history.step.max()]
    assert f"# {len(done.models)} models" in card and all(f"- {line}" in card for line in done.statement.split("\n"))
    learned = sum(p.numel() for p in done.models[0].parameters() if p.requires_grad)
    assert "60 training records at" in card and "On 20 test records" in card and f"{learned} trained parameters" in card
    for _, found in last.groupby("metric"):
        for value in (found.value.min(), found.value.mean(), found.value.max()): assert f"{value:.4g}" in card
    outside = card.partition("## What is not covered")[2]
    assert "private validation data" in outside and "computational assumption" in outside and "Trained.load(" in outside
    assert ("whether a record was used" in card) == (more.get("adjacency") == "zero-out")


def test_examples_of_methods_are_true(tmp_path, monkeypatch):
    """One after the other, with the training of the first."""
    monkeypatch.chdir(tmp_path)
    names = {}
    for thing in (Trained, Trained.save, Trained.load, Trained.predict, Trained.card):
        examples = doctest.DocTestParser().get_doctest(inspect.cleandoc(thing.__doc__), names, thing.__qualname__, None, 0)
        runner = doctest.DocTestRunner()
        assert examples.examples and not runner.run(examples, clear_globs=False).failed
        names = examples.globs
