"""Every argument of every public name, and of the public methods behind it, is given what nobody should give: the answer is a line that names the argument, or it is accepted.

An error is raw where Python or a library raised it, and not a `raise` of this package; one that does not name the argument helps nobody either.
`make test` tries a part of all pairs of an argument and a value that is chosen by their names, `make nightly` tries all.
"""
import dis
import inspect
import math
import re
import secrets
import signal
import tempfile
import traceback
import warnings
import zlib
from contextlib import contextmanager
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

import mfdl
from mfdl import (
    LDP,
    PNDP,
    Adam,
    Audit,
    Batches,
    Covariance,
    Dataset,
    GaussianDP,
    Lipschitz,
    MessageLog,
    Noise,
    NotConverged,
    Objective,
    OnlineAccountant,
    Participation,
    Peer,
    Protocol,
    Report,
    Round,
    Run,
    Schedule,
    ScheduledProtocol,
    SecLDP,
    SecureSum,
    Simulation,
    SpaceTime,
    Step,
    Strategy,
    Trained,
    account,
    anti_pgd,
    audit,
    check_protocol,
    choose_strategy,
    corn,
    cut,
    decor,
    dp_dsgd,
    dsgd,
    exposure,
    fresh_noise,
    gossip_matrix,
    gradient_tracking,
    join,
    load_data,
    load_graph,
    load_strategy,
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
    optimize_space_time,
    optimize_weights,
    push_sum,
    random_walk,
    read_log,
    replace_batch_norm,
    round_robin,
    row_sensitivity,
    save_strategy,
    sensitivity,
    strategy,
    train,
    which_network,
    which_noise,
    workload,
    zip_dl,
)
from mfdl.accounting.methods.paths import paths_of
from mfdl.learning.methods.budgets import Claim
from mfdl.learning.methods.halting import Budget
from mfdl.protocol.methods.attacks import Attack
from mfdl.protocol.methods.streams import deal_seeds

T = 4
GRAPH = nx.cycle_graph(4)
W = gossip_matrix(GRAPH)
SCHEME = Participation.cyclic(2, 2)
RUN = dp_dsgd(W, T)
SCHEDULED = ScheduledProtocol(RUN, Schedule(0.1, momentum=0.5))
TRUST = PNDP([0])
REPORT = account(RUN, TRUST, SCHEME, updates=Lipschitz(1))
CHANCE = account(RUN, LDP(), Participation.poisson(0.2, T))
COALITION = np.arange(4) == 0
RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(32, 3)).astype(np.float32), RNG.integers(2, size=32)
DATA = Dataset("mine", X[:24], Y[:24], X[24:], Y[24:])
BATCHES = cut(round_robin(24, 4), 2)
TRAINS = {"model": lambda: nn.Linear(3, 2), "data": DATA, "graph": GRAPH, "epsilon": 8.0, "progress": False}
STRATEGY = strategy("mafalda", SCHEME, W)
COVARIANCE = optimize_covariance(W)
SPACE_TIME = optimize_space_time(W, SCHEME)
FOLDER = Path(tempfile.mkdtemp())


def model(): return nn.Linear(3, 2)


def simulation(): return Simulation(model, DATA, BATCHES, [Run("quiet", dsgd(W, T))], 0.5, 1.0)


def new_log(**given): return MessageLog(**{"path": FOLDER / secrets.token_hex(8)} | given)


def log(): return new_log(nodes=["a", "b"], participation=Participation.single(9), row_sensitivity=1.0)


def fed():
    accountant = OnlineAccountant(LDP())
    accountant.feed(dp_dsgd(W, 1))
    return accountant


def peer(then=lambda made: made, **given):
    from torch import distributed as dist
    with join(5.0, store=dist.HashStore(), rank=0, size=1) as network: return then(Peer(**{"network": network, "seeds": deal_seeds(RUN)} | given))


def of_peer(method, **given):
    return peer(lambda made: getattr(made, method)(**given), make_model=model, data=DATA, batches=BATCHES, run=Run("toy", RUN, 0.1), lr=0.1, clip=1.0)


class DPOptimizer:
    """What an optimizer of Opacus has."""
    loss_reduction, secure_mode, step_hook, expected_batch_size, max_grad_norm, _is_last_step_skipped = "mean", False, None, 2, 1.0, False
    noise_multiplier, accumulated_iterations = 0.2, 1

    def __init__(self):
        self.params = [nn.Parameter(torch.zeros(3))]
        self.original_optimizer = torch.optim.SGD(self.params, lr=0.1)

    def clip_and_accumulate(self): pass

    def add_noise(self): pass


def with_noise(**given): return noise_for(**{"optimizer": DPOptimizer(), "seeds": deal_seeds(RUN)[0]} | given)


def joined(**given):
    from torch import distributed as dist
    with join(**{"store": dist.HashStore()} | given): return None


def finished(): return Trained(simulation(), REPORT, 1e-6, "zero-out", "x", True, 2.0, 8.0)


STEPS = {"W": W, "T": T, "nodes": range(4)}
CALLS = {  # what is called, and good arguments, of which one after the other is replaced
    "Audit": (Audit, {"protocol": "DP-D-SGD", "victim": 0, "claimed": 1.0, "replays": 300, "best": None, "learned": None, "epsilon": 1.0, "delta": 1e-5, "refutable": 0.5}),
    "Batches": (Batches, {"index": BATCHES.index}),
    "Batches.at": (BATCHES.at, {"step": 0}), "Batches.check_steps": (BATCHES.check_steps, {"T": 4}), "Batches.in_steps": (BATCHES.in_steps, {"T": 4}),
    "Batches.participation": (BATCHES.participation, {"epochs": 2}), "Batches.with_secret": (BATCHES.with_secret, {"secret": 1}),
    "Covariance": (Covariance, {"method": "corn", "R": COVARIANCE.R, "c": np.ones(4), "objective": 1.0, "lower_bound": 0.9, "trace_penalty": 0.0, "iterations": 3}),
    "Covariance.protocol": (COVARIANCE.protocol, STEPS),
    "Dataset": (Dataset, {"name": "mine", "X": X[:24], "y": Y[:24], "X_test": X[24:], "y_test": Y[24:], "groups": np.arange(24) % 3}),
    "GaussianDP": (GaussianDP, {"mu": 1.0}), "GaussianDP.beta": (GaussianDP(1.0).beta, {"alpha": 0.1}),
    "GaussianDP.compose": (lambda others: GaussianDP(1.0).compose(others), {"others": GaussianDP(2.0)}),
    "GaussianDP.delta": (GaussianDP(1.0).delta, {"epsilon": 1.0}), "GaussianDP.epsilon": (GaussianDP(1.0).epsilon, {"delta": 1e-5}),
    "GaussianDP.from_epsilon": (GaussianDP.from_epsilon, {"epsilon": 1.0, "delta": 1e-5}), "GaussianDP.rdp": (GaussianDP(1.0).rdp, {"alpha": 2.0}),
    **{f"{type(trust).__name__}.{name}": (getattr(trust, name), given) for trust in (LDP(), TRUST, SecLDP([0]), SecLDP([0], "received"), SecureSum([0])) for name, given in {
        "sees": {"messages": RUN.messages, "coalition": COALITION}, "observation": {"run": RUN, "coalition": COALITION},
        "knows_gradient": {"owner": np.arange(16) % 4, "coalition": COALITION}, "knows_noise": {"variables": RUN.variables, "coalition": COALITION}}.items()},
    **{f"{trust.__name__}{name}": (getattr(trust, name[1:]) if name else trust, given) for trust in (PNDP, SecLDP, SecureSum) for name, given in {
        "": {"nodes": [0]}, ".each": {"nodes": [0, 1]}, ".sample": {"nodes": [0, 1], "size": 1, "seed": 0}}.items()},
    "SecLDP of": (SecLDP, {"nodes": [0], "observes": "all"}),
    "Lipschitz": (Lipschitz, {"c": 1.0, "centre": 0.0}), "Lipschitz.of": (Lipschitz.of, {"loss": "huber", "feature_norm": 1.0, "step": 0.5, "ridge": 0.1, "clip_active": False}),
    "Lipschitz.along": (Lipschitz(1).along, {"paths": paths_of(Attack(RUN, TRUST))}), "Lipschitz.at": (Lipschitz(1).at, {"rates": [1.0]}),
    "Lipschitz.check_size": (Lipschitz(1).check_size, {"T": 4, "n": 4}), "Lipschitz.until": (Lipschitz(1).until, {"step": 2}),
    "MessageLog": (new_log, {"nodes": ["a", "b"], "participation": SCHEME, "name": "x", "row_sensitivity": 1.0}),
    "MessageLog of": (new_log, {"nodes": ["a", "b"], "participation": SCHEME, "clip": 1.0, "batch": 2, "adjacency": "zero-out"}),
    "MessageLog at": (lambda path: MessageLog(path, ["a", "b"], SCHEME, row_sensitivity=1.0), {"path": FOLDER / "at.jsonl"}),
    "MessageLog.step": (lambda **given: log().step(**given), {
        "trains": True, "noise": [["a", 2.0], ["b", 2.0]], "rounds": [[["a", "b", 1.0], ["b", "a", 1.0]]], "rate": 1.0, "records": [["a", [0]], ["b", [1]]]}),
    "Noise": (Noise, {"holders": np.eye(4), "mix": np.eye(4), "back": np.eye(4), "basis": np.eye(4)}), "Noise.none": (Noise.none, {"n": 4}),
    "NotConverged": (NotConverged, {"message": "stopped", "best": None}),
    "Objective": (Objective, {"weights": np.ones(4), "nodes": np.ones(4), "averaged": False, "learning_rates": np.ones(4), "momentum": 0.5, "nesterov": True, "weight_decay": 0.1,
                              "curvature": 0.1}),
    "Objective.last": (Objective.last, {"T": 4, "momentum": 0.5}), "Objective.tail": (Objective.tail, {"T": 4, "s": 2, "momentum": 0.5}),
    "Objective.check": (Objective.last(4).check, {"T": 4, "n": 4}),
    "OnlineAccountant": (OnlineAccountant, {"trust": TRUST, "nodes": range(4), "b": 1, "sigma": 1.0, "method": "exact", "updates": Lipschitz(1)}),
    "OnlineAccountant fed": (lambda **given: OnlineAccountant(**given).feed(RUN.steps[0]), {
        "trust": TRUST, "nodes": range(4), "b": 1, "sigma": 1.0, "method": "exact", "updates": Lipschitz(1)}),
    "OnlineAccountant.feed": (lambda step: fed().feed(step), {"step": RUN.steps[0]}),
    "OnlineAccountant.rounds_left": (lambda **given: fed().rounds_left(**given), {"mu": 3.0, "step": RUN.steps[0], "max_rounds": 4, "estimate": True}),
    "Participation": (Participation, {"k": 2, "b": 2, "T": 5, "separation": "at least"}),
    "Participation.balls_in_bins": (Participation.balls_in_bins, {"k": 2, "b": 2}), "Participation.balls_in_new_bins": (Participation.balls_in_new_bins, {"k": 2, "b": 2}),
    "Participation.cyclic": (Participation.cyclic, {"k": 2, "b": 2}), "Participation.cyclic_poisson": (Participation.cyclic_poisson, {"k": 2, "b": 2, "q": 0.1}),
    "Participation.every_step": (Participation.every_step, {"T": 4}), "Participation.single": (Participation.single, {"T": 4}),
    "Participation.min_sep": (Participation.min_sep, {"k": 2, "b": 2, "T": 5}), "Participation.parse": (Participation.parse, {"spec": "cyclic:2,2", "T": 4}),
    "Participation.poisson": (Participation.poisson, {"q": 0.1, "T": 4}),
    "Participation.truncated_poisson": (Participation.truncated_poisson, {"q": 0.1, "T": 4, "records": 10, "largest": 4, "groups": 1}),
    "Participation.max_sum": (SCHEME.max_sum, {"weights": np.ones(4)}), "Participation.max_sum apart": (Participation.min_sep(1, 2, 4).max_sum, {"weights": np.ones(4)}),
    **{f"{kind}.draw": (scheme.draw, {"records": 10, "seed": 0}) for kind, scheme in {
        "Participation.poisson()": Participation.poisson(0.1, 4), "Participation.truncated_poisson()": Participation.truncated_poisson(0.2, 4, 10, 4)}.items()},
    "Protocol": (Protocol, {"nodes": range(4), "steps": RUN.steps, "name": "mine"}), "Protocol.until": (RUN.until, {"step": 2}),
    "Protocol.from_matrices": (Protocol.from_matrices, {"M_G": RUN.M_G, "M_Z": RUN.M_Z, "messages": RUN.messages, "variables": RUN.variables, "nodes": range(4), "T": 4,
        "name": "x"}),
    "Protocol.index": (RUN.index, {"labels": [0], "argument": "nodes"}), "Protocol.distances": (RUN.distances, {"attackers": [0]}),
    **{f"Report.{name}": (getattr(REPORT, name), given) for name, given in {
        "beta": {"alpha": 0.1}, "calibrate": {"epsilon": 1.0, "delta": 1e-5, "estimate": False}, "epsilon": {"delta": 1e-5}, "rdp": {"alpha": 2.0}, "plot": {"kind": None,
            "ax": None},
        "in_units": {"clip": 1.0, "batch": 2, "adjacency": "zero-out", "protect": "record"}}.items()},
    **{f"Report by chance.{name}": (getattr(CHANCE, name), given) for name, given in {
        "beta": {"alpha": 0.1}, "calibrate": {"epsilon": 1.0, "delta": 1e-5}, "epsilon": {"delta": 1e-5}, "delta": {"epsilon": 1.0},
        "in_units": {"clip": 1.0, "batch": 2, "adjacency": "zero-out"}}.items()},
    "Report": (Report, {f.name: getattr(REPORT, f.name) for f in REPORT.__dataclass_fields__.values() if f.init}),
    "Round": (Round, {"W": W, "share": None, "rows": 1}),
    "Round of vectors": (Round, {"W": np.kron(W, np.eye(2)), "share": None, "rows": 2}),
    "Round.local": (Round.local, {"M": np.eye(2), "n": 4}), "Round.exchange": (Round.exchange, {"W": W, "which": [0], "rows": 2}),
    "Round of shares": (Round, {"W": W, "share": np.zeros((16, 2))}), "Round.checked": (Round.checked, {"W": W}),
    "Run": (Run, {"label": "private", "protocol": RUN, "scale": 0.1, "seed": 0, "secret": 1, "secure": False}),
    "Schedule": (Schedule, {"learning_rates": 0.1, "momentum": 0.5, "nesterov": True, "weight_decay": 0.1}),
    **{f"Schedule.{name}": (getattr(SCHEDULED.schedule, name), {"step" if name == "until" else "T": 4}) for name in ("filter", "kept", "rates", "until")},
    "ScheduledProtocol": (ScheduledProtocol, {"protocol": RUN, "schedule": Schedule(0.1)}), "ScheduledProtocol.until": (SCHEDULED.until, {"step": 2}),
    "ScheduledProtocol.index": (SCHEDULED.index, {"labels": [0], "argument": "nodes"}), "ScheduledProtocol.distances": (SCHEDULED.distances, {"attackers": [0]}),
    "Simulation": (Simulation, {"make_model": model, "data": DATA, "batches": BATCHES, "runs": [Run("quiet", dsgd(W, T))], "lr": 0.5, "clip": 1.0, "protect": "record",
                                "loss": "cross-entropy", "device": "cpu", "on_nonfinite": "stop", "record": False, "optimizer": None,
                                "members": None, "divide_by": "largest"}),
    "Adam": (Adam, {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1, "corrected": True}),
    **{f"Simulation.{name}": (lambda name=name, **given: getattr(simulation(), name)(**given), given) for name, given in {
        "digest": {"exact": True}, "modules": {"run": 0}, "resume": {"path": FOLDER / "none"}, "save": {"path": FOLDER / "saved"}, "test": {"records": 2},
            "use_secret": {"secret": 1},
        "run": {"every": 2, "records": 2, "progress": False, "checkpoint": FOLDER / "kept", "spent": None}}.items()},
    "SpaceTime": (SpaceTime, {"S": SPACE_TIME.S, "objective": 1.0, "lower_bound": 0.9, "independent": 2.0, "iterations": 1, "participation": SCHEME, "groups": SPACE_TIME.groups,
                              "basis": SPACE_TIME.basis, "trace_penalty": 0.0}),
    "SpaceTime.protocol": (SPACE_TIME.protocol, STEPS),
    "Step": (Step, {"trains": True, "noise": fresh_noise(np.eye(4)), "rounds": [Round(W)]}), "Step.uses": (RUN.steps[0].uses, {"shared": True}),
    "Strategy": (Strategy, {"name": "mine", "C": np.eye(4), "participation": SCHEME, "objective": 1.0, "lower_bound": 0.9, "iterations": 1, "trace_penalty": 0.0}),
    "Strategy.protocol": (STRATEGY.protocol, STEPS),
    "Trained": (Trained, {"simulation": None, "report": REPORT, "delta": 1e-6, "adjacency": "zero-out", "attackers": "x", "fresh": True, "feature_norm": None, "epsilon": 8.0,
                          "noise": None, "guessable": False}),
    "Trained.save_statement": (lambda path: Trained(simulation(), REPORT, 1e-6, "zero-out", "x", True, 1.0, 8.0).save_statement(path), {"path": "said"}),
    "Trained.save": (lambda path: finished().save(path), {"path": FOLDER / "models"}), "Trained.load": (Trained.load, {"path": FOLDER / "kept models", "model": model}),
    "Trained.predict": (lambda **given: finished().predict(**given), {"X": X, "node": 0}),
    "account": (account, {"protocol": RUN, "trust": TRUST, "participation": SCHEME, "sigma": 1.0, "method": "exact", "updates": Lipschitz(1), "rates": [1.0] * 4,
        "memory_limit": 1.0}),
    "account of a schedule": (account, {"protocol": SCHEDULED, "trust": LDP(), "participation": SCHEME, "sigma": 1.0, "method": "exact", "updates": None, "rates": None,
                                        "memory_limit": None}),
    "account by chance": (account, {"protocol": RUN, "trust": LDP(), "participation": Participation.poisson(0.2, T), "sigma": 1.0, "method": "exact", "updates": None,
        "rates": None,
                                    "memory_limit": None}),
    "audit": (audit, {"protocol": RUN, "trust": LDP(), "participation": SCHEME, "sigma": 1.0, "adjacency": "zero-out", "victim": 0, "claimed": 2.0, "replays": 40,
                      "confidence": 0.9, "delta": 1e-5, "secret": 1, "secure": False, "protect": "record"}),
    "check_protocol": (check_protocol, {"protocol": RUN, "M_G": RUN.M_G, "M_Z": RUN.M_Z, "secret": 0}),
    "choose_strategy": (choose_strategy, {"W": W, "k": 2, "b": 2, "epsilon": 1.0, "delta": 1e-5, "adjacency": "zero-out", "samples": 2**10}),
    "which_network": (which_network, {"sites": 3, "participation": SCHEME, "epsilon": 1.0, "delta": 1e-5, "against": "eavesdropper"}),
    "optimize_weights": (optimize_weights, {"graph": GRAPH, "participation": SCHEME, "tol": 1e-5}),
    "anti_pgd": (anti_pgd, STEPS), "dsgd": (dsgd, STEPS), "zip_dl": (zip_dl, STEPS | {"self_noise": True}), "muffliato": (muffliato, STEPS | {"K": 2}),
    "corn": (corn, STEPS | {"R": [np.diag([1.0, 1, 0, 0]), np.diag([0.0, 0, 1, 1])], "groups": [[0, 1], [2, 3]]}), "decor": (decor, STEPS | {"sigma_local": 1.0,
        "sigma_edge": 1.0, "graph": GRAPH}),
    "dp_dsgd": (dp_dsgd, STEPS | {"trains": 0.9, "offline": 0.1, "seed": 0}), "local_dsgd": (local_dsgd, STEPS | {"every": 2}), "gradient_tracking": (gradient_tracking, STEPS),
    "push_sum": (push_sum, {"A": W.T, "T": T, "nodes": None}), "mf_dsgd": (mf_dsgd, STEPS | {"C": np.eye(4)}),
    "dp_dsgd with lists": (dp_dsgd, STEPS | {"trains": [[0, 1, 2, 3]] * 4, "offline": [[], [0], [], []]}),
    "random_walk": (random_walk, STEPS | {"path": [0, 1, 2, 3, 0], "seed": 0}),
    "cut": (cut, {"holdings": round_robin(24, 4), "b": 2, "size": 3}),
    "exposure": (exposure, {"protocol": RUN, "attackers": [PNDP([0]), PNDP([1])], "participation": SCHEME, "sigma": 1.0, "method": "exact", "updates": Lipschitz(1),
        "results": None,
                            "client": None, "memory_limit": 1.0}),
    "fresh_noise": (fresh_noise, {"F": np.eye(4), "holders": np.eye(4)}), "gossip_matrix": (gossip_matrix, {"graph": GRAPH, "weights": "uniform", "sparse": False}),
    "join": (joined, {"timeout": 1.0, "device": "cpu", "rank": 0, "size": 1, "signer": None}),
    "load_data": (load_data, {"name": "digits", "path": None}), "load_graph": (load_graph, {"name": "ring:n=6", "path": None, "columns": None}),
    "load_strategy": (load_strategy, {"path": FOLDER / "strategy", "participation": SCHEME, "W": W}),
    "local_gram": (local_gram, {"W": W, "T": 4, "per_node": False, "probes": 2, "seed": 0, "objective": None}),
    "local_gram of nodes": (local_gram, {"W": W, "T": 4, "per_node": True, "objective": Objective.last(4)}),
    "noise_for": (with_noise, {"run": Run("a", RUN, 0.1), "node": 0, "participation": SCHEME, "records": [[0, 1], [2, 3]] * 2}),
    "noise_for of": (lambda **given: with_noise(run=Run("a", RUN, 0.1), node=0, participation=SCHEME, **given), {"optimizer": DPOptimizer(), "seeds": deal_seeds(RUN)[0]}),
    "noisy_gradients_account": (noisy_gradients_account, {"protocol": RUN, "trust": TRUST, "participation": SCHEME, "sigma": 1.0, "method": "exact", "memory_limit": 1.0}),
    "optimize": (optimize, {"H": local_gram(W, 4), "participation": SCHEME, "tol": 1e-6, "bands": 2, "equal_norm": False, "bound": 100.0}),
    "optimize_covariance": (optimize_covariance, {"W": W, "c": 1.0, "horizon": 2, "method": "corn", "tol": 1e-6, "bound": 100.0, "objective": None}),
    "optimize_local": (optimize_local, {"W": W, "participation": SCHEME, "trust": LDP(), "mu": 1.0, "alike": True, "nodes": range(4), "tol": 0.1, "max_iter": 50}),
    "optimize_pairwise": (optimize_pairwise, {"W": W, "participation": SCHEME, "curious": 1, "groups": "pairs", "absent": 0.1, "budgets": np.ones(4), "tol": 0.1}),
    "optimize_space_time": (optimize_space_time, {"W": W, "participation": SCHEME, "tol": 1e-3, "trace_penalty": 1e-3, "groups": [[0, 1], [2, 3]], "method": "auto",
        "objective": None}),
    "read_log": (read_log, {"path": FOLDER / "none"}), "replace_batch_norm": (replace_batch_norm, {"model": nn.BatchNorm1d(2)}),
    "round_robin": (round_robin, {"records": 24, "n": 4, "seed": 0}),
    "row_sensitivity": (row_sensitivity, {"clip": 1.0, "batch_size": 2, "adjacency": "zero-out"}),
    "save_strategy": (save_strategy, {"one": STRATEGY, "path": FOLDER / "strategy", "W": W}), "sensitivity": (sensitivity, {"P": np.eye(4), "method": "exact"}),
    "strategy": (strategy, {"name": "banded", "participation": SCHEME, "W": W, "bands": 2, "tol": 1e-6, "objective": None, "bound": 100.0}),
    "train": (train, TRAINS | {"delta": 1e-5, "against": LDP(), "noise": "independent", "participation": SCHEME, "holdings": None, "clip": 1.0, "lr": 0.1, "optimizer": "sgd",
        "loss": None,
                               "adjacency": "zero-out", "feature_norm": None, "person": None, "protect": "record", "divide_by": "largest",
        "estimate": False, "seed": 0, "secret": 1, "secure": False, "device": "cpu",
                                   "every": 2,
                               "checkpoint": None, "on_nonfinite": "stop"}),
    "which_noise": (which_noise, {"W": W, "participation": SCHEME, "epsilon": 1.0, "delta": 1e-5, "against": "eavesdropper"}), "workload": (workload, {"W": W, "T": 4}),
    "Peer": (peer, {"make_model": model, "data": DATA, "batches": BATCHES, "run": Run("toy", RUN, 0.1), "lr": 0.1, "clip": 1.0,
                    "placement": None, "protect": "record", "loss": None, "device": "cpu", "folder": None, "record": False,
                    "budget": Budget(Claim(RUN, LDP(), SCHEME), 0.1, 1e4, 1e-5)}),
    "Peer.run": (lambda **given: of_peer("run", **given), {"every": 2, "records": 2, "progress": False, "tell": lambda t, numbers: None}),
    "Peer.modules": (lambda **given: of_peer("modules", **given), {"run": 0}), "Peer.test": (lambda **given: of_peer("test", **given), {"records": 2}),
}
class Stranger:
    """An object that nobody knows."""


HOSTILE = {
    "None": None, "True": True, "0": 0, "3": 3, "-1": -1, "2**70": 2**70, "10**400": 10**400, "10**5000": 10**5000, "1.5": 1.5, "nan": math.nan, "inf": math.inf,
        "-inf": -math.inf, "1e300": 1e300, "1j": 1j,
    "''": "", "'x'": "x", "b'x'": b"x", "[]": [], "[[]]": [[]], "[None]": [None], "[1, 2]": [1, 2], "[1, 'a']": [1, "a"], "[0.5] * 7": [0.5] * 7, "[[1], [1, 2]]": [[1], [1, 2]],
    "[nan] * 4": [math.nan] * 4, "[-1.0] * 4": [-1.0] * 4, "[[0]]": [[0]], "('a', 'b')": ("a", "b"), "{}": {}, "{'a': 1}": {"a": 1}, "{0: None}": {0: None}, "set()": set(),
    "Stranger()": Stranger(), "Stranger": Stranger, "len": len, "iter": range(3),
    "0-d": np.array(1.0), "empty": np.zeros(0), "3-d": np.zeros((2, 2, 2)), "4x4 of nan": np.full((4, 4), math.nan), "4x4 of 2": np.full((4, 4), 2.0), "3x2": np.ones((3, 2)),
    "texts": np.array(["a", "b"]), "objects": np.array([None, Stranger()], dtype=object), "complex": np.eye(4) * 1j, "sparse": csr_array(np.ones((3, 3))),
        "frame": pd.DataFrame({"a": [1, 2]}),
    "RUN": RUN, "SCHEDULED": SCHEDULED, "SCHEME": SCHEME, "by chance": Participation.poisson(0.2, T), "TRUST": TRUST, "REPORT": REPORT, "STRATEGY": STRATEGY, "Step": RUN.steps[0],
    "Round": RUN.steps[0].rounds[0], "DATA": DATA, "BATCHES": BATCHES, "GRAPH": GRAPH, "digraph": nx.DiGraph([(0, 1)]), "module": model(), "[RUN]": [RUN],
        "[TRUST, None]": [TRUST, None],
    "Participation": Participation, "PNDP": PNDP,
}
SPOKEN = {  # what messages say in place of the argument's name
    "nodes": ("attackers",), "name": ("data", "graph", "path", "file"), "spec": ("participation", "graph"), "others": ("compose",), "path": ("line",), "T": ("weights",),
        "labels": ("nodes",),
    "data": ("X", "y"), "holdings": ("index", "batches"), "graph": ("path",), "run": ("protocol", "Protocol", "seeds"),
}
SHARE = {  # one in so many, for calls that take long
    "Peer": 24, "audit": 24, "train": 6, "choose_strategy": 6, "Simulation.run": 6, "Peer.run": 12, "Peer.test": 4, "Report by chance.calibrate": 4, "exposure": 2,
        "which_noise": 2, "which_network": 2,
        "OnlineAccountant.rounds_left": 2,
}
ELSEWHERE = {  # public methods that have no arguments of a user's, and why
    "NotConverged.add_note": "of Python", "NotConverged.with_traceback": "of Python",
}


@contextmanager
def at_most(seconds):
    """Interrupts what takes longer."""
    def stop(*_): raise TimeoutError(f"took more than {seconds} seconds")
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try: yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


RAW = (AttributeError, TypeError, LookupError, ArithmeticError, RuntimeError, NameError, AssertionError, MemoryError, StopIteration, TimeoutError)


def is_raised_here(error):
    """Whether a `raise` of this package made an error, and not Python or a library."""
    last = error.__traceback__
    while last.tb_next: last = last.tb_next
    operation = dis.opname[last.tb_frame.f_code.co_code[last.tb_lasti]]
    return last.tb_frame.f_globals.get("__name__", "").startswith("mfdl.") and operation in ("RAISE_VARARGS", "RERAISE")


def fault(call, given, argument, value):
    """What is wrong with the answer to one value; None if it is accepted or refused in words."""
    try:
        with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"), at_most(20): call(**given | {argument: value})
    except (NotConverged, ImportError): return None
    except Exception as error:
        if isinstance(error, OSError) and type(error) is not TimeoutError: return None  # of a file that is not there, or cannot be
        ours = [f"{Path(frame.f_code.co_filename).name}:{line}" for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_globals.get("__name__",
            "").startswith("mfdl.")]
        said = f"{type(error).__name__} in {(ours or ['no line of this package'])[-1]}: {error!s:.150}"
        if isinstance(error, RAW) or not is_raised_here(error): return f"raw {said}"
        if "\n" in str(error): return f"lines {said!r}"
        names = {*given, *SPOKEN.get(argument, ())}
        return None if any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(error)) for name in names) else f"unnamed {said}"
    return None


def faults(label, share):
    """What is wrong with the answers of one call, for one in `share` of all values, by argument and value."""
    call, given = CALLS[label]
    for argument in given:
        for shown, value in HOSTILE.items():
            if zlib.crc32(f"{label} {argument} {shown}".encode()) % share: continue
            if found := fault(call, given, argument, value): yield f"{label}, {argument}={shown}: {found}"


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    """What is written to files of hostile names is written here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MFDL_STATE", str(tmp_path / "state"))


@pytest.mark.parametrize("label", CALLS)
def test_what_nobody_should_give_is_refused_in_a_line(label):
    found = [*faults(label, 3 * SHARE.get(label, 1))]
    assert not found, "\n".join(found[:9])


@pytest.mark.nightly
@pytest.mark.parametrize("label", CALLS)
def test_all_that_nobody_should_give(label):
    found = [*faults(label, 1)]
    assert not found, "\n".join(found[:9])


NEEDS = {"Trained.save", "Trained.load", "Simulation.resume", "load_strategy", "read_log", "MessageLog at"}  # a file that is there, or is not


@pytest.mark.parametrize("label", [label for label in CALLS if label not in NEEDS])
def test_what_is_replaced_was_good(label):
    """Otherwise another argument would be refused first, and nothing would be seen."""
    call, given = CALLS[label]
    call(**given)


def parameters(thing):
    kinds = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    return {name for name, one in inspect.signature(thing).parameters.items() if one.kind not in kinds} - {"self"}


def test_every_argument_of_every_public_name_is_tried():
    tried = {}
    for label, (_, given) in CALLS.items(): tried.setdefault(label.split(" ")[0], set()).update(given)
    missing = {name: rest for name in mfdl.__all__ if (rest := parameters(getattr(mfdl, name)) - tried.get(name, set()) - {"network", "seeds", "store"})}
    for name in mfdl.__all__:
        methods = inspect.getmembers(getattr(mfdl, name), callable) if inspect.isclass(getattr(mfdl, name)) else []
        for method, thing in methods:
            full = f"{name}.{method}"
            if method.startswith("_") or full in ELSEWHERE: continue
            if rest := parameters(thing) - tried.get(full, set()): missing[full] = rest
    assert not missing


def test_errors_that_are_raw_many_lines_or_about_nothing_are_noticed():
    def raw(x): return x.part
    def inside(x): return np.zeros(2).reshape(x)
    def elsewhere(x): raise ValueError("x: expected more")
    for call in (raw, inside, elsewhere): assert fault(call, {"x": 1}, "x", "y").startswith("raw")
    assert fault(lambda x: GaussianDP(mu=-1), {"x": 1}, "x", 3).startswith("unnamed")
    assert fault(lambda mu: GaussianDP(mu=mu), {"mu": 1}, "mu", -1) is None
    assert fault(GaussianDP, {"mu": 1}, "mu", REPORT) is None and "\n" in repr(REPORT)
