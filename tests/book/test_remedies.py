"""What an error recommends can be done by its caller: one table of calls that fail, what each error recommends, and the call that follows the advice."""
import ast
import json
import os
import pickle
import re
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import nbformat
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from click.testing import CliRunner
from conftest import ROOT
from scipy.sparse import csr_array
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Subset, SubsetRandomSampler, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from mfdl import (
    LDP,
    PNDP,
    Adam,
    GaussianDP,
    Lipschitz,
    Noise,
    Objective,
    OnlineAccountant,
    Participation,
    Protocol,
    Round,
    Schedule,
    ScheduledProtocol,
    SecLDP,
    SecureSum,
    Step,
    Trained,
    account,
    corn,
    decor,
    dp_dsgd,
    dsgd,
    fresh_noise,
    gossip_matrix,
    gradient_tracking,
    load_data,
    load_graph,
    local_dsgd,
    local_gram,
    mf_dsgd,
    muffliato,
    noise_for,
    noisy_gradients_account,
    optimize,
    optimize_covariance,
    optimize_local,
    optimize_pairwise,
    optimize_weights,
    push_sum,
    replace_batch_norm,
    strategy,
    train,
    which_network,
    which_noise,
    workload,
    zip_dl,
)
from mfdl.accounting.account import account_by
from mfdl.accounting.lemma14 import view
from mfdl.accounting.methods.accountant import restore, save
from mfdl.accounting.methods.all_attackers import exposure
from mfdl.accounting.methods.poisson import amplified
from mfdl.accounting.methods.random_batches import amplified_if_assigned
from mfdl.accounting.methods.truncated_poisson import amplified_if_cut
from mfdl.accounting.sensitivity import worst_sensitivity
from mfdl.base.arguments import real_array
from mfdl.base.files import seal
from mfdl.evidence.audit import audit
from mfdl.evidence.methods.reconstruction import estimate, play
from mfdl.learning.data import Dataset, cut, round_robin
from mfdl.learning.methods.drawn_batches import random_batches
from mfdl.learning.methods.layers import new_model
from mfdl.learning.methods.noise_supply import Run, check_run
from mfdl.learning.simulator import Simulation
from mfdl.noise.methods.any_secrets import exact_pairwise
from mfdl.noise.methods.buffered import best_buffers
from mfdl.noise.methods.covariance_budgets import privacy_constraint
from mfdl.noise.methods.gram_matrices import modes
from mfdl.noise.methods.objectives import AgeWorkload
from mfdl.noise.methods.space_time_solver import exact_space_time
from mfdl.noise.methods.strategies import load_strategy, save_strategy
from mfdl.protocol.gossip import spectral_gap
from mfdl.protocol.methods.attacker_names import parse_attackers
from mfdl.protocol.methods.checked_gossip import check_gossip
from mfdl.protocol.methods.protocol_files import read_protocol, write_protocol
from mfdl.protocol.methods.record_uses import Uses
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.tools.agreement import Site, new_key, public_key
from mfdl.tools.answers import expected_cost_in_words
from mfdl.tools.cli import app
from mfdl.tools.distributed import Peer
from mfdl.tools.experiments import experiment_parameters
from mfdl.tools.grids import read_grid
from mfdl.tools.network import join
from mfdl.tools.nvflare import swarm_job
from mfdl.tools.opacus import _check_records
from mfdl.tools.settings import Settings, explore
from mfdl.tools.site_keys import keys_of, make_keys, pin_keys, public_line
from mfdl.tools.swarm import Plan, plan_swarm


def remembering(basis):
    "A run in which nodes share noise that has a memory."
    blocks = [np.eye(3) / 2, np.eye(3)]
    return Protocol(None, [Step(True, Noise(np.ones((3, 3)), np.hstack(blocks[t == 0:]), basis=basis), [Round(W)]) for t in range(T)])


LINE, T = nx.path_graph(3), 4
W = gossip_matrix(LINE)
TABLE = pd.DataFrame(W, list("abc"), list("abc"))
SITES = {node: (np.eye(4, 2), np.arange(4) % 2) for node in LINE}
SPARSE, LINKED, NAMED, TWO_LINKS = csr_array(W), nx.to_numpy_array(LINE), [("a", "b"), ("b", "c")], nx.MultiGraph([(0, 1), (0, 1)])
TWICE, EVERY, APART = Participation.cyclic(2, 2), Participation.every_step(T), Participation.min_sep(2, 2, T)
RUN, PREFIX, LOCAL, ZIP = dp_dsgd(W, T), mf_dsgd(W, T, np.tril(np.ones((T, T)))), local_dsgd(W, T, 2), zip_dl(W, T)
SHARED = corn(W, T, np.eye(3) + 0.2)
IDLE_FIRST = dp_dsgd(W, T, trains=[[1, 2], [0, 1], [0], [0, 1, 2]])
IDLE = dp_dsgd(W, T, trains=[[0, 1, 2], [0, 1], [0], [0, 1, 2]])
LONG, BEST = mf_dsgd(W, T, np.eye(T) + np.tril(np.ones((T, T)))), mf_dsgd(W, T, strategy("mafalda", TWICE, W).C)
BANDED = mf_dsgd(W, T, np.eye(T) + 0.5 * np.eye(T, k=-1))
NEARLY = [[0.4, 0.3, 0.3, 0, 0], [0, 0.5, 0.1, 0.2 + 1e-9, 0.2 - 1e-9], [0, 0.1, 0.5, 0.2, 0.2], [0, 0, 0, 0.8, 0.2], [0, 0, 0, 0.1, 0.9]]
ALIKE, WEAK, PAIR = muffliato(NEARLY, T, 2), mf_dsgd(W, 10, [np.eye(10) * (1e9 if u == 1 else 1) for u in range(3)]), dp_dsgd(np.full((2, 2), 0.5), T)
MANY = Participation.min_sep(5, 10, 200)
PLACES = [(0, 0), (0, 1), (1, 0)]
THREE_OR_FOUR = [Noise(np.eye(3)[[0, 1, 2, 0][:3 + t % 2]], np.hstack([np.eye(3, 4 - t % 2) / 2, np.eye(3, 3 + t % 2)][t == 0:])) for t in range(8)]
UNEVEN = Protocol(None, [Step(True, noise, [Round(W)]) for noise in THREE_OR_FOUR])
SEEN = view(dsgd(W, T), PNDP([0]))
BETWEEN, DIRECTED = remembering(None), remembering(np.eye(3) + 0.25)
TRACKS = gradient_tracking(W, T)
LARGE, SIXTY = gradient_tracking(gossip_matrix(nx.cycle_graph(60)), 60), Participation.every_step(60)
OF_MESSAGES = Protocol.from_matrices(ZIP.M_G, ZIP.M_Z, ZIP.messages, ZIP.variables, None, T)
MATRICES = Protocol.from_matrices(RUN.M_G, RUN.M_Z, RUN.messages, RUN.variables, None, T)
FALLING = [1.0, 0.5, 0.5, 0.25]
POISSON, ONCE, ANEW = Participation.poisson(0.5, T), Participation.balls_in_bins(2, 2), Participation.balls_in_new_bins(2, 2)
X = np.random.default_rng(0).normal(size=(36, 2))
DATA = (X, (X[:, 0] > 0).astype(int)) * 2
RECORDS = Dataset("toy", *(np.asarray(part, dtype=np.float32 if part.ndim == 2 else np.int64) for part in DATA))
BATCHES = cut(round_robin(36, 3), 2)
PAIRS = TensorDataset(torch.tensor(X), torch.tensor(DATA[1]))
REPEATED, LEARNED = Subset(PAIRS, [*range(36), 0]), torch.tensor(X, requires_grad=True)
PEOPLE, ANSWERS = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "site": ["north", "south"] * 18}), pd.Series(DATA[1])


class Stream(IterableDataset):
    "Records without an end."
    def __iter__(self): return iter(PAIRS)


class Endless(TorchDataset):
    "More records than any memory holds."
    def __len__(self): return 10**15
    def __getitem__(self, i): return X[i % 36], DATA[1][i % 36]


class Named:
    "What is used of a data set of Hugging Face, and what is recommended."
    def __init__(self, **columns): self.columns = columns
    def __len__(self): return 36
    def __getitem__(self, i): return {name: values[i] for name, values in self.columns.items()}
    @property
    def column_names(self): return [*self.columns]
    def rename_column(self, name, other): return Named(**{other if one == name else one: values for one, values in self.columns.items()})


class Parts(dict):
    "Parts of a data set of Hugging Face, by name."


for kind, name in ((Named, "Dataset"), (Parts, "DatasetDict")): kind.__name__, kind.__module__ = name, "datasets"


@pytest.fixture(autouse=True)
def a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MFDL_STATE", str(tmp_path / "state"))
    (tmp_path / "three.csv").write_text("a,b,c\n1,2,3\n2,3,4\n")
    (tmp_path / "other.json").write_text(json.dumps(nx.cytoscape_data(LINE)))


def by(way, run, trust=None, scheme=TWICE): return partial(account_by, way, run, PNDP([0]) if trust is None else trust, scheme)
def accounts(run, trust=None, scheme=TWICE, **options): return partial(account, run, PNDP([0]) if trust is None else trust, scheme, **options)
USUAL = {"model": lambda: nn.Linear(2, 2), "data": DATA, "graph": LINE, "epsilon": 5.0, "participation": Participation.cyclic(2, 2), "progress": False}
BY_POISSON = {"participation": POISSON, "noise": "independent"}
def trains(**options): return partial(train, **USUAL | options)
def scheduled(run=RUN, rates=FALLING, **more): return ScheduledProtocol(run, Schedule(rates, **more))
def simulates(record, run=RUN, **more): return Simulation(lambda: nn.Linear(2, 2), RECORDS, BATCHES, [Run("toy", run, 0.1)], 0.1, 1.0, record=record, **more)


def node_noise(t):
    "The noise of a node that takes back what it added before, after some steps."
    noise = NodeNoise(BANDED, 0, deal_seeds(BANDED, 7)[0], 2)
    noise.noise_at(t)
    return noise


def feeds(run, trust=None, **options):
    def report():
        accountant = OnlineAccountant(PNDP([0]) if trust is None else trust, **options)
        accountant.feed(run)
        return accountant.report()
    return report


def restores(accountant):
    def again():
        first = OnlineAccountant(PNDP([(0, 0)]), nodes=PLACES)
        first.feed(RUN.steps[0])
        save(first, "account.mfdl")
        return restore(accountant, "account.mfdl")
    return again


def command(*words):
    def run():
        done = CliRunner().invoke(app, [*map(str, words)])
        if done.exit_code: raise RuntimeError(done.output)
    return run


def checkpoint():
    done = simulates(record=False)
    done.step()
    done.save("kept.mfdl")
    return "kept.mfdl"


def grid(text):
    with open("grid.yaml", "w") as file: file.write(text)
    return read_grid("grid.yaml")


def patiently(patient):
    "A user who has no time at all, and may say that it does not matter."
    def ask():
        with patch("mfdl.tools.answers.MOST_SECONDS", -1.0): expected_cost_in_words(RUN, PNDP.each(LINE), TWICE, "exact", patient=patient)
    return ask


def loads(**options): return DataLoader(range(4), **{} if "batch_sampler" in options else {"batch_size": 2}, **options)


class UniformWithReplacementSampler(list):
    "As Opacus calls what draws batches at random."
    sample_rate = 0.5
    def __init__(self, n): super().__init__([[u] for u in range(n)])


class Shaken(nn.Linear):
    "A layer that draws."
    def __init__(self): super().__init__(2, 2)
    def forward(self, x): return super().forward(x) + torch.rand(len(x), 2)


class DroppedTwice(nn.Linear):
    "A layer that uses a dropout twice."
    def __init__(self, drop):
        super().__init__(2, 2)
        self.drop = drop

    def forward(self, x): return self.drop(super().forward(self.drop(x)))


def half_frozen(): return nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))


def adam_on(schedule): return Simulation(lambda: nn.Linear(2, 2), RECORDS, BATCHES, [Run("toy", ScheduledProtocol(RUN, schedule), 0.1)], None, 1.0, optimizer=Adam())


def of_persons(batches):
    return Simulation(lambda: nn.Linear(2, 2), RECORDS, batches, [Run("toy", RUN, 0.1)], 0.1, 1.0, members=np.arange(12).reshape(6, 2))


def simulates_clipped(clip): return Simulation(lambda: nn.Linear(2, 2), RECORDS, BATCHES, [Run("toy", RUN, 0.1)], 0.1, clip)


def simulates_two(model): return Simulation(model, RECORDS, BATCHES, [Run("a", RUN, 0.1), Run("b", RUN, 0.1, 1)], 0.1, 1.0)


class Forgetful(PNDP):
    "Attackers who know nothing of themselves."
    def knows_gradient(self, owner, coalition): return np.zeros(len(owner), dtype=bool)


class Mixing(PNDP):
    "Attackers who see the sum of all messages."
    def observation(self, run, coalition): return csr_array(np.ones((1, len(run.messages.step))))


class DPOptimizer:
    "What an optimizer of Opacus has, for one step of a batch of records."
    loss_reduction, secure_mode, step_hook, expected_batch_size, max_grad_norm, _is_last_step_skipped = "mean", False, None, 2, 1.0, False

    def __init__(self, noise_multiplier=0.2, accumulated_iterations=1, records=2):
        self.noise_multiplier, self.accumulated_iterations, self.grad_samples = noise_multiplier, accumulated_iterations, [[0.0] * records]
        self.params = [nn.Parameter(torch.zeros(3))]
        self.params[0].summed_grad = None
        self.original_optimizer = torch.optim.SGD(self.params, lr=0.1)

    def clip_and_accumulate(self): self.params[0].summed_grad = torch.zeros(3)

    def add_noise(self): self.params[0].grad = self.params[0].summed_grad

    def zero_grad(self): self.params[0].summed_grad = None


def steps(run=RUN, seed=None, scheme=TWICE, loader=None, change=lambda optimizer: None, **optimizer):
    "One step of node 0 with Opacus."
    def step():
        given = DPOptimizer(**optimizer)
        change(given)
        made = noise_for(given, Run("toy", run, 0.1), 0, deal_seeds(run, seed)[0], scheme, loader and loader())
        made.clip_and_accumulate()
        made.add_noise()
    return step


def hooked(optimizer): optimizer.step_hook = print


def unhooked(optimizer): optimizer.step_hook = None


def begun(optimizer): optimizer.clip_and_accumulate()


def cleared(optimizer):
    optimizer.clip_and_accumulate()
    optimizer.zero_grad()


def uneven(optimizer): optimizer.grad_samples = [[0.0] * 2, [0.0] * 3]


def by_lot(): return loads(batch_sampler=UniformWithReplacementSampler(4))


def steps_twice(first, second):
    def both():
        steps(seed=first)()
        steps(seed=second)()
    return both


def notebook(*tags, value="3"):
    "The parameters of an experiment of one cell."
    cell = nbformat.v4.new_code_cell(f"rounds = {value}", metadata={"tags": [*tags]})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": {"name": "python3", "display_name": "", "language": "python"}}), "mine.ipynb")
    return experiment_parameters("mine.ipynb")


def uses(*steps, scheme=TWICE):
    def take():
        for records in steps: noted.take(records)
    noted = Uses(scheme)
    return take


# What is recommended, as in the code with {} for values; a call that fails; and the call that follows the advice.
GOSSIP = [
    ("{} is {}: expected a gossip matrix, such as gossip_matrix({}{})", lambda: dp_dsgd(LINE, T), lambda: dp_dsgd(gossip_matrix(LINE), T)),
    ("gossip_matrix(networkx.Graph(W))", lambda: muffliato(nx.DiGraph(LINE), T, 2), lambda: muffliato(gossip_matrix(nx.Graph(nx.DiGraph(LINE))), T, 2)),
    ("gossip_matrix(networkx.from_edgelist(W))", lambda: dsgd([*LINE.edges], T), lambda: dsgd(gossip_matrix(nx.from_edgelist([*LINE.edges])), T)),
    ("gossip_matrix(networkx.from_edgelist(W))", lambda: dsgd(NAMED, T), lambda: dsgd(gossip_matrix(nx.from_edgelist(NAMED)), T)),
    ("gossip_matrix(networkx.from_numpy_array(W))", lambda: local_gram(LINKED, T), lambda: local_gram(gossip_matrix(nx.from_numpy_array(LINKED)), T)),
    ("gossip_matrix(networkx.from_numpy_array(numpy.array(W)))",
     lambda: zip_dl(LINKED.tolist(), T), lambda: zip_dl(gossip_matrix(nx.from_numpy_array(np.array(LINKED.tolist()))), T)),
    ("gossip_matrix(networkx.from_scipy_sparse_array(W))", lambda: dp_dsgd(csr_array(LINKED), T), lambda: dp_dsgd(gossip_matrix(nx.from_scipy_sparse_array(csr_array(LINKED))), T)),
    ("expected graph.to_undirected(), or push_sum for links as they are", lambda: optimize_weights(nx.DiGraph(LINE), TWICE),
     lambda: [optimize_weights(nx.DiGraph(LINE).to_undirected(), TWICE), push_sum(W.T, T)]),
    ("expected at most {} as nodes^2 * edges; for larger graphs there is gossip_matrix(graph)", lambda: optimize_weights(nx.cycle_graph(400), TWICE),
     lambda: gossip_matrix(nx.cycle_graph(400))),
    ("expected 2 to {}, or which_noise(W, ..) for the network that there is", lambda: which_network(65, TWICE, 3, 1e-6),
     lambda: [which_network(3, TWICE, 3, 1e-6), which_noise(gossip_matrix(nx.cycle_graph(65)), TWICE, 3, 1e-6)]),
    ("the best noise is made for steps exactly {} apart; expected Participation.cyclic({}, {})", lambda: which_network(3, APART, 3, 1e-6),
     lambda: which_network(3, Participation.cyclic(2, 2), 3, 1e-6)),
    ("fewer nodes or steps, or noisy_gradients_account(..), which tells what nobody exceeds", lambda: account(LARGE, LDP(), SIXTY),
     lambda: noisy_gradients_account(LARGE, LDP(), SIXTY)),
    ("messages are no sums of noisy gradients; expected one without", lambda: play(simulates(True, divide_by="own")), lambda: play(simulates(True))),
    ("the gap stays at {}; expected a larger tol, such as {}", lambda: optimize_weights(LINE, TWICE, tol=1e-16), lambda: optimize_weights(LINE, TWICE, tol=1e-6)),
    ("shares in [0, 1] whose columns sum to 1, such as {} / {}.sum(axis=0)", lambda: push_sum(2 * W, T), lambda: push_sum(2 * W / (2 * W).sum(axis=0), T)),
    ("expected (n rows, n rows) for n nodes with rows={} vectors each", lambda: Round(np.eye(3), rows=2), lambda: Round(np.eye(6), rows=2)),
    ("W[1] is a Graph: expected a gossip matrix, such as gossip_matrix(W[1])", lambda: dp_dsgd([W, LINE, W, W], T), lambda: dp_dsgd([W, gossip_matrix(LINE), W, W], T)),
    ("as those of gossip_matrix(graph) are, or list(graph) for another network of these nodes", lambda: dp_dsgd(np.ones((3, 3)) / 3, T, nodes=LINE),
     lambda: [dp_dsgd(gossip_matrix(LINE), T, nodes=LINE), dp_dsgd(np.ones((3, 3)) / 3, T, nodes=list(LINE))]),
    ("expected {}.to_numpy(), and nodes={}.index where a protocol is made of it", lambda: dp_dsgd(TABLE, T), lambda: dp_dsgd(TABLE.to_numpy(), T, nodes=TABLE.index)),
    ("expected one for {} steps, such as Participation.cyclic(k, b) with k*b = {}", trains(noise=dp_dsgd(W, 9)),
     trains(noise=dp_dsgd(W, 9), participation=Participation.cyclic(3, 3))),
    ("expected a run without a secret, or with secret=secrets.randbits(128), of the module secrets",
     lambda: trains(secret=1)().save_statement("guessed"), lambda: [trains()().save_statement("fresh"), trains(secret=2**100)().save_statement("long")]),
    ("expected trained.save(path), which keeps models, history and statement", lambda: pickle.dumps(trains()()), lambda: trains()().save("kept")),
    ("expected ({node: (X, y), ..}, (X_test, y_test))", trains(data=SITES), trains(data=(SITES, SITES[0]))),
    ("gossip_matrix(W, sparse=False)", lambda: check_gossip(nx.cycle_graph(2001)), lambda: check_gossip(gossip_matrix(nx.cycle_graph(2001), sparse=False))),
    ("numbers each: expected a full matrix, such as gossip_matrix(graph, sparse=False)",
     lambda: modes(gossip_matrix(LINE, sparse=True)), lambda: modes(gossip_matrix(LINE, sparse=False))),
    ("expected a simple graph, such as networkx.Graph(graph)", lambda: gossip_matrix(TWO_LINKS), lambda: gossip_matrix(nx.Graph(TWO_LINKS))),
    ("such as networkx.Graph(graph); or", lambda: gossip_matrix(nx.DiGraph(LINE)), lambda: gossip_matrix(nx.Graph(nx.DiGraph(LINE)))),
    ("expected a positive, finite number as its attribute 'weight'", lambda: gossip_matrix(LINE, "given"), lambda: gossip_matrix(nx.Graph([(0, 1, {"weight": 0.5})]), "given")),
    ("as metropolis and uniform matrices have", lambda: modes(np.eye(3)[[1, 2, 0]]), lambda: [modes(gossip_matrix(LINE, kind)) for kind in ("metropolis", "uniform")]),
]
LANGUAGE = [
    ("expected the name of a graph, the path of a file, a pandas.DataFrame or a networkx.Graph", trains(graph=3), lambda: [trains(graph=LINE)(), trains(graph="path:n=3")()]),
    ('load_graph(.., columns="{}")', lambda: load_graph("three.csv"), lambda: load_graph("three.csv", columns="a,b")),
    ("expected node-link data, an object with nodes, and links or edges; networkx.cytoscape_graph", lambda: load_graph("other.json"),
     lambda: load_graph(nx.cytoscape_graph(json.loads(Path("other.json").read_text())))),
    ("such as graph.to_undirected(), written again", lambda: load_graph(nx.DiGraph([(0, 1)])), lambda: load_graph(nx.DiGraph([(0, 1)]).to_undirected())),
    ("expected name:key=number,..., got {}", lambda: load_graph("ring:8"), lambda: load_graph("ring:n=8")),
    ("without attackers in the network use LDP()", lambda: PNDP([]), lambda: account(RUN, LDP(), TWICE)),
    ("expected a trust model, such as LDP() or PNDP([node])",
     accounts(RUN, trust="pndp"), lambda: [account(RUN, trust, TWICE) for trust in (LDP(), PNDP([0]), [LDP()])]),
    ("trust={}: sums are of one vector a node, and {} has {}; expected PNDP({}), who see more", accounts(TRACKS, trust=SecureSum([0])), accounts(TRACKS, trust=PNDP([0]))),
    ("trust={}: {}; expected PNDP({}), who see more", accounts(MATRICES, trust=SecureSum([0])), accounts(MATRICES, trust=PNDP([0]))),
    ("trust={}: sums are of one vector a node, and {} has {}; expected PNDP({}), who see more", accounts(TRACKS, trust=SecureSum([0])), accounts(TRACKS, trust=PNDP([0]))),
    ("trust={}: {}; expected PNDP({}), who see more", accounts(scheduled(), trust=SecureSum([0, 1])), accounts(scheduled(), trust=PNDP([0, 1]))),
    ("expected 'all', 'first', or some of {}, ...", lambda: parse_attackers("9", LINE), lambda: [parse_attackers(text, LINE) for text in ("all", "first", "0")]),
    ("expected PNDP([{}]) in Python, or other labels",
     lambda: parse_attackers("a+b", ["a", "b", "a+b"]), lambda: account(dp_dsgd(W, T, nodes=["a", "b", "a+b"]), PNDP(["a+b"]), TWICE)),
    ("expected PNDP in Python, or other labels", lambda: parse_attackers("1", [1, "1"]), lambda: account(dp_dsgd(W, T, nodes=[1, "1", 2]), PNDP(["1"]), TWICE)),
    ("expected sample:size=...,seed=...", lambda: parse_attackers("sample:size=2", LINE), lambda: parse_attackers("sample:size=2,seed=0", LINE)),
    ("full gossip matrices, such as gossip_matrix(graph, sparse=False)",
     accounts(scheduled(dp_dsgd(SPARSE, T), momentum=0.5)), accounts(scheduled(dp_dsgd(gossip_matrix(LINE, sparse=False), T), momentum=0.5))),
    ("expected full ones, such as gossip_matrix(graph, sparse=False)",
     lambda: audit(dp_dsgd(SPARSE, T), LDP(), TWICE, replays=8), lambda: audit(dp_dsgd(gossip_matrix(LINE, sparse=False), T), LDP(), TWICE, replays=8)),
    ("expected a Participation, such as Participation.every_step(T)", lambda: account(RUN, LDP(), "every-step"), lambda: account(RUN, LDP(), EVERY)),
    ("takes part at random, which only account(.., LDP(), ..) counts on; expected known steps, such as Participation.cyclic(k, b)",
     lambda: strategy("bsr", POISSON), lambda: [strategy("bsr", Participation.cyclic(2, 2)), account(RUN, LDP(), POISSON)]),
    ("expected a multiple of groups={}, each of them as often in turn",
     lambda: Participation.truncated_poisson(0.5, 5, 9, 4, groups=2), lambda: Participation.truncated_poisson(0.5, 4, 9, 4, groups=2)),
    ("Expected a fixed order of batches, or an account for Participation.min_sep(k, 1, T), which allows for k epochs in any order",
     uses([1], [2], [2], [1]), uses([1], [2], [2], [1], scheme=Participation.min_sep(2, 1, T))),
    ("Expected a fixed order of batches, or an account for", uses([1], [2], [2], [1]), uses([1], [2], [1], [2])),
    ("share: W is sparse; expected a full matrix, W.toarray()", lambda: Round(SPARSE, np.eye(9)), lambda: Round(csr_array(np.full((3, 3), 1 / 3)).toarray(), np.eye(9))),
    ("rounds has {}: expected Round objects, such as Round(W)", lambda: Step(True, fresh_noise(np.eye(3)), [W]), lambda: Step(True, fresh_noise(np.eye(3)), [Round(W)])),
    ("expected a Noise, such as fresh_noise(np.eye(n))", lambda: Step(True, np.eye(3), []), lambda: Step(True, fresh_noise(np.eye(3)), [])),
    ("such as deal_seeds(protocol, secret)[{}]", lambda: next(NodeNoise(RUN, 0, 7, 2)), lambda: next(NodeNoise(RUN, 0, deal_seeds(RUN, 7)[0], 2))),
    ("expected what state() returned for the noise of this run",
     lambda: node_noise(2).restore(node_noise(2).state() | {"t": 1}), lambda: node_noise(2).restore(node_noise(2).state())),
    ("a Protocol, such as dp_dsgd(W, T)", lambda: audit(MATRICES, LDP(), TWICE, replays=8), lambda: audit(dp_dsgd(W, T), LDP(), TWICE, replays=8)),
    ("such as {}.filled(0)",
     lambda: real_array("x", np.ma.masked_array([1.0, 2.0], [True, False])), lambda: real_array("x", np.ma.masked_array([1.0, 2.0], [True, False]).filled(0))),
]
ACCOUNTS = [
    ("protocol={}: expected a Protocol, such as dp_dsgd(W, T)", accounts(W), accounts(dp_dsgd(W, T))),
    ("full gossip matrices, such as gossip_matrix(graph, sparse=False)",
     lambda: view(dp_dsgd(SPARSE, T), PNDP([0])), lambda: view(dp_dsgd(gossip_matrix(LINE, sparse=False), T), PNDP([0]))),
    ("or full gossip matrices, such as W.toarray()", by("seen", dsgd(SPARSE, T)), by("dense", dsgd(SPARSE.toarray(), T))),
    ("; expected noise that each node draws and adds by itself, in the same way, or full gossip matrices, such as W.toarray()",
     by("seen", SHARED), by("dense", SHARED)),
    ("in the same way, or full gossip matrices, such as W.toarray()", by("seen", ZIP), by("dense", ZIP)),
    ("in the same way, or full gossip matrices, such as W.toarray()", by("seen", MATRICES), by("dense", MATRICES)),
    ("expected the whole view of a run with full gossip matrices", by("streaming", ZIP), by("dense", ZIP)),
    ("expected the whole view of a run with full gossip matrices", by("streaming", scheduled(momentum=0.5)), by("dense", scheduled(momentum=0.5))),
    ("do not know their own models, or know gradients of others; expected the whole view", by("streaming", RUN, Forgetful([0])), by("dense", RUN, Forgetful([0]))),
    ("too nearly alike to be told apart in floating point; expected the whole view", by("streaming", ALIKE, scheme=EVERY), by("dense", ALIKE, scheme=EVERY)),
    ("so that a state is as large as the run; expected the whole view", by("streaming", LONG), by("dense", LONG)),
    ("some noise is too weak beside other noise to be told from none in floating point; expected the whole view",
     by("streaming", WEAK, scheme=Participation.every_step(10)), by("dense", WEAK, scheme=Participation.every_step(10))),
    ("the attackers observe combinations of messages of several rounds; expected the whole view", by("seen", RUN, Mixing([0])), by("dense", RUN, Mixing([0]))),
    ("has more variables in some steps than in others; expected the whole view",
     by("streaming", UNEVEN, scheme=Participation.every_step(8)), by("dense", UNEVEN, scheme=Participation.every_step(8))),
    ("is accounted for in floating point; expected plain steps", by("exact", scheduled()), by("exact", RUN)),
    ("or a larger memory_limit", accounts(dp_dsgd(SPARSE, T), memory_limit=1), accounts(dp_dsgd(SPARSE, T), memory_limit=1e9)),
    ("expected method='bound'", lambda: worst_sensitivity(np.eye(200), MANY), lambda: worst_sensitivity(np.eye(200), MANY, method="bound")),
    ("attackers={}: expected a list, such as [{}]", lambda: exposure(RUN, PNDP([0]), TWICE), lambda: exposure(RUN, [PNDP([0])], TWICE)),
    ("compose: {} is not a mechanism; expected GaussianDP(mu)", lambda: GaussianDP(1.0).compose(2.0), lambda: GaussianDP(1.0).compose(GaussianDP(2.0))),
    ("expected Lipschitz(c), such as Lipschitz(1) for clipped convex losses of one output", accounts(RUN, updates=1.0), accounts(RUN, updates=Lipschitz(1))),
    ("a Protocol, such as dp_dsgd(W, T), or no updates", accounts(MATRICES, updates=Lipschitz(1)), accounts(MATRICES)),
    ("a Protocol, such as dp_dsgd(W, T), or no updates", accounts(MATRICES, updates=Lipschitz(1)), accounts(dp_dsgd(W, T), updates=Lipschitz(1))),
    ("noise that nodes draw and add themselves, or no updates, and what `proved` says of the report",
     accounts(ZIP, updates=Lipschitz(1)), lambda: account(ZIP, PNDP([0]), TWICE).proved),
    ("expected a strategy in time for each node (mf_dsgd), or noise that is drawn afresh", accounts(BETWEEN, updates=Lipschitz(1)), accounts(PREFIX, updates=Lipschitz(1))),
    ("expected learning rates alone, or no updates and numbers for gradients that do not react",
     accounts(scheduled(momentum=0.5), updates=Lipschitz(1)),
     lambda: [account(scheduled(), PNDP([0]), TWICE, updates=Lipschitz(1)), account(scheduled(momentum=0.5), PNDP([0]), TWICE)]),
    ("hides gradients of another; expected updates=Lipschitz(c), or no rates, if learning rates do not change",
     accounts(RUN, rates=FALLING), lambda: [account(RUN, PNDP([0]), TWICE, rates=FALLING, updates=Lipschitz(1)), account(RUN, PNDP([0]), TWICE)]),
    ("hides gradients of another; expected no rates, if learning rates do not change", accounts(ZIP, rates=FALLING), accounts(ZIP)),
    ("hides gradients of another; expected no rates, if learning rates do not change", accounts(MATRICES, trust=LDP(), rates=FALLING), accounts(MATRICES, trust=LDP())),
    ("more or less as rates change; expected updates=Lipschitz(c), or no rates, if learning rates do not change",
     accounts(PAIR, trust=SecureSum([0]), rates=FALLING), accounts(PAIR, trust=SecureSum([0]), rates=FALLING, updates=Lipschitz(1))),
    ("has learning rates of its own; expected None", accounts(scheduled(), rates=FALLING), accounts(scheduled(), rates=None)),
    ("expected noise of its own at every node that is heard, or a run without a schedule",
     accounts(scheduled(SHARED)), lambda: [account(SHARED, PNDP([0]), TWICE), account(scheduled(RUN), PNDP([0]), TWICE)]),
    ("expected nodes that all train in every step, or neither momentum nor weight_decay", lambda: scheduled(IDLE, momentum=0.5), lambda: scheduled(IDLE)),
    ("expected a Schedule, such as Schedule(0.1, momentum=0.9)", lambda: ScheduledProtocol(RUN, 0.1), lambda: ScheduledProtocol(RUN, Schedule(0.1, momentum=0.9))),
    ("step={}: expected a Step, or a Protocol such as dp_dsgd(W, 1)", feeds(W), feeds(dp_dsgd(W, 1))),
    ("for steps without labels nodes= says which row is whose", feeds(RUN, PNDP(["a"]), nodes="abc"), feeds(RUN.steps[0], PNDP(["a"]), nodes="abc")),
    ("no step so far: expected feed(step) before report()", lambda: OnlineAccountant(PNDP([0])).report(), feeds(RUN)),
    ("account(..) of the whole run", feeds(ZIP), accounts(ZIP)),
    ("account(..) of the whole run", feeds(RUN, Forgetful([0])), accounts(RUN, trust=Forgetful([0]))),
    ("account(..) of the whole run", feeds(PREFIX), accounts(PREFIX)),
    ("with nodes= for labels other than texts and integers", restores(OnlineAccountant(PNDP([(0, 0)]))), restores(OnlineAccountant(PNDP([(0, 0)]), nodes=PLACES))),
]
REPORTS = [
    ("these numbers hold for training, and nothing is estimated; expected estimate=False",
     lambda: account(RUN, LDP(), TWICE).calibrate(5, 1e-6, estimate=True), lambda: account(RUN, LDP(), TWICE).calibrate(5, 1e-6, estimate=False)),
    ("as nothing is proved about some pairs; expected estimate=True, or a Protocol",
     lambda: account(ZIP, PNDP([0]), TWICE).calibrate(5, 1e-6), lambda: account(ZIP, PNDP([0]), TWICE).calibrate(5, 1e-6, estimate=True)),
    ("as nothing is proved about some pairs; expected estimate=True, or a Protocol",
     lambda: account(OF_MESSAGES, PNDP([0]), TWICE).calibrate(5, 1e-6),
     lambda: [account(OF_MESSAGES, PNDP([0]), TWICE).calibrate(5, 1e-6, estimate=True), account(RUN, PNDP([0]), TWICE).calibrate(5, 1e-6)]),
    ("as nothing is proved about some pairs; expected a Protocol in which each node adds noise of its own to every gradient",
     lambda: account(dsgd(W, T), LDP(), TWICE).calibrate(5, 1e-6), lambda: account(RUN, LDP(), TWICE).calibrate(5, 1e-6)),
    ("only an account with updates makes some", lambda: account(RUN, PNDP([0]), TWICE).verify(), lambda: account(RUN, PNDP([0]), TWICE, updates=Lipschitz(1)).verify()),
    ("expected an account for Participation.every_step({}), not {}",
     lambda: account(RUN, LDP(), TWICE).in_units(1.0, 1, "zero-out", protect="node"), lambda: account(RUN, LDP(), EVERY).in_units(1.0, 1, "zero-out", protect="node")),
    ("has no place in the graph; expected 'victims' or 'heatmap'",
     lambda: account(RUN, LDP(), TWICE).plot("distance"), lambda: [account(RUN, LDP(), TWICE).plot(kind) for kind in ("victims", "heatmap")]),
]
CHANCES = [
    ("C has an entry of {} (columns of length 1), and nothing is proved about negative ones; expected a strategy C >= 0, or independent noise, as of dp_dsgd",
     accounts(BEST, LDP(), ONCE), accounts(RUN, LDP(), ONCE)),
    ("which are too many; expected Participation.balls_in_bins(k, b), or independent noise, as of dp_dsgd",
     accounts(PREFIX, LDP(), ANEW), lambda: [account(PREFIX, LDP(), Participation.balls_in_bins(2, 2)), account(RUN, LDP(), ANEW)]),
    ("but not both; expected noise of each step, as corn, or of each node, as mf_dsgd",
     accounts(DIRECTED, LDP(), ONCE), lambda: [account(SHARED, LDP(), ONCE), account(PREFIX, LDP(), ONCE)]),
    ("expected records assigned to batches, as by Participation.balls_in_bins(k, b)",
     lambda: amplified_if_assigned(RUN, LDP(), POISSON), lambda: amplified_if_assigned(RUN, LDP(), Participation.balls_in_bins(2, 2))),
    ("nothing is proved about insiders; expected LDP()", accounts(RUN, PNDP([0]), POISSON), accounts(RUN, LDP(), POISSON)),
    ("expected chances at least {} steps apart, such as Participation.cyclic_poisson(k, b, q) with so large a b, or independent noise, as of dp_dsgd",
     accounts(BANDED, LDP(), POISSON), lambda: [account(BANDED, LDP(), Participation.cyclic_poisson(2, 2, 0.5)), account(RUN, LDP(), POISSON)]),
    ("expected chances at least 2 steps apart",
     accounts(BANDED, LDP(), Participation.truncated_poisson(0.5, T, 9, 4)), accounts(BANDED, LDP(), Participation.truncated_poisson(0.5, T, 9, 4, groups=2))),
    ("expected such a run, as dp_dsgd, mf_dsgd or corn if every node has a neighbour",
     accounts(mf_dsgd(np.eye(3), T, np.tril(np.ones((T, T)))), LDP(), ONCE), accounts(PREFIX, LDP(), ONCE)),
    ("a run in which an eavesdropper hears every model, as dp_dsgd, mf_dsgd or corn",
     accounts(LOCAL, LDP(), POISSON), lambda: [account(run, LDP(), ONCE) for run in (RUN, PREFIX, SHARED)]),
    ("expected at least {}, or q=1", lambda: account(RUN, LDP(), POISSON).epsilon(1e-12), lambda: account(RUN, LDP(), Participation.poisson(1, T)).epsilon(1e-12)),
    ("expected at least {}, or a smaller failure",
     lambda: account(RUN, LDP(), ONCE).with_samples().epsilon(1.5e-10), lambda: account(RUN, LDP(), ONCE).with_samples(failure=1e-12).epsilon(1.5e-10)),
    ("expected only a protocol, LDP(), a participation and sigma", accounts(RUN, LDP(), POISSON, method="bound"), accounts(RUN, LDP(), POISSON, sigma=2.0)),
    ("such as dp_dsgd(W, T); of matrices from elsewhere it is not known who draws which noise", accounts(MATRICES, LDP(), POISSON), accounts(dp_dsgd(W, T), LDP(), POISSON)),
    ("expected one that is drawn at random, such as Participation.poisson(q, T)",
     lambda: amplified(RUN, LDP(), TWICE), lambda: amplified(RUN, LDP(), Participation.poisson(0.5, T))),
    ("such as Participation.truncated_poisson(q, T, records, largest)",
     lambda: amplified_if_cut(RUN, LDP(), POISSON), lambda: amplified_if_cut(RUN, LDP(), Participation.truncated_poisson(0.5, T, 9, 4))),
]
TRAINING = [
    ("nothing has to be estimated; expected estimate=False", trains(estimate=True), trains(estimate=False)),
    ("expected estimate=False, or a number as lr",
     trains(noise=LOCAL, estimate=True, lr=Schedule(0.1, momentum=0.5)), lambda: [trains(noise=LOCAL, lr=Schedule(0.1, momentum=0.5))(), trains(noise=LOCAL, estimate=True)()]),
    ("expected estimate=False, or a number as lr", trains(against=PNDP([0]), estimate=True, lr=np.array(FALLING)), trains(against=PNDP([0]), estimate=True, lr=0.5)),
    ("expected secure=False, or no feature_norm",
     trains(noise=LOCAL, feature_norm=2.0, secure=True), lambda: [trains(noise=LOCAL, feature_norm=2.0)(), trains(noise=LOCAL, secure=True)()]),
    ("and not those of {}, which keeps {} vectors a node; expected no feature_norm",
     trains(noise=TRACKS, feature_norm=2.0), trains(noise=TRACKS)),
    ("expected no feature_norm: what noisy gradients tell holds for any model",
     trains(against=PNDP([0]), feature_norm=2.0, lr=Schedule(0.1, momentum=0.5)), trains(against=PNDP([0]), lr=Schedule(0.1, momentum=0.5))),
    ("or no feature_norm: what noisy gradients tell holds for any model",
     trains(model=lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)), feature_norm=2.0),
     trains(model=lambda: nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)))),
    ("nothing is estimated about random batches; expected estimate=False", trains(**BY_POISSON, estimate=True), trains(**BY_POISSON)),
    *[(f"with random batches nothing is proved about {{}}; expected {said}", trains(**BY_POISSON, **wrong), trains(**BY_POISSON, **mended)) for said, wrong, mended in [
        ("against=LDP()", {"against": PNDP([0])}, {"against": LDP()}),
        *[("a number as lr", {"lr": lr}, {"lr": 0.1}) for lr in (np.array(FALLING), Schedule(0.1, momentum=0.5), Schedule(0.1, weight_decay=0.5))],
        ("no feature_norm", {"feature_norm": 2.0}, {"feature_norm": None})]],
    *[("expected noise='independent'", trains(**more), trains(**more | {"noise": "independent"})) for more in [
        {"participation": POISSON}, {"participation": ONCE}, {"participation": Participation.truncated_poisson(0.5, T, 12, 9)}, {"participation": POISSON, "noise": LOCAL},
        {"participation": Participation.poisson(1 / 3, T)}, {"participation": Participation.poisson(1 / 3, T), "noise": "space-time"}]],
    *[("expected a larger delta or epsilon, or batches in turn, Participation.cyclic(k, b)", trains(**BY_POISSON | {"participation": scheme}, delta=1e-12),
       lambda: [trains(noise="independent", delta=1e-12, participation=Participation.cyclic(2, 2))(), trains(**BY_POISSON, delta=1e-9)()])
      for scheme in (POISSON, ANEW)],
    ("expected batches in turn", trains(**BY_POISSON, secure=True), trains(noise="independent", secure=True)),
    ("a node holds {} records; expected Participation.truncated_poisson({}, {}, {}, {}, {})",
     trains(**BY_POISSON | {"participation": Participation.truncated_poisson(0.5, T, 11, 9)}),
     trains(**BY_POISSON | {"participation": Participation.truncated_poisson(0.5, 4, 12, 9, 1)})),
    ("expected a Participation, such as Participation.cyclic(k, b) for k epochs of b batches", trains(participation=2), trains(participation=Participation.cyclic(2, 2))),
    ("so that steps of a record are exactly b apart; expected Participation.cyclic({}, {})",
     trains(participation=Participation.min_sep(1, 2, T)), trains(participation=Participation.cyclic(2, 2))),
    ("the layers that train are {}; expected a list of {} norms, one for each", trains(clip=[1.0, 1.0, 1.0]), trains(clip=[1.0])),
    ("expected a number, or a list with a positive norm for each layer that trains", trains(clip=[0.0]), trains(clip=[1.0])),
    ("is clipped as a whole; expected a number, or protect='record'", trains(clip=[1.0], protect="node"), lambda: [trains(protect="node")(), trains(clip=[1.0])()]),
    ("random batches have no size of their own; expected divide_by='largest'", trains(divide_by="own", optimizer="adam"), trains(optimizer="adam")),
    ("those of small sites that are made larger; expected divide_by='largest', or no feature_norm", trains(divide_by="own", feature_norm=2.0),
     lambda: [trains(divide_by="own")(), trains(feature_norm=2.0)()]),
    ("expected one of {}, or an Adam(..) of mfdl", trains(optimizer=torch.optim.Adam),
     lambda: [trains(optimizer=one)() for one in ("adam", "adamw", "momentum", "sgd", Adam(0.5))]),
    ("lr has momentum or weight decay of its own; expected optimizer='sgd', or learning rates only",
     trains(optimizer="adam", lr=Schedule(0.1, momentum=0.9)), lambda: [trains(lr=Schedule(0.1, momentum=0.9))(), trains(optimizer="adam", lr=0.1)()]),
    ("expected nodes that all train in every step, or optimizer=None", trains(optimizer="adam", noise=IDLE_FIRST), trains(noise=IDLE_FIRST)),
    ("the runs have a schedule with momentum or weight decay; expected learning rates only",
     lambda: adam_on(Schedule(0.1, momentum=0.9)), lambda: adam_on(Schedule(np.linspace(0.1, 0.2, T)))),
    ("which changes the numbers of records; expected a Dataset, (X, y, X_test, y_test), (train, test), or no {}",
     trains(data=(RECORDS.X, RECORDS.y), person=range(len(RECORDS.y))), trains(person=range(len(RECORDS.y)))),
    ("is known where single records are clipped; expected protect='record' and no person, or no feature_norm",
     trains(protect="node", feature_norm=2.0), lambda: [trains(protect="node")(), trains(feature_norm=2.0)()]),
    ("is protected with all persons that it holds; expected protect='record', or no person", trains(protect="node", person=range(len(RECORDS.y))),
     lambda: [trains(person=range(len(RECORDS.y)))(), trains(protect="node")()]),
    ("a node takes part in every step, whatever its batches; expected Participation.cyclic(epochs, b)", trains(**BY_POISSON, protect="node"), trains(protect="node")),
    ("expected batches of persons, such as cut(held, b)", lambda: of_persons(cut(round_robin(12, 3), 2)), lambda: of_persons(cut(round_robin(6, 3), 2))),
    ("expected a number from 1e-15 to 1e18, beyond which squares of float32 vanish or overflow, or 'automatic', or None",
     lambda: simulates_clipped("auto"), lambda: [simulates_clipped(clip) for clip in (1e-15, 1e18, "automatic")]),
    ("short ones are scaled up; expected a number as clip, or no feature_norm", trains(clip="automatic", feature_norm=2.0),
     lambda: [trains(clip=1.0, feature_norm=2.0)(), trains(clip="automatic")()]),
    ("optimizer='sgd', or no feature_norm", trains(optimizer="adam", feature_norm=2.0), trains(feature_norm=2.0)),
    ("expected 'eavesdropper', 'one insider', '2 insiders' and so on", lambda: which_noise(W, TWICE, 8, 1e-6, against="two"),
     lambda: [which_noise(W, TWICE, 8, 1e-6, against=words) for words in ("eavesdropper", "one insider", "2 insiders")]),
    ("{}, or a trust model such as LDP()", trains(against="two"), lambda: [trains(against=words)() for words in ("eavesdropper", "one insider", "2 insiders", LDP())]),
    ("groups={}: expected 'pairs', 'edges' or lists of nodes",
     lambda: optimize_pairwise(W, TWICE, 1, "all"), lambda: [optimize_pairwise(W, TWICE, 1, groups) for groups in ("pairs", "edges", [[0, 1]])]),
    ("expected at least one trust model, such as LDP()", trains(against=[]), trains(against=[LDP()])),
    ("argument of train()={} is not known: did you mean seed", trains(seeed=1), trains(seed=1)),
    ("noise={}: expected a kind of which_noise, a name of mfdl.strategy, or a Protocol", trains(noise=3), lambda: [trains(noise=noise)() for noise in ("space", "bsr", RUN)]),
    ("noise='identity': expected 'independent'", trains(noise="identity"), trains(noise="independent")),
    ("graph is an adjacency matrix: expected a gossip matrix, such as gossip_matrix(networkx.from_numpy_array(graph))",
     trains(graph=LINKED), trains(graph=gossip_matrix(nx.from_numpy_array(LINKED)))),
    ("expected a Dataset, (X, y, X_test, y_test), (train, test), or no holdings", trains(data=DATA[:2], holdings=round_robin(36, 3)),
     lambda: [trains(data=data, holdings=round_robin(36, 3))() for data in (RECORDS, DATA, (PAIRS, PAIRS))] + [trains(data=DATA[:2])()]),
    ("expected the name of a data set, a Dataset, or arrays (X, y) or (X, y, X_test, y_test)", trains(data=X), lambda: [
        trains(data=data)() for data in (RECORDS, DATA[:2], DATA, PAIRS, Named(x=X, label=DATA[1]), (PAIRS, PAIRS))]),
    ("expected all records, data.dataset, or those that are meant, torch.utils.data.Subset(data.dataset, indices)",
     trains(data=DataLoader(PAIRS, sampler=SubsetRandomSampler(range(9)))), lambda: [trains(data=DataLoader(data))() for data in (PAIRS, Subset(PAIRS, range(30)))]),
    ("expected data.dataset, with records as they are to be", trains(data=DataLoader(PAIRS, collate_fn=list)), trains(data=DataLoader(PAIRS, collate_fn=list).dataset)),
    ("expected each once, such as torch.utils.data.Subset(data.dataset, sorted({*data.indices}))",
     trains(data=REPEATED), lambda: trains(data=Subset(REPEATED.dataset, sorted({*REPEATED.indices})))()),
    ("expected two, TensorDataset(X, y)", trains(data=TensorDataset(torch.tensor(X))), trains(data=PAIRS)),
    ("some of them, such as torch.utils.data.Subset(data, range(1000))", trains(data=Endless()), trains(data=Subset(Endless(), range(1000)))),
    ("a tensor in memory, such as x.detach().cpu()", trains(data=DataLoader([(x, 0) for x in LEARNED])), trains(data=DataLoader([(x.detach().cpu(), 0) for x in LEARNED]))),
    ("expected one with a length, such as TensorDataset(X, y), or what is loaded without streaming=True",
     trains(data=Stream()), lambda: [trains(data=PAIRS)(), trains(data=Named(x=X, y=DATA[1]))()]),
    ("expected one with __len__ and __getitem__, such as TensorDataset(X, y)", trains(data=TorchDataset()), trains(data=PAIRS)),
    ("expected 'train' and 'test', or one or two that are meant{}", trains(data=Parts(all=PAIRS)), lambda: trains(data=Parts(all=PAIRS)["all"])()),
    ("expected one target among them, called 'label', 'labels', 'y' or 'target', as after data.rename_column('name', 'label')",
     trains(data=Named(a=X[:, 0], b=X[:, 1], c=DATA[1])),
     lambda: [trains(data=Named(a=X[:, 0], b=X[:, 1], c=DATA[1]).rename_column("c", name))() for name in ("label", "labels", "y", "target")]),
    ("as after data.remove_columns({}) or, for images, data.with_format('numpy')",
     trains(data=Named(a=X[:, 0], b=X[:, 1], site=["north"] * 36, label=DATA[1])), trains(data=Named(a=X[:, 0], b=X[:, 1], label=DATA[1]))),
    ("expected numbers, such as X{}.drop(columns={}) or pandas.get_dummies(X{})",
     trains(data=(PEOPLE, DATA[1])),
     lambda: [trains(data=(PEOPLE.drop(columns=["site"]), DATA[1]))(), trains(model=lambda: nn.Linear(4, 2), data=(pd.get_dummies(PEOPLE), DATA[1]))()]),
    ("expected y{}.loc[X{}.index], or y{}.to_numpy() if positions are right", trains(data=(PEOPLE[["a", "b"]][::-1], ANSWERS)),
     lambda: [trains(data=(PEOPLE[["a", "b"]][::-1], y))() for y in (ANSWERS.loc[PEOPLE[::-1].index], ANSWERS.to_numpy())]),
    ("expected estimate=True, or noise of its own that each node adds to every gradient",
     trains(noise=ZIP, against=PNDP([0])), lambda: [trains(noise=ZIP, against=PNDP([0]), estimate=True)(), trains(noise=RUN, against=PNDP([0]))()]),
    ("expected an exchange in the last step", trains(noise=local_dsgd(W, T, 3)), trains(noise=LOCAL)),
    ("expected 'cpu', or one that torch sees here, such as 'cuda:0'", trains(device="cuda:99"), trains(device="cpu")),
    ("holds no trained models; expected one that Trained.save has written", lambda: Trained.load(save_strategy(strategy("bsr", TWICE), "other.mfdl"), lambda: nn.Linear(2, 2)),
     lambda: Trained.load(trains()().save("models.mfdl"), lambda: nn.Linear(2, 2))),
    ("expected ({}){}", lambda: trains()().predict(X[0]), lambda: trains()().predict(X[0][None])),
    ("to draw its noise again, a run needs a secret", trains(checkpoint="kept.mfdl"), trains(checkpoint="kept.mfdl", secret=7)),
    ("expected some with requires_grad=True", lambda: new_model(lambda: nn.Linear(2, 2).requires_grad_(False)), lambda: new_model(lambda: nn.Linear(2, 2).requires_grad_(True))),
    ("expected GroupNorm, as replace_batch_norm(model) puts it there",
     lambda: new_model(lambda: nn.BatchNorm1d(4)), lambda: new_model(lambda: replace_batch_norm(nn.BatchNorm1d(4)))),
    ("expected nn.Dropout as a layer of its own",
     lambda: new_model(lambda: nn.LSTM(2, 2, 2, dropout=0.5)), lambda: new_model(lambda: nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))),
    ("such as lambda: nn.Linear(64, 10)", lambda: new_model(nn.Linear), lambda: new_model(lambda: nn.Linear(64, 10))),
    ("expected random steps, such as Participation.poisson(q, T)",
     lambda: random_batches(round_robin(36, 3), TWICE), lambda: random_batches(round_robin(36, 3), Participation.poisson(0.5, T))),
    ("expected the same each time, such as weights that are loaded", lambda: simulates_two(half_frozen), lambda: simulates_two(lambda: nn.Linear(2, 2))),
    ("expected one layer for each use, and records first",
     trains(model=lambda: DroppedTwice(nn.Dropout(0.5))), trains(model=lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2)))),
    ("expected layers that draw no random numbers but by nn.Dropout, and change nothing, such as Linear, Conv2d and GroupNorm",
     trains(model=Shaken), trains(model=lambda: nn.Sequential(nn.Linear(2, 4), nn.GroupNorm(2, 4), nn.Linear(4, 2)))),
    ("expected record=False", lambda: simulates(record=True).resume(checkpoint()), lambda: simulates(record=False).resume(checkpoint())),
    ("simulation keeps no messages: expected one with record=True", lambda: play(simulates(record=False)), lambda: play(simulates(record=True))),
    ("such as view(dsgd(W, T), PNDP([node]))", lambda: estimate(RUN, np.zeros((8, 2))), lambda: estimate(SEEN, np.zeros((len(SEEN.A), 2)))),
    ("whatever its batches; expected Participation.every_step({})",
     lambda: audit(RUN, LDP(), TWICE, replays=8, protect="node"), lambda: audit(RUN, LDP(), Participation.every_step(4), replays=8, protect="node")),
    ("batches are cycled; expected a cyclic one", lambda: audit(RUN, LDP(), APART, replays=8), lambda: audit(RUN, LDP(), TWICE, replays=8)),
]
NOISE = [
    ("expected at most 500 rows in all, or optimize_pairwise, whose noise has one correlation in time",
     lambda: exact_pairwise(W, Participation.single(200)), lambda: optimize_pairwise(W, Participation.single(200))),
    ("expected less, or calibration 'gdp' or 'rdp'",
     lambda: privacy_constraint(100.0, 1e-6, T, 1.0, "paper"), lambda: [privacy_constraint(100.0, 1e-6, T, 1.0, kind) for kind in ("gdp", "rdp")]),
    ("expected a full W without probes, or per_node=False",
     lambda: local_gram(SPARSE, T, per_node=True), lambda: [local_gram(W, T, per_node=True), local_gram(SPARSE, T, per_node=False)]),
    ("expected a neighbour of every node in each step, and more attackers, such as LDP() with a budget of 100",
     lambda: optimize_local(W, TWICE, PNDP([0]), 1.0, max_iter=9), lambda: optimize_local(W, TWICE, [PNDP([0]), LDP()], [[1.0] * 3, [100.0] * 3], tol=0.9)),
    ("expected a neighbour of every node in each step", lambda: optimize_local(np.eye(3), TWICE, LDP(), 1.0), lambda: optimize_local(W, TWICE, LDP(), 1.0, tol=0.5)),
    ("bands={}: expected at most the separation b={}, so that", lambda: optimize(local_gram(W, T), TWICE, bands=3), lambda: optimize(local_gram(W, T), TWICE, bands=2)),
    ("H is not symmetric: expected a Gram matrix, such as local_gram(W, T)", lambda: optimize(np.tril(np.ones((T, T))), TWICE), lambda: optimize(local_gram(W, T), TWICE)),
    ("{}: expected a Gram matrix, such as local_gram(W, T)", lambda: optimize(-np.eye(T), TWICE), lambda: optimize(local_gram(W, T), TWICE)),
    ("expected a larger one, such as 1e-4, or None", lambda: exact_space_time(W, TWICE, trace_penalty=0.0),
     lambda: [exact_space_time(W, TWICE, trace_penalty=price) for price in (1e-4, None)]),
    ("expected a larger tol, or a larger trace_penalty where W is nearly singular",
     lambda: exact_space_time(W, TWICE, trace_penalty=1e-4, max_iter=1, tol=1e-9), lambda: exact_space_time(W, TWICE, trace_penalty=1e-4, max_iter=1, tol=0.9)),
    ("expected patterns that do not overlap, Participation.cyclic, every_step or single",
     lambda: exact_space_time(W, APART, trace_penalty=1e-4), lambda: exact_space_time(W, Participation.cyclic(2, 2), trace_penalty=1e-4)),
    ("or a bound on variance", lambda: optimize(np.ones((T, T)), TWICE), lambda: optimize(np.ones((T, T)), TWICE, bound=4.0, tol=1e-4)),
    ("expected an Objective, such as Objective.last(T)", lambda: strategy("banded", TWICE, W, objective=1), lambda: strategy("banded", TWICE, W, objective=Objective.last(T))),
    ("expected no weights by step and node, no momentum with curvature, and no learning_rates that change under momentum, weight_decay or curvature",
     lambda: AgeWorkload(W, T, Objective(weights=np.arange(3.0 * T).reshape(T, 3))), lambda: AgeWorkload(W, T, Objective.last(T))),
    ("expected W as well", lambda: strategy("banded", TWICE, objective=Objective.last(T)), lambda: strategy("banded", TWICE, W, objective=Objective.last(T))),
    ("expected none, or banded, which is an optimum for any",
     lambda: strategy("toeplitz", TWICE, W, objective=Objective.last(T)),
     lambda: [strategy("toeplitz", TWICE, W), strategy("banded", TWICE, W, objective=Objective.last(T))]),
    ("has no bands; expected one of bsr, bisr, banded_inverse, blt, banded, toeplitz",
     lambda: strategy("identity", TWICE, W, bands=2), lambda: [strategy(name, TWICE, W, bands=2) for name in ("bsr", "bisr", "banded_inverse", "blt", "banded", "toeplitz")]),
    ("has no bands; expected one of bsr, bisr", lambda: strategy("identity", TWICE, bands=2), lambda: [strategy(name, TWICE, bands=2) for name in ("bsr", "bisr")]),
    ("expected a cyclic participation, or one of bsr, bisr, banded_inverse, blt, banded, toeplitz",
     lambda: strategy("mafalda", APART, W), lambda: [strategy(name, APART, W) for name in ("bsr", "bisr", "banded_inverse", "blt", "banded", "toeplitz")]),
    ("or one reversible W and an objective with nothing but momentum",
     lambda: best_buffers(W, Participation.single(8193), 1, Objective(weight_decay=0.1)), lambda: best_buffers(W, Participation.single(8193), 1, Objective(momentum=0.5))),
    ("gossip_matrix(W)",
     lambda: save_strategy(strategy("identity", TWICE), "named.mfdl", LINE),
     lambda: load_strategy(save_strategy(strategy("identity", TWICE), "named.mfdl", gossip_matrix(LINE)), TWICE, W)),
]
COMMANDS = [
    ("estimate: is about the noise for a budget; expected --epsilon", command("account", "ring:n=4", "--estimate"), command("account", "ring:n=4", "--estimate", "--epsilon", 5)),
    ("expected --sigma, because the noise that is enough for some attackers is no guarantee for others; or --trust ldp",
     command("account", "ring:n=4", "--attackers", "sample:size=2,seed=0", "--epsilon", 5),
     lambda: [command("account", "ring:n=4", "--attackers", "sample:size=2,seed=0", "--sigma", 5)(), command("account", "ring:n=4", "--trust", "ldp", "--epsilon", 5)()]),
    ("expected --estimate, or a Protocol in which each node adds noise of its own",
     command("account", "ring:n=4", "-a", "zip-dl", "--epsilon", 5),
     lambda: [command("account", "ring:n=4", "-a", "zip-dl", "--epsilon", 5, "--estimate")(), command("account", "ring:n=4", "-a", "dp-dsgd", "--epsilon", 5)()]),
    ("expected --method bound",
     command("account", "ring:n=4", "-p", "min-sep:5,10", "-T", 200), command("account", "ring:n=4", "-p", "min-sep:5,10", "-T", 200, "--method", "bound")),
    ("or a larger --limit-memory",
     command("account", "ring:n=3000", "--attackers", 0, "--limit-memory", 1e-9), command("account", "ring:n=3000", "--attackers", 0, "--limit-memory", 1)),
    ("or no --lipschitz", command("account", "ring:n=4", "-a", "zip-dl", "--lipschitz", 1), command("account", "ring:n=4", "-a", "zip-dl")),
    ("expected another trust model than ldp, or no attackers",
     command("account", "ring:n=4", "--trust", "ldp", "--attackers", "0"),
     lambda: [command("account", "ring:n=4", "--trust", "pndp", "--attackers", "0")(), command("account", "ring:n=4", "--trust", "ldp")()]),
    ("every is missing; expected local-dsgd:every=...", command("account", "ring:n=4", "-a", "local-dsgd"), command("account", "ring:n=4", "-a", "local-dsgd:every=2")),
    ("takes none; expected algorithm mf-dsgd (-a mf-dsgd), or no strategy",
     command("account", "ring:n=4", "--strategy", "bsr"),
     lambda: [command("account", "ring:n=4", "-a", "mf-dsgd", "--strategy", "bsr")(), command("account", "ring:n=4")()]),
    ("--columns {}", command("account", "three.csv", "--trust", "ldp"), command("account", "three.csv", "--columns", "a,b", "--trust", "ldp")),
    ("expected fewer attackers, such as --attackers sample:size=20,seed=0, or --yes", patiently(False), patiently(True)),
    ("expected sigma instead of epsilon, or an algorithm with noise at every node",
     lambda: explore(Settings("ring:n=4", attackers=("0",), algorithm="dsgd", sigma=None, epsilon=5.0)),
     lambda: [explore(Settings("ring:n=4", attackers=("0",), algorithm="dsgd", sigma=1.0)),
              explore(Settings("ring:n=4", attackers=("0",), algorithm="dp-dsgd", sigma=None, epsilon=5.0))]),
    ("expected `experiment:` with a name or the path of a notebook, and `parameters:` with names and values",
     lambda: grid("parameters: {seeds: [1]}"), lambda: grid("experiment: quadratic\nparameters: {seeds: [1]}")),
    ("expected a cell tagged `parameters` that sets some", lambda: notebook(), lambda: notebook("parameters")),
    ("expected defaults that are plain values, such as 10 or 'ring'",
     lambda: notebook("parameters", value="max(1, 2)"), lambda: [notebook("parameters", value=value) for value in ("10", "'ring'")]),
    ("expected one that trains in every step, which is a call of optimizer.step()", steps(IDLE_FIRST), steps(RUN)),
    ("optimizer: noise_multiplier={}, expected {}, which is scale * expected_batch_size / max_grad_norm", steps(noise_multiplier=1.0), steps(noise_multiplier=0.1 * 2 / 1.0)),
    ("Expected new seeds, such as deal_seeds(protocol) without a secret", steps_twice(7, 7), steps_twice(None, None)),
    ("expected one backward pass, and zero_grad(), for each step", steps(accumulated_iterations=2), steps(accumulated_iterations=1)),
    ("step {}: a batch of {} records; expected {} (expected_batch_size)", steps(records=3), steps(records=2)),
    ("Expected shuffle=False, or Participation.min_sep({}, 1, {}) here and in the account",
     lambda: _check_records(loads(shuffle=True), TWICE, 2),
     lambda: [_check_records(loads(shuffle=False), TWICE, 2), _check_records(loads(shuffle=True), Participation.min_sep(2, 1, 4), 2)]),
    ("expected each record once (RandomSampler without replacement)",
     lambda: _check_records(loads(sampler=RandomSampler(range(4), replacement=True)), APART, 2),
     lambda: _check_records(loads(sampler=RandomSampler(range(4))), Participation.min_sep(2, 1, 4), 2)),
    ("expected a DataLoader, or for each step a list of records",
     lambda: _check_records(4, TWICE, 2), lambda: [_check_records(loads(), TWICE, 2), _check_records([[0, 1], [2, 3]] * 2, TWICE, 2)]),
    ("records: step {} has {}; expected {} in each step (expected_batch_size)",
     lambda: _check_records([[0], [2, 3]] * 2, TWICE, 2), lambda: _check_records([[0, 1], [2, 3]] * 2, TWICE, 2)),
    ("Expected poisson_sampling=False in make_private, or Participation.poisson(q, T) with the sample_rate of the loader as q, here and in the account",
     steps(loader=by_lot), lambda: [steps(loader=loads)(), steps(loader=by_lot, scheme=POISSON)(), account(RUN, LDP(), POISSON).epsilon(1e-5)]),
    ("Expected the DataLoader of make_private with poisson_sampling=True, or known steps here and in the account, such as Participation.cyclic(k, b)",
     steps(loader=loads, scheme=POISSON), lambda: [steps(loader=by_lot, scheme=POISSON)(), steps(loader=loads, scheme=TWICE)()]),
    ("expected at most q={}, or Participation.poisson({}, {}) here and in the account",
     steps(loader=by_lot, scheme=Participation.poisson(0.4, T)), lambda: [steps(loader=by_lot, scheme=POISSON)(), account(RUN, LDP(), POISSON).epsilon(1e-5)]),
    ("a DataLoader knows nothing; expected Participation.poisson(q, T)",
     steps(scheme=Participation.cyclic_poisson(2, 2, 0.5)), steps(scheme=POISSON)),
    ("random batches (Poisson sampling) need participation=Participation.poisson(q, T)", steps(records=3), steps(records=3, scheme=POISSON)),
    ("expected None or the accountant of a PrivacyEngine, because a hook may change the noisy gradient; optimizer.attach_step_hook(None) removes it",
     steps(change=hooked), steps(change=unhooked)),
    ("expected a new optimizer, or one after zero_grad()", steps(change=begun), lambda: [steps(change=cleared)(), steps()()]),
    ("expected one gradient of each record for each parameter, after zero_grad()", steps(change=uneven), steps()),
    ("expected a DPOptimizer of Opacus, which clips each record to one norm, as make_private(.., clipping='flat', grad_sample_mode='hooks') returns",
     lambda: noise_for(torch.optim.SGD([nn.Parameter(torch.zeros(3))]), Run("toy", RUN, 0.1), 0, deal_seeds(RUN)[0], TWICE), steps()),
]


def agreed(groups="pairs", curious=1, contributions=lambda sites: {site.label: site.contribute() for site in sites}):
    "The seeds of three sites that agree on the noise of a run."
    W = np.full((3, 3), 1 / 3)
    protocol = optimize_pairwise(W, TWICE, curious, groups).protocol(W)
    keys = [new_key() for _ in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        sites = [Site(u, keys[u], {v: public_key(key) for v, key in enumerate(keys)}, Path(folder) / str(u)) for u in range(3)]
        given = contributions(sites)
        return [site.seeds(protocol, given) for site in sites]


def used(sites):
    "Contributions of which one was in a run before."
    sites[0].seeds(dp_dsgd(np.full((3, 3), 1 / 3), T), given := {site.label: site.contribute() for site in sites})
    return given | {0: sites[0].contribute(), 2: sites[2].contribute()}


def alone(seeds=None, batches=BATCHES, run=RUN):
    "A rank that hosts all nodes."
    def join_and_begin():
        with tempfile.TemporaryDirectory() as state, patch.dict(os.environ, {"MFDL_STATE": state}), join(5.0, store=dist.HashStore(), rank=0, size=1) as network:
            Peer(network, lambda: nn.Linear(2, 2), RECORDS, batches, Run("toy", run, 0.1), seeds or deal_seeds(run), 0.1, 1.0)
    return join_and_begin


def drawn(secret): return random_batches(round_robin(36, 3), POISSON, secret=secret, size=2)


AGREEMENT = [
    ("expected random bits, such as deal_seeds(protocol) without a secret, or with one of 128 bits", alone(deal_seeds(RUN, 7)), alone(deal_seeds(RUN, 7**45))),
    ("expected random_batches(.., secret=secrets.randbits(128))", alone(batches=drawn(7)), alone(batches=drawn(7**45))),
    ("against insiders expected noise='pairwise' or 'mafalda'",
     trains(noise="space-time", against="one insider"), lambda: [trains(noise=noise, against="one insider")() for noise in ("pairwise", "mafalda")]),
    ("or a Protocol, such as optimize_pairwise(..).protocol(W)", trains(noise=optimize_pairwise(W, TWICE)), trains(noise=optimize_pairwise(W, TWICE).protocol(W))),
    ("expected what contribute() returned", lambda: agreed(contributions=lambda sites: {u: new_key() for u in range(3)}), agreed),
    ("expected a new one, from contribute() of that site", lambda: agreed(contributions=used), agreed),
    ("expected secrets of pairs, such as those of optimize_pairwise", lambda: agreed([[0, 1, 2]], 0), agreed),
]


SITES = dp_dsgd(W, T, nodes=["north", "centre", "south"])
CODE = "def model(): pass\ndef load(home): pass\n"


def in_folder(does):
    "A call with a folder for each site, and none of it is left."
    def call():
        with tempfile.TemporaryDirectory() as folder:
            homes = [Path(folder) / site for site in SITES.nodes]
            for home in homes: home.mkdir()
            return does(homes)
    return call


def pinned(homes, lines=None):
    made = {home.name: make_keys(home) for home in homes}
    pin_keys(homes[0], made if lines is None else lines)
    return keys_of(homes[0], "north", SITES.nodes)


def planned(protocol=SITES, scheme=TWICE, **how): return lambda: plan_swarm(protocol, scheme, 8.0, **how)


def budgeted(scale): return lambda: planned()().budget(SITES).check(Run("run", SITES, scale * planned()().sigma), 1.0, 2, "record", TWICE, False)


def job(protocol=SITES, code=CODE):
    def write(homes):
        (homes[0] / "code.py").write_text(code)
        swarm_job(homes[0] / "job", planned()(), protocol, homes[0] / "code.py", "{site}")
    return in_folder(write)


def protocol_file(homes, write=lambda path: write_protocol(SITES, path)):
    write(homes[0] / "run")
    return read_protocol(homes[0] / "run")


SWARMS = [
    ("expected attackers who hear every message, 'eavesdropper', 'one insider', '2 insiders' and so on",
     planned(against=LDP()), lambda: [planned(against=against)() for against in ("eavesdropper", "one insider", "2 insiders")]),
    ("expected batches of one size in turn, Participation.cyclic(k, b)", planned(scheme=POISSON), planned(scheme=Participation.cyclic(TWICE.k, TWICE.b))),
    ("expected one exchange in each step and noise in models only, such as mf_dsgd(..)", planned(zip_dl(W, T)), planned(mf_dsgd(W, T, np.eye(T)))),
    ("expected a name of letters and digits, as plan_swarm makes it", lambda: replace(planned()(), run="../elsewhere"), lambda: replace(planned()(), run="again")),
    ("is weaker noise than the budget counts; expected at least {}, sigma={} times what one {} moves", budgeted(0.4), budgeted(1.0)),
    ("as Plan.to_json writes them", lambda: Plan.from_json("{}"), lambda: Plan.from_json(planned()().to_json())),
    ("expected that of plan_swarm(protocol, ..)", job(protocol=dp_dsgd(W, 2 * T, nodes=SITES.nodes)), job()),
    ("expected model() and load(home)", job(code="def model(): pass\n"), job()),
    ("expected make_keys(home) once, at the site itself", in_folder(lambda homes: public_line(homes[0])), in_folder(lambda homes: make_keys(homes[0]))),
    ("expected public_line(home) to see them again",
     in_folder(lambda homes: [make_keys(homes[0]), make_keys(homes[0])]), in_folder(lambda homes: [make_keys(homes[0]), public_line(homes[0])])),
    ("expected pin_keys(home, lines) with the lines of all sites",
     in_folder(lambda homes: [make_keys(homes[0]), keys_of(homes[0], "north", SITES.nodes)]), in_folder(pinned)),
    ("expected the line of 128 digits that make_keys of that site returned", in_folder(lambda homes: pinned(homes, {"north": new_key()})), in_folder(pinned)),
    ("expected a file that write_protocol has written", in_folder(lambda homes: protocol_file(homes, lambda path: seal(path, {}, {}))), in_folder(protocol_file)),
]


def simulated(data=RECORDS, batches=BATCHES): return lambda: Simulation(lambda: nn.Linear(2, 2), data, batches, [Run("toy", RUN, 0.1)], 0.1, 1.0)


OBJECTS = [  # in place of another, or of none
    ("Batches, such as cut(holdings, b)", simulated(batches=round_robin(36, 3)), simulated(batches=cut(round_robin(36, 3), 2))),
    ("a Dataset, such as load_data('digits')", simulated(data=np.ones((36, 2))), lambda: Simulation(
        lambda: nn.Linear(64, 10), load_data("digits"), BATCHES, [Run("toy", RUN, 0.1)], 0.1, 1.0)),
    ("a Run, such as Run('private', protocol, scale=0.1)",
     lambda: check_run(RUN, BATCHES, 1.0), lambda: check_run(Run("private", RUN, scale=0.1), BATCHES, 1.0)),
    ("a Strategy, such as strategy('bsr', participation)", lambda: save_strategy(np.eye(T), "kept.mfdl"), lambda: save_strategy(strategy("bsr", TWICE), "kept.mfdl")),
    ("a gossip matrix, such as gossip_matrix(graph)", lambda: Round.checked(LINE), lambda: Round.checked(gossip_matrix(LINE))),
    ("Round objects, such as Round(W)", lambda: Step(True, fresh_noise(np.eye(3)), None), lambda: Step(True, fresh_noise(np.eye(3)), [Round(W)])),
]
ROWS = [*OBJECTS, *GOSSIP, *LANGUAGE, *ACCOUNTS, *REPORTS, *CHANCES, *TRAINING, *NOISE, *AGREEMENT, *SWARMS, *COMMANDS]


@pytest.mark.parametrize("recommended, wrong, mended", ROWS, ids=[row[0][:60] for row in ROWS])
def test_what_an_error_recommends_can_be_done(recommended, wrong, mended):
    with pytest.raises(Exception) as caught: wrong()
    assert re.search(re.escape(recommended).replace(r"\{\}", ".*"), str(caught.value), re.DOTALL), caught.value
    mended()


TAKE_GOSSIP = [
    lambda W: dsgd(W, T), lambda W: dp_dsgd(W, T), lambda W: muffliato(W, T, 2), lambda W: decor(W, T), lambda W: corn(W, T, np.eye(3)), lambda W: mf_dsgd(W, T, np.eye(T)),
    lambda W: zip_dl(W, T), lambda W: local_dsgd(W, T, 2), lambda W: dp_dsgd([W] * T, T), spectral_gap, check_gossip, Round, modes,
    lambda W: workload(W, T), lambda W: local_gram(W, T),
    lambda W: strategy("mafalda", TWICE, W), lambda W: save_strategy(strategy("identity", TWICE), "kept.mfdl", W), optimize_covariance,
    lambda W: exact_space_time(W, TWICE, trace_penalty=1e-4),
    lambda W: optimize_local(W, TWICE, LDP(), 1.0, tol=0.5),
]


@pytest.mark.parametrize("takes", TAKE_GOSSIP)
def test_every_function_reads_a_gossip_matrix_in_the_same_way(takes):
    """Rows of numbers are a matrix; a graph, its links and its adjacency matrix are none, and are told how to become one."""
    takes(W)
    takes(W.tolist())
    frame = nx.to_pandas_adjacency(LINE)
    for graph in (LINE, nx.DiGraph(LINE), TWO_LINKS, nx.relabel_nodes(LINE, str), [*LINE.edges], NAMED, LINKED, LINKED.astype(int).tolist(), LINKED > 0, frame):
        with pytest.raises(ValueError, match=r"gossip_matrix\(.*W.*\)"): takes(graph)


@pytest.mark.parametrize("graph", [LINE, nx.DiGraph(LINE), TWO_LINKS, [*LINE.edges], NAMED, np.array(nx.path_graph(4).edges), LINKED, LINKED.tolist(), csr_array(LINKED)])
def test_what_makes_a_gossip_matrix_of_a_graph_is_code_that_does(graph):
    with pytest.raises(ValueError) as caught: check_gossip(graph, sparse=True)
    code = re.search(r"such as (gossip_matrix\(.*\))", str(caught.value))[1]
    check_gossip(eval(code, {"gossip_matrix": gossip_matrix, "networkx": nx, "numpy": np, "W": graph}))


def test_a_report_recommends_no_attackers_that_it_has():
    assert "(SecLDP)" in repr(account(SHARED, LDP(), TWICE))
    assert "(SecLDP)" not in repr(account(SHARED, [LDP(), SecLDP([0])], TWICE))


REMEDY = re.compile(r"\b[Ee]xpected\b|\buse\b|\bpass\b|\bsuch as\b|\bconvert\b|\bwould help\b|\bor say\b|\binstead\b")
OURS = re.compile(r"`[^`]+`|\b[A-Za-z_][\w.]*\(|\b[a-z_]\w*=|--[a-z]+|\bMFDL_\w+|\b[a-z]+_[a-z_]+\b|\b[A-Z][a-z]+[A-Z]\w+|'[a-z-]+'")
ELSEWHERE = {  # how strings begin that no call here can follow, and why
    **dict.fromkeys(["updates=Lipschitz(c)", "full gossip matrices, such as W.toarray()"], "of routes that are only asked whether they fit, and refuse nothing"),
    "what is seen in one step nearly repeats": "needs noise beyond what rounding allows; those beside it are followed",
    **dict.fromkeys(["data='femnist' could not be", "{} is not on this machine", "{}: was written by version {}"], "needs another machine, or another version"),
    **dict.fromkeys(["the environment lacks {}", "network: there has been a Peer on it", "seeds: rank {} has used"],
                    "needs several processes: test_distributed follows them"),
    "a full matrix, such as gossip_matrix(": "what the command line says in words of its own, as `tools.names` shows",
    **dict.fromkeys(["expected load_graph", "expected on the command line load_graph"], "what the explorer replaces in messages of load_graph"),
    "port={} is not free": "needs a port that is free: test_explorer follows it",
    "a bound is {} above what was found": "rounding, of which no example is known",
}


def text_of(node):
    "A string of the source, with {} for what is put in."
    if isinstance(node, ast.Constant): return node.value if isinstance(node.value, str) else ""
    return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)


def recommendations(path):
    "All strings of a module that recommend something of ours: an argument, an option, a function or a value."
    tree = ast.parse(path.read_text())
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.Constant)]
    within = {id(part) for node in strings if isinstance(node, ast.JoinedStr) for part in ast.walk(node) if part is not node}
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    routes = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Route"]
    refused = {id(node.args[2]) for node in routes}  # what to do instead
    for node in strings:
        if id(node) in within or id(node) in documents: continue
        said = text_of(node)
        begins = re.search("", said) if id(node) in refused else REMEDY.search(said)
        if begins and OURS.search(said, begins.start()): yield said


def shortest_with(part, texts): return min((text for text in texts if part in text), key=len, default=part)


def test_every_recommendation_is_followed_here():
    """A message that names something of ours has a row of the table, which follows it, or a reason why it has none."""
    said = {text for path in sorted((ROOT / "mfdl").rglob("*.py")) for text in recommendations(path)}
    followed = {shortest_with(row[0], said) for row in ROWS}
    left = {text for text in said - followed if not text.startswith((*ELSEWHERE,))}
    assert not left, "\n".join(sorted(left))
    assert all(any(text.startswith(part) for text in said) for part in ELSEWHERE)
