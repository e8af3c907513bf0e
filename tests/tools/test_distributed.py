"""Gossip between processes: the simulator's numbers, the accountant's view, and noise that belongs to one gradient whatever dies."""
import copy
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from datetime import timedelta
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
import torch.distributed as dist
from ordinary import GRAPHS
from scipy.sparse import csr_array
from torch import nn

import mfdl.base.files
from mfdl.accounting.account import account
from mfdl.accounting.methods.schedules import Schedule, ScheduledProtocol
from mfdl.base.randomness import derive_seed, draw
from mfdl.evidence.audit import audit
from mfdl.learning.data import Batches, Dataset, cut
from mfdl.learning.methods.noise_supply import Run
from mfdl.learning.simulator import Simulation
from mfdl.noise.methods.spectral import optimize_space_time
from mfdl.noise.methods.strategies import strategy
from mfdl.protocol.algorithms import decor, dp_dsgd, mf_dsgd
from mfdl.protocol.gossip import churn, gossip_matrix
from mfdl.protocol.methods import streams
from mfdl.protocol.methods.attacks import coalition_mask
from mfdl.protocol.methods.group_seeds import corn
from mfdl.protocol.methods.message_noise import zip_dl
from mfdl.protocol.methods.streams import NodeNoise, deal_seeds
from mfdl.protocol.methods.token import random_walk
from mfdl.protocol.methods.variants import anti_pgd, dsgd, local_dsgd, muffliato
from mfdl.protocol.participation import Participation
from mfdl.protocol.threat_models import LDP, PNDP
from mfdl.tools.distributed import HostedNoise, Peer
from mfdl.tools.journal import Journal, UsedSeeds
from mfdl.tools.network import Network, PeerLost, join

os.environ["GLOO_SOCKET_IFNAME"] = "lo"
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "mfdl.tools.distributed", "mfdl.noise.space_time", "cvxpy"])
N, T, B, RATE, SCALE, SECRET = 5, 6, 3, 0.2, 0.3, 11**36
RNG = np.random.default_rng(0)
OTHER = 12**35
HOUSE = nx.house_graph()
W = gossip_matrix(HOUSE)
DIRECTED = RNG.random((T, N, N)) * (RNG.random((T, N, N)) < 0.6) + 0.2 * np.eye(N)
DIRECTED /= DIRECTED.sum(axis=2, keepdims=True)
DATA = Dataset("random", RNG.normal(size=(45, 4)), RNG.integers(3, size=45), RNG.normal(size=(7, 4)), np.array([0, 1, 2, 0, 1, 2, 0]))
BATCHES = cut([range(u, 45, N) for u in range(N)], B)
C = np.tril(np.linalg.inv(np.eye(T) - 0.5 * np.eye(T, k=-1) + 0.1 * np.eye(T, k=-3)))
MOMENTUM = Schedule(np.geomspace(0.1, 0.05, T), 0.8, nesterov=True)
CASES = {
    "no noise": lambda: dsgd(W, T), "independent": lambda: dp_dsgd(DIRECTED, T), "three rounds": lambda: muffliato(W, T, 3), "taken back": lambda: anti_pgd(W, T),
    "secure": lambda: mf_dsgd(W, T, C), "in time": lambda: mf_dsgd(W, T, C),
    "own strategies": lambda: mf_dsgd(W, T, [np.linalg.inv(C) if u % 2 else C for u in range(N)]), "secrets": lambda: decor(W, T, 0.5),
    "groups": lambda: corn(W, T, [np.pad(np.eye(3) - 0.3, (0, 2)), np.pad(np.eye(3) - 0.2, (2, 0))], groups=[[0, 1, 2], [2, 3, 4]]),
    "space and time": lambda: optimize_space_time(W, Participation.cyclic(2, B), method="directions").protocol(W),
    "churn": lambda: dp_dsgd(churn(HOUSE, [[], [1], [0, 2], [], [3], []]), T), "zip": lambda: zip_dl(W, T), "zip, own share": lambda: zip_dl(DIRECTED, T, self_noise=True),
    "local": lambda: local_dsgd(DIRECTED, T, 2), "walk": lambda: random_walk(W, T, seed=2), "offline": lambda: dp_dsgd(W, T, offline=0.3, trains=0.8),
    "momentum": lambda: ScheduledProtocol(mf_dsgd(W, T, C), MOMENTUM), "zip with momentum": lambda: ScheduledProtocol(zip_dl(DIRECTED, T, self_noise=True), MOMENTUM),
}
PLACEMENTS = ([0, 1, 2, 3, 4], [1, 0, 0, 1, 0])


def network(): return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def dropping(): return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.3), nn.Linear(6, 3))


def network_of(case): return dropping if case == "in time" else network


def make_peer(net, case="independent", placement=None, folder=None, secret=SECRET, T=T, **change):
    algorithm = change.pop("algorithm", None) or CASES[case]()
    placement = list(range(N)) if placement is None else placement
    here = np.flatnonzero(np.array(placement) == net.rank)
    seeds = {u: held for u, held in deal_seeds(algorithm.plain, secret).items() if u in here}
    if isinstance(algorithm, ScheduledProtocol): change = {"lr": None, **change}
    run = Run(case, algorithm, change.pop("scale", SCALE if case != "no noise" else 0.0), change.pop("seed", 0), secure=case == "secure")
    return Peer(net, change.pop("make_model", network_of(case)), DATA, Batches(change.pop("index", BATCHES.index)[here]), run, seeds,
                **{"lr": RATE, "clip": 0.5, "placement": placement, "folder": folder and f"{folder}/{net.rank}", **change})


@pytest.fixture(autouse=True)
def machine(tmp_path_factory, monkeypatch):
    "A list of used seeds for each test, as if it had a machine to itself."
    monkeypatch.setenv("MFDL_STATE", str(tmp_path_factory.mktemp("machine")))


def child(port, rank, size, timeout, answers, state, job, arguments):
    os.environ["MFDL_STATE"] = state
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=30))
        with join(timeout, store=store, rank=rank, size=size) as net: answers.put((rank, job(net, *arguments)))
    except Exception as error: answers.put((rank, error))


def start(size, job, *arguments, timeout=30.0):
    store, answers = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), CONTEXT.Queue()
    ranks = [CONTEXT.Process(target=child, args=(store.port, rank, size, timeout, answers, os.environ["MFDL_STATE"], job, arguments)) for rank in range(size)]
    for process in ranks: process.start()
    return store, ranks, answers


def together(size, job, *arguments, timeout=30.0):
    "What each rank answers, by rank."
    store, ranks, answers = start(size, job, *arguments, timeout=timeout)
    found = dict(answers.get(timeout=120) for _ in ranks)
    for process in ranks: process.join(30)
    return [found[rank] for rank in range(size)]


def whole_run(net, case, placement):
    used = set()
    drawn = streams.draw_block
    streams.draw_block = lambda seed, *rest: used.add(seed) or drawn(seed, *rest)
    peer = make_peer(net, case, placement, record=True)
    history = peer.run(every=2)
    return peer.models[:, 0].numpy(), {key: value.numpy() for key, value in peer.transcript.items()}, used, peer.sent, history.metrics["accuracy"]


@pytest.mark.parametrize("case", CASES)
def test_numbers_of_the_simulator_and_the_view_of_the_account(case, tmp_path, monkeypatch):
    algorithm = CASES[case]()
    run = Run(case, algorithm, SCALE if case != "no noise" else 0.0, secret=SECRET, secure=case == "secure")
    plain, rate = algorithm.plain, RATE if algorithm is algorithm.plain else None
    simulation, G = Simulation(network_of(case), DATA, BATCHES, [run], rate, 0.5, record=True), []
    start = simulation.models[0, 0].numpy().copy()
    for _ in range(T):
        G.append(simulation.learner.changes(simulation.t)[:, 0].numpy().astype(float))
        simulation.step()
    variables = zip(algorithm.variables.holder_set, algorithm.variables.number, strict=True)
    Z = np.array([draw(derive_seed(SECRET, row), number, len(start), secure=case == "secure") for row, number in variables]).reshape(-1, len(start))
    sent = start - (rate or 1) * (algorithm.M_G @ np.vstack(G) + SCALE * algorithm.M_Z @ Z)
    np.testing.assert_allclose(np.vstack(simulation.transcript)[:, 0], sent, atol=3e-5)
    messages, models = algorithm.messages, []
    for placement in PLACEMENTS:
        monkeypatch.setenv("MFDL_STATE", str(tmp_path / str(max(placement))))  # the same seeds again
        answers = together(max(placement) + 1, whole_run, case, placement)
        for answer in answers:
            if isinstance(answer, Exception): raise answer
        models.append(np.empty((N, len(start)), dtype=np.float32))
        for rank, (own, transcript, used, volume, accuracy) in enumerate(answers):
            here = np.flatnonzero(np.array(placement) == rank)
            models[-1][here] = own
            assert len(accuracy) == 3 and np.shape(accuracy[0]) == (1, len(here))
            seen = PNDP(here.tolist()).sees(messages, coalition_mask(algorithm, PNDP(here.tolist())))
            rows = {}
            for row in np.flatnonzero(seen):
                t, u = int(messages.step[row]), int(messages.sender[row])
                k = int(messages.round[row])
                rows[t, k, u if plain.steps[t].rounds[k].share is None else (u, int(messages.receivers[row].argmax()))] = row
            assert transcript.keys() == rows.keys(), "a rank heard something else than its view"
            for key, row in rows.items(): np.testing.assert_allclose(transcript[key], sent[row], atol=3e-5)
            held = {seed for u in here for seed in deal_seeds(plain, SECRET)[u].values()}
            assert used <= held and (case in ("no noise", "walk") or used), "a rank drew from a seed that none of its nodes holds"
            if len(set(placement)) == N and case in ("independent", "zip"):
                neighbours = [sum(Wt[v, here[0]] > 0 for v in range(N) if v != here[0]) for Wt in (step.rounds[0].W for step in algorithm.steps)]
                assert volume[0] == 4 * len(start) * sum(neighbours)
    np.testing.assert_allclose(models[0], simulation.theta[0].numpy(), atol=3e-5)
    np.testing.assert_array_equal(models[0], models[1], "placement changed a number")
    assert np.abs(models[0] - start).max() > 0.05


ORDINARY = list(product(GRAPHS, ("metropolis", "uniform"), (Participation.cyclic(2, 3), Participation.every_step(6), Participation.single(6))))


def ordinary_run(graph, weights, scheme):
    """Data, batches of each node, and a run of MAFALDA on a graph of test_ordinary, with names that are positions of others."""
    n, rng = len(GRAPHS[graph]), np.random.default_rng(3)
    W = gossip_matrix(GRAPHS[graph], weights)
    data = Dataset("random", rng.normal(size=(12 * n, 4)), rng.integers(3, size=12 * n), rng.normal(size=(5, 4)), np.array([0, 1, 2, 0, 1]))
    algorithm = mf_dsgd(W, scheme.T, strategy("mafalda", scheme, W).C, nodes=rng.permutation(n).tolist())
    return data, cut([range(u, 12 * n, n) for u in range(n)], scheme.b), algorithm


def ordinary_ranks(port, rank, answers, state, cases):
    os.environ["MFDL_STATE"] = state
    store, models = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=30)), []
    try:
        for i, case in enumerate(cases):
            data, batches, algorithm = ordinary_run(*case)
            half = len(batches.index) // 2
            here = slice(half) if rank == 0 else slice(half, None)
            seeds = {name: held for name, held in deal_seeds(algorithm, SECRET + i).items() if name in algorithm.nodes[here]}
            with join(30.0, store=dist.PrefixStore(str(i), store), rank=rank, size=2) as net:
                placement = [int(u >= half) for u in range(algorithm.n)]
                peer = Peer(net, network, data, Batches(batches.index[here]), Run("ordinary", algorithm, SCALE), seeds, RATE, 0.5, placement=placement)
                peer.run()
                models.append(peer.models[:, 0].numpy())
        answers.put((rank, models))
    except Exception as error: answers.put((rank, error))


@pytest.mark.parametrize("cases", [ORDINARY[::10], pytest.param([case for i, case in enumerate(ORDINARY) if i % 10], marks=pytest.mark.nightly)], ids=["a tenth", "the rest"])
def test_two_ranks_agree_with_the_simulator_on_ordinary_graphs(cases):
    store, answers = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), CONTEXT.Queue()
    ranks = [CONTEXT.Process(target=ordinary_ranks, args=(store.port, rank, answers, os.environ["MFDL_STATE"], cases)) for rank in range(2)]
    for process in ranks: process.start()
    found = dict(answers.get(timeout=60 + 5 * len(cases)) for _ in ranks)
    for process in ranks: process.join(30)
    for answer in found.values():
        if isinstance(answer, Exception): raise answer
    for i, (case, first, second) in enumerate(zip(cases, found[0], found[1], strict=True)):
        data, batches, algorithm = ordinary_run(*case)
        simulation = Simulation(network, data, batches, [Run("ordinary", algorithm, SCALE, secret=SECRET + i)], RATE, 0.5)
        simulation.run(progress=False)
        np.testing.assert_allclose(np.concatenate([first, second]), simulation.theta[0].numpy(), atol=3e-5, err_msg=str(case))


LONG = 30
WATCHED = {
    "in time": lambda: mf_dsgd(W, LONG, np.tril(np.linalg.inv(np.eye(LONG) - 0.6 * np.eye(LONG, k=-1)))), "three rounds": lambda: muffliato(W, LONG, 3),
    "zip": lambda: zip_dl(W, LONG), "churn and secrets": lambda: decor(churn(HOUSE, [[u % 7] if u % 7 < N else [] for u in range(LONG)]), LONG),
}


def watched_run(net, folder, case, attempt):
    """A run of LONG steps whose gradients are a little different in every attempt, as on another processor; what is sent and drawn is written down."""
    log = open(f"{folder}/log-{net.rank}-{attempt}", "w", buffering=1)
    peer = make_peer(net, folder=folder, algorithm=WATCHED[case](), placement=[0, 1, 2, 2, 1])
    changes, swap = peer.learner.changes, peer.exchange.swap

    def perturbed(t):
        time.sleep(0.02)
        for u, z in zip(peer.exchange.here, peer.noise.at(t), strict=True): log.write(f"drawn {t} {u} {hashlib.sha256(z.numpy().tobytes()).hexdigest()}\n")
        return changes(t) + 1e-3 * attempt

    def told(t, k, routes, messages, meanwhile):
        for name in {name for names in routes.outgoing.values() for name in names}:
            if k == 0: log.write(f"sent {t} {str(name).replace(' ', '')} {hashlib.sha256(messages[name].numpy().tobytes()).hexdigest()}\n")
        return swap(t, k, routes, messages, meanwhile)
    peer.learner.changes, peer.exchange.swap = perturbed, told
    peer.run(every=4)
    return peer.models[:, 0].numpy()


def read_logs(folder, kind):
    found = {}
    for path in folder.glob("log-*"):
        for line in path.read_text().splitlines():
            what, t, u, sha = (line.split() + [""] * 4)[:4]
            if what == kind and len(sha) == 64: found.setdefault((int(t), u), []).append(sha)
    return found


def wait_until(reached, longest=60):
    end = time.monotonic() + longest
    while not reached():
        assert time.monotonic() < end, "nothing moves"
        time.sleep(0.01)


@pytest.mark.parametrize("seed, case", [pytest.param(*one, marks=pytest.mark.nightly if one[0] in (1, 2) else ()) for one in enumerate(WATCHED)])
def test_ranks_that_are_killed_never_use_noise_for_two_gradients(tmp_path, seed, case):
    chance, attempts = random.Random(seed), 0
    while True:
        attempts += 1
        store, ranks, answers = start(3, watched_run, tmp_path, case, attempts, timeout=5.0)
        if attempts <= 6:
            enough = chance.randrange(40)
            wait_until(lambda: sum(path.read_text().count("sent") for path in tmp_path.glob(f"log-*-{attempts}")) >= enough or not all(process.is_alive() for process in ranks))  # noqa: B023
            ranks[chance.randrange(3)].kill()
        began = time.time()
        for process in ranks: process.join(60)
        assert time.time() - began < 20, "somebody hung"
        results = [answers.get(timeout=5)[1] for process in ranks if process.exitcode == 0]
        if all(isinstance(result, np.ndarray) for result in results) and len(results) == 3: break
        assert all(isinstance(result, PeerLost | np.ndarray) for result in results), results
    assert attempts >= 3, "nothing was killed before it was done"
    sent, drawn, algorithm = read_logs(tmp_path, "sent"), read_logs(tmp_path, "drawn"), WATCHED[case]()
    assert all(len(set(shas)) == 1 for shas in sent.values()), "the noise of a step went out with two different gradients"
    assert any(len(shas) > 1 for shas in sent.values()), "no step was sent again: nothing was tested"
    for u in range(N):
        for t, z in enumerate(NodeNoise(algorithm, u, deal_seeds(algorithm, SECRET)[u], 51)):
            assert set(drawn[t, str(u)]) == {hashlib.sha256(z.astype(np.float32).tobytes()).hexdigest()}, "noise was skipped, or drawn for another step"


def endless(net, compute, folder):
    peer = make_peer(net, algorithm=dp_dsgd(W, 3000))
    step = peer.learner.changes

    def slow(t):
        if t == 5: (folder / f"rank-{net.rank}").touch()
        time.sleep(compute)
        return step(t)
    peer.learner.changes = slow
    peer.run()


@pytest.mark.parametrize("how, timeout, compute", [(signal.SIGKILL, 30.0, 0.0), (signal.SIGKILL, 30.0, 0.3), (signal.SIGSTOP, 3.0, 0.1)])
def test_all_stop_when_one_is_gone(how, timeout, compute, tmp_path):
    store, ranks, answers = start(N, endless, compute, tmp_path, timeout=timeout)
    wait_until(lambda: len(list(tmp_path.iterdir())) == N)
    os.kill(ranks[3].pid, how)
    began = time.time()
    found = dict(answers.get(timeout=20) for _ in range(N - 1))
    assert time.time() - began < (5 if how == signal.SIGKILL else timeout + 5)
    ranks[3].kill()
    for process in ranks: process.join(20)
    assert sorted(found) == [0, 1, 2, 4] and all(isinstance(error, PeerLost) for error in found.values()), found
    assert any("rank 3 is gone" in str(error) for error in found.values()) and all(str(error).startswith("step ") for error in found.values())


DIFFERENT = {
    "clip": {"clip": 0.4}, "learning rate": {"lr": 0.1}, "scale": {"scale": 0.2}, "seed": {"seed": 1}, "protect": {"protect": "node"}, "placement": {"placement": [0, 1, 1, 0, 1]},
    "model": {"make_model": lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))},
    "batches": {"index": np.pad(BATCHES.index, [(0, 0), (0, 0), (0, 1)], constant_values=-1)},
    "schedule": {"algorithm": ScheduledProtocol(dp_dsgd(W, T), Schedule(RATE, 0.5))},
    "graph": {"algorithm": dp_dsgd(gossip_matrix(nx.cycle_graph(5)), T)}, "strategy": {"algorithm": mf_dsgd(W, T, C)}, "steps": {"algorithm": dp_dsgd(W, 2 * T)},
}


def disagreeing(net, what):
    change = {} if net.rank == 0 else {"version": {}, "shared": {"secret": OTHER}}.get(what, DIFFERENT.get(what))
    if what == "version" and net.rank:
        import mfdl.tools.distributed
        mfdl.tools.distributed.package_code = lambda: {"version": "9.9", "code": "0" * 64}
    placement = change.pop("placement", [0, 1, 0, 0, 1]) if what != "placement" else [0, 1, 0, 0, 1] if not net.rank else [0, 1, 1, 0, 1]
    algorithm = change.pop("algorithm", dp_dsgd(W, T) if what != "shared" else decor(W, T))
    make_peer(net, placement=placement, algorithm=algorithm, **{key: value for key, value in change.items() if key != "placement"})


@pytest.mark.parametrize("what", [*DIFFERENT, "version", "shared"])
def test_ranks_that_disagree_all_stop_and_name_it(what):
    for error in together(2, disagreeing, what):
        assert isinstance(error, ValueError) and str(error).startswith("ranks do not agree: "), error
        assert ("hold different seeds" if what == "shared" else f"has {what} ") in str(error)


@pytest.fixture
def alone():
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with join(5.0, store=store, rank=0, size=1) as net: yield net


def test_settings_that_do_not_fit_are_refused_before_anything(alone):
    everybody = [0] * N
    for change, message in [({"placement": [0, 1, 0, 0, 0]}, "the network has 1"), ({"lr": -1}, "lr=-1"), ({"clip": 0}, "clip=0"),
                            ({"scale": -1.0}, "scale=-1.0"), ({"clip": None}, "noise without clipping"), ({"placement": [0.0] * N}, "expected the ranks of 5 nodes")]:
        with pytest.raises(ValueError, match=message): make_peer(alone, **{"placement": everybody, **change})
    algorithm = dp_dsgd(W, T)
    with pytest.raises(ValueError, match="batches are for 2 nodes: rank 0 hosts 5"):
        Peer(alone, network, DATA, Batches(BATCHES.index[:2]), Run("r", algorithm, 1.0), deal_seeds(algorithm, SECRET), RATE, 0.5, everybody)
    with pytest.raises(ValueError, match="expected those of the nodes here"):
        Peer(alone, network, DATA, BATCHES, Run("r", algorithm, 1.0), {0: deal_seeds(algorithm, SECRET)[0]}, RATE, 0.5, everybody)
    with pytest.raises(ValueError, match="are for rows .. of protocol.variables.holder_sets: expected"):
        Peer(alone, network, DATA, BATCHES, Run("r", algorithm, 1.0), {u: {} for u in range(N)}, RATE, 0.5, everybody)
    with pytest.raises(ValueError, match="has sparse gossip matrices"):
        Peer(alone, network, DATA, BATCHES, Run("r", dp_dsgd(csr_array(W), T), 1.0), deal_seeds(algorithm, SECRET), RATE, 0.5, everybody)


def test_ranks_that_never_come():
    began = time.time()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with pytest.raises(PeerLost, match="nothing from rank 1 for 1 s"), join(1.0, store=store, rank=0, size=2): pass
    assert time.time() - began < 5


def test_outside_torchrun(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"): monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="expected to be started by torchrun"), join(1.0): pass


def part_of_run(net, folder, steps, **change):
    peer = make_peer(net, folder=folder, placement=[0, 1, 0, 0, 1], **change)
    for _ in range(steps):
        peer.step()
        if peer.t % 2 == 0: peer.save()
    return peer.t


def with_velocity(net, folder, steps):
    peer = make_peer(net, "momentum", folder=folder, placement=[0, 1, 0, 0, 1])
    for _ in range(steps):
        peer.step()
        if peer.t in (2, 6): peer.save()
    return peer.t, peer.models.numpy(), peer.learner.velocity.numpy()


def test_velocities_go_on_where_they_were(tmp_path, monkeypatch):
    """Stopped after step 5, of which steps 2 to 4 are sent already: their outcomes are read, with what velocities were."""
    whole = together(2, with_velocity, tmp_path / "whole", T)
    monkeypatch.setenv("MFDL_STATE", str(tmp_path / "another machine"))  # the same seeds again
    assert [t for t, *_ in together(2, with_velocity, tmp_path / "parts", 5)] == [5, 5]
    for expected, found in zip(whole, together(2, with_velocity, tmp_path / "parts", T - 2), strict=True):
        assert found[0] == T and np.abs(expected[2]).max() > 0
        np.testing.assert_array_equal(found[1], expected[1])
        np.testing.assert_array_equal(found[2], expected[2])


def refused_restart(net, folder, change): return part_of_run(net, folder, 0, **change)


def test_restarts_that_would_use_noise_again_are_refused(tmp_path):
    assert together(2, part_of_run, tmp_path, 5) == [5, 5]
    assert together(2, part_of_run, tmp_path, 0) == [4, 4]  # the last common checkpoint
    kept = {path.name for path in (tmp_path / "0").iterdir()}
    assert {"rank-0.step-4", "rank-0.half-4"} <= kept and not {"rank-0.half-0", "rank-0.half-1"} & kept, "more is kept than a restart can need, or less"
    for error in together(2, refused_restart, tmp_path, {"clip": 0.1}): assert isinstance(error, ValueError) and "has kept another run there" in str(error)
    for error in together(2, refused_restart, tmp_path, {"secret": OTHER}): assert isinstance(error, ValueError) and "has kept another run there" in str(error)
    (tmp_path / "1").rename(tmp_path / "away")
    for error in together(2, refused_restart, tmp_path, {}): assert isinstance(error, ValueError) and "rank 1 has no trace of a run that others have begun" in str(error)
    for path in (tmp_path / "1").iterdir(): path.unlink()
    for path in (tmp_path / "away").iterdir(): path.rename(tmp_path / "1" / path.name)
    for path in (tmp_path / "1").glob("rank-1.step-*"): path.unlink()
    for error in together(2, refused_restart, tmp_path, {}): assert isinstance(error, ValueError) and "no checkpoint that all ranks have" in str(error)


@pytest.mark.parametrize("lost, says", [
    (["half"], "no checkpoint that all ranks have"), (["half", "trace"], "rank 0 has heard step 4 from rank 1, which knows nothing of it")])
def test_the_loss_of_the_last_outcome_is_noticed(tmp_path, lost, says):
    """And it stays noticed, also when the model has changed by then, or when nothing but the mark of the run is left."""
    assert together(2, part_of_run, tmp_path, 5) == [5, 5]
    for kind in lost:
        for path in (tmp_path / "1").glob({"half": "rank-1.half-4", "trace": "rank-1.trace-*"}[kind]): path.unlink()
    for _ in range(2):
        for error in together(2, refused_restart, tmp_path, {}): assert isinstance(error, ValueError) and says in str(error)
    for path in [*tmp_path.glob("*/*half*"), *tmp_path.glob("*/*step*"), *tmp_path.glob("*/*trace*")]: path.unlink()
    for error in together(2, refused_restart, tmp_path, {"clip": 0.1}): assert isinstance(error, ValueError) and "has kept another run there" in str(error)


SHIFT = 0.0


class Helped(torch.nn.Module):
    """A model whose forward calls a function with a global."""
    def __init__(self):
        super().__init__()
        self.net = network()

    def forward(self, x): return shifted(self.net(x))


def shifted(x): return x * (1 + SHIFT)


def with_helper(net, folder, steps, shift):
    global SHIFT
    SHIFT = shift
    return part_of_run(net, folder, steps, make_model=Helped)


def test_what_forward_calls_is_part_of_a_restart(tmp_path):
    assert together(2, with_helper, tmp_path, 3, 0.0) == [3, 3]
    for error in together(2, with_helper, tmp_path, 0, 0.001): assert isinstance(error, ValueError) and "has kept another run there" in str(error)
    assert together(2, with_helper, tmp_path, 0, 0.0) == [2, 2]


def test_what_is_kept_is_private(tmp_path):
    together(2, part_of_run, tmp_path, 2)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.glob("*/rank-*") if path.suffix != ".lock"} == {0}


def test_a_journal_notices_damage_and_strangers(tmp_path):
    journal = Journal(tmp_path, 0, "run")
    journal.mark()
    journal.write("half", 0, {"half": np.ones(3)})
    assert journal.usable() == [0] and journal.reached == 1 and journal.read("half", 1) is None
    path = journal.path("half", 0)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="damaged"): journal.read("half", 0)
    journal.write("step", 4, {})
    assert journal.usable() == [4]  # from 0 the steps 1 to 3 would be computed again
    with pytest.raises(FileExistsError, match="step 4 has been sent already"):
        for _ in range(2): journal.write("half", 4, {})
    with pytest.raises(ValueError, match="another process is rank 0 there"): Journal(tmp_path, 0, "run")
    journal.lock.lock.release()
    with pytest.raises(ValueError, match="another run"): Journal(tmp_path, 0, "other")
    other = Journal(tmp_path, 1, "other")  # of another rank
    assert not other.known and other.usable() == [0]


def test_a_gradient_that_is_no_number_stops_everybody(alone):
    class Undefined(nn.Module):
        def __init__(self):
            super().__init__()
            self.theta = nn.Parameter(torch.zeros(3))
        def forward(self, x): return (self.theta.expand(len(x), 3) - 1).sqrt()
    peer = make_peer(alone, placement=[0] * N, make_model=Undefined)
    with pytest.raises(FloatingPointError, match="step 0: the gradient of node 0"): peer.step()
    with pytest.raises(RuntimeError, match="was interrupted"): peer.step()


def test_there_is_no_step_after_the_last(alone):
    peer = make_peer(alone, placement=[0] * N)
    peer.run()
    with pytest.raises(StopIteration, match="so has its account"): peer.step()


PROGRAM = """
import os, signal, sys
import numpy as np
from test_distributed import dp_dsgd, join, make_peer, T, W
with join(30.0) as net:
    peer = make_peer(net, algorithm=dp_dsgd(W, T), placement=[0, 1, 0, 1, 1], folder=sys.argv[1])
    if net.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        for _ in range(3): peer.step()
        os.kill(os.getpid(), signal.SIGKILL)
    peer.run(every=2)
    np.save(f"{sys.argv[1]}/{net.rank}.npy", peer.models[:, 0].numpy())
"""


@pytest.mark.nightly
def test_torchrun_starts_everybody_again(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1", tmp_path / "program.py", tmp_path]
    here = Path(__file__).parent
    path = os.pathsep.join(filter(None, [str(here), str(here.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "exitcode: -9" in done.stderr, done.stderr[-2000:]  # killed, and started again
    simulation = Simulation(network, DATA, BATCHES, [Run("", dp_dsgd(W, T), SCALE, secret=SECRET)], RATE, 0.5)
    simulation.run(progress=False)
    for rank, here in enumerate(([0, 2], [1, 3, 4])): np.testing.assert_allclose(np.load(tmp_path / f"{rank}.npy"), simulation.theta[0, here].numpy(), atol=3e-5)


def hosted(port, rank, size, timeout, answers, state, job, arguments):
    "As started by hand: rank 0 hosts the notice board."
    try:
        os.environ |= {"MFDL_STATE": state, "RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with join(timeout) as net: answers.put((rank, job(net, *arguments)))
    except Exception as error: answers.put((rank, error))


def start_hosted(size, job, *arguments, timeout=30.0):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answers = CONTEXT.Queue()
    ranks = [CONTEXT.Process(target=hosted, args=(port, rank, size, timeout, answers, os.environ["MFDL_STATE"], job, arguments)) for rank in range(size)]
    for process in ranks: process.start()
    return ranks, answers


def late_reader(net, topic, seconds, change):
    read = net.read_all

    def late(what, *rest):
        if what == topic and net.rank: time.sleep(seconds)
        return read(what, *rest)
    net.read_all = late
    make_peer(net, placement=[0, 1, 0, 0, 1], **(change if net.rank else {})).run()


@pytest.mark.parametrize("topic, change", [("settings", {"clip": 0.4}), ("finished", {})])
def test_who_hosts_the_board_stays_until_all_have_read_it(topic, change):
    ranks, answers = start_hosted(2, late_reader, topic, 1.0, change)
    for _ in ranks:
        answer = answers.get(timeout=60)[1]
        assert answer is None if topic == "finished" else isinstance(answer, ValueError) and "ranks do not agree: rank 1 has clip" in str(answer), answer
    for process in ranks: process.join(20)


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.nightly)])
def test_all_stop_when_the_host_of_the_board_is_gone(how, tmp_path):
    ranks, answers = start_hosted(N, endless, 0.05, tmp_path, timeout=3.0)
    wait_until(lambda: len(list(tmp_path.iterdir())) == N)
    os.kill(ranks[0].pid, how)
    began = time.time()
    found = [answers.get(timeout=30)[1] for _ in range(N - 1)]
    assert time.time() - began < 2 * 3.0 + 4 and all(isinstance(error, PeerLost) for error in found), found
    ranks[0].kill()
    for process in ranks: process.join(20)


def slow_to_draw(net, folder, steps):
    peer = make_peer(net, placement=[0, 1, 0, 0, 1], folder=folder, algorithm=dp_dsgd(W, LONG))
    if not steps: return peer.t
    for _ in range(steps): peer.step()
    peer.save()


def test_a_restart_may_take_longer_than_the_timeout(tmp_path, monkeypatch):
    together(2, slow_to_draw, tmp_path, 20)
    answers = together(2, slow_restart, tmp_path, timeout=2.0)
    assert answers == [20, 20], answers


def slow_restart(net, folder):
    replay = HostedNoise.replay
    HostedNoise.replay = lambda noise, t: (time.sleep(0.25 if net.rank else 0.0), replay(noise, t))[1]
    try: return slow_to_draw(net, folder, 0)
    finally: HostedNoise.replay = replay


def test_a_refused_restart_is_refused_again(tmp_path):
    "Without a common checkpoint, from step 0 on."
    assert together(2, steps_without_checkpoint, tmp_path, 3) == [3, 3]
    for path in (tmp_path / "1").iterdir(): path.unlink()
    for _ in range(3):
        for error in together(2, steps_without_checkpoint, tmp_path, 1):
            assert isinstance(error, ValueError) and "rank 1 has no trace of a run that others have begun" in str(error), error


def steps_without_checkpoint(net, folder, steps):
    peer = make_peer(net, folder=folder, placement=[0, 1, 0, 0, 1])
    for _ in range(steps): peer.step()
    return peer.t


def test_a_folder_from_a_backup_is_refused(tmp_path):
    assert together(2, steps_without_checkpoint, tmp_path, 2) == [2, 2]
    shutil.copytree(tmp_path / "1", tmp_path / "backup")
    assert together(2, steps_without_checkpoint, tmp_path, 5) == [5, 5]
    shutil.rmtree(tmp_path / "1")
    (tmp_path / "backup").rename(tmp_path / "1")
    for error in together(2, steps_without_checkpoint, tmp_path, 5):
        assert isinstance(error, ValueError) and "rank 0 has heard step 2 from rank 1, which knows nothing of it" in str(error), error


def own_checkpoints(net, folder, every):
    peer = make_peer(net, folder=folder, placement=[0, 1, 0, 0, 1], algorithm=dp_dsgd(W, LONG))
    for _ in range(11):
        peer.step()
        if peer.t % every[net.rank] == 0: peer.save()
    return peer.journal.usable()


def test_different_habits_of_keeping_never_leave_ranks_without_a_common_checkpoint(tmp_path):
    usable = together(2, own_checkpoints, tmp_path, (2, 3))
    assert set(usable[0]) & set(usable[1]) and together(2, steps_of, tmp_path) == [6, 6]


def steps_of(net, folder): return make_peer(net, folder=folder, placement=[0, 1, 0, 0, 1], algorithm=dp_dsgd(W, LONG)).t


def frozen(net, folder, pid):
    peer = make_peer(net, folder=folder, placement=[0, 1, 0, 0, 1])
    for _ in range(2): peer.step()
    if net.rank and pid:
        changes = peer.learner.changes

        def freeze(t):
            found = changes(t)
            os.kill(os.getpid(), signal.SIGSTOP)
            return found
        peer.learner.changes = freeze
    peer.run()


def test_a_frozen_process_keeps_its_folder(tmp_path):
    store, ranks, answers = start(2, frozen, tmp_path, True, timeout=2.0)
    assert isinstance(answers.get(timeout=20)[1], PeerLost)
    found = together(2, steps_without_checkpoint, tmp_path, 4, timeout=3.0)
    assert any("another process is rank 1 there, perhaps a frozen one" in str(error) for error in found) and all(isinstance(error, Exception) for error in found), found
    ranks[1].kill()
    for process in ranks: process.join(20)


def test_seeds_are_checked_before_anything(alone):
    everybody, algorithm = [0] * N, decor(W, T)
    dealt = deal_seeds(algorithm, SECRET)
    row = next(row for row in dealt[0] if row in dealt[1])
    for seeds, message in [({**dealt, 0: {**dealt[0], 99: 1}}, "are for rows"), ({**dealt, 1: {**dealt[1], row: 5}}, "another node here has another one"),
                           ({u: dict.fromkeys(held, OTHER) for u, held in dealt.items()}, "rank 0 has the same seed for row"),
                           ({u: dict.fromkeys(held, 7) for u, held in dealt.items()}, "has at most 64 bits, so that other ranks could guess it"),
                           (deal_seeds(algorithm, 77), "follow from a secret below 16384"),
                           ({**dealt, 0: {**dealt[0], row: 2**128}}, "expected an integer")]:
        with pytest.raises(ValueError, match=message): Peer(alone, network, DATA, BATCHES, Run("r", algorithm, 1.0), seeds, RATE, 0.5, everybody)
        alone.written.clear()
    make_peer(alone, placement=everybody, clip=np.float32(0.5), scale=np.float32(1))
    with pytest.raises(ValueError, match="there has been a Peer on it"): make_peer(alone, placement=everybody)


def steps_with_seeds(net, folder, steps, without=0, secret=SECRET, case="independent"):
    "A few steps; the last records of everybody have been deleted."
    index = np.where(BATCHES.index >= len(DATA.y) - without, -1, BATCHES.index)
    change = {"placement": [0, 1, 0, 0, 1], "index": index, "secret": secret}
    peer = make_peer(net, case, folder=folder, **change)
    for _ in range(steps): peer.step()
    return peer.t


def assert_spent(found):
    for rank, error in enumerate(found):
        assert isinstance(error, ValueError), error
        assert "seeds: rank 0 has used those of rows " in str(error), error
        assert "Expected new seeds" in str(error), rank


@pytest.mark.parametrize("case", ["independent", "secrets"])
def test_seeds_that_were_used_are_refused_without_a_folder_and_in_another(tmp_path, case):
    """With data that changed and with the same; new seeds are welcome, and a run goes on in its own folder."""
    def again(folder, without=0, secret=SECRET):
        return together(2, steps_with_seeds, folder, 2, without, secret, case)
    assert again(None) == [2, 2]
    assert_spent(again(None, without=N))
    assert_spent(again(None))
    assert_spent(again(tmp_path / "new", without=N))
    assert again(None, without=N, secret=OTHER) == [2, 2]
    assert again(tmp_path / "kept", secret=OTHER + 1) == [2, 2]
    assert_spent(again(None, without=N, secret=OTHER + 1))
    assert_spent(again(tmp_path / "other", without=N, secret=OTHER + 1))
    assert together(2, steps_with_seeds, tmp_path / "kept", 4, 0, OTHER + 1, case) == [4, 4]


def test_a_run_that_is_refused_uses_no_seeds(tmp_path):
    assert together(2, steps_with_seeds, None, 1) == [1, 1]
    for error in together(2, disagreeing_seeds, tmp_path): assert isinstance(error, ValueError)
    assert together(2, steps_with_seeds, None, 1, 0, OTHER) == [1, 1]


def disagreeing_seeds(net, folder):
    "Rank 0 has used its seeds, rank 1 has new ones."
    steps_with_seeds(net, folder, 1, 0, OTHER if net.rank else SECRET)


def test_the_list_of_used_seeds(tmp_path, monkeypatch):
    monkeypatch.setenv("MFDL_STATE", str(tmp_path / "state"))
    used, seeds = UsedSeeds(), {"0": "a" * 64, "7": "b" * 64}
    assert used.look_up(seeds) == [] == used.write(seeds, "one", False)
    assert used.write({"7": "b" * 64}, "one", False) == []  # shared with another rank of the run
    assert used.look_up(seeds) == ["0", "7"] and used.write(seeds, "two", False) == ["0", "7"]
    assert used.write(seeds, "two", True) == [] and set(used.runs().values()) == {"one"}
    assert used.path.stat().st_mode & 0o077 == 0
    with open(used.path, "a") as file: file.write("\n" + "c" * 64)  # killed while it wrote
    assert used.look_up({"3": "c" * 64}) == ["3"]
    assert used.write({"4": "d" * 64}, "three", False) == [] and used.look_up({"4": "d" * 64}) == ["4"]
    (tmp_path / "file").touch()
    monkeypatch.setenv("MFDL_STATE", str(tmp_path / "file" / "below"))
    with pytest.raises(ValueError, match="MFDL_STATE=.*expected a folder of your own"):
        UsedSeeds().look_up(seeds)


def orderly(net, folder):
    "What happens in which order: notices, what is settled on the disk, what is sent."
    events, settle, write = [], mfdl.base.files.settle, net.write
    mfdl.base.files.settle = lambda *paths: (settle(*paths), events.extend(("settled", os.path.basename(path)) for path in paths))
    net.write = lambda topic, content: (events.append(("notice", topic, len(json.dumps(content)))), write(topic, content))
    peer = make_peer(net, folder=folder, placement=[0, 1, 0, 0, 1])
    swap = peer.exchange.swap
    peer.exchange.swap = lambda t, *rest: (events.append(("sent", t)), swap(t, *rest))[1]
    try: peer.run(every=2)
    finally: mfdl.base.files.settle = settle
    return events


def test_a_step_is_on_the_disk_before_it_is_sent_and_no_model_on_the_board(tmp_path):
    for rank, events in enumerate(together(2, orderly, tmp_path)):
        for t in range(T):
            before = events[:events.index(("sent", t))]
            assert any(kind == "settled" and name.startswith(f"rank-{rank}.half-{t}.") for kind, name, *_ in before), f"step {t} was sent before it was on the disk"
        notices = {topic: size for kind, topic, *size in events if kind == "notice"}
        assert notices.keys() <= {"settings", "usable", "kept", "ready", "finished", "at", "left"} and max(size for size, in notices.values()) < 1500


LINE = gossip_matrix(nx.path_graph(3))
AUDITED = [
    pytest.param(mf_dsgd(LINE, 4, np.tril(np.linalg.inv(np.eye(4) - 0.5 * np.eye(4, k=-1)))), PNDP([0]), id="in time"),
    pytest.param(decor(LINE, 4, 0.5), LDP(), id="shared noise", marks=pytest.mark.nightly),
]


def heard_in_runs(net, model, data, batches, runs, lr, clip, protect, noise):
    "What this rank hears in each of many runs, with what seeds it is dealt for them."
    at = HostedNoise.at
    HostedNoise.at = lambda self, t: [noise * z for z in at(self, t)]
    found = []
    for number, run in enumerate(runs):
        board = Network(net.rank, net.size, dist.PrefixStore(f"run {number}", net.store), net.timeout)
        label = run.protocol.nodes[net.rank]
        seeds = {label: deal_seeds(run.protocol, run.secret)[label]}
        own = Batches(batches.index[[net.rank]])
        peer = Peer(board, lambda: copy.deepcopy(model), data, own, run, seeds, lr, clip,
                    protect=protect, record=True)
        while peer.t < peer.T: peer.step()
        found.append({key: message.numpy() for key, message in peer.transcript.items()})
    return found


class Peers:
    """In place of a Simulation in an audit: a process for each node, in each of the runs.

    Its transcript has what was heard by somebody over the network, and by nobody else.
    """
    noise = 1.0  # by which all noise is multiplied; 1 where nothing is wrong

    def __init__(self, make_model, data, batches, runs, lr, clip, protect, record):
        model, messages = make_model(), runs[0].protocol.messages
        self.learner = SimpleNamespace(model=model)
        found = together(batches.n, heard_in_runs, model, data, batches, runs, lr, clip, protect, self.noise)
        for answer in found:
            if isinstance(answer, Exception): raise answer
        names = list(zip(messages.step.tolist(), messages.round.tolist(), messages.sender.tolist(), strict=True))
        heard = [{key: message for rank in found for key, message in rank[r].items()} for r in range(len(runs))]
        assert all(one.keys() == set(names) for one in heard), "somebody heard something else"
        self.transcript = [torch.tensor(np.array([[one[name] for one in heard] for name in names]))]

    def step(self): pass


@pytest.mark.parametrize("run, trust", AUDITED)
def test_audits_of_processes_find_what_is_claimed_and_noise_that_is_too_small(run, trust, monkeypatch):
    """The best linear test of what is heard between processes: as far apart as the account says.

    With a third of the noise it is three times as far, and the same audit refutes the claim.
    """
    monkeypatch.setattr("mfdl.evidence.methods.replays.Simulation", Peers)
    scheme = Participation.cyclic(2, 2)
    sigma = account(run, trust, scheme).sensitivity.max() / 2
    usual = {"sigma": sigma, "replays": 24}
    found = audit(run, trust, scheme, **usual, secret=1)
    assert found.tight, found
    monkeypatch.setattr(Peers, "noise", 0.3)
    assert audit(run, trust, scheme, **usual, secret=2).refuted


def test_what_chapter_80_says_of_the_benchmark():
    """The sentences under 'What it costs', against the committed table."""
    root = Path(__file__).parents[2]
    table = pd.read_csv(root / "benchmarks" / "network.csv")
    cells = json.loads((root / "nbs" / "tools" / "distributed.ipynb").read_text())["cells"]
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown").partition("## What it costs")[2]
    rings = table[table.graph.str.startswith("ring") & (table.how == "overlapped")]
    each = (rings.ms / rings.ranks)[rings.d == 1000]
    assert f"{each.min():.1f} to {each.max():.1f} milliseconds" in text
    ms = table[table.graph == "ring 4"].set_index(["d", "how"]).ms
    saved, cost = (1 - ms[10**4, "overlapped"] / ms[10**4, "in turn"], ms[10**4, "journal"] / ms[10**4, "overlapped"] - 1)
    assert f"saves {saved:.0%}".replace("%", " percent") in text and f"the journal costs {cost:.0%}".replace("%", " percent") in text
    lost = ms[10**6, "overlapped"] / ms[10**6, "in turn"] - 1
    assert f"costs {lost:.0%}".replace("%", " percent") in text and ms[10**6, "journal"] <= ms[10**6, "overlapped"]
    for row in table.itertuples():
        np.testing.assert_allclose(json.loads(row.kB), 4 * row.d / 1e3 * np.array(json.loads(row.degrees)), rtol=1e-12)
