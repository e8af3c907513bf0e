"""What `train` takes: few arguments, whose earlier names say how they are written now, and equal runs for equal things that are given in different ways."""
import inspect

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import mfdl
from mfdl import LDP, Participation, Schedule, account, dp_dsgd, gossip_matrix, mf_dsgd, row_sensitivity, strategy, train
from mfdl.learning.data import round_robin
from mfdl.learning.methods import train_arguments
from mfdl.protocol.methods.random_participation import RandomParticipation

GRAPH = nx.Graph([(0, 1), (1, 2), (2, 3), (0, 2)])
W = gossip_matrix(GRAPH)
X = np.random.default_rng(3).normal(size=(48, 3))
DATA = (X, X[:, 0], X[:9], X[:9, 0])


def model(): return torch.nn.Linear(3, 1)


def trained(**change):
    usual = {"model": model, "data": DATA, "graph": GRAPH, "epsilon": 6.0, "participation": Participation.cyclic(2, 3), "secret": 5, "progress": False}
    return train(**usual | change)


EARLIER = {  # values that calls of earlier versions had, by the names that the messages use
    "make_model": model, "trust": LDP(), "strategy": "bsr", "epochs": 2, "b": 3, "lots": "poisson", "largest": 9, "momentum": 0.5, "nesterov": True,
    "weight_decay": 0.1, "weights": "uniform", "lr": 0.1, "graph": GRAPH, "holdings": round_robin(48, 4),
}


@pytest.mark.parametrize("name", train_arguments.FORMERLY)
def test_earlier_names_say_what_is_written_now(name):
    usual = {"model": model, "participation": Participation.cyclic(2, 3)} | ({"holdings": EARLIER["holdings"]} if name == "largest" else {})
    with pytest.raises(ValueError, match=f"^{name}: train.. has no such argument; expected ") as caught: trained(**usual, **{name: EARLIER[name]})
    for written in train_arguments.FORMERLY[name]:
        assert written in str(caught.value)
        said = eval(f"dict({written})", vars(mfdl) | {each: getattr(mfdl, each) for each in ("Participation", "Schedule", "gossip_matrix")} | EARLIER)
        assert not set(said) & set(train_arguments.FORMERLY)
        random = isinstance(said.get("participation"), RandomParticipation)
        trained(**usual | said | ({"noise": "independent"} if random else {}))


def test_there_are_few_arguments_and_one_group_of_options():
    parameters = inspect.signature(train).parameters
    assert len(parameters) - 1 == 19 and parameters["running"].kind is inspect.Parameter.VAR_KEYWORD
    assert set(train_arguments.Running.__annotations__) == set(train_arguments.USUAL) and not set(train_arguments.USUAL) & set(parameters)
    described = train.__doc__.partition("**running")[2].partition("Returns")[0]
    for name in train_arguments.USUAL: assert f"        {name} : " in described
    assert not set(train_arguments.FORMERLY) & {*parameters, *train_arguments.USUAL}


def test_an_option_that_does_not_exist_is_refused_before_any_work(monkeypatch):
    def work(*_): raise AssertionError("data was read first")
    monkeypatch.setattr(train_arguments, "as_dataset", work)
    for name, meant in (("checkpoints", "checkpoint"), ("sede", "seed"), ("participations", "participation"), ("nonfinite", "on_nonfinite")):
        with pytest.raises(ValueError, match=f"argument of train..='{name}' is not known: did you mean .*{meant}"): trained(**{name: 1})


def test_a_gossip_matrix_is_the_network_of_its_graph():
    ways = [trained(graph=graph) for graph in (GRAPH, W, W.tolist(), csr_array(W))]
    assert len({one.report.sigma for one in ways}) == 1 and {one.simulation.runs[0].protocol.nodes for one in ways} == {(0, 1, 2, 3)}
    for one in ways[:3]: assert torch.equal(one.simulation.theta, ways[0].simulation.theta)
    for wrong, said in ((W[:3], "square"), (2 * W, "graph is not stochastic"), (-W, "graph.* is negative"), (nx.to_numpy_array(GRAPH), "such as gossip_matrix")):
        with pytest.raises(ValueError, match=said): trained(graph=wrong)


def test_other_weights_schemes_and_schedules_draw_other_noise():
    """From one secret: or the difference of two runs would be without noise."""
    changes = [
        {}, {"graph": 0.9 * W + 0.1 * np.eye(4)}, {"participation": Participation.cyclic(3, 2)}, *({"participation": Participation.poisson(q, 6)} for q in (0.3, 0.34)),
        {"participation": Participation.balls_in_bins(2, 3)}, {"participation": Participation.balls_in_new_bins(2, 3)}, {"lr": Schedule(0.1, momentum=0.5)},
        {"lr": Schedule(0.1, momentum=0.6)},
    ]
    keys = [trained(noise="independent", **change).simulation.runs[0].secret for change in changes]
    assert len({*keys}) == len(changes) and keys[0] == trained(noise="independent", graph=W).simulation.runs[0].secret


def test_a_directed_network_keeps_its_budget():
    directed = np.array([[0.5, 0.5, 0, 0], [0, 0.4, 0.6, 0], [0, 0, 0.7, 0.3], [0.9, 0, 0, 0.1]])
    done, scheme = trained(graph=directed), Participation.cyclic(2, 3)
    run = mf_dsgd(directed, 6, strategy("mafalda", scheme, directed).C)
    sigma = done.simulation.runs[0].scale / row_sensitivity(1.0, done.simulation.batches.size, "replace-one")
    assert account(run, LDP(), scheme, sigma).worst.epsilon(1e-6) == pytest.approx(6, rel=1e-6)


def test_rates_are_given_as_a_number_an_array_or_a_schedule():
    plain = [trained(lr=lr).simulation.theta for lr in (0.2, Schedule(0.2))]
    assert torch.equal(*plain)
    falling = np.geomspace(0.2, 0.1, 6)
    changing = [trained(lr=lr).simulation.theta for lr in (falling, Schedule(falling))]
    assert torch.equal(*changing) and not torch.equal(plain[0], changing[0])
    carried = trained(lr=Schedule(0.2, momentum=0.5, nesterov=True, weight_decay=0.1))
    assert "momentum 0.5 and weight decay 0.1" in carried.statement
    for wrong in (falling[1:], Schedule(falling[1:])):
        with pytest.raises(ValueError, match="expected a positive number below 1e30, or 6 of them"): trained(lr=wrong)


def test_an_earlier_name_is_not_a_name_of_noise():
    assert trained(noise="independent").report.sigma == pytest.approx(trained(noise=dp_dsgd(W, 6)).report.sigma / np.sqrt(2), rel=1e-9)  # its strategy has sensitivity 1
    with pytest.raises(ValueError, match="noise='identity': expected 'independent'"): trained(noise="identity")


@pytest.mark.parametrize("scheme", [
    Participation.poisson(1 / 3, 6), Participation.poisson(0.4, 7), Participation.poisson(0.01, 4), Participation.poisson(1, 3), Participation.cyclic_poisson(3, 2, 0.5),
    Participation.truncated_poisson(0.3, 8, 12, 6, 2), Participation.balls_in_bins(2, 3), Participation.balls_in_new_bins(3, 2),
    Participation.single(4), Participation.every_step(3),
])
def test_noise_is_made_for_as_many_steps_as_a_run_has(scheme):
    """And, for random steps, for about as many uses as a record has on average."""
    known = train_arguments.in_turn(scheme)
    assert known.T == scheme.T
    mean = scheme.draw(12, 1).sum() / 12 if isinstance(scheme, RandomParticipation) else scheme.k
    assert abs(known.k - mean) <= 1 + mean / 2
    if isinstance(scheme, Participation): assert known == scheme


NEW_BINS = Participation.balls_in_new_bins(2, 3)


@pytest.mark.parametrize("change, words", [
    ({"noise": mfdl.dsgd(W, 6)}, "no finite noise"), ({"noise": mfdl.local_dsgd(W, 6, 4)}, "ends with gradients that are in no message"),
    ({"checkpoint": "run", "secret": None}, "needs a secret"), ({"estimate": True}, "nothing has to be estimated"),
    ({"lr": np.geomspace(1, 0.1, 6), "against": mfdl.PNDP([0]), "estimate": True}, "lr changes"),
    ({"lr": Schedule(1.0, weight_decay=0.1), "against": mfdl.PNDP([0]), "estimate": True}, "weights decay"),
    ({"feature_norm": 2.0, "model": lambda: torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))}, "it is not known how strongly"),
    ({"participation": NEW_BINS, "lr": Schedule(0.1, momentum=0.9)}, "nothing is proved about momentum; expected a number as lr"),
    ({"participation": NEW_BINS, "against": mfdl.PNDP([0])}, "nothing is proved about insiders"),
    ({"participation": Participation.truncated_poisson(1 / 3, 6, 11, 5)}, r"a node holds 12 records; expected Participation.truncated_poisson\(0.333\d*, 6, 12, 5, 1\)"),
    ({"participation": Participation.min_sep(2, 3, 6)}, r"expected Participation.cyclic\(2, 3\)"), ({"against": "4 insiders"}, "expected from one insider to 3 of the 4 nodes"),
    ({"optimizer": "adma"}, "did you mean adam"), ({"person": "writer"}, "the id of a person for each of 48"),
    ({"protect": "nodes"}, "did you mean node"), ({"epsilon": -1}, "expected a positive number"),
])
def test_what_has_no_account_is_refused_before_training(change, words):
    with pytest.raises(ValueError, match=words): trained(**change)


def test_automatic_clipping_costs_what_a_clip_of_one_does():
    automatic, clipped = trained(clip="automatic"), trained(clip=1.0)
    assert automatic.report.sigma == clipped.report.sigma and automatic.simulation.runs[0].scale == clipped.simulation.runs[0].scale
    assert "gradients are scaled to norm 1" in automatic.statement and "gradients are clipped to norm 1" in clipped.statement
    assert automatic.simulation.runs[0].secret != clipped.simulation.runs[0].secret
    with pytest.raises(ValueError, match="short ones are scaled up"): trained(clip="automatic", feature_norm=2.0)
    with pytest.raises(ValueError, match="clip="): trained(clip="automatik")


def test_who_stops_a_training_is_told_what_is_kept(tmp_path):
    stopped = []

    def interrupted(**change):
        stopped.clear()
        learn = train_arguments.Simulation.step
        def step(self):
            stopped.append(self.t)
            if len(stopped) == 5: raise KeyboardInterrupt
            learn(self)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt) as caught:
            patch.setattr(train_arguments.Simulation, "step", step)
            trained(every=1, **change)
        return caught.value.__notes__[0]

    assert "nothing is kept" in interrupted()
    place = tmp_path / "run.ckpt"
    assert f"kept in {place}" in interrupted(checkpoint=place)
    assert torch.equal(trained(every=1, checkpoint=place).models[0].weight, trained(every=1).models[0].weight)


def test_a_delta_that_would_publish_a_record_is_pointed_out():
    with pytest.warns(UserWarning, match="48 records: to publish one of them"): trained(delta=0.03)


def test_batches_that_never_come_are_pointed_out():
    late = dp_dsgd(W, 6, nodes=GRAPH, trains=[[0, 1, 2, 3]] * 2 + [[1, 2, 3]] + [[0, 1, 2, 3]] * 2 + [[1, 2, 3]])
    with pytest.warns(UserWarning, match="never trains on 1 of 3 batches of node 0, and so of 1 nodes in all"): trained(noise=late)


def test_a_protocol_for_another_network_or_order_is_refused():
    other = [3, 1, 2, 0]
    for run, said in ((dp_dsgd(W[other][:, other], 6), "has no such link"), (dp_dsgd(W, 4), "expected one for 4 steps"),
                      (dp_dsgd(W, 6, nodes=other), "4 nodes, number 1 is 3, expected those of the graph in its order, 4 nodes, number 1 is 0")):
        with pytest.raises(ValueError, match=said): trained(noise=run)
    named = dp_dsgd(W, 6, nodes=["a", "b", "c", "d"])
    assert trained(graph=W, noise=named).report.victims[0] in named.nodes
