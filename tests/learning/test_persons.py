"""Persons with several records, and whole nodes: what is clipped, what is promised, and an audit."""
import json

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

from mfdl import LDP, Participation, Run, Simulation, account, cut, dp_dsgd, gossip_matrix, row_sensitivity, train
from mfdl.evidence.methods.distances import interval
from mfdl.learning.data import Dataset
from mfdl.learning.methods.persons import members_of, persons_held

RING = nx.cycle_graph(4)
W = gossip_matrix(RING)
rng = np.random.default_rng(3)
X = rng.normal(size=(60, 3))
DATA = (X, (X[:, 0] > 0).astype(int), X[:9], np.array([0, 1, 0, 1, 0, 1, 0, 1, 1]))
WHO = rng.integers(20, size=60)  # about three records each
SCHEME = Participation.cyclic(2, 2)


def model(): return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2), nn.Linear(4, 2))


def quiet_model(): return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def trained(**change): return train(**{"model": model, "data": DATA, "graph": RING, "epsilon": 6.0, "participation": SCHEME, "secret": 5, "progress": False} | change)


def simulation(data=DATA, who=WHO, make=quiet_model, clip=0.3, **more):
    members = members_of(who, len(data[1]))
    batches = cut(persons_held(members, None, 4), 2)
    return Simulation(make, Dataset("random", *data), batches, [Run("one", dp_dsgd(W, 4), 0.1), Run("other", dp_dsgd(W, 4), 0.1, 1)], 0.1, clip, members=members, **more)


def prelu(): return nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 2))  # which torch.func does not batch


@pytest.mark.filterwarnings("ignore:model. torch.func cannot batch")
@pytest.mark.parametrize("make", [quiet_model, prelu])
def test_the_mean_gradient_of_a_person_is_clipped(make):
    some = simulation(make=make)
    learner, size = some.learner, some.batches.size
    for t in range(2):
        found, expected = learner.changes(t), torch.zeros_like(some.models)
        for r in range(2):
            for u, one in enumerate(some.modules(r)):
                for person in some.batches.at(t)[u]:
                    if person < 0: continue
                    records = [k for k in learner.members[person] if k >= 0]
                    one.zero_grad()
                    nn.functional.cross_entropy(one(learner.X[records]), learner.y[records]).backward()
                    gradient = torch.cat([p.grad.flatten() for p in one.parameters()])
                    expected[u, r] += gradient * min(1, 0.3 / float(gradient.norm())) / size
        assert (found - expected).abs().max() < 4e-7
        some.step()


@pytest.mark.parametrize("make", [model, quiet_model])
def test_one_person_moves_a_step_by_no_more_than_one_record_may(make):
    """Whatever becomes of all of her records, and however long they are."""
    before = simulation(make=make)
    busiest = np.bincount(WHO).argmax()
    for scale in (1, 1e3, -1e6):
        changed = X.copy()
        changed[busiest == WHO] *= scale
        after = simulation((changed, np.where(busiest == WHO, 1 - DATA[1], DATA[1]), *DATA[2:]), make=make)
        assert before.batches.size == after.batches.size and np.array_equal(before.batches.index, after.batches.index)
        for t in range(2):
            apart = (before.learner.changes(t) - after.learner.changes(t)).double().norm(dim=-1)
            assert apart.max() <= 2 * 0.3 / before.batches.size * (1 + 1e-6)
            assert (apart > 0).sum() <= 2  # of one node, in two runs


def test_persons_with_one_record_each_are_records():
    alone = simulation(who=np.arange(60))
    batches = cut(persons_held(members_of(np.arange(60), 60), None, 4), 2)
    records = Simulation(quiet_model, Dataset("random", *DATA), batches, alone.runs, 0.1, 0.3)
    for one in (alone, records): one.run(progress=False)
    assert (alone.theta - records.theta).abs().max() < 1e-6


def test_a_person_gets_the_budget_of_a_record_and_a_node_that_of_every_step(tmp_path):
    record, person, node = trained(), trained(person=WHO), trained(protect="node")
    assert person.report.sigma == record.report.sigma and {one.epsilon for one in (record, person, node)} == {6.0}
    assert person.simulation.runs[0].scale == pytest.approx(person.report.sigma * row_sensitivity(1.0, person.simulation.batches.size, "replace-one"))
    assert node.simulation.runs[0].scale == pytest.approx(node.report.sigma * row_sensitivity(1.0, 1, "replace-one"))
    run = node.simulation.runs[0].protocol
    assert account(run, LDP(), Participation.every_step(4), sigma=node.report.sigma).worst.epsilon(1e-6) == pytest.approx(6.0)
    assert "all training records of each single person together" in person.statement and "all records of one person are replaced by others" in person.statement
    assert "Each person takes part in at most 2 steps, 2 apart" in person.statement and "all training records of each node together" in node.statement
    assert "Each node takes part in at most 4 steps, 1 apart" in node.statement and "averaged over 1." in node.statement
    assert "can be found by trying" in person.statement
    with pytest.raises(ValueError, match="expected a run without a secret, or with secret=secrets.randbits"): person.save_statement(tmp_path / "said")
    long = trained(person=WHO, secret=2**64)
    _, kept = long.save_statement(tmp_path / "said")
    assert "can be found by trying" not in long.statement
    said = json.loads(kept.read_text())
    assert sum(said["records"].values()) == 60 and "which of two sets of records a person has" in said["in_plain_words"]
    assert "which of two sets of records a person has" in person.card()
    assert person.simulation.runs[0].secret != record.simulation.runs[0].secret


def test_persons_can_be_drawn_at_random():
    random = {"participation": Participation.poisson(0.5, 4), "noise": "independent", "model": quiet_model}
    assert trained(person=WHO, **random).report.sigma == pytest.approx(trained(**random).report.sigma)


@pytest.mark.parametrize("as_one", [True, False])
def test_an_audit_finds_persons_whose_records_are_clipped_one_by_one(as_one):
    """The canary has three records; an eavesdropper looks along their gradients in the steps of their batch."""
    V, d, sigma, replays = np.full((2, 2), 0.5), 8, 2.0, 3000
    run = dp_dsgd(V, 4)
    claimed = account(run, LDP(), SCHEME, sigma=sigma).worst.mu
    who = np.array([0, 0, 0, 1, 2, 3, 4, 5])
    members = members_of(who, 8)

    def moves(size):
        records = np.zeros((8, d))
        records[:3] = size
        data = Dataset("canary", records, np.full((8, 1), -1.0), records[:1], np.zeros((1, 1)))
        held = [[0, 1, 2], [3, 4, 5]]
        batches = cut(held, 2) if as_one else cut([[0, 5, 1, 6, 2, 7], [3, 4]], 2)
        scale = sigma / (2 if as_one else batches.size)
        runs = [Run(str(r), run, scale, secret=r + (size > 0) * replays) for r in range(replays)]
        more = {"members": members} if as_one else {}
        some = Simulation(lambda: nn.Linear(d, 1, bias=False), data, batches, runs, 0.01, 1.0, record=True, **more)
        torch.nn.init.zeros_(some.learner.models)
        found, before = 0.0, some.models.clone()
        for t in range(4):
            some.step()
            sent = some.transcript[t]
            if t % 2 == 0: found = found + (before - sent)[0].double().sum(-1)
            before = (torch.tensor(V, dtype=torch.float32) @ sent.flatten(1)).view_as(sent)
        return found.numpy()
    apart = interval(moves(0.0), moves(1.0), 0.999)
    if as_one: assert 0.8 * claimed < apart.low <= claimed
    else: assert apart.low > claimed


@pytest.mark.parametrize("change, said", [
    ({"person": WHO[:-1]}, "for each of 60 training records"), ({"person": [None, *WHO[1:]]}, "record 0 has no id"), ({"person": ["", *WHO[1:]]}, "record 0 has no id"),
    ({"person": np.arange(60) // 2, "holdings": [range(k, 60, 4) for k in range(4)]}, "all records of a person at one node"),
    ({"person": WHO, "data": DATA[:2]}, "a fifth of data"), ({"person": WHO, "protect": "node"}, "protected with all persons"),
    ({"protect": "node", "participation": Participation.poisson(0.5, 4), "noise": "independent"}, "takes part in every step"),
    ({"protect": "node", "feature_norm": 2.0}, "single records are clipped"), ({"person": WHO, "feature_norm": 2.0}, "single records are clipped"),
])
def test_what_is_refused(change, said):
    with pytest.raises(ValueError, match=said): trained(**change)
